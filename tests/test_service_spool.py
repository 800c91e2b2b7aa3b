"""Bytes that strangers send: they lie where they should, within bounds, and are there when they were acknowledged."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from diagnose.service.spool import Spool, SpoolError, SpoolFull, TooLarge
from diagnose.service.work import place


def spool_in(folder: Path, *, most: int = 1000, upload: int = 100) -> Spool:
    return Spool(str(folder / "spool"), most_bytes=most, upload_bytes=upload)


def put(spool: Spool, data: bytes) -> str:
    writing = spool.begin()
    writing.write(data)
    return writing.end().id


def test_what_is_stored_is_there_for_its_owner_alone(tmp_path: Path) -> None:
    spool = spool_in(tmp_path)
    name = put(spool, b"log")
    assert Path(spool.path(name)).read_bytes() == b"log"
    assert [oct(os.stat(path).st_mode & 0o077) for path in (spool.folder, spool.path(name))] == ["0o0"] * 2
    assert [one for one, _ in spool.uploads()] == [name]
    spool.remove(name)
    assert not list(spool.uploads())


def test_bounds_leave_nothing_behind(tmp_path: Path) -> None:
    spool = spool_in(tmp_path, most=250)
    large = spool.begin()
    with pytest.raises(TooLarge):
        large.write(b"x" * 101)
    large.abort()
    kept = [put(spool, b"x" * 100) for _ in range(2)]
    more = spool.begin()
    with pytest.raises(SpoolFull):
        more.write(b"x" * 100)
    more.abort()
    assert not list((tmp_path / "spool" / "parts").iterdir())
    spool.remove(kept[0])
    put(spool, b"x" * 100)
    assert len(list(spool_in(tmp_path, most=250).uploads())) == 2


@pytest.mark.parametrize("name", ["../../etc/passwd", "u/../x", "", "u\0", "/etc", "u" * 200])
def test_a_name_is_never_a_path(tmp_path: Path, name: str) -> None:
    spool = spool_in(tmp_path)
    for use in (spool.path, spool.pending_bytes, spool.drop_pending, lambda one: spool.put_pending(one, b"")):
        with pytest.raises(SpoolError):
            use(name)


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("ranks/r0.log", "ranks/r0.log"),
        ("/etc/passwd", "etc/passwd"),
        ("../../a.log", "a.log"),
        ("..", "log"),
        ("-", "./-"),
        ("a//./b", "a/b"),
    ],
)
def test_names_of_logs_stay_within_their_folder(tmp_path: Path, name: str, where: str) -> None:
    assert place(str(tmp_path), name) == where


def test_two_logs_of_one_name_are_two_files(tmp_path: Path) -> None:
    for expected in ("a.log", "2/a.log", "3/a.log"):
        found = place(str(tmp_path), "a.log")
        assert found == expected
        (tmp_path / found).write_text("")
    (tmp_path / "b").write_text("")
    assert place(str(tmp_path), "b/c.log") == "2/b/c.log"


def test_thousands_of_one_name_are_placed_without_looking_at_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    there = os.path.lexists
    monkeypatch.setattr(os.path, "lexists", lambda path: looked.append(path) or there(path))
    for number in range(1, 600):
        found = place(str(tmp_path), "a.log")
        assert found == (f"{number}/a.log" if number > 1 else "a.log")
        (tmp_path / found).write_text("")
    assert len(looked) < 600 * 24


def test_a_long_name_is_cut(tmp_path: Path) -> None:
    found = place(str(tmp_path), "é" * 400 + ".log")
    (tmp_path / found).write_text("")
    assert found.endswith(".log")


def test_what_waits_for_the_database_is_kept_once(tmp_path: Path) -> None:
    spool = spool_in(tmp_path)
    for _ in range(2):
        spool.put_pending("d1", b"one")
    spool.put_pending("d2", b"two")
    assert [spool.pending_bytes(name) for name in spool.pending()] == [b"one", b"two"]
    spool.drop_pending("d1")
    spool.drop_pending("d1")
    assert spool.pending() == ["d2"]
    assert spool.pending_bytes("d1") is None


def test_what_was_left_half_made_goes_after_a_while(tmp_path: Path) -> None:
    spool = spool_in(tmp_path)
    half = spool.begin()
    half.write(b"x")
    (part,) = (tmp_path / "spool" / "parts").iterdir()
    spool.tidy()
    assert part.exists()
    os.utime(part, (time.time() - 7200,) * 2)
    with spool.work("d1") as folder:
        os.utime(folder, (time.time() - 7200,) * 2)
        spool.tidy()
        assert part.exists()  # somebody has both in hand, whatever the clock says
        assert os.path.isdir(folder)
    half._file.close()  # its process was killed
    os.utime(part, (time.time() - 7200,) * 2)
    spool.tidy()
    assert not part.exists()
    half.abort()


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk: the system refuses in the same place."""
    code = (
        "import signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from diagnose.service.spool import Spool, SpoolFull\n"
        f"writing = Spool({str(tmp_path / 's')!r}, most_bytes=1 << 30, upload_bytes=1 << 30).begin()\n"
        "try:\n    writing.write(b'x' * 100000); writing.end()\n"
        "except SpoolFull as error:\n    writing.abort(); print(error)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
    )  # fmt: skip
    assert "is full; make room" in ran.stdout, ran.stderr
    assert not list((tmp_path / "s" / "parts").iterdir())


def test_a_spool_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("")
    with pytest.raises(SpoolError, match="DIAGNOSE_SPOOL"):
        spool_in(tmp_path)
