"""Compression and reading by several processes: the same lines as in one, in the same order, sooner.

In: the inputs of a run. Out: for each input that lies on disk as it is, what compression lets through; of one that is a
single piece of work, as lines that are read. Work is handed out in pieces, whole files or ranges of large ones, in turn
to each process; what they find comes back in the order of the pieces, and no process runs far ahead. What one that
fails has left undone is done here.
"""

from __future__ import annotations

import marshal
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, BinaryIO, Final, Protocol, Self, cast

from diagnose.compress import RANGE_BYTES, Ranges, range_blocks
from diagnose.dataclass import dataclass, fields
from diagnose.errors import SourceError
from diagnose.lines import columns
from diagnose.lines.order import newest_first
from diagnose.models import CompressionCounts, Input, KeptLine, Line, LogSource

SPREAD_FROM: Final = 8 * 1024 * 1024
"""Below so many bytes a process costs more than it saves."""
HEAD_BYTES: Final = 64 * 1024
_AHEAD: Final = 64  # blocks' worth of lines that a process holds until they are asked for
_SIZE: Final = 4
_LAST: Final = frozenset({"end", "whole"})

Frame = tuple[Any, ...]
Columns = tuple[list[int], list[bytes], list[bool], list[bool], list[str | None], list[bool]]


class Reading(Protocol):
    """What makes lines of the kept lines of one source, and knows which readers each concerns."""

    def learn(self, head: bytes) -> None:
        """Look over the first bytes of the source."""
        ...

    def read(self, kept_lines: Sequence[KeptLine]) -> tuple[list[Line], list[int]]:
        """The lines of kept lines, and for each the readers that it concerns."""
        ...

    def finish(self) -> tuple[list[Line], list[int]]:
        """The lines whose rest never came."""
        ...

    @property
    def year(self) -> int | None:
        """The year that the source has stated, if any has yet."""
        ...


class Stages(Protocol):
    """What the bytes of a source go through."""

    def compressor(self, source: LogSource, start: int = 0) -> Ranges:
        """The compressor of a source, or of one range that begins at byte `start`."""
        ...

    def reading(self, source: LogSource) -> Reading | None:
        """What reads the lines of a source, None where that must be done by who asks for them."""
        ...


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece of work: an input, or range `index` of `count` of it."""

    number: int
    item: Input
    index: int
    count: int


def pieces_of(inputs: Sequence[Input]) -> list[Piece]:
    """The pieces of the inputs that can be handed out, in order."""
    pieces: list[Piece] = []
    for number, item in enumerate(inputs):
        if item.window is not None and item.size:
            count = -(-item.size // RANGE_BYTES)
            pieces += [Piece(number, item, index, count) for index in range(count)]
    return pieces


class Spread:
    """Processes at work on the pieces of some inputs, until the context ends."""

    def __init__(self, inputs: Sequence[Input], stages: Stages, processes: int) -> None:
        self._pieces = pieces_of(inputs)
        self._made: list[int] = []
        self._pipes: list[BinaryIO | None] = []
        self._stages = stages
        self._places: dict[int, list[int]] = {}
        for place, piece in enumerate(self._pieces):
            self._places.setdefault(piece.number, []).append(place)
        worth = sum(item.size or 0 for item in inputs if item.window is not None) >= SPREAD_FROM
        for turn in range(min(processes, len(self._pieces)) if worth and processes > 1 else 0):
            self._start(self._pieces[turn::processes])

    def _start(self, pieces: Sequence[Piece]) -> None:
        import signal

        receiver, sender = os.pipe()
        # Ctrl-C reaches every process of a terminal: this one ends the others, which have nothing to say of it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process = os.fork()
            if not process:
                receivers = [receiver, *(pipe.fileno() for pipe in self._pipes if pipe is not None)]
                _work(pieces, self._stages, receivers, sender)
            os.close(sender)
            self._made.append(process)
            self._pipes.append(os.fdopen(receiver, "rb", 1 << 16))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def has(self, number: int) -> bool:
        """Whether input `number` is read by these processes."""
        return bool(self._pipes) and number in self._places

    def frames(self, number: int) -> Iterator[Frame]:
        """What came of input `number`, range by range, see `_frames`; inputs are asked for in order, each once."""
        for place in self._places.pop(number):
            received = 0
            while (frame := self._next(place % len(self._pipes))) is not None:
                received += 1
                yield frame
                if frame[0] in _LAST:
                    break
            else:  # its process is gone
                yield from islice(_frames(self._pieces[place], self._stages), received, None)

    def _next(self, turn: int) -> Frame | None:
        pipe = self._pipes[turn]
        if pipe is not None:
            size = int.from_bytes(pipe.read(_SIZE), "little")
            data = pipe.read(size)
            if size and len(data) == size:
                return cast("Frame", marshal.loads(data))  # noqa: S302 - from a child of this process
            pipe.close()
            self._pipes[turn] = None
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes."""
        import signal

        for pipe in self._pipes:
            if pipe is not None:
                pipe.close()
        for process in self._made:
            os.kill(process, signal.SIGKILL)  # they hold nothing but memory
            os.waitpid(process, 0)
        self._made.clear()
        self._pipes.clear()


def _work(pieces: Sequence[Piece], stages: Stages, receivers: Sequence[int], sender: int) -> None:
    """The life of one process; never returns. `receivers` are its parent's ends of the pipes so far."""
    try:
        import queue
        import threading

        waiting: queue.Queue[bytes] = queue.Queue(_AHEAD)

        def send() -> None:
            try:
                while data := waiting.get():
                    view = memoryview(len(data).to_bytes(_SIZE, "little") + data)
                    while view:
                        view = view[os.write(sender, view) :]
            except OSError:  # the parent is gone, or does not listen any more: nobody needs the rest
                os._exit(0)

        for receiver in receivers:  # a pipe that somebody could still read would never break
            os.close(receiver)
        sending = threading.Thread(target=send, daemon=True)
        sending.start()
        for piece in pieces:
            for frame in _frames(piece, stages):
                waiting.put(marshal.dumps(frame))
        waiting.put(b"")
        sending.join()
    finally:
        # Whatever happens, this process must not go on with what its parent was about to do.
        os._exit(0)


def _frames(piece: Piece, stages: Stages) -> Iterator[Frame]:
    """What comes of a piece, as plain values.

    `("head", bytes)` once for each input, before its lines, and `("kept", bytes read, columns)`; where the lines are
    read here instead, `("lines", bytes read, columns)` and `("year", year)`; `("error", text)` where the bytes end
    early; at last `("end", counts)`, or `("whole",)` where the input must be read in one go.
    """
    item, first = piece.item, piece.index == 0
    assert item.window is not None
    compressor: Ranges | None = None
    reading = stages.reading(item.source) if piece.count == 1 else None
    heads: list[bytes] = []
    placed = range_blocks(item.window, piece.index, last=piece.index == piece.count - 1)
    try:
        start, begin = next(placed, (0, b""))
        blocks = chain((begin,), (block for _, block in placed))
        if first and newest_first(begin):
            yield ("whole",)
            return
        compressor = stages.compressor(item.source, start)
        for block in with_head(blocks, heads.append) if first else blocks:
            if heads:
                head = heads.pop()
                if reading is None:
                    yield "head", head
                else:
                    reading.learn(head)
            yield _frame(len(block), compressor.feed(block), reading)
    except SourceError as error:
        yield "error", str(error)
    if compressor is None:
        yield "end", (0,) * len(fields(CompressionCounts))
        return
    yield _frame(0, compressor.finish(), reading)
    if reading is not None:
        yield "lines", 0, columns.columns_of(*reading.finish())
        yield "year", reading.year
    counts = compressor.counts
    yield "end", tuple([getattr(counts, each.name) for each in fields(CompressionCounts)])


def _frame(size: int, kept: list[KeptLine], reading: Reading | None) -> Frame:
    """The frame of what was kept of `size` bytes."""
    if reading is None:
        return "kept", size, _columns(kept)
    return "lines", size, columns.columns_of(*reading.read(kept))


def with_head(blocks: Iterable[bytes], learn: Callable[[bytes], None]) -> Iterator[bytes]:
    """The blocks, after their first bytes were looked over: the same bytes however they are cut into blocks."""
    waiting: list[bytes] = []
    size = 0
    learnt = False
    try:
        for block in blocks:
            if learnt:
                yield block
                continue
            waiting.append(block)
            size += len(block)
            if size >= HEAD_BYTES:
                learn(b"".join(waiting)[:HEAD_BYTES])
                learnt = True
                yield from waiting
                waiting.clear()
    except SourceError:
        # What stands before the place where a source breaks off is there to be read.
        yield from _learnt(waiting, learn)
        raise
    yield from _learnt(waiting, learn)


def _learnt(waiting: list[bytes], learn: Callable[[bytes], None]) -> Iterator[bytes]:
    """The blocks of a source that is shorter than a head."""
    if waiting:
        learn(b"".join(waiting)[:HEAD_BYTES])
        yield from waiting


def _columns(kept: list[KeptLine]) -> Columns:
    return (
        [line.number for line in kept],
        [line.raw for line in kept],
        [line.guarded for line in kept],
        [line.truncated for line in kept],
        [line.progress for line in kept],
        [line.routine for line in kept],
    )


def kept_lines(columns: Columns, before: int) -> list[KeptLine]:
    """The kept lines of a frame; `before` lines of the input stand in the ranges before."""
    numbers, raws, guarded, truncated, progress, routine = columns
    return list(map(KeptLine, [number + before for number in numbers], raws, guarded, truncated, progress, routine))
