"""What the inputs know of hosts, ranks and GPUs (first cut: the interface)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from diagnose.models import Line, LogSource, Unit

NameKind = Literal["host", "gpu", "rank", "nic"]


class Inventory:
    """Collects facts of units; what is not stated is not known."""

    def __init__(self) -> None:
        self._units: list[Unit] = []

    def learn_source(self, source: LogSource) -> None:
        """Take what a source's name says."""

    def observe(self, line: Line) -> None:
        """Take what a line says."""

    def add(self, units: Iterable[Unit]) -> None:
        """Take facts given by the user: they win over what is learned."""
        self._units.extend(units)

    @property
    def units(self) -> tuple[Unit, ...]:
        """All units known."""
        return tuple(self._units)

    def for_rank(self, rank: int) -> Unit | None:
        """The unit of a global rank."""
        return None

    def for_pci(self, host: str | None, pci: str) -> Unit | None:
        """The unit at a PCI address."""
        return None

    def for_pid(self, host: str | None, pid: int) -> Unit | None:
        """The unit of a process."""
        return None

    def rank_of(self, host: str, local_rank: int) -> int | None:
        """The global rank of a local one."""
        return None

    def host_of_rank(self, rank: int) -> str | None:
        """The host of a rank."""
        return None

    def canonical_host(self, name: str) -> str:
        """The one name of a host."""
        return name

    def names(self, kind: NameKind, id: str) -> tuple[str, ...]:  # noqa: A002
        """All other names of a unit."""
        return ()

    @property
    def hosts(self) -> tuple[str, ...]:
        """All hosts known."""
        return ()

    @property
    def world_size(self) -> int | None:
        """How many ranks the job has."""
        return None

    @property
    def ranks_seen(self) -> frozenset[int]:
        """Ranks that any input speaks of."""
        return frozenset()

    @property
    def process_groups(self) -> Mapping[str, Mapping[int, int]]:
        """Process group to (group rank to global rank)."""
        return {}


def inventory_literals() -> tuple[str, ...]:
    """Literals of lines that state units."""
    return ()
