"""Past incidents as one project may see them: of another project's there is type and outcome, and no word.

In: an index, the incidents, a project. Out: what the index finds, without the summaries of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from diagnose.dataclass import replace
from diagnose.models import Incidents, SimilarIncident


class Finder(Protocol):
    """What finds incidents that read alike."""

    def similar(self, text: str, count: int = 5) -> tuple[SimilarIncident, ...]:
        """Those that read most like a text, best first."""
        ...

    def bearing(self, text: str, ids: Sequence[str], count: int = 3) -> tuple[str, ...]:
        """The lines of a text that read most like what decided these incidents."""
        ...


class Discreet:
    """An index that keeps other projects' words to itself."""

    def __init__(self, index: Finder, incidents: Incidents, project: str) -> None:
        self._index, self._incidents, self._project = index, incidents, project

    def similar(self, text: str, count: int = 5) -> tuple[SimilarIncident, ...]:
        """Those that read most like a text, best first."""
        found = self._index.similar(text, count)
        own = {
            each.id for each in self._incidents.many([one.id for one in found]) if each.context.project == self._project
        }
        return tuple(each if each.id in own else replace(each, summary="") for each in found)

    def bearing(self, text: str, ids: Sequence[str], count: int = 3) -> tuple[str, ...]:
        """The lines of a text that read most like what decided these incidents; they are the asker's own."""
        return self._index.bearing(text, ids, count)
