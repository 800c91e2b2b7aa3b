"""What is made of a log and not yet acknowledged: in memory, and on disk while the service is away.

In: bytes, in order. Out: the same, from the first that is not acknowledged. A file that lies on disk says in its first
line whose bytes it holds, so that they can be sent when whoever made them was killed and the log itself is gone. Where
the disk takes no more, memory does, up to its bound; beyond that logs wait where they lie.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from typing import Any, Final

_MEMORY: Final = 32 * 1024 * 1024
_DISK: Final = 1024 * 1024 * 1024
_HEAD: Final = 64 * 1024


class Space:
    """What all backlogs of a sender may take, in bytes; `folder` is where they lie on disk, None for nowhere."""

    def __init__(self, folder: str | None, *, memory: int = _MEMORY, disk: int = _DISK) -> None:
        self.folder = folder
        self.memory, self.disk = memory, disk
        self._last: dict[str, int] = {}

    def path(self, key: str) -> str | None:
        """A new file for the log of this name."""
        if self.folder is None:
            return None
        number = self._last.get(key) or max((int(name.split(".")[1]) for name in self._names(key)), default=0)
        self._last[key] = number = number + 1
        return os.path.join(self.folder, f"{key}.{number:06}.spool")

    def left(self, key: str) -> list[str]:
        """What one who was killed has left of the log of this name, the oldest first."""
        return [os.path.join(self.folder or "", name) for name in sorted(self._names(key))]

    def _names(self, key: str) -> list[str]:
        names: list[str] = []
        if self.folder is not None:
            with contextlib.suppress(OSError):
                names = os.listdir(self.folder)
        ours = (name.split(".") for name in names)
        return [".".join(one) for one in ours if one[0] == key and one[2:] == ["spool"] and one[1].isdigit()]


class Backlog:
    """The bytes of one generation from its byte `start` on."""

    def __init__(self, space: Space, path: str | None) -> None:
        self.start = 0
        self._space, self._path = space, path
        self._memory = bytearray()
        self._descriptor = -1
        self._from = self._to = 0  # of the file

    def __len__(self) -> int:
        return self._to - self._from + len(self._memory)

    def add(self, data: bytes) -> None:
        """Put bytes behind the others."""
        self._memory += data
        self._space.memory -= len(data)
        if self._descriptor >= 0:
            self._write()

    def head(self, size: int) -> bytes:
        """The first bytes."""
        if self._from < self._to:
            return os.pread(self._descriptor, min(size, self._to - self._from), self._from)
        return bytes(self._memory[:size])

    def drop(self, size: int) -> None:
        """Pass over the first bytes."""
        self.start += size
        filed = min(size, self._to - self._from)
        self._from += filed
        del self._memory[: size - filed]
        self._space.memory += size - filed
        if self._descriptor >= 0 and self._from == self._to:
            self._unlink()

    def clear(self) -> None:
        """Nothing is left of it, on disk neither."""
        self.drop(len(self))
        self._unlink()
        if self._path is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._path)

    def spill(self, said: Mapping[str, Any]) -> None:
        """Put it on disk, and what comes after it too; `said` is what must be known to send it."""
        if self._path is None or self._descriptor >= 0 or not self._memory:
            return
        head = json.dumps({**said, "start": self.start}).encode() + b"\n"
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor = os.open(self._path, flags, 0o600)
            os.pwrite(self._descriptor, head, 0)
            self._from = self._to = len(head)
            self._write()

    def load(self, path: str) -> Mapping[str, Any]:
        """Take up what was left on disk, and return what was said of it, nothing where that cannot be read."""
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            head = os.pread(self._descriptor, _HEAD, 0).partition(b"\n")[0]
            said = json.loads(head)
            self.start = int(said["start"])
        except (OSError, ValueError, KeyError, TypeError):
            self._close()
            return {}
        self._path = path
        self._from, self._to = len(head) + 1, os.fstat(self._descriptor).st_size
        self._space.disk -= self._to
        return dict(said)

    def close(self) -> None:
        """Let go of the file, and leave it where it is."""
        self._close()

    def _write(self) -> None:
        """Move what is in memory to the file, where there is room."""
        if len(self._memory) > self._space.disk:
            return
        try:
            view = memoryview(self._memory)
            place = self._to
            while view:
                written = os.pwrite(self._descriptor, view, place)
                view, place = view[written:], place + written
        except OSError:
            return  # no room: it stays in memory, and is tried again with what comes next
        finally:
            view.release()
        self._space.disk -= place - self._to
        self._space.memory += len(self._memory)
        self._to = place
        self._memory.clear()

    def _unlink(self) -> None:
        if self._descriptor < 0:
            return
        with contextlib.suppress(OSError):
            self._space.disk += os.fstat(self._descriptor).st_size
        self._close()
        self._from = self._to = 0
        if self._path is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._path)

    def _close(self) -> None:
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
        self._descriptor = -1
