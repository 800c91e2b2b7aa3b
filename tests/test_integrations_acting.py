"""Acting on verdicts: only what is advised, only on the job's own nodes, rehearsed first, within caps, all written down."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from diagnose.dataclass import replace
from diagnose.errors import UsageError
from diagnose.integrations.acting import Action, Actor, Caps, actions
from diagnose.integrations.notices import JobRef
from diagnose.integrations.summary import NodeAdvice, Summary

JOB = JobRef("lab", "4711", 0, "qx7b", "ada")
NODES = tuple(f"gx-{number:03}" for number in range(100))
ECC = Summary(
    "failed", "ECCError", "infrastructure", "confirmed", "Xid 95", job="restart_elsewhere", hosts=("gx-043",),
    nodes=(NodeAdvice("gx-043", "drain"), NodeAdvice("gx-043", "reset_gpu"), NodeAdvice("login-1", "drain")),
)  # fmt: skip


class Slurm:
    """A scheduler that remembers what it was told."""

    def __init__(self) -> None:
        self.done: list[tuple[str, ...]] = []
        self.states: dict[str, str] = {}
        self.problem: str | None = None

    def state(self, node: str) -> str:
        return self.states.get(node, "idle")

    def drain(self, node: str, why: str) -> str | None:
        self.done.append(("drain", node))
        return self.problem

    def requeue(self, job: str, exclude: Sequence[str], why: str) -> str | None:
        self.done.append(("requeue", job, *exclude))
        return self.problem


class Lab:
    def __init__(self, folder: Path) -> None:
        self.now = 1_000_000.0
        self.slurm = Slurm()
        self.trail = folder / "acted.jsonl"

    def act(self, wanted: Sequence[Action], mode: str = "act", job: JobRef = JOB, nodes: int | None = 100) -> list[str]:
        actor = Actor(self.slurm, str(self.trail), mode, Caps(nodes=nodes), clock=lambda: self.now)  # type: ignore[arg-type]
        return actor.act(job, wanted)

    def rehearsed(self) -> Lab:
        """A day after a rehearsal of both kinds."""
        self.act([Action("drain", "x", ""), Action("requeue", "1", "")], "rehearse", replace(JOB, job_id="1"))
        self.now += 25 * 3600
        return self

    @property
    def outcomes(self) -> list[str]:
        return [json.loads(line)["outcome"] for line in self.trail.read_text().splitlines()]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_only_what_is_advised_and_only_for_the_jobs_own_nodes() -> None:
    found = actions(JOB, ECC, NODES)
    assert [(one.kind, one.target, one.exclude) for one in found] == [
        ("drain", "gx-043", ()),
        ("requeue", "4711", ("gx-043",)),
    ]


@pytest.mark.parametrize("spoken, target", [("4711_2", "4711_2"), ("4700+1", "4700"), ("4711", "4711"), ("", "4711")])
def test_a_task_of_an_array_is_requeued_alone(spoken: str, target: str) -> None:
    assert [one.target for one in actions(JOB, ECC, NODES, spoken) if one.kind == "requeue"] == [target]


@pytest.mark.parametrize(
    "changed",
    [
        {"sureness": "possible"},
        {"status": "inconclusive"},
        {"error_type": None},
        {"job": "fix_and_resubmit", "nodes": ()},
        {"job": "wait_and_retry", "nodes": (NodeAdvice("gx-043", "inspect"),)},
        {"job": "none", "nodes": ()},
    ],
)
def test_nothing_is_done_where_nothing_is_advised(changed: dict[str, object]) -> None:
    assert actions(JOB, replace(ECC, **changed), NODES) == []


def test_off_does_nothing_and_writes_nothing(lab: Lab) -> None:
    assert lab.act(actions(JOB, ECC, NODES), "off") == []
    assert not lab.trail.exists()


def test_the_first_day_is_a_rehearsal(lab: Lab) -> None:
    told = lab.act(actions(JOB, ECC, NODES))
    assert told[0] == "drain gx-043: rehearsed (nothing of this kind was rehearsed here 24 h ago or earlier)"
    assert lab.slurm.done == []
    lab.now += 23 * 3600
    lab.act([Action("drain", "gx-044", "")])
    assert lab.slurm.done == []
    lab.now += 2 * 3600
    assert lab.act([Action("drain", "gx-045", "")]) == ["drain gx-045: done"]
    assert lab.slurm.done == [("drain", "gx-045")]
    other = replace(JOB, cluster="other")
    assert "rehearsed" in lab.act([Action("drain", "a", "")], job=other)[0]  # elsewhere nothing was rehearsed


def test_what_is_advised_is_done(lab: Lab) -> None:
    lab.rehearsed().act(actions(JOB, ECC, NODES))
    assert lab.slurm.done == [("drain", "gx-043"), ("requeue", "4711", "gx-043")]
    entry = json.loads(lab.trail.read_text().splitlines()[-1])
    assert (entry["job"], entry["outcome"], entry["exclude"]) == ("4711", "done", ["gx-043"])


def test_no_more_than_two_percent_within_the_hour(lab: Lab) -> None:
    lab.rehearsed()
    told = lab.act([Action("drain", f"gx-{number}", "") for number in range(5)])
    assert [line.split(": ")[1] for line in told] == ["done", "done"] + [
        "refused (2 drained within the hour is the most)"
    ] * 3
    lab.now += 3601
    assert lab.act([Action("drain", "gx-9", "")]) == ["drain gx-9: done"]
    assert lab.act([Action("drain", "gx-8", ""), Action("drain", "gx-7", "")], nodes=None)[0].endswith("most)")


def test_no_more_than_ten_a_day(lab: Lab) -> None:
    lab.rehearsed()
    for number in range(14):
        lab.now += 3601
        told = lab.act([Action("drain", f"gx-{number}", "")])
    assert told == ["drain gx-13: refused (10 drained within a day is the most)"]
    assert len(lab.slurm.done) == 10


def test_an_attempt_is_requeued_once_and_a_workload_three_times(lab: Lab) -> None:
    lab.rehearsed()
    for attempt in range(5):
        job = replace(JOB, attempt=attempt)
        lab.act([Action("requeue", "4711", "")], job=job)
        lab.act([Action("requeue", "4711", "")], job=job)
    assert len(lab.slurm.done) == 3
    lab.act([Action("requeue", "9", "")], job=JobRef("lab", "9", 0, "other", "ada"))
    assert len(lab.slurm.done) == 4


def test_what_is_drained_already_is_left_alone(lab: Lab) -> None:
    lab.rehearsed()
    lab.slurm.states = {"gx-043": "drained*"}
    assert lab.act([Action("drain", "gx-043", "")]) == ["drain gx-043: refused (it is drained or down already)"]


def test_what_fails_is_written_down(lab: Lab) -> None:
    lab.rehearsed().slurm.problem = "Invalid user id"
    assert lab.act([Action("drain", "gx-043", "")]) == ["drain gx-043: failed (Invalid user id)"]
    assert lab.outcomes[-1] == "failed"


def test_without_a_trail_nothing_is_done(lab: Lab, tmp_path: Path) -> None:
    lab.trail = tmp_path / "absent" / "trail"
    with pytest.raises(UsageError, match="nothing is done without it"):
        lab.act([Action("drain", "gx-043", "")])
    assert lab.slurm.done == []


def test_a_damaged_line_of_the_trail_is_passed_over(lab: Lab) -> None:
    lab.rehearsed()
    with lab.trail.open("ab") as file:
        file.write(b'\xff{"at": "yesterday"}\n{"at": 1\n[]\n')
    assert lab.act([Action("drain", "gx-043", "")]) == ["drain gx-043: done"]
