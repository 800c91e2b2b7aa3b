"""When to diagnose a job that has ended: not before its last ranks have sent what they had to say.

In: that a job has ended, that a log of it has grown, and the time. Out: which jobs are due. A pure state machine: it
knows no clock but the seconds it is given, which must not run backwards (`time.monotonic`), and does nothing by
itself.

A job is due once `least` seconds have passed since its end and nothing has come for `quiet` seconds, or when `most`
have passed in any case. What comes after that makes it due again, by the same rule, `again` times at most.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from diagnose.dataclass import dataclass
from diagnose.errors import UsageError

_JOBS: Final = 100_000
_LONGEST: Final = 3600.0

Job = TypeVar("Job", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Waits:
    """For how many seconds to wait, see above."""

    least: float = 10.0
    quiet: float = 5.0
    most: float = 40.0
    again: int = 3

    def checked(self) -> Waits:
        """The same, where it can be meant."""
        if not (0 <= self.least <= self.most <= _LONGEST and 0 <= self.quiet <= self.most):
            raise UsageError(
                f"the waits for late ranks must be 0 <= least <= most <= {_LONGEST:.0f} s and 0 <= quiet <= most"
            )
        return self


class _Waiting:
    """A job that has ended: since when it is waited for, when something came last, and how often it was due."""

    __slots__ = ("due", "heard", "since", "waiting")

    def __init__(self, now: float) -> None:
        self.since = self.heard = now
        self.waiting = True
        self.due = 0


class Latecomers(Generic[Job]):
    """Who is waited for. Bounded: beyond so many jobs the oldest that were due are forgotten."""

    def __init__(self, waits: Waits | None = None) -> None:
        self._waits = waits or Waits()
        self._jobs: dict[Job, _Waiting] = {}

    def __len__(self) -> int:
        return sum(job.waiting for job in self._jobs.values())

    def ended(self, job: Job, now: float) -> None:
        """A job has ended; said twice, it is said once."""
        if job in self._jobs:
            return
        if len(self._jobs) >= _JOBS:
            done = next((known for known, one in self._jobs.items() if not one.waiting), next(iter(self._jobs)))
            del self._jobs[done]
        self._jobs[job] = _Waiting(now)

    def heard(self, job: Job, now: float) -> None:
        """Something came of a job; of one that has not ended it does not matter."""
        known = self._jobs.get(job)
        if known is None:
            return
        known.heard = now
        if not known.waiting and known.due <= self._waits.again:
            known.waiting = True
            known.since = now

    def forget(self, job: Job) -> None:
        """Wait no more."""
        self._jobs.pop(job, None)

    def due(self, now: float) -> list[Job]:
        """The jobs that are to be diagnosed now, each once."""
        ready = [job for job, one in self._jobs.items() if one.waiting and self._at(one) <= now]
        for job in ready:
            self._jobs[job].waiting = False
            self._jobs[job].due += 1
        return ready

    def next_at(self) -> float | None:
        """When the next job is due, unless something comes until then; None where none is waited for."""
        return min((self._at(one) for one in self._jobs.values() if one.waiting), default=None)

    def _at(self, one: _Waiting) -> float:
        waits = self._waits
        return min(one.since + waits.most, max(one.since + waits.least, one.heard + waits.quiet))
