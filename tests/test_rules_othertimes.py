"""What a kernel log tells of another time: a fault before the host's next start, a state that lasts into the job."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.models import Report, RuleSet
from tests.incidents import run

FELL = (
    "2026-10-01T{time}+00:00 n5 kernel: NVRM: Xid (PCI:0000:e1:00): 79, pid='<unknown>', GPU has fallen off the bus.\n"
)
BOOT = "2026-10-01T07:00:02+00:00 n5 kernel: Linux version 6.8.0-45-generic (buildd@lcy02-amd64-115)\n"
SERVICE = "2026-10-01T{time}+00:00 n5 systemd[1]: nvidia-fabricmanager.service: Failed with result 'exit-code'.\n"
MET = "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized\n"


def report_on(kernel: str, log: str, rule_set: RuleSet, folder: Path) -> Report:
    (folder / "n5.journal").write_text(kernel)
    (folder / "job.log").write_text(log)
    return run(str(folder), [*(["job.log"] if log else []), "--kernel-log", "n5.journal"], rule_set)


@pytest.mark.parametrize(
    ("kernel", "status"),
    [
        pytest.param(FELL.format(time="02:11:40") + BOOT, "inconclusive", id="hours before the host was started anew"),
        pytest.param(FELL.format(time="06:58:40") + BOOT, "failed", id="the fault that brought it down"),
        pytest.param(BOOT + FELL.format(time="09:11:40"), "failed", id="since the last start"),
    ],
)
def test_a_restart_mends_what_lies_long_before_it(kernel: str, status: str, rule_set: RuleSet, tmp_path: Path) -> None:
    report = report_on(kernel, "", rule_set, tmp_path)
    assert report.status == status
    asides = [aside.why for aside in report.explanation.excluded]
    assert asides == (["its host was started anew since"] if status == "inconclusive" else [])


def test_a_fault_before_a_restart_stands_where_the_job_was_hurt(rule_set: RuleSet, tmp_path: Path) -> None:
    log = "RuntimeError: CUDA error: unspecified launch failure\n"
    report = report_on(FELL.format(time="02:11:40") + BOOT, log, rule_set, tmp_path)
    assert report.error_type == "GPUFallenOffBus"


@pytest.mark.parametrize(
    ("kernel", "hosts"),
    [
        pytest.param(SERVICE.format(time="08:30:00"), {"n5"}, id="before the job"),
        pytest.param(SERVICE.format(time="06:30:00") + BOOT, set(), id="before the last start"),
    ],
)
def test_a_service_that_did_not_start_is_down_for_the_next_job(
    kernel: str, hosts: set[str], rule_set: RuleSet, tmp_path: Path
) -> None:
    report = report_on(kernel, f"2026-10-01 10:00:00 start\n{MET}", rule_set, tmp_path)
    assert report.error_type == "FabricManagerError"
    assert {culprit.id for culprit in report.culprits if culprit.kind == "host"} == hosts
