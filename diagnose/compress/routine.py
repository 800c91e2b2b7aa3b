"""Routine lines of a whole block taken out at once, by one PCRE2 pattern; where `pcre2` is installed.

In: templates of lines that were judged and dropped one by one, and blocks of whole lines. Out: the blocks with `MARK`
in place of those lines that the pattern matches, so that line numbers survive. The pattern is put together from
templates, not from rules, and only from such as were judged: it can take out nothing that the compressor would not,
and costs the same whatever the number of rules. What it misses is judged line by line; what it cannot do at all (no
`pcre2`, a limit of its) leaves the block as it is.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from math import prod
from typing import Final

MARK: Final = b"\0"
"""What stands for a line taken out; no other line holds a NUL byte."""
NOTED: Final = 4096
"""So many lines are noted before a pattern is made of them."""
_FORMS: Final = 96
_FORMS_BYTES: Final = 24 * 1024  # of all forms: PCRE2 holds no more than 64 kB of code
_TOGETHER: Final = 256  # templates that one form may stand for
_SHAPES: Final = 512  # of one outline, the most common ones
_JUDGED: Final = 4096  # templates that are judged for one pattern
_TEMPLATES: Final = 16_384
_MADE: Final = 12  # patterns, each of twice as many lines as the last

# Lines of one form differ in how long their numbers are, and in how many blanks make up for it.
_RUNS: Final = re.compile(rb"0+| +")
_EXCESS: Final = re.compile(rb"(?<=0)0+|(?<= ) +")
_BYTES: Final = tuple(re.escape(bytes((code,))) for code in range(256))

Judge = Callable[[bytes], bool]
_Lengths = tuple[int, ...]
_Form = tuple[bytes, ...]  # pieces of a pattern that match one after the other, to the end of a line


def installed() -> bool:
    """Whether there is anything to make patterns with."""
    from importlib.util import find_spec

    return find_spec("pcre2") is not None


class Routine:
    """What is routine in sources of one kind. It remembers, and changes nothing of what is found."""

    def __init__(self, noted: int = NOTED) -> None:
        self.ready = False  # whether `cut` can take out anything
        self.learning = True  # whether `note` can teach anything more
        self._substitute: Callable[[bytes, bytes], tuple[bytes, int]] | None = None
        self._noted: Counter[bytes] = Counter()
        self._fresh = 0  # lines noted since a pattern was made
        self._wanted = noted
        self._left = _MADE
        self._known: dict[bytes, bool] = {}  # what `judge` said

    def note(self, templates: Iterable[bytes], judge: Judge) -> None:
        """Learn from the templates of lines that were dropped one by one; `judge` says of others if they would be."""
        before = self._noted.total()
        self._noted.update(templates)
        self._fresh += self._noted.total() - before
        if self._fresh >= self._wanted:
            self._fresh = 0
            self._wanted *= 2
            self._make(judge)
            self._left -= 1
            self.learning = self.learning and self._left > 0

    def cut(self, text: bytes) -> tuple[bytes, int]:
        """Put `MARK` in place of routine lines, and say of how many."""
        if self._substitute is None:
            return text, 0
        try:
            return self._substitute(MARK + b"\n", text)
        except Exception:  # noqa: BLE001 - whatever PCRE2 could not do is done line by line, and so is all that follows
            self._give_up()
            return text, 0

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
                self._substitute = pcre2.compile(b"(*LF)(?m:^)" + _either(forms, 0), jit=True).subn
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
                if all(self._judged(_template(outline, each), judge) for each in product(*lengths)):
                    forms.append(_form(outline, lengths))
                    size += len(outline)
                    continue
                # Not all of them are routine: then only what was seen.
                for shape in product(*lengths):
                    if shape in shapes and len(forms) < _FORMS and size <= _FORMS_BYTES:
                        forms.append(_form(outline, [{each} for each in shape]))
                        size += len(outline)
        return list(dict.fromkeys(forms))

    def _judged(self, template: bytes, judge: Judge) -> bool:
        known = self._known.get(template)
        if known is None:
            if len(self._known) >= _TEMPLATES:
                self._known.clear()
            known = self._known[template] = judge(template)
        return known


def _together(shapes: list[_Lengths]) -> Iterator[list[set[int]]]:
    """Put shapes of one outline together, the first ones first: which lengths each run may have, in any combination."""
    while shapes:
        lengths = [{each} for each in shapes[0]]
        rest: list[_Lengths] = []
        for shape in shapes[1:]:
            grown = [known if each in known else known | {each} for known, each in zip(lengths, shape, strict=True)]
            if prod(map(len, grown)) <= _TOGETHER:
                lengths = grown
            else:
                rest.append(shape)
        yield lengths
        shapes = rest


def _template(outline: bytes, lengths: _Lengths) -> bytes:
    """The template of an outline whose runs are so long."""
    left = iter(lengths)
    return _RUNS.sub(lambda run: run.group() * next(left), outline)


def _form(outline: bytes, lengths: list[set[int]]) -> _Form:
    """The pieces of a pattern that matches the lines of an outline whose runs have one of these lengths each."""
    pieces: list[bytes] = []
    start = 0
    for run, allowed in zip(_RUNS.finditer(outline), lengths, strict=True):
        pieces += map(_BYTES.__getitem__, outline[start : run.start()])
        pieces.append(_run(b"[0-9]" if run.group() == b"0" else b" ", allowed))
        start = run.end()
    pieces += map(_BYTES.__getitem__, outline[start:])
    pieces.append(rb"\n")
    return tuple(pieces)


def _run(of: bytes, allowed: set[int]) -> bytes:
    """A run of one of these lengths. Nothing of its kind follows it: the longest length that fits is the right one."""
    least, most = min(allowed), max(allowed)
    if most - least + 1 == len(allowed):
        return b"%b{%d,%d}+" % (of, least, most) if most > least else b"%b{%d}" % (of, most)
    return b"(?>%b)" % b"|".join(b"%b{%d}" % (of, each) for each in sorted(allowed, reverse=True))


def _either(forms: list[_Form], start: int) -> bytes:
    """A pattern that matches one of the forms, which begin alike up to piece `start`; what they share is tried once."""
    shared: list[bytes] = []
    while len(forms) > 1:
        groups: dict[bytes, list[_Form]] = {}
        for form in forms:
            groups.setdefault(form[start], []).append(form)
        if len(groups) > 1:
            either = b"|".join(_either(group, start) for group in groups.values())
            return b"".join(shared) + b"(?>" + either + b")"
        shared.append(forms[0][start])
        start += 1
    return b"".join(shared) + b"".join(forms[0][start:])
