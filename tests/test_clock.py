"""When the time limit bites: ends are still read, what is not read is said, and nothing waits without a word."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import threading
from pathlib import Path

import pytest

from diagnose import Limits, Settings, diagnose
from diagnose import clock as clock_module
from diagnose.clock import Clock
from diagnose.errors import LimitExceeded, SourceError
from diagnose.models import Report
from diagnose.sources import collect
from diagnose.sources.ending import Ending
from diagnose.sources.streams import Memory

ROUTINE = "".join(f"2026-03-01 10:00:00 INFO train: step {step} loss=0.5\n" for step in range(60_000))
FAILURE = "Traceback (most recent call last):\n  File \"train.py\", line 5, in main\n    d['role']\nKeyError: 'role'\n"


class Stopped:
    """A clock that stands where a test has put it, as a share of the limit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.share = 0.0
        monkeypatch.setattr(Clock, "elapsed", property(lambda clock: self.share * clock.seconds))

    def after(self, calls: int, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
        """Stand at `share` once the clock was looked at so many times."""
        left = [calls]

        def elapsed(clock: Clock) -> float:
            left[0] -= 1
            return (share if left[0] < 0 else 0.0) * clock.seconds

        monkeypatch.setattr(Clock, "elapsed", property(elapsed))


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> Stopped:
    monkeypatch.setattr(clock_module, "_END_BYTES", 32 * 1024)
    return Stopped(monkeypatch)


def _diagnosed(*paths: Path) -> Report:
    return diagnose([str(path) for path in paths], settings=Settings(limits=Limits(block_bytes=32 * 1024)))


def test_the_end_of_a_log_is_read_when_time_runs_short(
    tmp_path: Path, stopped: Stopped, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "train.log"
    log.write_text(ROUTINE + FAILURE)
    stopped.after(12, 0.85, monkeypatch)
    report = _diagnosed(log)
    assert report.error_type == "KeyError"
    assert report.coverage.sources[0].truncated
    assert "bytes between beginning and end" in " ".join(report.coverage.not_read)
    assert report.root_cause is not None
    assert report.root_cause.evidence[0].line is None
    assert report.progress.last_step == 59_999


def test_every_source_left_shows_its_beginning_and_its_end(tmp_path: Path, stopped: Stopped) -> None:
    for rank in range(3):
        (tmp_path / f"rank{rank}.log").write_text(ROUTINE + (FAILURE if rank == 2 else ""))
    paths = sorted(tmp_path.iterdir())
    sources = collect([str(path) for path in paths], limits=Limits(block_bytes=32 * 1024))
    stopped.share = 0.85
    for item in sources.inputs:
        data = b"".join(item.blocks())
        assert data.startswith(b"2026-03-01 10:00:00 INFO train: step 0 ")
        assert b"step 59999 " in data
        assert item.left_out() > 2_000_000
        assert sum(not line.startswith(b"2026") for line in data.splitlines()) <= 5  # the failure, one torn line


def test_nothing_is_read_when_all_of_the_time_is_over(tmp_path: Path, stopped: Stopped) -> None:
    log = tmp_path / "train.log"
    log.write_text(ROUTINE + FAILURE)
    stopped.share = 0.95
    report = _diagnosed(log)
    assert report.status == "inconclusive"
    assert "not at all" in " ".join(report.coverage.not_read)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "utf-8"])
def test_the_lines_of_an_end_are_whole_in_every_encoding(tmp_path: Path, stopped: Stopped, encoding: str) -> None:
    log = tmp_path / "train.log"
    log.write_bytes("".join(f"line {number} of many\n" for number in range(20_000)).encode(encoding))
    sources = collect([str(log)], limits=Limits(block_bytes=16 * 1024))
    stopped.share = 0.85
    lines = b"".join(sources.inputs[0].blocks()).decode().split("\n")
    assert lines[-2:] == ["line 19999 of many", ""]
    torn = [line for line in lines[:-1] if not (line.startswith("line ") and line.endswith(" of many"))]
    assert len(torn) <= 1  # where the beginning ends


def test_packed_sources_are_expanded_to_their_end(tmp_path: Path, stopped: Stopped) -> None:
    log, archive = tmp_path / "train.log.gz", tmp_path / "logs.tar"
    log.write_bytes(gzip.compress((ROUTINE + FAILURE).encode()))
    with tarfile.open(archive, "w") as tar:
        info = tarfile.TarInfo("rank0.log")
        info.size = len(ROUTINE + FAILURE)
        tar.addfile(info, io.BytesIO((ROUTINE + FAILURE).encode()))
    sources = collect([str(log), str(archive)], limits=Limits(block_bytes=32 * 1024))
    stopped.share = 0.85
    for item in sources.inputs:
        assert b"".join(item.blocks()).endswith(FAILURE.encode())
        assert item.left_out()


def test_a_packed_end_that_cannot_be_reached_is_said(stopped: Stopped, monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(Memory):
        def read(self, size: int, /) -> bytes:
            return b"x" * (size - 1) + b"\n"

    stopped.share = 0.85
    monkeypatch.setattr(Clock, "share", lambda _clock: 0.0)
    ending = Ending(Endless(b""), "big.gz", None, Clock(60))
    given = [ending.read(65_536), ending.read(65_536)]
    with pytest.raises(LimitExceeded, match=r"big\.gz: .*not read"):
        given += [ending.read(65_536) for _ in range(1000)]
    assert all(given)


def test_archives_are_not_listed_for_longer_than_half_of_the_time(tmp_path: Path, stopped: Stopped) -> None:
    archive = tmp_path / "logs.tar"
    with tarfile.open(archive, "w") as tar:
        for rank in range(5):
            info = tarfile.TarInfo(f"rank{rank}.log")
            info.size = len(FAILURE)
            tar.addfile(info, io.BytesIO(FAILURE.encode()))
    stopped.share = 0.6
    sources = collect([str(archive)], limits=Limits())
    assert len(sources.inputs) == 1
    assert "left no time" in " ".join(sources.not_read)


def test_a_pipe_without_a_writer_is_told_and_given_up(tmp_path: Path, stopped: Stopped) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    told: list[str] = []
    stopped.share = 0.85
    with pytest.raises(SourceError, match="time limit"):
        collect([str(pipe)], limits=Limits(), on_wait=told.append)
    assert len(told) == 1
    assert "a writer of the pipe" in told[0]


def test_a_pipe_gives_what_is_written_to_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(FAILURE,))
    writer.start()
    sources = collect([str(pipe)], limits=Limits())
    assert b"".join(sources.inputs[0].blocks()) == FAILURE.encode()
    writer.join()


def test_the_verdict_has_its_part_however_long_reading_took(monkeypatch):
    assert Clock(100.0).rest().seconds == pytest.approx(100.0, abs=1.0)
    clock = Clock(100.0)
    monkeypatch.setattr(Clock, "elapsed", property(lambda _self: 130.0))
    assert clock.rest().seconds == pytest.approx(10.0)
    assert Clock(-1.0).rest().seconds == 1.0
