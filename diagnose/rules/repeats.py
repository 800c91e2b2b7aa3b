"""Has this happened before: on the same unit, at the same step, without the same host.

In: the judged attempts, what was set aside, the culprits of each root. Out: `Repeats`, the facts of this kind that
attribution and policy ask for. A unit is a GPU or an adapter where one is named, else the host at fault, else the one
rank that failed. Earlier means an earlier attempt, or the time before the job in a kernel log that reaches back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from diagnose.dataclass import dataclass
from diagnose.lines.timeline import AttemptProgress
from diagnose.models import Culprit, DiagnosisRule, ExcludedFinding, Finding

_DAY = 86_400.0
_APART = 600.0  # seconds between two failures of one GPU under different processes: not one fault seen twice
_FLAP = 60.0  # seconds within which two lines about a port are one event
_UNTIMED_FLAPS = 3  # lines without times that say a port went down: one event is told once or twice
_ENDS = 2  # hosts that must complain of one and the same peer before it stands out
_COLLECTIVE = frozenset({"NCCLTimeoutError", "NCCLRemoteError", "NCCLSystemError", "CollectiveHang"})
# A rank that raised is a line of code, not a unit, unless its device or its numbers speak.
_BY_RANK = frozenset({"cuda", "anomaly"})
_PHYSICAL = _BY_RANK | {"hardware", "network", "node", "comm"}
_DAYS = {"NetworkError": 1, "NodeFailure": 7, "SchedulerLaunchError": 7}  # for which a unit's fault is remembered
_MONTH = 30


@dataclass(frozen=True, slots=True)
class Unit:
    """What a finding is about, as exactly as it says."""

    hosts: frozenset[str] = frozenset()
    gpus: frozenset[str] = frozenset()
    nics: frozenset[str] = frozenset()
    rank: int | None = None
    by_rank: bool = False

    def same(self, other: Unit) -> bool:
        """Whether two findings are about one unit; False where either names none."""
        apart = bool(self.hosts and other.hosts and not self.hosts & other.hosts)
        if apart:
            return False
        if self.gpus and other.gpus:
            return bool(self.gpus & other.gpus)
        if self.nics and other.nics:
            return bool(self.nics & other.nics)
        if self.by_rank or other.by_rank or self.gpus or other.gpus:
            return self.rank is not None and self.rank == other.rank
        return bool(self.hosts & other.hosts)


@dataclass(frozen=True, slots=True)
class Earlier:
    """The root of an earlier attempt, and how far that attempt came."""

    root: Finding
    unit: Unit
    progress: AttemptProgress


@dataclass(frozen=True, slots=True)
class Repeats:
    """What of the diagnosed failure is not new.

    `same_unit` holds for attempts, for other processes on one device and for the time before the job; `at_step` where
    an attempt ended alike at the very step, `other_step` where one did at another; `before_step` where one did before
    any; `missing_host` where the host that was missed was missed before; `singled_out` where several hosts complain of
    one and of no other.
    """

    attempts: tuple[int, ...] = ()
    same_unit: bool = False
    at_step: bool = False
    other_step: bool = False
    before_step: bool = False
    missing_host: bool = False
    singled_out: bool = False


def unit_of(finding: Finding, culprits: Sequence[Culprit]) -> Unit:
    """The unit of a finding; its named culprits say more than where it was seen, and what is presumed says nothing."""
    named = {
        kind: frozenset(c.id for c in culprits if c.kind == kind and not (c.presumed or c.pod))
        for kind in ("host", "gpu", "nic")
    }
    rank = next(iter(finding.ranks)) if len(finding.ranks) == 1 else None
    return Unit(
        hosts=named["host"] or finding.hosts,
        gpus=finding.gpus or named["gpu"],
        nics=named["nic"],
        rank=rank,
        by_rank=finding.family in _BY_RANK or not (finding.hosts or named["host"]),
    )


def look_back(
    root: Finding,
    unit: Unit,
    progress: AttemptProgress,
    earlier: Sequence[Earlier],
    excluded: Sequence[ExcludedFinding],
    witnesses: Sequence[Finding],
    same_kind: Sequence[Finding],
    rule: DiagnosisRule | None,
    canonical: Callable[[str], str],
) -> Repeats:
    """What is known to have happened before.

    `witnesses` tell of the same event as the root, such as the kernel of what a rank died of; `canonical` gives a
    host's one name for any of its names.
    """
    alike = [one for one in earlier if one.root.error_type == root.error_type]
    missed = [one for one in earlier if one.root.error_type in _COLLECTIVE] if root.error_type in _COLLECTIVE else []
    physical = root.family in _PHYSICAL and (not root.traceback or not unit.by_rank or root.family in _BY_RANK)
    steps = [one.progress.last_step for one in alike]
    return Repeats(
        attempts=tuple(one.root.attempt for one in alike),
        same_unit=physical
        and (
            any(unit.same(one.unit) for one in alike)
            or any(_under_other_processes(finding) for finding in (root, *witnesses))
            or _flaps(root, rule)
            or any(_before(finding, unit_of(finding, ()), item.finding) for finding in witnesses for item in excluded)
            or any(_before(root, unit, item.finding) for item in excluded)
        ),
        at_step=progress.last_step is not None and progress.last_step in steps,
        other_step=any(step != progress.last_step for step in steps),
        before_step=progress.steps == 0 and any(one.progress.steps == 0 for one in alike),
        missing_host=bool(unit.hosts) and any(unit.hosts & one.unit.hosts for one in missed),
        singled_out=_singled_out(root, same_kind, canonical),
    )


def _under_other_processes(root: Finding) -> bool:
    """One GPU that failed process after process: the kernel names the process of each time."""
    if root.family not in ("hardware", "cuda") or len(root.gpus) != 1 or len(root.pids) < 2:
        return False
    return root.first is not None and root.last is not None and root.last - root.first >= _APART


def _flaps(root: Finding, rule: DiagnosisRule | None) -> bool:
    """A port that went down, came back and went down again within one run."""
    if rule is None or "link" not in rule.tags or root.count < 2:
        return False
    if root.first is None or root.last is None:
        return root.count >= _UNTIMED_FLAPS
    return root.last - root.first >= _FLAP


def _before(root: Finding, unit: Unit, finding: Finding) -> bool:
    """The same fault of the same unit in a log that reaches back before the job."""
    if finding.error_type != root.error_type or finding.shadow or root.family not in ("hardware", "cuda", "network"):
        return False
    if (
        finding.last is None
        or root.first is None
        or not 0 < root.first - finding.last <= days_remembered(root.error_type) * _DAY
    ):
        return False
    return bool(finding.sources & {"kernel"}) and unit.same(unit_of(finding, ()))


def days_remembered(error_type: str) -> int:
    """For how many days a fault of this kind counts against its unit."""
    return _DAYS.get(error_type, _MONTH)


def _singled_out(root: Finding, same_kind: Sequence[Finding], canonical: Callable[[str], str]) -> bool:
    """Several hosts lost touch with one peer, and no pair lost touch without it."""
    if root.family != "network":
        return False
    pairs: set[tuple[str, str]] = set()
    for finding in (root, *same_kind):
        if finding.rule == root.rule:
            for host in finding.hosts:
                pairs.update((host, canonical(peer)) for peer in _peers(finding))
    common: set[str] = set.intersection(*[set(pair) for pair in pairs]) if pairs else set()
    return any(len({one for pair in pairs for one in pair} - {end}) > _ENDS for end in common)


def _peers(finding: Finding) -> list[str]:
    captures: list[Mapping[str, object]] = [finding.captures, *finding.by_rank.values()]
    found = [captured["peer"] for captured in captures if isinstance(captured.get("peer"), str)]
    return [str(peer) for peer in found]
