"""Logs on their way to a service: they arrive whole, whatever happens to files, service and sender."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from diagnose.api.schemas import End
from diagnose.compress import keptlog, ranges
from diagnose.integrations.backlog import Space
from diagnose.integrations.following import Follower
from diagnose.integrations.sending import Answer, Away, Sender
from diagnose.integrations.ship import Job, Refused, Shipping, Tools
from diagnose.keeping import Keeping
from diagnose.models import RuleSet
from diagnose.service.chunks import expanded
from diagnose.service.stall import SignReader
from diagnose.service.streams import Chunk, GuardDiffers, JobKey, StreamError, Streams, sealing
from diagnose.sources import kept
from tests.keeping import kept_log
from tests.serving import KEY_ERROR, environment_of

JOB = Job("4711", "gx")
KEY = JobKey("", "gx", "4711")
FAILURE = "Traceback (most recent call last):\n  File \"/w/train.py\", line 3, in f\n    x\nKeyError: 'role'\n"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for one in (kept, keptlog, sealing):
        monkeypatch.setattr(one, "KEPT_HEAD_BYTES", 1500)
    monkeypatch.setattr(sys.modules["diagnose.sources.collect"], "KEPT_LOOKED_BYTES", 1500 + 4096)
    monkeypatch.setattr(ranges, "RANGE_BYTES", 4000)


@pytest.fixture(scope="module")
def keeper(rule_set: RuleSet) -> Keeping:
    return Keeping(rule_set)


@pytest.fixture(scope="module")
def signs(rule_set: RuleSet) -> SignReader:
    return SignReader(rule_set)


class Service:
    """A service without HTTP: streams, and what goes wrong on the way to it."""

    def __init__(self, folder: Path, keeper: Keeping, fails: Callable[[], str] = lambda: "") -> None:
        self.streams = Streams(str(folder), lambda: keeper)
        self.guard: str | None = keeper.guard
        self.fails = fails
        self.ended: list[dict[str, Any]] = []
        self.offsets: list[int] = []
        self.beats: list[int | None] = []
        self.address = "http://service"

    def send(
        self,
        method: str,
        path: tuple[str, ...],
        query: Mapping[str, Any] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        fails = self.fails()
        if fails == "before":
            raise Away("it is away")
        answer = self.answer(method, path, query or {}, body or b"", headers or {})
        if fails == "after":
            raise Away("nobody knows whether it was heard")
        return answer

    def answer(
        self, method: str, path: tuple[str, ...], query: Mapping[str, Any], body: bytes, headers: Mapping[str, str]
    ) -> Answer:
        assert path[:4] == ("jobs", "gx", "4711", "0")
        if method == "POST":
            self.ended.append(json.loads(body))
            return Answer(202, {"report": "/v1/diagnoses/d1"})
        name = path[5]
        if method == "GET":
            known = self.streams.known(KEY, name)
            return Answer(
                200,
                {
                    "offset": known.offset if known else 0,
                    "generation": known.generation if known else 0,
                    "guard": self.guard,
                },
            )
        self.offsets.append(query["offset"])
        data = expanded(body, headers.get("Content-Encoding", ""), 1 << 22)
        if not data:
            self.beats.append(query.get("step"))
        try:
            if query["form"] == "kept" and query["guard"] != self.guard:
                raise GuardDiffers("other rules")
            how = (query["generation"], "again" in query, query["form"], query.get("guard"))
            took = self.streams.append(KEY, Chunk(name, data, query["offset"], *how))
        except StreamError as error:
            more = {key: getattr(error, key) for key in ("offset", "generation") if hasattr(error, key)}
            return Answer(409, {"type": f"urn:diagnose:problem:{error.kind}", "detail": str(error), **more})
        return Answer(200, {"offset": took.offset, "generation": took.generation})


class World:
    """A job's folder, a service, a clock."""

    def __init__(self, folder: Path, keeper: Keeping, signs: SignReader) -> None:
        self.folder, self.keeper, self.signs = folder, keeper, signs
        self.service = Service(folder / "spool", keeper)
        self.now = 0.0
        self.told: list[str] = []
        self.log = folder / "job.log"
        self.space: dict[str, int] = {}

    def shipping(self, *paths: str) -> Shipping:
        state = str(self.folder / "state")
        space = Space(state, **self.space)
        tools = Tools(self.keeper, self.signs, state=state, clock=lambda: self.now, space=space)
        return Shipping(paths or (str(self.log),), JOB, self.service, tools, self.told.append)  # type: ignore[arg-type]

    def turns(self, shipping: Shipping, count: int = 5, seconds: float = 3.0) -> None:
        for _ in range(count):
            self.now += seconds
            while shipping.turn():
                pass

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def finish(self, shipping: Shipping, seconds: float = 600.0) -> bool:
        return shipping.finish(seconds, self.sleep)

    def files(self) -> dict[str, bytes]:
        self.service.streams.close()
        into = self.folder / f"snapshot-{random.randrange(10**9)}"
        into.mkdir()

        def place(folder: str, name: str) -> str:
            return name.rpartition("/")[2]

        return {name: (into / name).read_bytes() for name in self.service.streams.snapshot(KEY, str(into), place)}

    def spooled(self) -> int:
        return sum(path.stat().st_size for path in (self.folder / "state").glob("*.spool"))

    def kept(self, data: str) -> bytes | None:
        return kept_log(self.keeper, "job.log", data.encode())


@pytest.fixture
def world(tmp_path: Path, keeper: Keeping, signs: SignReader) -> Iterator[World]:
    made = World(tmp_path, keeper, signs)
    yield made
    made.service.streams.close()


def steps(count: int, first: int = 0) -> str:
    return "".join(
        f"2026-03-01 10:00:{step % 60:02} iteration {step}/ 99999 | loss 2.5\n" for step in range(first, first + count)
    )


def grow(world: World, shipping: Shipping, text: str, by: int = 3000) -> None:
    for start in range(0, len(text), by):
        with world.log.open("a") as file:
            file.write(text[start : start + by])
        world.turns(shipping, 1)


def test_a_log_that_grows_arrives_as_its_kept_log(world: World) -> None:
    shipping = world.shipping()
    world.turns(shipping)  # it is not there yet
    text = steps(400) + FAILURE + "no end"
    grow(world, shipping, text)
    assert world.service.streams.known(KEY, str(world.log).strip("/")).offset > 1500
    assert world.finish(shipping)
    assert world.files() == {"job.log": world.kept(text)}
    assert world.told == []


def test_a_service_of_other_rules_gets_the_log_itself(world: World) -> None:
    world.service.guard = "0" * 32
    text = steps(400) + FAILURE
    shipping = world.shipping()
    grow(world, shipping, text)
    assert world.finish(shipping)
    assert world.files() == {"job.log": world.kept(text)}  # the service has compressed it


def test_rules_that_change_meanwhile(world: World) -> None:
    text = steps(400) + FAILURE
    shipping = world.shipping()
    grow(world, shipping, text[:9000])
    world.service.guard = "0" * 32  # a server with newer rules
    grow(world, shipping, text[9000:])
    assert world.finish(shipping)
    assert world.files() == {"job.log": world.kept(text)}
    assert "the service has other rules than this diagnose: logs are sent as they are" in world.told


def test_what_must_be_read_as_a_whole_is_sent_as_it_is(world: World) -> None:
    text = "".join(
        f"2026-03-01 10:{at // 60:02}:{at % 60:02} iteration {at} loss 2.5\n" for at in range(3000, 2800, -1)
    )
    shipping = world.shipping()
    grow(world, shipping, text, by=400)  # the first bytes are sent before anybody can know
    assert world.finish(shipping)
    assert world.files() == {"job.log": text.encode()}


@pytest.mark.parametrize("seed", range(4))
def test_a_service_that_comes_and_goes_loses_nothing(seed: int, world: World) -> None:
    chance = random.Random(seed)
    world.service.fails = lambda: chance.choice(("", "", "before", "after"))
    text = steps(500) + FAILURE
    shipping = world.shipping()
    grow(world, shipping, text)
    assert world.finish(shipping, 1e6)
    assert world.files() == {"job.log": world.kept(text)}
    assert any("it goes on" in told or "the job goes on" in told for told in world.told)


def test_a_service_that_never_comes_is_told(world: World) -> None:
    world.service.fails = lambda: "before"
    shipping = world.shipping()
    grow(world, shipping, steps(100))
    assert not world.finish(shipping, 30.0)
    assert world.told == [
        "it is away; it is tried again, and the job goes on",
        f"not sent as a whole: {str(world.log).strip('/')}",
    ]


def away(world: World, is_away: bool = True) -> None:
    world.service.fails = lambda: "before" if is_away else ""


def spread(count: int, first: int = 0) -> str:
    """Lines of which all are kept."""
    return "".join(
        f"line {number} of {number * 7919 % 9973} says {hex(number * 31)}\n" for number in range(first, first + count)
    )


@pytest.mark.parametrize("disk", [0, 5000, 10**6])
def test_a_log_that_lies_where_it_lay_waits_there(world: World, disk: int) -> None:
    """The service is away for long, and neither memory nor disk hold what is made meanwhile."""
    world.space = {"memory": 4000, "disk": disk}
    text = spread(4000) + FAILURE
    shipping = world.shipping()
    grow(world, shipping, text[:6000])
    away(world)
    grow(world, shipping, text[6000:])
    assert world.spooled() <= disk + 300
    away(world, False)
    assert world.finish(shipping)
    assert world.files() == {"job.log": world.kept(text)}
    assert world.spooled() == 0


def test_what_is_read_too_late_is_not_taken_for_sent(world: World) -> None:
    """It ends while the service is away and nothing more can be held: what is left is told, and the next has it."""
    world.space = {"memory": 4000, "disk": 0}
    text = spread(50_000)
    shipping = world.shipping()
    away(world)
    grow(world, shipping, text, by=200_000)
    assert not world.finish(shipping, 5.0)
    away(world, False)
    assert world.finish(world.shipping())
    assert world.files() == {"job.log": world.kept(text)}


def test_rotations_while_the_service_is_away(world: World) -> None:
    world.space = {"memory": 4000}
    texts = [spread(300, 1000 * turn) for turn in range(4)]
    shipping = world.shipping()
    grow(world, shipping, texts[0][:5000])
    away(world)
    grow(world, shipping, texts[0][5000:])
    for turn, text in enumerate(texts[1:]):
        world.log.rename(world.folder / f"old-{turn}.log")
        grow(world, shipping, text)
        world.turns(shipping)
        (world.folder / f"old-{turn}.log").unlink()
    away(world, False)
    assert world.finish(shipping)
    names = ["job.log.3", "job.log.2", "job.log.1", "job.log"]
    assert world.files() == {name: world.kept(text) for name, text in zip(names, texts, strict=True)}
    assert world.spooled() == 0


def test_truncations_while_the_service_is_away(world: World) -> None:
    """What is emptied is gone; it was read in time."""
    texts = [f"beginning {turn}\n" + spread(300, 1000 * turn) for turn in range(3)]
    shipping = world.shipping()
    away(world)
    for text in texts:
        world.log.write_text("")
        grow(world, shipping, text)
        world.turns(shipping)
    assert world.spooled() > 10_000
    away(world, False)
    assert world.finish(shipping)
    names = ["job.log.2", "job.log.1", "job.log"]
    assert world.files() == {name: world.kept(text) for name, text in zip(names, texts, strict=True)}
    assert world.told[1:] == ["the service is there again"]


def test_rotations_for_which_there_is_no_room_are_sent_later(world: World) -> None:
    """Neither memory nor disk takes more: files that had the path meanwhile are held, with a name or without."""
    world.space = {"memory": 4000, "disk": 0}
    texts = [spread(300, 1000 * turn) for turn in range(5)]
    shipping = world.shipping()
    away(world)
    for turn, text in enumerate(texts):
        if turn:
            world.log.rename(world.folder / f"old-{turn}.log")
        grow(world, shipping, text)
        world.turns(shipping)
        if turn:
            (world.folder / f"old-{turn}.log").unlink()
    full = [told for told in world.told if "has no more room" in told]
    assert len(full) == 1
    assert "job.log: what waits" in full[0]
    away(world, False)
    assert world.finish(shipping)
    names = ["job.log.4", "job.log.3", "job.log.2", "job.log.1", "job.log"]
    assert world.files() == {name: world.kept(text) for name, text in zip(names, texts, strict=True)}
    assert not [told for told in world.told if "went before" in told]


def test_more_rotations_than_can_wait_are_told_with_what_they_had(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diagnose.integrations.ship._PARCELS", 3)
    world.space = {"memory": 4000, "disk": 0}
    texts = [spread(300, 1000 * turn) for turn in range(6)]
    shipping = world.shipping()
    away(world)
    for turn, text in enumerate(texts):
        if turn:
            world.log.rename(world.folder / f"old-{turn}.log")
        grow(world, shipping, text)
        world.turns(shipping)
    losses = [told for told in world.told if "went before they could be read" in told]
    assert len(losses) == 1  # once for each log, while it goes on
    away(world, False)
    assert not world.finish(shipping)
    sent = world.files()
    assert [sent[name] for name in ("job.log.2", "job.log.1", "job.log")] == [world.kept(text) for text in texts[-3:]]
    lost = [told for told in world.told if "went before they could be read" in told][-1]
    assert sum(map(len, texts[:3])) // 2 < int(lost.split()[1]) < 2 * sum(map(len, texts[:3]))


def test_what_no_disk_could_hold_is_told(world: World) -> None:
    world.space = {"memory": 4000, "disk": 0}
    shipping = world.shipping()
    away(world)
    grow(world, shipping, spread(50_000), by=100_000)
    world.log.write_text("another\n")
    world.turns(shipping)
    away(world, False)
    world.turns(shipping)
    assert world.finish(shipping)
    assert any("bytes went before they could be read" in told for told in world.told)
    assert world.files()["job.log"] == world.kept("another\n")
    assert shipping.end({"exit": {"code": 1}}, 5.0, world.sleep)
    (said,) = world.service.ended
    (lost,) = said["lost"]
    assert lost["name"].endswith("job.log")
    assert lost["bytes"] > 100_000
    assert End.model_validate(said).lost[0].bytes == lost["bytes"]


def test_a_service_that_knows_of_no_losses_is_told_the_end_without(world: World) -> None:
    shipping = world.shipping()
    world.log.write_text("x\n")
    world.turns(shipping)
    (log,) = shipping._logs.values()
    log.lost = 7
    told: list[dict[str, Any]] = []

    def old(method: str, path: tuple[str, ...], query: Any = None, body: bytes = b"", headers: Any = None) -> Answer:
        told.append(json.loads(body))
        return Answer(422, {"detail": "lost: not known"}) if "lost" in told[-1] else Answer(202, {"report": "/x"})

    world.service.send = old  # type: ignore[method-assign,assignment]
    assert shipping.end({"gpus": 8}, 5.0, world.sleep) == "/x"
    assert told[1:] == [{"gpus": 8}]


@pytest.mark.parametrize("meanwhile", ["nothing", "renamed", "emptied", "deleted"])
@pytest.mark.parametrize("known", [True, False])
def test_a_sender_that_is_killed_while_the_service_is_away(world: World, meanwhile: str, known: bool) -> None:
    """The next one goes on at the byte that was acknowledged, wherever the file is now, or from what was kept of it."""
    first, second = spread(600), "another beginning\n" + spread(600, 5000)
    away(world, not known)
    shipping = world.shipping()
    grow(world, shipping, first[:9000])
    acknowledged = world.service.streams.known(KEY, str(world.log).strip("/")) if known else None
    away(world)
    grow(world, shipping, first[9000:15_000])
    grow(world, world.shipping(), "")  # killed once, and once more
    shipping = world.shipping()
    world.turns(shipping)
    if meanwhile == "nothing":
        whole, second = first, ""
        with world.log.open("a") as file:
            file.write(first[15_000:])
    else:
        whole = first[:15_000]
        if meanwhile == "renamed":
            world.log.rename(world.folder / "job.log.old")
        if meanwhile == "deleted":
            world.log.unlink()
        world.log.write_text(second)
    shipping = world.shipping()
    world.turns(shipping)
    away(world, False)
    world.service.offsets.clear()
    assert world.finish(shipping)
    files = world.files()
    if acknowledged is not None:
        assert world.service.offsets[0] == acknowledged.offset
    if meanwhile == "nothing":
        assert files == {"job.log": world.kept(whole)}
        return
    assert files["job.log"] == world.kept(second)
    complete = world.kept(whole)
    assert complete is not None
    assert files.keys() == {"job.log", "job.log.1"}
    if meanwhile == "renamed":
        assert files["job.log.1"] == complete
    else:  # what was read of it; how it would have ended nobody knows
        assert complete.startswith(files["job.log.1"])
        assert b"line 400 of" in files["job.log.1"]
    assert world.spooled() == 0


@pytest.mark.parametrize("seed", range(4))
def test_a_sender_that_is_killed_goes_on(seed: int, world: World) -> None:
    chance = random.Random(seed)
    text = steps(500) + FAILURE
    shipping = world.shipping()
    for start in range(0, len(text), 2500):
        grow(world, shipping, text[start : start + 2500])
        if chance.random() < 0.4:
            shipping = world.shipping()
    assert world.finish(shipping)
    assert world.files() == {"job.log": world.kept(text)}


@pytest.mark.parametrize("change", ["nothing", "rules", "rotated", "rules, rotated"])
@pytest.mark.parametrize("heard", [True, False])
def test_a_sender_that_is_killed_before_it_has_an_answer(heard: bool, change: str, world: World) -> None:
    """Whichever request it is, and whether or not the service had it: no byte is there twice, and none is missing."""
    first, text = steps(60), steps(200, 60) + FAILURE
    for lost in range(40):
        world.service.streams.forget(KEY)
        world.service.guard = world.keeper.guard
        world.log.write_text("")
        shipping, count = world.shipping(), 0

        def fails() -> str:
            nonlocal count
            count += 1
            return ("after" if heard else "before") if count > lost else ""  # noqa: B023 - for this round

        world.service.fails = fails
        grow(world, shipping, first)
        if "rules" in change:
            world.service.guard = "0" * 32
        if "rotated" in change:
            world.log.rename(world.folder / "old.log")
        grow(world, shipping, text)
        world.service.fails = lambda: ""
        ended = count <= lost
        shipping = world.shipping()  # the one before was killed
        world.turns(shipping)
        assert world.finish(shipping)
        whole = {"job.log": text, "job.log.1": first} if "rotated" in change else {"job.log": first + text}
        files = world.files()
        assert files.keys() == whole.keys(), lost
        for name, told in whole.items():
            assert files[name] in (told.encode(), world.kept(told)), (lost, name)
        for each in (world.folder / "old.log", world.folder / "state"):
            for path in [each] if each.is_file() else each.glob("*"):
                path.unlink(missing_ok=True)
        if ended:
            break
    else:
        pytest.fail("there are more requests than were tried")


def test_a_spool_that_was_lost_is_filled_again(world: World) -> None:
    text = steps(300) + FAILURE
    shipping = world.shipping()
    grow(world, shipping, text[:9000])
    world.service.streams.forget(KEY)
    grow(world, shipping, text[9000:])
    assert world.finish(shipping)
    assert world.files() == {"job.log": world.kept(text)}


def test_rename_and_creation(world: World) -> None:
    first, second = steps(300), steps(100, 300) + FAILURE
    shipping = world.shipping()
    grow(world, shipping, first)
    world.log.rename(world.folder / "old.log")
    grow(world, shipping, second)
    world.turns(shipping)
    assert world.finish(shipping)
    assert world.files() == {"job.log": world.kept(second), "job.log.1": world.kept(first)}


def test_rename_right_before_the_end(world: World) -> None:
    first, second = steps(300), FAILURE
    shipping = world.shipping()
    grow(world, shipping, first)
    world.log.rename(world.folder / "old.log")
    world.log.write_text(second)
    assert world.finish(shipping)
    assert world.files() == {"job.log": world.kept(second), "job.log.1": world.kept(first)}


def test_copy_and_truncation(world: World) -> None:
    first, second = steps(300), "another beginning\n" + steps(400, 300) + FAILURE
    shipping = world.shipping()
    grow(world, shipping, first)
    world.log.write_text("")
    grow(world, shipping, second)
    assert world.finish(shipping)
    assert world.files() == {"job.log": world.kept(second), "job.log.1": world.kept(first)}


def test_truncation_that_has_grown_beyond_before_anybody_looks(world: World) -> None:
    first, second = steps(300), "another beginning\n" + steps(900, 300)
    shipping = world.shipping()
    grow(world, shipping, first)
    world.log.write_text(second)
    world.turns(shipping)
    assert world.finish(shipping)
    assert world.files() == {"job.log": world.kept(second), "job.log.1": world.kept(first)}


def test_nodes_that_call_their_logs_alike(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world.folder)
    world.log.write_text("x\n")
    tools = Tools(world.keeper, world.signs, clock=lambda: world.now)
    for host in ("n1", "n2/"):
        job = Job("4711", "gx", prefix=host)
        shipping = Shipping(["./job.log"], job, world.service, tools, world.told.append)  # type: ignore[arg-type]
        assert world.finish(shipping)
    assert world.service.streams.names(KEY) == ["n1/job.log", "n2/job.log"]


def test_patterns_find_files_that_come_later(world: World) -> None:
    shipping = world.shipping(str(world.folder / "ranks" / "*.err"))
    world.turns(shipping)
    (world.folder / "ranks").mkdir()
    for rank in range(3):
        (world.folder / "ranks" / f"{rank}.err").write_text(f"rank {rank}\n")
    world.turns(shipping, seconds=6.0)
    assert world.finish(shipping)
    assert {name: data.rpartition(b"\n")[0].rpartition(b"\n")[2] for name, data in world.files().items()} == {
        f"{rank}.err": b"rank %d" % rank for rank in range(3)
    }


def test_files_that_a_dying_job_makes_are_sent(world: World) -> None:
    shipping = world.shipping(str(world.folder / "*.out"), str(world.folder / "ranks" / "*.err"))
    (world.folder / "train.out").write_text(steps(3))
    shipping.turn()
    (world.folder / "ranks").mkdir()
    (world.folder / "ranks" / "r0.err").write_text(FAILURE)
    assert world.finish(shipping)
    assert {name for name, data in world.files().items() if data} == {"train.out", "r0.err"}


def test_a_job_that_prints_nothing_is_still_there(world: World) -> None:
    shipping = world.shipping()
    grow(world, shipping, steps(300))
    world.turns(shipping, 20, seconds=10.0)
    assert world.service.beats
    assert world.service.beats[-1] == 299  # its last step, though that line was left out


def test_who_is_refused_does_not_go_on(world: World) -> None:
    world.service.answer = lambda *_: Answer(403, {"detail": "this key may not do that"})  # type: ignore[method-assign]
    shipping = world.shipping()
    with pytest.raises(Refused, match="this key may not"):
        grow(world, shipping, steps(100))


def test_a_log_that_is_refused_does_not_keep_the_others(world: World) -> None:
    good, answer = world.folder / "good.log", world.service.answer

    def picky(method: str, path: tuple[str, ...], *how: Any) -> Answer:
        return (
            Answer(413, {"detail": "a log may have 5 bytes"})
            if path[-1].endswith("job.log")
            else answer(method, path, *how)
        )

    world.service.answer = picky  # type: ignore[method-assign]
    world.log.write_text(steps(100))
    good.write_text("all is well\n")
    shipping = world.shipping(str(world.log), str(good))
    world.turns(shipping)
    assert not world.finish(shipping)
    assert list(world.files()) == ["good.log"]
    assert any("a log may have 5 bytes" in told for told in world.told)


def test_the_end_is_said_as_long_as_it_takes(world: World) -> None:
    fails = iter(["before", "before", ""])
    world.service.fails = lambda: next(fails)
    shipping = world.shipping()
    assert shipping.end({"exit": {"code": 1}}, 60.0, world.sleep) == "/v1/diagnoses/d1"
    assert world.service.ended == [{"exit": {"code": 1}}]
    world.service.fails = lambda: "before"
    assert shipping.end({}, 5.0, world.sleep) == ""


def test_what_is_no_log_is_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "absent", Path("/dev/zero")):
        assert Follower(str(path)).read(10) == b""


def test_addresses_and_keys(tmp_path: Path) -> None:
    for address in ("service", "ftp://service", "http://user@service", "http://service:x", "http://"):
        with pytest.raises(Exception, match="is no address of a service"):
            Sender(address)
    for key in ("two words", "", "käse"):
        with pytest.raises(Exception, match="API key"):
            Sender("http://service", key=key)
    (tmp_path / "key").write_text("dk_x_y\n")
    assert Sender("http://service", key_file=str(tmp_path / "key"))._authorization() == {
        "Authorization": "Bearer dk_x_y"
    }
    with pytest.raises(Exception, match="cannot be read"):
        Sender("http://service", key_file=str(tmp_path / "absent"))


@pytest.mark.allow_hosts(["127.0.0.1"])
def test_from_a_job_to_its_diagnosis(tmp_path: Path) -> None:
    """The true command, a true server, a job that fails while it is watched."""
    import socket

    from tests.test_api_jobs import fetched, served

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = served(tmp_path, port)
    log = tmp_path / "job" / "train.out"
    log.parent.mkdir()
    job = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    code = "import sys; from diagnose.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "ship", "train.out", "--job", "4711", "--cluster", "gx", "--every", "0.2"]
    command += ["--service", f"http://127.0.0.1:{port}", "--until-exit", str(job.pid), "--end", "--exit-code", "1"]
    try:
        ship = subprocess.Popen(
            command, cwd=log.parent, env=environment_of(tmp_path, HOME=str(tmp_path)), stderr=subprocess.PIPE
        )
        text = (
            "".join(f"2026-10-01 00:00:{step % 60:02} INFO step {step} loss 2.1\n" for step in range(9000)) + KEY_ERROR
        )
        with log.open("w") as file:
            for start in range(0, len(text), 50_000):
                file.write(text[start : start + 50_000])
                file.flush()
                time.sleep(0.05)
        job.kill()
        job.wait()
        _, said = ship.communicate(timeout=120)
        assert ship.returncode == 0, said
        place = said.decode().rpartition("http://127.0.0.1:")[2].partition("/")[2].strip()
        report = fetched(port, f"/{place}")
        assert report["root_cause"]["evidence"][0]["line"] == text.count("\n")
        assert report["root_cause"]["evidence"][0]["source"] == "train.out"
        assert report["coverage"]["not_read"] == []
        sent = sum(path.stat().st_size for path in (tmp_path / "spool" / "streams").rglob("*.raw.*"))
        assert sent < len(text) / 2  # a kept log
    finally:
        job.kill()
        job.wait()
        server.send_signal(signal.SIGTERM)
        server.wait(30)
        assert server.stderr is not None
        server.stderr.close()


@pytest.mark.parametrize("alone", [True, False])
def test_a_sender_stands_back_behind_every_session(tmp_path: Path, *, alone: bool) -> None:
    job = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    code = "import sys; from diagnose.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "ship", "train.out", "--job", "1", "--service", "http://127.0.0.1:9"]
    ship = subprocess.Popen(
        [*command, "--grace", "0", *(["--until-exit", str(job.pid)] if alone else [])], cwd=tmp_path,
        env=environment_of(tmp_path, HOME=str(tmp_path)), stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        until = time.monotonic() + 60
        while os.sched_getscheduler(ship.pid) != os.SCHED_BATCH:
            assert ship.poll() is None, ship.communicate()[1]
            assert time.monotonic() < until
            time.sleep(0.02)
        assert os.getpriority(os.PRIO_PROCESS, ship.pid) == 19
        # A session of its own, or the job's, whose place is the job's.
        assert (os.getsid(ship.pid) == ship.pid) is alone
        group = Path(f"/proc/{ship.pid}/autogroup")
        if alone and os.access(group, os.W_OK):
            assert group.read_text().split()[-1] == "19"
    finally:
        for process in (job, ship):
            process.kill()
            process.communicate()


def test_who_asks_twice_waits_no_longer(tmp_path: Path) -> None:
    (tmp_path / "train.out").write_text(KEY_ERROR)
    heard = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # this test's runner may ignore it
    code = f"import signal, sys; {heard}; from diagnose.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "ship", "train.out", "--job", "1", "--grace", "3600"]
    command += ["--service", "http://127.0.0.1:9"]
    ship = subprocess.Popen(
        command, cwd=tmp_path, env=environment_of(tmp_path, HOME=str(tmp_path)), stderr=subprocess.PIPE
    )
    try:
        assert ship.stderr is not None
        assert b"is tried again" in ship.stderr.readline()  # it is at work
        for _ in range(60):
            ship.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                ship.wait(5.0)  # a third would end it in another way
                break
        assert ship.returncode == 130
        assert b"Traceback" not in ship.stderr.read()
    finally:
        ship.kill()
        ship.wait()
        ship.stderr.close()  # type: ignore[union-attr]


@pytest.mark.allow_hosts(["127.0.0.1"])
def test_kills_of_sender_and_server_and_a_log_that_is_emptied_meanwhile(tmp_path: Path) -> None:
    """`kill -9` of either, the true command and server: what was read of a log that is gone arrives all the same."""
    import socket

    from tests.test_api_jobs import fetched, served

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path / "job" / "train.out"
    log.parent.mkdir()
    code = "import sys; from diagnose.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "ship", "train.out", "--job", "4711", "--cluster", "gx", "--every", "0.2"]
    command += ["--service", f"http://127.0.0.1:{port}", "--prefix", "n1"]
    environment = environment_of(tmp_path, HOME=str(tmp_path))
    spool = tmp_path / ".local" / "state" / "diagnose" / "ship"

    def wait_until(there: Callable[[], bool]) -> None:
        for _ in range(600):
            if there():
                return
            time.sleep(0.05)
        raise AssertionError("it does not come to that")

    def taken() -> bytes:
        paths = sorted((tmp_path / "spool" / "streams").rglob("*.raw.*"))
        return b"".join(path.read_bytes() for path in paths)

    def kept() -> bytes:
        return b"".join(path.read_bytes() for path in sorted(spool.glob("*.spool")))

    def killed(process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()

    def ship() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, cwd=log.parent, env=environment, stderr=subprocess.DEVNULL)

    server, sender = served(tmp_path, port), ship()
    try:
        log.write_text(spread(300))
        wait_until(lambda: b"line 299 " in taken())
        before = taken()
        os.killpg(server.pid, signal.SIGKILL)
        killed(server)
        with log.open("a") as file:
            file.write(spread(300, 300))
        wait_until(lambda: b"line 599 " in kept())
        killed(sender)
        sender = ship()
        with log.open("a") as file:
            file.write(spread(5, 600))
        wait_until(lambda: b"line 604 " in kept())
        log.write_text("")  # as `copytruncate` does
        killed(sender)
        log.write_text(KEY_ERROR)
        server, sender = served(tmp_path, port), ship()
        wait_until(lambda: b"KeyError" in taken())
        assert taken().startswith(before)
        assert all(f"line {number} ".encode() in taken() for number in range(605))
        assert taken().count(b"line 299 ") == 1
        sender.send_signal(signal.SIGTERM)
        assert sender.wait(60) == 0
        assert list(spool.glob("*.spool")) == []
        end = subprocess.run(
            [*command, "--end", "--until-exit", str(sender.pid)], cwd=log.parent, env=environment, timeout=60, check=False,
            capture_output=True,
        )  # fmt: skip
        assert end.returncode == 0, end.stderr
        report = fetched(port, "/" + end.stderr.decode().rpartition("http://127.0.0.1:")[2].partition("/")[2].strip())
        assert report["error_type"] == "KeyError"
        assert {one["source"] for one in report["coverage"]["sources"]} == {"n1/train.out", "n1/train.out.1"}
    finally:
        killed(sender)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        killed(server)
