"""Full segments become the kept log: compressed onto its end, and deleted, one after the other in a thread.

In: directories of logs in which a segment is full. Out: the same logs, smaller. A process that dies in between has done
nothing: only `state` says what is sealed.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

from diagnose.compress.keptlog import range_records
from diagnose.dataclass import replace
from diagnose.keeping import Keeping
from diagnose.service.streams import disk, layout
from diagnose.service.streams.model import StreamError
from diagnose.sources.kept import KEPT_HEAD_BYTES, first_line, kind_line


class Sealer:
    """Seals what is full, until `close`."""

    def __init__(self, keeping: Callable[[], Keeping], room: disk.StreamRoom) -> None:
        self._keeping, self._room = keeping, room
        self._sealing = threading.Lock()  # compressors of one process share what they have learnt
        self._thread = ThreadPoolExecutor(1, "seal")
        self._waiting: set[str] = set()
        self._lock = threading.Lock()

    def close(self) -> None:
        """Wait until what is being sealed is sealed."""
        self._thread.shutdown(cancel_futures=True)

    def soon(self, folder: str) -> None:
        """Seal a log when there is time for it."""
        with self._lock:
            if folder in self._waiting:
                return
            self._waiting.add(folder)
        with contextlib.suppress(RuntimeError):  # it is closing: the next start seals what is full
            self._thread.submit(self._seal, folder)

    def left(self, top: str) -> None:
        """Seal whatever is full: what a process that died has left."""
        for job in disk.entries(top):
            for folder, state in layout.logs(job):
                if any(len(layout.segments(folder, one.number, one.border)) > 1 for one in state.generations):
                    self.soon(folder)

    def _seal(self, folder: str) -> None:
        """Compress all full segments of a log onto the end of its kept log; what the disk refuses is tried again."""
        with self._lock:
            self._waiting.discard(folder)
        with contextlib.suppress(StreamError, FileNotFoundError), self._sealing, disk.locked(folder, "sealing"):
            while (state := layout.load(folder)) is not None:
                ready = next(
                    (
                        (generation, starts[0])
                        for generation in state.generations
                        for starts in (layout.segments(folder, generation.number, generation.border),)
                        if generation.form == "raw" and not generation.whole and len(starts) > 1
                    ),
                    None,
                )
                if ready is None or not self._segment(folder, state, *ready):
                    return

    def _segment(self, folder: str, state: layout.State, generation: layout.Generation, start: int) -> bool:
        """Seal one segment; the lock of the log is held only while the state changes."""
        source = layout.segment(folder, generation.number, start)
        keeping = self._keeping()
        kind = generation.kind
        begin, guard = b"", keeping.guard
        if start == 0:
            with open(source, "rb") as file:
                head = file.read(KEPT_HEAD_BYTES)
            kind = keeping.kind(state.name, head)
            if kind is None:
                return _changed(folder, replace(generation, whole=True))
            begin = first_line(layout.base(state.name), keeping.guard) + head + kind_line(kind)
        elif kind is None:
            return False
        else:
            guard = _joined(generation.guard or layout.head_guard(folder, state.name, generation.number), guard)
        target = layout.kept_path(folder, generation.number)
        size = generation.kept + len(begin)
        compressor = keeping.compressor(kind, start)
        with disk.told(), open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b") as out:
            out.truncate(generation.kept)
            out.seek(generation.kept)
            out.write(begin)
            for records in range_records(disk.blocks(source), compressor, generation.lines):
                out.write(records)
                size += len(records)
            out.flush()
            os.fsync(out.fileno())
        raw = os.stat(source).st_size
        lines = generation.lines + compressor.counts.lines
        sealed = replace(generation, border=start + raw, kept=size, lines=lines, kind=kind, guard=guard)
        if not _changed(folder, sealed):
            return False
        with contextlib.suppress(OSError):
            os.unlink(source)
        self._room.give_back(raw - (size - generation.kept))
        return True


def _joined(before: str, guard: str) -> str:
    """Whose rules chose the lines when `guard` goes on where `before` has stopped: nobody's where these differ."""
    return guard if before == guard else sha256(f"{before} {guard}".encode()).hexdigest()[: len(guard)]


def _changed(folder: str, changed: layout.Generation) -> bool:
    """Put a changed generation into the state, unless it is gone."""
    with contextlib.suppress(FileNotFoundError), disk.locked(folder), disk.told():
        state = layout.load(folder)
        if state is not None and any(one.number == changed.number for one in state.generations):
            others = tuple(changed if one.number == changed.number else one for one in state.generations)
            layout.store(folder, replace(state, generations=others))
            return True
    return False
