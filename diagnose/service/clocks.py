"""What the wall clock can be believed about age: it may be set, by seconds or by years, while a service runs.

In: the wall clock, and one that only goes forward and is never set. Out: `Jumps`, whether the wall clock was set
lately, as one process sees it; `Ages`, what is older than it is kept, for all that share a spool and from one start to
the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import time
from collections.abc import Callable
from typing import Any, Final

from diagnose.dataclass import dataclass

_STEP: Final = 5.0  # seconds by which clocks part that nobody has set
_FAR: Final = 3_600.0  # by which those of a whole service do, in days
_DAY: Final = 86_400.0
_BOOT: Final = "/proc/sys/kernel/random/boot_id"

Clock = Callable[[], float]


def since_boot() -> float:
    """Seconds since this machine was started, sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Jumps:
    """Whether the wall clock was set, as far as that was seen from one look to the next."""

    def __init__(self, wall: Clock = time.time, steady: Clock = since_boot) -> None:
        self._wall, self._steady = wall, steady
        self._apart = wall() - steady()
        self._at = -math.inf

    def quiet(self, seconds: float) -> bool:
        """Look; say whether that was long enough ago, if it ever was."""
        now = self._steady()
        apart = self._wall() - now
        if abs(apart - self._apart) > _STEP:
            self._at = now
        self._apart = apart
        return now - self._at > seconds


@dataclass(frozen=True, slots=True)
class Span:
    """What bears a time outside is older than it is kept; `until` is in the future, which none of it should be."""

    since: float
    until: float

    def __contains__(self, stamp: object) -> bool:
        return isinstance(stamp, float | int) and self.since <= stamp <= self.until


class Ages:
    """How old things are, by time that somebody saw pass. Noted in the file `path`; `look` now and then.

    Once the wall clock was set, no stamp from before tells an age. So nothing counts as old until it would be even if
    it was made just before that: until it was kept for its time, by the other clock. A service that was not there for
    more than a day, on a machine that was started anew, cannot tell that from a clock that was set: it waits as well.
    """

    def __init__(
        self, path: str, wall: Clock = time.time, steady: Clock = since_boot, boot: Callable[[], str] | None = None
    ) -> None:
        self._path, self._wall, self._steady = path, wall, steady
        self._boot = (boot or _boot)()
        self._last: float | None = None
        self._apart = 0.0
        self._seen = 0.0  # seconds that were seen to pass, by all of this spool
        self._set: float | None = None  # how many it were when the clock was last seen to be set

    def look(self) -> None:
        """See how much time has passed, and whether the wall clock agrees. Raises `OSError`."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with open(os.open(self._path, flags, 0o600), "r+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            said: dict[str, Any] = {}
            with contextlib.suppress(ValueError):
                said = json.load(file)
            wall, steady = self._wall(), self._steady()
            self._note(said if isinstance(said, dict) else {}, wall, steady)
            self._last = steady
            known = {"wall": wall, "steady": steady, "boot": self._boot, "seen": self._seen, "set": self._set}
            text = json.dumps({**known, "apart": self._apart})
            file.seek(0)
            file.write(text)
            file.truncate()

    def span(self, keep: float) -> Span | None:
        """What is not older than it is kept; None while nobody can tell."""
        if self._set is not None and self._seen - self._set < keep:
            return None
        now = self._wall()
        return Span(now - keep, now + _DAY if self._seen >= keep else math.inf)

    def _note(self, said: dict[str, Any], wall: float, steady: float) -> None:
        try:
            before, then, seen = float(said["wall"]), float(said["steady"]), float(said["seen"])
            apart = float(said["apart"])
            was_set = None if said["set"] is None else float(said["set"])
        except (KeyError, TypeError, ValueError):
            self._apart = wall - self._seen
            return
        if said.get("boot") == self._boot and steady >= then:
            passed = steady - then
        else:  # by another machine, or before this one was started
            most = _DAY if self._last is None else steady - self._last
            passed = min(max(wall - before, 0.0), most)
        self._seen = seen + passed
        self._set, self._apart = was_set, apart
        if abs(wall - self._seen - apart) > _FAR:
            self._set, self._apart = self._seen, wall - self._seen


def _boot() -> str:
    with contextlib.suppress(OSError), open(_BOOT, encoding="ascii") as file:
        return file.read(100).strip()
    return ""
