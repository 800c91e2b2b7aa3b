"""Running jobs on a clock of the tests' own: what is handed in, and what is told of a standstill."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from diagnose.errors import StoreError
from diagnose.keeping import Keeping
from diagnose.models import RuleSet
from diagnose.service.handing import streamed_job
from diagnose.service.live import Live
from diagnose.service.stall import StallNotice, StallSettings
from diagnose.service.streams import Chunk, JobKey, Streams

JOB = JobKey("p", "gx", "4711", 1)


class World:
    """A clock, and what was told."""

    def __init__(self, folder: Path, rule_set: RuleSet) -> None:
        self.now = 0.0
        self.folder, self.rules = folder, rule_set
        self.ended: list[tuple[JobKey, str, bool]] = []
        self.stalls: list[StallNotice] = []
        self.able = True
        self.live = self.opened()

    def opened(self) -> Live:
        streams = Streams(str(self.folder), lambda: Keeping(self.rules))
        self.live = Live(
            streams, lambda: self.rules, self.hand_in, lambda _job, notice: self.stalls.append(notice),
            clock=lambda: self.now,
        )  # fmt: skip
        return self.live

    def hand_in(self, job: JobKey, said: str, late: bool) -> bool:
        if self.able:
            self.ended.append((job, said, late))
        return self.able

    def until(self, now: float) -> None:
        while self.now < now:
            self.now += 1.0
            self.live.tick()


@pytest.fixture
def world(tmp_path: Path, rule_set: RuleSet) -> Iterator[World]:
    made = World(tmp_path, rule_set)
    yield made
    made.live.close()


def test_a_job_is_handed_in_when_its_last_ranks_have_spoken(world: World) -> None:
    world.live.append(JOB, Chunk("a.log", b"line\n", 0))
    assert world.live.ended(JOB, "failed")
    assert not world.live.ended(JOB, "failed")
    world.until(8)
    world.live.append(JOB, Chunk("b.log", b"late\n", 0))
    world.until(12)
    assert world.ended == []
    world.until(14)
    assert world.ended == [(JOB, "failed", False)]
    world.live.append(JOB, Chunk("a.log", b"", 5))  # nothing new
    world.until(60)
    assert len(world.ended) == 1
    world.live.append(JOB, Chunk("a.log", b"very late\n", 5))
    world.until(80)
    assert world.ended[1:] == [(JOB, "failed", True)]


def test_a_restart_loses_no_end_and_does_none_twice(world: World) -> None:
    world.live.append(JOB, Chunk("a.log", b"line\n", 0))
    world.live.ended(JOB, "failed")
    world.until(5)
    world.live.close()
    world.opened().start()
    world.live._stop.set()  # the tests' clock, not its thread, has it tick
    world.live._thread.join()
    world.able = False  # the database is away
    world.until(20)
    assert world.ended == []
    world.able = True
    world.until(30)
    assert world.ended == [(JOB, "failed", False)]
    world.opened().start()
    world.live._stop.set()
    world.live._thread.join()
    world.until(90)
    assert len(world.ended) == 1


def test_what_comes_late_after_a_restart_is_diagnosed_too(world: World) -> None:
    world.live.append(JOB, Chunk("a.log", b"line\n", 0))
    world.live.ended(JOB, "failed")
    world.until(20)
    world.live.close()
    world.opened()
    world.live.append(JOB, Chunk("a.log", b"late\n", 5))
    world.until(40)
    assert world.ended == [(JOB, "failed", False), (JOB, "failed", True)]
    world.until(9000)
    assert world.stalls == []


def test_of_several_processes_each_hears_and_one_hands_in(world: World) -> None:
    world.live.append(JOB, Chunk("a.log", b"line\n", 0))
    first = world.live
    other = world.opened()  # the same spool, another process
    first.ended(JOB, "failed")
    for _ in range(20):  # what the other takes lengthens both waits
        world.now += 1.0
        other.append(JOB, Chunk("b.log", b"more\n", int(world.now - 1) * 5))
        first.tick()
        other.tick()
    assert world.ended == []
    assert first.left(JOB) == other.left(JOB) == 5.0
    for _ in range(30):
        world.now += 1.0
        other.tick()
        first.tick()
    assert world.ended == [(JOB, "failed", False)]
    assert (first.left(JOB), other.left(JOB)) == (None, None)
    first.append(JOB, Chunk("a.log", b"late\n", 5))
    for _ in range(30):
        world.now += 1.0
        first.tick()
        other.tick()
    assert world.ended[1:] == [(JOB, "failed", True)]
    first.close()


def test_what_is_forgotten_is_not_handed_in(world: World) -> None:
    world.live.append(JOB, Chunk("a.log", b"line\n", 0))
    world.live.ended(JOB, "failed")
    world.until(3)
    world.live.forget(JOB)
    world.live.append(JOB, Chunk("a.log", b"line\n", 0))
    world.until(60)
    assert world.ended == []


def test_one_job_that_cannot_be_handed_in_does_not_keep_the_others(world: World) -> None:
    jobs = [JobKey("", "", str(number)) for number in range(3)]
    for job in jobs:
        world.live.ended(job, "")
    hand_in = world.live._on_end

    def picky(job: JobKey, said: str, late: bool) -> bool:
        if job == jobs[0] and world.now < 30:
            raise StoreError("away")
        return hand_in(job, said, late)

    world.live._on_end = picky
    world.until(20)
    assert [job for job, _, _ in world.ended] == jobs[1:]
    world.until(40)
    assert [job for job, _, _ in world.ended] == [*jobs[1:], jobs[0]]


def test_a_standstill_is_told_and_its_end(world: World) -> None:
    known, at = 0, 0
    for step in range(60):
        line = b"[rank0]: step %d/900 loss 2.31 lr 1e-4\n" % step
        known = world.live.append(JOB, Chunk("a.log", line, known)).offset
        at += 10
        world.until(at)
    world.until(at + 1100)
    assert world.stalls == []
    world.until(at + 3000)
    (notice,) = world.stalls
    assert notice.step == 59
    assert notice.usual == pytest.approx(10.0)
    known = world.live.append(JOB, Chunk("a.log", b"[rank0]: step 60/900 loss 2.31 lr 1e-4\n", known)).offset
    world.until(at + 3010)
    assert [notice.over for notice in world.stalls] == [False, True]
    world.live.append(JOB, Chunk("a.log", b"", known), 70)  # a sender that leaves out steps says which was the last
    world.until(at + 3020)
    world.live.ended(JOB, "")
    world.until(at + 3100)
    world.live.append(JOB, Chunk("a.log", b"late\n", known))
    world.until(at + 90_000)
    assert len(world.stalls) == 2
    assert [late for _, _, late in world.ended] == [False, True]


def between(world: World, senders: list[Live], numbers: Iterable[int], lost: int) -> None:
    """Chunks of two logs, one of which has the steps, come to processes by turns; the second hears one rank only."""
    known = {"a.log": 0, "b.log": 0}
    for number in numbers:
        first, second = senders
        for name, line, live in (
            ("a.log", b"[rank0]: step %d/9000 loss 2.31 lr 1e-4\n" % number, first),
            ("b.log", b"[rank1]: still here\n", second),
        ):
            known[name] = live.append(JOB, Chunk(name, line, known[name])).offset
        for _ in range(lost):
            world.now += 1.0
            for live in senders:
                live.tick()


def test_what_another_process_sees_is_progress(world: World) -> None:
    """Ranks that print no steps come to a process that sees none for hours: the job gets on all the same."""
    first = world.live
    other = world.opened()
    between(world, [first, other], range(520), 60)
    assert world.now > 4 * StallSettings().start  # longer than any start-up may take, whatever it prints
    assert world.stalls == []
    for _ in range(12_000):
        world.now += 1.0
        first.tick()
        other.tick()
    assert [notice.step for notice in world.stalls] == [519]  # one of them tells, who knows the step
    known = first.append(JOB, Chunk("a.log", b"", 0)).offset
    first.append(JOB, Chunk("a.log", b"[rank0]: step 520/9000 loss 2.31 lr 1e-4\n", known))
    for _ in range(20):
        world.now += 1.0
        first.tick()
        other.tick()
    assert [notice.over for notice in world.stalls] == [False, True]
    first.close()


def test_what_was_said_at_the_end_is_the_job() -> None:
    said = '{"scheduler": "slurm", "nodes": ["n1"], "exit": {"code": 3}, "ended_at": "2026-09-14T01:20:00Z"}'
    job = streamed_job(JOB, said)
    assert (job.scheduler, job.nodes, job.code, job.ended, job.attempt) == ("slurm", ("n1",), 3, 1789348800.0, 1)
    assert streamed_job(JOB, "").id == streamed_job(JOB, "no JSON").id == job.id
