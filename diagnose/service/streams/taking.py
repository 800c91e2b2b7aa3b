"""Chunks of streamed logs are taken, in order and once, and are on disk before it is said.

In: `Chunk`s. Out: how far each log is known. Errors: those of `model`.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import threading
from collections.abc import Callable
from typing import Final

from diagnose.dataclass import replace
from diagnose.errors import SourceError
from diagnose.keeping import Keeping
from diagnose.service.durable import sync
from diagnose.service.streams import disk, layout, segments
from diagnose.service.streams.endings import Endings
from diagnose.service.streams.model import (
    Appended,
    BadKeptLog,
    Chunk,
    ChunkTooLarge,
    Gap,
    GuardDiffers,
    JobKey,
    OldGeneration,
    StreamBounds,
    TooMuch,
)
from diagnose.service.streams.progress import Progress
from diagnose.service.streams.sealing import Sealer
from diagnose.service.streams.snapshots import snapshot_of
from diagnose.sources.kept import is_kept, kept_head

_HEAD: Final = 256 * 1024  # bytes of a chunk in which a kept log's beginning is looked for


class Streams:
    """All streamed logs below one directory; safe for several threads and processes. `close` when it ends."""

    def __init__(self, folder: str, keeping: Callable[[], Keeping], bounds: StreamBounds | None = None) -> None:
        self._folder = folder
        self._bounds = bounds or StreamBounds()
        self._make, self._made = keeping, threading.Lock()
        self._keeping: Keeping | None = None
        with disk.told():
            os.makedirs(folder, mode=0o700, exist_ok=True)
        self._room = disk.StreamRoom(folder, self._bounds.spool_bytes)
        self._sealer = Sealer(self._ready, self._room)
        self.endings = Endings(folder, self._bounds.again)

    def close(self) -> None:
        """Wait until what is being sealed is sealed."""
        self._sealer.close()

    @property
    def chunk_bytes(self) -> int:
        """How large a chunk may be."""
        return self._bounds.chunk_bytes

    @property
    def guard(self) -> str:
        """By which rules kept logs must have been made."""
        return self._ready().guard

    def append(self, job: JobKey, chunk: Chunk) -> Appended:
        """Take a chunk; what is returned is on disk."""
        self._check(chunk)
        folder = self._log_folder(job, chunk.name)
        with disk.locked(folder), disk.told():
            state = layout.load(folder) or layout.State(layout.clean(chunk.name))
            current = self._at_generation(folder, state, chunk).current
            if current.form != chunk.form:
                raise Gap("the log was begun in another form; begin a new generation", 0, current.number + 1)
            if current.form == "kept" and current.guard not in ("", chunk.guard):
                raise Gap("the log was begun by other rules; begin a new generation", 0, current.number + 1)
            known = layout.known(folder, current)
            if chunk.offset < known and segments.differ(folder, current, chunk.offset, chunk.data):
                raise Gap("what is there is another log; begin a new generation", 0, current.number + 1)
            if chunk.offset > known:
                raise Gap(f"the next byte wanted is {known}", known, current.number)
            new = chunk.data[known - chunk.offset :]
            if not new:
                return Appended(current.number, known, 0)
            if known + len(new) > self._bounds.log_bytes:
                raise TooMuch(f"a log may have {self._bounds.log_bytes} bytes at most; the rest is not taken")
            self._room.take(len(new))
            try:
                full = segments.write(folder, current, known, new)
            except BaseException:
                self._room.give_back(len(new))
                raise
        if full:
            self._sealer.soon(folder)
        return Appended(current.number, known + len(new), len(new))

    def known(self, job: JobKey, name: str) -> Appended | None:
        """How far a log is known; None where nothing is."""
        folder = layout.log_folder(layout.job_folder(self._folder, job), name)
        state = layout.load(folder)
        if state is None:
            return None
        return Appended(state.current.number, layout.known(folder, state.current), 0)

    def names(self, job: JobKey) -> list[str]:
        """The names of a job's logs."""
        return sorted(state.name for _, state in layout.logs(layout.job_folder(self._folder, job)))

    def progress(self, job: JobKey) -> Progress:
        """What the processes tell each other of a job."""
        return Progress(layout.job_folder(self._folder, job))

    def forget(self, job: JobKey) -> None:
        """Delete all logs of a job; if it waits to be handed in, it does so no more."""
        with self.endings.forgetting(job):
            self._remove(layout.job_folder(self._folder, job))

    def tidy(self, before: float, until: float = math.inf) -> int:
        """Delete the logs of all jobs of which nothing has come since; say of how many.

        What bears a time after `until` has it from a clock that was wrong.
        """
        count = 0
        for entry in disk.entries(self._folder):
            with contextlib.suppress(OSError):
                stamps = [os.stat(path).st_mtime for path in (entry, *disk.below(entry))]  # which may be empty
                newest = max(stamp if stamp <= until else -math.inf for stamp in stamps)
                if newest < before:
                    self._remove(entry)
                    count += 1
        self._room.measure()
        return count

    def snapshot(self, job: JobKey, into: str, place: Callable[[str, str], str]) -> list[str]:
        """What is there to diagnose now, see `snapshot_of`."""
        return snapshot_of(self._folder, job, into, place, self._ready)

    def seal_all(self) -> None:
        """Seal whatever is full: what a process that died has left."""
        self._sealer.left(self._folder)

    def _ready(self) -> Keeping:
        with self._made:
            if self._keeping is None:
                self._keeping = self._make()
            return self._keeping

    def _check(self, chunk: Chunk) -> None:
        """Refuse what can be refused without a look at the log."""
        if len(chunk.data) > self._bounds.chunk_bytes:
            raise ChunkTooLarge(f"a chunk may have {self._bounds.chunk_bytes} bytes at most; send smaller ones")
        if chunk.form == "kept" and chunk.guard != self.guard:
            raise GuardDiffers("the lines were chosen by other rules than this server's; send the log itself")
        if chunk.form == "kept" and not chunk.offset:
            _check_head(chunk.data, layout.base(layout.clean(chunk.name)))

    def _log_folder(self, job: JobKey, name: str) -> str:
        """The directory of a log, made where there is none."""
        parent = layout.job_folder(self._folder, job)
        folder = layout.log_folder(parent, name)
        if not os.path.isdir(folder):
            with disk.told():
                os.makedirs(parent, mode=0o700, exist_ok=True)
                if sum(each[:1] != "." for each in os.listdir(parent)) >= self._bounds.logs:
                    raise TooMuch(f"a job may have {self._bounds.logs} logs at most; send the others as an archive")
                os.makedirs(folder, mode=0o700, exist_ok=True)
                sync(parent)
                sync(self._folder)
        return folder

    def _at_generation(self, folder: str, state: layout.State, chunk: Chunk) -> layout.State:
        """The state with the generation that a chunk is of as its current one."""
        latest = state.current.number if state.generations else -1
        number = max(latest, 0) if chunk.generation is None else chunk.generation
        if number < latest:
            raise OldGeneration(f"the log was begun anew since: its generation is {latest}", latest)
        if number == latest:
            return state
        if number > latest + 1:
            raise Gap(f"the next generation is {latest + 1}", 0, latest + 1)
        if chunk.offset:
            raise Gap("a generation begins at offset 0", 0, number)
        stay = state.generations[:-1] if chunk.again else state.generations
        stay = stay[max(0, len(stay) + 1 - self._bounds.generations) :]
        begun = layout.Generation(number, chunk.form, guard=(chunk.guard or "") if chunk.form == "kept" else "")
        changed = replace(state, generations=(*stay, begun))
        layout.store(folder, changed)
        for one in state.generations:
            if one not in stay:
                self._drop(folder, one.number)
        return changed

    def _drop(self, folder: str, generation: int) -> None:
        for name in os.listdir(folder):
            if name.startswith(f"{generation}."):
                path = os.path.join(folder, name)
                self._room.give_back(os.stat(path).st_size)
                os.unlink(path)

    def _remove(self, folder: str) -> None:
        size = disk.size_below(folder)
        shutil.rmtree(folder, ignore_errors=True)
        self._room.give_back(size)


def _check_head(data: bytes, name: str) -> None:
    """Refuse what says it is a kept log and is none, as far as its first bytes tell."""
    if not is_kept(data):
        raise BadKeptLog("this is no kept log; send the log itself")
    try:
        said = kept_head(data[:_HEAD], name).name
    except SourceError as error:
        raise BadKeptLog(str(error)) from error
    if said != name:
        raise BadKeptLog("the kept log is of another name than it is sent under")
