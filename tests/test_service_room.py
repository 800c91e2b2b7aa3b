"""A bound on bytes holds for all processes of a spool together, whoever is killed with how much in hand."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from diagnose.service.room import Room
from diagnose.service.spool import Spool, SpoolFull
from diagnose.service.streams import SpoolFull as StreamsFull
from diagnose.service.streams.disk import StreamRoom

_MOST = 1_000_000
_TAKES = """
import os, sys
from diagnose.service.room import Room
room = Room(sys.argv[1], int(sys.argv[2]), lambda: 0)
room.measure()
print("ready", flush=True)
sys.stdin.readline()
print(sum(room.take(7) for _ in range(20_000)), flush=True)
sys.stdin.readline()
os.kill(os.getpid(), 9)
"""


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def put(spool: Spool, size: int) -> str:
    writing = spool.begin()
    try:
        writing.write(b"x" * size)
    except BaseException:
        writing.abort()
        raise
    return writing.end().id


def test_processes_share_a_bound_and_one_that_is_killed_keeps_nothing(tmp_path: Path) -> None:
    path, most = str(tmp_path / "room"), 210_000
    makers = [
        subprocess.Popen(
            [sys.executable, "-c", _TAKES, path, str(most)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    try:
        assert [one.stdout.readline() for one in makers if one.stdout] == ["ready\n"] * 3
        for one in makers:
            assert one.stdin
            one.stdin.write("\n")
            one.stdin.flush()
        taken = [int(one.stdout.readline()) for one in makers if one.stdout]
        assert sum(taken) * 7 == most  # three times as much was asked for
        clock = Clock()
        room = Room(path, most, lambda: 0, clock)
    finally:
        for one in makers:
            one.communicate("\n")
    assert [one.returncode for one in makers] == [-9] * 3
    assert room.used() == most
    assert room.take(most)  # what nobody has written is no more than a look away
    assert not room.take(1)
    room.give_back(most)
    assert room.take(most)


def test_a_count_that_refuses_is_measured_again_but_not_each_time(tmp_path: Path) -> None:
    clock, looks = Clock(), list[int]()
    room = Room(str(tmp_path / "room"), 10, lambda: looks.append(1) or 0, clock)
    assert room.take(10)
    assert not any(room.take(1) for _ in range(5))
    assert len(looks) == 1
    clock.now = 60.0  # another process took it and was killed: nothing is there
    assert room.take(1)
    assert len(looks) == 2


@pytest.mark.parametrize("found", [b"", b"x" * 24, b"y" * 5])
def test_a_count_that_cannot_be_read_is_made_anew(tmp_path: Path, found: bytes) -> None:
    room = Room(str(tmp_path / "room"), 10, lambda: 6)
    assert room.take(4)
    (tmp_path / "room").write_bytes(found)
    assert not room.take(5)
    assert room.take(4)
    assert room.used() == 10


def test_what_happens_while_somebody_measures_is_counted(tmp_path: Path) -> None:
    path = str(tmp_path / "room")
    other = Room(path, 100, lambda: 50)
    assert other.take(5)

    def there() -> int:
        assert other.take(7)
        return 50

    first = Room(path, 100, there)
    first.measure()
    assert first.used() == 57

    def overtaken() -> int:
        other.measure()
        return 50

    Room(path, 100, overtaken).measure()  # two who began with the same count do not add up
    assert first.used() == 50


def test_threads_share_it(tmp_path: Path) -> None:
    room = Room(str(tmp_path / "room"), 500, lambda: 0)
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lambda _: room.take(1), range(1000))) == 500


def test_uploads_to_two_processes_share_a_spool(tmp_path: Path) -> None:
    one, two = (Spool(str(tmp_path / "spool"), most_bytes=1000, upload_bytes=1000) for _ in range(2))
    put(one, 100)
    kept = put(two, 500)
    with pytest.raises(SpoolFull, match="holds 600 bytes and takes no more than 1000"):
        put(one, 500)
    one.remove(kept)
    put(two, 500)


def test_what_waits_for_the_database_takes_room_and_gives_it_back(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "spool"), most_bytes=1000, upload_bytes=1000)
    for _ in range(20):
        spool.put_pending("d1", b"x" * 400)
    with pytest.raises(SpoolFull):
        put(spool, 700)
    spool.drop_pending("d1")
    put(spool, 700)


def test_what_a_killed_process_had_in_hand_comes_back_when_it_is_tidied_away(tmp_path: Path) -> None:
    gone = (
        "import os, sys\nfrom diagnose.service.spool import Spool\n"
        "spool = Spool(sys.argv[1], most_bytes=1000, upload_bytes=1000)\n"
        "writing = spool.begin()\nwriting.write(b'x' * 300)\nspool.take(600)\nos.kill(os.getpid(), 9)\n"
    )
    ran = subprocess.run([sys.executable, "-c", gone, str(tmp_path / "spool")], check=False)
    assert ran.returncode == -9
    spool = Spool(str(tmp_path / "spool"), most_bytes=1000, upload_bytes=1000)
    put(spool, 600)
    spool.take(100)  # and this is never written
    spool.tidy()
    put(spool, 200)


def test_streams_of_two_processes_share_a_spool(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    rooms = [StreamRoom(str(tmp_path), 100) for _ in range(2)]
    rooms[0].take(60)
    (tmp_path / "job" / "log").write_bytes(b"x" * 60)
    with pytest.raises(StreamsFull, match="take 60 bytes and may take no more than 100"):
        rooms[1].take(60)
    rooms[0].give_back(60)
    rooms[1].take(60)
