"""How many requests a key may send: a bucket for each, filled at a steady rate.

In: a key. Out: 0, or the seconds until the next request may come. The number of buckets is bounded.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

_MOST: Final = 10_000


class Rates:
    """Buckets of a minute's requests."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = float(per_minute)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait(self, key: str) -> float:
        """Takes one request; returns 0, or for how long to wait where there is none left."""
        now = self._clock()
        with self._lock:
            left, then = self._buckets.pop(key, (self._most, now))
            left = min(self._most, left + (now - then) * self._most / 60.0)
            passes = left >= 1.0
            self._buckets[key] = (left - 1.0 if passes else left, now)
            while len(self._buckets) > _MOST:
                self._buckets.popitem(last=False)
        return 0.0 if passes else (1.0 - left) * 60.0 / self._most
