"""Survived is not a cause: findings after which the work went on are set aside, visibly.

In: the findings of one attempt, its progress, the clocks. Out: the findings that still count, and the excluded ones
with the reason. What came back is survived only if the job was still well when it did: a link that is up again after
the job died of it was down when it mattered.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from diagnose.clock import UNLIMITED, Clock
from diagnose.dataclass import replace
from diagnose.lines.timeline import AttemptProgress, Mark
from diagnose.models import ExcludedFinding, Finding, Line, Over
from diagnose.rules.captures import UNDATED
from diagnose.rules.caught import all_caught
from diagnose.rules.edges import Edges
from diagnose.rules.ends import Ends
from diagnose.rules.graph import plausible, waited
from diagnose.rules.hearsay import hearsay
from diagnose.rules.precedence import DATED, SAME_TIME, Clocks, by_kernel

_COMPLETED = "the job completed after it"
_RECORDED = "the scheduler's record says that the job completed with exit code 0"
_CAUGHT = "the same process wrote on as before, and nothing read says that it failed"
UNWEIGHED = "it was over again; the time limit left no time to weigh whether anything failed of it"
_AFTERWARDS = 30.0  # seconds: what an outage broke is noticed within retries and log buffers after its end
_FLAPS_SHOWN = 8  # per unit
_LONG_OUTLIVED, _STEPS_OUTLIVED = 120.0, 5  # seconds and steps: as much after a fault is no buffered output
_OF_DEVICES = frozenset({"hardware", "cuda", "host", "node"})
# What a launcher or the scheduler's own words say of a task's end: a batch script may have swallowed the exit code.
_TASK_FAILED = frozenset({"ChildFailed", "Terminated", "Aborted", "RemoteTaskFailed"})
# Problems that go on hurting while steps are still made: progress after them proves nothing.
_WITH_PROGRESS = frozenset({"GPUThermalThrottle", "TrainingAnomaly"})


def set_aside(
    findings: Sequence[Finding],
    progress: AttemptProgress,
    edges: Edges,
    clocks: Clocks,
    limit: Clock = UNLIMITED,
    ranks_known: int = 0,
) -> tuple[tuple[Finding, ...], tuple[ExcludedFinding, ...]]:
    """Splits findings into those that count and those that were survived; see `UNWEIGHED`."""
    end = completion(progress)
    unbelieved, agreed = hearsay(findings, progress, edges, proven=bool(failed_exits(progress)))
    heard = [ExcludedFinding(finding, unbelieved[finding.id]) for finding in findings if finding.id in unbelieved]
    findings = [agreed.get(finding.id, finding) for finding in findings if finding.id not in unbelieved]
    steps = _Steps(progress, clocks)
    if _completed_by_record(findings, progress):
        later = [finding for finding in findings if _after_record(finding, progress)]
        aside = [ExcludedFinding(finding, _RECORDED) for finding in findings if finding not in later]
        return tuple(later), (*heard, *_folded(aside))
    whys = {finding.id: _why(finding, progress, steps, end, clocks) for finding in findings}
    # What a job died of: its own words, which it did not outlive. A kernel's are no news of the job.
    failures = [f for f in findings if f.over is None and not whys[f.id] and not f.sources <= {"kernel"}]
    for finding in findings:
        if finding.over is not None and not whys[finding.id]:
            whys[finding.id] = _over_in_time(finding, finding.over, failures, steps, edges, clocks, limit)
    counting = [finding for finding in findings if not whys[finding.id]]
    outlived = {f.id: _outlived(f, counting, steps, edges, clocks) for f in counting if _is_fault(f) and not limit.over}
    whys.update({name: why for name, why in outlived.items() if why})
    kept = [finding for finding in findings if not whys[finding.id]]
    excluded = _folded(ExcludedFinding(finding, why) for finding in findings if (why := whys[finding.id]))
    if any(f.role == "symptom" for f in kept) and not any(f.role == "cause" for f in kept):
        # Others waited for what nothing else explains, and where a listing stands in a log is not when it happened.
        kept += [aside.finding for aside in excluded if _undated(aside)]
        excluded = [aside for aside in excluded if not _undated(aside)]
    counted, survived = _went_on(kept, excluded, edges)
    if counted and end is None and not failed_exits(progress) and all_caught(counted, progress.tails, ranks_known):
        return (), (*heard, *survived, *(ExcludedFinding(finding, _CAUGHT) for finding in counted))
    return counted, (*heard, *survived)


def _undated(aside: ExcludedFinding) -> bool:
    return UNDATED in aside.finding.captures and aside.why != _COMPLETED


def _folded(excluded: Iterable[ExcludedFinding]) -> list[ExcludedFinding]:
    """A port that flaps all day is told a few times; the last one counts the rest."""
    kept: list[ExcludedFinding] = []
    places: dict[tuple[object, ...], list[int]] = {}
    for aside in excluded:
        finding = aside.finding
        same = places.setdefault((finding.rule, finding.error_type, finding.hosts, finding.gpus), [])
        if finding.over is None or len(same) < _FLAPS_SHOWN:
            same.append(len(kept))
            kept.append(aside)
            continue
        known = kept[same[-1]].finding
        lasts = [time for time in (known.last, finding.last) if time is not None]
        both = replace(known, count=known.count + finding.count, last=max(lasts, default=None))
        kept[same[-1]] = replace(kept[same[-1]], finding=both)
    return kept


def completion(progress: AttemptProgress) -> Line | None:
    """The last line that says the work was done or the exit code was 0."""
    lines = [*progress.completed, *(line for code, line in progress.exits if code == 0)]
    return max(lines, key=lambda line: (line.time or 0.0, line.number)) if lines else None


def _completed_by_record(findings: Iterable[Finding], progress: AttemptProgress) -> bool:
    """Whether the scheduler's record proves that the job was well: nothing read says that a task failed."""
    if progress.recorded is None or failed_exits(progress):
        return False
    return not any(f.error_type in _TASK_FAILED or f.family == "scheduler" for f in findings)


def _after_record(finding: Finding, progress: AttemptProgress) -> bool:
    """Whether a finding is known to be later than the end that the scheduler's record states."""
    end = progress.recorded.time if progress.recorded is not None else None
    return end is not None and finding.first is not None and finding.first >= DATED and finding.first > end + 60.0


def failed_exits(progress: AttemptProgress) -> list[tuple[int, Line]]:
    """Exit codes other than 0, in the order seen."""
    return [(code, line) for code, line in progress.exits if code != 0]


class _Steps:
    """The latest steps of each source, to be asked what lies after or between without a look at all of them."""

    def __init__(self, progress: AttemptProgress, clocks: Clocks) -> None:
        self._clocks = clocks
        marks = [mark for marks in progress.recent.values() for mark in marks]
        self._times = sorted(mark.time for mark in marks if mark.time is not None)
        self._last_but_one = {source: marks[-2] for source, marks in progress.recent.items() if len(marks) >= 2}
        timed = [(mark.time, mark) for mark in self._last_but_one.values() if mark.time is not None]
        self._latest_first = sorted(timed, key=lambda item: -item[0])
        self._recent = [marks for marks in progress.recent.values() if marks]
        self._by_rank = list(progress.by_rank.values())

    def all_long_after(self, time: float) -> float | None:
        """The seconds for which all that make steps went on making them after a time; None unless that was long."""
        lasts = [mark.time for mark in (*(marks[-1] for marks in self._recent), *self._by_rank)]
        known = [last for last in lasts if last is not None]
        if not known or len(known) < len(lasts) or min(known) <= time + _LONG_OUTLIVED:
            return None
        return min(known) - time if all(_several_after(marks, time) for marks in self._recent) else None

    def fell(self, finding: Finding, clocks: Clocks) -> float | None:
        """When a process failed: the finding's time, or that of the last step before it in its source."""
        if (time := clocks.first(finding)) is not None:
            return time
        lasts = [marks[-1] for marks in self._recent if marks[-1].source in finding.spans]
        times = [mark.time for mark in lasts if mark.number < finding.spans[mark.source][0] and mark.time is not None]
        return min(times, default=None) if len(times) == len(finding.spans) else None

    def two_after(self, finding: Finding) -> bool:
        """Whether any source made two steps after a finding."""
        last = self._clocks.last(finding)
        for time, mark in self._latest_first if last is not None else ():
            if last is not None and time <= last + 1.0:
                break
            if mark.stream not in finding.streams:  # where the order of lines decides
                return True
        return any(_mark_after(self._last_but_one.get(source), finding, self._clocks) for source in finding.spans)

    def between(self, start: float, end: float) -> bool:
        """Whether a step was made between two times, and not right after the first."""
        place = bisect_right(self._times, start + 1.0)
        return place < len(self._times) and self._times[place] < end


def _why(finding: Finding, progress: AttemptProgress, steps: _Steps, end: Line | None, clocks: Clocks) -> str | None:
    if end is not None and _line_after(end, finding, clocks):
        return _COMPLETED
    if not finding.survivable or finding.error_type in _WITH_PROGRESS:
        return None
    if finding.ranks and all(_mark_after(progress.by_rank.get(rank), finding, clocks) for rank in finding.ranks):
        return "the same ranks made progress after it"
    if any(_mark_after(progress.last.get(stream), finding, clocks) for stream in finding.streams):
        return "the same process made progress after it"
    if steps.two_after(finding):
        return "the job made progress after it"
    return None


def _several_after(marks: Sequence[Mark], time: float) -> bool:
    """Whether the latest marks of a source are several steps after a time; many ranks may write the same step."""
    after = [mark for mark in marks if mark.time is not None and mark.time > time + 1.0]
    if len({mark.number if mark.step is None else mark.step for mark in after}) >= _STEPS_OUTLIVED:
        return True
    first = marks[0].time
    return len(marks) > _STEPS_OUTLIVED and first is not None and first > time + _LONG_OUTLIVED


def _is_fault(finding: Finding) -> bool:
    """Whether it is a dated fault of a device that a kernel alone tells."""
    return (
        by_kernel(finding)
        and finding.role == "cause"
        and finding.family in ("hardware", "cuda")
        and finding.last is not None
        and finding.last >= DATED
        and finding.error_type not in _WITH_PROGRESS
    )


def _outlived(finding: Finding, others: Sequence[Finding], steps: _Steps, edges: Edges, clocks: Clocks) -> str | None:
    """Why a fault was no cause: all ranks went on for long, then died of their own exception, and nothing tells of it.

    A hang that follows a fault shows no steps in between, and an error of the device itself is a later sign of it.
    """
    last = clocks.last(finding)
    went_on = steps.all_long_after(last) if last is not None else None
    if last is None or went_on is None:
        return None
    own = [f for f in others if f.role == "cause" and f.traceback and not by_kernel(f)]
    own = [f for f in own if f.family not in _OF_DEVICES and edges.scope(finding, f) is None]
    dated = [(time, f) for f in own if (time := steps.fell(f, clocks)) is not None and time > last + _LONG_OUTLIVED]
    if not dated:
        return None
    failure = min(dated, key=lambda item: item[0])[1]
    if any(_sign_of(finding, f, failure, edges, clocks) for f in others if f is not finding and f is not failure):
        return None
    return f"the job made progress for {went_on / 60:.0f} minutes after it, until {failure.error_type}"


def _sign_of(fault: Finding, other: Finding, failure: Finding, edges: Edges, clocks: Clocks) -> bool:
    """Whether another finding may be a later sign of a fault, and no echo of the failure."""
    if other.role == "teardown" or clocks.before(other, fault):
        return False
    if by_kernel(other) and other.family in _OF_DEVICES:
        apart = fault.gpus and other.gpus and not fault.gpus & other.gpus
        elsewhere = fault.hosts and other.hosts and not fault.hosts & other.hosts
        gap = clocks.gap(fault, other)
        if apart or elsewhere or (gap is not None and abs(gap) <= SAME_TIME):
            return False  # of another device, or of the same moment
        return edges.scope(failure, other) is None
    scope = edges.scope(fault, other)
    if scope is None or not plausible(fault, other, scope, clocks):
        return False
    return other.family in _OF_DEVICES or clocks.before(failure, other) is not True


def _over_in_time(
    finding: Finding,
    over: Over,
    failures: Iterable[Finding],
    steps: _Steps,
    edges: Edges,
    clocks: Clocks,
    limit: Clock,
) -> str | None:
    """Why what was over again harmed nobody; None where something that it explains failed meanwhile."""
    answers: set[bool | None] = set()
    for failure in failures:
        if limit.over:
            return UNWEIGHED
        scope = edges.scope(finding, failure) if failure.role != "teardown" else None
        if scope is not None and plausible(finding, failure, scope, clocks):
            failed = _meanwhile(finding, over, failure, steps, clocks)
            if failed:
                return None
            answers.add(failed)
    timed = over.time is not None and finding.last is not None
    after = f" after {max(0.0, (over.time or 0.0) - (finding.last or 0.0)):.0f} s" if timed else ""
    if answers == {None}:
        return f"it was over again{after}; no time tells whether the job had failed by then"
    return f"it was over again{after}, and nothing failed of it meanwhile"


def _meanwhile(finding: Finding, over: Over, other: Finding, steps: _Steps, clocks: Clocks) -> bool | None:
    """Whether `other` fell, or what it waited for began, between a finding and its end; None where nothing tells."""
    start, end, fell = clocks.first(finding), clocks.on_common(finding, over.time), clocks.first(other)
    if start is None or end is None or fell is None or clocks.gap(finding, other) is None:
        span = other.spans.get(over.source)
        if span is None or over.source not in finding.spans or by_kernel(finding) != by_kernel(other):
            return None
        return finding.spans[over.source][0] <= span[0] <= over.line
    began = fell - waited(other) / 1000
    if start - SAME_TIME <= fell <= end or start - SAME_TIME <= began <= end + SAME_TIME:
        return True
    return end < fell <= end + _AFTERWARDS and not steps.between(end, fell)


def _mark_after(mark: Mark | None, finding: Finding, clocks: Clocks) -> bool:
    if mark is None:
        return False
    if mark.stream in finding.streams:
        return mark.number > finding.streams[mark.stream][1]
    last = clocks.last(finding)
    if mark.time is not None and last is not None:
        return mark.time > last + 1.0
    if mark.source in finding.spans:
        return mark.number > finding.spans[mark.source][1]
    return False


def _line_after(line: Line, finding: Finding, clocks: Clocks) -> bool:
    return _mark_after(Mark(line.source.name, line.stream, line.number, line.time), finding, clocks)


def _went_on(
    findings: Iterable[Finding], excluded: list[ExcludedFinding], edges: Edges
) -> tuple[tuple[Finding, ...], tuple[ExcludedFinding, ...]]:
    """A process that went on to die of something else, which the finding does not explain, had survived it."""
    findings = list(findings)
    ends = Ends([f for f in findings if f.role == "cause" and (not f.survivable or f.traceback)])
    kept: list[Finding] = []
    for finding in findings:
        later = None
        if finding.survivable and not finding.traceback and finding.role != "teardown":
            later = ends.unexplained_after(finding, edges)
        if later:
            excluded.append(ExcludedFinding(finding, f"the process went on until {later.error_type}"))
        else:
            kept.append(finding)
    return tuple(kept), tuple(excluded)
