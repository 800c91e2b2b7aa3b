"""Process groups: which global ranks a collective's group holds, and who is which rank in it.

In: (group, group rank, global rank) as torch, NeMo and NCCL print them. Out: group name or id to
{group rank: global rank}. Nothing is said of a group whose members contradict each other.
"""

from __future__ import annotations

from collections.abc import Mapping

from diagnose.dataclass import dataclass, field

MAX_GROUPS = 16_384
MAX_MEMBERS = 131_072
WORLD_NAMES = ("default_pg", "0")


@dataclass(slots=True)
class _Group:
    members: dict[int, int] = field(default_factory=dict)
    names: dict[str, None] = field(default_factory=dict)
    broken: bool = False


class ProcessGroups:
    """Members of groups by id, and by name where the name is one group's alone."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._cache: dict[str, Mapping[int, int]] | None = None
        self._world: int | None = None

    def add(self, group: str, name: str | None, group_rank: int, rank: int) -> None:
        """One member: torch prints the group's id and name and the rank within it."""
        known = self._group(group)
        if known is None:
            return
        if known.members.setdefault(group_rank, rank) != rank:
            known.broken = True
        if name:
            known.names[name] = None
        self._cache = None

    def add_all(self, group: str, ranks: tuple[int, ...]) -> None:
        """All members in the order of their group ranks."""
        known = self._group(group)
        if known is not None:
            known.members = dict(enumerate(ranks))
            self._cache = None

    def all(self, world: int | None) -> Mapping[str, Mapping[int, int]]:
        """Group id or name to {group rank: global rank}; the default group where the world's size is known."""
        if self._cache is None or world != self._world:
            self._cache, self._world = self._build(world), world
        return self._cache

    def _group(self, group: str) -> _Group | None:
        if group not in self._groups and len(self._groups) >= MAX_GROUPS:
            return None
        return self._groups.setdefault(group, _Group())

    def _build(self, world: int | None) -> dict[str, Mapping[int, int]]:
        built: dict[str, Mapping[int, int]] = {}
        owners: dict[str, list[str]] = {}
        for identity, group in self._groups.items():
            if group.broken:
                continue
            built[identity] = group.members
            for name in group.names:
                owners.setdefault(name, []).append(identity)
        for name, identities in owners.items():
            if len(identities) == 1 and name not in built:
                built[name] = self._groups[identities[0]].members
        if world is not None and world <= MAX_MEMBERS:
            everyone = {rank: rank for rank in range(world)}
            built.update(dict.fromkeys(WORLD_NAMES, everyone))
        return built
