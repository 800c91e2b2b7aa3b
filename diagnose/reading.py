"""The kept lines of one source, taken through lines, progress, attempts and records to the matcher.

In: what compression lets through of a source, or lines that another process has read. Out: nothing; all that is found
goes into `Gathered`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from diagnose.dataclass import replace
from diagnose.gathered import Gathered
from diagnose.lines import Calendar, LineReader, RecordAssembler
from diagnose.lines.attempts import AttemptTracker
from diagnose.lines.interests import ATTEMPTS, FACTS, JOBS, LISTS, PLACES, PROGRESS, RECORDS, RULES
from diagnose.lines.jobs import of_current_states, of_last_run, of_this_job
from diagnose.lines.progress import recorded_completion, recorded_exit
from diagnose.lines.turns import turn_ends
from diagnose.models import Input, KeptLine, Line, LogSource, Record

LEAP_LINES: Final = 1 << 40
"""Added to the numbers of lines behind a gap of unknown length: no record and no window of lines reaches across."""
_LISTING_RECORDS = 100_000
_SHOWN = 8


class LinesReading:
    """Makes lines of the kept lines of one source, and finds whom each concerns.

    A job's log reads stamps without a year by the year that was known when the first of them was opened, or that it
    states itself: so it does not matter which logs were read before it. Others take it from all that was read.
    """

    def __init__(self, gathered: Gathered, source: LogSource) -> None:
        self._calendar = Calendar(gathered.calendar.year) if source.kind == "job" else gathered.calendar
        self._lines = LineReader(source, gathered.settings.limits, self._calendar)
        self._interests = gathered.interests
        self.learn = self._lines.learn

    @property
    def year(self) -> int | None:
        """The year that the source has stated, or another before it."""
        return self._calendar.year

    def read(self, kept_lines: Sequence[KeptLine]) -> tuple[list[Line], list[int]]:
        """The lines of kept lines, and for each the readers that it concerns."""
        return self._asked(self._lines.read_all(kept_lines))

    def finish(self) -> tuple[list[Line], list[int]]:
        """The lines whose rest never came."""
        return self._asked(self._lines.finish())

    def _asked(self, lines: list[Line]) -> tuple[list[Line], list[int]]:
        return lines, self._interests.of_all([line.text for line in lines])


class SourceReader:
    """Takes the lines of one source through progress, attempts and records to the matcher."""

    def __init__(self, gathered: Gathered, item: Input) -> None:
        self._gathered = gathered
        self.tracker = AttemptTracker(item.source)
        self._kernel = item.source.kind == "kernel"
        if self._kernel and item.source.host:
            gathered.coverage.kernel_hosts.add(item.source.host)
        self._source = item.source
        self._reading = LinesReading(gathered, item.source)
        self._records = RecordAssembler(item.source, gathered.settings.limits)
        self._matcher = gathered.matcher.source(item.source)
        self._attempt = 0
        self._starts: list[tuple[int, int]] = [(0, 0)]
        self._listing: list[Line | Record] | None = [] if item.source.kind == "scheduler" else None
        self._leapt = False
        self.learn = self._reading.learn

    def feed(self, kept_lines: Sequence[KeptLine]) -> None:
        """Reads kept lines in order."""
        if self._leapt:
            kept_lines = [replace(kept, number=kept.number + LEAP_LINES) for kept in kept_lines]
        self.take(*self._reading.read(kept_lines))

    def take(self, lines: Sequence[Line], asked: Sequence[int], ends: Sequence[int] | None = None) -> None:
        """Takes lines in order, each with the readers that it concerns, and where its turn ends if that is known."""
        if self._gathered.hear or not self._gathered.settings.compress or self._source.kind != "job":
            for line, readers in zip(lines, asked, strict=True):
                self._line(line, readers)
            return
        ends = turn_ends(lines, asked) if ends is None else ends
        place, count = 0, len(lines)
        while place < count:
            end = ends[place]
            if end - place > 1 and not self.tracker.watches(lines[place]):
                self._turn(lines[place:end], asked[place:end])
                place = end
            else:
                self._line(lines[place], asked[place])
                place += 1

    def _turn(self, lines: Sequence[Line], asked: Sequence[int]) -> None:
        """Takes lines that one writer wrote in a row and that only make records: what `_line` would do, at once."""
        gathered, first = self._gathered, lines[0]
        gathered.timeline.observe_turn(lines, self._attempt)
        if first.rank is not None or first.host is not None:
            gathered.inventory.observe(first, self._attempt, facts=False, places=False)
        noted = 0
        for place, records in self._records.feed_turn(lines, asked) if self._records.busy or any(asked) else ():
            self._matcher.lines(lines[noted : place + 1])
            noted = place + 1
            for record in records:
                self._take(record)
        self._matcher.lines(lines[noted:])

    def leap(self) -> None:
        """Says that between the lines read so far and the next ones something was left out."""
        self._leapt = True

    def _line(self, line: Line, asked: int) -> None:
        gathered = self._gathered
        for hear in gathered.hear:
            hear(line)
        event = None
        certain = line.certain
        if (asked & PROGRESS and certain) or line.progress is not None:
            event = gathered.progress.read(line, self._attempt)
        if event is not None or (asked & ATTEMPTS and certain) or self.tracker.watches(line):
            step = event.step if event and event.kind == "step" else None
            ended = event is not None and (event.kind == "completed" or (event.kind == "exit" and event.step == 0))
            attempt = self.tracker.observe(line, step, ended=ended, asked=asked & ATTEMPTS != 0)
            if attempt > self._attempt:
                self._attempt = attempt
                self._starts.append((line.number, attempt))
            if event is not None:
                gathered.timeline.add(event if event.attempt == attempt else replace(event, attempt=attempt))
        gathered.timeline.observe(line, self._attempt)
        if asked & (FACTS | PLACES) or line.rank is not None or line.host is not None:
            gathered.inventory.observe(line, self._attempt, facts=asked & FACTS != 0, places=asked & PLACES != 0)
        if asked & JOBS:
            gathered.jobs.observe(line)
        if self._kernel and line.host:
            gathered.coverage.kernel_hosts.add(line.host)
        if self._listing is None:
            self._matcher.line(line)
            if not asked & (RECORDS | LISTS | RULES) and not self._records.busy:
                return  # it would make a record of its own, in which no rule finds anything
        else:
            self._listing.append(line)
        for record in self._records.feed(line, opens=asked & RECORDS != 0, lists=asked & LISTS != 0):
            self._take(record)

    def finish(self) -> None:
        """Closes what is still open."""
        self.take(*self._reading.finish())
        self._gathered.calendar.year = self._gathered.calendar.year or self._reading.year
        for record in self._records.finish():
            self._take(record)
        self._close_listing()

    def _take(self, record: Record) -> None:
        """Matches a record; a scheduler's are held until it is known which jobs they list."""
        if self._listing is None:
            self._record(record)
            return
        self._listing.append(record)
        if len(self._listing) >= _LISTING_RECORDS:
            self._close_listing()

    def _close_listing(self) -> None:
        listing, self._listing = self._listing or [], None
        records, others = of_this_job((item for item in listing if isinstance(item, Record)), self._gathered.jobs)
        if others:
            which = ", ".join(sorted(others)[:_SHOWN])
            self._gathered.notes.append(f"set aside as other jobs', or not known to be this one's: {which}")
        records, runs = of_last_run(records)
        if runs:
            self._gathered.notes.append(
                f"set aside {runs} earlier run{'s' if runs > 1 else ''} of the same job in a scheduler record"
            )
        records, restarted = of_current_states(records)
        if restarted:
            shown = ", ".join(restarted[:_SHOWN])
            self._gathered.notes.append(
                f"set aside as survived, it was restarted and is well: the last state of {shown}"
            )
        if (completed := recorded_completion(records)) is not None:
            self._gathered.timeline.completed_by_record(completed)
        kept = {id(record) for record in records}
        for item in listing:
            if not isinstance(item, Record):
                self._matcher.line(item)
            elif id(item) in kept:
                self._record(item)

    def _record(self, record: Record) -> None:
        """Matches a record in the attempt in which it began: it may close only when the next one is under way."""
        if record.kind == "scheduler" and (event := recorded_exit(record)) is not None:
            self._gathered.timeline.add(event)
        if record.kind == "scheduler" and self._gathered.recorded is not None:
            self._gathered.recorded(record)
        number = record.first.number
        attempt = next((attempt for start, attempt in reversed(self._starts) if start <= number), 0)
        self._gathered.inventory.whereabouts.learn(record, attempt)
        self._matcher.record(record, attempt)
