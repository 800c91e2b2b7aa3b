"""Zip files as lists of members; a module of its own, since few runs need the library.

In: the origin of a zip file. Out: `Member`s, as `archives.py` makes them of tar archives, with the same errors.
"""

from __future__ import annotations

import lzma
import zipfile
import zlib
from collections.abc import Iterator

from diagnose.errors import LimitExceeded, SourceError
from diagnose.settings import Limits
from diagnose.sources.archives import Counted, Member
from diagnose.sources.streams import Budget, Origin

# A zip file's table of contents is read whole by the library.
_ZIP_TABLE_BYTES = 64 * 1024 * 1024
_ZIP_END = b"PK\x05\x06"
_ZIP64_END = b"PK\x06\x06"
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    OSError,
    EOFError,
    RuntimeError,  # NotImplementedError too: encrypted members, unknown methods
    ValueError,
    OverflowError,
    MemoryError,
)


def zip_members(origin: Origin, name: str, limits: Limits, budget: Budget) -> Iterator[Member]:
    """Yield the members of a zip file, which must be readable at any position."""
    if origin.at is None or origin.size is None:
        raise SourceError(f"{name}: a zip file inside a stream too large to keep; unpack it and give the folder")
    _check_zip_table(origin, origin.size, name, limits)
    file = origin.at(0, origin.size)
    try:
        archive = zipfile.ZipFile(file)
        infos = archive.infolist()
    except _ZIP_ERRORS as error:
        file.close()
        raise SourceError(f"{name}: the zip file is damaged ({error}); unpack what can be had of it") from error
    shared = _sharing(infos)
    for count, info in enumerate(infos):
        if count >= limits.archive_members:
            raise LimitExceeded(f"{name}: more than {limits.archive_members} members; the rest was not read")
        if not info.filename:
            yield Member("(no name)", origin, "a member without a name")
            continue
        if info.is_dir():
            continue
        mode = info.external_attr >> 16
        if mode & 0o170000 not in (0, 0o100000):
            yield Member(info.filename, origin, "a link or device inside an archive, not followed")
        elif id(info) in shared:
            yield Member(info.filename, origin, "shares its bytes with another member, as archive bombs do")
        elif info.flag_bits & 1:
            yield Member(info.filename, origin, "encrypted; unpack it with its password")
        elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            yield Member(info.filename, origin, "packed with an unusual method; unpack it")
        else:
            yield Member(info.filename, _zip_content(archive, info, f"{name}!{info.filename}", budget))


def _sharing(infos: list[zipfile.ZipInfo]) -> set[int]:
    """The members that begin inside another one, by identity: a few bytes that expand as often as they are listed."""
    shared: set[int] = set()
    end = -1
    for info in sorted(infos, key=lambda info: info.header_offset):
        if info.header_offset < end:
            shared.add(id(info))
        # A member's own header has 30 bytes at least.
        end = max(end, info.header_offset + 30 + info.compress_size)
    return shared


def _zip_content(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str, budget: Budget) -> Origin:
    return Origin(lambda: _ZipContent(archive, info, name, budget), info.file_size)


class _ZipContent:
    """A zip member's bytes, counted as they expand."""

    def __init__(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str, budget: Budget) -> None:
        self._name, self._budget, self._packed = name, budget, info.compress_size
        self._out = 0
        try:
            self._file = archive.open(info)
        except _ZIP_ERRORS as error:
            raise self._damaged(error) from error

    def read(self, size: int, /) -> bytes:
        try:
            data = self._file.read(size)
        except _ZIP_ERRORS as error:
            raise self._damaged(error) from error
        self._out += len(data)
        self._budget.use(self._name, self._out, self._packed)
        return data

    def _damaged(self, error: Exception) -> SourceError:
        return SourceError(f"{self._name}: damaged after {self._out} bytes ({error}); what stands before was used")

    def close(self) -> None:
        self._file.close()


def _check_zip_table(origin: Origin, size: int, name: str, limits: Limits) -> None:
    """Refuse a table of contents that would fill the memory, before the library reads it."""
    assert origin.at is not None
    length = min(size, 65_557 + 20 + 56)
    stream = origin.at(size - length, length)
    try:
        tail = Counted(stream).exactly(length)
    finally:
        stream.close()
    end = tail.rfind(_ZIP_END)
    if end < 0 or len(tail) < end + 22:
        raise SourceError(f"{name}: the zip file is cut off; unpack what can be had of it and give that")
    table = int.from_bytes(tail[end + 12 : end + 16], "little")
    count = int.from_bytes(tail[end + 10 : end + 12], "little")
    end64 = tail.rfind(_ZIP64_END, 0, end)
    if end64 >= 0:
        table = max(table if table != 0xFFFFFFFF else 0, int.from_bytes(tail[end64 + 40 : end64 + 48], "little"))
        count = max(count if count != 0xFFFF else 0, int.from_bytes(tail[end64 + 32 : end64 + 40], "little"))
    if table > _ZIP_TABLE_BYTES or count > limits.archive_members * 4:
        raise LimitExceeded(f"{name}: {count} members are too many; unpack it and give the folder")
