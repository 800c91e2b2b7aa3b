"""What is acknowledged is on disk: the bytes and the names of their files were synced before anybody was told.

A kill does not tell (the kernel keeps what a dead process wrote); the loss of power would. So the calls are watched.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from diagnose.keeping import Keeping
from diagnose.models import RuleSet
from diagnose.service.spool import Spool
from diagnose.service.streams import Chunk, JobKey, Streams
from tests.serving import KEY_ERROR

JOB = JobKey("p", "gx", "4711")


class Disk:
    """What was synced when: a path as it is now, and how large it was then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced: dict[tuple[int, int], int] = {}
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._watched(getattr(os, name)))

    def _watched(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def sync(descriptor: int) -> None:
            real(descriptor)
            about = os.fstat(descriptor)
            self.synced[(about.st_dev, about.st_ino)] = about.st_size

        return sync

    def holds(self, path: Path) -> bool:
        """Whether a file was synced with all that it holds, and the directory that names it was as well."""
        about, folder = path.stat(), path.parent.stat()
        named = (folder.st_dev, folder.st_ino) in self.synced
        return named and self.synced.get((about.st_dev, about.st_ino)) == about.st_size


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_a_chunk_is_on_disk_when_it_is_acknowledged(tmp_path: Path, rule_set: RuleSet, disk: Disk) -> None:
    streams = Streams(str(tmp_path), lambda: Keeping(rule_set))
    known = 0
    for line in KEY_ERROR.encode().splitlines(keepends=True):
        known = streams.append(JOB, Chunk("ranks/r0.log", line, known)).offset
        raw = list(tmp_path.rglob("*.raw.*"))
        assert sum(path.stat().st_size for path in raw) == known
        assert all(disk.holds(path) for path in raw)
    assert all(disk.holds(path) for path in tmp_path.rglob("state"))
    streams.close()


def test_that_a_job_has_ended_is_on_disk_when_it_is_acknowledged(tmp_path: Path, rule_set: RuleSet, disk: Disk) -> None:
    streams = Streams(str(tmp_path), lambda: Keeping(rule_set))
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    streams.endings.end(JOB, '{"exit": {"code": 1}}')
    new = [path for path in tmp_path.rglob("*") if path.is_file() and path not in before and path.stat().st_size]
    assert new
    assert all(disk.holds(path) for path in new)
    streams.close()


def test_an_upload_and_a_job_of_the_journal_are_on_disk_when_they_are_acknowledged(tmp_path: Path, disk: Disk) -> None:
    spool = Spool(str(tmp_path / "spool"), most_bytes=1 << 20, upload_bytes=1 << 20)
    writing = spool.begin()
    writing.write(KEY_ERROR.encode())
    assert disk.holds(Path(spool.path(writing.end().id)))
    spool.put_pending("d" + "0" * 24, b"{}")
    (pending,) = (tmp_path / "spool" / "pending").iterdir()
    assert disk.holds(pending)
