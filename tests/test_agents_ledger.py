"""The account of tokens is one for all processes, and survives what happens to them."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from diagnose.agents.ledger import Ledger, LedgerError

DAY = 86_400.0


def script(body: str, path: Path, *, wait: bool = True) -> subprocess.Popen[str]:
    """A process of its own that uses a ledger."""
    code = "from diagnose.agents.ledger import Ledger\nimport sys, time\nledger = Ledger(sys.argv[1])\n"
    process = subprocess.Popen(
        [sys.executable, "-c", code + textwrap.dedent(body), str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    if wait:
        process.wait(60)
    return process


def test_many_at_once_never_exceed_the_day(tmp_path: Path) -> None:
    path = tmp_path / "llm.sqlite3"
    body = "print(sum(ledger.reserve(10, 1000) is not None for _ in range(60)), end='')"
    processes = [script(body, path, wait=False) for _ in range(4)]
    granted = [int(process.communicate(timeout=120)[0]) for process in processes]
    assert sum(granted) == 100
    assert Ledger(str(path)).used() == 1_000


def test_threads_share_one(tmp_path: Path) -> None:
    for ledger in (Ledger(str(tmp_path / "llm.sqlite3")), Ledger()):
        with ThreadPoolExecutor(8) as pool:
            granted = list(pool.map(lambda _, ledger=ledger: ledger.reserve(10, 500) is not None, range(80)))
        assert sum(granted) == 50


def test_who_is_killed_leaves_what_was_put_down(tmp_path: Path) -> None:
    path = tmp_path / "llm.sqlite3"
    process = script("ledger.reserve(700, 1000); print('ready', flush=True); time.sleep(60)", path, wait=False)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    process.stdout.close()
    ledger = Ledger(str(path))
    assert ledger.used() == 700
    assert ledger.reserve(400, 1_000) is None


def test_a_day_ends(tmp_path: Path) -> None:
    now = [1_000 * DAY]
    ledger = Ledger(str(tmp_path / "llm.sqlite3"), lambda: now[0])
    day = ledger.reserve(100, 100)
    assert day is not None
    assert ledger.reserve(1, 100) is None
    now[0] += DAY
    assert ledger.reserve(60, 100) is not None
    ledger.settle(day, 100, 40)  # goes to the day it was put down to
    assert ledger.used() == 60
    now[0] -= DAY
    assert ledger.used() == 40


def test_answers_are_kept_a_while(tmp_path: Path) -> None:
    now = [1_000 * DAY]
    ledger = Ledger(str(tmp_path / "llm.sqlite3"), lambda: now[0])
    ledger.keep("k", "{}")
    assert ledger.answer("k") == "{}"
    assert ledger.answer("other") is None
    now[0] += 31 * DAY
    assert ledger.answer("k") is None


def test_it_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "folder" / "llm.sqlite3"
    Ledger(str(path)).keep("k", "{}")
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0


def test_a_file_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "damaged").write_bytes(b"SQLite format 3\0" + b"\xff" * 5_000)
    for place in ("file/llm.sqlite3", "damaged", ".", "file/geheim", "geheim" * 1_000):
        ledger = Ledger(str(tmp_path / place))
        with pytest.raises(LedgerError, match="DIAGNOSE_LLM_STATE") as raised:
            ledger.reserve(1, 10)
        assert "geheim" not in str(raised.value)  # a setting's value that is no file may be a password
        ledger.keep("k", "{}")  # no harm
        assert ledger.answer("k") is None
        assert ledger.dialect("s") is None


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    path = tmp_path / "llm.sqlite3"
    ledger = Ledger(str(path))
    assert ledger.reserve(1, 10)
    with sqlite3.connect(path) as base:
        base.execute("CREATE TRIGGER full BEFORE UPDATE ON usage BEGIN SELECT RAISE(ABORT, 'disk is full'); END")
    base.close()
    with pytest.raises(LedgerError, match="disk is full"):
        ledger.reserve(1, 10)
