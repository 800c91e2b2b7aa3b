"""Indented lines of a writer that was read before: their prefixes need not be read again.

In: the text of a line. Out: the `Seat` that a line with the same beginning has shown: where its body begins, and what
its prefixes say. Tracebacks, stacks and tables are made of such lines, thousands of them when many ranks die at once.
`NoSeats` is the slow twin that remembers none.

What makes this exact: behind a writer's name and two blanks no further prefix is looked for, so the prefixes depend on
nothing but the characters up to the third behind the name. Stamps are left out: behind one, blanks may be padding. So
are names that the rest of their line proved to be ones.
"""

from __future__ import annotations

from diagnose.dataclass import dataclass
from diagnose.lines.heads import Head
from diagnose.models import Line

_NAME_CHARS = 80
_MAX_SEATS = 8192
_OPENS_LABEL = frozenset("[0123456789")


@dataclass(slots=True)
class Seat:
    """What lines with this beginning have in common; `place` is whose output it is, as far as rank tags go."""

    start: int
    head: Head
    stream: str
    rank: int | None
    local_rank: int | None
    host: str | None
    pid: int | None
    gpu: str | None
    level: str | None
    place: tuple[str, int | None, int | None]
    shown: tuple[int | None, ...]
    tagged: bool
    placed: bool


class NoSeats:
    """Knows no line's beginning."""

    def of(self, text: str) -> Seat | None:
        """The seat of a line that has one."""
        return None

    def note(self, line: Line, start: int, head: Head) -> None:
        """Remember what the prefixes of a line, up to `start`, were found to say."""


class Seats(NoSeats):
    """Remembers the seats of one source."""

    def __init__(self) -> None:
        self._seats: dict[str, Seat] = {}

    def of(self, text: str) -> Seat | None:
        """The seat of a line that has one."""
        at = text.find("  ", 0, _NAME_CHARS)
        if at < 0:
            return None
        seat = self._seats.get(text[: at + 3])
        if seat is None or not _is_plain(text, at) or (seat.placed and not _is_placed(text)):
            return None
        return seat

    def note(self, line: Line, start: int, head: Head) -> None:
        """Remember what the prefixes of a line were found to say, where others with its beginning say the same."""
        text = line.text
        at = text.find("  ", 0, _NAME_CHARS)
        if at < 0 or not at <= start <= at + 1 or not text.startswith("  ", start) or not _is_plain(text, at):
            return
        # Without a tag of its own the rank of a process is the one that it showed last, which changes; and lines of a
        # task teach whether tasks are nodes.
        told = head.task is None and (head.tagged or (head.writer_local is None and not head.process))
        if head.stage or head.time is not None or head.uptime is not None or not told:
            return
        if len(self._seats) >= _MAX_SEATS:
            self._seats.clear()
        place = (head.place, head.writer_local, head.task)
        self._seats[text[: at + 3]] = Seat(
            start, head, line.stream, line.rank, line.local_rank, line.host, line.pid, line.gpu, line.level,
            place, (head.writer_rank, head.writer_rank), head.tagged, bool(head.place),
        )  # fmt: skip


def _is_plain(text: str, at: int) -> bool:
    """Whether no label may stand behind the blanks, and nothing that is unwrapped or drawn over before them."""
    if not at and text.lstrip(" \t")[:1] in _OPENS_LABEL:
        return False
    return "%|" not in text and (not text[:1].isdigit() or " std" not in text[18:44])


def _is_placed(text: str) -> bool:
    """Whether a line of a named place is no row of a table, which bears no name, and no note of Ray's is to be cut."""
    return "|" not in text and "[repeated " not in text
