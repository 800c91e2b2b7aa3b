"""The records of a kept log: what a compressor lets through, written as it comes, and read back as it was.

In: the bytes of one log. Out: the kept log (`KeptWriter`), the same bytes however the log was cut into blocks; and of
its records the `KeptLine`s and counts again (`KeptReader`), which may be damaged or forged: every number and size is
bounded, and what does not fit ends the reading in one `SourceError`.

One record is one line: `12 text`, `-3g text`, `1gt text`, `40=rule.id text` are lines, by how far their number lies
from that of the line before, whether they are guarded, truncated or routine (`r`), and by which progress rule they
passed, or none as bars (`=` alone). `#` and seven numbers are the counts of a range (`ranges.py`), at its end; the next
begins at the line behind it. `.` ends all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import Final

from diagnose.compress.guard import Guard
from diagnose.compress.ranges import Ranges, add_counts, next_border
from diagnose.dataclass import fields
from diagnose.errors import SourceError
from diagnose.models import CompressionCounts, FilterRule, KeptLine, SourceKind
from diagnose.sources.kept import KEPT_HEAD_BYTES, first_line, kind_line

COMPRESSION: Final = 2
"""Grows when this package keeps other lines than before, by the same rules."""
END: Final = b".\n"
_RECORD: Final = re.compile(rb"(-?[0-9]{1,13})([gtr]{0,3})(?:=([!-<>-~]{0,200}))? ")
_COUNTS: Final = re.compile(rb"#(?: [0-9]{1,16}){7}")
_FLAGS: Final = {
    (b"g" if guarded else b"") + (b"t" if truncated else b"") + (b"r" if routine else b""): (
        guarded,
        truncated,
        routine,
    )
    for guarded in (False, True)
    for truncated in (False, True)
    for routine in (False, True)
}
_LAST_NUMBER: Final = 1 << 39
_MOST_BYTES: Final = 1 << 50
_RECORD_BYTES: Final = 1024 * 1024


def guard_version(guard: Guard, filters: Iterable[FilterRule]) -> str:
    """A digest of all that decides which lines are kept: whoever has the same would keep the same."""
    digest = sha256(b"%d\n" % COMPRESSION)
    for literal in guard.literals:
        digest.update(b"%d:%s" % (len(literal), literal))
    for rule in sorted(filters, key=lambda rule: rule.id):
        progress = sorted(rule.yields.progress.items()) if rule.yields is not None else []
        said = (
            rule.id,
            rule.pattern,
            *rule.keywords,
            "",
            *sorted(rule.sources),
            rule.action,
            rule.keep_first,
            rule.per,
        )
        digest.update(repr((said, progress)).encode("utf-8", "backslashreplace"))
    return digest.hexdigest()[:32]


def encoded(kept: Iterable[KeptLine], last: int, before: int = 0) -> tuple[bytes, int]:
    """The records of kept lines, and the number of the last; `before` lines stand before the first that is counted."""
    parts: list[bytes] = []
    for line in kept:
        number = line.number + before
        flags = (b"g" if line.guarded else b"") + (b"t" if line.truncated else b"")
        flags += b"r" if line.routine else b""
        rule = b"=" + line.progress.encode("ascii", "replace") if line.progress is not None else b""
        parts.append(b"%d%s%s %s\n" % (number - last, flags, rule, line.raw))
        last = number
    return b"".join(parts), last


def counts_record(counts: CompressionCounts) -> bytes:
    """The record that ends a range."""
    return b"# %s\n" % b" ".join(b"%d" % getattr(counts, each.name) for each in fields(CompressionCounts))


def range_records(blocks: Iterable[bytes], compressor: Ranges, before: int) -> Iterator[bytes]:
    """The records of one whole range, block by block; `before` lines stand before it."""
    last = before
    for block in blocks:
        data, last = encoded(compressor.feed(block), last, before)
        yield data
    data, last = encoded(compressor.finish(), last, before)
    yield data + counts_record(compressor.counts)


class KeptWriter:
    """Makes the kept log of one log that grows; `feed` until it ends, then `finish`.

    `kind` is asked once the log's first bytes are there, what kind of source it is; None says that it must be read
    whole, and then `whole` is true and nothing more is given. `compressor` begins one at a byte of the log.
    """

    def __init__(
        self,
        name: str,
        guard: str,
        kind: Callable[[bytes], SourceKind | None],
        compressor: Callable[[SourceKind, int], Ranges],
    ) -> None:
        self.whole = False
        self._begin = first_line(name, guard)
        self._kind_of, self._compressor = kind, compressor
        self._kind: SourceKind = "job"
        self._head: list[bytes] | None = []
        self._head_size = self._position = 0
        self._border = next_border(0)
        self._current: Ranges | None = None
        self._lines = self._last = 0

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes, give what they add to the kept log."""
        out, self._begin = self._begin, b""
        if self._head is not None:
            part = data[: KEPT_HEAD_BYTES - self._head_size]
            self._head.append(part)
            self._head_size += len(part)
            out += part
            if self._head_size < KEPT_HEAD_BYTES:
                return out
            head, self._head = b"".join(self._head), None
            kind = self._kind_of(head)
            self.whole = kind is None
            if kind is not None:
                self._kind = kind
                out += kind_line(kind) + self._records(head)
            data = data[len(part) :]
        return out if self.whole else out + self._records(data)

    def finish(self) -> bytes:
        """End the log, give the rest."""
        out, self._begin = self._begin, b""
        if self.whole or self._head is not None:
            return out
        return out + self._end_range() + END

    def _records(self, data: bytes) -> bytes:
        out: list[bytes] = []
        while self._position + len(data) > self._border:
            end = data.find(b"\n", max(0, self._border - self._position)) + 1
            if not end:
                break
            out.append(self._compressed(data[:end]))
            out.append(self._end_range())
            self._border = next_border(self._position)
            data = data[end:]
        if data:
            out.append(self._compressed(data))
        return b"".join(out)

    def _compressed(self, data: bytes) -> bytes:
        if self._current is None:
            self._current = self._compressor(self._kind, self._position)
        self._position += len(data)
        out, self._last = encoded(self._current.feed(data), self._last, self._lines)
        return out

    def _end_range(self) -> bytes:
        if self._current is None:  # the log ends where a range does
            return b""
        out, _ = encoded(self._current.finish(), self._last, self._lines)
        counts = self._current.counts
        self._current = None
        self._lines += counts.lines
        self._last = self._lines
        return out + counts_record(counts)


class KeptReader:
    """Reads the records of the kept log `name` from blocks of bytes; `counts` is what they have come to so far."""

    def __init__(self, blocks: Iterable[bytes], name: str) -> None:
        self.counts = CompressionCounts()
        self._blocks, self._name = blocks, name
        self._last = self._top = self._kept = self._records = 0  # `_top` is the highest number of the open range
        self._ended = False

    def lines(self) -> Iterator[list[KeptLine]]:
        """Yield the lines, some at a time; raise `SourceError` where the log is damaged or lacks its end."""
        rest = b""
        for block in self._blocks:
            data = rest + block if rest else block
            if b"\r" in block or b"\0" in block or (b"\n" not in data and len(data) > _RECORD_BYTES):
                raise self._damaged()
            records = data.split(b"\n")
            rest = records.pop()
            yield from self._read(records)
        if rest or not self._ended:
            self._open_end()
            raise SourceError(
                f"{self._name}: a kept log without its end: it broke off behind line {self._last}, and what was read "
                "since and held back is missing. Give the log itself if it is still there"
            )

    def _read(self, records: list[bytes]) -> Iterator[list[KeptLine]]:
        out: list[KeptLine] = []
        last, top, ended = self._last, self._top, self.counts.lines
        match = _RECORD.match
        try:
            for record in records:
                self._records += 1
                found = match(record)
                if found is None or self._ended:
                    self._last, self._top = last, top
                    self._mark(record, len(out))
                    last = ended = self.counts.lines
                    continue
                delta, flags, rule = found.groups()
                last += int(delta)
                if not ended < last < _LAST_NUMBER or len(record) > _RECORD_BYTES:
                    raise self._damaged()
                if last > top:  # noqa: PLR1730 - a call for each line costs more
                    top = last
                guarded, truncated, routine = _FLAGS[flags]
                progress = rule.decode("ascii") if rule is not None else None
                out.append(KeptLine(last, record[found.end() :], guarded, truncated, progress, routine))
        except (SourceError, KeyError):
            if out:
                yield out
            raise self._damaged() from None
        self._last, self._top = last, top
        self._kept += len(out)
        if out:
            yield out

    def _mark(self, record: bytes, waiting: int) -> None:
        """Take a record that is no line."""
        if record + b"\n" == END and not self._ended:
            self._ended = True
            return
        if self._ended or not _COUNTS.fullmatch(record):
            raise self._damaged()
        self.counts = add_counts(self.counts, CompressionCounts(*map(int, record[2:].split(b" "))))
        counts = self.counts
        largest = max(counts.lines, counts.dropped, counts.collapsed, counts.truncated, counts.evicted_templates)
        if (
            largest >= _LAST_NUMBER
            or counts.bytes >= _MOST_BYTES
            or counts.kept != self._kept + waiting
            or self._top > counts.lines
        ):
            raise self._damaged()
        self._last = self.counts.lines

    def _open_end(self) -> None:
        """Count what is known of the range that was open."""
        lines = max(0, self._last - self.counts.lines)
        kept = self._kept - self.counts.kept
        self.counts = add_counts(self.counts, CompressionCounts(lines=lines, kept=kept))

    def _damaged(self) -> SourceError:
        return SourceError(
            f"{self._name}: the kept log is damaged at its record {self._records}; what stands before that was used. "
            "Give the log itself"
        )
