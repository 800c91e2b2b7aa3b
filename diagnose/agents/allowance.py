"""What one diagnosis may still use of a model: seconds and tokens, however many questions it asks.

In: the limits. Out: what is left of them.
"""

from __future__ import annotations

import time

_BYTES_PER_TOKEN = 3  # logs are dense; prose has four


class Allowance:
    """Counts down from the moment it is made."""

    def __init__(self, seconds: float, tokens: int) -> None:
        self.seconds = seconds
        self.tokens_left = tokens
        self.tokens_in = self.tokens_out = 0
        self.waited_in_vain = False  # whether the model's server failed already
        self._until = time.monotonic() + seconds

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline, none when it is over."""
        return max(0.0, self._until - time.monotonic())

    def spend(self, tokens_in: int, tokens_out: int) -> None:
        """Takes what a question has cost off the rest."""
        self.tokens_in += tokens_in
        self.tokens_out += tokens_out
        self.tokens_left -= tokens_in + tokens_out


def tokens_of(text: str) -> int:
    """About how many tokens a text has, rather too many than too few."""
    return -(-len(text.encode("utf-8", errors="replace")) // _BYTES_PER_TOKEN)
