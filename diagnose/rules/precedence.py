"""Which of two findings came first, as far as that can be known.

In: findings, and the offsets between the clocks of sources. Out: `before(a, b)`: True, False, or None where nothing
orders them. Order counts within one writer's stream; across streams only comparable clocks, or the one file both were
written to, say something.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from diagnose.dataclass import dataclass, field
from diagnose.lines.timeline import AttemptProgress
from diagnose.models import Finding
from diagnose.rules.edges import Edges

SAME_TIME = 2.0  # seconds: whole-second stamps and log buffers make less undecidable
_LARGEST_OFFSET = 900.0
_NEAR = 60.0
_KERNEL = frozenset({"kernel"})
DATED = 978_307_200.0  # 2001: stamps without a year, where no input names one, are read as of 2000


@dataclass(frozen=True, slots=True)
class Clocks:
    """Seconds to add to the times of a source to compare it with the others. Sources not named run on time."""

    offsets: Mapping[str, float] = field(default_factory=dict)

    def first(self, finding: Finding) -> float | None:
        """The finding's first time on the common clock."""
        return None if finding.first is None else finding.first + self._offset(finding)

    def last(self, finding: Finding) -> float | None:
        """The finding's last time on the common clock."""
        return None if finding.last is None else finding.last + self._offset(finding)

    def together(self, one: Finding, other: Finding, progress: AttemptProgress) -> bool:
        """Whether a kernel and others can be known to tell of one event: by times, or by a process that both name.

        Where the attempt is dated at all, a kernel's findings are those of its time.
        """
        if progress.started is not None or by_kernel(one) == by_kernel(other):
            return True
        if "scheduler" in one.sources | other.sources:
            return True
        return self.gap(one, other) is not None or bool(one.pids & other.pids)

    def on_common(self, finding: Finding, time: float | None) -> float | None:
        """A time that the finding's source states, on the common clock."""
        return None if time is None else time + self._offset(finding)

    def _offset(self, finding: Finding) -> float:
        if not self.offsets:
            return 0.0
        return next((self.offsets[name] for name in finding.spans if name in self.offsets), 0.0)

    def gap(self, one: Finding, other: Finding) -> float | None:
        """Seconds from the first line of `one` to the first of `other`; None where a time is not known."""
        start, end = self.first(one), self.first(other)
        if start is None or end is None or (start < DATED) != (end < DATED):
            return None
        return end - start

    def before(self, one: Finding, other: Finding) -> bool | None:
        """Whether `one` came first."""
        ordered = by_kernel(one) == by_kernel(other)  # a kernel log pasted into a job's log has its own order
        earlier = _by_lines(one.streams, other.streams) if ordered else None
        if earlier is not None:
            return earlier
        gap = self.gap(one, other)
        if gap is not None and abs(gap) > SAME_TIME:
            return gap > 0
        return _by_lines(one.spans, other.spans) if ordered else None


def _by_lines(one: Mapping[str, tuple[int, int]], other: Mapping[str, tuple[int, int]]) -> bool | None:
    """Whether lines came first, by the first name common to both under which they differ."""
    if one.keys().isdisjoint(other.keys()):
        return None
    for name in sorted(one.keys() & other.keys()):
        if one[name][0] != other[name][0]:
            return one[name][0] < other[name][0]
    return None


def by_kernel(finding: Finding) -> bool:
    """Whether only a kernel says so."""
    return finding.sources == _KERNEL


def estimate_clocks(
    findings: Sequence[Finding], progress: AttemptProgress | None, edges: Edges | None = None
) -> tuple[Clocks, tuple[str, ...]]:
    """Estimates how far the clocks of sources are apart, from events that several of them saw.

    Job sources: the same step, printed by several. Kernel logs: where nothing of a host's kernel log lies near the
    job's failure but its first fault lies within 15 minutes of it, both are taken as one event, unless by `edges` the
    fault explains nothing that the job says. Returns the clocks and, in words, each offset used.
    """
    offsets: dict[str, float] = {}
    notes: list[str] = []
    findings = [finding for finding in findings if not finding.shadow]
    if progress and len(progress.step_times) > 1:
        offsets.update(_by_steps(progress.step_times))
    clocks = Clocks(offsets)
    job = [
        finding
        for finding in findings
        if "job" in finding.sources and finding.first is not None and finding.role != "teardown"
    ]
    death = min((time for finding in job if (time := clocks.first(finding)) is not None), default=None)
    if death is not None:
        offsets.update(_kernel_offsets(findings, death, edges))
    for source, offset in sorted(offsets.items()):
        if abs(offset) > SAME_TIME:
            notes.append(f"the clock of {source} differs by about {abs(offset):.0f} s from the others")
    return Clocks(offsets), tuple(notes)


def _by_steps(step_times: Mapping[str, tuple[int, float]]) -> dict[str, float]:
    """Offsets of sources that printed the same last step at times too far apart for one synchronous step."""
    by_step: dict[int, list[tuple[str, float]]] = {}
    for source, (step, time) in step_times.items():
        by_step.setdefault(step, []).append((source, time))
    common = max(by_step.values(), key=len)
    if len(common) < 2:  # nothing shared
        return {}
    times = sorted(time for _, time in common)
    middle = times[len(times) // 2]
    return {source: middle - time for source, time in common if SAME_TIME * 5 < abs(middle - time) <= _LARGEST_OFFSET}


def _kernel_offsets(findings: Sequence[Finding], death: float, edges: Edges | None) -> list[tuple[str, float]]:
    by_source: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.sources == frozenset({"kernel"}) and finding.first is not None:
            for source in finding.spans:
                by_source.setdefault(source, []).append(finding)
    found: list[tuple[str, float]] = []
    for source, own in sorted(by_source.items()):
        gaps = [finding.first - death for finding in own if finding.first is not None]
        if any(abs(gap) <= _NEAR for gap in gaps):
            continue
        first = min(own, key=lambda finding: finding.first or 0.0)
        gap = (first.first or 0.0) - death
        if edges is not None and first.role != "teardown" and not _explains_any(first, findings, edges):
            continue
        if abs(gap) <= _LARGEST_OFFSET and first.family in ("hardware", "cuda", "teardown") and gap > 0:
            # A fault that seems to follow the failure it caused; clean-up follows it by a breath in truth as well.
            found.append((source, -gap + (2.0 if first.role == "teardown" else -1.0)))
    return found


def _explains_any(fault: Finding, findings: Sequence[Finding], edges: Edges) -> bool:
    """Whether a fault may be what the job tells of: it explains some of it, or is said by it as well."""
    return any(
        edges.scope(fault, other) is not None or other.error_type == fault.error_type
        for other in findings
        if not by_kernel(other) and other.role != "teardown"
    )
