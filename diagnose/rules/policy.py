"""From verdict to action: the first row of `rules/policy.yml` that fits wins.

In: the verdict so far, progress, attempts, the history. Out: a `Recovery`. The tests that rows name stand in `TESTS`;
each answers one question of the policy in one line. Drain, reset, reboot and replace need a kernel or scheduler line or
the same unit in two runs; without that they become an inspection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from diagnose.dataclass import dataclass
from diagnose.lines.timeline import AttemptProgress
from diagnose.models import Culprit, DiagnosisRule, Finding, NodeRecovery, PolicyRow, Recovery
from diagnose.models.rule import AttributionName

_KERNEL_WORDS = ("NVRM:", " kernel:", "nvidia-nvswitch", "mlx5_core", "amdgpu", "oom-kill", "Out of memory: Kill")
_SCHEDULER_WORDS = (
    "slurmstepd",
    "slurmctld",
    "sacct",
    "NODE_FAIL",
    "NodeNotReady",
    "slurm job=",
    "slurm node=",
    "k8s ",
)
_LONG_PROGRESS = 100  # steps after which an out-of-memory error is not a matter of the settings alone


@dataclass(frozen=True, slots=True)
class Situation:
    """What the policy may ask about.

    `earlier` are the root findings of earlier attempts; `unit_repeats` and `workload_repeats` come from the history.
    """

    status: str
    error_type: str | None
    attribution: AttributionName | None
    root: Finding | None
    rule: DiagnosisRule | None
    progress: AttemptProgress
    earlier: Sequence[Finding]
    culprits: Sequence[Culprit]
    all_ranks: bool
    same_unit: bool
    absent: Sequence[int]
    unit_repeats: int
    workload_repeats: int
    hosts: Sequence[str]

    def xid(self) -> int | None:
        """The Xid of the root finding."""
        value = self.root.captures.get("xid") if self.root else None
        return value if isinstance(value, int) else None

    def before_first_step(self) -> bool:
        """Whether no step was made in the diagnosed attempt."""
        return self.progress.steps == 0

    def repeated(self) -> bool:
        """Whether an earlier attempt or run failed with the same error type at the same step."""
        same = [finding for finding in self.earlier if finding.error_type == self.error_type]
        return bool(same) or self.workload_repeats > 0

    def physical(self) -> bool:
        """Whether a kernel or scheduler line stands behind the finding, or the same unit failed in another run."""
        if self.root is None:
            return False
        if self.root.sources & {"kernel", "scheduler"} or self.same_unit or self.unit_repeats > 0:
            return True
        return any(
            word in evidence.text for evidence in self.root.evidence for word in (*_KERNEL_WORDS, *_SCHEDULER_WORDS)
        )


def _tagged(situation: Situation, *tags: str) -> bool:
    return bool(situation.rule and set(tags) & set(situation.rule.tags))


TESTS: Mapping[str, Callable[[Situation], bool]] = {
    "failed": lambda s: s.status == "failed",
    "inconclusive": lambda s: s.status == "inconclusive",
    "no_failure": lambda s: s.status == "no_failure",
    "user": lambda s: s.attribution == "user",
    "infrastructure": lambda s: s.attribution == "infrastructure",
    "not_user": lambda s: s.attribution != "user",
    "before_first_step": Situation.before_first_step,
    "after_progress": lambda s: s.progress.steps > 0,
    "long_progress": lambda s: (
        s.progress.steps >= _LONG_PROGRESS
        or (s.progress.last_step or 0) - (s.progress.first_step or 0) >= _LONG_PROGRESS
    ),
    "setting_at_fault": lambda s: _tagged(s, "setup") or any(culprit.kind == "config" for culprit in s.culprits),
    "remap_failure": lambda s: s.xid() == 64 or _tagged(s, "remap-failure"),
    "contained": lambda s: s.xid() in (92, 94) or _tagged(s, "contained"),
    "again_on_unit": lambda s: s.same_unit or s.unit_repeats > 0,
    "repeated": Situation.repeated,
    "not_repeated": lambda s: not s.repeated(),
    "same_missing_host": lambda s: bool(s.absent) and any(f.captures.get("absent") for f in s.earlier),
    "all_ranks": lambda s: s.all_ranks,
    "one_gpu": lambda s: bool(s.root) and len(s.root.ranks) <= 1 if s.root else False,
    "three_hosts": lambda s: bool(s.root) and len(s.root.hosts) >= 3 if s.root else False,
    "one_host": lambda s: len(s.hosts) == 1,
    "many_hosts": lambda s: len(s.hosts) > 1,
    "foreign_process": lambda s: _tagged(s, "foreign-process"),
    "by_owner": lambda s: bool(s.root and s.root.captures.get("by_owner")),
    "first_on_unit": lambda s: not (s.same_unit or s.unit_repeats > 0),
}


def recover(rows: Sequence[PolicyRow], situation: Situation, hint: str, checks: Sequence[str]) -> Recovery:
    """The recovery that the first fitting row asks for; `unknown` where none fits."""
    row = next((row for row in rows if fits(row, situation)), None)
    if row is None:
        return Recovery("unknown", hint, checks=tuple(checks))
    nodes: list[NodeRecovery] = []
    for host, gpu in _targets(situation):
        wanted = row.nodes if situation.physical() else tuple("inspect" for _ in row.nodes[:1])
        for action in wanted:
            why = f"{situation.error_type or 'failure'} on {host}" + (f" GPU {gpu}" if gpu else "")
            nodes.append(NodeRecovery(host, action, why, gpu))  # type: ignore[arg-type]
    job = row.job
    checkpoint = None
    if job in ("restart", "restart_elsewhere", "wait_and_retry", "fix_and_resubmit"):
        checkpoint = situation.progress.checkpoint_complete
    full_hint = " ".join(part for part in (hint, row.hint) if part)
    return Recovery(job, full_hint, tuple(nodes), tuple(checks), checkpoint, row.id)


def fits(row: PolicyRow, situation: Situation) -> bool:
    """Whether a row's error types and tests fit."""
    if row.error_types and situation.error_type not in row.error_types:
        return False
    if situation.error_type is not None and situation.error_type in row.but:
        return False
    return all(TESTS[name](situation) for name in row.when)


def _targets(situation: Situation) -> list[tuple[str, str | None]]:
    """The hosts to act on: named culprits, or where a named rank or GPU lives."""
    hosts = [culprit.id for culprit in situation.culprits if culprit.kind == "host"] or list(situation.hosts)
    gpus = [culprit.id for culprit in situation.culprits if culprit.kind == "gpu"]
    if len(hosts) > 8:  # a long list is not a lead: the shared part is to be looked at
        return []
    return [(host, gpus[0] if len(gpus) == 1 and len(hosts) == 1 else None) for host in hosts]
