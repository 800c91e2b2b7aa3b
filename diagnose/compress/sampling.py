"""What is remembered per writer: how far progress has come, and how many of a kind were shown.

In: routine lines with their rule and writer. Out: which of them pass on. Progress: first, every Nth of those that
follow, N growing with what a writer has shown, every reset, and the last before something happens, which is held back
until then, and the first after it: two steps behind a failure tell that it was survived. Memory is bounded; what is
forgotten is counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set as AbstractSet
from typing import Final, Protocol

from diagnose.compress.filters import Hit
from diagnose.models import KeptLine

PROGRESS_EVERY: Final = 50
_PART: Final = 2  # of what a writer has shown since its first line or a reset: so much may go by
WRITERS: Final = 8_192
# A longer progress line passes on at once: one for each of many writers may be held back.
_HELD_BYTES: Final = 4096


class Writer:
    """How far one writer has come by one rule; `number` and `raw` are of the line held back, if there is one."""

    __slots__ = ("every", "left", "number", "raw", "seen", "shown", "step")

    def __init__(self, step: int, seen: int) -> None:
        self.step = step  # -1: none is known
        self.seen = seen  # how much had happened when its last line passed
        self.shown = 0  # lines up to the last that passed
        self.every = PROGRESS_EVERY  # the line after it that passes
        self.left = PROGRESS_EVERY - 1  # lines until then
        self.number = 0
        self.raw: bytes | None = None


Writers = dict[bytes, Writer]


class Lines(Protocol):
    """Consecutive lines, of which `first` numbers the first."""

    first: int

    @property
    def lines(self) -> list[bytes]:
        """The lines without their ends."""
        ...


class ProgressSampler:
    """Thins out progress lines, per rule and writer; `dropped` counts what it took out."""

    def __init__(self, limit: int = WRITERS) -> None:
        self.dropped = 0
        self.evicted = 0
        self._limit = limit
        self._known = 0
        self._happened = 0  # how often everything held back was to pass on
        self._rules: defaultdict[str, Writers] = defaultdict(dict)
        self._holding: list[tuple[str, Writer]] = []  # all that hold a line back, and some that did

    def writers(self, rule: str) -> Writers:
        """The writers of one rule, to be handed to `take`: a look-up that callers make once."""
        return self._rules[rule]

    def room(self, lines: int) -> bool:
        """Whether so many lines cannot make it forget anything."""
        return self._known + lines <= self._limit

    def take(
        self,
        hit: Hit,
        writers: Writers,
        number: int,
        raw: bytes,
        out: list[KeptLine],
        *,
        must: bool = False,
        guarded: bool = False,
    ) -> None:
        """Pass a line on to `out`, which it does at once if it `must`, or hold it back."""
        first, last = hit.writer
        name = raw[first:last]
        span = hit.step
        step = -1 if span is None else int(raw[span[0] : span[1]])
        writer = writers.get(name)
        rule = hit.rule.id
        if writer is None:
            if self._known >= self._limit:
                self._forget(out)
            self._known += 1
            writers[name] = Writer(step, self._happened)
            out.append(KeptLine(number, raw, guarded, progress=rule))
            return
        fell = 0 <= step < writer.step
        if step >= 0:
            writer.step = step
        must = must or writer.seen != self._happened
        if writer.left > 0 and not (fell or must or len(raw) > _HELD_BYTES):
            self._hold_back(rule, writer, number, raw)
            writer.left -= 1
            return
        if fell:
            if writer.raw is not None:
                out.append(KeptLine(writer.number, writer.raw, progress=rule))  # the last before the reset
                writer.raw = None
            writer.shown, writer.every, writer.left = 0, 0, 0
        self._pass(writer)
        out.append(KeptLine(number, raw, guarded, progress=rule))

    def take_many(self, rule: str, name: bytes, steps: list[int], places: list[int], lines: Lines) -> list[int] | None:
        """Take those of some lines that one writer wrote, as `take` would; return the places of those that pass on.

        None, and nothing taken, where one of their steps falls. There must be `room` for them.
        """
        writers = self._rules[rule]
        writer = writers.get(name)
        if steps and (steps[0] < (0 if writer is None else writer.step) or steps != sorted(steps)):
            return None
        passed: list[int] = []
        at, count = 0, len(places)
        if writer is None:
            self._known += 1
            writer = writers[name] = Writer(-1, self._happened)
            passed.append(places[0])
            at = 1
        elif writer.seen != self._happened:
            self._pass(writer)
            passed.append(places[0])
            at = 1
        while at < count:
            held = min(writer.left, count - at)
            at += held
            if held:
                self._hold_back(rule, writer, lines.first + places[at - 1], lines.lines[places[at - 1]])
                self.dropped += held - 1
                writer.left -= held
            if at < count:
                self._pass(writer)
                passed.append(places[at])
                at += 1
        if steps:
            writer.step = steps[-1]
        return passed

    def _hold_back(self, rule: str, writer: Writer, number: int, raw: bytes) -> None:
        """Hold a line back, in place of the one that is, if any."""
        if writer.raw is None:
            self._holding.append((rule, writer))
        else:
            self.dropped += 1
        writer.number = number
        writer.raw = raw

    def _pass(self, writer: Writer) -> None:
        """Note that a line passes on; the one held back is not needed any more."""
        if writer.raw is not None:
            self.dropped += 1
            writer.raw = None
        writer.shown += writer.every - writer.left
        writer.every = max(PROGRESS_EVERY, writer.shown // _PART)
        writer.left = writer.every - 1
        writer.seen = self._happened

    def held(self) -> list[KeptLine]:
        """Everything held back, which is to pass on now: something happens, or nothing more comes."""
        self._happened += 1
        if not self._holding:
            return []
        held: list[KeptLine] = []
        for rule, writer in self._holding:
            if writer.raw is not None:
                held.append(KeptLine(writer.number, writer.raw, progress=rule))
                writer.raw = None
        self._holding.clear()
        return held

    def _forget(self, out: list[KeptLine]) -> None:
        """Begin anew: each writer's next line is a first one."""
        out += sorted(self.held(), key=lambda line: line.number)
        self.evicted += self._known
        self._known = 0
        for writers in self._rules.values():
            writers.clear()


class Quota:
    """The first few of each writer's lines, per rule."""

    def __init__(self, limit: int = WRITERS) -> None:
        self.evicted = 0
        self._limit = limit
        self._known = 0
        self._counts: defaultdict[str, dict[bytes, int]] = defaultdict(dict)
        self._full: defaultdict[str, set[bytes]] = defaultdict(set)

    def full(self, rule: str) -> AbstractSet[bytes]:
        """The writers of one rule that have none free: a look-up that callers make once."""
        return self._full[rule]

    def room(self, lines: int) -> bool:
        """Whether so many lines cannot make it forget anything."""
        return self._known + lines <= self._limit

    def takes(self, hit: Hit, raw: bytes) -> bool:
        """Whether the writer of this line still has one free."""
        first, last = hit.writer
        name = raw[first:last]
        counts = self._counts[hit.rule.id]
        count = counts.get(name, 0)
        if count >= hit.rule.keep_first:
            self._full[hit.rule.id].add(name)
            return False
        if count == 0:
            if self._known >= self._limit:
                self._forget()
            self._known += 1
        counts[name] = count + 1
        return True

    def _forget(self) -> None:
        self.evicted += self._known
        self._known = 0
        for counts in self._counts.values():
            counts.clear()
        for names in self._full.values():
            names.clear()
