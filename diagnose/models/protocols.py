"""What the pipeline asks of services it does not know: the memory of other jobs.

In: nothing. Out: `History`, which answers from what was recorded, `NoHistory`, which knows nothing, and `Memory` with
`Remembrance`, by which a run learns who its job is, asks about it, and is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from diagnose.dataclass import dataclass
from diagnose.models.flow import Line, Record
from diagnose.models.memory import JobContext, Particulars
from diagnose.models.report import Report


@dataclass(frozen=True, slots=True)
class Drained:
    """How many hosts were to be drained within the hour, of how many nodes; None where that is not known."""

    hosts: int = 0
    nodes: int | None = None


class History(Protocol):
    """What earlier jobs say about a unit or a workload; answered from a store, or by `NoHistory`."""

    def unit_failures(self, *, host: str, gpu: str | None, error_type: str, days: int) -> int:
        """How many other jobs named this unit as the culprit of this error type in the `days` days before this one."""
        ...

    def workload_repeats(self, *, error_type: str, step: int | None, place: str = "") -> int:
        """How many earlier attempts of this workload failed alike, at the same place, and none since passed that step.

        `step` is how far this attempt came: getting beyond a failed step is what resets the count.
        """
        ...

    def drained(self, *, besides: Sequence[str]) -> Drained:
        """For how many hosts beside these a drain or a replacement was asked within the last hour."""
        ...


class NoHistory:
    """The history where there is no store: nothing is known."""

    def unit_failures(self, *, host: str, gpu: str | None, error_type: str, days: int) -> int:
        """Nothing is known of other jobs."""
        return 0

    def workload_repeats(self, *, error_type: str, step: int | None, place: str = "") -> int:
        """Nothing is known of earlier runs."""
        return 0

    def drained(self, *, besides: Sequence[str]) -> Drained:
        """Nothing is known of drains."""
        return Drained()


class Remembrance(Protocol):
    """One run's part of the memory: hears what is read, is asked once, and is told the answer. Never raises."""

    def observe(self, line: Line) -> None:
        """Takes a line that compression let through, in the order of reading."""
        ...

    def record(self, record: Record) -> None:
        """Takes a scheduler's record of this job."""
        ...

    def history(self, *, job: str | None, at: float | None) -> History:
        """What is known when all is read. `job` is the scheduler's number of the job, `at` when its end was seen."""
        ...

    def conclude(self, report: Report, particulars: Particulars) -> Report:
        """The report with what the memory adds to it; recorded, where that was asked for."""
        ...


class Memory(Protocol):
    """Where runs are remembered."""

    def begin(self, context: JobContext) -> Remembrance:
        """The part of one run; `context` is what was said of the job beside its inputs."""
        ...
