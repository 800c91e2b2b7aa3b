"""Which try of the job a line belongs to (first cut: the interface)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from diagnose.models import Line, LogSource


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where a new attempt starts: line number, seconds since the epoch, and which sign said so."""

    number: int
    time: float | None
    reason: str


class AttemptTracker:
    """Counts the attempts within one source."""

    def __init__(self, source: LogSource) -> None:
        self.source = source
        self._boundaries: list[Boundary] = []

    @property
    def boundaries(self) -> tuple[Boundary, ...]:
        """Where attempts after the first start."""
        return tuple(self._boundaries)

    def observe(self, line: Line, step: int | None) -> int:
        """The index of the attempt this line belongs to, from 0."""
        return len(self._boundaries)


def align(trackers: Mapping[str, AttemptTracker]) -> dict[tuple[str, int], int]:
    """(source name, attempt within it) to the attempt of the job."""
    return {(name, 0): 0 for name in trackers}


def attempt_literals() -> tuple[str, ...]:
    """Literals of attempt boundaries."""
    return ()
