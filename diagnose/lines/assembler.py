"""Puts lines together into records, per stream.

In: the lines of one source in file order. Out: records.
"""

from __future__ import annotations

from diagnose.lines.grammar import plain
from diagnose.models import Line, LogSource, Record
from diagnose.settings import Limits


class RecordAssembler:
    """Holds the open record of every stream of one source and emits each as soon as it closes."""

    def __init__(self, source: LogSource, limits: Limits) -> None:
        self._source = source
        self._limits = limits

    def feed(self, line: Line) -> list[Record]:
        """Take the next line and return the records that are complete with it."""
        return [plain(line)]

    def finish(self) -> list[Record]:
        """Close what is open."""
        return []


def guard_openers() -> tuple[str, ...]:
    """Literals that no filter may remove: lines that open records, and what launchers say of their processes."""
    return ()
