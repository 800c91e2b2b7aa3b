"""Lists of devices that do not say whose they are: a table of nvidia-smi in the midst of a log.

In: facts of GPUs without a host, by source, and the hosts that the prefixes of a source's lines name. Out: the same
facts with the source's host, once all is read and where there is but one.
"""

from __future__ import annotations

from collections.abc import Iterator

from diagnose.dataclass import replace
from diagnose.lines.whereabouts import Whereabouts
from diagnose.models import Unit

MAX_LISTED = 4096
_SEVERAL = ""


class Listings:
    """Facts that wait for their host; at most `MAX_LISTED`, later ones are not taken up."""

    def __init__(self) -> None:
        self._facts: dict[tuple[str, int, Unit], None] = {}
        self._labels: dict[str, str] = {}

    def label(self, source: str, host: str) -> None:
        """A host that a line's prefix names."""
        known = self._labels.get(source)
        if known is None and len(self._labels) < MAX_LISTED:
            self._labels[source] = host
        elif known is not None and known != host:
            self._labels[source] = _SEVERAL

    def add(self, source: str, attempt: int, fact: Unit) -> None:
        """A GPU that a line without a host lists; `attempt` counts within the source."""
        if len(self._facts) < MAX_LISTED:
            self._facts[source, attempt, fact] = None

    def placed(self, whereabouts: Whereabouts) -> Iterator[Unit]:
        """Every fact, with its source's host where one alone is known."""
        for source, attempt, fact in self._facts:
            host = self._labels.get(source) or whereabouts.host(source, attempt)
            if self._labels.get(source) == _SEVERAL or host is None:
                yield fact
            else:
                yield replace(fact, host=host)
