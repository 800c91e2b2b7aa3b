"""The names of hosts: short and full names, addresses and pods of one machine brought together.

In: names as inputs print them, and which two name one machine. Out: one canonical name, and all the others.
"""

from __future__ import annotations

from diagnose.lines.hostlists import is_address, short_name
from diagnose.patterns import Lazy

MAX_HOSTS = 4096
MAX_NAMES = 4 * MAX_HOSTS

_AWS = Lazy(r"ip-(\d{1,3})-(\d{1,3})-(\d{1,3})-(\d{1,3})\Z")
_NAME = Lazy(r"[A-Za-z0-9][A-Za-z0-9._:\-]{0,252}\Z")
_NOBODY = frozenset({"localhost", "127.0.0.1", "0.0.0.0", "none", "null", "n/a", "unknown", "::1"})  # noqa: S104 - names to refuse


class Hosts:
    """Names of hosts; the canonical one is the first name that is no address, without its domain."""

    def __init__(self) -> None:
        self._names: dict[str, dict[str, None]] = {}
        self._canonical: dict[str, str] = {}

    @property
    def all(self) -> tuple[str, ...]:
        """The canonical names, in the order first seen."""
        return tuple(self._names)

    def add(self, name: str) -> str:
        """Take up a name; gives the canonical one. What is no host's name comes back as it is."""
        name = name.strip().strip("\"'`()[],;").rstrip(".")
        if (known := self._canonical.get(name)) is not None:
            return known
        if not _NAME.match(name) or name.lower() in _NOBODY:
            return name
        short = short_name(name)
        canonical = self._canonical.get(short)
        if canonical is None:
            if len(self._names) >= MAX_HOSTS:
                return short
            canonical = short
            self._names[canonical] = {}
            self._name(canonical, short)
            if (match := _AWS.match(short)) is not None:
                self._name(canonical, ".".join(match.groups()))
        self._name(canonical, name)
        return canonical

    def known(self, name: str) -> str | None:
        """Take up a name for a unit: the canonical one, or None for what names no machine (`localhost`, rubbish)."""
        canonical = self.add(name)
        return canonical if canonical in self._names else None

    def canonical(self, name: str) -> str:
        """The canonical name, without taking up a new one."""
        known = self._canonical.get(name)
        if known is None:
            short = short_name(name)
            known = self._canonical.get(short, short if _NAME.match(name) else name)
        return known

    def names(self, name: str) -> tuple[str, ...]:
        """Every name of the same host but this one."""
        return tuple(other for other in self._names.get(self.canonical(name), ()) if other != name)

    def same(self, one: str, other: str) -> str:
        """Two names of one machine: an address or a pod's name joins the machine's."""
        first, second = self.add(one), self.add(other)
        if first == second or first not in self._names or second not in self._names:
            return first
        keep, drop = (second, first) if is_address(first) else (first, second)
        if not is_address(drop) and any(
            is_address(name) and name not in self._names[keep] for name in self._names[drop]
        ):
            # Both are names with addresses of their own: a pod and its node, joined under the first.
            keep, drop = first, second
        for name in self._names.pop(drop):
            self._name(keep, name)
        return keep

    def runs_on(self, pod: str, node: str) -> None:
        """A pod and its node: both go under the node's name, for it is the node that is drained."""
        inner, outer = self.add(pod), self.add(node)
        if inner != outer and inner in self._names and outer in self._names:
            for name in self._names.pop(inner):
                self._name(outer, name)

    def _name(self, canonical: str, name: str) -> None:
        if len(self._canonical) < MAX_NAMES:
            self._names[canonical][name] = None
            self._canonical[name] = canonical
