"""What is blamed in whole logs, and above all what is not: who is only mentioned, who only waited, who only listened."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from diagnose.models import Report, RuleSet
from diagnose.pipeline import Request, Services, diagnose
from diagnose.report.screen import headline

EVICTING = {"drain", "reset_gpu", "reboot", "replace"}
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
E802 = "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized"


@dataclass(frozen=True)
class Job:
    """One log, what must be named of it, and what must not; `presumed` hosts are never drained."""

    log: str
    named: set[tuple[str, str]] = field(default_factory=set)
    not_named: set[tuple[str, str]] = field(default_factory=set)
    presumed: bool = False


def raised(error: str, *frames: tuple[str, int, str], prefix: str = "") -> str:
    frames = frames or (("/home/ada/lm/train.py", 88, "main"),)
    lines = ["Traceback (most recent call last):"]
    for file, line, function in frames:
        lines += [f'  File "{file}", line {line}, in {function}', "    step()"]
    return "".join(f"{prefix}{line}\n" for line in [*lines, error])


def torchrun(*failed: tuple[int, str, int]) -> str:
    """The summary of torchrun; each failure is (rank, host, exit code)."""
    entries = "".join(
        f"[{number}]:\n  time      : 2026-03-02_10:00:00\n  host      : {host}\n  rank      : {rank} (local_rank: "
        f"{rank % 8})\n  exitcode  : {code} (pid: {4000 + rank})\n  error_file: <N/A>\n"
        for number, (rank, host, code) in enumerate(failed)
    )
    return (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n" + "=" * 60 + "\ntrain.py FAILED\n"
        + "-" * 60 + "\nRoot Cause (first observed failure):\n" + entries + "=" * 60 + "\n"
    )  # fmt: skip


SITE = "/opt/venv/lib/python3.11/site-packages"
MISMATCH = (
    "RuntimeError: Detected mismatch between collectives on ranks. Rank {} is running collective: "
    "CollectiveFingerPrint(SequenceNumber=9, OpType={}, TensorShape=[{}]), but Rank {} is running collective: "
    "CollectiveFingerPrint(SequenceNumber=9, OpType={}, TensorShape=[{}])."
)

JOBS = {
    "the library that raised, and the user's frame that called it": Job(
        raised("NameError: name 'x' is not defined", ("/home/ada/lm/train.py", 88, "main"),
               (f"{SITE}/transformers/trainer.py", 21, "train"), (f"{SITE}/torch/nn/modules/module.py", 7, "_call")),
        {("file", "/home/ada/lm/train.py:88"), ("file", f"{SITE}/transformers/trainer.py:21")},
        {("file", f"{SITE}/torch/nn/modules/module.py:7")},
    ),
    "the call that a decorator only hands on": Job(
        raised("TypeError: record() missing 1 required positional argument: 'start'",
               ("/home/ada/lm/train.py", 262, "main"), ("/home/ada/lm/utils/timeout.py", 102, "wrapper")),
        {("file", "/home/ada/lm/train.py:262")}, {("file", "/home/ada/lm/utils/timeout.py:102")},
    ),
    "the one process that the launcher saw fail": Job(
        raised(ECC) + torchrun((2, "gx-03", 1)), {("rank", "2"), ("host", "gx-03")}, presumed=True
    ),
    "not one of several that the launcher saw fail": Job(
        raised(ECC) + torchrun((2, "gx-03", 1), (9, "gx-04", 1)),
        set(), {("rank", "2"), ("rank", "9"), ("host", "gx-03"), ("host", "gx-04")},
    ),
    "those that the launcher ended itself are victims": Job(
        raised(ECC) + torchrun((1, "gx-04", -15), (2, "gx-03", 1)),
        {("rank", "2"), ("host", "gx-03")}, {("rank", "1"), ("host", "gx-04")}, presumed=True,
    ),
    "a rank that names itself wins over the launcher's first": Job(
        raised(ECC, prefix="[rank5]: ") + torchrun((2, "gx-03", 1)), {("rank", "5")}, {("rank", "2")}, presumed=True
    ),
    "the host of a task that exited, its number is no rank": Job(
        "slurmstepd: error: pyxis: couldn't start container\n"
        "srun: error: gx-12: tasks 8-15: Exited with exit code 1\nsrun: error: gx-11: tasks 0-7: Terminated\n",
        {("host", "gx-12")}, {("host", "gx-11"), ("rank", "8")}, presumed=True,
    ),
    "a time-out's victim is not blamed for being reaped first": Job(
        "".join(f"[rank{rank}]:[E302 09:30:00.118200391 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective "
                "operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=2, NumelOut=2, Timeout(ms)=600000) ran for "
                "600029 milliseconds before timing out.\n" for rank in range(4)) + torchrun((2, "gx-03", -6)),
        set(), {("host", "gx-03"), ("rank", "2")},
    ),
    "a host that lines carry as a label is nobody else's": Job(
        "".join(f"gx-{n:02d}: INFO step {n} loss 2.0\n" for n in (1, 1, 1, 1)) + f"{E802}\n",
        set(), {("host", "gx-01")},
    ),
    "the one host that a log speaks of": Job(f"SLURMD_NODENAME=gx-07\n{E802}\n", {("host", "gx-07")}, presumed=True),
    "not the one host of several nodes": Job(
        f"SLURM_NNODES=4 SLURMD_NODENAME=gx-07\n{E802}\n", set(), {("host", "gx-07")}
    ),
    "not a host of two": Job(
        f"rank 0 running on host gx-07\nrank 8 running on host gx-08\n{E802}\n",
        set(), {("host", "gx-07"), ("host", "gx-08")},
    ),
    "a host that is only mentioned": Job(
        f"downloading shards from mirror-02 and gx-07, master_addr gx-01\n{E802}\n",
        set(), {("host", "mirror-02"), ("host", "gx-07"), ("host", "gx-01")},
    ),
    "the login node on which somebody typed": Job(
        f"{E802}\nada@login1:~$ sacct -j 7\n", set(), {("host", "login1")}
    ),
    "the peer of a connection that was reset": Job(
        raised("ConnectionResetError: [Errno 104] Connection reset by peer") +
        "[W302 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=4, addr=[gx-02]:41882, remote=[gx-01]:29500): "
        "Connection reset by peer\nsrun: error: gx-02: task 1: Exited with exit code 1\n",
        set(), {("host", "gx-01"), ("host", "gx-02")},
    ),
    "a service's host is not the job's": Job(
        raised("requests.exceptions.ConnectionError: HTTPSConnectionPool(host='files-01.site', port=443): Max retries"),
        set(), {("host", "files-01.site"), ("host", "files-01")},
    ),
    "the odd one of three that report a mismatch": Job(
        "".join(f"[rank{a}]: {MISMATCH.format(a, x, 17, b, y, 17)}\n" for a, x, b, y in
                ((0, "ALLREDUCE", 2, "BROADCAST"), (1, "ALLREDUCE", 2, "BROADCAST"), (2, "BROADCAST", 0, "ALLREDUCE"))),
        {("rank", "2")}, {("rank", "0"), ("rank", "1")},
    ),
    "both of two that report a mismatch of shapes": Job(
        f"[rank0]: {MISMATCH.format(0, 'ALLREDUCE', 8, 1, 'ALLREDUCE', 9)}\n", {("rank", "0"), ("rank", "1")}
    ),
    "waited for, but waiting itself": Job(
        "".join(f"[rank{rank}]: EI0002: [PID: 3] 2026-06-06-06:46:50 The wait execution of the Notify register times out. "
                f"Reason: The Notify register has not received the Notify record from remote rank: [{other}].\n"
                for rank, other in ((0, 1), (1, 2), (3, 0))),
        {("rank", "2")}, {("rank", "0"), ("rank", "1")},
    ),
    "an option, without its value": Job(
        "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --micro-batchsize 8\n",
        {("config", "--micro-batchsize")}, {("config", "--micro-batchsize 8")},
    ),
    "the volume that a stale file lies on": Job(
        raised("OSError: [Errno 116] Stale file handle: '/share/team/cache/a/b.arrow'"),
        {("file", "/share/team/cache/a/b.arrow"), ("file", "/share/team")},
    ),
    "a few ranks that ran out of memory stand out": Job(
        "".join(f"[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU {rank} has a total "
                "capacity of 79.11 GiB of which 1.12 GiB is free.\n" for rank in (4, 6)),
        {("rank", "4"), ("rank", "6")},
    ),
}  # fmt: skip


def report_on(log: str, rule_set: RuleSet, folder: Path) -> Report:
    (folder / "job.log").write_text(log)
    return diagnose(Request([str(folder / "job.log")]), Services(rule_set))


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_what_is_blamed(job: Job, rule_set: RuleSet, tmp_path: Path) -> None:
    report = report_on(job.log, rule_set, tmp_path)
    named = {(culprit.kind, name) for culprit in report.culprits for name in (culprit.id, *culprit.names)}
    assert report.status == "failed"
    assert named >= job.named
    assert not named & job.not_named
    assert any(culprit.presumed for culprit in report.culprits) == job.presumed
    if job.presumed:
        assert not {node.action for node in report.recovery.nodes} & EVICTING


def test_a_presumed_host_is_not_drained_for_a_kernel_line_without_a_host(rule_set: RuleSet, tmp_path: Path) -> None:
    log = f"SLURMD_NODENAME=gx-07\n$ dmesg | tail -1\n[ 1210.113001] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n{ECC}\n"
    report = report_on(log, rule_set, tmp_path)
    assert [(culprit.id, culprit.presumed) for culprit in report.culprits if culprit.kind == "host"] == [
        ("gx-07", True)
    ]
    assert {node.action for node in report.recovery.nodes} <= {"inspect"}


def test_a_guessed_host_is_told_as_a_guess_and_never_acted_on(rule_set: RuleSet, tmp_path: Path) -> None:
    log = f"SLURM_JOB_ID=7 SLURM_JOB_NODELIST=gx-[07-08] SLURM_NTASKS_PER_NODE=8\n[rank11]: {ECC}\n"
    report = report_on(log, rule_set, tmp_path)
    assert {culprit.kind for culprit in report.culprits} == {"rank"}
    assert "probably on gx-08" in report.culprits[0].names
    assert report.recovery.nodes == ()


EVENTS = """LAST SEEN   TYPE      REASON      OBJECT      MESSAGE
{}2m          Warning   Evicted     pod/lm-3    The node was low on resource: memory.
"""
PODS = """{"apiVersion": "v1", "kind": "PodList", "items": [
  {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lm-2"}, "spec": {"nodeName": "gx-02"},
   "status": {"phase": "Running"}},
  {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lm-3"}, "spec": {"nodeName": "gx-03"},
   "status": {"phase": "Failed", "containerStatuses": [
     {"name": "pytorch", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]}}]}
"""


def test_a_pod_whose_node_is_unknown_is_named_and_nothing_is_done_to_a_machine(
    rule_set: RuleSet, tmp_path: Path
) -> None:
    report = report_on(EVENTS.format(""), rule_set, tmp_path)
    assert [(culprit.id, culprit.pod, culprit.machine) for culprit in report.culprits] == [("lm-3", True, False)]
    assert report.recovery.nodes == ()
    assert report.coverage.not_read == ()
    assert report.recovery.checks[0] == "kubectl describe pod lm-3"
    assert "lm-3" not in report.recovery.checks[1]
    assert headline(report).parts[-1] == "pod lm-3"


def test_a_pod_whose_node_is_known_goes_under_the_node_s_name(rule_set: RuleSet, tmp_path: Path) -> None:
    placed = "9m          Normal    Scheduled   pod/lm-3    Successfully assigned ml/lm-3 to gx-03\n"
    report = report_on(EVENTS.format(placed), rule_set, tmp_path)
    assert [(culprit.id, culprit.machine) for culprit in report.culprits] == [("gx-03", True)]
    assert [(node.host, node.action) for node in report.recovery.nodes] == [("gx-03", "inspect")]


def test_the_node_of_a_pod_in_a_list_is_its_own(rule_set: RuleSet, tmp_path: Path) -> None:
    (tmp_path / "pods.json").write_text(PODS)
    record = Request([], scheduler_records=[str(tmp_path / "pods.json")])
    report = diagnose(record, Services(rule_set))
    assert [culprit.id for culprit in report.culprits if culprit.kind == "host"] == ["gx-03"]
    assert report.root_cause is not None
    assert "pod lm-3" in report.root_cause.summary
