"""Survived is not a cause: findings after which the work went on are set aside, visibly.

In: the findings of one attempt, its progress, the clocks. Out: the findings that still count, and the excluded ones
with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from diagnose.lines.timeline import AttemptProgress, Mark
from diagnose.models import ExcludedFinding, Finding, Line
from diagnose.rules.captures import UNDATED
from diagnose.rules.edges import Edges
from diagnose.rules.precedence import Clocks

_COMPLETED = "the job completed after it"
# Problems that go on hurting while steps are still made: progress after them proves nothing.
_WITH_PROGRESS = frozenset({"GPUThermalThrottle", "TrainingAnomaly"})


def set_aside(
    findings: Sequence[Finding], progress: AttemptProgress, edges: Edges, clocks: Clocks
) -> tuple[tuple[Finding, ...], tuple[ExcludedFinding, ...]]:
    """Splits findings into those that count and those that were survived."""
    kept: list[Finding] = []
    excluded: list[ExcludedFinding] = []
    end = completion(progress)
    for finding in findings:
        why = _why(finding, progress, end, clocks)
        if why:
            excluded.append(ExcludedFinding(finding, why))
        else:
            kept.append(finding)
    undated = [aside for aside in excluded if UNDATED in aside.finding.captures and aside.why != _COMPLETED]
    if undated and any(f.role == "symptom" for f in kept) and not any(f.role == "cause" for f in kept):
        # Others waited for what nothing else explains, and where a listing stands in a log is not when it happened.
        kept += [aside.finding for aside in undated]
        excluded = [aside for aside in excluded if aside not in undated]
    return _went_on(kept, excluded, edges)


def completion(progress: AttemptProgress) -> Line | None:
    """The last line that says the work was done or the exit code was 0."""
    lines = [*progress.completed, *(line for code, line in progress.exits if code == 0)]
    return max(lines, key=lambda line: (line.time or 0.0, line.number)) if lines else None


def failed_exits(progress: AttemptProgress) -> list[tuple[int, Line]]:
    """Exit codes other than 0, in the order seen."""
    return [(code, line) for code, line in progress.exits if code != 0]


def _why(finding: Finding, progress: AttemptProgress, end: Line | None, clocks: Clocks) -> str | None:
    if end is not None and _line_after(end, finding, clocks):
        return _COMPLETED
    if not finding.survivable or finding.error_type in _WITH_PROGRESS:
        return None
    if finding.ranks and all(_mark_after(progress.by_rank.get(rank), finding, clocks) for rank in finding.ranks):
        return "the same ranks made progress after it"
    if any(_mark_after(progress.last.get(stream), finding, clocks) for stream in finding.streams):
        return "the same process made progress after it"
    if any(len(marks) >= 2 and _mark_after(marks[-2], finding, clocks) for marks in progress.recent.values()):
        return "the job made progress after it"
    return None


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
    fatal = [f for f in findings if f.role == "cause" and (not f.survivable or f.traceback)]
    kept: list[Finding] = []
    for finding in findings:
        later = None
        if finding.survivable and not finding.traceback and finding.role != "teardown":
            later = next(
                (
                    f
                    for f in fatal
                    if f is not finding and _later_in_stream(finding, f) and edges.scope(finding, f) is None
                ),
                None,
            )
        if later:
            excluded.append(ExcludedFinding(finding, f"the process went on until {later.error_type}"))
        else:
            kept.append(finding)
    return tuple(kept), tuple(excluded)


def _later_in_stream(one: Finding, other: Finding) -> bool:
    shared = one.streams.keys() & other.streams.keys()
    return any(other.streams[stream][0] > one.streams[stream][1] for stream in shared)
