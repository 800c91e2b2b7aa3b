"""Outages that were over again, in whole jobs: what failed in one is its doing, what outlived it is not."""

from __future__ import annotations

import pytest

from diagnose.models import Report, RuleSet
from tests.incidents import run

DOWN, UP = (
    "Jun 21 02:{0} elm-4 kernel: mlx5_core 0000:dc:00.0 ib3: Link down\n",
    "Jun 21 02:{0} elm-4 kernel: mlx5_core 0000:dc:00.0 ib3: Link up\n",
)
STEP = "0: 2026-06-21 02:{0} iteration {1} / 90000 | loss 2.2{1}\n"
RETRY = (
    "11: elm-4:5120:5388 [3] transport/net_ib.cc:1840 NCCL WARN NET/IB: Got completion from peer 10.9.0.5<33001> with "
    "status=12 opcode=0 len=0 vendor err 129 (Recv) hca mlx5_3\n"
)
DIED = (
    "11: [rank11]:[E621 02:{0}.300112 ProcessGroupNCCL.cpp:1896] [PG ID 0 PG GUID 0(default_pg) Rank 11] Process group "
    "watchdog thread terminated with exception: NCCL error: remote process exited or there was a network error, NCCL "
    "version 2.22.3\n11: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting "
    "prematurely.\n"
)
WAITED = (
    "{2}: [rank{2}]:[E621 02:{0}.118204 ProcessGroupNCCL.cpp:632] [Rank {2}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=71, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) ran for {1} "
    "milliseconds before timing out.\n"
)
ENDED = "srun: error: elm-4: task 11: Aborted (core dumped)\nsrun: error: elm-3: tasks 0-7: Terminated\n"


def told(rule_set: RuleSet, folder, job: str, kernel: str, name: str = "elm-4.messages") -> Report:
    (folder / "job.log").write_text(job)
    (folder / name).write_text(kernel)
    return run(str(folder), ["job.log", "--kernel-log", name], rule_set)


def blamed(report: Report) -> list[str]:
    return [culprit.id for culprit in report.culprits if culprit.kind == "host"]


def aside(report: Report) -> list[str]:
    return [one.why for one in report.explanation.excluded]


FLAPS = DOWN.format("13:10") + UP.format("13:30") + DOWN.format("14:02") + UP.format("14:44")


@pytest.mark.parametrize("at", ["14:03", "14:20", "14:44", "14:58"])
def test_a_link_that_came_back_after_the_job_had_died_is_the_cause(at: str, rule_set: RuleSet, tmp_path) -> None:
    job = STEP.format("11:00", 10) + STEP.format("13:50", 20) + RETRY + DIED.format(at) + ENDED
    report = told(rule_set, tmp_path, job, FLAPS)
    assert (report.error_type, report.decided_by.rule, blamed(report)) == ("NetworkError", "nic-port-down", ["elm-4"])
    assert report.root_cause
    assert report.root_cause.evidence[0].line == 3
    assert aside(report) == ["it was over again after 20 s, and nothing failed of it meanwhile"]


@pytest.mark.parametrize("at", ["16:40", "15:20"])
def test_a_link_that_was_back_well_before_the_job_died_is_not_blamed(at: str, rule_set: RuleSet, tmp_path) -> None:
    steps = "".join(STEP.format(f"14:{second}", second) for second in (50, 55, 58))
    report = told(rule_set, tmp_path, steps + RETRY + DIED.format(at) + ENDED, FLAPS)
    assert report.decided_by.rule != "nic-port-down"
    assert len(aside(report)) == 2


def test_a_port_that_is_still_down_is_the_cause_as_before(rule_set: RuleSet, tmp_path) -> None:
    report = told(rule_set, tmp_path, RETRY + DIED.format("14:20") + ENDED, DOWN.format("14:02"))
    assert (report.decided_by.rule, blamed(report)) == ("nic-port-down", ["elm-4"])


@pytest.mark.parametrize(("began", "rule"), [("14:06", "nic-port-down"), ("20:06", "nccl-collective-timeout")])
def test_ranks_that_wait_since_an_outage(began: str, rule: str, rule_set: RuleSet, tmp_path) -> None:
    minute, second = began.split(":")
    at = f"{int(minute) + 10}:{second}"
    job = STEP.format("13:58", 20) + "".join(WAITED.format(at, 600_004 + rank, rank) for rank in range(4))
    report = told(rule_set, tmp_path, job, FLAPS)
    assert report.decided_by.rule == rule
    assert blamed(report) == (["elm-4"] if rule == "nic-port-down" else [])


@pytest.mark.parametrize(
    ("down", "up"),
    [
        ("tg3 0000:04:00.0 eth2: Link is down", "tg3 0000:04:00.0 eth2: Link is up at 10000 Mbps, full duplex"),
        ("i40e 0000:18:00.1 ens2f1: NIC Link is Down", "i40e 0000:18:00.1 ens2f1: NIC Link is Up, 25 Gbps Full Duplex"),
        ("ice 0000:31:00.0 ens5: NIC Link is Down", "ice 0000:31:00.0 ens5: NIC Link is up 100 Gbps Full Duplex"),
    ],
)
def test_ports_of_every_make(down: str, up: str, rule_set: RuleSet, tmp_path) -> None:
    kernel = f"Jun 21 02:14:02 elm-4 kernel: {down}\nJun 21 02:14:31 elm-4 kernel: {up}\n"
    died = told(rule_set, tmp_path, STEP.format("13:50", 20) + DIED.format("14:20") + ENDED, kernel)
    assert (died.decided_by.rule, blamed(died)) == ("nic-port-down", ["elm-4"])
    went_on = told(rule_set, tmp_path, STEP.format("13:50", 20) + DIED.format("25:20") + ENDED, kernel)
    assert went_on.decided_by.rule != "nic-port-down"
    assert aside(went_on) == ["it was over again after 29 s, and nothing failed of it meanwhile"]


def test_without_a_time_of_the_failure_nothing_is_said_of_an_outage(rule_set: RuleSet, tmp_path) -> None:
    report = told(rule_set, tmp_path, "step 8 loss 2.1\n" + RETRY + ENDED, FLAPS)
    assert report.decided_by.rule != "nic-port-down"
    assert set(aside(report)) == {
        "it was over again after 20 s; no time tells whether the job had failed by then",
        "it was over again after 42 s; no time tells whether the job had failed by then",
    }


def test_the_explanation_shows_the_lines_of_what_was_set_aside(rule_set: RuleSet, tmp_path) -> None:
    report = told(rule_set, tmp_path, STEP.format("11:00", 10) + DIED.format("29:20") + ENDED, FLAPS)
    assert [[one.line for one in aside.finding.evidence] for aside in report.explanation.excluded] == [[1, 2], [3, 4]]
