"""What the processes of a service tell each other of a running job: that it got on, is done, that it was told of.

In: the directory of a job's logs. Out: two small files in it. One process hears some senders, another one others:
neither may take for a standstill what only it does not see, and of one that all see only one tells. Nothing is lost
where these files cannot be written: then each speaks for itself.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

_PROGRESS: Final = ".progress"
_TOLD: Final = ".stalled-"
_DONE: Final = b"done"


class Progress:
    """Of one job; `folder` need not be there."""

    __slots__ = ("_folder",)

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def latest(self) -> int:
        """Changes whenever somebody has seen the job get on; 0 where nobody has yet."""
        with contextlib.suppress(OSError):
            return os.stat(os.path.join(self._folder, _PROGRESS)).st_mtime_ns
        return 0

    def done(self) -> bool:
        """Whether who saw it last saw that the job is done."""
        with contextlib.suppress(OSError), open(os.path.join(self._folder, _PROGRESS), "rb") as file:
            return file.read(len(_DONE) + 1) == _DONE
        return False

    def went_on(self, *, done: bool) -> int:
        """Says that the job got on, or is done; returns what `latest` is by that."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        with (
            contextlib.suppress(OSError),
            open(os.open(os.path.join(self._folder, _PROGRESS), flags, 0o600), "wb") as file,
        ):
            file.write(_DONE if done else b"on")
        return self.latest()

    def first_to_tell(self, latest: int) -> bool:
        """Whether nobody else tells of the standstill since `latest`."""
        name = f"{_TOLD}{latest}"
        try:
            os.close(os.open(os.path.join(self._folder, name), os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            return False
        except OSError:
            return True
        with contextlib.suppress(OSError):
            for old in os.listdir(self._folder):
                if old.startswith(_TOLD) and old != name:
                    os.unlink(os.path.join(self._folder, old))
        return True
