"""What one stream of a command printed, kept in a file of bounded size: its beginning and its end.

In: chunks as they come. Out: a file. Once two fifths of the bound are written, what follows goes to two files beside it
in turn, the older of which is begun anew when the younger is full; at the end they are joined behind a line that says
how much was left out. A disk that is full or gone ends the keeping, never the writer: `problem` says so.

Streams have files of their own: which of two lines on different pipes was printed first nobody knows, and a file that
pretends to would have progress come after the error that ended it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Final

_HEAD, _TAIL = 2, 1  # fifths of the bound: one beginning, and two ends in turn, of which one may be there twice
_COPY: Final = 1024 * 1024


class TeeLog:
    """A file that keeps the beginning and the end of what is put into it."""

    def __init__(self, path: str, most: int) -> None:
        self.path = path
        self.problem = ""
        self.written = 0
        self._head = most * _HEAD // 5
        self._tail = most * _TAIL // 5
        self._sizes = [0, 0]
        self._lines = [0, 0]
        self._current = 0
        self._left_out = [0, 0]  # bytes, lines
        self._files: list[int] = []
        with self._keeping():
            self._files.append(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))

    def add(self, chunk: bytes) -> None:
        """Takes what was printed."""
        while chunk and not self.problem:
            with self._keeping():
                if len(self._files) == 1:
                    part, chunk = _split(chunk, self._head - self.written)
                    self._put(0, part)
                    if chunk:
                        self._begin_tail(0)
                    continue
                part, chunk = _split(chunk, self._tail - self._sizes[self._current])
                self._put(1 + self._current, part)
                self._sizes[self._current] += len(part)
                self._lines[self._current] += part.count(b"\n")
                if chunk:
                    self._begin_tail(1 - self._current)

    def close(self) -> None:
        """Joins the parts; what cannot be joined is left as it is."""
        if not self.problem:
            with self._keeping():
                self._join()
        self._shut()

    def discard(self) -> None:
        """Leaves nothing on the disk."""
        self.problem = self.problem or "discarded"
        self._shut()
        for path in (self.path, *self._tails()):
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _tails(self) -> tuple[str, str]:
        return f"{self.path}.tail-1", f"{self.path}.tail-2"

    def _put(self, number: int, part: bytes) -> None:
        self.written += len(part)
        while part:
            part = part[os.write(self._files[number], part) :]

    def _begin_tail(self, number: int) -> None:
        """Begins one of the two last parts, over what it held before."""
        if len(self._files) <= 1 + number:
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            self._files.append(os.open(self._tails()[number], flags, 0o600))
        else:
            os.ftruncate(self._files[1 + number], 0)
            os.lseek(self._files[1 + number], 0, os.SEEK_SET)
            self._left_out[0] += self._sizes[number]
            self._left_out[1] += self._lines[number]
        self._sizes[number] = self._lines[number] = 0
        self._current = number

    def _join(self) -> None:
        """Puts the last parts behind the first."""
        if len(self._files) == 1:
            return
        left, lines = self._left_out
        if left:
            self._put(0, b"[diagnose: %d bytes, %d lines, left out here: the log is bounded]\n" % (left, lines))
        order = (1 - self._current, self._current) if len(self._files) > 2 else (0,)  # the older one first
        for number in order:
            os.lseek(self._files[1 + number], 0, os.SEEK_SET)
            while block := os.read(self._files[1 + number], _COPY):
                self._put(0, block)
            os.unlink(self._tails()[number])

    def _shut(self) -> None:
        for number in self._files:
            with contextlib.suppress(OSError):
                os.close(number)
        self._files.clear()

    @contextlib.contextmanager
    def _keeping(self) -> Iterator[None]:
        """What fails within ends the keeping."""
        try:
            yield
        except OSError as error:
            self.problem = f"{self.path}: {error.strerror or error}; the log ends there"


def _split(chunk: bytes, room: int) -> tuple[bytes, bytes]:
    """What still has room, up to an end of line where there is one, and the rest."""
    room = max(room, 0)
    if len(chunk) <= room:
        return chunk, b""
    end = max(chunk.rfind(b"\n", 0, room), chunk.rfind(b"\r", 0, room)) + 1
    return chunk[: end or room], chunk[end or room :]
