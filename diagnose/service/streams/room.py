"""How much streamed logs take, all together.

In: sizes. Out: `SpoolFull` beyond the bound.
"""

from __future__ import annotations

import threading

from diagnose.service.streams.model import SpoolFull


class Room:
    """A bound on bytes, for several threads."""

    def __init__(self, most: int, used: int) -> None:
        self._most, self._used = most, used
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Counts bytes that are about to be written."""
        with self._lock:
            if self._used + size > self._most:
                raise SpoolFull(
                    f"streamed logs take {self._used} bytes and may take no more than {self._most}; try again later"
                )
            self._used += size

    def give_back(self, size: int) -> None:
        """Counts bytes that are gone."""
        with self._lock:
            self._used = max(0, self._used - size)
