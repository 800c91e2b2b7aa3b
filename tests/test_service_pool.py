"""The pool of processes: what keeps one from being made, for a while, ends nothing."""

from __future__ import annotations

import io
import os
import subprocess
import threading
from typing import Any

import pytest

from diagnose.service import pool


class Process:
    """One that does at once whatever it is asked."""

    pid = 0

    def __init__(self) -> None:
        read, write = os.pipe()
        self.stdout = os.fdopen(read, "rb")
        self._answers = os.fdopen(write, "wb", 0)
        self._answers.write(b'{"ready": true}\n')
        self.stdin = self

    def write(self, asked: bytes) -> None:
        self._answers.write(b'{"id": "%s", "end": "done"}\n' % asked.strip())

    def flush(self) -> None: ...

    def close(self) -> None:
        if not self._answers.closed:
            self._answers.close()

    kill = close

    def poll(self) -> int | None:
        return None

    def wait(self, _seconds: float = 0.0) -> int:
        return 0


def test_a_process_that_cannot_be_made_is_made_later(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def started(*_: Any, **__: Any) -> Process:
        tries.append(1)
        if len(tries) in (1, 2):
            raise OSError(24, "Too many open files")
        return Process()

    said = io.StringIO()
    monkeypatch.setattr(subprocess, "Popen", started)
    monkeypatch.setattr(pool.time, "sleep", lambda _: None)
    monkeypatch.setattr(pool.sys, "stderr", said)
    ended: list[pool.Done] = []
    over = threading.Event()

    def then(done: pool.Done) -> None:
        ended.append(done)
        over.set()

    made = pool.Pool(1, {}, lambda _id, _state: None)
    for _ in range(3):
        over.clear()
        made.put("d1", then)
        assert over.wait(30)
    made.close(10)
    assert ended[-1] == pool.Done("d1", "done")
    assert "Too many open files" in said.getvalue()


def test_a_process_that_ended_leaves_no_open_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Process] = []

    def started(*_: Any, **__: Any) -> Process:
        made.append(Process())
        return made[-1]

    monkeypatch.setattr(subprocess, "Popen", started)
    monkeypatch.setattr(pool, "_JOBS", 1)  # each makes place for another after its job
    before = set(threading.enumerate())
    one = pool.Pool(1, {}, lambda _id, _state: None)
    for _ in range(4):
        over = threading.Event()
        one.put("d1", lambda _done, over=over: over.set())
        assert over.wait(30)
    one.close(10)
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
    assert len(made) > 3
    assert all(process.stdout.closed for process in made)
