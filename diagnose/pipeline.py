"""One failed job in, one explained verdict out: the only place that knows the order of the stages.

In: a `Request` and `Services`. Out: a `Report`. Sources are read one after another, block by block; nothing is held
but what compression lets through and what the matcher gathers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

from diagnose.clock import Clock
from diagnose.compress import Filters, Guard, Listeners, PassThrough, Ranges, Routine, add_counts
from diagnose.dataclass import dataclass, field, replace
from diagnose.errors import LimitExceeded, SourceError
from diagnose.lines import Calendar, LineReader, RecordAssembler, guard_keywords
from diagnose.lines.attempts import AttemptTracker, align
from diagnose.lines.columns import lines_of
from diagnose.lines.interests import (
    ATTEMPTS,
    FACTS,
    JOBS,
    LISTS,
    PLACES,
    PROGRESS,
    RECORDS,
    RULES,
    EveryReader,
    Interests,
    line_literals,
    spoken_literals,
)
from diagnose.lines.inventory import Inventory
from diagnose.lines.jobs import JobNumbers, of_current_states, of_last_run, of_this_job
from diagnose.lines.order import restore
from diagnose.lines.progress import ProgressReader, recorded_completion, recorded_exit
from diagnose.lines.stamps import is_dated
from diagnose.lines.steps import STEP_LITERALS
from diagnose.lines.timeline import AttemptProgress, Timeline
from diagnose.lines.turns import turn
from diagnose.models import (
    CompressionCounts,
    Coverage,
    DecidedBy,
    Drained,
    Evidence,
    Explanation,
    FilterRule,
    Finding,
    History,
    Input,
    JobContext,
    KeptLine,
    Line,
    LogSource,
    Memory,
    NoHistory,
    Opinion,
    Particulars,
    Record,
    Report,
    RuleSet,
    SecondOpinion,
    SourceCoverage,
    SourceKind,
    Stats,
)
from diagnose.rules.adopt import adopt, undecided
from diagnose.rules.aggregate import Aggregator
from diagnose.rules.combine import combine
from diagnose.rules.findings import iso, resolve
from diagnose.rules.matcher import Matcher
from diagnose.rules.policy import circumstances
from diagnose.rules.secrets import without_secrets
from diagnose.rules.verdict import Verdict, decide, place_of
from diagnose.settings import Settings
from diagnose.sources import collect, load_inventory
from diagnose.spread import Spread, kept_lines, with_head

if TYPE_CHECKING:
    from diagnose.models.learning import FilterAdviser

_MISSING_SHOWN = 8
_HOSTS_KEPT = 4096  # by a memory, of one job
_YEAR_SOURCES, _YEAR_BYTES = 8, 64 * 1024  # looked into for the year
_SURE_PACE = 10_000_000  # bytes a second, which the slowest run exceeds
_LISTING_RECORDS = 100_000
# Added to the numbers of lines behind a gap of unknown length: no record and no window of lines reaches across.
_LEAP_LINES = 1 << 40
_WANTS_KERNEL_LOG = frozenset({"hardware", "cuda", "comm", "network", "host", "node"})


@dataclass(frozen=True, slots=True)
class Request:
    """What to diagnose: inputs of one job. Paths may be files, globs, directories, archives or `-`.

    `context` is who the job is, as far as whoever asks knows; only a memory of other jobs wants to know.
    """

    paths: Sequence[str]
    kernel_logs: Sequence[str] = ()
    scheduler_records: Sequence[str] = ()
    inventory: str | None = None
    stdin: BinaryIO | None = None
    context: JobContext = JobContext()


@dataclass(frozen=True, slots=True)
class Services:
    """What a run needs from outside: rules, the memory of other jobs, whom to ask next, whom to tell how far it is.

    `memory` hears what is read and knows what earlier runs say; where there is one, it takes the place of `history`.
    `second_opinion` is asked where no rule decides; without one the report says that none was configured.
    `log_agent` may add filter rules while the logs stream; a run with one compresses in one process.
    `on_progress(done, total)` gets bytes read and bytes on disk (None where not known); `on_wait(what)` what a run
    waits for that has not come yet, such as a writer of a pipe.
    """

    rules: RuleSet
    history: History = field(default_factory=NoHistory)
    memory: Memory | None = None
    second_opinion: SecondOpinion | None = None
    log_agent: FilterAdviser | None = None
    on_progress: Callable[[int, int | None], None] | None = None
    on_wait: Callable[[str], None] | None = None


def diagnose(request: Request, services: Services, settings: Settings | None = None) -> Report:
    """Reads the inputs of one job and returns the report on it.

    Raises `SourceError` where nothing at all can be read and `UsageError` where the inventory is unusable.
    """
    return _Run(request, services, settings or Settings()).report()


class _Run:
    """The state of one run: what all sources of a job add to."""

    def __init__(self, request: Request, services: Services, settings: Settings) -> None:
        self._clock = Clock(settings.limits.seconds)
        self._request = request
        self._services = services
        self.settings = settings
        rules = services.rules
        families = {name: entry.family for name, entry in rules.taxonomy.items()}
        self._groups = Aggregator(settings.limits, families)
        self.matcher = Matcher(rules, self._groups, settings.limits)
        if settings.withheld:
            from diagnose.rules.without import Withheld

            self.matcher.sink = Withheld(self._groups, settings.withheld)
        self._filters = Filters(rules.filters if settings.compress else ())
        self._guard = Guard((*self.matcher.keywords, *guard_keywords()), line_literals() if settings.compress else ())
        self.interests = EveryReader()
        if settings.compress:
            self.interests = Interests(self.matcher.keywords, self._guard)
            self.matcher.share(self._guard.automaton, self._guard.patterns)
        self._listeners = Listeners(spoken_literals(), STEP_LITERALS)
        self._routines: dict[SourceKind, Routine] = {}
        self.progress = ProgressReader(rules.filters)
        self.inventory = Inventory()
        self.jobs = JobNumbers()
        self.notes: list[str] = []
        self.timeline = Timeline()
        self.calendar = Calendar()
        self._advised: tuple[FilterRule, ...] = ()
        self._advice = services.log_agent.begin(request.context) if services.log_agent and settings.compress else None
        self.witness = services.second_opinion.begin() if services.second_opinion else None
        self.remembrance = services.memory.begin(request.context) if services.memory else None
        self.hearers = tuple(one.observe for one in (self.witness, self.remembrance) if one is not None)
        self._trackers: dict[str, AttemptTracker] = {}
        self._covered: list[SourceCoverage] = []
        self._not_read: list[str] = []
        self._kernel_hosts: set[str] = set()
        self._numbers: dict[str, Callable[[int], int | None]] = {}
        self._with_gaps: list[str] = []
        self._bytes_left_out = 0
        self._bytes = self._lines = self._kept = self._dropped = self._evicted = 0
        self._total: int | None = None

    def report(self) -> Report:
        request, limits = self._request, self.settings.limits
        if request.inventory:
            self.inventory.add(load_inventory(request.inventory))
        sources = collect(
            request.paths,
            kernel_logs=request.kernel_logs,
            scheduler_records=request.scheduler_records,
            stdin=request.stdin,
            limits=limits,
            clock=self._clock,
            on_wait=self._services.on_wait,
        )
        self._not_read.extend(sources.not_read)
        sizes = [item.size for item in sources.inputs]
        self._total = (
            sum(size for size in sizes if size is not None) if all(size is not None for size in sizes) else None
        )
        for item in sources.inputs:
            self.inventory.learn_source(item.source)
            self.jobs.learn_source(item.source)
        timed = [item for item in sources.inputs if item.source.kind in ("kernel", "scheduler")]
        self._learn_year(timed if len(timed) < len(sources.inputs) else ())
        # Scheduler records come last: what the job's own logs say tells which of several jobs is meant. So do kernel
        # logs that nobody can date yet: the job's own may state the year.
        unread: list[str] = []
        late = {"scheduler"} if self.calendar.year is not None else {"scheduler", "kernel"}
        inputs = sorted(sources.inputs, key=lambda item: item.source.kind in late)
        if self.calendar.year is None and len(inputs) > 1:
            self._learn_year([item for item in inputs if item.source.kind not in late])
        with Spread(inputs, self, self._processes()) as spread:
            for index, item in enumerate(inputs):
                if self._clock.reading_over:
                    unread.append(item.source.name)
                    continue
                self._clock.sources_left = len(sources.inputs) - index
                if not spread.has(index) or not self._read_spread(spread, index, item):
                    self._read(item)
                if grown := item.grown():
                    self._not_read.append(f"{item.source.name}: {grown} bytes that were appended while it was read")
        self._tell_unread(unread)
        return self._finished()

    def _learn_year(self, inputs: Sequence[Input]) -> None:
        """Take the year from the beginnings of the first inputs, before stamps that leave it out are read."""
        again = [item for item in inputs if item.size is not None]  # a pipe's bytes come once
        for item in again[:_YEAR_SOURCES]:
            try:
                self.calendar.learn(next(iter(item.blocks()), b"")[:_YEAR_BYTES])
            except SourceError:
                continue  # told when it is read
            if self.calendar.year is not None:
                return

    def _processes(self) -> int:
        """How many processes may compress; one where time could become short, since only that one leaps to an end."""
        hurried = self._total is None or self._total > _SURE_PACE * self.settings.limits.seconds
        hurried = hurried or self._advice is not None  # which is of this process
        return 1 if hurried or not self.settings.compress else self.settings.processes

    def reading(self, source: LogSource) -> _Reading | None:
        """What reads the lines of a source in another process; kernel logs may need the year that others state."""
        return _Reading(self, source) if source.kind == "job" else None

    def compressor(self, source: LogSource, start: int = 0) -> Ranges:
        """The compressor of a source, or of one range of it that begins at byte `start`."""
        watch = None if self._advice is None else self._advice.watch(source)
        limits, listeners = self.settings.limits, self._listeners
        routine = self._routines.setdefault(source.kind, Routine())
        return Ranges(
            source, self._filters, self._guard, limits, start, listeners=listeners, watch=watch, routine=routine
        )

    def _take_advice(self, compressor: Ranges | PassThrough) -> None:
        """Lets new filter rules apply to the rest of this source and to those that follow."""
        news = self._advice.news() if self._advice is not None else ()
        if news and isinstance(compressor, Ranges):
            self._advised += tuple(news)
            self._filters = Filters((*self._services.rules.filters, *self._advised))
            self._routines = {}
            compressor.adopt(self._filters)

    def _read_spread(self, spread: Spread, index: int, item: Input) -> bool:
        """Feeds one source that other processes compress; says no where it must be read here, from its start."""
        reader = _SourceReader(self, item)
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
                self.calendar.year = self.calendar.year or frame[1]
            elif frame[0] in {"kept", "lines"}:
                self._count(frame[1])
                if frame[0] == "kept":
                    reader.feed(kept_lines(frame[2], counts.lines))
                else:
                    reader.take(*lines_of(frame[2], item.source))
                broken = self._clock.reading_over
                if broken:
                    self._not_read.append(f"{item.source.name}: {self._clock} was reached; what follows was not read")
            else:
                self._not_read.append(frame[1])
                broken = True
        if not whole:
            reader.finish()
            self._account(item.source, reader, counts, truncated=broken)
        return not whole

    def _read(self, item: Input) -> None:
        """Feeds one source through compression, lines and the matcher."""
        source, limits = item.source, self.settings.limits
        restored = restore(source, self._blocks(item), limits)
        compressor = self.compressor(source) if self.settings.compress else PassThrough(source, limits, self._guard)
        reader = _SourceReader(self, item)
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
            self._not_read.append(str(error))
        reader.feed(compressor.finish())
        reader.finish()
        counts = compressor.counts
        if gap:
            truncated = True
            self._with_gaps.append(source.name)
            self._bytes_left_out += gap
        if gap and restored.reversed:
            self._numbers[source.name] = lambda _number: None
        elif gap:
            self._numbers[source.name] = lambda number: number if number < _LEAP_LINES else None
        elif restored.reversed:
            self._numbers[source.name] = partial(restored.original, total=counts.lines)
        self._account(source, reader, counts, truncated=truncated)

    def _account(self, source: LogSource, reader: _SourceReader, counts: CompressionCounts, *, truncated: bool) -> None:
        """Notes what one source has come to."""
        if truncated:
            self.timeline.truncated.add(source.name)
        self._kernel_hosts |= reader.kernel_hosts
        self._trackers[source.name] = reader.tracker
        self._lines += counts.lines
        self._kept += counts.kept
        self._dropped += counts.dropped + counts.collapsed
        self._evicted += counts.evicted_templates
        self._covered.append(SourceCoverage(source.name, source.kind, counts.lines, truncated or counts.truncated > 0))

    def _tell_unread(self, unread: Sequence[str]) -> None:
        """Tells of which sources the time limit took the middle, and of which all."""
        if self._with_gaps:
            self._not_read.append(
                f"{_named(self._with_gaps)}: {self._bytes_left_out} bytes between beginning and end, for "
                f"{self._clock} was near; lines after them bear no numbers. Give fewer inputs"
            )
        if unread:
            self._not_read.append(f"{_named(unread)}: not at all, for {self._clock} was near. Give fewer inputs")

    def _blocks(self, item: Input) -> Iterator[bytes]:
        for block in item.blocks():
            self._count(len(block))
            yield block

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._services.on_progress:
            self._services.on_progress(self._bytes, self._total)

    def _finished(self) -> Report:
        notes = combine(self.matcher, self.inventory)
        self._not_read.extend(self.matcher.unmatched)
        if self._groups.overflow:
            self._not_read.append(
                f"{self._groups.overflow} sightings as findings of their own: beyond {self.settings.limits.findings} "
                f"findings, what one rule sees in one source is counted together"
            )
        alignment = align(self._trackers)
        attempts = self.timeline.attempts(alignment)
        rules = self._services.rules
        last = attempts[max(attempts)] if attempts else AttemptProgress()
        history = self._services.history
        if self.remembrance is not None:
            history = self.remembrance.history(job=self.jobs.slurm, at=_dated(last.ended))
        resolved = resolve(self._groups, rules, attempts, alignment, self.inventory, self.timeline.boots, self.jobs)
        verdict = decide(
            resolved.findings,
            resolved.excluded,
            rules,
            attempts,
            self.timeline,
            self.inventory,
            history,
            None if any(covered.kind == "scheduler" for covered in self._covered) else self.jobs.slurm,
            self._clock.rest(),
        )
        if verdict.unweighed:
            self._not_read.append(
                f"what explains {verdict.unweighed} findings, or whether they were survived: {self._clock} was "
                "reached. Give fewer inputs"
            )
        report = self._built(verdict, (*rules.overridden, *notes, *self.notes))
        if self.witness is not None and undecided(verdict):
            verdict, report = self._with_opinion(report, verdict, self.witness.opinion(report), history)
        report = _with_numbers_as_given(report, self._numbers) if self._numbers else report
        report = without_secrets(report)
        if self.remembrance is None:
            return report
        return self.remembrance.conclude(report, self._particulars(verdict, last))

    def _particulars(self, verdict: Verdict, last: AttemptProgress) -> Particulars:
        """What a memory keeps of this run beside its report."""
        alone = replace(verdict.situation, unit_repeats=0, workload_repeats=0, drained=Drained())
        return Particulars(
            circumstances=circumstances(alone),
            job=self.jobs.slurm,
            place=place_of(verdict.situation.root),
            hosts=(self.inventory.job_hosts or self.inventory.hosts)[:_HOSTS_KEPT],
            gpus=self.inventory.world_size or len(self.inventory.ranks_seen | self.timeline.ranks.keys()) or None,
            started=_dated(last.started),
            ended=_dated(last.ended),
        )

    def _built(self, verdict: Verdict, notes: tuple[str, ...]) -> Report:
        explanation = verdict.explanation
        return Report(
            status=verdict.status,
            error_type=verdict.error_type,
            category=verdict.category,
            attribution=verdict.attribution,
            sureness=verdict.sureness,
            root_cause=verdict.root_cause,
            alternatives=verdict.alternatives,
            chain=verdict.chain,
            culprits=verdict.culprits,
            recovery=verdict.recovery,
            progress=verdict.progress,
            attempts=verdict.attempts,
            coverage=self._coverage(verdict),
            decided_by=DecidedBy(
                stage="rules" if verdict.rule or verdict.status == "no_failure" else "none",
                rule=verdict.rule,
                ruleset=self._services.rules.version,
                agent_state="not_needed"
                if verdict.rule or verdict.status == "no_failure" or self.witness is not None
                else "not_configured",
            ),
            stats=Stats(self._bytes, self._lines, self._kept, round(self._clock.elapsed, 3)),
            explanation=Explanation(
                explanation.findings,
                explanation.explained,
                explanation.excluded,
                explanation.attribution,
                (*explanation.notes, *notes),
            ),
        )

    def _with_opinion(
        self, report: Report, verdict: Verdict, opinion: Opinion, history: History
    ) -> tuple[Verdict, Report]:
        """Verdict and report with a second opinion: what it decides where it decides, who was asked in any case."""
        adopted = adopt(verdict, opinion, self._services.rules, history)
        return adopted, replace(
            report,
            status=adopted.status,
            error_type=adopted.error_type,
            category=adopted.category,
            attribution=adopted.attribution,
            sureness=adopted.sureness,
            root_cause=adopted.root_cause,
            recovery=adopted.recovery,
            attempts=adopted.attempts,
            decided_by=replace(
                report.decided_by,
                stage=opinion.stage if adopted is not verdict else "none",
                agent_state=opinion.state,
                model=opinion.model,
                prompt=opinion.prompt,
                similar_incidents=opinion.similar,
                asked=opinion.notes,
            ),
            stats=replace(report.stats, seconds=round(self._clock.elapsed, 3)),
        )

    def _coverage(self, verdict: Verdict) -> Coverage:
        inventory = self.inventory
        seen = inventory.ranks_seen | self.timeline.ranks.keys()
        expected = inventory.world_size
        missing: list[str] = []
        own = sum(1 for known in self.timeline.ranks.values() if known.own)
        if own > 1 and expected and expected <= 65_536:
            absent = [rank for rank in range(expected) if rank not in seen]
            missing.extend(f"rank {rank}" for rank in absent[:_MISSING_SHOWN])
            if len(absent) > _MISSING_SHOWN:
                missing.append(f"{len(absent) - _MISSING_SHOWN} more ranks")
        missing.extend(self._kernel_logs_missing(verdict))
        return Coverage(
            sources=tuple(self._covered),
            not_read=(*_not_as_shipped(self._services.rules), *self._not_read, *missing),
            ranks_seen=len(seen) or None,
            ranks_expected=expected,
            dropped_lines=self._dropped,
            evicted_templates=self._evicted,
        )

    def _kernel_logs_missing(self, verdict: Verdict) -> list[str]:
        """The kernel logs that would confirm or refute the verdict and were not given."""
        entry = self._services.rules.taxonomy.get(verdict.error_type or "")
        if verdict.status == "no_failure" or (entry and entry.family not in _WANTS_KERNEL_LOG):
            return []
        given = {self.inventory.canonical_host(name) for name in self._kernel_hosts}
        hosts = [culprit.id for culprit in verdict.culprits if culprit.machine]
        pods = {culprit.id for culprit in verdict.culprits if culprit.pod}
        wanted = [host for host in hosts or self.inventory.hosts if host not in given and host not in pods]
        shown = [f"kernel log of {host}" for host in wanted[:_MISSING_SHOWN]]
        return (
            [*shown, f"kernel logs of {len(wanted) - _MISSING_SHOWN} more hosts"]
            if len(wanted) > _MISSING_SHOWN
            else shown
        )


def _dated(time: float | None) -> float | None:
    """A time whose year an input stated."""
    stamp = iso(time)
    return time if stamp is not None and is_dated(stamp) else None


def _named(sources: Sequence[str]) -> str:
    more = len(sources) - 3
    return ", ".join(sources[:3]) + (f" and {more} more" if more > 0 else "")


def _not_as_shipped(rules: RuleSet) -> list[str]:
    """What a site's rules took away or put in another's place: a verdict that they changed must show it."""
    shown = [f"shipped rules: {note}" for note in rules.overridden[:_MISSING_SHOWN]]
    more = len(rules.overridden) - len(shown)
    return [*shown, f"shipped rules: {more} more overrides"] if more else shown


class _Reading:
    """Makes lines of the kept lines of one source, and finds whom each concerns.

    A job's log reads stamps without a year by the year that was known when the first of them was opened, or that it
    states itself: so it does not matter which logs were read before it. Others take it from all that was read.
    """

    def __init__(self, run: _Run, source: LogSource) -> None:
        self._calendar = Calendar(run.calendar.year) if source.kind == "job" else run.calendar
        self._lines = LineReader(source, run.settings.limits, self._calendar)
        self._interests = run.interests
        self.learn = self._lines.learn

    @property
    def year(self) -> int | None:
        """The year that the source has stated, or another before it."""
        return self._calendar.year

    def read(self, kept_lines: Sequence[KeptLine]) -> tuple[list[Line], list[int]]:
        """The lines of kept lines, and for each the readers that it concerns."""
        read = self._lines.read
        return self._asked([line for kept in kept_lines for line in read(kept)])

    def finish(self) -> tuple[list[Line], list[int]]:
        """The lines whose rest never came."""
        return self._asked(self._lines.finish())

    def _asked(self, lines: list[Line]) -> tuple[list[Line], list[int]]:
        of = self._interests.of
        return lines, [of(line.text) for line in lines]


class _SourceReader:
    """Takes the lines of one source through progress, attempts and records to the matcher."""

    def __init__(self, run: _Run, item: Input) -> None:
        self._run = run
        self.tracker = AttemptTracker(item.source)
        self.kernel_hosts: set[str] = set()
        self._kernel = item.source.kind == "kernel"
        if self._kernel and item.source.host:
            self.kernel_hosts.add(item.source.host)
        self._source = item.source
        self._reading = _Reading(run, item.source)
        self._records = RecordAssembler(item.source, run.settings.limits)
        self._matcher = run.matcher.source(item.source)
        self._attempt = 0
        self._starts: list[tuple[int, int]] = [(0, 0)]
        self._listing: list[Line | Record] | None = [] if item.source.kind == "scheduler" else None
        self._leapt = False
        self.learn = self._reading.learn

    def feed(self, kept_lines: Sequence[KeptLine]) -> None:
        """Reads kept lines in order."""
        if self._leapt:
            kept_lines = [replace(kept, number=kept.number + _LEAP_LINES) for kept in kept_lines]
        self.take(*self._reading.read(kept_lines))

    def take(self, lines: Sequence[Line], asked: Sequence[int]) -> None:
        """Takes lines in order, each with the readers that it concerns."""
        if self._run.hearers or not self._run.settings.compress or self._source.kind != "job":
            for line, readers in zip(lines, asked, strict=True):
                self._line(line, readers)
            return
        place, count = 0, len(lines)
        while place < count:
            end = turn(lines, asked, place)
            if end - place > 1 and not self.tracker.watches(lines[place]):
                self._turn(lines[place:end], asked[place:end])
                place = end
            else:
                self._line(lines[place], asked[place])
                place += 1

    def _turn(self, lines: Sequence[Line], asked: Sequence[int]) -> None:
        """Takes lines that one writer wrote in a row and that only make records: what `_line` would do, at once."""
        run, first = self._run, lines[0]
        run.timeline.observe_turn(lines, self._attempt)
        if first.rank is not None or first.host is not None:
            run.inventory.observe(first, self._attempt, facts=False, places=False)
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
        run = self._run
        for hear in run.hearers:
            hear(line)
        event = None
        if asked & PROGRESS or line.progress is not None:
            event = run.progress.read(line, self._attempt)
        if event is not None or asked & ATTEMPTS or self.tracker.watches(line):
            step = event.step if event and event.kind == "step" else None
            ended = event is not None and (event.kind == "completed" or (event.kind == "exit" and event.step == 0))
            self._attempt = self.tracker.observe(line, step, ended=ended, asked=asked & ATTEMPTS != 0)
            if self._attempt != self._starts[-1][1]:
                self._starts.append((line.number, self._attempt))
            if event is not None:
                run.timeline.add(event if event.attempt == self._attempt else replace(event, attempt=self._attempt))
        run.timeline.observe(line, self._attempt)
        if asked & (FACTS | PLACES) or line.rank is not None or line.host is not None:
            run.inventory.observe(line, self._attempt, facts=asked & FACTS != 0, places=asked & PLACES != 0)
        if asked & JOBS:
            run.jobs.observe(line)
        if self._kernel and line.host:
            self.kernel_hosts.add(line.host)
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
        self._run.calendar.year = self._run.calendar.year or self._reading.year
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
        records, others = of_this_job((item for item in listing if isinstance(item, Record)), self._run.jobs)
        if others:
            which = ", ".join(sorted(others)[:_MISSING_SHOWN])
            self._run.notes.append(f"set aside as other jobs', or not known to be this one's: {which}")
        records, runs = of_last_run(records)
        if runs:
            self._run.notes.append(
                f"set aside {runs} earlier run{'s' if runs > 1 else ''} of the same job in a scheduler record"
            )
        records, restarted = of_current_states(records)
        if restarted:
            shown = ", ".join(restarted[:_MISSING_SHOWN])
            self._run.notes.append(f"set aside as survived, it was restarted and is well: the last state of {shown}")
        if (completed := recorded_completion(records)) is not None:
            self._run.timeline.completed_by_record(completed)
        kept = {id(record) for record in records}
        for item in listing:
            if not isinstance(item, Record):
                self._matcher.line(item)
            elif id(item) in kept:
                self._record(item)

    def _record(self, record: Record) -> None:
        """Matches a record in the attempt in which it began: it may close only when the next one is under way."""
        if record.kind == "scheduler" and (event := recorded_exit(record)) is not None:
            self._run.timeline.add(event)
        if record.kind == "scheduler" and self._run.remembrance is not None:
            self._run.remembrance.record(record)
        number = record.first.number
        attempt = next((attempt for start, attempt in reversed(self._starts) if start <= number), 0)
        self._run.inventory.whereabouts.learn(record, attempt)
        self._matcher.record(record, attempt)


def _with_numbers_as_given(report: Report, originals: Mapping[str, Callable[[int], int | None]]) -> Report:
    """The report with line numbers as they stand in files that were read from their end, and none where not known."""

    def mend(evidence: Evidence) -> Evidence:
        original = originals.get(evidence.source)
        return (
            evidence if original is None or evidence.line is None else replace(evidence, line=original(evidence.line))
        )

    def mend_finding(finding: Finding) -> Finding:
        return replace(finding, evidence=tuple(mend(evidence) for evidence in finding.evidence))

    cause, explanation = report.root_cause, report.explanation
    return replace(
        report,
        root_cause=replace(cause, evidence=tuple(mend(evidence) for evidence in cause.evidence)) if cause else None,
        chain=tuple(replace(link, first=mend(link.first)) for link in report.chain),
        explanation=replace(
            explanation,
            findings=tuple(mend_finding(finding) for finding in explanation.findings),
            excluded=tuple(replace(item, finding=mend_finding(item.finding)) for item in explanation.excluded),
        ),
    )
