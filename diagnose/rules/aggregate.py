"""Sightings gathered into groups, in bounded memory: count, first, last, ranks, hosts, a few lines of evidence.

In: sightings in any order. Out: `Group`s, one per rule, source attempt, unit and place. `findings` turns them into
findings once the attempts and the inventory are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from diagnose.dataclass import dataclass, field
from diagnose.lines.kernel import uptime_of
from diagnose.rules.captures import Value
from diagnose.rules.sighting import EvidenceDraft, Sighting
from diagnose.settings import Limits

_EVIDENCE = 6
_STREAMS = 4096
_RANKS = 65_536
# Families whose scope is a unit: their findings are kept apart by rank, so that each can meet its own GPU and host.
BY_UNIT = frozenset({"hardware", "cuda", "network", "node", "host"})
# Whose line it was is true of that line alone.
OF_ONE_LINE = frozenset({"rank", "host", "gpu", "xid", "step", "pg", "pg_rank", "peer"})
# Sources that are no attempt of the job: their sightings are told apart by minute and find their attempt by time.
_TIMED = frozenset({"kernel", "scheduler"})

Key = tuple[str, str, str, int, str | None, str | None, int | None, str, int, Value | None, tuple[str, int] | None]


@dataclass(slots=True)
class Group:
    """What one rule saw at one unit in one attempt of one source.

    `captures` are the first sighting's, with what only later ones tell: one line names the process, another the file.
    """

    sighting: Sighting
    traceback: bool
    evidence: list[EvidenceDraft] = field(default_factory=list)
    count: int = 0
    first: float | None = None
    last: float | None = None
    uptime: float | None = None  # the last
    ranks: set[int] = field(default_factory=set)
    pids: set[int] = field(default_factory=set)
    streams: dict[str, tuple[int, int]] = field(default_factory=dict)
    span: tuple[int, int] = (0, 0)
    by_rank: dict[int, Mapping[str, Value]] = field(default_factory=dict)
    captures: dict[str, Value] = field(default_factory=dict)

    def add(self, sighting: Sighting, draft: EvidenceDraft) -> None:
        """Counts a sighting in; keeps its lines while there is room, one per rank first."""
        self.count += 1
        line = sighting.line
        for name, value in sighting.captures.items():
            if name not in self.captures and (self.count == 1 or name not in OF_ONE_LINE):
                self.captures[name] = value
        if line.time is not None:
            self.first = line.time if self.first is None else min(self.first, line.time)
            self.last = line.time if self.last is None else max(self.last, line.time)
        if line.source.kind == "kernel" and (uptime := uptime_of(line)) is not None:
            self.uptime = uptime if self.uptime is None else max(self.uptime, uptime)
        rank = sighting.rank
        new_rank = rank is not None and rank not in self.ranks
        if rank is not None and len(self.ranks) < _RANKS:
            self.ranks.add(rank)
            known = self.by_rank.get(rank, {})
            if sighting.captures.keys() - known.keys():
                self.by_rank[rank] = {**sighting.captures, **known}
        for pid in (line.pid, sighting.captures.get("pid")):  # who wrote it, and whom it is about
            if isinstance(pid, int) and len(self.pids) < _STREAMS:
                self.pids.add(pid)
        low, high = self.span if self.count > 1 else (line.number, line.number)
        self.span = (min(low, line.number), max(high, line.number))
        seen = self.streams.get(line.stream)
        if seen:
            self.streams[line.stream] = (min(seen[0], line.number), max(seen[1], line.number))
        elif len(self.streams) < _STREAMS:
            self.streams[line.stream] = (line.number, line.number)
        if len(self.evidence) < _EVIDENCE and (new_rank or len(self.evidence) < _EVIDENCE // 2):
            self.evidence.append(draft)
            for extra in sighting.also:
                self.evidence.append(EvidenceDraft(extra))


class Aggregator:
    """Gathers sightings; `overflow` counts those that found no group of their own any more and joined a coarser one."""

    def __init__(self, limits: Limits, families: Mapping[str, str]) -> None:
        self._groups: dict[Key, Group] = {}
        self._limits = limits
        self._families = families
        self.overflow = 0

    def add(self, sighting: Sighting, draft: EvidenceDraft, *, traceback: bool) -> None:
        """Takes one sighting."""
        key = self._key(sighting)
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= self._limits.findings:
                self.overflow += 1
                key = (*key[:4], None, None, None, "", 0, None, ("", 0) if sighting.over is not None else None)
                group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = Group(sighting, traceback)
        group.add(sighting, draft)

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def _key(self, sighting: Sighting) -> Key:
        line = sighting.line
        rule = sighting.rule.id if sighting.rule else ""
        lookup = sighting.rule.lookup if sighting.rule else None
        family = self._families.get(sighting.error_type, "")
        rank = sighting.rank if family in BY_UNIT else None
        minute = int(line.time // 60) if line.time is not None and line.source.kind in _TIMED else 0
        source = line.source.name
        return (
            rule,
            sighting.error_type,
            source,
            sighting.attempt,
            sighting.host,
            sighting.gpu,
            rank,
            sighting.place,
            minute,
            sighting.captures.get(lookup.key) if lookup is not None else None,  # each code of a table is its own fact
            (sighting.over.source.name, sighting.over.number) if sighting.over is not None else None,
        )
