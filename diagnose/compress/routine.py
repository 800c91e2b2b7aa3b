"""Lines of a whole block made into marks at once, by one PCRE2 pattern; where `pcre2` is installed.

In: templates of lines that were judged one by one and that one rule decides, and blocks of whole lines. Out: for each
line of a block a mark and a step: `DROPPED`, or the rule and the writer's name, or `OTHER` and the line where the
pattern does not match. The pattern is put together from templates, not from rules, and only from such as were judged:
it can mark nothing that the compressor would judge otherwise, and costs the same whatever the number of rules. What it
misses is judged line by line; what it cannot do at all (no `pcre2`, a limit of its) leaves the block as it is.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from math import prod
from typing import Final

from diagnose.compress.prefix import Span
from diagnose.dataclass import dataclass

MARK: Final = b"\0"
"""What stands between the parts of a mark; no line holds a NUL byte."""
DROPPED: Final = b"-\0"
"""The mark of a line that is dropped."""
OTHER: Final = b"+\0"
"""The mark of a line that the pattern does not match."""
NOTED: Final = 8192
"""So many lines are noted before a pattern is made of them."""
_MARKED: Final = b"${*MARK}\0$1\n$2\n"
_NO_FORM: Final = rb"()([^\n]*+)\n(*MARK:+)"
_FORMS: Final = 96
_FORMS_BYTES: Final = 24 * 1024  # of all forms: PCRE2 holds no more than 64 kB of code
_TOGETHER: Final = 256  # templates that one form may stand for
_EACH: Final = 8  # ... for each that was seen: of numbers that are right-aligned few go together
_SHAPES: Final = 512  # of one outline, the most common ones
_JUDGED: Final = 4096  # templates that are judged for one pattern
_TEMPLATES: Final = 16_384
_MADE: Final = 12  # patterns, each of twice as many lines as the last

# Lines of one form differ in how long their numbers are, and in how many blanks make up for it.
_RUNS: Final = re.compile(rb"0+| +")
_EXCESS: Final = re.compile(rb"(?<=0)0+|(?<= ) +")
_BYTES: Final = tuple(re.escape(bytes((code,))) for code in range(256))


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of all lines of a template: they are dropped, or `rule` decides by their writer and step."""

    rule: bytes = b"-"
    name: Span = (0, 0)
    step: Span = (0, 0)


_DROP: Final = Fate()
Judge = Callable[[bytes], Fate | None]
_Lengths = tuple[int, ...]
_Form = tuple[bytes, ...]  # pieces of a pattern that match one after the other, to the end of a line


def mark(rule: bytes, name: bytes) -> bytes:
    """The mark of a line that a rule decides."""
    return rule + MARK + name


def installed() -> bool:
    """Whether there is anything to make patterns with."""
    from importlib.util import find_spec

    return find_spec("pcre2") is not None


class Routine:
    """What is routine in sources of one kind. It remembers, and changes nothing of what is found."""

    def __init__(self, noted: int = NOTED) -> None:
        self.ready = False  # whether `marks` can mark anything
        self.learning = True  # whether `note` can teach anything more
        self._substitute: Callable[[bytes, bytes], tuple[bytes, int]] | None = None
        self._noted: Counter[bytes] = Counter()
        self._fresh = 0  # lines noted since a pattern was made
        self._wanted = noted
        self._left = _MADE
        self._known: dict[bytes, Fate | None] = {}  # what `judge` said

    def note(self, templates: Iterable[bytes], judge: Judge) -> None:
        """Learn from the templates of lines judged one by one; `judge` says what becomes of those of others."""
        before = self._noted.total()
        self._noted.update(templates)
        self._fresh += self._noted.total() - before
        if self._fresh >= self._wanted:
            self._fresh = 0
            self._wanted *= 2
            self._make(judge)
            self._left -= 1
            self.learning = self.learning and self._left > 0

    def marks(self, text: bytes) -> tuple[list[bytes], list[bytes]] | None:
        """The mark of each line, and its step, if it has one, or the line itself; None where it cannot be done."""
        if self._substitute is None:
            return None
        try:
            marked, _ = self._substitute(_MARKED, text)
        except Exception:  # noqa: BLE001 - whatever PCRE2 could not do is done line by line, and so is all that follows
            self._give_up()
            return None
        parts = marked.split(b"\n")
        return parts[:-1:2], parts[1::2]

    def _make(self, judge: Judge) -> None:
        """Make a pattern of what has been noted so far."""
        try:
            import pcre2
        except ImportError:
            self._give_up()
            return
        forms = self._forms(judge)
        while forms:
            try:
                self._substitute = pcre2.compile(b"(*LF)(?m:^)" + _any(forms), jit=True).subn
            except pcre2.PatternError:  # too large
                forms = forms[: len(forms) // 2]
            except Exception:  # noqa: BLE001 - a processor that PCRE2 has no compiler for, or no memory
                self._give_up()
                return
            else:
                self.ready = True
                break
        self._noted = Counter(dict(self._noted.most_common(_TEMPLATES // 2)))

    def _give_up(self) -> None:
        self._substitute = None
        self.ready = self.learning = False
        self._noted.clear()
        self._known.clear()

    def _forms(self, judge: Judge) -> list[_Form]:
        """The forms of what was noted, the most common first, as far as they are of use."""
        outlines: defaultdict[bytes, Counter[_Lengths]] = defaultdict(Counter)
        for each, count in self._noted.most_common(_TEMPLATES):
            outlines[_EXCESS.sub(b"", each)][tuple(map(len, _RUNS.findall(each)))] = count
        forms: list[_Form] = []
        size = 0
        left = _JUDGED
        for outline, shapes in sorted(outlines.items(), key=lambda item: -item[1].total()):
            for lengths in _together([shape for shape, _ in shapes.most_common(_SHAPES)]):
                left -= prod(map(len, lengths))
                if left < 0 or len(forms) >= _FORMS or size > _FORMS_BYTES:
                    return list(dict.fromkeys(forms))
                fates = {self._fate(outline, each, judge) for each in product(*lengths)}
                alike = fates.pop() if len(fates) == 1 else None
                if alike is not None:
                    forms.append(_form(outline, lengths, alike))
                    size += len(outline)
                    continue
                # Not all of them are routine alike: then only what was seen.
                for shape in product(*lengths):
                    fate = self._fate(outline, shape, judge) if shape in shapes else None
                    if fate is not None and len(forms) < _FORMS and size <= _FORMS_BYTES:
                        forms.append(_form(outline, [{each} for each in shape], fate))
                        size += len(outline)
        return list(dict.fromkeys(forms))

    def _fate(self, outline: bytes, lengths: _Lengths, judge: Judge) -> Fate | None:
        """What becomes of the lines of one shape, with places in the outline; None where they must be looked at."""
        template = _template(outline, lengths)
        if template not in self._known:
            if len(self._known) >= _TEMPLATES:
                self._known.clear()
            self._known[template] = judge(template)
        fate = self._known[template]
        if fate is None or fate.rule == _DROP.rule:
            return fate
        # Names and steps that begin or end within a run, or stand in another order, are no part of a pattern.
        places = _places(outline, lengths)
        start, name, step, end = [places.get(border, -1) for border in (*fate.name, *fate.step)]
        if min(start, name, step, end) < 0 or (step < name and step < end):
            return None
        return Fate(fate.rule, (start, name), (step, end))


def _together(shapes: list[_Lengths]) -> Iterator[list[set[int]]]:
    """Put shapes of one outline together, the first ones first: which lengths each run may have, in any combination."""
    while shapes:
        lengths = [{each} for each in shapes[0]]
        rest: list[_Lengths] = []
        seen = 1
        for shape in shapes[1:]:
            grown = [known if each in known else known | {each} for known, each in zip(lengths, shape, strict=True)]
            if prod(map(len, grown)) <= min(_TOGETHER, _EACH * (seen + 1)):
                lengths = grown
                seen += 1
            else:
                rest.append(shape)
        yield lengths
        shapes = rest


def _template(outline: bytes, lengths: _Lengths) -> bytes:
    """The template of an outline whose runs are so long."""
    left = iter(lengths)
    return _RUNS.sub(lambda run: run.group() * next(left), outline)


def _places(outline: bytes, lengths: _Lengths) -> dict[int, int]:
    """Where in the outline each place of its template is, but those within runs."""
    places: dict[int, int] = {}
    at = start = 0
    for run, length in zip(_RUNS.finditer(outline), lengths, strict=True):
        for place in range(start, run.start() + 1):
            places[at + place - start] = place
        at += run.start() - start + length
        start = run.end()
    for place in range(start, len(outline) + 1):
        places[at + place - start] = place
    return places


def _form(outline: bytes, lengths: list[set[int]], fate: Fate) -> _Form:
    """The pieces of a pattern that matches the lines of an outline whose runs have one of these lengths each.

    It ends with the mark of their rule. Name and step are its two groups, each in one piece.
    """
    pieces = [_BYTES[byte] for byte in outline]
    for run, allowed in zip(_RUNS.finditer(outline), lengths, strict=True):
        pieces[run.start()] = _run(b"[0-9]" if run.group() == b"0" else b" ", allowed)
    (start, name), (step, end) = fate.name, fate.step
    named = b"(%b)" % b"".join(pieces[start:name])
    stepped = b"(%b)" % b"".join(pieces[step:end])
    ending = rb"\n(*MARK:%b)" % fate.rule
    if end:
        return (*pieces[:start], named, *pieces[name:step], stepped, *pieces[end:], ending)
    # `()` matches nowhere but where it is: at the end, lest lines that begin alike be told apart by it.
    if name:
        return (*pieces[:start], named, *pieces[name:], b"()", ending)
    return (*pieces, b"()()", ending)


def _run(of: bytes, allowed: set[int]) -> bytes:
    """A run of one of these lengths. Nothing of its kind follows it: the longest length that fits is the right one."""
    least, most = min(allowed), max(allowed)
    if most - least + 1 == len(allowed):
        return b"%b{%d,%d}+" % (of, least, most) if most > least else b"%b{%d}" % (of, most)
    return b"(?>%b)" % b"|".join(b"%b{%d}" % (of, each) for each in sorted(allowed, reverse=True))


def _any(forms: list[_Form]) -> bytes:
    """A pattern that matches any line, those of a form as such."""
    return b"(?>(?|" + _either(forms, 0) + b"|" + _NO_FORM + b"))"


def _either(forms: list[_Form], start: int) -> bytes:
    """A pattern that matches one of the forms, which begin alike up to piece `start`; what they share is tried once."""
    shared: list[bytes] = []
    while len(forms) > 1:
        groups: dict[bytes, list[_Form]] = {}
        for form in forms:
            groups.setdefault(form[start], []).append(form)
        if len(groups) > 1:
            either = b"|".join(_either(group, start) for group in groups.values())
            return b"".join(shared) + b"(?>(?|" + either + b"))"
        shared.append(forms[0][start])
        start += 1
    return b"".join(shared) + b"".join(forms[0][start:])
