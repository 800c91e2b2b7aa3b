"""When to diagnose a job that has ended: not before its last ranks have sent what they had to say.

In: that a job has ended, that a log of it has grown, and the time. Out: which jobs are due. A pure state machine: it
knows no clock but the seconds it is given, which must not run backwards (`time.monotonic`), and does nothing by
itself.

A job is due once `least` seconds have passed since its end and nothing has come for `quiet` seconds, or when `most`
have passed in any case.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from diagnose.dataclass import dataclass
from diagnose.errors import UsageError

_LONGEST: Final = 3600.0

Job = TypeVar("Job", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Waits:
    """For how many seconds to wait, see above."""

    least: float = 10.0
    quiet: float = 5.0
    most: float = 40.0

    def checked(self) -> Waits:
        """The same, where it can be meant."""
        if not (0 <= self.least <= self.most <= _LONGEST and 0 <= self.quiet <= self.most):
            raise UsageError(
                f"the waits for late ranks must be 0 <= least <= most <= {_LONGEST:.0f} s and 0 <= quiet <= most"
            )
        return self


class _Waiting:
    """A job that has ended: since when it is waited for, when something came last, and before when it is not due."""

    __slots__ = ("heard", "least", "since")

    def __init__(self, now: float) -> None:
        self.since = self.heard = self.least = now


class Latecomers(Generic[Job]):
    """Who is waited for."""

    def __init__(self, waits: Waits | None = None) -> None:
        self._waits = waits or Waits()
        self._jobs: dict[Job, _Waiting] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def ended(self, job: Job, now: float) -> None:
        """A job has ended; said twice, it is said once."""
        if job not in self._jobs:
            self._jobs[job] = _Waiting(now)

    def heard(self, job: Job, now: float) -> None:
        """Something came of a job; of one that has not ended it does not matter."""
        if job in self._jobs:
            self._jobs[job].heard = now

    def again(self, job: Job, at: float) -> None:
        """What was due could not be done: it is due once more, and not before then."""
        self._jobs[job] = _Waiting(at - self._waits.most)
        self._jobs[job].least = at

    def forget(self, job: Job) -> None:
        """Wait no more."""
        self._jobs.pop(job, None)

    def due(self, now: float) -> list[Job]:
        """The jobs that are to be diagnosed now, each once."""
        ready = [job for job, one in self._jobs.items() if self._at(one) <= now]
        for job in ready:
            del self._jobs[job]
        return ready

    def next_at(self) -> float | None:
        """When the next job is due, unless something comes until then; None where none is waited for."""
        return min(map(self._at, self._jobs.values()), default=None)

    def at(self, job: Job) -> float | None:
        """When a job is due, unless something comes until then; None where nobody waits for it."""
        known = self._jobs.get(job)
        return None if known is None else self._at(known)

    def _at(self, one: _Waiting) -> float:
        waits = self._waits
        return max(one.least, min(one.since + waits.most, max(one.since + waits.least, one.heard + waits.quiet)))
