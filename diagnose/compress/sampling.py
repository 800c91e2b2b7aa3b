"""What is remembered per writer: how far progress has come, and how many of a kind were shown.

In: routine lines with their rule and writer. Out: which of them pass on. Progress: first, every Nth, every reset, and
the last before something happens, which is held back until then. Maps are bounded; what is evicted is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PROGRESS_EVERY: Final = 50
WRITERS: Final = 8_192

Key = tuple[int, bytes]


@dataclass(slots=True)
class _Progress:
    """One writer's progress by one rule. `seen` counts from the last that passed."""

    step: int | None
    seen: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """A progress line that passes on only if it proves to be the last."""

    number: int
    raw: bytes
    rule: str


class ProgressSampler:
    """Thins out progress lines, per rule and writer."""

    def __init__(self, limit: int = WRITERS) -> None:
        self.evicted = 0
        self._limit = limit
        self._states: dict[Key, _Progress] = {}
        self._held: dict[Key, Held] = {}

    @property
    def full(self) -> bool:
        """Whether there is no room for another writer."""
        return len(self._states) >= self._limit

    def forget(self) -> None:
        """Begin anew: each writer's next line is a first one."""
        self.evicted += len(self._states)
        self._states.clear()

    def passes(self, key: Key, step: int | None) -> bool:
        """Whether this line passes on at once; one that does not is to be handed to `hold`."""
        state = self._states.get(key)
        if state is None:
            self._states[key] = _Progress(step)
            return True
        before = state.step
        state.step = step
        state.seen += 1
        if state.seen >= PROGRESS_EVERY or (before is not None and step is not None and step < before):
            state.seen = 0
            return True
        return False

    def hold(self, key: Key, line: Held) -> bool:
        """Keep a line back; true when that takes the place of another, which is thereby dropped."""
        replaced = self._held.pop(key, None) is not None
        self._held[key] = line
        return replaced

    def release(self, key: Key) -> Held | None:
        """Take back what is held for one writer."""
        return self._held.pop(key, None)

    def release_all(self) -> list[Held]:
        """Take back everything held, by line number."""
        held = sorted(self._held.values(), key=lambda line: line.number)
        self._held.clear()
        return held


class Quota:
    """The first few of each writer's lines, per rule."""

    def __init__(self, limit: int = WRITERS) -> None:
        self.evicted = 0
        self._limit = limit
        self._counts: dict[Key, int] = {}

    def takes(self, key: Key, most: int) -> bool:
        """Whether the writer still has a line free."""
        count = self._counts.get(key, 0)
        if count >= most:
            return False
        if count == 0 and len(self._counts) >= self._limit:
            self.evicted += len(self._counts)
            self._counts.clear()
        self._counts[key] = count + 1
        return True
