"""When a job that has ended is diagnosed, on a clock of the tests' own."""

from __future__ import annotations

import random

import pytest

from diagnose.errors import UsageError
from diagnose.service.latecomers import Latecomers, Waits
from diagnose.service.settings import config_of


def test_nobody_is_late() -> None:
    waits = Latecomers[str]()
    waits.heard("j", 99.0)  # it has not ended
    assert waits.next_at() is None
    waits.ended("j", 100.0)
    assert waits.due(109.9) == []
    assert waits.next_at() == 110.0
    assert waits.due(110.0) == ["j"]
    assert waits.due(1000.0) == []
    assert waits.next_at() is None


def test_late_ranks_are_waited_for() -> None:
    waits = Latecomers[str]()
    waits.ended("j", 100.0)
    waits.heard("j", 103.0)
    assert waits.next_at() == 110.0  # 10 s at least
    waits.heard("j", 109.0)
    assert waits.due(113.9) == []
    assert waits.due(114.0) == ["j"]  # 5 s quiet


def test_who_never_falls_silent_is_not_waited_for() -> None:
    waits = Latecomers[str]()
    waits.ended("j", 100.0)
    for second in range(101, 140):
        waits.heard("j", float(second))
        assert waits.due(float(second)) == []
    assert waits.due(140.0) == ["j"]  # 40 s at most


def test_what_could_not_be_done_is_due_again() -> None:
    waits = Latecomers[str]()
    waits.ended("j", 0.0)
    waits.ended("j", 5.0)  # said twice
    assert waits.at("j") == 10.0
    assert waits.due(10.0) == ["j"]
    waits.heard("j", 10.0)
    assert waits.at("j") is None
    waits.again("j", 15.0)
    waits.heard("j", 14.0)
    assert waits.due(14.9) == []
    assert waits.due(15.0) == ["j"]
    assert len(waits) == 0


def test_many_jobs_each_by_its_own_time() -> None:
    chance = random.Random(3)
    waits = Latecomers[int]()
    ended = {job: chance.uniform(0, 100) for job in range(200)}
    heard = {job: at + chance.uniform(0, 60) for job, at in ended.items()}
    events = sorted([(at, 0, job) for job, at in ended.items()] + [(at, 1, job) for job, at in heard.items()])
    due: dict[int, list[float]] = {job: [] for job in ended}
    for at, what, job in events:
        while (wakes := waits.next_at()) is not None and wakes <= at:
            for ready in waits.due(wakes):
                due[ready].append(wakes)
        waits.ended(job, at) if what == 0 else waits.heard(job, at)
    for ready in waits.due(1e9):
        due[ready].append(1e9)
    for job, times in due.items():
        first = min(ended[job] + 40, max(ended[job] + 10, heard[job] + 5)) if heard[job] <= ended[job] + 10 else None
        assert len(times) == 1
        assert first is None or times[0] in (first, 1e9)


def test_a_job_that_is_forgotten() -> None:
    waits = Latecomers[str]()
    waits.ended("j", 0.0)
    waits.forget("j")
    waits.forget("j")
    assert waits.due(99.0) == []


@pytest.mark.parametrize("waits", [Waits(least=50), Waits(quiet=-1), Waits(quiet=41), Waits(most=5000, least=10)])
def test_waits_that_cannot_be_meant(waits: Waits) -> None:
    with pytest.raises(UsageError, match="waits for late ranks"):
        waits.checked()
    assert Waits().checked() == Waits()


@pytest.mark.parametrize("given", ["10", "10,5,x", "10,5,4", "1,2,3,4", "nan,5,40"])
def test_a_setting_that_cannot_be_meant_is_told(given: str) -> None:
    with pytest.raises(UsageError, match=r"DIAGNOSE_LATE_RANKS|waits for late ranks"):
        config_of({"DIAGNOSE_DATABASE": "/tmp/x.sqlite3", "DIAGNOSE_LATE_RANKS": given})


def test_the_setting() -> None:
    config = config_of({"DIAGNOSE_DATABASE": "/tmp/x.sqlite3", "DIAGNOSE_LATE_RANKS": "1, 0.5, 3"})
    assert config.waits == Waits(1.0, 0.5, 3.0)
    assert config_of({"DIAGNOSE_DATABASE": "/tmp/x.sqlite3"}).waits == Waits()
