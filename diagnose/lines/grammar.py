"""What the grammars of records share: how a builder answers a line, and a bounded collector of lines.

In: lines of one stream, one by one. Out: the records a builder made of them when it closes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import count, repeat
from typing import Protocol

from diagnose.models import Line, Record

# Shared by all plain lines: there is one for nearly every line that is read.
_NO_FIELDS: Mapping[str, str] = {}


class Step(Enum):
    """A builder's answer to a line of its stream."""

    TAKEN = "taken"
    FINAL = "final"  # taken, and it ends the record
    PASSED = "passed"  # not part of the record, which stays open: other writers share the stream
    REFUSED = "refused"  # not part of the record, which is over


class Builder(Protocol):
    """An open record."""

    def add(self, line: Line) -> Step:
        """Judge the next line of the stream."""
        ...

    def close(self) -> list[Record]:
        """The records made of the lines taken, in the order of their lines."""
        ...


class Lines:
    """Collects the lines of one record, at most `limit`: of longer ones the head, the tail and marked lines stay."""

    __slots__ = ("_entries", "_limit", "next")

    def __init__(self, limit: int) -> None:
        self._limit = max(limit, 4)
        self._entries: list[tuple[int, Line, bool]] = []
        self.next = 0  # the serial number of the next line

    def __len__(self) -> int:
        return self.next

    def add(self, line: Line, *, keep: bool = False) -> int:
        """Take a line and return its serial number, to be turned into an index by `finish`."""
        serial = self.next
        self._entries.append((serial, line, keep))
        self.next = serial + 1
        if len(self._entries) > 2 * self._limit:
            self._trim()
        return serial

    def extend(self, lines: Sequence[Line]) -> None:
        """Take lines in a row, as `add` would one by one."""
        place = 0
        while place < len(lines):
            some = lines[place : place + 2 * self._limit + 1 - len(self._entries)]
            self._entries.extend(zip(count(self.next), some, repeat(False)))
            self.next += len(some)
            place += len(some)
            if len(self._entries) > 2 * self._limit:
                self._trim()

    def pop_blank_tail(self) -> list[Line]:
        """Take back the blank lines at the end: they separate this record from what follows."""
        end = len(self._entries)
        while end > 1 and not self._entries[end - 1][1].body.strip() and not self._entries[end - 1][2]:
            end -= 1
        tail = [line for _, line, _ in self._entries[end:]]
        del self._entries[end:]
        return tail

    def finish(self) -> tuple[tuple[Line, ...], dict[int, int]]:
        """The lines that stay, and the index of each by serial number."""
        if len(self._entries) > self._limit:
            self._trim()
        return (
            tuple(line for _, line, _ in self._entries),
            {serial: index for index, (serial, _, _) in enumerate(self._entries)},
        )

    def _trim(self) -> None:
        head = self._limit // 2
        tail = self._limit - head
        middle = [entry for entry in self._entries[head:-tail] if entry[2]]
        room = self._limit // 4
        middle = middle[:room]
        # Marked lines take their room from the head, so that the bound holds.
        self._entries = self._entries[: head - len(middle)] + middle + self._entries[-tail:]


def plain(line: Line) -> Record:
    """A line that is part of nothing bigger."""
    return Record("line", (line,), line.text, (), (), _NO_FIELDS, line.quoted)
