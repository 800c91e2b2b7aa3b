"""Whose kernel log it is: a host of the job, perhaps one, or another that somebody gave along.

In: what the job's own logs say of its hosts. Out: for the host of a kernel log, why it has nothing to do with the job,
or that nothing names it as one of the job's. Names tell only where they are of one make: a pod has other names than
its node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from diagnose.dataclass import dataclass
from diagnose.lines.hostlists import expand_hostlist
from diagnose.lines.inventory import Inventory
from diagnose.lines.jobs import JobNumbers
from diagnose.patterns import Lazy
from diagnose.rules.aggregate import Group

_CONTROL_GROUP = Lazy(r"/job_([0-9]{1,12})(?![0-9_])")
_PID = Lazy(r"\bpid=([0-9]{1,9})\b")
_TEXT = 1000  # characters
_DIGITS = re.compile(r"\d+")
_SHOWN = 4
_LONGEST = 253  # characters of a host's name


@dataclass(frozen=True, slots=True)
class JobPlaces:
    """The hosts that a job's own logs name; `whole` if there can be no others."""

    named: tuple[str, ...]
    names: frozenset[str]
    whole: bool

    def unnamed(self, host: str | None) -> bool:
        """Whether the job's logs name hosts, and this is none of them."""
        return host is not None and bool(self.named) and host.lower() not in self.names

    def elsewhere(self, host: str | None) -> str | None:
        """In words why what happened on a host has nothing to do with the job; None where it may."""
        if host is None or not self.whole or not self.unnamed(host):
            return None
        if _make(host) not in {_make(name) for name in self.named}:
            return None
        return self.none_of_them(host)

    def none_of_them(self, host: str) -> str:
        """Says of a host that the job does not name it."""
        shown = ", ".join(self.named[:_SHOWN])
        more = f" and {len(self.named) - _SHOWN} more" if len(self.named) > _SHOWN else ""
        return f"{host} is none of the hosts that this job names: {shown}{more}"


def job_places(inventory: Inventory) -> JobPlaces:
    """What an inventory knows of the job's hosts."""
    named = tuple(sorted(inventory.job_hosts))
    names = {name.lower() for host in named for name in (host, *inventory.names("host", host))}
    return JobPlaces(named, frozenset(names), bool(named) and inventory.all_hosts_named)


def devices_of_job(inventory: Inventory) -> Mapping[str, frozenset[str]]:
    """The PCI addresses on which the job's ranks run, by host; none unless they are known of every rank."""
    size = inventory.world_size or 0
    ranks = inventory.ranks_seen
    if not 0 < size == len(ranks):
        return {}
    found: dict[str, set[str]] = {}
    for rank in ranks:
        unit, host = inventory.for_rank(rank), inventory.host_of_rank(rank)
        if unit is None or unit.pci is None or host is None:
            return {}
        found.setdefault(inventory.canonical_host(host), set()).add(unit.pci)
    return {host: frozenset(devices) for host, devices in found.items()}


def _make(host: str) -> str:
    """The name without its numbers: hosts that were named together differ in those."""
    return _DIGITS.sub("0", host.lower())


class KernelLogs:
    """Whether kernel logs that were given are of the job's own hosts."""

    def __init__(self, groups: Sequence[Group], inventory: Inventory) -> None:
        self._inventory = inventory
        self._answers: dict[str, tuple[str | None, bool]] = {}
        self._groups = groups
        self._places: JobPlaces | None = None
        self._spoken: set[str] = set()
        self._devices: Mapping[str, frozenset[str]] | None = None

    def not_ours(self, group: Group, host: str | None, gpu: str | None) -> bool:
        """Whether a kernel tells of a GPU on which none of the job's ranks runs."""
        if host is None or gpu is None or ":" not in gpu or group.sighting.line.source.kind != "kernel":
            return False
        if self._devices is None:
            self._devices = devices_of_job(self._inventory)
        devices = self._devices.get(host)
        return devices is not None and gpu not in devices and not any(self._is_ours(pid, host) for pid in group.pids)

    def elsewhere(self, group: Group, host: str | None) -> tuple[str | None, bool]:
        """Why a group is of another place, in words, and whether the job's logs leave its host out."""
        if host is None or group.sighting.line.source.kind != "kernel":
            return None, False
        if host not in self._answers:
            self._answers[host] = self._answer(host)
        if self._answers[host][1] and any(self._is_ours(pid, host) for pid in group.pids):
            return None, False
        return self._answers[host]

    def _answer(self, host: str) -> tuple[str | None, bool]:
        if self._places is None:
            self._places = job_places(self._inventory)
            self._spoken = {name for group in self._groups for name in _spoken_of(group)}
        if not self._places.unnamed(host) or self._spoken & {host, *self._inventory.names("host", host)}:
            return None, False
        return self._places.elsewhere(host), True

    def _is_ours(self, pid: int, host: str) -> bool:
        """Whether a process that the kernel names is one of the job's ranks."""
        unit = self._inventory.for_pid(None, pid)
        return unit is not None and unit.rank is not None and unit.host in (None, host)


class ControlGroups:
    """Whether what a kernel killed ran in the control group of another Slurm job than the one at hand.

    One event is told on several lines, of which one names the group: they have the process in common.
    """

    def __init__(self, groups: Sequence[Group], jobs: JobNumbers | None, inventory: Inventory) -> None:
        self._others: dict[tuple[str, int], str] = {}  # by source and process
        for group in groups if jobs is not None else ():
            if group.sighting.line.source.kind != "kernel" or jobs is None:
                continue
            for draft in group.evidence:
                found = set(_CONTROL_GROUP.findall(draft.line.text[:_TEXT]))
                pid = _PID.search(draft.line.text[:_TEXT])
                if len(found) != 1 or pid is None or not jobs.another(job := found.pop()):
                    continue
                unit = inventory.for_pid(None, int(pid[1]))
                if unit is None or unit.rank is None:
                    self._others[draft.line.source.name, int(pid[1])] = job

    def of_another(self, group: Group) -> str | None:
        """In words whose it was; None where it may be this job's."""
        source = group.sighting.line.source
        if source.kind != "kernel" or not group.pids:
            return None
        jobs = {self._others.get((source.name, pid)) for pid in group.pids}
        named = sorted(job for job in jobs if job is not None)
        return (
            f"it happened in the control group of job {named[0]}, another one" if named and None not in jobs else None
        )


def _spoken_of(group: Group) -> Iterator[str]:
    """The hosts that a line of the job or of the scheduler is about."""
    if group.sighting.line.source.kind == "kernel":
        return
    for captured in (group.captures, *group.by_rank.values()):
        for value in captured.values():
            if isinstance(value, str) and len(value) <= _LONGEST:
                yield from expand_hostlist(value) if "[" in value else (value,)
