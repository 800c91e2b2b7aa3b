"""One failed job in, one explained verdict out: the only place that knows the order of the stages.

In: a `Request` and `Services`. Out: a `Report`. `feeding` takes the bytes of all sources through compression, `reading`
the lines of each through the readers to the matcher; `gathered` is what they add to, `answering` makes the report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO

from diagnose.answering import dated, particulars, report_of, with_numbers_as_given, with_opinion
from diagnose.clock import Clock
from diagnose.dataclass import dataclass, field
from diagnose.feeding import Feeding
from diagnose.gathered import Gathered
from diagnose.lines.attempts import align
from diagnose.lines.timeline import AttemptProgress
from diagnose.models import History, JobContext, Memory, NoHistory, Report, RuleSet, SecondOpinion, Told
from diagnose.prepared import Prepared
from diagnose.rules.adopt import adopt, undecided
from diagnose.rules.combine import combine
from diagnose.rules.findings import resolve
from diagnose.rules.secrets import without_secrets
from diagnose.rules.verdict import Verdict, decide
from diagnose.settings import Settings
from diagnose.sources import collect, load_inventory

if TYPE_CHECKING:
    from diagnose.models.learning import FilterAdviser


@dataclass(frozen=True, slots=True)
class Request:
    """What to diagnose: inputs of one job. Paths may be files, globs, directories, archives or `-`.

    `context` is who the job is, as far as whoever asks knows; only a memory of other jobs wants to know. `told` is what
    whoever asks says of single files, by their paths as given; `lacking` what they know to be missing, as sentences.
    """

    paths: Sequence[str]
    kernel_logs: Sequence[str] = ()
    scheduler_records: Sequence[str] = ()
    inventory: str | None = None
    stdin: BinaryIO | None = None
    context: JobContext = JobContext()
    told: Mapping[str, Told] = field(default_factory=dict)
    lacking: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Services:
    """What a run needs from outside: rules, the memory of other jobs, whom to ask next, whom to tell how far it is.

    `memory` hears what is read and knows what earlier runs say; where there is one, it takes the place of `history`.
    `second_opinion` is asked where no rule decides; without one the report says that none was configured.
    `log_agent` may add filter rules while the logs stream; a run with one compresses in one process.
    `on_progress(done, total)` gets bytes read and bytes on disk (None where not known); `on_wait(what)` what a run
    waits for that has not come yet, such as a writer of a pipe. `on_rules(report)` gets what the rules say before
    anybody else is asked: only where they leave it open what failed. `prepared` is what was made of the rules before.
    """

    rules: RuleSet
    history: History = field(default_factory=NoHistory)
    memory: Memory | None = None
    second_opinion: SecondOpinion | None = None
    log_agent: FilterAdviser | None = None
    on_progress: Callable[[int, int | None], None] | None = None
    on_wait: Callable[[str], None] | None = None
    on_rules: Callable[[Report], None] | None = None
    prepared: Prepared | None = None


def diagnose(request: Request, services: Services, settings: Settings | None = None) -> Report:
    """Reads the inputs of one job and returns the report on it.

    Raises `SourceError` where nothing at all can be read and `UsageError` where the inventory is unusable.
    """
    return _Run(request, services, settings or Settings()).report()


class _Run:
    """One run: reads what there is, decides, and answers."""

    def __init__(self, request: Request, services: Services, settings: Settings) -> None:
        self._clock = Clock(settings.limits.seconds)
        self._request = request
        self._services = services
        self._settings = settings
        self._witness = services.second_opinion.begin() if services.second_opinion else None
        self._remembrance = services.memory.begin(request.context) if services.memory else None
        hear = tuple(one.observe for one in (self._witness, self._remembrance) if one is not None)
        recorded = self._remembrance.record if self._remembrance is not None else None
        self._gathered = Gathered(services.rules, settings, hear, recorded, services.prepared)

    def report(self) -> Report:
        self._read()
        gathered, rules = self._gathered, self._services.rules
        notes = combine(gathered.matcher, gathered.inventory)
        alignment = align(gathered.trackers)
        attempts = gathered.timeline.attempts(alignment)
        last = attempts[max(attempts)] if attempts else AttemptProgress()
        history = self._services.history
        if self._remembrance is not None:
            history = self._remembrance.history(job=gathered.jobs.slurm, at=dated(last.ended))
        verdict = self._decided(alignment, attempts, history)
        asks = self._witness is not None
        told = (*rules.overridden, *notes, *gathered.notes)
        report = report_of(verdict, gathered, rules, told, self._clock.elapsed, asks=asks)
        if self._witness is not None and undecided(verdict):
            if self._services.on_rules is not None:
                self._services.on_rules(self._shown(report))
            opinion = self._witness.opinion(report)
            adopted = adopt(verdict, opinion, rules, history)
            decides = adopted is not verdict
            report = with_opinion(report, adopted, opinion, self._clock.elapsed, decides=decides)
            verdict = adopted
        report = self._shown(report)
        if self._remembrance is None:
            return report
        return self._remembrance.conclude(report, particulars(verdict, last, gathered))

    def _shown(self, report: Report) -> Report:
        """The report as people see it: with the numbers of the lines they have, and without secrets."""
        numbers = self._gathered.coverage.numbers
        return without_secrets(with_numbers_as_given(report, numbers) if numbers else report, self._services.rules)

    def _read(self) -> None:
        """Finds the inputs and feeds them to all readers."""
        request, services, gathered = self._request, self._services, self._gathered
        if request.inventory:
            gathered.inventory.add(load_inventory(request.inventory))
        sources = collect(
            request.paths,
            kernel_logs=request.kernel_logs,
            scheduler_records=request.scheduler_records,
            stdin=request.stdin,
            limits=self._settings.limits,
            clock=self._clock,
            on_wait=services.on_wait,
            told=request.told,
        )
        gathered.coverage.not_read.extend((*request.lacking, *sources.not_read))
        for item in sources.inputs:
            gathered.inventory.learn_source(item.source)
            gathered.jobs.learn_source(item.source)
        advised = services.log_agent if self._settings.compress else None
        advice = advised.begin(request.context) if advised else None
        Feeding(gathered, services.rules, self._clock, advice, services.on_progress).read(sources.inputs)

    def _decided(
        self, alignment: Mapping[tuple[str, int], int], attempts: Mapping[int, AttemptProgress], history: History
    ) -> Verdict:
        """The verdict of the rules; what bounds and the time limit kept from being weighed is told."""
        gathered, rules = self._gathered, self._services.rules
        not_read = gathered.coverage.not_read
        not_read.extend(gathered.matcher.unmatched)
        if gathered.groups.overflow:
            not_read.append(
                f"{gathered.groups.overflow} sightings as findings of their own: beyond "
                f"{self._settings.limits.findings} findings, what one rule sees in one source is counted together"
            )
        inventory, timeline, jobs = gathered.inventory, gathered.timeline, gathered.jobs
        resolved = resolve(gathered.groups, rules, attempts, alignment, inventory, timeline.boots, jobs)
        recorded = any(covered.kind == "scheduler" for covered in gathered.coverage.sources)
        verdict = decide(
            resolved.findings,
            resolved.excluded,
            rules,
            attempts,
            timeline,
            inventory,
            history,
            None if recorded else jobs.slurm,
            self._clock.rest(),
        )
        if verdict.unweighed:
            not_read.append(
                f"what explains {verdict.unweighed} findings, or whether they were survived: {self._clock} was "
                "reached. Give fewer inputs"
            )
        return verdict
