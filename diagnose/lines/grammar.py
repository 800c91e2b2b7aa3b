"""What the grammars of records share: how a builder answers a line, and a bounded collector of lines.

In: lines of one stream, one by one. Out: the records a builder made of them when it closes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
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

    __slots__ = ("_limit", "_lines", "_marked", "_serials", "next")

    def __init__(self, limit: int) -> None:
        self._limit = max(limit, 4)
        self._lines: list[Line] = []
        self._serials: list[int] | None = None  # of the lines; None as long as each stands at the place of its number
        self._marked: set[int] = set()
        self.next = 0  # the serial number of the next line

    def __len__(self) -> int:
        return self.next

    def add(self, line: Line, *, keep: bool = False) -> int:
        """Take a line and return its serial number, to be turned into an index by `finish`."""
        serial = self.next
        self._lines.append(line)
        self.next = serial + 1
        if keep:
            self._marked.add(serial)
        if self._serials is not None:
            self._serials.append(serial)
        if len(self._lines) > 2 * self._limit:
            self._trim()
        return serial

    def extend(self, lines: Sequence[Line]) -> None:
        """Take lines in a row, as `add` would one by one."""
        if self._serials is None and len(self._lines) + len(lines) <= 2 * self._limit:
            self._lines += lines
            self.next += len(lines)
            return
        for line in lines:
            self.add(line)

    def pop_blank_tail(self) -> list[Line]:
        """Take back the blank lines at the end: they separate this record from what follows."""
        lines = self._lines
        end = len(lines)
        while end > 1 and not lines[end - 1].body.strip() and self._serial(end - 1) not in self._marked:
            end -= 1
        tail = lines[end:]
        if tail:
            self._serials = [self._serial(place) for place in range(end)]
            del lines[end:]
        return tail

    def finish(self) -> tuple[tuple[Line, ...], dict[int, int]]:
        """The lines that stay, and the index of each by serial number."""
        if len(self._lines) > self._limit:
            self._trim()
        places = range(len(self._lines))
        return tuple(self._lines), dict(zip(self._serials or places, places, strict=True))

    def _serial(self, place: int) -> int:
        return place if self._serials is None else self._serials[place]

    def _trim(self) -> None:
        head = self._limit // 2
        places = range(len(self._lines))
        middle = [place for place in places[head : head - self._limit] if self._serial(place) in self._marked]
        middle = middle[: self._limit // 4]
        # Marked lines take their room from the head, so that the bound holds.
        stay = [*places[: head - len(middle)], *middle, *places[head - self._limit :]]
        self._lines, self._serials = [self._lines[place] for place in stay], [self._serial(place) for place in stay]


def plain(line: Line) -> Record:
    """A line that is part of nothing bigger."""
    return Record("line", (line,), line.text, (), (), _NO_FIELDS, line.quoted)
