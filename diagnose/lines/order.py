"""Blocks of a source in; the same blocks out, or, for a newest-first export of a log viewer, its lines oldest first.

Only the first block is looked at to decide; a source in natural order passes through untouched and undelayed.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator

from diagnose.errors import LimitExceeded, SourceError
from diagnose.models import LogSource
from diagnose.patterns import Lazy
from diagnose.settings import Limits

_LOOKED_BYTES = 128 * 1024
_LOOKED_LINES = 600
_HEAD_BYTES = 120
_MIN_FALLING = 4
# For each step up at least this many steps down: interleaved writers, skewed clocks and restarts step both ways.
_FALLING_PER_RISING = 12

_MONTHS = {
    name: b"%02d" % number
    for number, name in enumerate(
        (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"), start=1
    )
}
_DATED = Lazy(
    rb"(?:^|[^0-9])([12][0-9]{3})[-/]([0-9]{2})[-/]([0-9]{2})[ T_:-]{1,3}([0-9]{2}):([0-9]{2}):([0-9]{2})"
    rb"(?:[.,]([0-9]{1,9}))?"
)
_SYSLOG = Lazy(
    rb"(?:^|[^A-Za-z])(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}([0-9]{1,2})"
    rb" ([0-9]{2}):([0-9]{2}):([0-9]{2})"
)
_EPOCH = Lazy(rb"^[\[\"]?(1[0-9]{9})(?:\.?([0-9]{3,9}))?[\]\",\s]")
_UPTIME = Lazy(rb"^(?:<[0-9]{1,3}>)?\[ {0,8}([0-9]{1,9})\.([0-9]{6})\]")
_FIELD = Lazy(
    rb'"(?:time|ts|timestamp|@timestamp|asctime|__REALTIME_TIMESTAMP|_SOURCE_REALTIME_TIMESTAMP|datetime)": ?"?'
    rb"([12][0-9:.T /-]{9,30})"
)
_MARKS = b"0123456789"
_NOT_DIGITS = bytes(c for c in range(256) if c not in _MARKS)
_ALIKE = bytes.maketrans(b"3456789", b"0000000")  # no stamp asks for one of these digits
_TABLE_HEADER = Lazy(rb'^#|^[^0-9]{0,40}\b(?:timestamp|time|date|tsns)\b"?,', re.IGNORECASE)


class Restored:
    """A source in the order of time.

    `blocks` yields its bytes. Once the first block was yielded, `reversed` says whether the lines were turned round;
    then `original` gives the number that a line has in the file. `too_large`: newest first, but beyond the limit, and
    so left as it is.
    """

    def __init__(self, source: LogSource, blocks: Iterator[bytes], limits: Limits) -> None:
        self.reversed = False
        self.too_large = False
        self._source = source
        self._limits = limits
        self._numbers: array[int] = array("L")
        self.blocks: Iterator[bytes] = self._restore(blocks)

    def original(self, number: int, total: int) -> int:
        """The 1-based number in the file of line `number` of the `total` lines that `blocks` gave."""
        if not self.reversed:
            return number
        if 1 <= number <= len(self._numbers):
            return self._numbers[number - 1]
        return max(1, total + 1 - number)

    def _restore(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        first = next(blocks, None)
        if first is None:
            return
        if not newest_first(first):
            yield first
            yield from blocks
            return
        gathered = [first]
        size = len(first)
        broken: SourceError | None = None
        try:
            for block in blocks:
                gathered.append(block)
                size += len(block)
                if size > self._limits.structured_bytes:
                    self.too_large = True
                    break
        except SourceError as error:
            # What came before the break is good and is given in its right order.
            broken = error
        if self.too_large:
            yield from gathered
            gathered.clear()
            yield from blocks
            raise LimitExceeded(
                f"{self._source.name}: its lines stand newest first and are more than "
                f"{self._limits.structured_bytes} bytes; they were read as they stand, give it oldest first"
            )
        data = b"".join(gathered)
        gathered.clear()
        lines = data.split(b"\n")
        if lines and not lines[-1]:
            lines.pop()
        del data
        order = _order(lines)
        self._numbers = array("L", (index + 1 for index in order))
        self.reversed = True
        yield from _in_blocks(lines, order, self._limits.block_bytes)
        if broken is not None:
            raise broken


def restore(source: LogSource, blocks: Iterator[bytes], limits: Limits) -> Restored:
    """The source's blocks in the order of time; see `Restored`. Reads nothing before `blocks` is asked."""
    return Restored(source, iter(blocks), limits)


def newest_first(block: bytes) -> bool:
    """Whether the stamps of a source's first lines fall, clearly and often."""
    lines = block[:_LOOKED_BYTES].split(b"\n", _LOOKED_LINES)[:_LOOKED_LINES]
    rising = falling = 0
    previous: tuple[int, bytes] | None = None
    first: tuple[int, bytes] | None = None
    unstamped: set[bytes] = set()
    for line in lines:
        masked = line[:_HEAD_BYTES].translate(_ALIKE) if line[:1] != b"{" else b""
        if masked in unstamped:
            continue
        key = stamp_key(line)
        if key is None:
            if masked:
                unstamped.add(masked)
            continue
        if previous is not None and previous[0] == key[0]:
            # Fractions may be missing on whole seconds: what both have is compared.
            size = min(len(previous[1]), len(key[1]))
            if key[1][:size] < previous[1][:size]:
                falling += 1
            elif key[1][:size] > previous[1][:size]:
                rising += 1
                if rising > _MIN_FALLING and rising > falling:
                    return False
        previous = key
        first = first or key
    return (
        falling >= _MIN_FALLING
        and rising * _FALLING_PER_RISING <= falling
        and first is not None
        and previous is not None
        and previous < first
    )


def stamp_key(line: bytes) -> tuple[int, bytes] | None:
    """The kind of a line's stamp, and digits that sort as its time does among stamps of that kind."""
    if line[:1] == b"{":
        found = _FIELD.search(line, 0, 4096)
        if found:
            return 0, found.group(1).translate(None, _NOT_DIGITS)
    head = line[:_HEAD_BYTES]
    found = _DATED.search(head)
    if found:
        return 1, b"".join(group or b"" for group in found.groups())
    found = _UPTIME.match(head)
    if found:
        return 2, found.group(1).rjust(10, b"0") + found.group(2)
    found = _EPOCH.match(head)
    if found:
        return 3, found.group(1) + (found.group(2) or b"")
    found = _SYSLOG.search(head)
    if found:
        month, day, hour, minute, second = found.groups()
        return 4, _MONTHS[month] + day.rjust(2, b"0") + hour + minute + second
    return None


def _order(lines: list[bytes]) -> list[int]:
    """The indexes of `lines`, oldest first: entry by entry, or line by line where entries were torn apart."""
    header = 1 if lines and _TABLE_HEADER.match(lines[0]) else 0
    keys = [stamp_key(line) for line in lines]
    whole = _keeps(lines, keys, ties=False)
    ties = _keeps(lines, keys, ties=True)
    starts: list[int] = []
    previous: tuple[int, bytes] | None = None
    for index in range(header, len(lines)):
        key = keys[index]
        if key is None:
            if not whole or not starts:
                starts.append(index)
            continue
        if not (ties and key == previous):
            starts.append(index)
        previous = key
    order = list(range(header))
    end = len(lines)
    for start in reversed(starts):
        order.extend(range(start, end))
        end = start
    return order


def _keeps(lines: list[bytes], keys: list[tuple[int, bytes] | None], *, ties: bool) -> bool:
    """Whether lines without a stamp (or, `ties`, with the stamp of the line before) stand behind it in natural order.

    Frames come after the line that announces them; where they come before it, the run stands upside down. Without any
    traceback, runs that begin with indented lines are messages that were kept whole.
    """
    natural = upside_down = indented = flush = 0
    announced = frames = False
    previous: tuple[int, bytes] | None = None
    opener: bytes = b""
    for line, key in zip(lines, keys, strict=True):
        joined = (key is not None and key == previous) if ties else key is None
        if not joined:
            announced = _announces(line)
            frames = _frame(line)
            opener = line
        else:
            if _frame(line):
                natural += announced
                frames = True
            elif _announces(line):
                upside_down += frames
                announced, frames = True, False
            if opener and key is None:
                indented += line[:1] in (b" ", b"\t")
                flush += line[:1] not in (b" ", b"\t", b"")
            opener = b""
        if key is not None:
            previous = key
    if natural != upside_down:
        return natural > upside_down
    return indented > flush


def _announces(line: bytes) -> bool:
    return b"Traceback (most recent call last" in line or b"(most recent call first)" in line


def _frame(line: bytes) -> bool:
    return b'  File "' in line or b"frame #" in line


def _in_blocks(lines: list[bytes], order: list[int], block_bytes: int) -> Iterator[bytes]:
    """The lines in that order, each ended, as blocks of about `block_bytes`."""
    out: list[bytes] = []
    size = 0
    for index in order:
        out.append(lines[index])
        size += len(lines[index]) + 1
        if size >= block_bytes:
            yield b"\n".join(out) + b"\n"
            out = []
            size = 0
    if out:
        yield b"\n".join(out) + b"\n"
