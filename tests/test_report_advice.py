"""What a report advises says all that was read, and no row of it speaks against another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from diagnose import diagnose
from diagnose.models import Report
from diagnose.report import render

STEPS = "".join(f"2026-03-02 10:00:{step:02} step: {step} loss: 2.5\n" for step in range(1, 9))
OOM = (
    "[rank1]: Traceback (most recent call last):\n"
    '[rank1]:   File "/home/me/train.py", line 61, in step\n'
    "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of "
    "79.11 GiB of which 1.10 GiB is free.\n"
)
CANCELLED = "slurmstepd: error: *** JOB 4711 ON gx-01 CANCELLED AT 2026-03-02T10:01:00 ***\n"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def report_on(files: Mapping[str, str]) -> Report:
    for name, text in files.items():
        Path(name).write_text(text, encoding="utf-8")
    return diagnose(list(files))


def row(report: Report, label: str) -> str:
    """The row of the screen, put back on one line."""
    lines = render(report, "text", width=400).splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith(f"{label:<9}"))
    rest = [line for line in lines[start + 1 : start + 4] if line.startswith(" " * 9)]
    return " ".join([lines[start][9:], *(line.strip() for line in rest)])


def test_a_check_names_the_host_that_a_rank_ran_on(job: Path) -> None:
    placed = "gx-07:100:200 [1] NCCL INFO comm 0x1 rank 1 nranks 8 cudaDev 1 busId 5d000 - Init COMPLETE\n"
    assert row(report_on({"job.log": placed + STEPS + OOM}), "Check").startswith("on gx-07: nvidia-smi")
    assert row(report_on({"job.log": STEPS + OOM}), "Check").startswith("on the node: nvidia-smi")


def test_a_check_names_the_job_that_the_logs_name(job: Path) -> None:
    killed = "srun: error: gx-03: task 5: Killed\n"
    for name, known in (("slurm-4711.out", "4711"), ("job.log", "JOB")):
        Path(name).write_text(STEPS + killed)
        assert f"sacct -j {known} " in row(diagnose(name), "Check")


@pytest.mark.parametrize(
    ("files", "first", "rivals"),
    [
        ({"job.log": STEPS + CANCELLED}, "FAILED  scheduler  JobCancelled", True),
        (
            {"job.log": STEPS + CANCELLED, "sacct.txt": "JobID|State|ExitCode\n4711|CANCELLED by 1044|0:0\n"},
            "FAILED  the user  JobCancelled",
            False,
        ),
        ({"job.log": STEPS + "KeyboardInterrupt\n"}, "FAILED  the user  JobCancelled", False),
    ],
)
def test_whoever_cancelled_the_job_is_named(job: Path, files: Mapping[str, str], first: str, rivals: bool) -> None:
    report = report_on(files)
    assert render(report, "text").startswith(first)
    assert bool(report.alternatives) == rivals
    assert (report.sureness == "possible") == rivals


def test_a_restart_elsewhere_names_the_node_that_was_lost(job: Path) -> None:
    report = report_on({"job.log": STEPS + "srun: error: Node failure on gx-09\n"})
    assert row(report, "Do job").startswith("restart elsewhere without gx-09")


def test_a_check_of_a_full_disk_names_the_path(job: Path) -> None:
    error = "[rank2]: OSError: [Errno 28] No space left on device{0}\n"
    saving = "[Torch] Saving /scratch/ckpt/step8/mp_rank_02.pt...\n"
    check = row(report_on({"job.log": STEPS + error.format(": '/tmp/cache/a.o'")}), "Check")
    assert "df -h /tmp/cache/a.o; " in check
    assert "$(dirname /tmp/cache/a.o)" in check
    assert "df -h /scratch/ckpt/step8; " in row(report_on({"job.log": STEPS + saving + error.format("")}), "Check")
    assert "df -h; " in row(report_on({"job.log": STEPS + error.format("")}), "Check")


def test_memory_that_was_asked_for_is_told(job: Path) -> None:
    error = "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate {0} bytes.\n"
    report = report_on({"job.log": STEPS + "jaxlib.xla_extension." + error.format(34359738368)})
    assert row(report, "Cause").startswith("Device memory ran out: 32 GiB asked for")


TIME_LIMIT = "slurmstepd: error: *** JOB 4711 ON gx-01 CANCELLED AT 2026-03-02T10:01:00 DUE TO TIME LIMIT ***\n"
SAVED = "Saved checkpoint to /ckpt/step_8\n"


@pytest.mark.parametrize(
    ("log", "wanted"),
    [
        (STEPS + TIME_LIMIT, "restart with a longer time limit"),
        (STEPS + SAVED + TIME_LIMIT, "restart from /ckpt/step_8"),
        ("Resuming from checkpoint /ckpt/step_2\n" + STEPS + TIME_LIMIT, "restart"),
    ],
)
def test_a_restart_that_would_meet_the_same_limit_is_not_advised(job: Path, log: str, wanted: str) -> None:
    report = report_on({"job.log": log})
    assert report.recovery.job == "restart"
    assert render(report, "text", width=200).split("Do job   ")[1].splitlines()[0] == wanted


def test_who_waits_for_room_is_told_the_checkpoint(job: Path) -> None:
    report = report_on({"job.log": STEPS + SAVED + TIME_LIMIT.replace("TIME LIMIT", "PREEMPTION")})
    assert report.recovery.job == "wait_and_retry"
    assert "Do job   wait, then retry from /ckpt/step_8" in render(report, "text")
