"""`diagnose ship`: the logs of a running job, sent to a service as they grow.

In: paths, a job, a `Sender`. Out: the service has them. The job is not slowed: its files are only read, at the lowest
priority. While the service is away a log that lies where it lay is its own store, read on when the service is there
again, by another sender too: its only state is a small file that says which file it was. What could be gone by then
(a log that is emptied or deleted when it is rotated) is read in time all the same, and waits in memory and on disk, up
to a bound. What could not be sent is told.

A log is sent as *generations*, one `Parcel` for each file that has had the path, one after the other.
"""

from __future__ import annotations

import glob
import json
import os
import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from diagnose.integrations.following import Follower
from diagnose.integrations.parcel import Address, Job, Parcel, Refused, Tools
from diagnose.integrations.resuming import place_of
from diagnose.integrations.sending import Away, Sender

_LOOK: Final = 10.0  # seconds between looks for new files
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 60.0
_FILES: Final = 5_000
_LOST: Final = 100  # logs of which the service is told what was lost
_UNKNOWN: Final = 422
_PARCELS: Final = 20  # of one log, that wait; a service keeps as many

__all__ = ["Job", "Refused", "Shipment", "Shipping", "Tools"]


class Shipment:
    """One log on its way: the files that have had its path, the oldest that is not there yet first."""

    def __init__(self, path: str, job: Job, sender: Sender, tools: Tools) -> None:
        self.name = f"{job.prefix}/{path}".replace("/./", "/").strip("/") or path
        self.refused = ""  # why a file of it was not sent as a whole
        self.lost = 0  # bytes that went before they could be read
        self._path, self._sender, self._tools = path, sender, tools
        self._address = Address(job, self.name, tools.key(job, path))
        self._parcels = [*self._left(), self._next()]

    @property
    def done(self) -> bool:
        """Whether all of it is acknowledged, or never will be."""
        return all(parcel.done for parcel in self._parcels)

    @property
    def over(self) -> str:
        """Why something of it is not sent."""
        return next((parcel.over for parcel in self._parcels if parcel.over), self.refused)

    @property
    def waits(self) -> bool:
        """Whether it is not read on, for there is no room for what is made of it."""
        return any(parcel.waits for parcel in self._parcels)

    @property
    def gone(self) -> int:
        """Bytes that are lost by now."""
        return self.lost + sum(parcel.lost for parcel in self._parcels)

    def take(self, *, away: bool) -> bool:
        """Read on, while there is room; say whether there was anything."""
        busy = False
        for parcel in self._parcels:
            busy = parcel.take(away=away) or busy
        if self._parcels[-1].ended:
            if len(self._parcels) >= _PARCELS:
                self.refused = f"more than {_PARCELS} files of it wait to be sent; the oldest is left out"
                self.lost += self._parcels[0].unsent
                self._leave(self._parcels.pop(0))
            self._parcels.append(self._next())
            return True
        return busy

    def push(self, *, now: float, hurry: bool) -> bool:
        """Send what there is; say whether there is more to be read now. Raises `Away` and `Refused`."""
        for parcel in self._parcels:
            parcel.hurry(hurry=hurry)
        first = self._parcels[0]
        busy = first.push(now=now, hurry=hurry)
        if first.done and len(self._parcels) > 1:
            self.refused = self.refused or first.over
            self._leave(self._parcels.pop(0))
            return True
        return busy

    def finish(self) -> None:
        """The log ends here."""
        self._parcels[-1].finish()

    def close(self) -> None:
        """Let go of its files; what is not sent waits for the next sender."""
        for parcel in self._parcels:
            self.lost += parcel.lost
            parcel.close(sent=parcel.done)

    def _next(self) -> Parcel:
        return Parcel(self._address, self._sender, self._tools, Follower(self._path, self._tools.clock))

    def _leave(self, parcel: Parcel) -> None:
        self.lost += parcel.lost
        parcel.close(sent=True)

    def _left(self) -> list[Parcel]:
        """What an earlier sender has not sent: files by whatever name they have now, else what it has kept of them."""
        parcels: list[Parcel] = []
        seen = {self._path}

        def found(said: Mapping[str, Any]) -> bool:
            place = place_of(self._path, said)
            if place is not None and place not in seen:
                seen.add(place)
                follower = Follower(place, self._tools.clock)
                parcels.append(Parcel(self._address, self._sender, self._tools, follower, past=True))
            return place is not None

        found(self._tools.progress(self._address.key).read())
        for kept in self._tools.space.left(self._address.key):
            parcel = Parcel.left(self._address, self._sender, self._tools, kept)
            if found(parcel.said):
                parcel.close(sent=True)  # it is made again
            else:
                parcels.append(parcel)
        return parcels


class Shipping:
    """All logs of one job, until `finish`."""

    def __init__(
        self, paths: Iterable[str], job: Job, sender: Sender, tools: Tools, tell: Callable[[str], None]
    ) -> None:
        self._paths, self._job, self._sender, self._tools = tuple(paths), job, sender, tools
        self._tell = tell
        self._logs: dict[str, Shipment] = {}
        self._looked: float | None = None
        self._until = 0.0
        self._wait = _FIRST_WAIT
        self._away = ""
        self._told: set[str] = set()
        self._losing: set[str] = set()

    def turn(self, *, hurry: bool = False) -> bool:
        """Read what has come and send it; say whether there may be more at once. Raises `Refused`."""
        self._look()
        now = self._tools.clock()
        busy = False
        for log in self._logs.values():
            busy = log.take(away=self._away != "") or busy
            self._say_full(log)
        if now < self._until:
            return False
        try:
            for log in self._logs.values():
                busy = log.push(now=now, hurry=hurry) or busy
        except Away as error:
            self._wait = min(2 * self._wait, _LONGEST_WAIT)
            self._until = now + max(error.after, self._wait * random.uniform(0.5, 1.0))  # noqa: S311 - to spread senders
            if not self._away:
                self._tell(f"{error}; it is tried again, and the job goes on")
            self._away = str(error)
            return False
        if self._away:
            self._tell("the service is there again")
        self._away, self._wait = "", _FIRST_WAIT
        self._say_over()
        return busy

    def finish(self, seconds: float, sleep: Callable[[float], None] = time.sleep) -> bool:
        """Send the rest; say whether all of it is there."""
        until = self._tools.clock() + seconds
        self._looked = None  # what a job writes last tells why it died: files that were made since the last look count
        while self.turn(hurry=True) and self._tools.clock() < until:
            pass
        while True:
            while self.turn(hurry=True) and self._tools.clock() < until:
                pass
            for log in self._logs.values():
                log.finish()
            self.turn(hurry=True)
            if all(log.done for log in self._logs.values()) and not self._away:
                break
            if self._tools.clock() >= until:
                break
            sleep(0.2)
        unsent = sorted(log.name for log in self._logs.values() if log.over or not log.done)
        for log in self._logs.values():
            log.close()
            if log.lost:
                self._tell(f"{log.name}: {log.lost} bytes went before they could be read")
        if unsent:
            self._tell(f"not sent as a whole: {', '.join(unsent[:5])}" + (" ..." if len(unsent) > 5 else ""))
        return not unsent

    def end(self, said: Mapping[str, Any], seconds: float, sleep: Callable[[float], None] = time.sleep) -> str:
        """Say that the job has ended; return where its diagnosis will be, nothing where that could not be said."""
        until = self._tools.clock() + seconds
        query = {} if self._job.project is None else {"project": self._job.project}
        lost = [{"name": log.name[:500], "bytes": log.lost} for log in self._logs.values() if log.lost][:_LOST]
        said = {**said, "lost": lost} if lost else said
        headers = {"Content-Type": "application/json"}
        while True:
            body = json.dumps(said).encode()
            try:
                answer = self._sender.send("POST", (*self._job.path, "end"), query, body, headers)
            except Away as error:
                if self._tools.clock() >= until:
                    self._tell(f"{error}; nobody was told that the job has ended")
                    return ""
                sleep(max(1.0, min(error.after, 10.0)))
                continue
            if answer.status == 202:
                return str(answer.said.get("report", ""))
            if answer.status == _UNKNOWN and "lost" in said:  # it is older than that
                said = {name: value for name, value in said.items() if name != "lost"}
                continue
            self._tell(f"the service does not take the end of the job: {answer.detail}")
            return ""

    def _look(self) -> None:
        """See whether there are more files."""
        now = self._tools.clock()
        if self._looked is not None and now - self._looked < _LOOK:
            return
        self._looked = now
        for given in self._paths:
            matches = sorted(glob.glob(given, recursive=True)) if glob.has_magic(given) else [given]
            for path in matches:
                if path not in self._logs and not os.path.isdir(path):
                    if len(self._logs) >= _FILES:
                        self._once(f"more than {_FILES} files; the others are not sent")
                        return
                    self._logs[path] = Shipment(path, self._job, self._sender, self._tools)

    def _say_full(self, log: Shipment) -> None:
        """Says once of a log that it waits where it lies, and once that something of it is lost by that."""
        if log.waits:
            self._once(
                f"{log.name}: what waits for the service has no more room; the log is read on when there is some, "
                "unless it is emptied before"
            )
        if log.gone and log.name not in self._losing:
            self._losing.add(log.name)
            self._tell(f"{log.name}: {log.gone} bytes went before they could be read, and more may")

    def _say_over(self) -> None:
        for log in self._logs.values():
            if log.over:
                self._once(f"{log.name}: {log.over}")
        if self._tools.differs:
            self._once("the service has other rules than this diagnose: logs are sent as they are")

    def _once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._tell(text)
