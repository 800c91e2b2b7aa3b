"""A memory of incidents in memory, as tests of what reads them need it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diagnose.dataclass import replace
from diagnose.models import Incident


class Remembered:
    """Incidents with revisions, as the database keeps them."""

    def __init__(self) -> None:
        self._incidents: dict[str, Incident] = {}
        self._removed: list[tuple[int, str]] = []
        self._revision = 0

    def put(self, id: str, error_type: str | None, text: str, *, confirmed: bool = True, **more: object) -> None:
        self._revision += 1
        made = Incident(id, error_type, text=text, confirmed=confirmed, summary=f"about {id}", revision=self._revision)
        self._incidents[id] = replace(made, **more)

    def drop(self, id: str) -> None:
        self._revision += 1
        del self._incidents[id]
        self._removed.append((self._revision, id))

    def __iter__(self) -> Iterator[Incident]:
        return iter([self._incidents[name] for name in sorted(self._incidents)])

    def __len__(self) -> int:
        return len(self._incidents)

    def get(self, id: str) -> Incident | None:
        return self._incidents.get(id)

    def many(self, ids: Sequence[str]) -> tuple[Incident, ...]:
        return tuple(self._incidents[name] for name in ids if name in self._incidents)

    def changed_since(self, revision: int) -> Iterator[Incident]:
        changed = [each for each in self._incidents.values() if each.revision > revision]
        return iter(sorted(changed, key=lambda each: each.revision))

    def removed_since(self, revision: int) -> Iterator[tuple[int, str]]:
        return iter([each for each in self._removed if each[0] > revision])

    def revision(self) -> int:
        return self._revision
