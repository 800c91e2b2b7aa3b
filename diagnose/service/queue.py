"""How work reaches whoever does it, as the API sees it.

In: ids of submissions that were accepted. Out: `Queue`, which puts them where workers find them, and tells of states.
Losing what was put loses nothing: the database says what is unfinished, and every queue looks there again.
"""

from __future__ import annotations

from typing import Protocol


class Queue(Protocol):
    """Where accepted jobs go."""

    def put(self, id: str) -> None:
        """Has a job worked on, now or when somebody is there to do it. Raises `StoreError` where it cannot be told."""
        ...

    def close(self, seconds: float) -> None:
        """Ends; what this process is working on has so many seconds."""
        ...

    @property
    def depth(self) -> int | None:
        """How many jobs wait or are being worked on in this process; None where they are elsewhere."""
        ...
