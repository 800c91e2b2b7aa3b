"""A stream of which, once time is short, only the end is still read: that is where failures stand.

In: a stream and the clock. Out: the same stream, or its beginning, an end of line, and its last whole lines.
"""

from __future__ import annotations

import codecs
import time
from collections import deque
from typing import Protocol, runtime_checkable

from diagnose.clock import Clock
from diagnose.errors import LimitExceeded, SourceError
from diagnose.sources.streams import READ_BYTES, ByteStream

_WIDTHS = {"utf-16": 2, "utf-32": 4}
_BIG = (codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)


@runtime_checkable
class Leaping(Protocol):
    """What comes to its end without reading what stands before."""

    def leap(self, size: int, /) -> int:
        """Go on at the last `size` bytes, or up to three before; return how many were left out, 0 for none."""
        ...


class Ending:
    """Reads a stream to its end, or leaps there when time is short; `left_out` counts the bytes between."""

    def __init__(self, stream: ByteStream, name: str, encoding: str | None, clock: Clock) -> None:
        self._stream, self._name, self._encoding, self._clock = stream, name, encoding, clock
        self._head = self._ahead = b""
        self._position = 0
        self._leapt = False
        self._error: SourceError | None = None
        self.left_out = 0

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; raise `LimitExceeded` in place of an end that was not reached in time."""
        if self._clock.short and not self._leapt:
            # What is opened only now shows its beginning first: it tells who wrote the source, and where.
            if not self._position:
                return self._taken(min(size, self._clock.end_bytes))
            self._leapt = True
            self._leap(self._clock.end_bytes)
        if self._ahead:
            data, self._ahead = self._ahead[:size], self._ahead[size:]
            return data
        if self._error is not None:
            raise self._error
        return self._taken(size)

    def _taken(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._head = self._head or data[:4]
        self._position += len(data)
        return data

    def _leap(self, size: int) -> None:
        if isinstance(self._stream, Leaping):
            self.left_out = self._stream.leap(size)
            if not self.left_out:
                return
        self._drain(size)
        if self.left_out:
            self._ahead = self._whole_lines(self._ahead)

    def _drain(self, size: int) -> None:
        """Read on to the end and keep what stands last."""
        until = time.monotonic() + self._clock.share()
        kept: deque[bytes] = deque()
        held = 0
        try:
            while data := self._taken(READ_BYTES):
                kept.append(data)
                held += len(data)
                while held - len(kept[0]) >= size:
                    self.left_out += len(kept[0])
                    held -= len(kept.popleft())
                if time.monotonic() > until:
                    raise LimitExceeded(
                        f"{self._name}: {self._clock} was reached before its end, which could not be read alone as a "
                        "plain file's can; what stands there was not read. Unpack it, or give fewer inputs"
                    )
        except SourceError as error:
            self._error = error
        self._ahead = b"".join(kept)

    def _whole_lines(self, data: bytes) -> bytes:
        """The end without its first line, which has no beginning, behind an end of line."""
        width = _WIDTHS.get((self._encoding or "")[:6], 1)
        big = (self._encoding or "").endswith("-be") or self._head.startswith(_BIG)
        newline = b"\n".rjust(width, b"\0") if big and width > 1 else b"\n".ljust(width, b"\0")
        # Characters begin where they would have begun, counted from the start.
        first = (len(data) - self._position) % width
        place = data.find(newline, first)
        while place >= 0 and (place - first) % width:
            place = data.find(newline, place + 1)
        return newline + data[place + width if place >= 0 else first :]

    def close(self) -> None:
        """Close the stream behind."""
        self._stream.close()
