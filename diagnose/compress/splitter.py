"""From blocks of bytes to lines, whatever the blocks' borders.

In: bytes in chunks of any size. Out: `Plain` runs of ordinary lines, ready for block-wise work, and `Segment`s where a
line holds `\\r` or is too long. Physical lines are counted by `\\n` alone. NUL bytes are removed, `\\r\\n` ends a line
like `\\n` does, and a segment beyond the limit is cut as `longline` says. Memory: one unfinished segment.
"""

from __future__ import annotations

from collections.abc import Iterator

from diagnose.compress.bars import is_bar
from diagnose.compress.guard import Guard
from diagnose.compress.longline import LongSegment
from diagnose.dataclass import dataclass
from diagnose.settings import Limits


class Plain:
    """Consecutive whole lines without `\\r`, none too long; `text` holds them with their ends, `first` numbers them.

    They are split when somebody asks for them. Who has counted them otherwise sets `count`, before the next is taken.
    """

    __slots__ = ("_lines", "count", "first", "text")

    def __init__(self, first: int, text: bytes, lines: list[bytes] | None = None) -> None:
        self.first = first
        self.text = text
        self.count = 0  # until it is known
        self._lines = lines

    @property
    def lines(self) -> list[bytes]:
        """The lines without their ends."""
        if self._lines is None:
            self._lines = lines_of(self.text)
            self.count = len(self._lines)
        return self._lines


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a physical line between two `\\r`, or a whole line that was too long (`truncated`).

    `guarded` says whether the part that was cut out holds a keyword; it is only set where `truncated` is.
    """

    number: int
    raw: bytes
    bar: bool = False
    truncated: bool = False
    guarded: bool = False


def lines_of(text: bytes) -> list[bytes]:
    """The lines of a text that ends one."""
    lines = text.split(b"\n")
    lines.pop()
    return lines


def _all_short(text: bytes, limit: int) -> bool:
    """Whether a few looks show that no line is longer than `limit`: each half of that many bytes ends one."""
    half = limit // 2
    return half > 0 and all(text.find(b"\n", start, start + half) >= 0 for start in range(0, len(text) - half, half))


class Splitter:
    """Splits one stream; `feed` until it ends, then `finish`."""

    def __init__(self, limits: Limits, guard: Guard, first: int = 1) -> None:
        self._limit = limits.line_bytes
        self._guard = guard
        self._number = first
        self._open = bytearray()  # of the segment being read
        self._long: LongSegment | None = None  # instead of `_open` once that is too long
        self._carriage = False  # the last chunk ended in \r, and only the next says whether \n follows
        self._parted = False  # the physical line being read has had a \r
        self._gave = False  # ... and has given a segment

    @property
    def lines(self) -> int:
        """The number of the last physical line that has ended so far."""
        return self._number - 1

    def feed(self, data: bytes) -> Iterator[Plain | Segment]:
        """Take the next bytes, give what is complete."""
        if b"\0" in data:
            data = data.replace(b"\0", b"")
        if self._carriage:
            data = b"\r" + data
            self._carriage = False
        if data.endswith(b"\r"):
            data = data[:-1]
            self._carriage = True
        if not data:
            return
        if b"\r" in data:  # a byte is found twenty times sooner than two
            data = data.replace(b"\r\n", b"\n")
        start = 0
        if self._open or self._long is not None or self._parted:
            end = data.find(b"\n")
            if end < 0:
                yield from self._part(data, ended=False)
                return
            yield from self._part(data[:end], ended=True)
            start = end + 1
        last = data.rfind(b"\n", start)
        if last >= 0:
            yield from self._whole(data[start : last + 1])
            start = last + 1
        if start < len(data):
            yield from self._part(data[start:], ended=False)

    def finish(self) -> Iterator[Segment]:
        """End the stream: a last line without its `\\n` is a line."""
        if self._carriage:
            self._carriage = False
            yield from self._part(b"\r", ended=False)
        if self._open or self._long is not None or self._parted:
            yield from self._part(b"", ended=True)

    def _whole(self, text: bytes) -> Iterator[Plain | Segment]:
        """Give the lines of a text that holds whole lines only."""
        if b"\r" not in text and _all_short(text, self._limit):
            yield from self._plain(text)
            return
        lines = lines_of(text)
        if b"\r" not in text and max(map(len, lines)) <= self._limit:
            yield from self._plain(text, lines)
            return
        start = 0
        for index, line in enumerate(lines):
            if b"\r" in line or len(line) > self._limit:
                if start < index:
                    yield from self._plain(b"\n".join(lines[start:index]) + b"\n", lines[start:index])
                yield from self._part(line, ended=True)
                start = index + 1
        if start < len(lines):
            yield from self._plain(b"\n".join(lines[start:]) + b"\n", lines[start:])

    def _plain(self, text: bytes, lines: list[bytes] | None = None) -> Iterator[Plain]:
        run = Plain(self._number, text, lines)
        yield run
        self._number += run.count or len(run.lines)

    def _part(self, text: bytes, *, ended: bool) -> Iterator[Segment]:
        """Take the next part of one physical line, and its end if that has come."""
        pieces = text.split(b"\r")
        for piece in pieces[:-1]:
            self._parted = True
            yield from self._close(piece)
        if not ended:
            self._extend(pieces[-1])
            return
        yield from self._close(pieces[-1])
        if not self._gave:
            yield Segment(self._number, b"")
        self._number += 1
        self._parted = self._gave = False

    def _extend(self, piece: bytes) -> None:
        if self._long is not None:
            self._long.feed(piece)
            return
        self._open += piece
        if len(self._open) > self._limit:
            self._long = LongSegment(self._guard, self._limit)
            self._long.feed(bytes(self._open))
            self._open.clear()

    def _close(self, piece: bytes) -> Iterator[Segment]:
        """End a segment. Empty ones say nothing and are left out."""
        if self._open or self._long is not None or len(piece) > self._limit:
            self._extend(piece)
            if self._long is not None:
                raw = self._long.finish()
                guarded = self._long.guarded
                self._long = None
                self._gave = True
                yield Segment(self._number, raw, truncated=True, guarded=guarded)
                return
            piece = bytes(self._open)
            self._open.clear()
        if piece:
            self._gave = True
            yield Segment(self._number, piece, bar=self._parted and is_bar(piece))
