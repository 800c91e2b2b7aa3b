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
from diagnose.rules.edges import Edges
from diagnose.rules.ends import Ends
from diagnose.rules.graph import plausible, waited
from diagnose.rules.hearsay import hearsay
from diagnose.rules.precedence import SAME_TIME, Clocks, by_kernel

_COMPLETED = "the job completed after it"
UNWEIGHED = "it was over again; the time limit left no time to weigh whether anything failed of it"
_AFTERWARDS = 30.0  # seconds: what an outage broke is noticed within retries and log buffers after its end
_FLAPS_SHOWN = 8  # per unit
# Problems that go on hurting while steps are still made: progress after them proves nothing.
_WITH_PROGRESS = frozenset({"GPUThermalThrottle", "TrainingAnomaly"})


def set_aside(
    findings: Sequence[Finding], progress: AttemptProgress, edges: Edges, clocks: Clocks, limit: Clock = UNLIMITED
) -> tuple[tuple[Finding, ...], tuple[ExcludedFinding, ...]]:
    """Splits findings into those that count and those that were survived; see `UNWEIGHED`."""
    end = completion(progress)
    unbelieved, agreed = hearsay(findings, progress, edges, proven=bool(failed_exits(progress)))
    heard = [ExcludedFinding(finding, unbelieved[finding.id]) for finding in findings if finding.id in unbelieved]
    findings = [agreed.get(finding.id, finding) for finding in findings if finding.id not in unbelieved]
    steps = _Steps(progress, clocks)
    whys = {finding.id: _why(finding, progress, steps, end, clocks) for finding in findings}
    # What a job died of: its own words, which it did not outlive. A kernel's are no news of the job.
    failures = [f for f in findings if f.over is None and not whys[f.id] and not f.sources <= {"kernel"}]
    for finding in findings:
        if finding.over is not None and not whys[finding.id]:
            whys[finding.id] = _over_in_time(finding, finding.over, failures, steps, edges, clocks, limit)
    kept = [finding for finding in findings if not whys[finding.id]]
    excluded = _folded(ExcludedFinding(finding, why) for finding in findings if (why := whys[finding.id]))
    if any(f.role == "symptom" for f in kept) and not any(f.role == "cause" for f in kept):
        # Others waited for what nothing else explains, and where a listing stands in a log is not when it happened.
        kept += [aside.finding for aside in excluded if _undated(aside)]
        excluded = [aside for aside in excluded if not _undated(aside)]
    counted, survived = _went_on(kept, excluded, edges)
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
