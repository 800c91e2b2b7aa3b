"""Bytes that can be read again: regular files, pipes, windows of them, a spool without a name.

In: paths, file objects, other streams. Out: `Origin`, which opens a `ByteStream` as often as asked. A stream raises
`SourceError` (or `LimitExceeded`) where its bytes end early; what it returned until then is good.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable
from typing import BinaryIO, Protocol

from diagnose.clock import Clock
from diagnose.dataclass import dataclass
from diagnose.errors import LimitExceeded, SourceError
from diagnose.settings import Limits

HEAD_BYTES = 64 * 1024
# What lies behind compression is kept in an unnamed temporary file up to this size, compressed, and beyond it is
# found again by expanding its archive from the start.
SPOOL_BYTES = 1024**3
# Small files may expand by any factor: a page of zeros is no bomb.
_RATIO_FROM = 64 * 1024**2
READ_BYTES = 64 * 1024
_SILENCE = 1.0  # seconds in which nothing comes: time to say what is waited for
# The system's own files (/proc) say they are empty; so much is read of one that somebody names.
_UNSIZED_BYTES = 16 * 1024**2


class ByteStream(Protocol):
    """Bytes in order. `read` may return less than asked, and returns nothing at the end only."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes."""
        ...

    def close(self) -> None:
        """Give back what the stream holds; closing twice is fine."""
        ...


@dataclass(frozen=True, slots=True)
class Origin:
    """Where bytes come from. `at(offset, size)` opens a window of them where nothing before it need be read."""

    open: Callable[[], ByteStream]
    size: int | None = None
    at: Callable[[int, int], PreadStream] | None = None


class Budget:
    """How many bytes decompression has made in this run, and until when it may; the same stream counts once."""

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self.limits = limits
        self._clock = clock
        self._used: dict[str, int] = {}
        self._total = 0

    def use(self, name: str, expanded: int, packed: int) -> None:
        """Record that `packed` bytes of `name` have become `expanded` bytes; raise `LimitExceeded` past a bound."""
        if self._clock.over:
            raise LimitExceeded(f"{name}: {self._clock} was reached; what follows was not read")
        more = max(0, expanded - self._used.get(name, 0))
        if expanded > _RATIO_FROM and expanded > packed * self.limits.expansion_ratio:
            raise LimitExceeded(
                f"{name}: expands more than {self.limits.expansion_ratio}-fold; what follows was not read. "
                "If it is no archive bomb, decompress it and give the result"
            )
        if more and self._total + more > self.limits.expanded_bytes:
            raise LimitExceeded(
                f"{name}: decompressed inputs exceed {self.limits.expanded_bytes} bytes; what follows was not read. "
                "Give fewer files"
            )
        self._total += more
        self._used[name] = max(expanded, self._used.get(name, 0))


def read_error(name: str, error: OSError | ValueError, position: int = 0) -> SourceError:
    """Return the error for a file that the system does not give."""
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    if position:
        return SourceError(
            f"{name}: cannot be read past byte {position} ({reason}); what stands before it was used. "
            "Copy the file elsewhere and try again"
        )
    if isinstance(error, FileNotFoundError):
        return SourceError(f"{name}: does not exist (any more); check the path")
    if isinstance(error, PermissionError):
        return SourceError(f"{name}: permission denied; run as a user who may read it, or copy it")
    return SourceError(f"{name}: cannot be read ({reason}); copy it elsewhere and try again")


class Descriptor:
    """An open file that is closed when nobody holds it any more, or before."""

    def __init__(self, number: int) -> None:
        self.number = number

    def close(self) -> None:
        """Close the file; again is fine."""
        if self.number >= 0:
            number, self.number = self.number, -1
            os.close(number)

    def __del__(self) -> None:
        self.close()


class PreadStream(io.RawIOBase):
    """A window of an open file, read by position: windows of one descriptor do not disturb each other, nor do forks."""

    def __init__(self, descriptor: Descriptor, name: str, start: int, size: int | None, *, owns: bool) -> None:
        super().__init__()
        self._descriptor, self._name, self._owns = descriptor, name, owns
        self._start, self._position = start, start
        self._grows = size is None
        self._end = os.fstat(descriptor.number).st_size if size is None else start + size

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to `size` bytes; a growing file ends where it ended when its last known byte was reached."""
        wanted = self._end - self._position if size is None or size < 0 else size
        try:
            if self._position >= self._end and self._grows:
                self._grows = False
                self._end = os.fstat(self._descriptor.number).st_size
            wanted = min(wanted, self._end - self._position)
            data = os.pread(self._descriptor.number, wanted, self._position) if wanted > 0 else b""
        except OSError as error:
            raise read_error(self._name, error, self._position - self._start) from error
        self._position += len(data)
        return data

    def readable(self) -> bool:
        """Say that this stream can be read."""
        return True

    def seekable(self) -> bool:
        """Say that this stream can be positioned, which zip files need."""
        return True

    def tell(self) -> int:
        """Return the position within the window."""
        return self._position - self._start

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move within the window, not before its start."""
        base = {os.SEEK_SET: self._start, os.SEEK_CUR: self._position, os.SEEK_END: self._end}[whence]
        if base + offset < self._start:
            raise OSError("position before the start of the file")  # what zipfile expects of any file
        self._position = base + offset
        return self.tell()

    def leap(self, size: int, /) -> int:
        """Go on at the last `size` bytes of the window; return how many were left out."""
        end = min(self._end, max(self._start, os.fstat(self._descriptor.number).st_size))
        left_out = max(0, (end - self._position - size) // 4 * 4)  # characters may be four bytes wide
        self._position += left_out
        return left_out

    def close(self) -> None:
        """Close the descriptor if it is this stream's own."""
        if self._owns:
            self._descriptor.close()
        super().close()


def file_origin(path: str, name: str, size: int, *, named: bool = False, roots: tuple[str, ...] = ()) -> Origin:
    """Return the origin of a regular file; it is opened anew each time, so that few descriptors are held.

    It ends where it ended when it was found, at `size`: one that is written faster than it is read would have no end.
    One that somebody has `named` is read also where it says that it is empty, as all of /proc does. Where there are
    `roots`, it must lie below one of them.
    """

    def window(start: int, length: int | None) -> PreadStream:
        try:
            # O_NONBLOCK: should a pipe have taken the file's place meanwhile, opening it must not hang.
            descriptor = Descriptor(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
        except (OSError, ValueError) as error:
            raise read_error(name, error) from error
        if roots:
            from diagnose.sources.confine import OUTSIDE, opened_inside

            if not opened_inside(descriptor.number, path, roots):
                descriptor.close()
                raise SourceError(f"{name}: {OUTSIDE}")
        if not stat.S_ISREG(os.fstat(descriptor.number).st_mode) and path != os.devnull:
            descriptor.close()
            raise SourceError(f"{name}: is no longer a regular file; check the path")
        if length is None and size:
            length = max(0, size - start)
        if named and length is None and not os.fstat(descriptor.number).st_size:
            length = _UNSIZED_BYTES
        return PreadStream(descriptor, name, start, length, owns=True)

    return Origin(lambda: window(0, None), size, window)


class Spool:
    """An unnamed temporary file that vanishes with the process; `full` where the disk or the bound has no room."""

    def __init__(self, clock: Clock, limit: int = SPOOL_BYTES) -> None:
        self._clock, self._limit = clock, limit
        self._file: Descriptor | None = None
        self._end = 0

    def store(self, stream: ByteStream, name: str) -> Origin | None:
        """Copy the rest of `stream`; return where it lies now, or None if there is no room for all of it.

        Where the stream breaks off with an error, so does each reading of the copy, and where the time for it ends.
        """
        return self._store(_Timed(stream, name, self._clock), name)

    def _store(self, stream: ByteStream, name: str) -> Origin | None:
        start = self._end
        try:
            while data := stream.read(READ_BYTES):
                if self._end + len(data) > self._limit or not self._append(data):
                    self._end = start
                    return None
        except SourceError as error:
            return self._origin(start, self._end - start, name, error)
        return self._origin(start, self._end - start, name, None)

    def store_packed(self, stream: ByteStream, name: str) -> Origin | None:
        """The same, compressed where it lies: logs take a tenth of their room then, and the bound holds ten times more.

        Such an origin can only be read from its start.
        """
        from diagnose.sources.packed import Packing, Unpacking

        packing = Packing(_Timed(stream, name, self._clock))
        stored = self._store(packing, name)
        if stored is None:
            return None
        size, error = packing.size, packing.error
        if error is not None:
            return Origin(lambda: Broken(Unpacking(stored.open()), error), size)
        return Origin(lambda: Unpacking(stored.open()), size)

    def _append(self, data: bytes) -> bool:
        import tempfile  # the shortest run does without it

        try:
            if self._file is None:
                # The file has no name from the start: nothing is left behind, however the process ends.
                with tempfile.TemporaryFile(buffering=0) as file:
                    self._file = Descriptor(os.dup(file.fileno()))
            position, view = self._end, memoryview(data)
            while view:
                written = os.pwrite(self._file.number, view, position)
                position, view = position + written, view[written:]
        except OSError:  # a full disk is what many failed jobs leave behind
            return False
        self._end += len(data)
        return True

    def _origin(self, start: int, size: int, name: str, error: SourceError | None) -> Origin:
        file = self._file

        def window(offset: int, length: int) -> PreadStream:
            assert file is not None
            length = max(0, min(length, size - offset))
            return PreadStream(file, name, start + offset, length, owns=False)

        if error is not None:
            return Origin(lambda: Broken(window(0, size) if size else Memory(b""), error), size)
        if size == 0:
            return Origin(lambda: Memory(b""), 0)
        return Origin(lambda: window(0, size), size, window)


class _Timed:
    """A stream that ends with an error when the time for listing archives is over."""

    def __init__(self, stream: ByteStream, name: str, clock: Clock) -> None:
        self._stream, self._name, self._clock = stream, name, clock

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes."""
        if self._clock.listing_over:
            raise LimitExceeded(
                f"{self._name}: {self._clock} ended its unpacking; what stands before that was used. Unpack it"
            )
        return self._stream.read(size)

    def close(self) -> None:
        """Close the stream behind."""
        self._stream.close()


class Broken:
    """A stream that ends with an error."""

    def __init__(self, stream: ByteStream, error: SourceError) -> None:
        self._stream, self._error = stream, error

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; raise at the end."""
        data = self._stream.read(size)
        if not data:
            raise self._error
        return data

    def close(self) -> None:
        """Close the stream behind."""
        self._stream.close()


class Memory:
    """A few bytes as a stream."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes."""
        data, self._data = self._data[:size], self._data[size:]
        return data

    def close(self) -> None:
        """Hold nothing."""


class Pipe:
    """A named pipe. Opening it does not wait for a writer; `Once` does, and can say so."""

    def __init__(self, path: str) -> None:
        self._descriptor = Descriptor(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))

    def fileno(self) -> int:
        """Return the descriptor, to wait for."""
        return self._descriptor.number

    def read(self, size: int) -> bytes | None:
        """Return up to `size` bytes, nothing when all writers are gone, and None where there is nothing yet."""
        try:
            return os.read(self._descriptor.number, size)
        except BlockingIOError:
            return None


class Once:
    """Standard input or a pipe: can be read one time, never endlessly; `on_wait` is told once that nothing comes."""

    def __init__(
        self, file: BinaryIO | Pipe, name: str, limits: Limits, clock: Clock, on_wait: Callable[[str], None]
    ) -> None:
        self._file, self._name, self._limit = file, name, limits.expanded_bytes
        self._clock, self._on_wait = clock, on_wait
        self._told = False
        self._ahead = b""
        self._position = 0
        self._opened = False
        try:
            self._number: int | None = file.fileno()
        except (OSError, ValueError, AttributeError):  # bytes in memory, a closed stream
            self._number = None

    def peek(self, size: int) -> bytes:
        """Return the first bytes, at most `size`, without taking them; waits for some, not for all."""
        try:
            while len(self._ahead) < min(size, 4096) and (data := self._take(size - len(self._ahead))):
                self._ahead += data
        except LimitExceeded:
            if not self._ahead:
                raise
        return self._ahead

    def open(self) -> ByteStream:
        """Return the stream, the first time."""
        if self._opened:
            raise SourceError(f"{self._name}: can be read only once; save it to a file and give that")
        self._opened = True
        return self

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; fewer mean that the end is near."""
        parts, missing = [], size
        while missing > 0:
            if self._ahead:
                data, self._ahead = self._ahead[:missing], self._ahead[missing:]
            elif not (data := self._take(missing)):
                break
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def _take(self, size: int) -> bytes:
        if self._position >= self._limit:
            raise LimitExceeded(f"{self._name}: longer than {self._limit} bytes; what follows was not read")
        try:
            read = getattr(self._file, "read1", self._file.read)
            data: bytes | None = None
            while data is None:
                self._await()
                data = read(size)
                if data is None and self._number is None:
                    data = b""
        except (OSError, ValueError) as error:
            raise read_error(self._name, error, self._position) from error
        self._position += len(data)
        return data

    def _await(self) -> None:
        """Wait until there are bytes or no writers; raise `LimitExceeded` when the time for it is over."""
        if self._number is None:
            return
        import select

        poll = select.poll()
        poll.register(self._number, select.POLLIN | select.POLLHUP | select.POLLERR)
        while not poll.poll(_SILENCE * 1000):
            what = "standard input" if self._name == "-" else f"a writer of the pipe {self._name}"
            if not self._told:
                self._told = True
                self._on_wait(f"waiting for {what}, for {self._clock.reading_left:.0f} s at most")
            # Before anything has come there are other inputs that need their time.
            if self._clock.reading_over if self._position else self._clock.short:
                raise LimitExceeded(f"{self._name}: {self._clock} was reached while waiting for {what}")

    def close(self) -> None:
        """Leave the file to whoever opened it."""


class Skipping:
    """A window of a stream that can only be read from its start."""

    def __init__(self, stream: ByteStream, offset: int, size: int) -> None:
        self._stream, self._skip, self._left = stream, offset, size

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes of the window."""
        while self._skip:
            data = self._stream.read(min(self._skip, 1024 * 1024))
            if not data:
                return b""
            self._skip -= len(data)
        data = self._stream.read(min(size, self._left))
        self._left -= len(data)
        return data

    def close(self) -> None:
        """Close the stream behind."""
        self._stream.close()


def read_head(stream: ByteStream, size: int = HEAD_BYTES) -> tuple[bytes, SourceError | None]:
    """Return the first bytes, and the error that ended them early if one did."""
    parts: list[bytes] = []
    missing = size
    try:
        while missing > 0 and (data := stream.read(missing)):
            parts.append(data)
            missing -= len(data)
    except SourceError as error:
        return b"".join(parts), error
    return b"".join(parts), None
