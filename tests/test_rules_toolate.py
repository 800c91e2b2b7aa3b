"""A fault of a device that comes when the job had long raised its own exception is no cause of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose import diagnose
from diagnose.models import Report

STEPS = "".join(f"2026-03-02 10:00:{n:02d},100 INFO step {n} loss 2.0\n" for n in range(50))
SLOW = "".join(f"2026-03-02 10:{n:02d}:00,100 INFO step {n} loss 2.0\n" for n in range(50))
OWN = 'Traceback (most recent call last):\n  File "/home/me/train.py", line 88, in <module>\n    assert n == 4\n{0}\n'
DATED = "".join(f"2026-03-02 10:00:50,100 ERROR {line}\n" for line in OWN.format("AssertionError: n").splitlines())


def told(folder: Path, job: str, at: str) -> Report:
    (folder / "rank0.log").write_text(job)
    (folder / "gx-01.dmesg").write_text(
        f"[Mon Mar  2 {at} 2026] NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, "
        "GPU has fallen off the bus.\n"
    )
    return diagnose([str(folder / "rank0.log")], kernel_logs=[str(folder / "gx-01.dmesg")])


@pytest.mark.parametrize("own", [OWN.format("AssertionError: n"), DATED], ids=["without a time", "dated"])
def test_a_fault_minutes_after_the_exception(own: str, tmp_path: Path) -> None:
    report = told(tmp_path, STEPS + own, "10:05:50")
    assert (report.error_type, report.attribution) == ("AssertionError", "user")
    assert not report.recovery.nodes


@pytest.mark.parametrize(
    ("job", "at"),
    [
        pytest.param(STEPS + OWN.format("AssertionError: n"), "10:01:10", id="soon after the last step"),
        pytest.param(SLOW + OWN.format("AssertionError: n"), "10:53:00", id="within a few steps' time"),
        pytest.param(
            STEPS + OWN.format("RuntimeError: CUDA error: unknown error"), "10:05:50", id="the device's error"
        ),
        pytest.param(STEPS + OWN.format("RuntimeError: stopped"), "10:05:50", id="what it may explain"),
        pytest.param(STEPS, "10:05:50", id="no exception"),
    ],
)
def test_a_fault_that_may_have_come_first_counts(job: str, at: str, tmp_path: Path) -> None:
    assert told(tmp_path, job, at).error_type == "GPUFallenOffBus"
