"""One file of a log on its way to a service, as one generation of that log.

In: a `Follower`, or what an earlier sender has left of a file that is gone. Out: the service has it, as a kept log
where its rules are these, else as it is. What the service has already is passed over: a kept log is the same bytes
whoever makes it of the same file. Raises `Away` and `Refused`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Final

from diagnose.dataclass import dataclass
from diagnose.errors import DiagnoseError
from diagnose.integrations.backlog import Backlog, Space
from diagnose.integrations.following import Follower
from diagnose.integrations.resuming import Progress, is_same
from diagnose.integrations.sending import Answer, Sender
from diagnose.keeping import Keeping
from diagnose.service.stall import SignReader
from diagnose.sources.packed import packed

_READ: Final = 1024 * 1024  # bytes of a log at once
_CHUNK: Final = 1024 * 1024  # bytes of a chunk, before it is packed
_TAIL: Final = 8 * 1024
_BEAT: Final = 30.0  # seconds after which the service is told that somebody is here
_BEGINNINGS: Final = 20  # of one log, after refusals
_SMALLEST: Final = 4096  # bytes that are worth a chunk before its time
_GRACE: Final = 5.0  # seconds in which a writer may still write to a file that has another name now
_REFUSED: Final = frozenset({401, 403})
_GONE: Final = "the file is gone, and the service wants it in another form or from its beginning"


class Refused(DiagnoseError):
    """The service refuses this sender; to go on makes no sense."""


@dataclass(frozen=True, slots=True)
class Job:
    """Whose logs they are; `cluster` is empty where there is only one. `prefix` goes before the names of the logs."""

    job_id: str
    cluster: str = ""
    attempt: int = 0
    project: str | None = None
    prefix: str = ""

    @property
    def path(self) -> tuple[str, ...]:
        """Where the service keeps it."""
        return ("jobs", self.cluster or "-", self.job_id, str(self.attempt))


class Tools:
    """What all logs of a sender share. In `state` it is noted how far they are, and kept what cannot be sent yet."""

    def __init__(
        self,
        keeping: Keeping,
        signs: SignReader,
        *,
        state: str | None = None,
        every: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
        space: Space | None = None,
    ) -> None:
        self.keeping, self.signs, self.every, self.clock = keeping, signs, every, clock
        self.space = space or Space(state)
        self.differs = False
        self._state = state

    def key(self, job: Job, path: str) -> str:
        """What a log is called in `state`."""
        told = "\0".join((*job.path, job.project or "", os.path.abspath(path)))
        return sha256(told.encode("utf-8", "backslashreplace")).hexdigest()[:32]

    def progress(self, key: str) -> Progress:
        """Where it is noted how far a log is."""
        return Progress(None if self._state is None else os.path.join(self._state, f"{key}.json"))


@dataclass(frozen=True, slots=True)
class Address:
    """Where a log goes: whose it is, what it is called, and its name in `state`."""

    job: Job
    name: str
    key: str


class Parcel:
    """One file: what is made of it and not yet acknowledged. `past`: its path is another's now."""

    def __init__(
        self, address: Address, sender: Sender, tools: Tools, follower: Follower | None, *, past: bool = False
    ) -> None:
        self.over = ""  # why nothing more of it is sent
        self.waits = False  # it is not read on, for there is no room for what is made of it
        self._passed = False  # another file had its path before this one was read
        self._address, self._sender, self._tools = address, sender, tools
        self._follower, self._past = follower, past
        self._progress = tools.progress(address.key)
        self._form = "kept"
        self._generation = 0
        self._anew = False  # the next chunk takes the place of what this generation's predecessor had
        self._begun = 0
        self._known: Answer | None = None
        self._writer = tools.keeping.writer(address.name)
        self._ending = self._closed = self._any = False  # nothing more comes of this file; whether there was anything
        self.said: Mapping[str, Any] = {}  # by an earlier sender, of what it has left
        self._skip = 0  # so many bytes the service has already
        self._backlog = Backlog(tools.space, tools.space.path(address.key))
        self._sent = self._read = tools.clock()
        self._tail = b""
        self._step: int | None = None

    @classmethod
    def left(cls, address: Address, sender: Sender, tools: Tools, path: str) -> Parcel:
        """What an earlier sender has left at a path, of a file that is gone."""
        made = cls(address, sender, tools, None)
        made.said = said = made._backlog.load(path)
        made._closed = made._any = True
        made._form = str(said.get("form", ""))
        if made._form not in ("raw", "kept") or (made._form == "kept" and said.get("guard") != tools.keeping.guard):
            made.over = "what an earlier sender has left of it cannot be used"
        return made

    @property
    def done(self) -> bool:
        """Whether it has ended, and all of it is acknowledged."""
        return bool(self.over) or (self._closed and not self._backlog)

    @property
    def ended(self) -> bool:
        """Whether its path is another file's now, or it was emptied."""
        return self._passed or (self._follower is not None and self._follower.anew)

    @property
    def unsent(self) -> int:
        """Bytes that are there still and would be lost with it: not read, or made of what was."""
        return len(self._backlog) + (0 if self._follower is None else self._follower.unread)

    @property
    def lost(self) -> int:
        """Bytes that went before they could be read."""
        return 0 if self._follower is None else self._follower.lost

    def take(self, *, away: bool) -> bool:
        """Read on, while there is room for what is made of it; say whether there was anything."""
        follower = self._follower
        if follower is None or self.over or self._closed:
            return False
        if self._tools.space.memory <= 0:
            self.waits = True
            if not self._past and follower.hold():
                self._past = self._passed = True
                self._read = self._tools.clock()
            return False
        self.waits = False
        data = follower.read(_READ)
        now = self._tools.clock()
        if data:
            self._any, self._read = True, now
            self._tail = (self._tail + data)[-_TAIL:]
            self._put(self._writer.feed(data) if self._form == "kept" else data)
        elif follower.anew or self._ending or (self._past and (not follower.is_open or now - self._read >= _GRACE)):
            if self._form == "kept" and self._any:
                self._put(self._writer.finish())
            self._closed = True
        if away:
            self._backlog.spill(self._said())
        return bool(data)

    def hurry(self, *, hurry: bool) -> None:
        """A file that has another name now gets no more time."""
        if self._follower is not None:
            self._follower.hurry = hurry
            if hurry and self._past:
                self._read = -_GRACE

    def finish(self) -> None:
        """Nothing more comes of this file than what is there."""
        self._ending = True

    def push(self, *, now: float, hurry: bool) -> bool:
        """Send what there is; say whether there is more to read now. Raises `Away` and `Refused`."""
        if self.over:
            return False
        if self._known is None and (self._backlog or self._skip):
            self._meet()
        if self._writer.whole and self._form == "kept":
            sent = bool(self._backlog.start or self._skip)
            self._begin("raw", self._generation + sent, same=sent or self._anew)
            return True
        late = now - self._sent
        soon = hurry or self._closed
        while (
            self._backlog and not self.over and (soon or len(self._backlog) >= _SMALLEST or late >= self._tools.every)
        ):
            self._chunk(self._backlog.head(_CHUNK))
        if not self._backlog and self._known is not None and not self.over and late >= _BEAT:
            self._chunk(b"")
        return False

    def close(self, *, sent: bool) -> None:
        """Let go of the file; what waits on disk is deleted where it was `sent`, or never can be."""
        if self._follower is not None:
            self._follower.close()
        if sent:
            self._backlog.clear()
        else:
            self._backlog.close()

    def _meet(self) -> None:
        """Ask how far the service is, and choose the form; go on where an earlier sender of this very file stopped."""
        answer = self._sender.send("GET", (*self._address.job.path, "logs", self._address.name), self._query())
        if answer.status in _REFUSED:
            raise Refused(answer.detail)
        if answer.status != 200:
            self.over = answer.detail
            return
        self._known = answer
        guard = self._tools.keeping.guard
        generation, offset = answer.number("generation"), answer.number("offset")
        form = "kept" if answer.said.get("guard") == guard and not self._writer.whole else "raw"
        if self._follower is None:
            form = self._form
        before, mine = self._progress.read(), self.said if self._follower is None else self._said()
        same = is_same(before, mine)
        if offset and same and generation == before.get("replaces"):  # what was to take its place never came there
            self._begin(form, generation + 1, same=True)
            return
        same = same and generation == before.get("generation")
        if offset and same and (before.get("form") != form or before.get("guard") not in (guard, None)):
            self._begin(form, generation + 1, same=True)
            return
        if offset and same:
            self._begin(form, generation, skip=offset)
        else:
            self._begin(form, generation + 1 if offset else generation)

    def _begin(self, form: str, generation: int, *, skip: int = 0, same: bool = False) -> None:
        """Send this file from its byte `skip` on in this form; `same`: it takes the place of what the service has."""
        self._begun += 1
        if self._begun > _BEGINNINGS:
            self.over = "the service wants it from the beginning again and again; somebody else may send it too"
            return
        if form != self._form or skip < self._backlog.start or (form == "kept" and self._writer.whole):
            if self._follower is None or not self._follower.restart():
                self.over = _GONE
                return
            self._writer = self._tools.keeping.writer(self._address.name)
            self._backlog.clear()
            self._backlog.start = 0
            self._any = self._closed = False
            self._tail = b""
        passed = min(skip - self._backlog.start, len(self._backlog))
        self._backlog.drop(passed)
        self._skip = skip - self._backlog.start
        self._form, self._generation, self._anew = form, generation, same

    def _chunk(self, data: bytes) -> None:
        offset = self._backlog.start
        query: dict[str, str | int] = {"offset": offset, "generation": self._generation, "form": self._form}
        if self._form == "kept":
            query["guard"] = self._tools.keeping.guard
        if self._anew and not offset:
            query["again"] = "true"
        if self._tail and self._form == "kept":
            signs = self._tools.signs.read(self._address.name, self._tail)
            self._step = max([sign.step for sign in signs if sign.step is not None], default=self._step)
            self._tail = b""
        if self._step is not None and self._form == "kept":
            query["step"] = self._step
        headers = {"Content-Type": "application/octet-stream"}
        if data:
            headers["Content-Encoding"] = "zstd"
        path = (*self._address.job.path, "logs", self._address.name)
        if self._follower is not None:  # before, for who is killed now never hears whether it came there
            self._progress.write(self._said())
        answer = self._sender.send("PUT", path, {**query, **self._query()}, packed(data) if data else b"", headers)
        self._sent = self._tools.clock()
        if answer.status != 200:
            self._refused(answer)
            return
        took = min(max(answer.number("offset") - offset, 0), len(data))
        if data and not took:
            self.over = "the service takes nothing and does not say why"
        self._backlog.drop(took)

    def _refused(self, answer: Answer) -> None:
        if answer.status in _REFUSED:
            raise Refused(answer.detail)
        generation = answer.number("generation")
        if answer.kind == "guard-differs":
            self._known = None
            self._tools.differs = True
            sent = bool(self._backlog.start)
            self._begin("raw", self._generation + sent, same=sent or self._anew)
        elif answer.kind == "offset-gap" and generation == self._generation:
            self._begin(self._form, generation, skip=answer.number("offset"))
        elif answer.kind in ("offset-gap", "old-generation"):
            self._begin(self._form, generation if answer.kind == "offset-gap" else generation + 1)
        else:
            self.over = answer.detail

    def _put(self, data: bytes) -> None:
        passed = min(self._skip, len(data))
        self._skip -= passed
        self._backlog.start += passed
        if passed < len(data):
            self._backlog.add(data[passed:])

    def _said(self) -> Mapping[str, Any]:
        """What one who starts again must know of this file."""
        follower = self._follower
        if follower is None:
            return self.said
        return {
            "file": follower.identity,
            "read": follower.position,
            "size": follower.size,
            "generation": self._generation,
            "replaces": self._generation - 1 if self._anew else None,
            "form": self._form,
            "guard": self._tools.keeping.guard if self._form == "kept" else None,
        }

    def _query(self) -> dict[str, str | int]:
        return {} if self._address.job.project is None else {"project": self._address.job.project}
