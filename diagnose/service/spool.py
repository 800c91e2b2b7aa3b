"""Bytes on disk that were sent to the service: uploads, and submissions that wait for the database.

In: blocks of bytes. Out: files that lie below one directory, are the owner's alone, and are on disk before anybody is
told that they were taken. Names that people give are never paths here. Raises `SpoolFull` and `SpoolError`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from typing import BinaryIO

from diagnose.dataclass import dataclass
from diagnose.errors import DiagnoseError
from diagnose.service.durable import sync
from diagnose.service.room import Room
from diagnose.sources.places import as_known

_ID_BYTES = 10
_COUNTED = ("uploads", "pending", "parts")
_TIDY_AGE = 3_600.0  # half-made files of processes that were killed


class SpoolError(DiagnoseError):
    """The spool cannot be written or read."""


class SpoolFull(SpoolError):
    """There is no room: a bound has bitten or the disk is full."""


class TooLarge(SpoolError):
    """One upload is larger than an upload may be."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What was written: its id, size and digest."""

    id: str
    size: int
    sha256: str


class Spool:
    """A directory of the service's own."""

    def __init__(self, folder: str, *, most_bytes: int, upload_bytes: int) -> None:
        self.folder = folder
        self._upload = upload_bytes
        self._room = Room(os.path.join(folder, "uploads.room"), most_bytes, self._there)
        with _told(folder):
            os.makedirs(folder, mode=0o700, exist_ok=True)
            for name in ("uploads", "work", "pending", "parts"):
                os.makedirs(os.path.join(folder, name), mode=0o700, exist_ok=True)

    def begin(self) -> Writing:
        """A new upload, to be written block by block."""
        return Writing(self, self._upload, f"u{secrets.token_hex(_ID_BYTES)}")

    def path(self, id: str) -> str:
        """Where an upload's bytes lie."""
        return os.path.join(self.folder, "uploads", id[1:3], _checked(id))

    def remove(self, id: str) -> None:
        """Deletes an upload."""
        path = self.path(id)
        with contextlib.suppress(OSError):
            size = os.stat(path).st_size
            os.unlink(path)
            self.give_back(size)

    def uploads(self) -> Iterator[tuple[str, float]]:
        """All uploads on disk, with when they were written."""
        top = os.path.join(self.folder, "uploads")
        for folder, _, names in os.walk(top):
            for name in names:
                with contextlib.suppress(OSError):
                    yield name, os.stat(os.path.join(folder, name)).st_mtime

    def take(self, size: int) -> None:
        """Counts bytes that are about to be written, by whatever process; raises `SpoolFull` beyond the bound."""
        with _told(self.folder):
            if not self._room.take(size):
                raise SpoolFull(
                    f"the spool holds {self._room.used()} bytes and takes no more than {self._room.most}; "
                    "try again later"
                )

    def give_back(self, size: int) -> None:
        """Counts bytes that were taken and not kept."""
        self._room.give_back(size)

    def _there(self) -> int:
        """How many bytes lie here."""
        size = 0
        for name in _COUNTED:
            for folder, _, files in os.walk(os.path.join(self.folder, name)):
                for file in files:
                    with contextlib.suppress(OSError):
                        size += os.stat(os.path.join(folder, file)).st_size
        return size

    @contextlib.contextmanager
    def work(self, name: str) -> Iterator[str]:
        """A directory for one piece of work, gone at its end."""
        folder = os.path.join(self.folder, "work", f"{_checked(name)}-{secrets.token_hex(4)}")
        with _told(self.folder):
            os.makedirs(folder, mode=0o700)
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # however long it takes, and whatever the clock does meanwhile
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(descriptor)

    # Submissions that came while the database was away

    def put_pending(self, name: str, data: bytes) -> None:
        """Keeps a submission until the database is there again; the same one twice is one."""
        with _told(self.folder):
            part = os.path.join(self.folder, "parts", f"{_checked(name)}-{secrets.token_hex(4)}")
            self.take(len(data))
            try:
                with open(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                folder = os.path.join(self.folder, "pending")
                before = _size(os.path.join(folder, name))
                os.replace(part, os.path.join(folder, name))
            except BaseException:
                self.give_back(len(data))
                raise
            self.give_back(before)
            sync(folder)

    def pending(self) -> list[str]:
        """The names of submissions that wait, the oldest first."""
        with _told(self.folder):
            folder = os.path.join(self.folder, "pending")
            return [entry.name for entry in sorted(os.scandir(folder), key=lambda entry: entry.stat().st_mtime)]

    def pending_bytes(self, name: str) -> bytes | None:
        """One submission that waits, None where it does not any more."""
        try:
            with open(os.path.join(self.folder, "pending", _checked(name)), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def drop_pending(self, name: str) -> None:
        """Forgets one that the database has taken."""
        path = os.path.join(self.folder, "pending", _checked(name))
        size = _size(path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
            self.give_back(size)

    def tidy(self) -> None:
        """Removes what killed processes left half-made."""
        before = time.time() - _TIDY_AGE
        for name in ("parts", "work"):
            with contextlib.suppress(OSError):
                for entry in os.scandir(os.path.join(self.folder, name)):
                    written = entry.stat(follow_symlinks=False).st_mtime
                    if not before <= written <= before + 2 * _TIDY_AGE and not _in_use(entry.path):
                        if entry.is_dir(follow_symlinks=False):
                            shutil.rmtree(entry.path, ignore_errors=True)
                        else:
                            os.unlink(entry.path)
        with contextlib.suppress(OSError):
            self._room.measure()


class Writing:
    """An upload on its way. `abort()` where it does not come to its end."""

    def __init__(self, spool: Spool, most: int, id: str) -> None:
        self._spool, self._most, self.id = spool, most, id
        self._size = 0
        self._digest = hashlib.sha256()
        self._part = os.path.join(spool.folder, "parts", id)
        with _told(spool.folder):
            descriptor = os.open(self._part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        self._file: BinaryIO = open(descriptor, "wb")  # noqa: SIM115 - closed by `end` or `abort`

    def write(self, data: bytes) -> None:
        """Takes the next bytes."""
        if self._size + len(data) > self._most:
            raise TooLarge(f"an upload may have {self._most} bytes at most; compress it, or give the path of a file")
        self._spool.take(len(data))
        self._size += len(data)
        self._digest.update(data)
        with _told(self._spool.folder):
            self._file.write(data)

    def end(self) -> Stored:
        """What was written, on disk."""
        with _told(self._spool.folder):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            path = self._spool.path(self.id)
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            os.replace(self._part, path)
            sync(os.path.dirname(path))
        return Stored(self.id, self._size, self._digest.hexdigest())

    def abort(self) -> None:
        """Leaves nothing of it."""
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            os.unlink(self._part)
            self._spool.give_back(self._size)


def _checked(name: str) -> str:
    """A name of our own making: whatever else comes in here is no path."""
    if not (name.isascii() and name.replace("-", "").isalnum() and len(name) <= 100):
        raise SpoolError("that is no id of this service")
    return name


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _in_use(path: str) -> bool:
    """Whether a process that lives has it in hand."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextlib.contextmanager
def _told(folder: str) -> Iterator[None]:
    """Turns the system's errors into one line that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise SpoolFull(f"the disk of the spool {folder} is full; make room, or try again later") from error
        raise SpoolError(
            f"the spool {as_known(folder)} cannot be used: {error.strerror}; mend its permissions or set DIAGNOSE_SPOOL"
        ) from error
