"""From verdict to action: the first row of `rules/policy.yml` that fits wins.

In: the verdict so far, progress, attempts, the history. Out: a `Recovery`. The tests that rows name stand in `TESTS`;
each answers one question of the policy in one line. Drain, reset, reboot and replace need a kernel or scheduler line or
the same unit in two runs; without that they become an inspection. Their answers are plain data (`Circumstances`), by
which `recall` decides, so that a recorded verdict can be replayed under another policy. Budgets have the last word:
a workload that was started again often enough is not, and no more nodes are drained in an hour than the policy allows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from diagnose.dataclass import dataclass, field, replace
from diagnose.lines.kernel import is_kernel_line
from diagnose.lines.timeline import AttemptProgress
from diagnose.models import (
    Budgets,
    Circumstances,
    Culprit,
    DiagnosisRule,
    Drained,
    Finding,
    NodeRecovery,
    PolicyRow,
    Recovery,
    Target,
)
from diagnose.models.report import NodeActionName
from diagnose.models.rule import AttributionName
from diagnose.rules.repeats import Repeats

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
# What NVIDIA's driver says is needed to recover (Xid 154): its own word on its own device goes before any table's.
_DRIVER_ASKS: Mapping[str, tuple[NodeActionName, ...]] = {
    "GPU Reset Required": ("drain", "reset_gpu"),
    "Drain and Reset": ("drain", "reset_gpu"),
    "Node Reboot Required": ("drain", "reboot"),
    "Drain P2P": ("drain",),
}
_RESET_TOGETHER = frozenset({"NVLinkError", "FabricManagerError"})
# Progress worth having again: with less of it, what the memory ran out of comes back before anything is won.
_LONG_STEPS, _LONG_STEPS_TIMED, _LONG_SECONDS = 1000, 100, 3600.0
# How the system says that an address, a route or an interface is wrong; a refusal or a time-out may be a dead peer.
_WRONG_ADDRESS = (
    "No route to host",
    "Network is unreachable",
    "Cannot assign requested address",
    "Invalid argument",
    "Name or service not known",
    "No such device",
)


@dataclass(frozen=True, slots=True)
class Situation:
    """What the policy may ask about.

    `repeats` says what happened before within the inputs; `unit_repeats`, `workload_repeats` and `drained` come from
    the history.
    `hosts` are the hosts at fault, `struck` all where this kind of error was seen, `job_hosts` how many the job is
    known to run on; `foreign` whether somebody else's process is to blame; `by_owner` whether the owner ended the job,
    `by_administrator` whether a person in charge did; `driver_asks` is the recovery that the driver of the GPU at
    fault asks for (Xid 154), by host.
    """

    status: str
    error_type: str | None
    attribution: AttributionName | None
    root: Finding | None
    rule: DiagnosisRule | None
    progress: AttemptProgress
    culprits: Sequence[Culprit] = ()
    hosts: Sequence[str] = ()
    struck: frozenset[str] = frozenset()
    job_hosts: int = 0
    repeats: Repeats = Repeats()
    all_ranks: bool = False
    foreign: bool = False
    by_owner: bool = False
    by_administrator: bool = False
    driver_asks: Mapping[str, str] = field(default_factory=dict)
    unit_repeats: int = 0
    workload_repeats: int = 0
    drained: Drained = Drained()

    def xid(self) -> int | None:
        """The Xid of the root finding."""
        value = self.root.captures.get("xid") if self.root else None
        return value if isinstance(value, int) else None

    def before_first_step(self) -> bool:
        """Whether no step was made in the diagnosed attempt."""
        return self.progress.steps == 0

    def long_progress(self) -> bool:
        """Whether the diagnosed attempt made progress worth having again: an hour of it, or a thousand steps."""
        progress = self.progress
        if progress.first_step is None or progress.last_step is None:
            made = progress.steps // max(1, len(progress.last))  # each stream may tell the same steps
        else:
            made = progress.last_step - progress.first_step
        if progress.started is not None and progress.last_step_time is not None and made >= _LONG_STEPS_TIMED:
            return made >= _LONG_STEPS or progress.last_step_time - progress.started >= _LONG_SECONDS
        return made >= _LONG_STEPS

    def again_on_unit(self) -> bool:
        """Whether the same unit failed alike before, here or in another job."""
        return self.repeats.same_unit or self.unit_repeats > 0

    def repeated(self) -> bool:
        """Whether an earlier attempt or run failed with the same error type."""
        return bool(self.repeats.attempts) or self.workload_repeats > 0

    def setting_at_fault(self) -> bool:
        """Whether an address, route, interface, driver or peer-to-peer setting keeps the job from starting."""
        if self.tagged("set-up") or any(culprit.kind == "config" for culprit in self.culprits):
            return True
        error = self.root.captures.get("error") if self.root else None
        return isinstance(error, str) and any(words in error for words in _WRONG_ADDRESS)

    def one_host(self) -> bool:
        """Whether one host stands out: what it alone cannot reach, or what is its own."""
        if len(self.hosts) > 1:
            return False
        plain = self.rule is None and self.error_type == "ConnectionError"  # an HTTP client's exception
        if plain or self.tagged("shared-service"):
            # Often one rank alone talks to a service; only the kernel's word marks a host.
            return bool(self.hosts and self.root and self.root.sources & {"kernel"})
        return bool(self.hosts) or self.job_hosts <= 1

    def no_way_back(self) -> bool:
        """Whether the run is young and no checkpoint of it is known: a restart would only do the same again."""
        progress = self.progress
        known = progress.checkpoint_complete is not None or progress.checkpoint_loaded is not None
        return not known and not self.long_progress()

    def nothing_saved(self) -> bool:
        """Whether no checkpoint is known that a restart could go on from, nor a program that saves before it ends."""
        progress = self.progress
        known = progress.checkpoint_complete or progress.checkpoint_started or progress.checkpoint_loaded
        return known is None and not self.tagged("saves-first")

    def tagged(self, *tags: str) -> bool:
        """Whether the deciding rule carries one of the tags."""
        return bool(self.rule and set(tags) & set(self.rule.tags))

    def physical(self) -> bool:
        """Whether a kernel or scheduler line stands behind the finding, or the same unit failed in another run."""
        root = self.root
        if root is None or self.again_on_unit():
            return root is not None
        if root.stray or root.not_ours or not root.told.of_this_job:
            return False
        if root.sources & {"kernel", "scheduler"}:
            return True
        return any(
            any(word in evidence.text for word in _SCHEDULER_WORDS)
            or (any(word in evidence.text for word in _KERNEL_WORDS) and is_kernel_line(evidence.text))
            for evidence in root.evidence
        )


TESTS: Mapping[str, Callable[[Situation], bool]] = {
    "failed": lambda s: s.status == "failed",
    "inconclusive": lambda s: s.status == "inconclusive",
    "no_failure": lambda s: s.status == "no_failure",
    "user": lambda s: s.attribution == "user",
    "infrastructure": lambda s: s.attribution == "infrastructure",
    "not_user": lambda s: s.attribution != "user",
    "before_first_step": Situation.before_first_step,
    "after_progress": lambda s: s.progress.steps > 0,
    "long_progress": Situation.long_progress,
    "no_way_back": Situation.no_way_back,
    "nothing_saved": Situation.nothing_saved,
    "setting_at_fault": Situation.setting_at_fault,
    "remap_failure": lambda s: s.xid() == 64 or s.tagged("remap-failure"),
    "contained": lambda s: s.xid() == 94,
    "again_on_unit": Situation.again_on_unit,
    "singled_out": lambda s: s.repeats.singled_out,
    "repeated": Situation.repeated,
    "at_same_step": lambda s: s.repeats.at_step or s.workload_repeats > 0,
    "twice_before_a_step": lambda s: s.repeats.before_step,
    "same_missing_host": lambda s: s.repeats.missing_host,
    "all_ranks": lambda s: s.all_ranks,
    "one_gpu": lambda s: bool(s.root) and len(s.root.ranks) <= 1 if s.root else False,
    "three_hosts": lambda s: len(s.struck) >= 3,
    "one_host": Situation.one_host,
    "many_hosts": lambda s: len(s.hosts) > 1,
    "foreign_process": lambda s: s.foreign,
    "by_owner": lambda s: s.by_owner,
    "by_administrator": lambda s: s.by_administrator,
    "adapter_failed": lambda s: s.tagged("adapter") and len(s.hosts) == 1,
    "node_is_well": lambda s: s.tagged("node-is-well"),
}


# The tests whose answers rest on what other jobs say of a unit, or earlier runs of a workload.
OF_UNIT = frozenset({"again_on_unit"})
OF_WORKLOAD = frozenset({"repeated", "at_step"})
_AGAIN = frozenset({"restart", "restart_elsewhere", "wait_and_retry"})
_OUT_OF_SERVICE = frozenset({"drain", "replace"})


def recover(
    rows: Sequence[PolicyRow],
    situation: Situation,
    hint: str,
    checks: Sequence[str],
    budgets: Budgets = Budgets(),  # noqa: B008 - frozen
) -> Recovery:
    """The recovery that the first fitting row asks for; `unknown` where none fits."""
    return recall(rows, circumstances(situation), hint, checks, budgets)


def circumstances(situation: Situation) -> Circumstances:
    """All that the policy looks at, as plain data."""
    presumed = {culprit.id for culprit in situation.culprits if culprit.presumed}
    return Circumstances(
        status=situation.status,  # type: ignore[arg-type]
        error_type=situation.error_type,
        attribution=situation.attribution,
        tests={name: test(situation) for name, test in TESTS.items()},
        targets=tuple(
            Target(host, gpu, host in presumed, situation.driver_asks.get(host, ""))
            for host, gpu in _targets(situation)
        ),
        physical=situation.physical(),
        checkpoint=situation.progress.checkpoint_complete,
        repeats=situation.workload_repeats,
        drained=situation.drained.hosts,
        nodes=situation.drained.nodes,
    )


def with_history(known: Circumstances, unit_repeats: int, workload_repeats: int, drained: Drained) -> Circumstances:
    """Circumstances that knew nothing of other jobs, with what these say."""
    tests = dict(known.tests)
    tests.update(dict.fromkeys(OF_UNIT, True) if unit_repeats else {})
    tests.update(dict.fromkeys(OF_WORKLOAD, True) if workload_repeats else {})
    return replace(
        known,
        tests=tests,
        physical=known.physical or (unit_repeats > 0 and bool(known.targets)),
        repeats=workload_repeats,
        drained=drained.hosts,
        nodes=drained.nodes,
    )


def recall(
    rows: Sequence[PolicyRow],
    known: Circumstances,
    hint: str,
    checks: Sequence[str],
    budgets: Budgets = Budgets(),  # noqa: B008 - frozen
) -> Recovery:
    """The recovery under these circumstances."""
    row = next((row for row in rows if _fits(row, known)), None)
    if row is None:
        return Recovery("unknown", hint, checks=tuple(checks))
    nodes: list[NodeRecovery] = []
    spared: list[str] = []
    left = _drains_left(known, budgets)
    for target in known.targets:
        host, gpu = target.host, target.gpu
        proven = known.physical and not target.presumed
        wanted: tuple[NodeActionName, ...] = row.nodes if proven or not row.nodes else ("inspect",)
        if target.asks in _DRIVER_ASKS and proven and "replace" not in wanted:
            wanted = _DRIVER_ASKS[target.asks]
        if left is not None and _OUT_OF_SERVICE & set(wanted):
            if left < 1:
                wanted = ("inspect",)
                spared.append(host)
            left -= 1
        for action in wanted:
            why = f"{known.error_type or 'failure'} on {host}" + (f" GPU {gpu}" if gpu else "")
            # The ends of a link are reset together, with every GPU and switch of the host.
            of_all = known.error_type in _RESET_TOGETHER and action == "reset_gpu"
            why += ", all its GPUs and switches together" if of_all else ""
            nodes.append(NodeRecovery(host, action, why, None if of_all else gpu))
    job, said = row.job, row.hint
    budget = budgets.restarts if row.budget is None else row.budget
    if job in _AGAIN and row.counted and known.repeats and known.repeats >= budget:
        times = f"{known.repeats} times" if known.repeats > 1 else "once"
        job = "none"
        said = f"It was started again {times} for this and came no further: a person should look."
    checkpoint = known.checkpoint if job in _AGAIN or job == "fix_and_resubmit" else None
    full_hint = hint if said.rstrip(".").lower() in hint.lower() else f"{hint} {said}".strip()  # a rule may say so
    for host, asks in {target.host: target.asks for target in known.targets if target.asks}.items():
        if any(node.host == host for node in nodes):
            full_hint = f"{full_hint} The driver on {host} asks for: {asks} (Xid 154).".strip()
    if spared:
        which = f"{known.drained} of {known.nodes} nodes" if known.drained else "as many nodes as may be"
        full_hint = f"{full_hint} Not drained: {', '.join(spared[:4])}, for {which} were within the hour.".strip()
    return Recovery(job, full_hint, tuple(nodes), tuple(checks), checkpoint, row.id)


def _drains_left(known: Circumstances, budgets: Budgets) -> int | None:
    """How many more nodes may be drained within the hour; None where no store counts them."""
    return None if known.nodes is None else max(1, int(budgets.drains_per_hour * known.nodes)) - known.drained


def fits(row: PolicyRow, situation: Situation) -> bool:
    """Whether a row's error types and tests fit."""
    return _fits(row, circumstances(situation))


def _fits(row: PolicyRow, known: Circumstances) -> bool:
    if row.error_types and known.error_type not in row.error_types:
        return False
    if known.error_type is not None and known.error_type in row.but:
        return False
    return all(known.tests.get(name, False) for name in row.when)


def _targets(situation: Situation) -> list[tuple[str, str | None]]:
    """The hosts to act on: named culprits, or where a named rank or GPU lives."""
    hosts = [culprit.id for culprit in situation.culprits if culprit.machine] or list(situation.hosts)
    gpus = [culprit.id for culprit in situation.culprits if culprit.kind == "gpu"]
    if len(hosts) > 8:  # a long list is not a lead: the shared part is to be looked at
        return []
    return [(host, gpus[0] if len(gpus) == 1 and len(hosts) == 1 else None) for host in hosts]
