"""Requests that wait for a diagnosis, told by an event when there is one.

In: changes of state, from any thread. Out: `wait(id)` ends at the next one. Nobody polls fast for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterator


class Waiters:
    """Those who wait, by what they wait for. Made in the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, set[asyncio.Event]] = defaultdict(set)

    def tell(self, id: str, _state: str) -> None:
        """Wakes whoever waits for a job; from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._wake, id)

    def _wake(self, id: str) -> None:
        for event in self._waiting.get(id, ()):
            event.set()

    @contextlib.contextmanager
    def waiting(self, id: str) -> Iterator[asyncio.Event]:
        """An event that is set at each change of a job."""
        event = asyncio.Event()
        self._waiting[id].add(event)
        try:
            yield event
        finally:
            self._waiting[id].discard(event)
            if not self._waiting[id]:
                del self._waiting[id]
