"""What the last days' jobs came to, counted once for all who look within a few seconds.

In: a database, the projects that whoever asks may see, days and cluster. Out: `Summary`, at most `_FRESH` seconds old,
of exactly these projects: they are part of what a summary is found by.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from diagnose.service.jobs import Projects
from diagnose.service.stats import Summary, summary
from diagnose.store.database import Database

_FRESH: Final = 5.0
_MOST: Final = 16  # each may hold numbers of hundreds of thousands of jobs

_Key = tuple[frozenset[str] | None, int, str | None]


class _Counted:
    """One summary, and whoever counts it meanwhile."""

    __slots__ = ("at", "found", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.at = 0.0
        self.found: Summary | None = None


class Summaries:
    """Those that were counted lately."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[_Key, _Counted] = OrderedDict()

    def get(self, database: Database, projects: Projects, *, days: int, cluster: str | None) -> Summary:
        """The summary of these projects; whoever asks for the same meanwhile waits for it. Raises `StoreError`."""
        key = (None if projects is None else frozenset(projects), days, cluster)
        with self._lock:
            one = self._known.setdefault(key, _Counted())
            self._known.move_to_end(key)
            while len(self._known) > _MOST:
                self._known.popitem(last=False)
        with one.lock:
            if one.found is None or self._clock() - one.at >= _FRESH:
                found = summary(database, projects, days=days, cluster=cluster)
                one.found, one.at = found, self._clock()
            return one.found

    def forget(self) -> None:
        """Something was deleted: it is not to be seen any more."""
        with self._lock:
            self._known.clear()
