"""Large sources a range at a time, so that several processes can compress one file and find the same.

In: the bytes of one source. Out: what a `Compressor` gives, begun anew at fixed places: after the first line end at or
behind every multiple of `RANGE_BYTES`. What is remembered does not cross a border; a record may: the first lines behind
one are kept as if it were open. `range_blocks` cuts one range out of a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from diagnose.compress.compressor import Compressor
from diagnose.compress.filters import Filters
from diagnose.compress.guard import Guard
from diagnose.compress.repeats import Listeners
from diagnose.compress.routine import Routine
from diagnose.models import CompressionCounts, KeptLine, LogSource
from diagnose.settings import Limits

if TYPE_CHECKING:
    from diagnose.models.learning import LineWatch

RANGE_BYTES: Final = 32 * 1024 * 1024


class Ranges:
    """Compresses one source, or one range of it, which then begins at byte `start`; a `Compressor` to its callers."""

    def __init__(
        self,
        source: LogSource,
        filters: Filters,
        guard: Guard,
        limits: Limits,
        start: int = 0,
        *,
        listeners: Listeners | None = None,
        watch: LineWatch | None = None,
        routine: Routine | None = None,
    ) -> None:
        self._begin = partial(
            Compressor, source, filters, guard, limits, listeners=listeners, watch=watch, routine=routine or Routine()
        )
        self._current = self._begin(inside=start > 0)
        self._before = CompressionCounts()  # of the ranges that have ended
        self._position = start
        self._border = next_border(start)

    @property
    def counts(self) -> CompressionCounts:
        """What has been read, kept and taken out so far, in all ranges."""
        return add_counts(self._before, self._current.counts)

    def feed(self, data: bytes) -> list[KeptLine]:
        """Take the next bytes, give the lines that are known to be kept."""
        out: list[KeptLine] = []
        while self._position + len(data) > self._border:
            end = data.find(b"\n", max(0, self._border - self._position)) + 1
            if not end:
                break
            out += self._current.feed(data[:end])
            out += self._current.finish()
            self._position += end
            self._border = next_border(self._position)
            self._before = self.counts
            self._current = self._begin(first=self._before.lines + 1, inside=True)
            data = data[end:]
        self._position += len(data)
        out += self._current.feed(data)
        return out

    def adopt(self, filters: Filters) -> None:
        """Judge by other filter rules from here on."""
        source, _, *others = self._begin.args
        self._begin = partial(Compressor, source, filters, *others, **self._begin.keywords | {"routine": Routine()})
        self._current.adopt(filters)

    def finish(self) -> list[KeptLine]:
        """End the source and give the rest."""
        return self._current.finish()


def next_border(start: int) -> int:
    """The border of the range that begins at byte `start`: it ends with the first line end at or behind it."""
    return (start - 1) // RANGE_BYTES * RANGE_BYTES + RANGE_BYTES if start else RANGE_BYTES


def add_counts(one: CompressionCounts, other: CompressionCounts) -> CompressionCounts:
    """What two parts of a source make together."""
    return CompressionCounts(
        bytes=one.bytes + other.bytes,
        lines=one.lines + other.lines,
        kept=one.kept + other.kept,
        dropped=one.dropped + other.dropped,
        collapsed=one.collapsed + other.collapsed,
        truncated=one.truncated + other.truncated,
        evicted_templates=one.evicted_templates + other.evicted_templates,
    )


def range_blocks(window: Callable[[int], Iterator[bytes]], index: int, *, last: bool) -> Iterator[tuple[int, bytes]]:
    """The blocks of one range of a file with their places in it; `window` gives the file's blocks from a byte on.

    The last range goes on to the end, wherever that is by now.
    """
    position = index * RANGE_BYTES
    end = position + RANGE_BYTES
    begun = index == 0
    for block in window(position):
        start = 0
        if not begun:
            if position >= end and not last:
                return  # a line goes on through the whole range: it has none of its own
            start = block.find(b"\n") + 1
            if start == 0:
                position += len(block)
                continue
            if position + start > end and not last:
                return
            begun = True
        stop = len(block)
        if not last and position + stop > end:
            found = block.find(b"\n", max(start, end - position))
            if found >= 0:
                yield position + start, block[start : found + 1]
                return
        if start < stop:
            yield position + start, block[start:] if start else block
        position += stop
