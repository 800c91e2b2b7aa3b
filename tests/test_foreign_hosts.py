"""Kernel logs of hosts that the job did not run on, or that its logs do not name, in whole jobs."""

from __future__ import annotations

import pytest

from diagnose.models import Report, RuleSet
from diagnose.rules.places import JobPlaces
from tests.incidents import run

XID = "[Mon Aug 10 07:31:{0} 2026] NVRM: Xid (PCI:0000:4e:00): {1}\n"
NVLINK = XID.format(
    "09", "74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 2(0x10000, 0x0, 0x0)"
)
LOST = XID.format("09", "79, pid=88121, name=python3, GPU has fallen off the bus.")
CONTAINED = XID.format("09", "94, pid=88121, name=python3, Contained: SM (0x1). RST: No, D-RST: No")
OOM = (
    "[Mon Aug 10 07:31:09 2026] Out of memory: Killed process 88121 (python3) total-vm:9216000kB, "
    "anon-rss:8123456kB, file-rss:0kB, shmem-rss:0kB, UID:1001 pgtables:16000kB oom_score_adj:0\n"
)
DOWN = "[Mon Aug 10 07:31:09 2026] mlx5_core 0000:9a:00.0 ib4: Link down\n"

STEPS = "iter 40 loss 3.31\niter 50 loss 3.29\n"
SEGFAULT = "srun: error: oak-05: task 6: Segmentation fault (core dumped)\nsrun: error: oak-04: tasks 0-5: Terminated\n"
KILLED = "srun: error: oak-05: task 6: Killed\nsrun: error: oak-04: tasks 0-5: Terminated\n"
REMOTE = (
    "oak-05:71:99 [2] misc/socket.cc:484 NCCL WARN socketProgress: Connection closed by remote peer oak-04<40112>\n"
    "RuntimeError: NCCL communicator was aborted\n"
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
    "srun: error: oak-05: tasks 6-11: Exited with exit code 1\nsrun: error: oak-04: tasks 0-5: Terminated\n"
)
RANK_7 = (
    "[rank7]:[E ProcessGroupNCCL.cpp:1746] [PG ID 0 PG GUID 0 Rank 7] Process group watchdog thread terminated with "
    "exception: NCCL error: remote process exited or there was a network error, NCCL version 2.20.5\n"
)


def told(rule_set: RuleSet, folder, job: str, kernel: str, host: str, name: str = "job.log") -> Report:
    (folder / name).write_text(job)
    (folder / f"{host}.dmesg").write_text(kernel)
    return run(str(folder), [name, "--kernel-log", f"{host}.dmesg"], rule_set)


def touched(report: Report) -> set[str]:
    """The hosts that a report blames or does something with."""
    return {one.id for one in report.culprits if one.kind == "host"} | {node.host for node in report.recovery.nodes}


def aside(report: Report) -> list[str]:
    return [one.why for one in report.explanation.excluded]


@pytest.mark.parametrize("kernel", [NVLINK, LOST, CONTAINED, OOM, DOWN], ids=["nvlink", "bus", "ecc", "oom", "port"])
@pytest.mark.parametrize(
    ("job", "wanted"),
    [(SEGFAULT, "SegmentationFault"), (KILLED, "ProcessKilled"), (REMOTE, None)],
    ids=["segfault", "killed", "remote"],
)
def test_a_host_that_is_none_of_the_jobs_explains_nothing(
    job: str, wanted: str | None, kernel: str, rule_set: RuleSet, tmp_path
) -> None:
    report = told(rule_set, tmp_path, STEPS + job, kernel, "oak-09")
    assert set(aside(report)) == {"oak-09 is none of the hosts that this job names: oak-04, oak-05"}
    assert report.sureness != "confirmed"
    assert "oak-09" not in touched(report)
    assert wanted in (None, report.error_type)


@pytest.mark.parametrize("host", ["oak-04", "oak-05"])
def test_a_host_of_the_job_explains_it_and_without_times_is_not_confirmed(
    host: str, rule_set: RuleSet, tmp_path
) -> None:
    report = told(rule_set, tmp_path, STEPS + REMOTE, LOST, host)
    assert report.error_type == "GPUFallenOffBus"
    assert report.sureness != "confirmed"
    assert touched(report) == {host}


def test_what_died_on_one_host_is_not_explained_by_the_device_of_another(rule_set: RuleSet, tmp_path) -> None:
    report = told(rule_set, tmp_path, STEPS + SEGFAULT, NVLINK, "oak-04")
    assert (report.error_type, report.sureness) != ("NVLinkError", "confirmed")
    segfault = next(one for one in report.explanation.findings if one.error_type == "SegmentationFault")
    assert segfault.places == {"oak-05"}
    assert report.explanation.explained[segfault.id] == ()
    own = told(rule_set, tmp_path, STEPS + SEGFAULT, NVLINK, "oak-05")
    assert own.error_type == "NVLinkError"


@pytest.mark.parametrize(
    "named",
    [
        "SLURM_JOB_NODELIST=oak-[04-05]\n",
        (
            "torchrun --nnodes=2 --nproc_per_node=8 train.py\n"
            "oak-04:9:9 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.4<0>\n"
            "oak-05:9:9 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.5<0>\n"
        ),
        (
            "world_size: 2\n"
            "oak-04:9:9 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 4e000 - Init COMPLETE\n"
            "oak-05:9:9 [0] NCCL INFO comm 0x2 rank 1 nranks 2 cudaDev 0 busId 4e000 - Init COMPLETE\n"
        ),
    ],
    ids=["node list", "number of nodes", "ranks"],
)
def test_whatever_names_all_hosts(named: str, rule_set: RuleSet, tmp_path) -> None:
    report = told(rule_set, tmp_path, named + STEPS + RANK_7.replace("7", "1"), LOST, "oak-21")
    assert aside(report) == ["oak-21 is none of the hosts that this job names: oak-04, oak-05"]
    ours = told(rule_set, tmp_path, named + STEPS + RANK_7.replace("7", "1"), LOST, "oak-05")
    assert ours.error_type == "GPUFallenOffBus"


# A kernel log that may be of the job.


def test_where_nothing_names_hosts_every_kernel_log_may_be_the_jobs(rule_set: RuleSet, tmp_path) -> None:
    report = told(rule_set, tmp_path, STEPS + RANK_7, LOST, "oak-07", name="rank7.log")
    assert (report.error_type, touched(report)) == ("GPUFallenOffBus", {"oak-07"})
    assert report.sureness != "confirmed"


@pytest.mark.parametrize(
    "own",
    [
        "oak-04:71:99 [7] NCCL INFO comm 0x5 rank 7 nranks 16 cudaDev 7 busId 4e000 - Init COMPLETE\n",
        "oak-04:71:99 [7] NCCL INFO comm 0x5 rank 7 nRanks 16 nNodes 2 localRanks 8 localRank 7 MNNVL 0\n",
        "oak-04:71:99 [7] misc/socket.cc:484 NCCL WARN socketProgress: Connection closed by remote peer 10.0.0.9<4>\n",
        "srun: error: oak-04: task 0: Exited with exit code 1\n",
        "torchrun --nnodes=4 --nproc_per_node=8 train.py\nsrun: error: oak-04: task 0: Exited with exit code 1\n",
        "SLURM_NTASKS=16\nsrun: error: oak-04: tasks 0-7: Exited with exit code 1\n",
    ],
    ids=["nranks", "nNodes", "no size", "one task", "more nodes", "more tasks"],
)
def test_a_job_that_names_some_of_its_hosts_may_have_run_on_others(own: str, rule_set: RuleSet, tmp_path) -> None:
    """Usable, with the doubt stated, and never confirmed, also where times agree."""
    time = "2026-08-10 07:31:1{0} "
    for job in (STEPS + own + RANK_7, time.format(0) + "iter 50 loss 3.2\n" + own + time.format(2) + RANK_7):
        report = told(rule_set, tmp_path, job, LOST, "oak-07", name="rank7.log")
        assert report.error_type == "GPUFallenOffBus"
        assert report.sureness == "possible"
        assert {node.action for node in report.recovery.nodes} == {"inspect"}
        assert report.root_cause
        assert "oak-07 is none of the hosts that this job names: oak-04" in report.root_cause.reasons


def test_what_dies_on_a_host_of_the_job_stands_before_what_a_host_that_it_does_not_name_says(
    rule_set: RuleSet, tmp_path
) -> None:
    one = "srun: error: oak-05: task 0: Segmentation fault (core dumped)\n"
    report = told(rule_set, tmp_path, STEPS + one, NVLINK, "oak-09")
    assert (report.error_type, report.sureness) == ("SegmentationFault", "possible")
    assert [other.error_type for other in report.alternatives] == ["NVLinkError"]


def test_a_name_of_another_make_may_be_a_pods_node(rule_set: RuleSet, tmp_path) -> None:
    report = told(rule_set, tmp_path, STEPS + REMOTE, LOST, "ip-10-4-0-77")
    assert report.error_type == "GPUFallenOffBus"
    assert report.sureness != "confirmed"


def test_a_host_that_the_job_speaks_of_is_one_of_its_own(rule_set: RuleSet, tmp_path) -> None:
    speaks = "srun: error: Node failure on oak-09\n"
    report = told(rule_set, tmp_path, STEPS + REMOTE + speaks, LOST, "oak-09")
    assert not aside(report)


def test_times_that_agree_confirm_what_the_job_and_its_own_host_say(rule_set: RuleSet, tmp_path) -> None:
    job = (
        "2026-08-10 07:31:05 iter 50 loss 3.29\n"
        "2026-08-10 07:31:12 [rank6]: torch.AcceleratorError: CUDA error: unspecified launch failure\n" + REMOTE
    )
    assert told(rule_set, tmp_path, job, LOST, "oak-05").sureness == "confirmed"


# Names.


@pytest.mark.parametrize(
    ("host", "unnamed", "told_of"),
    [
        ("gx-21", True, True),
        ("GX-18", False, False),
        ("gx-9", True, True),
        ("login1", True, False),
        ("gpu-21", True, False),
        (None, False, False),
    ],
)
def test_names_are_compared_with_those_of_one_make(host: str | None, unnamed: bool, told_of: bool) -> None:
    places = JobPlaces(("gx-18", "gx-19"), frozenset({"gx-18", "gx-19"}), whole=True)
    assert places.unnamed(host) is unnamed
    assert (places.elsewhere(host) is not None) is told_of


def test_of_many_hosts_a_few_are_told() -> None:
    names = tuple(f"n{number}" for number in range(6))
    said = JobPlaces(names, frozenset(names), whole=True).elsewhere("n9")
    assert said == "n9 is none of the hosts that this job names: n0, n1, n2, n3 and 2 more"
    assert JobPlaces(names, frozenset(names), whole=False).elsewhere("n9") is None


# A GPU of the job's host on which none of its ranks runs.

TIMED = "".join(f"2026-08-10 07:31:{n:02d} step {n} loss 2.{n:02d}\n" for n in range(20))
INIT = "oak-04:71:99 [{0}] NCCL INFO comm 0x5 rank {0} nranks {1} cudaDev {0} busId {2}000 - Init COMPLETE\n"


def test_what_happens_to_the_gpu_of_another_job_is_no_cause_of_a_kill(rule_set: RuleSet, tmp_path) -> None:
    report = told(rule_set, tmp_path, INIT.format(0, 1, "5d") + TIMED + "Killed\n", LOST, "oak-04", name="rank0.log")
    assert (report.error_type, report.sureness) == ("ProcessKilled", "possible")
    assert not [node for node in report.recovery.nodes if node.action != "inspect"]


def test_where_nothing_else_is_it_is_possible_and_the_node_is_looked_at(rule_set: RuleSet, tmp_path) -> None:
    report = told(rule_set, tmp_path, INIT.format(0, 1, "5d") + TIMED, LOST, "oak-04", name="rank0.log")
    assert (report.error_type, report.sureness) == ("GPUFallenOffBus", "possible")
    assert report.root_cause
    assert "none of the job's ranks runs on GPU 0000:4e:00" in report.root_cause.reasons
    assert {node.action for node in report.recovery.nodes} == {"inspect"}


@pytest.mark.parametrize(
    "init",
    [INIT.format(0, 1, "4e"), INIT.format(0, 2, "5d"), INIT.format(0, 2, "5d") + INIT.format(1, 2, "4e")],
    ids=["its own", "one of two ranks known", "the other rank's"],
)
def test_a_gpu_that_may_be_the_jobs_counts(init: str, rule_set: RuleSet, tmp_path) -> None:
    report = told(rule_set, tmp_path, init + TIMED + "Killed\n", LOST, "oak-04", name="rank0.log")
    assert report.error_type == "GPUFallenOffBus"
    assert report.sureness != "possible"
