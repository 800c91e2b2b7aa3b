"""Of a scheduler's listing only the run at hand decides: a requeued job stands there once for every run."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose import diagnose

LOG = (
    "2026-03-02 10:00:00 step 10/40 loss 2.0\n"
    "slurmstepd: error: *** JOB 481 ON n7 CANCELLED AT 2026-03-02T10:00:04 DUE TO TIME LIMIT ***\n"
    "=== requeue by epilog, SLURM_RESTART_COUNT=1 ===\n"
    "2026-03-02 10:02:00 step 11/40 loss 2.0\n"
    "2026-03-02 10:09:00 step 40/40 loss 1.9\n"
)
HEAD = "JobID|JobName|State|ExitCode|Start|End|NodeList\n"
FIRST = "481|gpt|TIMEOUT|0:0|2026-03-02T08:00:01|2026-03-02T10:00:04|n7\n"
DONE = "481|gpt|COMPLETED|0:0|2026-03-02T10:01:30|2026-03-02T10:09:10|n7\n"
STEP = "481.0|bash|FAILED|1:0|2026-03-02T08:00:02|2026-03-02T10:00:04|n7\n"
LOST = "481|gpt|NODE_FAIL|0:0|2026-03-02T10:01:30|2026-03-02T10:09:10|n7\n"


@pytest.mark.parametrize(
    ("rows", "status", "error_type"),
    [
        pytest.param(FIRST + DONE, "no_failure", None, id="the last run was completed"),
        pytest.param(DONE + FIRST, "no_failure", None, id="whatever the order"),
        pytest.param(FIRST + STEP + DONE, "no_failure", None, id="steps go with their run"),
        pytest.param(FIRST + LOST, "failed", "NodeFailure", id="the last run failed"),
    ],
)
def test_the_last_run_of_a_requeued_job_decides(rows: str, status: str, error_type: str | None, tmp_path: Path) -> None:
    (tmp_path / "gpt-481.out").write_text(LOG)
    (tmp_path / "sacct.txt").write_text(HEAD + rows)
    report = diagnose([str(tmp_path / "gpt-481.out")], scheduler_records=[str(tmp_path / "sacct.txt")])
    assert (report.status, report.error_type) == (status, error_type)
    assert any("earlier run" in note for note in report.explanation.notes)


def test_the_only_run_is_the_last(tmp_path: Path) -> None:
    (tmp_path / "gpt-481.out").write_text(LOG.split("===", maxsplit=1)[0])
    (tmp_path / "sacct.txt").write_text(HEAD + FIRST)
    report = diagnose([str(tmp_path / "gpt-481.out")], scheduler_records=[str(tmp_path / "sacct.txt")])
    assert (report.status, report.error_type) == ("failed", "TimeLimitExceeded")
    assert not any("earlier run" in note for note in report.explanation.notes)


@pytest.mark.parametrize(
    ("name", "text", "asked"),
    [
        pytest.param("slurm-77.out", "it 1 | 0.5\n", "sacct -j 77 ", id="the name of the log"),
        pytest.param("slurm-77_4.out", "it 1 | 0.5\n", "sacct -j 77_4 ", id="a task of an array"),
        pytest.param("train.log", "srun: job 78 queued\n", "sacct -j 78 ", id="what srun says"),
        pytest.param("train.log", "srun: job 78 queued\nsrun: job 79 queued\n", None, id="one of two"),
        pytest.param("train-77.log", "it 1 | 0.5\n", None, id="a number that may be any"),
    ],
)
def test_who_is_to_ask_slurm_is_told_the_number(name: str, text: str, asked: str | None, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    report = diagnose([str(tmp_path / name)])
    assert report.status == "inconclusive"
    assert report.recovery.hint
    assert asked in report.recovery.hint if asked else "sacct" not in report.recovery.hint


@pytest.mark.parametrize(
    ("name", "text", "row", "aside"),
    [
        pytest.param("eval-7004.out", "[INFO] host n4 job 7004\n", "7001", True, id="named and mentioned"),
        pytest.param("train.log", "srun: job 7004 queued\n", "7001", True, id="what srun says"),
        pytest.param("train.log", "[INFO] job 7004 on n4\n", "7001", True, id="a number as long"),
        pytest.param("train.log", "[INFO] job 12 of 30\n", "7001", False, id="a count"),
        pytest.param("train.log", "it 1 | 0.5\n", "7001", False, id="nothing tells"),
        pytest.param("train.log", "SLURM_JOB_ID=7010\n", "7004_6", False, id="a task of an array has two numbers"),
        pytest.param("slurm-7004_5.out", "it 1 | 0.5\n", "7004_6", False, id="another task of the same array"),
        pytest.param("slurm-7004.out", "it 1 | 0.5\n", "7004", False, id="its own"),
    ],
)
def test_the_only_job_of_a_listing_may_be_another(
    name: str, text: str, row: str, *, aside: bool, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text + "ValueError: no\n")
    (tmp_path / "sacct.txt").write_text(HEAD + f"{row}|gpt|NODE_FAIL|1:0|2026-03-02T08:00:01|2026-03-02T10:00:04|n7\n")
    report = diagnose([str(tmp_path / name)], scheduler_records=[str(tmp_path / "sacct.txt")])
    assert (report.error_type != "NodeFailure") == aside
    assert any("set aside as other jobs'" in note for note in report.explanation.notes) == aside


OOM = (
    "[Mon Mar  2 10:00:40 2026] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=step_0,mems_allowed=0-1,"
    "oom_memcg={0}/job_41,task_memcg={0}/job_41/step_0/task_0,task=python,pid=999,uid=2000\n"
    "[Mon Mar  2 10:00:40 2026] Memory cgroup out of memory: Killed process 999 (python) total-vm:900kB, "
    "anon-rss:900kB, file-rss:0kB, shmem-rss:0kB, UID:2000 pgtables:1kB oom_score_adj:0\n"
)
KILLED = "".join(f"2026-03-02 10:00:{n:02d} step {n} loss 2.0\n" for n in range(10, 50)) + "Killed\n"


@pytest.mark.parametrize("group", ["/slurm/uid_2000", "/system.slice/slurmstepd.scope"])
@pytest.mark.parametrize(
    ("name", "said", "error_type"),
    [
        pytest.param("slurm-55.out", "", "ProcessKilled", id="another job by the name of the log"),
        pytest.param("train.log", "SLURM_JOB_ID=55\n", "ProcessKilled", id="another job by its words"),
        pytest.param("slurm-41.out", "", "HostOutOfMemory", id="this job"),
        pytest.param("train.log", "", "HostOutOfMemory", id="nothing tells"),
        pytest.param("slurm-55_3.out", "", "HostOutOfMemory", id="a task of an array has a number of its own"),
        pytest.param("train.log", "SLURM_ARRAY_JOB_ID=55\n", "HostOutOfMemory", id="an array by its words"),
        pytest.param("slurm-55.out", "[rank0] pid 999\njob id: 41\n", "HostOutOfMemory", id="known by both numbers"),
    ],
)
def test_what_ran_out_of_memory_in_the_control_group_of_another_job(
    group: str, name: str, said: str, error_type: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(said + KILLED)
    (tmp_path / "n7.dmesg").write_text(OOM.format(group))
    report = diagnose([str(tmp_path / name)], kernel_logs=[str(tmp_path / "n7.dmesg")])
    assert report.error_type == error_type
    named = [one.why for one in report.explanation.excluded if "control group of job 41" in one.why]
    assert bool(named) == (error_type == "ProcessKilled")
