"""Logs that are sent while their job runs: chunks in, by offset; files to diagnose out.

In: chunks of bytes, each with the place in the log where it begins. Out: how far the log is known, once the bytes are
on disk; and, at any time, a directory with all logs of a job. Errors: `Gap` (with the offset wanted), `OldGeneration`,
`GuardDiffers`, `ChunkTooLarge`, `TooMuch`, `SpoolFull`.

A log lies in *segments*, one for each range of the compressor (`compress/ranges.py`). A segment that is full is
*sealed*: compressed onto the end of the kept log, and then deleted. So of each log there is a kept log up to the last
border and the bytes since, nothing is held in memory between two chunks, and a process that dies leaves nothing to be
made again: `state` names what is sealed, and what it does not name is not there. Kept logs that are sent are bytes
like any other, and never sealed.

A log that is begun anew (rotated, truncated) is a new *generation*; the old one is kept under its name and a number, as
`logrotate` has it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any, Final, Literal

from diagnose.compress.keptlog import END, range_records
from diagnose.compress.ranges import next_border
from diagnose.dataclass import dataclass, fields, replace
from diagnose.errors import DiagnoseError, SourceError
from diagnose.keeping import Keeping
from diagnose.models import SourceKind
from diagnose.sources.kept import KEPT_HEAD_BYTES, first_line, is_kept, kept_head, kind_line

Form = Literal["raw", "kept"]
_BLOCK: Final = 256 * 1024
_DIGITS: Final = 16
_DIGEST: Final = 24
_NAME_BYTES: Final = 1000
_LONGEST: Final = 64 * 1024 * 1024  # behind a border a line may go on for so long


class StreamError(DiagnoseError):
    """A chunk cannot be taken; `kind` names the reason for programs."""

    kind = "stream-error"


class Gap(StreamError):
    """A chunk begins behind the end of what is known; `offset` is where that is."""

    kind = "offset-gap"

    def __init__(self, message: str, offset: int, generation: int) -> None:
        super().__init__(message)
        self.offset, self.generation = offset, generation


class OldGeneration(StreamError):
    """A chunk of a log that was begun anew since; `generation` is the current one."""

    kind = "old-generation"

    def __init__(self, message: str, generation: int) -> None:
        super().__init__(message)
        self.generation = generation


class GuardDiffers(StreamError):
    """The sender chose lines by other rules: the log itself is wanted."""

    kind = "guard-differs"


class ChunkTooLarge(StreamError):
    """One chunk is larger than a chunk may be."""

    kind = "chunk-too-large"


class BadEncoding(StreamError):
    """A chunk cannot be expanded."""

    kind = "bad-encoding"


class BadKeptLog(StreamError):
    """What is sent as a kept log is none."""

    kind = "bad-kept-log"


class TooMuch(StreamError):
    """A log, or a job's number of logs, is beyond its bound."""

    kind = "too-much"


class SpoolFull(StreamError):
    """There is no room on the disk, or none left of the bound."""

    kind = "spool-full"


@dataclass(frozen=True, slots=True)
class StreamBounds:
    """What streams may take: sizes in bytes. Beyond `generations` the oldest are dropped."""

    chunk_bytes: int = 4 * 1024 * 1024
    log_bytes: int = 64 * 1024**3
    logs: int = 5_000
    generations: int = 20
    spool_bytes: int = 50 * 1024**3


@dataclass(frozen=True, slots=True)
class JobKey:
    """One attempt of a job."""

    project: str
    cluster: str
    job_id: str
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Appended:
    """How far a log is known: `offset` is where the next chunk begins. `new` bytes were not known before."""

    generation: int
    offset: int
    new: int


@dataclass(frozen=True, slots=True)
class _Generation:
    """One generation of a log: sealed up to byte `border`, `lines` lines, which `kept` bytes of its kept log hold."""

    number: int
    form: Form = "raw"
    border: int = 0
    kept: int = 0
    lines: int = 0
    kind: SourceKind | None = None
    whole: bool = False  # it must be read as one piece, so it is never sealed


@dataclass(frozen=True, slots=True)
class _State:
    """What is known of one log, beside the segments themselves."""

    name: str
    generations: tuple[_Generation, ...] = ()

    @property
    def current(self) -> _Generation:
        return self.generations[-1]


class Streams:
    """All streamed logs below one directory; safe for several threads and processes. `close` when it ends."""

    def __init__(self, folder: str, keeping: Callable[[], Keeping], bounds: StreamBounds | None = None) -> None:
        self._folder = folder
        self._bounds = bounds or StreamBounds()
        self._make, self._made = keeping, threading.Lock()
        self._keeping: Keeping | None = None
        self._sealing = threading.Lock()  # compressors of one process share what they have learnt
        self._sealer = ThreadPoolExecutor(1, "seal")
        self._to_seal: set[str] = set()
        self._counting = threading.Lock()
        with _told():
            os.makedirs(folder, mode=0o700, exist_ok=True)
        self._used = _size_below(folder)

    def close(self) -> None:
        """Wait until what is being sealed is sealed."""
        self._sealer.shutdown(cancel_futures=True)

    @property
    def chunk_bytes(self) -> int:
        """How large a chunk may be."""
        return self._bounds.chunk_bytes

    @property
    def guard(self) -> str:
        """By which rules kept logs must have been made."""
        return self._ready().guard

    def append(
        self,
        job: JobKey,
        name: str,
        data: bytes,
        offset: int,
        *,
        generation: int | None = None,
        again: bool = False,
        form: Form = "raw",
        guard: str | None = None,
    ) -> Appended:
        """Take a chunk that begins at `offset` of the log; what is returned is on disk.

        `generation` counts up from 0 each time the log begins anew; None means the current one. One that is the same
        log sent `again` takes the place of the one before. Kept logs (`form`) must say by which `guard` they are made.
        """
        if len(data) > self._bounds.chunk_bytes:
            raise ChunkTooLarge(f"a chunk may have {self._bounds.chunk_bytes} bytes at most; send smaller ones")
        if form == "kept" and guard != self.guard:
            raise GuardDiffers("the lines were chosen by other rules than this server's; send the log itself")
        if form == "kept" and not offset:
            _check_head(data, _clean(name))
        folder = self._log_folder(job, name, make=True)
        with _locked(folder), _told():
            state = _load(folder) or _State(_clean(name))
            state = self._at_generation(folder, state, generation, offset, form, again=again)
            current = state.current
            if current.form != form:
                raise Gap("the log was begun in another form; begin a new generation", 0, current.number + 1)
            known = _known(folder, current)
            if offset > known:
                raise Gap(f"the next byte wanted is {known}", known, current.number)
            new = data[known - offset :]
            if not new:
                return Appended(current.number, known, 0)
            if known + len(new) > self._bounds.log_bytes:
                raise TooMuch(f"a log may have {self._bounds.log_bytes} bytes at most; the rest is not taken")
            self._take(len(new))
            try:
                full = self._write(folder, current, known, new)
            except BaseException:
                self._give_back(len(new))
                raise
        if full:
            self._seal_soon(folder)
        return Appended(current.number, known + len(new), len(new))

    def known(self, job: JobKey, name: str) -> Appended | None:
        """How far a log is known; None where nothing is."""
        folder = self._log_folder(job, name)
        state = _load(folder)
        if state is None:
            return None
        return Appended(state.current.number, _known(folder, state.current), 0)

    def names(self, job: JobKey) -> list[str]:
        """The names of a job's logs."""
        return sorted(state.name for _, state in _logs(self._job_folder(job)))

    def end(self, job: JobKey, said: str) -> bool:
        """Note that the job has ended, and what was said of it; say whether that is news."""
        folder = self._job_folder(job)
        with _told():
            os.makedirs(folder, mode=0o700, exist_ok=True)
            if os.path.exists(os.path.join(folder, "ended")) or os.path.exists(os.path.join(folder, "handed-in")):
                return False
            _put(folder, "ended", json.dumps({"job": _plain(job), "said": said}))
        return True

    def said(self, job: JobKey) -> str:
        """What was said of a job when it ended."""
        folder = self._job_folder(job)
        for path in (os.path.join(folder, "ended"), os.path.join(folder, "handed-in")):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError), open(path, encoding="utf-8") as file:
                return str(json.load(file)["said"])
        return ""

    def ending(self, job: JobKey) -> str:
        """`ended` where a job has ended and is to be handed in, `handed-in` where it was, nothing while it runs."""
        folder = self._job_folder(job)
        return next((name for name in ("ended", "handed-in") if os.path.exists(os.path.join(folder, name))), "")

    def handed_in(self, job: JobKey) -> None:
        """Note that a job that had ended was handed in, so that no restart does it again."""
        folder = self._job_folder(job)
        with contextlib.suppress(FileNotFoundError), _told():
            try:
                os.replace(os.path.join(folder, "ended"), os.path.join(folder, "handed-in"))
            except FileNotFoundError:
                return
            _sync(folder)

    def ended(self) -> Iterator[JobKey]:
        """All jobs that have ended and were not handed in: what a restart goes on with."""
        for entry in _entries(self._folder):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                with open(os.path.join(entry, "ended"), encoding="utf-8") as file:
                    job = json.load(file)["job"]
                yield JobKey(job["project"], job["cluster"], job["job_id"], int(job["attempt"]))

    def forget(self, job: JobKey) -> None:
        """Delete all logs of a job."""
        folder = self._job_folder(job)
        size = _size_below(folder)
        shutil.rmtree(folder, ignore_errors=True)
        self._give_back(size)

    def tidy(self, before: float) -> int:
        """Delete the logs of all jobs of which nothing has come since; say of how many."""
        count = 0
        for entry in _entries(self._folder):
            with contextlib.suppress(OSError):
                newest = max(os.stat(path).st_mtime for path in _below(entry))
                if newest < before:
                    self._give_back(_size_below(entry))
                    shutil.rmtree(entry, ignore_errors=True)
                    count += 1
        return count

    def snapshot(self, job: JobKey, into: str, place: Callable[[str, str], str]) -> list[str]:
        """Write all logs of a job as they are now into a directory, and return their paths in it.

        `place(into, name)` gives the path, relative to `into`, under which a log of that name is to lie.
        """
        return snapshot_of(self._folder, job, into, place, self._ready)

    def seal_all(self) -> None:
        """Seal whatever is full: what a process that died has left."""
        for job in _entries(self._folder):
            for folder, state in _logs(job):
                if any(len(_segments(folder, one.number, one.border)) > 1 for one in state.generations):
                    self._seal_soon(folder)

    # How it lies on disk

    def _ready(self) -> Keeping:
        with self._made:
            if self._keeping is None:
                self._keeping = self._make()
            return self._keeping

    def _job_folder(self, job: JobKey) -> str:
        return job_folder(self._folder, job)

    def _log_folder(self, job: JobKey, name: str, *, make: bool = False) -> str:
        """Where a log lies; names that people give are never paths."""
        parent = self._job_folder(job)
        folder = os.path.join(parent, _digest(_clean(name)))
        if make and not os.path.isdir(folder):
            with _told():
                os.makedirs(parent, mode=0o700, exist_ok=True)
                if len(os.listdir(parent)) >= self._bounds.logs:
                    raise TooMuch(f"a job may have {self._bounds.logs} logs at most; send the others as an archive")
                os.makedirs(folder, mode=0o700, exist_ok=True)
                _sync(parent)
                _sync(self._folder)
        return folder

    def _at_generation(
        self, folder: str, state: _State, wanted: int | None, offset: int, form: Form, *, again: bool
    ) -> _State:
        """The state with the generation that a chunk is of as its current one."""
        latest = state.current.number if state.generations else -1
        number = max(latest, 0) if wanted is None else wanted
        if number < latest:
            raise OldGeneration(f"the log was begun anew since: its generation is {latest}", latest)
        if number == latest:
            return state
        if number > latest + 1:
            raise Gap(f"the next generation is {latest + 1}", 0, latest + 1)
        if offset:
            raise Gap("a generation begins at offset 0", 0, number)
        stay = state.generations[:-1] if again else state.generations
        stay = stay[max(0, len(stay) + 1 - self._bounds.generations) :]
        changed = replace(state, generations=(*stay, _Generation(number, form)))
        _store(folder, changed)
        for one in state.generations:
            if one not in stay:
                self._drop(folder, one.number)
        return changed

    def _drop(self, folder: str, generation: int) -> None:
        for name in os.listdir(folder):
            if name.startswith(f"{generation}."):
                path = os.path.join(folder, name)
                self._give_back(os.stat(path).st_size)
                os.unlink(path)

    def _write(self, folder: str, current: _Generation, known: int, data: bytes) -> bool:
        """Put bytes behind what is known, on disk; say whether there is a segment to seal."""
        full = False
        starts = _segments(folder, current.number)
        start = starts[-1] if starts else current.border
        if starts and _is_full(os.path.join(folder, _segment(current.number, start)), known, start):
            start, full = known, True
        done: list[tuple[str, int]] = []
        try:
            while data:
                part = data
                if current.form == "raw":
                    end = _border_in(data, known, next_border(start))
                    part = data[:end] if end else data
                    _bounded(known + len(part), start)
                path = os.path.join(folder, _segment(current.number, start))
                done.append((path, known - start))
                _append(path, part, known - start)
                known += len(part)
                data = data[len(part) :]
                if data:
                    start, full = known, True
        except (OSError, TooMuch):
            for path, size in reversed(done):
                with contextlib.suppress(OSError):
                    os.truncate(path, size)
            raise
        if full or not starts:
            _sync(folder)
        return full and current.form == "raw"

    def _seal_soon(self, folder: str) -> None:
        """Seal a log when there is time for it."""
        with self._counting:
            if folder in self._to_seal:
                return
            self._to_seal.add(folder)
        with contextlib.suppress(RuntimeError):  # it is closing: the next start seals what is full
            self._sealer.submit(self._seal, folder)

    def _seal(self, folder: str) -> None:
        """Compress all full segments of a log onto the end of its kept log; what the disk refuses is tried again."""
        with self._counting:
            self._to_seal.discard(folder)
        with contextlib.suppress(StreamError, FileNotFoundError), self._sealing, _locked(folder, "sealing"):
            while (state := _load(folder)) is not None:
                ready = next(
                    (
                        (generation, starts[0])
                        for generation in state.generations
                        for starts in (_segments(folder, generation.number, generation.border),)
                        if generation.form == "raw" and not generation.whole and len(starts) > 1
                    ),
                    None,
                )
                if ready is None or not self._seal_segment(folder, state, *ready):
                    return

    def _seal_segment(self, folder: str, state: _State, generation: _Generation, start: int) -> bool:
        """Seal one segment; the lock of the log is held only while the state changes."""
        source = os.path.join(folder, _segment(generation.number, start))
        keeping = self._ready()
        kind = generation.kind
        begin = b""
        if start == 0:
            with open(source, "rb") as file:
                head = file.read(KEPT_HEAD_BYTES)
            kind = keeping.kind(state.name, head)
            if kind is None:
                return self._change(folder, replace(generation, whole=True))
            begin = first_line(_base(state.name), keeping.guard) + head + kind_line(kind)
        elif kind is None:
            return False
        target = os.path.join(folder, f"{generation.number}.kept")
        size = generation.kept + len(begin)
        compressor = keeping.compressor(kind, start)
        with _told(), open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b") as out:
            out.truncate(generation.kept)
            out.seek(generation.kept)
            out.write(begin)
            for records in range_records(_blocks(source), compressor, generation.lines):
                out.write(records)
                size += len(records)
            out.flush()
            os.fsync(out.fileno())
        raw = os.stat(source).st_size
        lines = generation.lines + compressor.counts.lines
        sealed = replace(generation, border=start + raw, kept=size, lines=lines, kind=kind)
        if not self._change(folder, sealed):
            return False
        with contextlib.suppress(OSError):
            os.unlink(source)
        self._give_back(raw - (size - generation.kept))
        return True

    def _change(self, folder: str, changed: _Generation) -> bool:
        """Put a changed generation into the state, unless it is gone."""
        with contextlib.suppress(FileNotFoundError), _locked(folder), _told():
            state = _load(folder)
            if state is not None and any(one.number == changed.number for one in state.generations):
                others = tuple(changed if one.number == changed.number else one for one in state.generations)
                _store(folder, replace(state, generations=others))
                return True
        return False

    def _take(self, size: int) -> None:
        with self._counting:
            if self._used + size > self._bounds.spool_bytes:
                raise SpoolFull(
                    f"streamed logs take {self._used} bytes and may take no more than {self._bounds.spool_bytes}; "
                    "try again later"
                )
            self._used += size

    def _give_back(self, size: int) -> None:
        with self._counting:
            self._used = max(0, self._used - size)


def job_folder(folder: str, job: JobKey) -> str:
    """Where the logs of a job lie."""
    return os.path.join(folder, _digest(job.project, job.cluster, job.job_id, str(job.attempt)))


def forget_streams(spool: str, job: JobKey) -> None:
    """Delete the logs of a job in a spool's folder; a `Streams` counts them until it starts again."""
    shutil.rmtree(job_folder(os.path.join(spool, "streams"), job), ignore_errors=True)


def snapshot_of(
    folder: str, job: JobKey, into: str, place: Callable[[str, str], str], keeping: Callable[[], Keeping]
) -> list[str]:
    """`Streams.snapshot`, for a process that takes no chunks."""
    paths: list[str] = []
    for log, state in _logs(job_folder(folder, job)):
        for generation in state.generations:
            paths.append(place(into, _shown(state, generation)))
            _snapshot(log, state, generation, os.path.join(into, paths[-1]), keeping)
    return paths


def _snapshot(folder: str, state: _State, generation: _Generation, path: str, ready: Callable[[], Keeping]) -> None:
    """Write one generation of a log; begin again where it was sealed meanwhile."""
    for _ in range(100):
        try:
            with open(path, "wb") as out:
                starts = _segments(folder, generation.number, generation.border)
                if not generation.border:
                    for start in starts:
                        out.writelines(_blocks(os.path.join(folder, _segment(generation.number, start))))
                    return
                with open(os.path.join(folder, f"{generation.number}.kept"), "rb") as kept:
                    _copy(kept, out, generation.kept)
                lines, keeping = generation.lines, ready()
                for start in starts:
                    compressor = keeping.compressor(generation.kind or "job", start)
                    source = os.path.join(folder, _segment(generation.number, start))
                    if not os.stat(source).st_size:
                        continue
                    out.writelines(range_records(_blocks(source), compressor, lines))
                    lines += compressor.counts.lines
                out.write(END)
                return
        except FileNotFoundError:
            again = _load(folder)
            found = [one for one in (again.generations if again else ()) if one.number == generation.number]
            if not found:
                raise
            generation = found[0]
    raise StreamError(f"{state.name}: is sealed faster than it can be read; try again")


def _shown(state: _State, generation: _Generation) -> str:
    """The name of a generation: the current one has the log's own, older ones a number behind it."""
    age = len(state.generations) - 1 - state.generations.index(generation)
    return f"{state.name}.{age}" if age else state.name


def _known(folder: str, generation: _Generation) -> int:
    """Where the log ends, as far as it is known."""
    starts = _segments(folder, generation.number, generation.border)
    if not starts:
        return generation.border
    return starts[-1] + os.stat(os.path.join(folder, _segment(generation.number, starts[-1]))).st_size


def _segments(folder: str, generation: int, border: int = 0) -> list[int]:
    """Where the segments of a generation begin; those before `border` are sealed, and about to go."""
    head = f"{generation}.raw."
    try:
        found = [name.removeprefix(head) for name in os.listdir(folder) if name.startswith(head)]
    except FileNotFoundError:
        return []
    return sorted(start for start in map(int, filter(str.isdigit, found)) if start >= border)


def _segment(generation: int, start: int) -> str:
    return f"{generation}.raw.{start:0{_DIGITS}}"


def _border_in(data: bytes, known: int, border: int) -> int:
    """Where in a chunk that begins at byte `known` the range ends, 0 where it does not, or only with the chunk."""
    if known + len(data) <= border:
        return 0
    return data.find(b"\n", max(0, border - known)) + 1


def _is_full(path: str, known: int, start: int) -> bool:
    """Whether a range ended with the last chunk: then the line that ends it is its last."""
    if known <= next_border(start):
        return False
    with open(path, "rb") as file:
        file.seek(known - start - 1)
        return file.read(1) == b"\n"


def _bounded(end: int, start: int) -> None:
    if end > next_border(start) + _LONGEST:
        raise TooMuch(f"a line of more than {_LONGEST} bytes; the rest of this log is not taken")


def _append(path: str, data: bytes, size: int) -> None:
    """Put bytes behind the first `size` of a file, on disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        view, place = memoryview(data), size
        while view:
            written = os.pwrite(descriptor, view, place)
            view, place = view[written:], place + written
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def _check_head(data: bytes, name: str) -> None:
    """Refuse what says it is a kept log and is none, as far as its first bytes tell."""
    if not is_kept(data):
        raise BadKeptLog("this is no kept log; send the log itself")
    try:
        said = kept_head(data[:_BLOCK], _base(name)).name
    except SourceError as error:
        raise BadKeptLog(str(error)) from error
    if said != _base(name):
        raise BadKeptLog("the kept log is of another name than it is sent under")


def _blocks(path: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while data := file.read(_BLOCK):
            yield data


def _copy(source: Any, out: Any, size: int) -> None:
    while size > 0 and (data := source.read(min(size, _BLOCK))):
        out.write(data)
        size -= len(data)


def _logs(job_folder: str) -> Iterator[tuple[str, _State]]:
    for folder in _entries(job_folder):
        state = _load(folder)
        if state is not None and state.generations:
            yield folder, state


def _entries(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as scan:
            return sorted(entry.path for entry in scan if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []


def _load(folder: str) -> _State | None:
    """What is known of a log; None where nothing is."""
    try:
        with open(os.path.join(folder, "state"), encoding="utf-8") as file:
            said = json.load(file)
        names = {each.name for each in fields(_Generation)}
        generations = [_Generation(**{key: one[key] for key in names}) for one in said["generations"]]
        return _State(said["name"], tuple(generations))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise StreamError(f"the state of a streamed log in {folder} is damaged; remove that directory") from error


def _store(folder: str, state: _State) -> None:
    generations = [{each.name: getattr(one, each.name) for each in fields(_Generation)} for one in state.generations]
    _put(folder, "state", json.dumps({"name": state.name, "generations": generations}))


def _put(folder: str, name: str, text: str) -> None:
    """Write a small file as a whole, on disk."""
    part = os.path.join(folder, f".{name}.{os.getpid()}.{threading.get_ident()}")
    with open(
        os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w", encoding="utf-8"
    ) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, os.path.join(folder, name))
    _sync(folder)


def _sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _locked(folder: str, what: str = "lock") -> Iterator[None]:
    """Nobody else changes the log meanwhile, in this process or another."""
    descriptor = os.open(os.path.join(folder, what), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Turns what the disk says into errors of ours."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise SpoolFull("the disk of the spool is full; make room, or try again later") from error
        raise StreamError(f"the spool cannot be used: {error.strerror}; mend it or set DIAGNOSE_SPOOL") from error


def _below(folder: str) -> Iterator[str]:
    for parent, _, names in os.walk(folder):
        for name in names:
            yield os.path.join(parent, name)


def _size_below(folder: str) -> int:
    size = 0
    for path in _below(folder):
        with contextlib.suppress(OSError):
            size += os.stat(path).st_size
    return size


def _clean(name: str) -> str:
    """A name as people gave it, without what would lead elsewhere or drive a terminal."""
    shown = "".join(char if char.isprintable() else "?" for char in name)
    parts = [part for part in shown.split("/") if part not in ("", ".", "..")]
    return "/".join(parts).encode("utf-8", "replace")[-_NAME_BYTES:].decode("utf-8", "ignore") or "log"


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _plain(job: JobKey) -> dict[str, Any]:
    return {each.name: getattr(job, each.name) for each in fields(JobKey)}


def _digest(*parts: str) -> str:
    return sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:_DIGEST]
