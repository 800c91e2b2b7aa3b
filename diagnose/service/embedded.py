"""The queue of a service that is one process with a few of its own: nothing beside it is needed.

In: ids of submissions. Out: their diagnoses, by a `Pool`. What was left queued or running by a process that ended is
taken up at the start; what a database that was away kept from being done, a little later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from diagnose.errors import StoreError
from diagnose.service.pool import OnState, Pool

_LOOK = 15.0  # seconds between looks at what was left undone


class EmbeddedQueue:
    """Work is done by processes of this one."""

    def __init__(
        self,
        processes: int,
        environment: Mapping[str, str],
        on_state: OnState,
        unfinished: Callable[[], list[str]],
        *,
        job_seconds: float = 300.0,
        look: float = _LOOK,
    ) -> None:
        self._pool = Pool(processes, environment, on_state, job_seconds=job_seconds)
        self._unfinished = unfinished
        self._look = look
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="left-undone", daemon=True)
        self._thread.start()

    def put(self, id: str) -> None:
        """Has a job worked on."""
        self._pool.put(id)

    @property
    def depth(self) -> int:
        """How many wait or are being worked on."""
        return self._pool.depth

    def close(self, seconds: float) -> None:
        """Ends; what is being worked on has so many seconds, the rest is taken up at the next start."""
        self._stop.set()
        self._pool.close(seconds)
        self._thread.join(5.0)

    def _watch(self) -> None:
        """Takes up what nobody has in hand."""
        seen: set[str] = set()
        first = True
        while True:
            try:
                left = [name for name in self._unfinished() if not self._pool.has(name)]
                # One that was accepted this moment is about to be put; at the start nobody puts.
                for name in left:
                    if first or name in seen:
                        self._pool.put(name)
                seen = set(left)
                first = False
            except StoreError:
                pass
            if self._stop.wait(self._look):
                return
