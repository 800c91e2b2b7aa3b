"""The bytes of all sources, taken through compression to their readers, in this process or by several.

In: the inputs of a run. Out: nothing; what is read goes into `Gathered`. Sources are read one after another, block by
block; nothing is held but what compression lets through and what the readers gather.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from diagnose.clock import Clock
from diagnose.compress import Filters, PassThrough, Ranges, Routine, add_counts
from diagnose.errors import LimitExceeded, SourceError
from diagnose.gathered import Gathered
from diagnose.lines.columns import lines_of
from diagnose.lines.order import restore
from diagnose.models import CompressionCounts, FilterRule, Input, Kept, LogSource, RuleSet, SourceKind
from diagnose.reading import LEAP_LINES, LinesReading, SourceReader
from diagnose.spread import HEAD_BYTES, Spread, kept_lines, with_head

if TYPE_CHECKING:
    from diagnose.models.learning import FilterAdvice

_YEAR_SOURCES, _YEAR_BYTES = 8, 64 * 1024  # looked into for the year
_SURE_PACE = 10_000_000  # bytes a second, which the slowest run exceeds


class Feeding:
    """Reads the inputs of one run; `on_progress` gets bytes read and bytes on disk (None where not known)."""

    def __init__(
        self,
        gathered: Gathered,
        rules: RuleSet,
        clock: Clock,
        advice: FilterAdvice | None = None,
        on_progress: Callable[[int, int | None], None] | None = None,
    ) -> None:
        self._gathered = gathered
        self._rules = rules
        self._settings = gathered.settings
        self._clock = clock
        self._advice = advice
        self._on_progress = on_progress
        self._advised: tuple[FilterRule, ...] = ()
        self._filters = gathered.prepared.filters
        self._listeners = gathered.prepared.listeners
        self._routines: dict[SourceKind, Routine] = {}
        self._with_gaps: list[str] = []
        self._bytes_left_out = 0
        self._total: int | None = None

    def read(self, given: Sequence[Input]) -> None:
        """Reads all inputs, as far as the time limit allows."""
        gathered, clock = self._gathered, self._clock
        sizes = [item.size for item in given]
        self._total = (
            sum(size for size in sizes if size is not None) if all(size is not None for size in sizes) else None
        )
        timed = [item for item in given if item.source.kind in ("kernel", "scheduler")]
        self._learn_year(timed if len(timed) < len(given) else ())
        # Scheduler records come last: what the job's own logs say tells which of several jobs is meant. So do kernel
        # logs that nobody can date yet: the job's own may state the year.
        unread: list[str] = []
        late = {"scheduler"} if gathered.calendar.year is not None else {"scheduler", "kernel"}
        inputs = sorted(given, key=lambda item: item.source.kind in late)
        if gathered.calendar.year is None and len(inputs) > 1:
            self._learn_year([item for item in inputs if item.source.kind not in late])
        with Spread(inputs, self, self._processes()) as spread:
            for index, item in enumerate(inputs):
                if clock.reading_over:
                    unread.append(item.source.name)
                    continue
                clock.sources_left = len(inputs) - index
                if not spread.has(index) or not self._read_spread(spread, index, item):
                    self._read(item)
                if grown := item.grown():
                    gathered.coverage.not_read.append(
                        f"{item.source.name}: {grown} bytes that were appended while it was read"
                    )
        self._tell_unread(unread)

    def _learn_year(self, inputs: Sequence[Input]) -> None:
        """Take the year from the beginnings of the first inputs, before stamps that leave it out are read."""
        again = [item for item in inputs if item.size is not None]  # a pipe's bytes come once
        for item in again[:_YEAR_SOURCES]:
            try:
                self._gathered.calendar.learn(next(iter(item.blocks()), b"")[:_YEAR_BYTES])
            except SourceError:
                continue  # told when it is read
            if self._gathered.calendar.year is not None:
                return

    def _processes(self) -> int:
        """How many processes may compress; one where time could become short, since only that one leaps to an end."""
        hurried = self._total is None or self._total > _SURE_PACE * self._settings.limits.seconds
        hurried = hurried or self._advice is not None  # which is of this process
        return 1 if hurried or not self._settings.compress else self._settings.processes

    def reading(self, source: LogSource) -> LinesReading | None:
        """What reads the lines of a source in another process; kernel logs may need the year that others state."""
        return LinesReading(self._gathered, source) if source.kind == "job" else None

    def compressor(self, source: LogSource, start: int = 0) -> Ranges:
        """The compressor of a source, or of one range of it that begins at byte `start`."""
        watch = None if self._advice is None else self._advice.watch(source)
        limits, listeners = self._settings.limits, self._listeners
        routine = self._routines.setdefault(source.kind, Routine())
        return Ranges(
            source,
            self._filters,
            self._gathered.guard,
            limits,
            start,
            listeners=listeners,
            watch=watch,
            routine=routine,
        )

    def _take_advice(self, compressor: Ranges | PassThrough) -> None:
        """Lets new filter rules apply to the rest of this source and to those that follow."""
        news = self._advice.news() if self._advice is not None else ()
        if news and isinstance(compressor, Ranges):
            self._advised += tuple(news)
            self._filters = Filters((*self._rules.filters, *self._advised))
            self._routines = {}
            compressor.adopt(self._filters)

    def _read_spread(self, spread: Spread, index: int, item: Input) -> bool:
        """Feeds one source that other processes compress; says no where it must be read here, from its start."""
        coverage = self._gathered.coverage
        reader = SourceReader(self._gathered, item)
        counts = CompressionCounts()
        broken = whole = False
        for frame in spread.frames(index):
            if frame[0] == "whole":
                whole = True
            elif broken or whole:
                continue  # what other processes had begun
            elif frame[0] == "head":
                reader.learn(frame[1])
            elif frame[0] == "end":
                counts = add_counts(counts, CompressionCounts(*frame[1]))
            elif frame[0] == "year":
                self._gathered.calendar.year = self._gathered.calendar.year or frame[1]
            elif frame[0] in {"kept", "lines"}:
                self._count(frame[1])
                if frame[0] == "kept":
                    reader.feed(kept_lines(frame[2], counts.lines))
                else:
                    reader.take(*lines_of(frame[2], item.source))
                broken = self._clock.reading_over
                if broken:
                    coverage.not_read.append(
                        f"{item.source.name}: {self._clock} was reached; what follows was not read"
                    )
            else:
                coverage.not_read.append(frame[1])
                broken = True
        if not whole:
            reader.finish()
            self._gathered.account(item.source, reader.tracker, counts, truncated=broken)
        return not whole

    def _read(self, item: Input) -> None:
        """Feeds one source through compression, lines and the matcher."""
        if item.kept is not None:
            self._replay(item, item.kept)
            return
        source, limits, coverage = item.source, self._settings.limits, self._gathered.coverage
        restored = restore(source, self._blocks(item), limits)
        compressor = (
            self.compressor(source)
            if self._settings.compress
            else PassThrough(source, limits, self._gathered.guard, self._filters)
        )
        reader = SourceReader(self._gathered, item)
        truncated = False
        gap = 0
        try:
            for block in with_head(restored.blocks, reader.learn):
                if not gap and (gap := item.left_out()):
                    reader.leap()
                reader.feed(compressor.feed(block))
                if self._advice is not None:
                    self._take_advice(compressor)
                if self._clock.reading_over and not gap:
                    raise LimitExceeded(f"{source.name}: {self._clock} was reached; what follows was not read")
        except SourceError as error:
            truncated = True
            coverage.not_read.append(str(error))
        reader.feed(compressor.finish())
        reader.finish()
        counts = compressor.counts
        if gap:
            truncated = True
            self._with_gaps.append(source.name)
            self._bytes_left_out += gap
        if gap and restored.reversed:
            coverage.numbers[source.name] = lambda _number: None
        elif gap:
            coverage.numbers[source.name] = lambda number: number if number < LEAP_LINES else None
        elif restored.reversed:
            coverage.numbers[source.name] = partial(restored.original, total=counts.lines)
        self._gathered.account(source, reader.tracker, counts, truncated=truncated)

    def _replay(self, item: Input, kept: Kept) -> None:
        """Feeds the lines of a kept log as they were chosen when it was made."""
        from diagnose.compress.keptlog import KeptReader, guard_version

        source, gathered = item.source, self._gathered
        reader, log = SourceReader(gathered, item), KeptReader(kept.records(), source.name)
        truncated = False
        try:
            reader.learn(b"".join(item.blocks())[:HEAD_BYTES])
            for lines in log.lines():
                reader.feed(lines)
                if self._clock.reading_over:
                    raise LimitExceeded(f"{source.name}: {self._clock} was reached; what follows was not read")
        except SourceError as error:
            truncated = True
            gathered.coverage.not_read.append(str(error))
        reader.finish()
        gathered.cost.bytes += log.counts.bytes
        gathered.account(source, reader.tracker, log.counts, truncated=truncated)
        if kept.guard != guard_version(gathered.guard, self._rules.filters) or kept.kind != source.kind:
            gathered.coverage.not_read.append(
                f"{source.name}: lines that were left out when it was compressed elsewhere, by other rules than these; "
                "some that these would want may be among them. Give the log itself if it is still there"
            )

    def _tell_unread(self, unread: Sequence[str]) -> None:
        """Tells of which sources the time limit took the middle, and of which all."""
        if self._with_gaps:
            self._gathered.coverage.not_read.append(
                f"{_named(self._with_gaps)}: {self._bytes_left_out} bytes between beginning and end, for "
                f"{self._clock} was near; lines after them bear no numbers. Give fewer inputs"
            )
        if unread:
            self._gathered.coverage.not_read.append(
                f"{_named(unread)}: not at all, for {self._clock} was near. Give fewer inputs"
            )

    def _blocks(self, item: Input) -> Iterator[bytes]:
        for block in item.blocks():
            self._count(len(block))
            yield block

    def _count(self, size: int) -> None:
        self._gathered.cost.bytes += size
        if self._on_progress:
            self._on_progress(self._gathered.cost.bytes, self._total)


def _named(sources: Sequence[str]) -> str:
    more = len(sources) - 3
    return ", ".join(sources[:3]) + (f" and {more} more" if more > 0 else "")
