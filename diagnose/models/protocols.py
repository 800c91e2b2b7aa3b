"""What the pipeline asks of services it does not know: here, the memory of other jobs."""

from __future__ import annotations

from typing import Protocol


class History(Protocol):
    """What earlier jobs say about a unit or a workload; answered from a store, or by `NoHistory`."""

    def unit_failures(self, *, host: str, gpu: str | None, error_type: str, days: int) -> int:
        """How many other jobs named this unit as the culprit of this error type in the last `days` days."""
        ...

    def workload_repeats(self, *, error_type: str, step: int | None) -> int:
        """How many earlier attempts of this workload failed alike without passing `step`."""
        ...


class NoHistory:
    """The history where there is no store: nothing is known."""

    def unit_failures(self, *, host: str, gpu: str | None, error_type: str, days: int) -> int:
        """Nothing is known of other jobs."""
        return 0

    def workload_repeats(self, *, error_type: str, step: int | None) -> int:
        """Nothing is known of earlier runs."""
        return 0
