"""Files in the user's cache directory: what one run has made and later ones need not make again.

In: a name and bytes. Out: the bytes, as long as nobody else can have written them and nothing is amiss with them. A
cache that cannot be read or written costs time only. Names are a kind, a dash and a digest: what is stale is simply
another file, and of each kind the newest few are kept.
"""

from __future__ import annotations

import contextlib
import importlib.util
import marshal
import os
import stat
import time
from collections.abc import Sequence
from typing import Any

BROKEN = (OSError, ValueError, TypeError, LookupError, AttributeError, EOFError, RecursionError)
"""What a file that is not there, or that holds something else, gives whoever reads it."""
_MAX_BYTES = 64 * 1024 * 1024
_DIGEST_BYTES = 8
_CODES = 2000  # of patterns; there are fewer than this, so some of so many are those of an older release
_KEPT = 8
_ENDING = ".bin"
_FORMER = ".json"
_UNFINISHED = ".part"


def name_of(kind: str, stated: Sequence[bytes]) -> str:
    """The name of the file that was made under these circumstances."""
    return kind + "-" + _digest(b"\n".join(stated)).hex() + _ENDING


def read(name: str) -> bytes:
    """What was written under the name; raises `OSError` or `ValueError` where it cannot be relied upon."""
    folder = _folder()
    if folder is None:
        raise FileNotFoundError(name)
    if not _own(os.lstat(folder), stat.S_IFDIR):
        raise PermissionError(folder)
    path = os.path.join(folder, name)
    # What lies there may be a pipe or a device: opening it must not wait, reading it must end.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
        found = os.fstat(file.fileno())
        if not _own(found, stat.S_IFREG) or found.st_size > _MAX_BYTES:
            raise PermissionError(path)
        data = file.read(found.st_size)
    # Half a file must not reach `marshal`, which trusts what it reads.
    if _digest(data[_DIGEST_BYTES:]) != data[:_DIGEST_BYTES]:
        raise ValueError(f"{path} is not what was written")
    return data[_DIGEST_BYTES:]


def write(name: str, data: bytes) -> None:
    """Writes the file whole or not at all; of two processes that do so at once, one is the last."""
    folder = _folder()
    if folder is None:
        return
    temporary = ""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if not _own(os.lstat(folder), stat.S_IFDIR):
            return
        import tempfile

        with tempfile.NamedTemporaryFile(dir=folder, prefix=_kind(name), suffix=_UNFINISHED, delete=False) as file:
            temporary = file.name
            file.write(_digest(data) + data)
        os.replace(temporary, os.path.join(folder, name))
        _forget_others(folder, name)
    except OSError:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def codes(name: str) -> dict[Any, Any]:
    """The codes of patterns that earlier runs have kept; none where they cannot be relied upon."""
    try:
        return dict(marshal.loads(read(name)))  # noqa: S302 - the user's own file, as the bytecode of modules is
    except BROKEN:
        return {}


def keep_codes(name: str, known: dict[Any, Any], made: dict[Any, Any]) -> None:
    """Keeps the codes that are known, or those alone that this run has `made`, if it has made any."""
    if made:
        write(name, marshal.dumps(known if len(known) <= _CODES else made))
        made.clear()


def _folder() -> str | None:
    """The directory; None where there is none for this user."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(home, "gpu-job-diagnose") if os.path.isabs(home) else None


def _digest(data: bytes) -> bytes:
    # What tells the bytecode of modules by their sources is at hand; hashlib would load a whole library for it.
    return importlib.util.source_hash(data)


def _own(found: os.stat_result, kind: int) -> bool:
    """Whether this is of the kind, this user's, and nobody else's to write."""
    return stat.S_IFMT(found.st_mode) == kind and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def _kind(name: str) -> str:
    return name.partition("-")[0] + "-"


def _forget_others(folder: str, keep: str) -> None:
    """Keeps the newest of a kind; what a killed process has left half written goes after an hour."""
    others: list[tuple[float, str]] = []
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if name == keep or not name.startswith(_kind(keep)):
            continue
        with contextlib.suppress(OSError):  # another process may do the same
            changed = os.path.getmtime(path)
            if name.endswith((_ENDING, _FORMER)):
                others.append((changed, path))
            elif name.endswith(_UNFINISHED) and changed < time.time() - 3600:
                os.unlink(path)
    for _, path in sorted(others)[: 1 - _KEPT]:
        with contextlib.suppress(OSError):
            os.unlink(path)
