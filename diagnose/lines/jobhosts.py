"""Which hosts a job ran on, by the words of its own logs, and whether they name all of them.

In: names of hosts and numbers of nodes that job logs state. Out: the hosts, and whether there can be no others. A log
of one rank names one host of many, so what is not named is another job's only where the job's extent is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from diagnose.lines.hostlists import is_address
from diagnose.lines.hosts import MAX_HOSTS
from diagnose.models import SourceKind, Unit

OF_JOB = frozenset({"job", "launcher"})
_STATES_NODES = OF_JOB | {"scheduler"}
_MOST_LISTS = 2


class JobHosts:
    """Hosts that a job's own logs name as places where it ran, under any of their names."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._nodes = 0
        self._most = 0
        self._listed = False
        self._recorded: set[tuple[str, ...]] = set()

    def add(self, name: str | None) -> None:
        """A host on which a part of the job ran."""
        if name is not None and len(self._names) < MAX_HOSTS:
            self._names[name] = None

    def add_list(self, names: Sequence[str], kind: SourceKind) -> None:
        """A list of a job's nodes; a scheduler's record may hold those of other jobs as well."""
        if not names or kind not in _STATES_NODES:
            return
        for name in names:
            self.add(name)
        if kind in OF_JOB:
            self._listed = True
        elif len(self._recorded) < _MOST_LISTS:
            self._recorded.add(tuple(names))

    def nodes(self, count: int, *, all_of_them: bool) -> None:
        """How many nodes there are: `all_of_them`, or those of one group of ranks."""
        self._most = max(self._most, count)
        if all_of_them:
            self._nodes = max(self._nodes, count)

    def names(self, canonical: Callable[[str], str]) -> tuple[str, ...]:
        """The hosts under their canonical names, in the order heard of."""
        return tuple(dict.fromkeys(canonical(name) for name in self._names))

    def all_named(
        self,
        canonical: Callable[[str], str],
        tasks: Mapping[int, Unit],
        world: int,
        per_host: int | None,
        *,
        placed: bool,
    ) -> bool:
        """Whether a list, a number of nodes, the ranks or the launcher's tasks leave room for no other host.

        `tasks` are Slurm's by number, `world` is how many ranks there are at least, `per_host` how many on each host;
        `placed` says that the host of each of them is known.
        """
        named = self.names(canonical)
        if not named or any(is_address(name) for name in named) or len(named) < self._most:
            return False
        if self._listed or len(self._recorded) == 1 or placed or 0 < self._nodes <= len(named):
            return True
        return _all_tasks(tasks, world, per_host)


def _all_tasks(tasks: Mapping[int, Unit], world: int, per_host: int | None) -> bool:
    """Whether each task from 0 on was told of, with its host, and the world has no more."""
    count = len(tasks)
    if count < 2 or max(tasks) + 1 != count or any(unit.host is None for unit in tasks.values()):
        return False
    hosts = {unit.host for unit in tasks.values()}
    each = per_host or 1 if len(hosts) == count else 1  # a launcher on each host starts its ranks
    return world <= count * each
