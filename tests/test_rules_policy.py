"""From verdict to action: every row gives the action of the table, and each test that rows name answers its question.

Situations are made up here; `test_policy_runs` reaches each row by whole logs.
"""

import pytest

from diagnose.lines.inventory import Inventory
from diagnose.lines.timeline import AttemptProgress, Timeline
from diagnose.models import Budgets, Culprit, Drained, Evidence
from diagnose.rules.bundle import load_bundled
from diagnose.rules.load import load_rules
from diagnose.rules.policy import TESTS, Situation, circumstances, fits, recall, recover, with_history
from diagnose.rules.repeats import Repeats
from diagnose.rules.verdict import decide
from tests.made import finding, rule

AT_START, UNDER_WAY, LONG = (
    AttemptProgress(),
    AttemptProgress(steps=20, first_step=1, last_step=20, checkpoint_complete="ckpt/20"),
    AttemptProgress(steps=5000, first_step=0, last_step=5000, checkpoint_complete="ckpt/4900"),
)
HOST = Culprit("host", "n1", "seen there")


def situation(error_type=None, **how):
    """A failed job whose root was seen by the kernel of host n1, after some steps, unless told otherwise."""
    status = how.pop("status", "failed")
    root = how.pop("root", {})
    made = finding("root", error_type, **({"hosts": {"n1"}, "sources": {"kernel"}} | root)) if error_type else None
    tags = how.pop("tags", None)
    filled = {
        "attribution": "infrastructure",
        "rule": rule(signatures={"x": "x"}, tags=tags) if tags else None,
        "progress": UNDER_WAY,
        "culprits": (HOST,),
        "hosts": ("n1",),
        "job_hosts": 2,
    } | how
    return Situation(status=status, error_type=error_type, root=made, **filled)


SAME_UNIT = Repeats(attempts=(0,), same_unit=True)
USER = {"attribution": "user"}
TWO_HOSTS = {"hosts": ("n1", "n2"), "culprits": ()}

# row: (situation, action for the job, actions for the nodes)
REACHED = {
    "nothing-to-do": (situation(status="no_failure"), "none", []),
    "inconclusive-with-progress": (situation(status="inconclusive", culprits=(), hosts=()), "restart", []),
    "inconclusive": (situation(status="inconclusive", progress=AT_START), "none", []),
    "fix-the-code": (situation("KeyError", **USER), "fix_and_resubmit", []),
    "wrong-set-up": (
        situation(
            "NetworkError", progress=AT_START, culprits=(HOST, Culprit("config", "NCCL_SOCKET_IFNAME", "set so"))
        ),
        "fix_and_resubmit",
        ["inspect"],
    ),
    "ecc-remap-failure": (situation("ECCError", root={"captures": {"xid": 64}}), "restart_elsewhere", ["replace"]),
    "ecc-again": (situation("ECCError", unit_repeats=1), "restart_elsewhere", ["replace"]),
    "ecc-contained": (situation("ECCError", root={"captures": {"xid": 94}}), "restart_elsewhere", ["reset_gpu"]),
    "ecc": (situation("ECCError", root={"captures": {"xid": 48}}), "restart_elsewhere", ["drain", "reset_gpu"]),
    "off-the-bus-again": (situation("GPUFallenOffBus", repeats=SAME_UNIT), "restart_elsewhere", ["replace"]),
    "off-the-bus": (situation("GPUFallenOffBus"), "restart_elsewhere", ["drain", "reboot"]),
    "shared-fabric": (
        situation("NVLinkError", struck=frozenset({"n1", "n2", "n3"}), hosts=("n1", "n2", "n3"), culprits=()),
        "wait_and_retry",
        [],
    ),
    "nvlink": (situation("NVLinkError"), "restart_elsewhere", ["drain", "reset_gpu"]),
    "cuda-same-unit": (situation("CUDAError", repeats=SAME_UNIT), "restart_elsewhere", ["drain"]),
    "cuda-at-start": (situation("CUDAError", progress=AT_START), "fix_and_resubmit", []),
    "cuda-one-gpu": (situation("CUDAError"), "restart", ["inspect"]),
    "collective-same-missing-host": (
        situation("NCCLTimeoutError", repeats=Repeats(attempts=(0,), missing_host=True)),
        "restart_elsewhere",
        ["inspect"],
    ),
    "collective-at-same-step": (situation("CollectiveHang", repeats=Repeats((0,), at_step=True)), "none", []),
    "collective-twice-before-a-step": (
        situation("NCCLSystemError", progress=AT_START, repeats=Repeats((0,), before_step=True)),
        "none",
        [],
    ),
    "collective-first": (situation("NCCLRemoteError"), "restart", []),
    "network-singled-out": (
        situation("NetworkError", repeats=Repeats(singled_out=True), struck=frozenset("abcd")),
        "restart_elsewhere",
        ["inspect"],
    ),
    "network-adapter": (situation("NetworkError", tags=("adapter",)), "restart_elsewhere", ["inspect"]),
    "network-again": (situation("NetworkError", unit_repeats=2), "restart_elsewhere", ["inspect"]),
    "network": (situation("NetworkError"), "restart", []),
    "node-lost-again": (situation("NodeFailure", unit_repeats=1), "restart_elsewhere", ["inspect"]),
    "node-lost": (situation("NodeFailure"), "restart_elsewhere", []),
    "container-anew": (situation("ContainerRuntimeError", tags=("node-is-well",)), "restart", ["inspect"]),
    "driver": (situation("GPUDriverError"), "restart_elsewhere", ["drain", "reboot"]),
    "device-unavailable": (situation("DiskFull"), "restart_elsewhere", ["inspect"]),
    "node-limits": (situation("SharedMemoryFull"), "fix_and_resubmit", ["inspect"]),
    "memory-held-by-others": (
        situation("OutOfMemoryError", foreign=True),
        "restart_elsewhere",
        ["inspect"],
    ),
    "memory-again": (situation("HostOutOfMemory", workload_repeats=1, progress=LONG), "fix_and_resubmit", []),
    "memory-after-long-progress": (situation("OutOfMemoryError", progress=LONG), "restart", []),
    "memory": (situation("OutOfMemoryError", **USER), "fix_and_resubmit", []),
    "storage-one-host": (situation("StorageIOError"), "restart_elsewhere", ["inspect"]),
    "storage-service": (situation("S3StorageError", **TWO_HOSTS), "wait_and_retry", []),
    "checkpoint-corrupt": (situation("CheckpointCorrupt"), "restart", []),
    "anomaly-follows-host": (situation("TrainingAnomaly"), "restart_elsewhere", ["drain"]),
    "anomaly-again": (
        situation("TrainingAnomaly", attribution="user", repeats=Repeats((0,), at_step=True)),
        "fix_and_resubmit",
        [],
    ),
    "anomaly-from-the-start": (situation("TrainingAnomaly", progress=AT_START, **USER), "fix_and_resubmit", []),
    "anomaly-first": (situation("TrainingAnomaly", attribution="user"), "restart", []),
    "preempted": (situation("Preempted", attribution="scheduler"), "wait_and_retry", []),
    "time-limit-from-the-start": (
        situation("TimeLimitExceeded", attribution="scheduler", progress=AT_START),
        "restart",
        [],
    ),
    "time-limit": (situation("TimeLimitExceeded", attribution="scheduler"), "restart", []),
    "cancelled-by-owner": (situation("JobCancelled", by_owner=True, **USER), "none", []),
    "cancelled-by-administrator": (situation("JobCancelled", by_administrator=True), "none", []),
    "cancelled": (situation("JobCancelled", attribution="scheduler"), "restart", []),
    "killed": (situation("ProcessKilled", attribution="unknown"), "restart", ["inspect"]),
    "other": (situation("RuntimeError", attribution="unknown"), "restart", []),
}


@pytest.mark.parametrize("row", REACHED)
def test_a_row_is_reached_and_gives_its_action(row, rule_set):
    made, job, nodes = REACHED[row]
    recovery = recover(rule_set.policy, made, "", ())
    assert (recovery.policy, recovery.job) == (row, job)
    assert [node.action for node in recovery.nodes] == nodes


def test_every_row_is_spoken_of(rule_set):
    assert {row.id for row in rule_set.policy} == REACHED.keys()


def test_every_test_is_asked_by_some_row_or_answers_for_sites(rule_set):
    asked = {name for row in rule_set.policy for name in row.when}
    assert asked <= TESTS.keys()
    for test in TESTS.values():
        assert test(situation()) in (True, False)
        assert test(situation("CUDAError")) in (True, False)


def test_every_error_type_has_an_action_under_every_attribution(rule_set):
    for name, entry in rule_set.taxonomy.items():
        if entry.symptom:
            continue
        for attribution in ("infrastructure", "user", "scheduler", "unknown"):
            for progress in (AT_START, UNDER_WAY, LONG):
                made = situation(name, attribution=attribution, progress=progress)
                assert recover(rule_set.policy, made, "", ()).job != "unknown", (name, attribution)


def test_the_first_row_that_fits_wins(rule_set):
    """A remap failure is replaced also where the unit failed before."""
    made = situation("ECCError", root={"captures": {"xid": 64}}, unit_repeats=3)
    fitting = [row.id for row in rule_set.policy if fits(row, made)]
    assert fitting == ["ecc-remap-failure", "ecc-again", "ecc", "other"]
    assert recover(rule_set.policy, made, "", ()).policy == "ecc-remap-failure"


def test_no_row_is_an_unknown_action():
    recovery = recover((), situation("ECCError"), "Look.", ("nvidia-smi",))
    assert (recovery.job, recovery.hint, recovery.checks, recovery.policy) == (
        "unknown",
        "Look.",
        ("nvidia-smi",),
        None,
    )


# What stands behind an action on a node.

DRAINED = ["drain", "reset_gpu"]


@pytest.mark.parametrize(
    ("how", "actions"),
    [
        ({"root": {"sources": {"job"}}}, ["inspect"]),
        ({"root": {"sources": {"job", "kernel"}}}, DRAINED),
        ({"root": {"sources": {"scheduler"}}}, DRAINED),
        ({"root": {"sources": {"job"}, "evidence": (Evidence("job.log", 3, "[ 12.5] NVRM: Xid (PCI:0)"),)}}, DRAINED),
    ],
    ids=["a job's word", "the kernel too", "the scheduler", "pasted kernel line"],
)
def test_a_node_is_acted_on_only_with_a_physical_witness(how, actions, rule_set):
    recovery = recover(rule_set.policy, situation("ECCError", **how), "", ())
    assert [node.action for node in recovery.nodes] == actions


@pytest.mark.parametrize("how", [{"repeats": SAME_UNIT}, {"unit_repeats": 1}], ids=["attempts", "jobs"])
def test_the_same_unit_in_two_runs_is_a_witness(how, rule_set):
    recovery = recover(rule_set.policy, situation("ECCError", root={"sources": {"job"}}, **how), "", ())
    assert [node.action for node in recovery.nodes] == ["replace"]


@pytest.mark.parametrize(
    ("asked", "actions"),
    [
        ("Node Reboot Required", ["drain", "reboot"]),
        ("GPU Reset Required", ["drain", "reset_gpu"]),
        ("Drain P2P", ["drain"]),
        ("None", ["drain", "reset_gpu"]),
    ],
)
def test_what_the_driver_asks_for_decides_and_is_said(asked, actions, rule_set):
    made = situation("ECCError", root={"captures": {"xid": 48}}, driver_asks={"n1": asked})
    recovery = recover(rule_set.policy, made, "", ())
    assert [node.action for node in recovery.nodes] == actions
    assert recovery.hint == f"The driver on n1 asks for: {asked} (Xid 154)."


def test_a_card_to_be_replaced_is_replaced_whatever_the_driver_asks_for(rule_set):
    made = situation("ECCError", root={"captures": {"xid": 64}}, driver_asks={"n1": "GPU Reset Required"})
    assert [node.action for node in recover(rule_set.policy, made, "", ()).nodes] == ["replace"]


def test_the_ends_of_a_link_are_reset_together(rule_set):
    made = situation("NVLinkError", culprits=(HOST, Culprit("gpu", "0000:3b:00", "seen")))
    reset = recover(rule_set.policy, made, "", ()).nodes[-1]
    assert (reset.action, reset.gpu) == ("reset_gpu", None)
    assert "together" in reset.why


def test_the_gpu_is_named_where_one_is(rule_set):
    culprits = (HOST, Culprit("gpu", "0000:3b:00", "seen"))
    (node, _) = recover(rule_set.policy, situation("ECCError", culprits=culprits), "", ()).nodes
    assert (node.host, node.gpu) == ("n1", "0000:3b:00")
    assert "0000:3b:00" in node.why


def test_of_many_hosts_none_is_acted_on(rule_set):
    hosts = tuple(f"n{number}" for number in range(9))
    assert recover(rule_set.policy, situation("GPUDriverError", hosts=hosts, culprits=()), "", ()).nodes == ()
    assert len(recover(rule_set.policy, situation("GPUDriverError", hosts=hosts[:8], culprits=()), "", ()).nodes) == 16


@pytest.mark.parametrize(
    ("made", "checkpoint"),
    [
        (situation("NCCLRemoteError"), "ckpt/20"),
        (situation("NCCLRemoteError", progress=AT_START), None),
        (situation("CollectiveHang", workload_repeats=1), None),  # job: none
        (situation(status="no_failure"), None),
    ],
)
def test_the_last_complete_checkpoint_is_named_where_the_job_runs_again(made, checkpoint, rule_set):
    assert recover(rule_set.policy, made, "", ()).from_checkpoint == checkpoint


def test_hints_of_rule_and_row_stand_together(rule_set):
    made = situation("CUDAError")
    said = next(row.hint for row in rule_set.policy if row.id == "cuda-one-gpu")
    recovery = recover(rule_set.policy, made, "Read rank 3.", ("dcgmi diag",))
    assert recovery.hint == f"Read rank 3. {said}"
    assert recovery.checks == ("dcgmi diag",)
    assert recover(rule_set.policy, made, f"Read rank 3; {said.lower()}", ()).hint == f"Read rank 3; {said.lower()}"


@pytest.mark.parametrize(
    ("progress", "wanted"),
    [
        (AttemptProgress(steps=999), False),
        (AttemptProgress(steps=1000), True),
        (AttemptProgress(steps=1999, last=dict.fromkeys("ab")), False),  # two streams tell of the same steps
        (AttemptProgress(steps=3, first_step=0, last_step=1000), True),
        (AttemptProgress(steps=3, first_step=9000, last_step=9900), False),
        (AttemptProgress(steps=3, first_step=0, last_step=100, started=0.0, last_step_time=3600.0), True),
        (AttemptProgress(steps=3, first_step=0, last_step=100, started=0.0, last_step_time=3500.0), False),
        (AttemptProgress(steps=3, first_step=0, last_step=9, started=0.0, last_step_time=9999.0), False),
    ],
)
def test_long_progress_counts_this_attempt(progress, wanted):
    assert TESTS["long_progress"](situation("OutOfMemoryError", progress=progress)) is wanted


# History, handed in as data.


class Remembered:
    """A history that knows one number of each kind, and notes what it is asked."""

    def __init__(self, unit=0, workload=0):
        self._unit, self._workload = unit, workload
        self.asked = []

    def unit_failures(self, *, host, gpu, error_type, days):
        self.asked.append((host, gpu, error_type))
        return self._unit

    def workload_repeats(self, *, error_type, step, place=""):
        self.asked.append((error_type, step))
        return self._workload

    def drained(self, *, besides):
        return Drained()


def verdict(error_type, rule_set, history, **how):
    found = finding("f", error_type, at=1.77e9, **how)
    return decide([found], (), rule_set, {0: UNDER_WAY}, Timeline(), Inventory(), history)


def test_history_of_the_unit_changes_the_action(rule_set):
    first, second = Remembered(), Remembered(unit=1)
    fault = {"hosts": {"n1"}, "gpus": {"0000:3b:00"}, "sources": {"kernel"}}
    assert verdict("ECCError", rule_set, first, **fault).recovery.policy == "ecc"
    assert verdict("ECCError", rule_set, second, **fault).recovery.policy == "ecc-again"
    assert ("ECCError", 20) in second.asked
    assert any(question[0] == "n1" and question[2] == "ECCError" for question in second.asked)


def test_history_of_the_workload_changes_the_action(rule_set):
    how = {"traceback": True, "family": "host"}
    assert verdict("HostOutOfMemory", rule_set, Remembered(), **how).recovery.policy == "memory"
    assert verdict("HostOutOfMemory", rule_set, Remembered(workload=2), **how).recovery.policy == "memory-again"


def test_history_never_changes_what_failed(rule_set):
    told = [
        (made.status, made.error_type, made.attribution, made.culprits)
        for history in (Remembered(), Remembered(unit=9, workload=9))
        for made in [verdict("ECCError", rule_set, history, hosts={"n1"}, sources={"kernel"})]
    ]
    assert told[0] == told[1]


def test_no_unit_is_asked_after_where_several_hosts_are_meant(rule_set):
    history = Remembered(unit=5)
    verdict("NVLinkError", rule_set, history, hosts={"n1", "n2", "n3"}, family="hardware", sources={"kernel"})
    assert not [question for question in history.asked if len(question) == 3]


# Budgets.


def test_a_workload_is_started_again_only_so_often(rule_set):
    for repeats, job in ((0, "restart"), (1, "none"), (4, "none")):
        recovery = recover(rule_set.policy, situation("ProcessKilled", workload_repeats=repeats), "", ())
        assert (recovery.job, recovery.policy) == (job, "killed")
        assert ("a person should look" in recovery.hint) == (job == "none")
    network = situation("NetworkError", workload_repeats=2)
    assert recover(rule_set.policy, network, "", ()).job == "restart"
    spent = recover(rule_set.policy, situation("NetworkError", workload_repeats=3), "", (), Budgets(restarts=3))
    assert (spent.job, spent.from_checkpoint) == ("none", None)


def test_a_spent_budget_leaves_what_is_to_be_done_with_the_node(rule_set):
    recovery = recover(rule_set.policy, situation("ECCError", workload_repeats=9), "", ())
    assert recovery.job == "none"
    assert [node.action for node in recovery.nodes] == ["drain", "reset_gpu"]


def test_what_is_not_counted_has_no_bound(rule_set):
    preempted = situation("Preempted", attribution="scheduler", workload_repeats=99)
    assert recover(rule_set.policy, preempted, "", ()).job == "wait_and_retry"


def test_of_the_nodes_only_a_share_is_drained_within_an_hour(rule_set):
    def actions(hosts: int, nodes: int | None) -> set[str]:
        made = situation("ECCError", drained=Drained(hosts, nodes))
        return {node.action for node in recover(rule_set.policy, made, "", ()).nodes}

    assert actions(0, 10) == {"drain", "reset_gpu"}  # one is always allowed
    assert actions(1, 10) == {"inspect"}
    assert actions(3, 200) == {"drain", "reset_gpu"}
    assert actions(4, 200) == {"inspect"}
    assert actions(4, None) == {"drain", "reset_gpu"}  # no store counts them
    several = situation("GPUDriverError", hosts=("n1", "n2", "n3"), culprits=(), drained=Drained(0, 100))
    recovery = recover(rule_set.policy, several, "", ())
    assert [(node.host, node.action) for node in recovery.nodes] == [
        ("n1", "drain"),
        ("n1", "reboot"),
        ("n2", "drain"),
        ("n2", "reboot"),
        ("n3", "inspect"),
    ]
    assert "Not drained: n3" in recovery.hint


def test_a_recorded_verdict_is_recalled_with_its_history(rule_set):
    now = situation("ECCError", unit_repeats=2, workload_repeats=1, drained=Drained(0, 50))
    alone = circumstances(situation("ECCError"))
    again = recall(rule_set.policy, with_history(alone, 2, 1, Drained(0, 50)), "", ())
    assert again == recover(rule_set.policy, now, "", ())
    assert again.policy == "ecc-again"


def test_a_site_sets_its_own_budgets(tmp_path, rule_set):
    (tmp_path / "policy.yml").write_text("schema: policy/v1\nbudgets: {restarts: 1, drains_per_hour: 0.5}\nrules: []\n")
    site = load_rules([str(tmp_path)])
    assert site.budgets == Budgets(1, 0.5)
    assert any("overrides the budgets" in note for note in site.overridden)
    assert load_bundled([str(tmp_path)]).budgets == site.budgets
    assert rule_set.budgets == Budgets()
