"""What the spool knows of the end of a job: that it has ended, what was said of it, and whether it was handed in.

In: keys of jobs. Out: `Ending`s, for all processes that share the spool. A job that has ended is a file in one
directory, so that who looks for such jobs looks there alone; it is moved to the job's logs when the job was handed in,
and comes back when something comes late. How much was heard since the end is the size of another file, which every
process can see grow: each waits by its own clock, which no other's and no jump can mislead.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
from collections.abc import Iterator
from typing import Any, Final

from diagnose.dataclass import dataclass, fields
from diagnose.service.durable import sync
from diagnose.service.streams import disk, layout
from diagnose.service.streams.model import JobKey

_ENDED: Final = ".ended"
_HANDED_IN, _HEARD = "handed-in", "heard"


@dataclass(frozen=True, slots=True)
class Ending:
    """A job that has ended; `times` is how often it was handed in before."""

    job: JobKey
    said: str
    times: int = 0


class Endings:
    """The ends of all jobs below one directory. Beyond `again` times nobody waits for what comes late."""

    def __init__(self, folder: str, again: int) -> None:
        self._folder = folder
        self._again = again

    def end(self, job: JobKey, said: str) -> bool:
        """Note that the job has ended, and what was said of it; say whether that is news."""
        with disk.told():
            return self.state(job) == "" and self._mark(Ending(job, said))

    def state(self, job: JobKey) -> str:
        """`ended` where a job has ended and is to be handed in, `handed-in` where it was, nothing while it runs."""
        if os.path.exists(self._marker(job)):
            return "ended"
        return "handed-in" if os.path.exists(self._handed_in(job)) else ""

    def lost(self, job: JobKey) -> tuple[str, ...]:
        """What was said at the end of a job to be lost of its logs, as sentences."""
        for _ in range(2):  # between the two looks the one may become the other
            ending = _read(self._marker(job)) or _read(self._handed_in(job))
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                told = json.loads(ending.said if ending is not None else "").get("lost") or ()
                lost = [(layout.clean(str(one["name"])), int(one["bytes"])) for one in told]
                return tuple(f"{name}: {count} bytes were lost before they could be sent" for name, count in lost)
        return ()

    def name(self, job: JobKey) -> str:
        """By which name `waiting` calls a job."""
        return os.path.basename(layout.job_folder(self._folder, job))

    def waiting(self) -> dict[str, int]:
        """All jobs that are to be handed in, by names for `read`, and how often something was heard of each."""
        with contextlib.suppress(OSError):
            names = [name for name in os.listdir(os.path.join(self._folder, _ENDED)) if name[:1] != "."]
            return {name: _size(os.path.join(self._folder, name, _HEARD)) for name in names}
        return {}

    def read(self, name: str) -> Ending | None:
        """One of those that wait; None where it does so no more."""
        return _read(os.path.join(self._folder, _ENDED, name))

    def heard(self, job: JobKey) -> int | None:
        """Note that something came of a job; how often that was so since its end, None while nobody waits for it."""
        if not os.path.exists(self._marker(job)):
            before = _read(self._handed_in(job))
            if before is None or before.times >= self._again:
                return None
            with disk.told():
                self._mark(Ending(job, before.said, before.times + 1))
        path = os.path.join(layout.job_folder(self._folder, job), _HEARD)
        with disk.told():
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, b".")
                return os.fstat(descriptor).st_size
            finally:
                os.close(descriptor)

    @contextlib.contextmanager
    def handing_in(self, job: JobKey) -> Iterator[Ending | None]:
        """Hand a job in, which nobody else does meanwhile; None where somebody does, or did. Then say `handed_in`."""
        with self._held(job, fcntl.LOCK_EX | fcntl.LOCK_NB) as held:
            yield _read(self._marker(job)) if held else None

    def handed_in(self, job: JobKey) -> None:
        """Note that a job was handed in, so that no restart and no other process does it again."""
        folder = layout.job_folder(self._folder, job)
        with disk.told():
            os.makedirs(folder, mode=0o700, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                os.replace(self._marker(job), self._handed_in(job))
            sync(folder)

    @contextlib.contextmanager
    def forgetting(self, job: JobKey) -> Iterator[None]:
        """Nobody hands the job in while its logs are deleted, nor after that."""
        with self._held(job, fcntl.LOCK_EX):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._marker(job))
            yield

    @contextlib.contextmanager
    def _held(self, job: JobKey, how: int) -> Iterator[bool]:
        """The marker of a job, locked; False where there is none or another has it. A lock dies with its process."""
        try:
            descriptor = os.open(self._marker(job), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            yield False
            return
        try:
            try:
                fcntl.flock(descriptor, how)
                held = os.path.samestat(os.fstat(descriptor), os.stat(self._marker(job)))
            except (BlockingIOError, FileNotFoundError):
                held = False
            yield held
        finally:
            os.close(descriptor)

    def _mark(self, ending: Ending) -> bool:
        """Makes the marker of a job, whole and on disk; of several who do so, one has made it."""
        folder = os.path.join(self._folder, _ENDED)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        os.makedirs(layout.job_folder(self._folder, ending.job), mode=0o700, exist_ok=True)
        part = f".{os.getpid()}.{threading.get_ident()}"
        said = {"job": _plain(ending.job), "said": ending.said, "times": ending.times}
        disk.put(folder, part, json.dumps(said))
        part = os.path.join(folder, part)
        try:
            os.link(part, self._marker(ending.job))
        except FileExistsError:
            return False
        finally:
            os.unlink(part)
        sync(folder)
        sync(self._folder)
        return True

    def _marker(self, job: JobKey) -> str:
        return os.path.join(self._folder, _ENDED, self.name(job))

    def _handed_in(self, job: JobKey) -> str:
        return os.path.join(layout.job_folder(self._folder, job), _HANDED_IN)


def _read(path: str) -> Ending | None:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError), open(path, encoding="utf-8") as file:
        said = json.load(file)
        job = said["job"]
        key = JobKey(job["project"], job["cluster"], job["job_id"], int(job["attempt"]))
        return Ending(key, str(said["said"]), int(said["times"]))
    return None


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _plain(job: JobKey) -> dict[str, Any]:
    return {each.name: getattr(job, each.name) for each in fields(JobKey)}
