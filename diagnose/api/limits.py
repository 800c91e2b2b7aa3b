"""How much a key may send: a bucket for each, filled at a steady rate.

In: a key. Out: 0, or the seconds until the next request may come. What a request weighs beyond one is paid for after it
(`spend`), so that nothing is received in vain. The number of buckets is bounded.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

_MOST: Final = 10_000


class Rates:
    """Buckets of a minute's requests, or of a minute's bytes."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = float(per_minute)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait(self, key: str) -> float:
        """Takes one request; returns 0, or for how long to wait where there is none left."""
        with self._lock:
            left = self._left(key)
            passes = left >= 1.0
            self._keep(key, left - 1.0 if passes else left)
        return 0.0 if passes else (1.0 - left) * 60.0 / self._most

    def spend(self, key: str, amount: float) -> None:
        """Takes so much more, though it be not there yet: whoever comes next waits for it."""
        with self._lock:
            self._keep(key, self._left(key) - amount)

    def _left(self, key: str) -> float:
        left, then = self._buckets.get(key, (self._most, 0.0))
        return min(self._most, left + (self._clock() - then) * self._most / 60.0)

    def _keep(self, key: str, left: float) -> None:
        self._buckets[key] = (left, self._clock())
        self._buckets.move_to_end(key)
        while len(self._buckets) > _MOST:
            self._buckets.popitem(last=False)
