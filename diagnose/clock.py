"""The time limit of a run, shared out among its stages: where one takes too long, the later ones still get their part.

In: seconds. Out: until when each stage may go on. Half of the time is for finding and listing the inputs, most of the
rest for reading them. When that is over time is *short*: of each source that is left only the beginning and the end
are read, for the failure stands at the end. The last tenth is for the verdict.
"""

from __future__ import annotations

import time
from typing import Final

_LISTING, _READING, _ENDS = 0.5, 0.8, 0.9
_END_BYTES = 1024 * 1024
_LEAST_END_BYTES = 32 * 1024
_ALL_ENDS_BYTES = 256 * 1024 * 1024
_LEAST_SHARE = 0.1  # seconds
_LEAST_VERDICT = 1.0


class Clock:
    """When a run has begun and what is over; `sources_left` tells among how many the rest is to be shared."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.sources_left = 1
        self._started = time.monotonic()

    def __str__(self) -> str:
        """Name the limit, for messages."""
        return f"the time limit of {self.seconds:.0f} s"

    @property
    def elapsed(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._started

    @property
    def listing_over(self) -> bool:
        """Whether no more inputs are to be looked for."""
        return self.elapsed > self.seconds * _LISTING

    @property
    def short(self) -> bool:
        """Whether only the ends of sources are to be read."""
        return self.elapsed > self.seconds * _READING

    @property
    def reading_over(self) -> bool:
        """Whether nothing more is to be read."""
        return self.elapsed > self.seconds * _ENDS

    @property
    def over(self) -> bool:
        """Whether all of the time is used."""
        return self.elapsed > self.seconds

    @property
    def reading_left(self) -> float:
        """Seconds until nothing more is to be read."""
        return max(0.0, self.seconds * _ENDS - self.elapsed)

    @property
    def end_bytes(self) -> int:
        """How much is an end, when time is short."""
        return max(_LEAST_END_BYTES, min(_END_BYTES, _ALL_ENDS_BYTES // max(1, self.sources_left)))

    def share(self) -> float:
        """Return the seconds that one source may take to come to its end, so that the others can too."""
        return max(_LEAST_SHARE, 2 * self.reading_left / (self.sources_left + 1))

    def rest(self) -> Clock:
        """Return a clock for the verdict, which gets its tenth even where reading has taken longer than it may."""
        return Clock(max(_LEAST_VERDICT, self.seconds * (1 - _ENDS), self.seconds - self.elapsed))


UNLIMITED: Final = Clock(float("inf"))
"""For who asks without a run around it."""
