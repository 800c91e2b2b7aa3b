"""A log that another process writes: read as it grows, through rotation and truncation, and never disturbed.

In: a path, which need not exist yet. Out: its bytes in order, and where it begins anew: renamed and made again,
truncated, or copied away and emptied. Only reads.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable
from typing import Final

_HEAD: Final = 256  # bytes by which a file is known to be the one it was
_GRACE: Final = 5.0  # seconds in which a writer may still write to a file that was renamed


class Follower:
    """Follows one file by its path; `read` until `anew` says that what comes next is another one's."""

    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self.anew = self.truncated = False
        self.lost = 0  # bytes that were there and went before they were read, as far as that can be known
        self._clock = clock
        self._descriptor = -1
        self._position = self._seen = 0
        self._head = b""
        self._renamed: float | None = None
        self.hurry = False  # a file that was renamed gets no more time

    @property
    def identity(self) -> str:
        """By which file this is known, after it was opened."""
        if self._descriptor < 0:
            return ""
        status = os.fstat(self._descriptor)
        return f"{status.st_dev}:{status.st_ino}:{self._head[:64].hex()}"

    def read(self, most: int) -> bytes:
        """Give the next bytes, none where there are none yet, nor after `anew`."""
        if self.anew or not self._opened():
            return b""
        try:
            size = os.fstat(self._descriptor).st_size
            if size < self._position or not self._is_same():
                self.lost += max(0, self._seen - self._position)
                self.anew = self.truncated = True
                return b""
            data = os.pread(self._descriptor, most, self._position)
        except OSError:
            return b""  # stale handle, a disk in trouble: later, perhaps
        self._seen = max(size, self._position + len(data))
        if data:
            if len(self._head) < _HEAD and self._position == len(self._head):
                self._head = (self._head + data)[:_HEAD]
            self._position += len(data)
            self._renamed = None
            return data
        if self._is_renamed():
            self.anew = True
        return b""

    def hold(self) -> bool:
        """Have the file open and see how much there is, without reading it; say whether another has its path now.

        What has no name any more can be read still; what is emptied before it is read is counted as lost.
        """
        if not self._opened():
            return False
        self._seen = max(self._seen, self.size)
        try:
            now, mine = os.stat(self.path), os.fstat(self._descriptor)
        except OSError:
            return False  # between rename and creation
        return (now.st_dev, now.st_ino) != (mine.st_dev, mine.st_ino)

    @property
    def unread(self) -> int:
        """How many bytes of it were seen and not read."""
        return max(0, self._seen - self._position)

    def restart(self) -> bool:
        """Read the file from its beginning once more; False where what was there is gone."""
        if self.truncated or self._descriptor < 0:
            return False
        self.anew, self._renamed = False, None
        self._position = 0
        return True

    @property
    def is_open(self) -> bool:
        """Whether the file was there."""
        return self._descriptor >= 0

    @property
    def size(self) -> int:
        """How many bytes the file has that is open."""
        with contextlib.suppress(OSError):
            return os.fstat(self._descriptor).st_size
        return 0

    @property
    def position(self) -> int:
        """How many bytes were read of the file that is open."""
        return self._position

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
        self._descriptor = -1
        self._position = self._seen = 0
        self._head = b""
        self._renamed = None

    def _opened(self) -> bool:
        if self._descriptor >= 0:
            return True
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError:
            return False
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        self._position = self._seen = 0
        return True

    def _is_same(self) -> bool:
        """Whether the file still begins as it did: one that was emptied and has grown again may be as long."""
        return not self._head or os.pread(self._descriptor, len(self._head), 0) == self._head

    def _is_renamed(self) -> bool:
        """Whether another file has the path, and the writer has had time to go there."""
        try:
            now, mine = os.stat(self.path), os.fstat(self._descriptor)
        except OSError:
            return False  # between rename and creation
        if (now.st_dev, now.st_ino) == (mine.st_dev, mine.st_ino):
            self._renamed = None
            return False
        if self._renamed is None:
            self._renamed = self._clock()
        return self.hurry or self._clock() - self._renamed >= _GRACE
