"""A disk that is really full: a small file system of its own, with what the service keeps on it."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving import KEY_ERROR
from tests.topology import site

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])
LOG = KEY_ERROR.encode()
STEPS = b"".join(b"2026-10-01 00:00:10 INFO step %d loss 2.1\n" % number for number in range(20_000))
STREAM = "/v1/jobs/-/streamed/0"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m,mode=700", "diagnose-test", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("a file system of one's own needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def full(disk: Path) -> Iterator[None]:
    """No block is left."""
    filler = disk / "filler"
    number = os.open(filler, os.O_CREAT | os.O_WRONLY)
    with contextlib.suppress(OSError):
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while os.write(number, b"x" * size):
                    pass
    os.close(number)
    yield
    filler.unlink()


@pytest.mark.parametrize("whole", [False, True], ids=["the spool's", "everything's"])
def test_what_was_acknowledged_is_there_and_the_rest_is_told(tmp_path: Path, disk: Path, whole: bool) -> None:
    database = (disk if whole else tmp_path) / "memory.sqlite3"
    with site(tmp_path, str(database), DIAGNOSE_SPOOL=str(disk / "spool"), DIAGNOSE_LATE_RANKS="1,1,5") as made:
        made.serve()
        before = made.submit("before", LOG, headers={"Prefer": "wait=60"})
        assert before.status_code == 200, made.said()
        put = f"{STREAM}/logs/train.out"
        assert made.client.put(put, params={"offset": 0}, content=STEPS[:100_000]).status_code == 200
        with full(disk):
            refused = [
                made.submit("full", STEPS + LOG),
                made.client.put(put, params={"offset": 100_000}, content=STEPS[100_000:]),
                made.client.post("/v1/uploads", params={"name": "a.log"}, content=STEPS),
            ]
            for answer in refused:
                assert answer.status_code in (503, 507), (answer.text, made.said())
                assert "retry-after" in answer.headers
                assert answer.headers["content-type"] == "application/problem+json"
            assert made.client.get("/healthz").status_code == 200
            assert made.client.get(before.headers["location"]).json()["error_type"] == "KeyError"
        assert not list((disk / "spool" / "parts").iterdir())
        known = made.client.get(put).json()["offset"]
        assert 100_000 <= known <= len(STEPS)
        again = made.submit("full", STEPS + LOG)
        assert again.status_code == 202, again.text
        assert made.client.put(put, params={"offset": known}, content=STEPS[known:] + LOG).status_code == 200
        ended = made.client.post(f"{STREAM}/end", json={"exit": {"code": 1}})
        assert ended.status_code == 202, ended.text
        for where in (again.headers["location"], ended.headers["location"]):
            assert made.final(where)["state"] == "done", made.said()
            assert made.client.get(where).json()["error_type"] == "KeyError"
