"""A line too long to keep: its head, its tail, and what the guard wants from between.

In: the pieces of one line as they come. Out: the cut line. Memory is bounded whatever the length, and the result does
not depend on the pieces' borders: all keywords are found in the order of their places, also across borders.
"""

from __future__ import annotations

from typing import Final

from diagnose.compress.guard import Guard

WINDOW_BYTES: Final = 4096
WINDOWS: Final = 16
_STRIDE = 256 * 1024  # how much is searched at once


class LongSegment:
    """One line beyond `limit` bytes; `feed` until it ends, then `finish` once."""

    def __init__(self, guard: Guard, limit: int) -> None:
        self.guarded = False
        self._guard = guard
        self._head_bytes = limit // 2
        self._tail_bytes = max(1, limit - limit // 2)
        self._before = WINDOW_BYTES // 2
        self._after = max(WINDOW_BYTES // 2, guard.longest)
        self._head = b""
        self._buffer = bytearray()
        self._base = 0  # place in the line of the buffer's first byte
        self._searched = 0  # all keywords that start before this place are known
        self._windows: list[tuple[int, bytes]] = []
        self._covered = self._head_bytes  # windows reach to here

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the line."""
        # In strides, so that one piece of 100 MB needs no second copy of itself.
        for start in range(0, len(piece), _STRIDE):
            self._buffer += piece[start : start + _STRIDE]
            if self._base + len(self._buffer) - self._searched >= _STRIDE + self._after:
                self._search(self._base + len(self._buffer) - self._after)
                self._forget()

    def finish(self) -> bytes:
        """End the line and give what is kept of it."""
        size = self._base + len(self._buffer)
        head = self._head or bytes(self._buffer[: self._head_bytes])
        self._search(size)
        tail_start = size - self._tail_bytes
        kept = [(start, text[: max(0, tail_start - start)]) for start, text in self._windows]
        kept.append((tail_start, bytes(self._buffer[tail_start - self._base :])))
        parts = [head]
        place = self._head_bytes
        for start, text in kept:
            if not text:
                continue
            if start > place:
                parts.append(b" [... %d bytes left out ...] " % (start - place))
            parts.append(text)
            place = start + len(text)
        return b"".join(parts)

    def _search(self, end: int) -> None:
        """Find all keywords that start in [searched, end) and take what stands around them."""
        if len(self._windows) < WINDOWS or not self.guarded:
            text = bytes(self._buffer[self._searched - self._base :])
            for start, stop in self._guard.find(text):
                if self._searched + start >= end:
                    break
                self.guarded = True
                self._take(self._searched + start, self._searched + stop)
        self._searched = end

    def _take(self, start: int, stop: int) -> None:
        """Add a window around a keyword, unless head or an earlier window shows it already."""
        if stop <= self._covered or len(self._windows) == WINDOWS:
            return
        first = max(start - self._before, self._covered)
        text = bytes(self._buffer[first - self._base : start + self._after - self._base])
        self._windows.append((first, text))
        self._covered = first + len(text)

    def _forget(self) -> None:
        """Drop what neither a window nor the tail can need any more."""
        self._head = self._head or bytes(self._buffer[: self._head_bytes])
        size = self._base + len(self._buffer)
        keep_from = min(self._searched - self._before, size - self._tail_bytes)
        if keep_from > self._base:
            del self._buffer[: keep_from - self._base]
            self._base = keep_from
