"""Reports that were read lately, so that they can be read again while the database is away.

In: final submissions with their reports. Out: the same, a bounded number and size.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from diagnose.service.jobs import Projects
from diagnose.store.service_tables import Submission

_MOST: Final = 500
_CHARACTERS: Final = 64 * 1024 * 1024


class Recent:
    """What was read lately."""

    def __init__(self) -> None:
        self._rows: OrderedDict[str, Submission] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def keep(self, row: Submission) -> None:
        """Keeps one that is done."""
        with self._lock:
            self._drop(row.id)
            self._rows[row.id] = row
            self._size += _size(row)
            while len(self._rows) > _MOST or (self._size > _CHARACTERS and len(self._rows) > 1):
                self._drop(next(iter(self._rows)))

    def get(self, id: str, projects: Projects) -> Submission | None:
        """One that was kept, where whoever asks may see it."""
        with self._lock:
            row = self._rows.get(id)
        return row if row is not None and (projects is None or row.project in projects) else None

    def drop(self, id: str) -> None:
        """Forgets one."""
        with self._lock:
            self._drop(id)

    def _drop(self, id: str) -> None:
        row = self._rows.pop(id, None)
        if row is not None:
            self._size -= _size(row)


def _size(row: Submission) -> int:
    return sum(len(text or "") for text in (row.report, row.markdown, row.screen))
