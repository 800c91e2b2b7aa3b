"""Signs of progress in a line: steps, checkpoints, completion, exit codes (first cut: the interface)."""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.models import FilterRule, Line, ProgressEvent


class ProgressReader:
    """Reads signs of progress from lines."""

    def __init__(self, filters: Sequence[FilterRule] = ()) -> None:
        self._filters = tuple(filters)

    def read(self, line: Line, attempt: int) -> ProgressEvent | None:
        """The sign of progress that this line carries, if any."""
        return None


def progress_literals() -> tuple[str, ...]:
    """Literals of completion, checkpoint and exit markers."""
    return ()
