"""Faults of devices that came when the job had long ended of an exception without a time.

In: the findings that count, the attempt's progress, the clocks. Out: those findings without such faults, and these with
the reason. A job that makes a step every second does not fall silent for minutes and then raise what has nothing to do
with the fault: it raised it when its steps ceased.
"""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.lines.timeline import AttemptProgress
from diagnose.models import ExcludedFinding, Finding
from diagnose.rules.edges import Edges
from diagnose.rules.precedence import DATED, Clocks, by_kernel

_LONG = 120.0  # seconds after the last step
_PACES = 20  # and as many times what a step took
_OF_DEVICES = frozenset({"hardware", "cuda", "node", "host", "network"})


def too_late(
    findings: Sequence[Finding], progress: AttemptProgress, edges: Edges, clocks: Clocks
) -> tuple[tuple[Finding, ...], tuple[ExcludedFinding, ...]]:
    """Splits findings into those that count and faults that came after the job's own end."""
    raised = next((finding for finding in findings if _raised(finding)), None)
    if raised is None or (end := _last_step(progress, raised)) is None:
        return tuple(findings), ()
    time, pace = end
    late = [
        finding
        for finding in findings
        if by_kernel(finding)
        and finding.family == "hardware"
        and finding.role == "cause"
        and (first := clocks.first(finding)) is not None
        and first > time + max(_LONG, _PACES * pace)
        and not any(_tells_of(finding, other, edges) for other in findings)
    ]
    kept = tuple(finding for finding in findings if all(finding is not one for one in late))
    return kept, tuple(
        ExcludedFinding(
            one,
            f"it came {((clocks.first(one) or time) - time) / 60:.0f} minutes after the last step, and explains no "
            f"{raised.error_type}",
        )
        for one in late
    )


def _raised(finding: Finding) -> bool:
    """Whether a process ended of an exception that bears no time and tells of no device."""
    own = finding.traceback and finding.role == "cause" and not by_kernel(finding)
    return own and finding.first is None and finding.family not in _OF_DEVICES


def _last_step(progress: AttemptProgress, raised: Finding) -> tuple[float, float] | None:
    """When the last step was made, by any, and what one took; None where steps tell no time or follow the exception."""
    ends: list[tuple[float, float]] = []
    for source, marks in progress.recent.items():
        if len(marks) < 2 or (source in raised.spans and marks[-1].number > raised.spans[source][0]):
            return None
        times = [mark.time for mark in marks if mark.time is not None]
        if len(times) < len(marks) or times[0] < DATED:
            return None
        first, last = marks[0].step, marks[-1].step
        made = last - first if first is not None and last is not None else 0  # not every step is kept
        ends.append((times[-1], (times[-1] - times[0]) / max(len(times) - 1, made)))
    if not ends or progress.ended is None:
        return None
    return max(progress.ended, *(time for time, _ in ends)), max(pace for _, pace in ends)


def _tells_of(fault: Finding, other: Finding, edges: Edges) -> bool:
    """Whether another finding is what the fault brings about: then the job was still there."""
    return other.role != "teardown" and not by_kernel(other) and edges.scope(fault, other) is not None
