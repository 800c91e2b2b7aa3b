"""Facts of units, joined: the same GPU named by rank, PCI address, index, UUID or process is one unit.

In: `Unit`s with some fields set, each with a strength. Out: `Unit`s with everything that is known of them.
The first fact of the greatest strength stays; nothing is derived that no fact states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from diagnose.dataclass import fields, replace
from diagnose.lines.units import is_pci, normalise_pci
from diagnose.models import Unit

MAX_UNITS = 65_536

GUESS, WEAK, STRONG, GIVEN = range(4)

_FIELDS = tuple(field.name for field in fields(Unit))

Key = tuple[str, str | None, str | int]


class UnitStore:
    """Units by every key that names them; at most `MAX_UNITS`, later ones are not taken up."""

    def __init__(self, host_name: Callable[[str], str | None]) -> None:
        self._host_name = host_name
        self._units: list[Unit | None] = []
        self._strength: list[dict[str, int]] = []
        self._index: dict[Key, int] = {}
        self._by_pid: dict[int, list[Unit]] | None = None  # made when it is asked for, until something is learnt

    def __iter__(self) -> Iterator[Unit]:
        return (unit for unit in self._units if unit is not None)

    def learn(self, fact: Unit, strength: int) -> None:
        """Join a fact with what is known of the same unit."""
        fact = self._normal(fact)
        keys = _keys(fact)
        if not keys:
            return
        found = list(dict.fromkeys(self._index[key] for key in keys if key in self._index))
        found = [place for place in found if not self._contradicts(place, fact, strength)]
        if found:
            place = found[0]
            for other in found[1:]:
                self._absorb(place, other)
        else:
            if len(self._units) >= MAX_UNITS:
                return
            place = len(self._units)
            self._units.append(Unit())
            self._strength.append({})
        self._update(place, fact, strength)

    def find(self, kind: str, host: str | None, value: str | int) -> Unit | None:
        """The unit that a key names: kind is `rank`, `pci`, `uuid`, `serial`, `gpu`, `local` or `pid`."""
        place = self._index.get((kind, host, value))
        return self._units[place] if place is not None else None

    def of_process(self, pid: int) -> list[Unit]:
        """All units with a process of that number, on whatever host."""
        if self._by_pid is None:
            self._by_pid = {}
            for unit in self:
                if unit.pid is not None:
                    self._by_pid.setdefault(unit.pid, []).append(unit)
        return self._by_pid.get(pid, [])

    def strength(self, rank: int, field: str) -> int | None:
        """How sure a field of a rank's unit is."""
        place = self._index.get(("rank", None, rank))
        return self._strength[place].get(field) if place is not None else None

    def _normal(self, fact: Unit) -> Unit:
        if fact.pci is not None:
            pci = normalise_pci(fact.pci)
            fact = replace(fact, pci=pci if is_pci(pci) else None)
        return replace(fact, host=self._host_name(fact.host)) if fact.host is not None else fact

    def _contradicts(self, place: int, fact: Unit, strength: int) -> bool:
        """Whether a unit is another than the fact's: both name a rank, or a device on one host, and differ."""
        unit, sure = self._units[place], self._strength[place]
        if unit is None:
            return True
        if fact.rank is not None and unit.rank is not None and fact.rank != unit.rank:
            return True
        same_rank = fact.rank is not None and fact.rank == unit.rank
        for name in ("host", "pci", "uuid"):
            mine, theirs = getattr(unit, name), getattr(fact, name)
            # A rank is one unit whatever is said of it; the stronger word on its place wins.
            if mine is not None and theirs is not None and mine != theirs and not same_rank:
                return strength <= sure.get(name, GUESS)
        return False

    def _absorb(self, place: int, other: int) -> None:
        """Two units turn out to be one."""
        unit, strength = self._units[other], self._strength[other]
        if unit is None or place == other:
            return
        mine = self._units[place]
        if mine is None or (mine.rank is not None and unit.rank is not None and mine.rank != unit.rank):
            return
        self._units[other] = None
        for level in sorted(set(strength.values()), reverse=True):
            known = {name: getattr(unit, name) for name, value in strength.items() if value == level}
            self._update(place, Unit(**known), level)

    def _update(self, place: int, fact: Unit, strength: int) -> None:
        unit, sure = self._units[place], self._strength[place]
        assert unit is not None
        self._by_pid = None
        changed: dict[str, str | int] = {}
        for name in _FIELDS:
            value = getattr(fact, name)
            if value is not None and (name not in sure or strength > sure[name]):
                changed[name] = value
                sure[name] = strength
        if "host" in changed and unit.host is not None and changed["host"] != unit.host:
            # The place was wrong, and so is what was known of it.
            stale = [name for name in ("pci", "uuid", "serial", "gpu", "pid", "ip", "nic", "local_rank")
                     if name not in changed and sure.get(name, GIVEN) < strength]  # fmt: skip
            unit = replace(unit, **dict.fromkeys(stale))
            for name in stale:
                del sure[name]
        unit = replace(unit, **changed)  # type: ignore[arg-type]
        self._units[place] = unit
        for key in _keys(unit):
            self._index.setdefault(key, place)
            if self._units[self._index[key]] is None:
                self._index[key] = place


def _keys(unit: Unit) -> list[Key]:
    """Every key that names this unit."""
    keys: list[Key] = []
    if unit.rank is not None:
        keys.append(("rank", None, unit.rank))
    if unit.uuid is not None:
        keys.append(("uuid", None, unit.uuid))
    if unit.pci is not None:
        keys.append(("pci", unit.host, unit.pci))
    if unit.host is not None:
        if unit.gpu is not None:
            keys.append(("gpu", unit.host, unit.gpu))
        if unit.local_rank is not None:
            keys.append(("local", unit.host, unit.local_rank))
        if unit.pid is not None:
            keys.append(("pid", unit.host, unit.pid))
    elif unit.gpu is not None and unit.rank is None:
        keys.append(("gpu", None, unit.gpu))
    return keys
