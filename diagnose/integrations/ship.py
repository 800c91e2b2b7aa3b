"""`diagnose ship`: the logs of a running job, sent to a service as they grow.

In: paths, a job, a `Sender`. Out: the service has them, as kept logs where its rules are these, else as they are. The
job is not slowed: its files are only read, at the lowest priority, and while the service is away what was compressed
waits here, up to a bound, and the rest where it lies. What could not be sent is told.

A log is sent as *generations*, one for each file that has had the path. Kept logs are the same bytes whoever makes them
of the same log, so that one who starts again makes them again and passes over what the service has.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import random
import time
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any, Final

from diagnose.dataclass import dataclass
from diagnose.errors import DiagnoseError
from diagnose.integrations.following import Follower
from diagnose.integrations.sending import Answer, Away, Sender
from diagnose.keeping import Keeping
from diagnose.service.stall import SignReader
from diagnose.sources.packed import packed

_READ: Final = 1024 * 1024  # bytes of a log at once
_CHUNK: Final = 1024 * 1024  # bytes of a chunk, before it is packed
_WAITING: Final = 32 * 1024 * 1024  # bytes of all logs that wait here while the service is away
_TAIL: Final = 8 * 1024
_BEAT: Final = 30.0  # seconds after which the service is told that somebody is here
_LOOK: Final = 10.0  # seconds between looks for new files
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 60.0
_FILES: Final = 5_000
_BEGINNINGS: Final = 20  # of one log, after refusals
_SMALLEST: Final = 4096  # bytes that are worth a chunk before its time
_REFUSED: Final = frozenset({401, 403})


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


class Shipment:
    """One log on its way: what is made of it and not yet acknowledged."""

    def __init__(self, path: str, job: Job, sender: Sender, tools: Tools) -> None:
        self.name = f"{job.prefix}/{path}".replace("/./", "/").strip("/") or path
        self.waiting = 0
        self.over = ""  # why nothing more of it is sent
        self._follower = Follower(path, tools.clock)
        self._job, self._sender, self._tools = job, sender, tools
        self._state = tools.state_of(job, path)
        self._form = "kept"
        self._generation = 0
        self._anew = False  # the next chunk takes the place of what this generation's predecessor had
        self._begun = 0
        self._known: Answer | None = None
        self._writer = tools.keeping.writer(self.name)
        self._closed = self._any = False  # nothing more comes of this file; whether there was anything
        self._skip = 0  # so many bytes the service has already
        self._pending = bytearray()
        self._offset = 0
        self._sent = tools.clock()
        self._tail = b""
        self._step: int | None = None

    @property
    def done(self) -> bool:
        """Whether it has ended, and all of it is acknowledged."""
        return bool(self.over) or (self._closed and not self._pending and not self._follower.anew)

    @property
    def lost(self) -> int:
        """Bytes that went before they could be read."""
        return self._follower.lost

    def take(self, *, room: int) -> bool:
        """Read on, while there is room for what is made of it; say whether there was anything."""
        if self.over or room <= 0 or self._closed:
            return False
        data = self._follower.read(_READ)
        if not data:
            return False
        self._any = True
        self._tail = (self._tail + data)[-_TAIL:]
        self._put(self._writer.feed(data) if self._form == "kept" else data)
        return True

    def finish(self) -> None:
        """The log ends here."""
        if not self._follower.anew:
            self._close_file()

    def _close_file(self) -> None:
        """Nothing more comes of this file."""
        if self._form == "kept" and self._any and not self._closed:
            self._put(self._writer.finish())
        self._closed = True

    def push(self, *, now: float, hurry: bool) -> bool:
        """Send what there is; say whether there is another file to read now. Raises `Away` and `Refused`."""
        self._follower.hurry = hurry
        if self.over:
            return False
        if self._known is None and (self._pending or self._skip):
            self._meet()
        if self._writer.whole and self._form == "kept":
            self._begin("raw", self._generation + bool(self._offset or self._skip), same=True)
            return True
        late = now - self._sent
        while self._pending and (hurry or len(self._pending) >= _SMALLEST or late >= self._tools.every):
            self._chunk(bytes(self._pending[:_CHUNK]))
        if not self._pending and self._known is not None and late >= _BEAT:
            self._chunk(b"")
        if self._follower.anew:
            self._close_file()
            while self._pending:
                self._chunk(bytes(self._pending[:_CHUNK]))
            if self._closed:  # it was not refused
                self._next_file()
            return True
        return False

    def _meet(self) -> None:
        """Ask how far the service is, and choose the form; go on where an earlier sender of this very file stopped."""
        answer = self._sender.send("GET", (*self._job.path, "logs", self.name), self._query())
        if answer.status in _REFUSED:
            raise Refused(answer.detail)
        if answer.status != 200:
            self.over = answer.detail
            return
        self._known = answer
        generation, offset = answer.number("generation"), answer.number("offset")
        form = "kept" if answer.said.get("guard") == self._tools.keeping.guard and not self._writer.whole else "raw"
        before = self._state.read()
        same = before.get("file") == self._follower.identity and before.get("generation") == generation
        if offset and same and before.get("form") == form and before.get("guard") in (self._tools.keeping.guard, None):
            self._begin(form, generation, skip=offset)
        else:
            self._begin(form, generation + 1 if offset else generation, same=same and offset > 0)

    def _begin(self, form: str, generation: int, *, skip: int = 0, same: bool = False) -> None:
        """Make everything of this file again, in this form; `same`: it takes the place of what the service has."""
        self._begun += 1
        if self._begun > _BEGINNINGS:
            self.over = "the service wants it from the beginning again and again; somebody else may send it too"
            return
        if form == "raw" or self._writer.whole or self._offset or skip or self._generation != generation:
            self._writer = self._tools.keeping.writer(self.name)
            self._follower.restart()
            self._drop()
            self._any = self._closed = False
        self._form, self._generation, self._anew, self._skip = form, generation, same, skip
        self._offset = skip

    def _next_file(self) -> None:
        """The path has a new file: a new generation, now that all of the old one is there."""
        self._follower.go_on()
        self._drop()
        sent = self._offset > 0
        self._writer = self._tools.keeping.writer(self.name)
        self._form = "kept" if self._known and self._known.said.get("guard") == self._tools.keeping.guard else "raw"
        self._generation += sent
        self._offset = self._skip = 0
        self._anew = self._any = self._closed = False

    def _chunk(self, data: bytes) -> None:
        query: dict[str, str | int] = {"offset": self._offset, "generation": self._generation, "form": self._form}
        if self._form == "kept":
            query["guard"] = self._tools.keeping.guard
        if self._anew and not self._offset:
            query["again"] = "true"
        if self._tail and self._form == "kept":
            steps = [sign.step for sign in self._tools.signs.read(self.name, self._tail) if sign.step is not None]
            self._step = max(steps, default=self._step)
            self._tail = b""
        if self._step is not None and self._form == "kept":
            query["step"] = self._step
        headers = {"Content-Type": "application/octet-stream", "Content-Encoding": "zstd"}
        body = packed(data) if data else b""
        if not data:
            del headers["Content-Encoding"]
        path = (*self._job.path, "logs", self.name)
        answer = self._sender.send("PUT", path, {**query, **self._query()}, body, headers)
        self._sent = self._tools.clock()
        if answer.status == 200:
            took = min(max(answer.number("offset") - self._offset, 0), len(data))
            if data and not took:
                self.over = "the service takes nothing and does not say why"
            del self._pending[:took]
            self._offset += took
            self.waiting = len(self._pending)
            self._state.write(self._follower.identity, self._generation, self._form, self._tools.keeping.guard)
            return
        self._refused(answer)

    def _refused(self, answer: Answer) -> None:
        if answer.status in _REFUSED:
            raise Refused(answer.detail)
        generation = answer.number("generation")
        if answer.kind == "guard-differs":
            self._known = None
            self._tools.differs = True
            self._begin("raw", self._generation + bool(self._offset), same=bool(self._offset))
        elif answer.kind == "offset-gap" and generation == self._generation:
            self._begin(self._form, generation, skip=answer.number("offset"))
        elif answer.kind in ("offset-gap", "old-generation"):
            self._begin(self._form, generation if answer.kind == "offset-gap" else generation + 1)
        else:
            self.over = answer.detail

    def _put(self, data: bytes) -> None:
        if self._skip:
            passed = min(self._skip, len(data))
            self._skip -= passed
            data = data[passed:]
        self._pending += data
        self.waiting = len(self._pending)

    def _drop(self) -> None:
        self._pending.clear()
        self.waiting = 0

    def _query(self) -> dict[str, str | int]:
        return {} if self._job.project is None else {"project": self._job.project}

    def close(self) -> None:
        """Let go of the file."""
        self._follower.close()


class _State:
    """What a sender that starts again must know of a log: a small file, without which it is sent anew."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._written = ""

    def read(self) -> Mapping[str, Any]:
        """What was written, nothing where nothing was."""
        if self._path is None:
            return {}
        try:
            with open(self._path, encoding="utf-8") as file:
                given = json.load(file)
        except (OSError, ValueError):
            return {}
        return given if isinstance(given, dict) else {}

    def write(self, file: str, generation: int, form: str, guard: str) -> None:
        """Note which file is sent as what; a disk that refuses costs a second sending, no more."""
        said = json.dumps(
            {"file": file, "generation": generation, "form": form, "guard": guard if form == "kept" else None}
        )
        if self._path is None or said == self._written:
            return
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            part = f"{self._path}.{os.getpid()}"
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
                out.write(said)
            os.replace(part, self._path)
            self._written = said


class Tools:
    """What all logs of a sender share."""

    def __init__(
        self,
        keeping: Keeping,
        signs: SignReader,
        *,
        state: str | None = None,
        every: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.keeping, self.signs, self.every, self.clock = keeping, signs, every, clock
        self.differs = False
        self._state = state

    def state_of(self, job: Job, path: str) -> _State:
        """Where it is noted how far a log is."""
        if self._state is None:
            return _State(None)
        name = sha256(
            "\0".join((*job.path, job.project or "", os.path.abspath(path))).encode("utf-8", "backslashreplace")
        )
        return _State(os.path.join(self._state, f"{name.hexdigest()[:32]}.json"))


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

    def turn(self, *, hurry: bool = False) -> bool:
        """Read what has come and send it; say whether there may be more at once. Raises `Refused`."""
        self._look()
        now = self._tools.clock()
        busy = False
        for log in self._logs.values():
            busy = log.take(room=_WAITING - sum(one.waiting for one in self._logs.values())) or busy
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
            if log.lost:
                self._tell(f"{log.name}: {log.lost} bytes went before they could be read")
            log.close()
        if unsent:
            self._tell(f"not sent as a whole: {', '.join(unsent[:5])}" + (" ..." if len(unsent) > 5 else ""))
        return not unsent

    def end(self, said: Mapping[str, Any], seconds: float, sleep: Callable[[float], None] = time.sleep) -> str:
        """Say that the job has ended; return where its diagnosis will be, nothing where that could not be said."""
        until = self._tools.clock() + seconds
        query = {} if self._job.project is None else {"project": self._job.project}
        body, headers = json.dumps(said).encode(), {"Content-Type": "application/json"}
        while True:
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
