"""What a sender that starts again must know of a log: which file it was sending, as what, and where that file is now.

In: small files of an earlier sender. Out: the same, and paths. Without them logs are sent anew.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from typing import Any, Final

_LOOKED_AT: Final = 10_000  # names of one directory


class Progress:
    """How far a log is."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._written = ""

    def read(self) -> Mapping[str, Any]:
        """What was written, nothing where nothing was."""
        if self._path is None:
            return {}
        try:
            with open(self._path, encoding="utf-8") as file:
                given = json.load(file)
        except (OSError, ValueError):
            return {}
        return given if isinstance(given, dict) else {}

    def write(self, said: Mapping[str, Any]) -> None:
        """Note which file is sent as what; a disk that refuses costs a second sending, no more."""
        text = json.dumps(said)
        if self._path is None or text == self._written:
            return
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            part = f"{self._path}.{os.getpid()}"
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
                out.write(text)
            os.replace(part, self._path)
            self._written = text


def is_same(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether two have spoken of one file, which has only grown since. The longer one knew it, the more of its head."""
    was, its = str(before.get("file", "")).rpartition(":"), str(now.get("file", "")).rpartition(":")
    grown = int(now.get("size", 0)) >= int(before.get("read", 0))
    return was[0] == its[0] != "" and (its[2].startswith(was[2]) or was[2].startswith(its[2])) and grown


def place_of(path: str, said: Mapping[str, Any]) -> str | None:
    """Where the file is now that was called `path`: there, or beside it where it was renamed; None where it is gone.

    `said` is its identity (`file`) and how many bytes of it were `read`.
    """
    if _is(path, said):
        return path
    folder = os.path.dirname(path) or "."
    with contextlib.suppress(OSError, ValueError, LookupError), os.scandir(folder) as scan:
        number = int(str(said["file"]).split(":")[1])
        for count, entry in enumerate(scan):
            if count > _LOOKED_AT:
                break
            if entry.inode() == number and _is(entry.path, said):
                return entry.path
    return None


def _is(path: str, said: Mapping[str, Any]) -> bool:
    """Whether a file is the one that was meant, and no shorter than it was."""
    try:
        device, number, head = str(said["file"]).split(":")
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, KeyError, ValueError):
        return False
    try:
        found, begin = os.fstat(descriptor), bytes.fromhex(head)
        same = (str(found.st_dev), str(found.st_ino)) == (device, number)
        return same and found.st_size >= int(said.get("read", 0)) and os.pread(descriptor, len(begin), 0) == begin
    except (OSError, ValueError, TypeError):
        return False
    finally:
        os.close(descriptor)
