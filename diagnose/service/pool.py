"""A few processes that diagnose, and what waits for them.

In: ids of submissions. Out: work done on each, once at a time, and `on_state(id, state)` for every change. A process
that dies is made anew and what it had in hand goes to the next; how often that may happen, the submission itself
counts. One that does not come back within its time is ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from diagnose.dataclass import dataclass

OnState = Callable[[str, str], None]
_JOBS: Final = 5_000  # of one process; then it is made anew, so that no leak lasts
_RESIDENT: Final = 1_500 * 1024 * 1024  # bytes; a process that keeps more after a job is made anew
_START: Final = 120.0  # seconds that a process may take to be ready
_GRACE: Final = 120.0  # beyond a job's own time, for what is asked after it


@dataclass(frozen=True, slots=True)
class Done:
    """How one piece of work ended: `done`, `again` (the database was away), `later` (the disk is full), or `died`."""

    id: str
    end: str


class Pool:
    """Processes at work until `close`."""

    def __init__(
        self, processes: int, environment: Mapping[str, str], on_state: OnState, *, job_seconds: float = 300.0
    ) -> None:
        self._environment = {**environment}
        self._on_state = on_state
        self._seconds = job_seconds + _GRACE
        self._waiting: queue.SimpleQueue[tuple[str, Callable[[Done], None] | None] | None] = queue.SimpleQueue()
        self._known: dict[str, int] = {}
        self._lock = threading.Lock()
        self._closing = False
        self._children: list[_Child | None] = [None] * processes
        self._threads = [
            threading.Thread(target=self._hand, args=(turn,), name=f"hand-{turn}", daemon=True)
            for turn in range(processes)
        ]
        for thread in self._threads:
            thread.start()

    def put(self, id: str, then: Callable[[Done], None] | None = None) -> None:
        """Has a job worked on. `then` is called when that has ended, however."""
        with self._lock:
            self._known[id] = self._known.get(id, 0) + 1
        self._waiting.put((id, then))

    def has(self, id: str) -> bool:
        """Whether a job waits or is being worked on."""
        with self._lock:
            return id in self._known

    @property
    def depth(self) -> int:
        """How many wait or are being worked on."""
        with self._lock:
            return sum(self._known.values())

    def close(self, seconds: float) -> None:
        """Ends: what is being worked on has so many seconds to end by itself; what waits is left."""
        self._closing = True
        for _ in self._threads:
            self._waiting.put(None)
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        for child in self._children:
            if child is not None:
                child.kill()
        for thread in self._threads:
            thread.join(5.0)

    def _hand(self, turn: int) -> None:
        """The life of one thread: it keeps a process and hands it one job after the other."""
        child = self._made(turn)
        while (asked := self._waiting.get()) is not None and not self._closing:
            name, then = asked
            end = "died"
            if child is None or not child.alive:
                child = self._made(turn)
            if child is not None:
                end = child.work(name, self._on_state, self._seconds)
                if end == "died":
                    child.kill()
                    child = None
                elif child.spent:
                    child.end()
                    child = None
            with self._lock:
                left = self._known.get(name, 1) - 1
                if left:
                    self._known[name] = left
                else:
                    self._known.pop(name, None)
            if then is not None:
                with contextlib.suppress(Exception):
                    then(Done(name, end))
            elif end == "died" and not self._closing:
                self.put(name)
            if child is None and not self._closing:
                child = self._made(turn)
        if child is not None:
            child.end()

    def _made(self, turn: int) -> _Child | None:
        """A process that is ready; where none can be made, none, after a while."""
        if self._closing:
            return None
        try:
            child = _Child(self._environment)
        except OSError as error:  # too many files or processes, no memory
            _say(f"no process can be made to diagnose in: {error.strerror}; tried again")
            time.sleep(1.0)
            return None
        self._children[turn] = child
        if child.ready():
            return child
        child.kill()
        time.sleep(1.0)
        return None


class _Child:
    """One process."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._jobs = 0
        self._resident = 0
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "diagnose.service.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**environment, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError, OSError), self._process.stdout as lines:  # `kill` may close them
            for line in lines:
                with contextlib.suppress(ValueError):
                    self._answers.put(json.loads(line))
        self._answers.put(None)

    def _next(self, seconds: float) -> dict[str, Any] | None:
        try:
            return self._answers.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None

    def ready(self) -> bool:
        """Waits until it is ready; False where it never will be."""
        answer = self._next(_START)
        if answer is not None and "broken" in answer:
            _say(answer["broken"])
        return answer is not None and "ready" in answer

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    @property
    def spent(self) -> bool:
        """Whether another should take its place."""
        return self._jobs >= _JOBS or self._memory() > _RESIDENT

    def _memory(self) -> int:
        try:
            with open(f"/proc/{self._process.pid}/statm", encoding="ascii") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, IndexError):
            return 0

    def work(self, id: str, on_state: OnState, seconds: float) -> str:
        """Hands it a job and waits until that ended."""
        self._jobs += 1
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{id}\n".encode())
            self._process.stdin.flush()
        except OSError:
            return "died"
        until = time.monotonic() + seconds
        while (answer := self._next(until - time.monotonic())) is not None:
            if answer.get("id") != id:
                continue
            if "end" in answer:
                return str(answer["end"])
            with contextlib.suppress(Exception):  # whoever listens must not end the work
                on_state(id, str(answer.get("state")))
        return "died"

    def end(self) -> None:
        """Lets it end by itself."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Ends it at once."""
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _say(text: str) -> None:
    """A line for whoever runs the service."""
    sys.stderr.write(json.dumps({"event": text, "level": "error", "logger": "pool"}) + "\n")
