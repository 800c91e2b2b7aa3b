"""Output on its way from a command to where it was meant to go, seen on the way.

In: a descriptor to read, one to write, and who wants to see. Out: every byte, in order, as soon as it comes. One thread
for each stream: a reader that is slow on one holds up that one only, as without us. A reader that has left is told to
the command as the system would tell it; a disk that is full is not, since no job should die of its log.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import stat
import termios
import threading
import tty
from collections.abc import Callable
from typing import Final

from diagnose.dataclass import dataclass

_BLOCK: Final = 256 * 1024
_PIPE: Final = 1024 * 1024  # what anybody may ask for
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
_HOLDING: Final = 60_000  # milliseconds to look again whether a writer that would block can go on

See = Callable[[bytes], None]


@dataclass(frozen=True, slots=True)
class Ends:
    """The two ends of one stream: what the command writes to, and what is read here."""

    given: int
    ours: int
    terminal: bool


def open_ends(target: int) -> Ends:
    """A stream like the one it leads to: a terminal where that is one, so that programs print as they do there."""
    if os.isatty(target):
        with contextlib.suppress(OSError, termios.error):
            ours, given = os.openpty()
            tty.setraw(given)  # not a byte is changed on the way; the real terminal does what terminals do
            resize(given, target)
            os.set_inheritable(given, False)
            return Ends(given, ours, terminal=True)
    ours, given = os.pipe2(os.O_CLOEXEC)
    with contextlib.suppress(OSError, AttributeError):  # a burst is taken at once, though we are busy
        fcntl.fcntl(given, fcntl.F_SETPIPE_SZ, _PIPE)
    return Ends(given, ours, terminal=False)


def resize(given: int, like: int) -> None:
    """Makes a terminal as large as another."""
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(like, termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(given, termios.TIOCSWINSZ, size)


def same(one: int, other: int) -> bool:
    """Whether two descriptors lead to the same place, so that the order of what goes there matters."""
    try:
        here, there = os.fstat(one), os.fstat(other)
    except OSError:
        return False
    return os.path.samestat(here, there) and not stat.S_ISBLK(here.st_mode)


class Copier:
    """A thread that copies one stream until its end, or until it is told to leave it to others."""

    def __init__(self, source: int, target: int, see: See) -> None:
        self._source = source
        self._target = target
        self._see = see
        self._wake, self._waker = os.pipe2(os.O_CLOEXEC)
        self.ended = False
        self.problem = ""
        self._thread = threading.Thread(target=self._copy, name=f"copy-{target}", daemon=True)
        self._thread.start()

    def join(self, seconds: float) -> bool:
        """Waits for the end of the stream; says whether it came."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def hand_over(self) -> None:
        """Leaves a stream that somebody still holds open to a process that goes on copying when we are gone."""
        with contextlib.suppress(OSError):
            os.write(self._waker, b".")
        if not self.join(1.0) or self.ended:
            return
        with contextlib.suppress(OSError):
            given = [(os.POSIX_SPAWN_DUP2, self._source, 0), (os.POSIX_SPAWN_DUP2, self._target, 1)]
            os.posix_spawnp("cat", ["cat"], os.environ, file_actions=given, setpgroup=0, setsigmask=())
            os.close(self._source)

    def _copy(self) -> None:
        watch = select.poll()
        watch.register(self._source, select.POLLIN)
        watch.register(self._wake, select.POLLIN)
        while True:
            ready = [number for number, _ in watch.poll()]
            if self._source in ready:
                try:
                    block = os.read(self._source, _BLOCK)
                except OSError:  # a terminal whose other end was closed
                    block = b""
                if not block:
                    break
                self._see(block)
                if not self._pass_on(block):
                    break
            elif self._wake in ready:
                return
        self.ended = True
        os.close(self._source)  # where the reader has left, the command now hears of it

    def _pass_on(self, block: bytes) -> bool:
        """Writes a block; returns whether there is somebody to write to."""
        left = memoryview(block)
        while left:
            try:
                left = left[os.write(self._target, left) :]
            except BlockingIOError:  # somebody has made the descriptor, which is not only ours, not block
                ready = select.poll()
                ready.register(self._target, select.POLLOUT)
                ready.poll(_HOLDING)
            except OSError as error:
                if error.errno not in _FULL:
                    return False
                self.problem = f"some output could not be written: {error.strerror}"
                return True
        return True
