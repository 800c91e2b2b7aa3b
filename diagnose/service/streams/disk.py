"""Files and directories of the spool: written whole, on disk before anybody is told, one writer at a time, bounded.

In: paths and bytes. Out: the same on disk. What the disk says becomes `SpoolFull` or `StreamError`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Iterator
from typing import BinaryIO, Final

from diagnose.service.durable import sync
from diagnose.service.room import Room
from diagnose.service.streams.model import SpoolFull, StreamError

BLOCK: Final = 256 * 1024


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Turns what the disk says into errors of ours."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise SpoolFull("the disk of the spool is full; make room, or try again later") from error
        raise StreamError(f"the spool cannot be used: {error.strerror}; mend it or set DIAGNOSE_SPOOL") from error


@contextlib.contextmanager
def locked(folder: str, what: str = "lock") -> Iterator[None]:
    """Nobody else changes this meanwhile, in this process or another; a lock dies with its process."""
    descriptor = os.open(os.path.join(folder, what), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def put(folder: str, name: str, text: str) -> None:
    """Writes a small file as a whole."""
    part = os.path.join(folder, f".{name}.{os.getpid()}.{threading.get_ident()}")
    with open(
        os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w", encoding="utf-8"
    ) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, os.path.join(folder, name))
    sync(folder)


def append(path: str, data: bytes, size: int) -> None:
    """Puts bytes behind the first `size` of a file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        view, place = memoryview(data), size
        while view:
            written = os.pwrite(descriptor, view, place)
            view, place = view[written:], place + written
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def blocks(path: str) -> Iterator[bytes]:
    """The bytes of a file."""
    with open(path, "rb") as file:
        while data := file.read(BLOCK):
            yield data


def copy(source: BinaryIO, out: BinaryIO, size: int) -> None:
    """Copies so many bytes, or as many as there are."""
    while size > 0 and (data := source.read(min(size, BLOCK))):
        out.write(data)
        size -= len(data)


def entries(folder: str) -> list[str]:
    """The directories in a directory."""
    try:
        with os.scandir(folder) as scan:
            return sorted(entry.path for entry in scan if entry.is_dir(follow_symlinks=False) and entry.name[:1] != ".")
    except FileNotFoundError:
        return []


def below(folder: str) -> Iterator[str]:
    """All files below a directory."""
    for parent, _, names in os.walk(folder):
        for name in names:
            yield os.path.join(parent, name)


def size_below(folder: str) -> int:
    """How many bytes lie below a directory."""
    size = 0
    for path in below(folder):
        with contextlib.suppress(OSError):
            size += os.stat(path).st_size
    return size


def _size_in(folder: str) -> int:
    """How many bytes lie in the directories of a directory."""
    with os.scandir(folder) as scan:
        return sum(size_below(entry.path) for entry in scan if entry.is_dir(follow_symlinks=False))


class StreamRoom:
    """The bound on the bytes of all streamed logs below a directory, for all threads and processes."""

    def __init__(self, folder: str, most: int) -> None:
        self._room = Room(os.path.join(folder, ".room"), most, lambda: _size_in(folder))

    def take(self, size: int) -> None:
        """Counts bytes that are about to be written."""
        if not self._room.take(size):
            raise SpoolFull(
                f"streamed logs take {self._room.used()} bytes and may take no more than {self._room.most}; "
                "try again later"
            )

    def give_back(self, size: int) -> None:
        """Counts bytes that are gone."""
        self._room.give_back(size)

    def measure(self) -> None:
        """Looks how much is there."""
        with contextlib.suppress(OSError):  # then it is done the next time
            self._room.measure()
