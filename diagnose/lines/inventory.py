"""What the inputs know of hosts, ranks, GPUs and process groups.

In: sources, lines, and units given by the user. Out: look-ups from any name of a unit to all that is known of it.
Facts are only taken, never made: with fewer inputs less is known, and nothing else. Where ranks lie on hosts in
blocks is a guess, made only when the order of the hosts and the ranks per host were stated, and it says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from diagnose.dataclass import replace
from diagnose.lines.groups import ProcessGroups
from diagnose.lines.hosts import MAX_HOSTS, Hosts
from diagnose.lines.jobhosts import OF_JOB, JobHosts
from diagnose.lines.kernel import is_kernel_line
from diagnose.lines.listings import Listings
from diagnose.lines.unit_facts import MAX_RANK, OPENERS, FactReader
from diagnose.lines.unit_store import GIVEN, GUESS, MAX_UNITS, STRONG, WEAK, UnitStore
from diagnose.lines.units import is_pci, normalise_pci
from diagnose.lines.whereabouts import STATED, Whereabouts
from diagnose.models import Line, LogSource, SourceKind, Unit

NameKind = Literal["host", "gpu", "rank", "nic"]
MAX_NICS = 64
_HEAD = 200  # characters
MAX_COMMUNICATORS = 4096


class Inventory:
    """Facts of units, joined from all inputs."""

    def __init__(self) -> None:
        self._hosts = Hosts()
        self._store = UnitStore(self._hosts.known)
        self._reader = FactReader(self)
        self._groups = ProcessGroups()
        self._nics: dict[str, dict[str, None]] = {}
        self._world: tuple[int, int] | None = None
        self._ranks: set[int] = set()
        self._seen: set[tuple[int | None, int | None, str | None, int | None]] = set()
        self._communicators: dict[tuple[str, int], dict[int, Unit] | None] = {}
        self._largest = 0
        self._tasks: dict[int, Unit] = {}
        self._order: tuple[str, ...] = ()
        self._per_host: int | None = None
        self._spread = "block"
        self._settled = True
        self._kind: SourceKind = "job"  # of the source that is being read
        self._job_hosts = JobHosts()
        self._attempt = 0  # of the line that is being read
        self._listings = Listings()
        self.whereabouts = Whereabouts()

    # What goes in.

    def learn_source(self, source: LogSource) -> None:
        """Take what a source's name says."""
        if source.host is not None:
            self._hosts.add(source.host)
        self._kind = source.kind
        self.runs_here(source.host)
        if source.rank is not None:
            fact = Unit(rank=source.rank, local_rank=source.local_rank, host=source.host)
            self.unit(fact, STRONG)

    def observe(self, line: Line, attempt: int = 0, *, facts: bool = True, places: bool = True) -> None:
        """Take what a line and its prefixes say; one whose prefixes say nothing new costs a look-up.

        `attempt` counts within the line's source. `facts` and `places`: whether one of the literals of `unit_facts` and
        of `whereabouts` may stand in the line.
        """
        self._kind = line.source.kind
        if places or line.host is not None:
            self.whereabouts.observe(line, attempt)
        self._attempt = attempt
        if line.rank is not None or line.host is not None:
            key = (line.rank, line.local_rank, line.host, line.pid)
            if key not in self._seen:
                if self._is_the_jobs(line) and len(self._seen) < 4 * MAX_UNITS:
                    self._seen.add(key)
                self._prefix(line)
        if facts:
            self._is_the_jobs(line)
            self._reader.read(line)

    def add(self, units: Iterable[Unit]) -> None:
        """Take facts given by the user: they win over what is learned."""
        self._kind = "job"
        for unit in units:
            self.unit(unit, GIVEN)

    def _is_the_jobs(self, line: Line) -> bool:
        """Whether no kernel's line in a job's log, where any machine's may be cited: where that ran says nothing."""
        if self._kind in OF_JOB and is_kernel_line(line.text[:_HEAD]):
            self._kind = "kernel"
            return False
        return True

    def _prefix(self, line: Line) -> None:
        host = line.host or (line.source.host if line.source.kind == "job" else None)
        if host is not None:
            self._hosts.add(host)
            self.runs_here(host)
            self._listings.label(line.source.name, host)
        if line.rank is not None and line.source.kind not in {"kernel", "scheduler"}:
            self.unit(Unit(rank=line.rank, local_rank=line.local_rank, host=host, pid=line.pid), STRONG)

    # What is asked.

    @property
    def units(self) -> tuple[Unit, ...]:
        """Every unit known, ranks first."""
        self._settle()
        return tuple(sorted(self._store, key=lambda unit: (unit.rank is None, unit.rank or 0, unit.host or "")))

    def for_rank(self, rank: int) -> Unit | None:
        """The unit of a global rank; `guessed` tells whether its place is only a guess."""
        self._settle()
        return self._store.find("rank", None, rank)

    def guessed(self, rank: int) -> bool:
        """Whether a rank's host is derived from the order of hosts and stated nowhere."""
        self._settle()
        return self._store.strength(rank, "host") == GUESS

    def for_pci(self, host: str | None, pci: str) -> Unit | None:
        """The unit at a PCI address of a host; without a host only where one unit alone has that address."""
        self._settle()
        address = normalise_pci(pci)
        if host is not None:
            found = self._store.find("pci", self._hosts.canonical(host), address)
            return found or self._store.find("pci", None, address)
        found = None
        for unit in self._store:
            if unit.pci == address:
                if found is not None:
                    return None
                found = unit
        return found

    def for_pid(self, host: str | None, pid: int) -> Unit | None:
        """The unit of a process; without a host only where one unit alone has that number."""
        self._settle()
        if host is not None:
            return self._store.find("pid", self._hosts.canonical(host), pid)
        found = self._store.of_process(pid)
        return found[0] if len(found) == 1 else None

    def rank_of(self, host: str, local_rank: int) -> int | None:
        """The global rank of a host's local rank."""
        self._settle()
        unit = self._store.find("local", self._hosts.canonical(host), local_rank)
        return unit.rank if unit is not None and unit.rank is not None and not self.guessed(unit.rank) else None

    def host_of_rank(self, rank: int) -> str | None:
        """The host a global rank runs on, where something states it: nobody is blamed for a guess."""
        unit = self.for_rank(rank)
        return unit.host if unit is not None and not self.guessed(rank) else None

    def canonical_host(self, name: str) -> str:
        """The one name under which a host goes, whichever of its names is given."""
        return self._hosts.canonical(name)

    def names(self, kind: NameKind, id: str) -> tuple[str, ...]:
        """All other names of a host, GPU, rank or NIC.

        A GPU is asked for by PCI address, by UUID, or by index or address behind its host (`gx-043 GPU 3`).
        """
        if kind == "host":
            return self._hosts.names(id)
        if kind == "nic":
            return self._nic_names(id)
        if kind == "rank":
            unit = self.for_rank(int(id)) if id.isascii() and id.isdigit() and len(id) <= 9 else None
        else:
            unit = self._gpu(id)
        if unit is None:
            return ()
        guess = unit.rank is not None and self.guessed(unit.rank)
        return tuple(name for name in _unit_names(unit, kind, guess=guess) if name != id)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The canonical names of the hosts, in the order first heard of."""
        return self._hosts.all

    @property
    def job_hosts(self) -> tuple[str, ...]:
        """The canonical names of the hosts on which, by its own logs, the job ran."""
        return self._job_hosts.names(self.canonical_host)

    @property
    def all_hosts_named(self) -> bool:
        """Whether the job's own logs say enough to know that it ran on `job_hosts` and nowhere else."""
        self._settle()
        stated, seen = self.world_size or 0, max(self._ranks, default=-1) + 1
        placed = 0 < stated <= len(self._ranks) and all(self.host_of_rank(rank) for rank in range(stated))
        return self._job_hosts.all_named(
            self.canonical_host, self._tasks, max(stated, seen), self._per_host, placed=placed
        )

    @property
    def world_size(self) -> int | None:
        """How many ranks the job has, where something says so."""
        if self._world is not None and self._world[1] >= WEAK:
            return self._world[0]
        if self._largest and not any(rank >= self._largest for rank in self._ranks):
            return self._largest
        return self._world[0] if self._world is not None else None

    @property
    def ranks_seen(self) -> frozenset[int]:
        """The global ranks that any input speaks of."""
        self._settle()
        return frozenset(self._ranks)

    @property
    def process_groups(self) -> Mapping[str, Mapping[int, int]]:
        """Group id, and name where it is one group's alone, to {group rank: global rank}."""
        return self._groups.all(self.world_size)

    # The sink of `FactReader`.

    def unit(self, fact: Unit, strength: int) -> None:
        """Join a fact with what is known."""
        self.runs_here(fact.host)
        if fact.rank is not None:
            if not 0 <= fact.rank < MAX_RANK:
                return
            if strength > GUESS and len(self._ranks) < MAX_UNITS:
                self._ranks.add(fact.rank)
        self._store.learn(fact, strength)
        self._settled = False

    def runs_here(self, host: str | None) -> None:
        """A host on which a part of the job runs, if it is the job's own log that says so."""
        if self._kind in OF_JOB:
            self._job_hosts.add(host)

    def nodes(self, count: int, *, all_of_them: bool) -> None:
        """How many nodes the job, or one group of its ranks, has."""
        self._job_hosts.nodes(count, all_of_them=all_of_them)

    def listed(self, source: LogSource, fact: Unit) -> None:
        """A GPU in a list; one that does not say whose it is waits until all is read."""
        if fact.host is not None or source.kind != "job":
            self.unit(fact, STRONG)
        else:
            self._listings.add(source.name, self._attempt, fact)
            self._settled = False

    def same_host(self, one: str, other: str) -> None:
        """Two names of one machine."""
        self._hosts.same(one, other)

    def runs_on(self, pod: str, node: str) -> None:
        """A pod and the machine it runs on."""
        self._hosts.runs_on(pod, node)

    def nic(self, host: str, nic: str) -> None:
        """A network device of a host."""
        host = self._hosts.add(host)
        if host in self._nics or len(self._nics) < MAX_HOSTS:
            devices = self._nics.setdefault(host, {})
            if len(devices) < MAX_NICS:
                devices[nic] = None

    def world(self, size: int, strength: int) -> None:
        """A size of the world; the first of the greatest strength stays."""
        if 0 < size <= MAX_RANK and (self._world is None or strength > self._world[1]):
            self._world = (size, strength)
            self._settled = False

    def nccl_rank(self, comm: str, nranks: int, rank: int, fact: Unit) -> None:
        """A rank within a communicator, which is a global rank if the communicator is the world's."""
        self._largest = max(self._largest, nranks if nranks <= MAX_RANK else 0)
        key = (comm, nranks)
        if key not in self._communicators and len(self._communicators) >= MAX_COMMUNICATORS:
            return
        members = self._communicators.setdefault(key, {})
        if members is None or rank >= nranks:
            return
        known = members.setdefault(rank, fact)
        if (known.host, known.pid) != (fact.host, fact.pid):
            self._communicators[key] = None  # several groups of one size: nobody's rank is known by it
        self._settled = False

    def group_member(self, group: str, name: str | None, group_rank: int, rank: int) -> None:
        """A member of a process group."""
        self.unit(Unit(rank=rank), STRONG)
        self._groups.add(group, name, group_rank, rank)

    def group_list(self, name: str, ranks: tuple[int, ...]) -> None:
        """A process group's members in order; siblings have the same name, so the first rank is added to it."""
        if ranks:
            self._groups.add_all(f"{name}:{ranks[0]}", ranks)

    def task(self, task: int, fact: Unit) -> None:
        """A Slurm task and its place."""
        if task < MAX_RANK and len(self._tasks) < MAX_UNITS:
            known = self._tasks.get(task)
            self._tasks[task] = fact if known is None or known.local_rank is None else known
            self._settled = False
        if fact.host is not None:
            self._hosts.add(fact.host)
            self.runs_here(fact.host)

    def host_order(self, hosts: tuple[str, ...]) -> None:
        """The job's hosts in the order of its nodes."""
        self._job_hosts.add_list(hosts, self._kind)
        if hosts and not self._order:
            self._order = tuple(dict.fromkeys(self._hosts.add(host) for host in hosts))
            self._settled = False

    def per_host(self, count: int) -> None:
        """How many ranks each host has."""
        if self._per_host is None and count > 0:
            self._per_host = count
            self._settled = False

    def spread(self, how: str) -> None:
        """How Slurm lays tasks on hosts: `block`, `cyclic` ..."""
        self._spread = how.lower()

    # What follows only once all is known.

    def _settle(self) -> None:
        """Apply what depends on the world's size: NCCL's ranks, Slurm's tasks, blocks of ranks."""
        if self._settled:
            return
        world = self.world_size
        stated = self._world is not None and self._world[1] >= WEAK
        sized = {comm: members for (comm, nranks), members in self._communicators.items() if nranks == world}
        # Lines without a communicator's id say nothing that those with it have not said.
        worlds = [members for comm, members in sized.items() if comm or len(sized) == 1]
        # Where nothing states the size, the largest communicator is taken for the world's, if it is alone of its size.
        if worlds and (stated or len(worlds) == 1):
            for rank, fact in ((rank, fact) for members in worlds for rank, fact in (members or {}).items()):
                self.unit(replace(fact, rank=rank), STRONG if stated else WEAK)
        if self._tasks and self._tasks_are_ranks(world):
            for task, fact in self._tasks.items():
                self.unit(replace(fact, rank=task), WEAK)
        self._guess_blocks(world)
        for fact in self._listings.placed(self.whereabouts):
            self.unit(fact, STRONG if fact.host is None else WEAK)
        self._settled = True

    def _tasks_are_ranks(self, world: int | None) -> bool:
        """One task per rank, not one launcher per host."""
        if any(fact.local_rank for fact in self._tasks.values()):
            return True
        hosts = {fact.host for fact in self._tasks.values()}
        if len(hosts) < len(self._tasks):
            return True
        return world is not None and max(self._tasks) + 1 == world

    def _guess_blocks(self, world: int | None) -> None:
        """Ranks in blocks (or dealt out in turn) over hosts whose order is known."""
        if self._per_host is None or not self._order or self._spread not in {"block", "cyclic"}:
            return
        hosts = len(self._order)
        if world is not None and world != self._per_host * hosts:
            return
        for rank in range(min(self._per_host * hosts, MAX_UNITS)):
            if self._spread == "block":
                host, local = divmod(rank, self._per_host)
            else:
                local, host = divmod(rank, hosts)
            known = self._store.find("rank", None, rank)
            if known is None or known.host is None or known.host == self._order[host]:
                self.unit(Unit(rank=rank, host=self._order[host], local_rank=local), GUESS)

    def _gpu(self, name: str) -> Unit | None:
        """A GPU by PCI address, UUID, or host and index or address."""
        address = normalise_pci(name)
        if is_pci(address):
            return self.for_pci(None, address)
        self._settle()
        if (found := self._store.find("uuid", None, name)) is not None:
            return found
        host, _, rest = name.partition(" ")
        index = rest.removeprefix("GPU").strip(" :#")
        if not host or not index:
            return None
        if is_pci(normalise_pci(index)):
            return self.for_pci(host, index)
        return self._store.find("gpu", self._hosts.canonical(host), index)

    def _nic_names(self, name: str) -> tuple[str, ...]:
        """`mlx5_3` to `mlx5_3:1` and back, where a host is known to have it."""
        host, space, device = name.rpartition(" ")
        hosts = (self._hosts.canonical(host),) if space else tuple(self._nics)
        short = device.partition(":")[0]
        known = {nic for name in hosts for nic in self._nics.get(name, ()) if nic.partition(":")[0] == short}
        return tuple(sorted((known | {short} if known else known) - {device}))


def _unit_names(unit: Unit, kind: NameKind, *, guess: bool) -> list[str]:
    """How else a rank or a GPU is called, best first; a place that is only guessed says so."""
    names: list[str] = []
    host = unit.host
    if kind == "rank":
        names += [f"rank {unit.rank}"]
        if host is not None and guess:
            names += [f"probably on {host}"]
        elif host is not None:
            names += [f"{host} local rank {unit.local_rank}"] if unit.local_rank is not None else [host]
    if unit.gpu is not None:
        names.append(f"{host} GPU {unit.gpu}" if host is not None and not guess else f"GPU {unit.gpu}")
    names += [name for name in (unit.pci, unit.uuid, unit.serial) if name is not None]
    if kind == "gpu" and unit.rank is not None:
        names.append(f"rank {unit.rank}")
    return names


# Openers that routine lines hold too: in the guard they would keep every step and every NCCL line.
_ROUTINE = frozenset({
    " group", " host ", "nnodes", "nproc", "00000000:", "nodes=", "host:", "ntasks", "Name: ", "Node: ", "local_rank",
    "NCCL INFO", "NCCL WARN", "mpirun", "hostname",
})  # fmt: skip
_NARROWER = (" nranks ", " nRanks ", "Bootstrap : Using", "NET/IB : Using", "--nproc", "--nnodes", "parallel group")


def inventory_literals() -> tuple[str, ...]:
    """Literals of lines that state units, for the guard: those that no healthy step line holds."""
    openers = (literal for literal in OPENERS if len(literal) >= 5 and literal not in _ROUTINE)
    return (*openers, *_NARROWER, *STATED)
