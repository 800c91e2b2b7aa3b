"""How much of a bound on bytes is taken, counted for all threads and processes that share a directory.

In: bytes about to be written, bytes that are gone. Out: whether there is room for them. The count is a small file under
a lock that dies with its process. What a process took and never wrote before it was killed stays counted until somebody
measures what is there: at a process's first use, when the janitor tidies up, and before anybody is refused.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

_FILE: Final = struct.Struct("<QQQ")  # a mark, how often it was measured, and how much is taken
_MARK: Final = 0x6469_6167_726F_6F6D
_STALE: Final = 30.0  # seconds after which a process measures again before it refuses


class Room:
    """A bound on bytes, counted in the file `path`. `measure` says how many are there."""

    def __init__(
        self, path: str, most: int, measure: Callable[[], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.most = most
        self._path, self._there, self._clock = path, measure, clock
        self._lock = threading.Lock()
        self._measuring = threading.Lock()
        self._measured: float | None = None

    def take(self, size: int) -> bool:
        """Counts bytes that are about to be written; where they have no room, says so and counts nothing."""
        if self._measured is not None and self._add(size):
            return True
        with self._measuring:  # a count that is not known, or that refuses, may be wrong
            fits = None if self._measured is None else self._add(size)
            if fits is None or (not fits and self._clock() - (self._measured or 0.0) >= _STALE):
                self._measure()
        return fits or bool(self._add(size))

    def give_back(self, size: int) -> None:
        """Counts bytes that are gone, or were not written."""
        with contextlib.suppress(OSError), self._held() as file:  # else it is right when it is measured next
            if (known := _read(file)) is not None:
                _write(file, known[0], max(0, known[1] - size))

    def used(self) -> int:
        """How much is taken."""
        with self._held() as file:
            return (_read(file) or (0, 0))[1]

    def measure(self) -> None:
        """Looks how much is there."""
        with self._measuring:
            self._measure()

    def _measure(self) -> None:
        """Looks how much is there. What others take and give back meanwhile is counted on top.

        What they write just then may be seen as well, or gone unseen: no more than that, and only until the next time.
        """
        with self._held() as file:
            known = _read(file)
            if known is None:
                _write(file, *(known := (0, 0)))
        there = self._there()
        with self._held() as file:
            now = _read(file) or known
            if now[0] == known[0]:  # else another process was quicker, and what it found is as new
                _write(file, now[0] + 1, max(0, there + now[1] - known[1]))
        self._measured = self._clock()

    def _add(self, size: int) -> bool | None:
        """Counts bytes that fit; None where it is not known whether they do."""
        with self._held() as file:
            known = _read(file)
            if known is None:
                return None
            fits = known[1] + size <= self.most
            if fits:
                _write(file, known[0], known[1] + size)
            return fits

    @contextlib.contextmanager
    def _held(self) -> Iterator[int]:
        """The file of the count, which nobody else changes meanwhile."""
        with self._lock:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield file
            finally:
                os.close(file)


def _read(file: int) -> tuple[int, int] | None:
    """How often it was measured and how much is taken; None where that is not known."""
    data = os.pread(file, _FILE.size, 0)
    if len(data) != _FILE.size:
        return None
    mark, times, used = _FILE.unpack(data)
    return (times, used) if mark == _MARK else None


def _write(file: int, times: int, used: int) -> None:
    os.pwrite(file, _FILE.pack(_MARK, times, used), 0)
