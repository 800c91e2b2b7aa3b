"""What a driver's code means beside others: one device or many, before or after the program's own error, cause or echo."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from diagnose import diagnose
from diagnose.models import Report

STEPS = "".join(f"2026-03-02 10:0{n}:00 [rank{r}]: step {n} | loss 2.{n}\n" for n in range(1, 9) for r in range(4))
ILLEGAL = "2026-03-02 10:10:01 [rank2]: RuntimeError: CUDA error: an illegal memory access was encountered\n"
KEY_ERROR = (
    "2026-03-02 10:10:00 [rank2]: Traceback (most recent call last):\n"
    '2026-03-02 10:10:00 [rank2]:   File "/home/me/train.py", line 61, in <module>\n'
    "2026-03-02 10:10:00 [rank2]:     batch['label']\n"
    "2026-03-02 10:10:00 [rank2]: KeyError: 'label'\n"
)
FAULT = "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS faulted @ 0x7f_1000"
ENDED = "Ch 00000010, errorString CTX SWITCH TIMEOUT, Info 0x2c001"


def xid(number: int, at: str = "10:10:00", gpu: str = "5d", text: str = FAULT) -> str:
    return f"[Mon Mar  2 {at} 2026] NVRM: Xid (PCI:0000:{gpu}:00): {number}, pid=4100, name=python, {text}\n"


def report_on(folder: Path, job: str, kernel: Mapping[str, str]) -> Report:
    (folder / "job.log").write_text(job)
    paths = []
    for host, text in kernel.items():
        path = folder / f"{host}.dmesg"
        path.write_text(text)
        paths.append(str(path))
    return diagnose([str(folder / "job.log")], kernel_logs=paths)


@pytest.mark.parametrize("number", [13, 31])
@pytest.mark.parametrize(
    ("kernel", "attribution"),
    [
        pytest.param({"gx-01": ("5d",)}, "unknown", id="one device"),
        pytest.param({"gx-01": ("1d", "5d")}, "user", id="two devices of a host"),
        pytest.param({"gx-01": ("5d",), "gx-02": ("5d",)}, "user", id="the same slot of two hosts"),
    ],
)
def test_faults_on_many_devices_at_once_are_the_program_s(
    number: int, kernel: Mapping[str, tuple[str, ...]], attribution: str, tmp_path: Path
) -> None:
    logs = {host: "".join(xid(number, gpu=gpu) for gpu in gpus) for host, gpus in kernel.items()}
    report = report_on(tmp_path, STEPS + ILLEGAL, logs)
    assert (report.error_type, report.attribution) == ("CUDAError", attribution)
    assert not [node for node in report.recovery.nodes if node.action != "inspect"]


def test_faults_on_two_devices_at_other_times_are_not_one_program_s(tmp_path: Path) -> None:
    report = report_on(tmp_path, STEPS + ILLEGAL, {"gx-01": xid(31, "10:04:00", "1d") + xid(31, "10:10:00", "5d")})
    assert (report.error_type, report.attribution) == ("CUDAError", "unknown")


@pytest.mark.parametrize("number", [31, 43, 45])
def test_what_the_driver_says_after_the_program_s_own_error_is_clean_up(number: int, tmp_path: Path) -> None:
    report = report_on(tmp_path, STEPS + KEY_ERROR, {"gx-01": xid(number, "10:10:02", text=ENDED)})
    assert (report.error_type, report.attribution) == ("KeyError", "user")
    assert not report.recovery.nodes
    assert not [culprit for culprit in report.culprits if culprit.kind in ("gpu", "host")]


@pytest.mark.parametrize("number", [43, 45])
def test_clean_up_alone_is_no_cause(number: int, tmp_path: Path) -> None:
    report = report_on(tmp_path, STEPS, {"gx-01": xid(number, "10:10:02", text=ENDED)})
    assert report.error_type is None
    assert not report.recovery.nodes


def test_the_driver_s_own_word_for_what_follows_is_believed(tmp_path: Path) -> None:
    """Xid 154 repeats what another code said and is never the cause; its instruction goes to the node."""
    follows = xid(154, "10:10:01", text="GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)")
    report = report_on(tmp_path, STEPS + ILLEGAL, {"gx-01": xid(119, text="Timeout after 6s of waiting") + follows})
    assert (report.error_type, report.attribution) == ("GPUDriverError", "infrastructure")
    assert {(node.host, node.action) for node in report.recovery.nodes} >= {("gx-01", "reboot")}


@pytest.mark.parametrize("first", [48, 79, 119])
def test_a_code_that_the_driver_lays_to_an_earlier_one_is_its_echo(first: int, tmp_path: Path) -> None:
    alone = report_on(tmp_path, STEPS, {"gx-01": xid(first, text="fault")})
    both = report_on(
        tmp_path,
        STEPS,
        {"gx-01": xid(first, text="fault") + xid(45, "10:10:01", text="Ch 00000010, caused by previous Xid")},
    )
    assert both.error_type == alone.error_type is not None
