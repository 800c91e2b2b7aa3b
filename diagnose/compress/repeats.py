"""Lines that no rule speaks of but that one writer prints over and over: thinned out as progress is.

In: templates and lines that neither filters nor the guard speak of. Out: which of the lines pass on. Templates that
differ only in how long their numbers are make a *family*. A writer's first lines of a family pass, then every Nth, N
growing, and the last before something happens, which is held back until then. A line that may state a step passes also
where one of the numbers behind its words for steps falls; where these fall often, all pass. Families in whose lines
another reader takes an interest always pass. Memory is bounded; what is forgotten is counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from diagnose.compress.guard import Answer, Guard
from diagnose.compress.prefix import writer_span
from diagnose.models import KeptLine

WORN: Final = 400
"""So many lines of a writer's show what the others will be."""
EVERY: Final = 50
_PART: Final = 4  # of what a writer has shown: so much may go by
_FALLS: Final = 20  # at most one line in so many may begin anew
FAMILIES: Final = 8_192
WRITERS: Final = 8_192
_FAMILY_BYTES: Final = 1024  # longer lines are never thinned out
_NUMBER_DIGITS: Final = 15
_NUMBERS: Final = 8
_RUN: Final = re.compile(rb"0+")
_STEP_WORDS: Final = re.compile(rb"(?i)step|iter|poch|batch|update")
_BEHIND: Final = 24  # bytes behind such a word in which its number begins
_NEXT: Final = re.compile(rb"[\[\](){}/.: ]{1,4}(?:of )?(?=0)")  # between numbers of one count


class Listeners:
    """Who is interested in which lines: literals of those that read every line, and of those that read steps."""

    def __init__(self, spoken: Iterable[str] = (), steps: Iterable[str] = ()) -> None:
        self._spoken = Guard(spoken)
        self._steps = Guard(steps)

    def interest(self, line_template: bytes) -> Answer:
        """SURE where every line must be read, MAYBE where the steps in it must be followed, else NO."""
        if self._spoken.judge(line_template) is not Answer.NO:
            return Answer.SURE
        return Answer.NO if self._steps.judge(line_template) is Answer.NO else Answer.MAYBE


class _Writer:
    """What one writer has printed of a family; `number`, `raw` and `bar` are of the line held back, if there is one."""

    __slots__ = ("bar", "every", "falls", "last", "number", "raw", "seen", "shown")

    def __init__(self) -> None:
        self.last: list[int] = []
        self.falls = 0
        self.seen = 0  # lines since the last that passed
        self.shown = 0  # lines before those
        self.every = 1
        self.number = 0
        self.raw: bytes | None = None
        self.bar = False


class Shape:
    """Where the lines of one template hold the name of their writer and the numbers to follow."""

    __slots__ = ("name", "numbers", "writers")

    def __init__(self, name: slice, numbers: tuple[slice, ...], writers: dict[bytes, _Writer]) -> None:
        self.name = name
        self.numbers = numbers
        self.writers = writers


class Repeats:
    """Thins out what is repeated, per family and writer; `dropped` counts what it took out."""

    def __init__(self, listeners: Listeners) -> None:
        self.dropped = 0
        self.evicted = 0
        self._listeners = listeners
        self._families: dict[bytes, dict[bytes, _Writer]] = {}
        self._known = 0
        self._holding: list[_Writer] = []  # all that hold a line back, and some that did

    def room(self, lines: int) -> bool:
        """Whether so many lines cannot make it forget anything."""
        return self._known + lines <= WRITERS and len(self._families) + lines <= FAMILIES

    def shape(self, line_template: bytes) -> Shape | None:
        """How to thin out the lines of a template; None where all of them pass."""
        if len(line_template) > _FAMILY_BYTES:
            return None
        interest = self._listeners.interest(line_template)
        numbers = () if interest is Answer.NO else _numbers(line_template)
        if interest is Answer.SURE or (interest is Answer.MAYBE and not numbers):
            return None
        if len(self._families) >= FAMILIES:
            self.evicted += len(self._families)
            self._families.clear()
        writers = self._families.setdefault(_RUN.sub(b"0", line_template), {})
        return Shape(slice(*writer_span(line_template, "rank")), numbers, writers)

    def take(
        self, shape: Shape, number: int, raw: bytes, out: list[KeptLine], *, must: bool = False, bar: bool = False
    ) -> bool:
        """Pass a line on to `out`, which it does at once if it `must`, or hold it back; say if its writer was worn."""
        name = raw[shape.name]
        writer = shape.writers.get(name)
        if writer is None:
            if self._known >= WRITERS:
                self._forget(out)
            self._known += 1
            writer = shape.writers[name] = _Writer()
        worn = writer.every > 1
        fell = bool(shape.numbers) and _follow(writer, [int(raw[span]) for span in shape.numbers])
        writer.seen += 1
        if must or fell or writer.seen >= writer.every:
            if writer.raw is not None:
                if fell:
                    out.append(
                        KeptLine(writer.number, writer.raw, progress="" if writer.bar else None)
                    )  # the last before it began anew
                else:
                    self.dropped += 1
                writer.raw = None
            writer.shown += writer.seen
            writer.seen = 0
            if writer.shown >= WORN and writer.falls * _FALLS <= writer.shown:
                writer.every = max(EVERY, writer.shown // _PART)
            else:
                writer.every = 1
            out.append(KeptLine(number, raw, progress="" if bar else None))
            return worn
        if writer.raw is None:
            self._holding.append(writer)
        else:
            self.dropped += 1
        writer.number = number
        writer.raw = raw
        writer.bar = bar
        return worn

    def worn(self, shape: Shape | None, raw: bytes) -> bool:
        """Whether the writer of this line has printed many of its kind, so that it is as good as routine."""
        writer = None if shape is None else shape.writers.get(raw[shape.name])
        return writer is not None and writer.every > 1

    def held(self) -> list[KeptLine]:
        """Everything held back, which is to pass on now."""
        if not self._holding:
            return []
        held = []
        for writer in self._holding:
            if writer.raw is not None:
                held.append(KeptLine(writer.number, writer.raw, progress="" if writer.bar else None))
                writer.raw = None
        self._holding.clear()
        return held

    def _forget(self, out: list[KeptLine]) -> None:
        """Begin anew: each writer's next lines are first ones."""
        out += self.held()
        self.evicted += self._known
        self._known = 0
        for writers in self._families.values():
            writers.clear()


def _follow(writer: _Writer, numbers: list[int]) -> bool:
    """Note the numbers of a writer's next line; say whether one of them fell."""
    fell = any(map(int.__lt__, numbers, writer.last))
    writer.falls += fell
    writer.last = numbers
    return fell


def _numbers(line_template: bytes) -> tuple[slice, ...]:
    """Where the numbers behind words for steps stand, in their order: `step=5/90`, `Epoch [2][ 40/90]`."""
    spans: list[slice] = []
    for word in _STEP_WORDS.finditer(line_template):
        run = _RUN.search(line_template, word.end(), word.end() + _BEHIND)
        while run is not None and len(spans) < _NUMBERS:
            start, end = run.span()
            spans.append(slice(start, min(end, start + _NUMBER_DIGITS)))
            run = _NEXT.match(line_template, end)
            run = None if run is None else _RUN.match(line_template, run.end())
    return tuple(spans)
