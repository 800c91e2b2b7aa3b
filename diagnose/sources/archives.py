"""Archives as lists of members, each of which can be read on its own; nothing is unpacked under a member's name.

In: the origin of a tar or zip file. Out: `Member`s in the archive's order. What is no plain file (links, devices,
folders) is never followed. Errors: `SourceError` where the archive is damaged, `LimitExceeded` past a bound; members
before that are good.
"""

from __future__ import annotations

from collections.abc import Iterator

from diagnose.dataclass import dataclass
from diagnose.errors import LimitExceeded, SourceError
from diagnose.settings import Limits
from diagnose.sources.streams import ByteStream, Origin, PreadStream, Skipping, Spool

_BLOCK = 512
# Headers of the pax format and long names are read whole; no real one is near this.
_EXTENSION_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Member:
    """A plain file of an archive. `why_not` says why another kind of member is not read."""

    name: str
    origin: Origin
    why_not: str | None = None


def is_tar(head: bytes) -> bool:
    """Say whether `head` starts a tar archive: a header whose checksum holds."""
    return len(head) >= _BLOCK and head[0] != 0 and _checksum_holds(head[:_BLOCK])


def is_zip(head: bytes) -> bool:
    """Say whether `head` starts a zip file that has members."""
    return head.startswith((b"PK\x03\x04", b"PK\x07\x08PK\x03\x04"))


def _checksum_holds(header: bytes) -> bool:
    stated = _number(header[148:156])
    return stated is not None and stated == sum(header[:148]) + 256 + sum(header[156:])


def _number(field: bytes) -> int | None:
    """Return a header's number: octal text, or binary when the first bit is set."""
    if field[:1] >= b"\x80":
        return int.from_bytes(field[1:], "big") if field[0] == 0x80 else None
    text = field.replace(b"\0", b" ").split()
    try:
        return int(text[0], 8) if text else 0
    except ValueError:
        return None


class Counted:
    """An archive's own stream, with the position in it."""

    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream
        self.position = 0

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes."""
        data = self.stream.read(size)
        self.position += len(data)
        return data

    def exactly(self, size: int) -> bytes:
        """Return `size` bytes, fewer only at the end."""
        parts: list[bytes] = []
        while size > 0 and (data := self.read(min(size, 1024 * 1024))):
            parts.append(data)
            size -= len(data)
        return b"".join(parts)

    def skip_to(self, position: int) -> bool:
        """Move forward; False if the stream ends before `position`."""
        if isinstance(self.stream, PreadStream):
            self.stream.seek(position)
            self.position = position
            return True
        while self.position < position:
            if not self.read(min(position - self.position, 1024 * 1024)):
                return False
        return True


class _Content:
    """What is left of a member in the archive's own stream."""

    def __init__(self, counted: Counted, end: int, name: str) -> None:
        self._counted, self._end, self._name = counted, end, name

    def read(self, size: int, /) -> bytes:
        left = self._end - self._counted.position
        data = self._counted.read(min(size, left)) if left > 0 else b""
        if not data and left > 0:
            raise SourceError(f"{self._name}: the archive ends inside this member; what stands before that was used")
        return data

    def close(self) -> None:
        """Leave the archive's stream open."""


class _Whole:
    """A member's stream that must have all its bytes."""

    def __init__(self, stream: ByteStream, size: int, name: str) -> None:
        self._stream, self._left, self._name = stream, size, name

    def read(self, size: int, /) -> bytes:
        data = self._stream.read(min(size, self._left)) if self._left else b""
        if not data and self._left:
            raise SourceError(f"{self._name}: the archive ends inside this member; what stands before that was used")
        self._left -= len(data)
        return data

    def close(self) -> None:
        self._stream.close()


class _WholeWindow(_Whole):
    """One that stands in a file as it is."""

    def __init__(self, stream: PreadStream, size: int, name: str) -> None:
        super().__init__(stream, size, name)
        self._window = stream

    def leap(self, size: int, /) -> int:
        """Go on at the last `size` bytes; return how many were left out."""
        left_out = self._window.leap(size)
        self._left -= left_out
        return left_out


def tar_members(origin: Origin, name: str, limits: Limits, spool: Spool) -> Iterator[Member]:
    """Yield the members of a tar archive while reading it once.

    Behind compression each member goes to the spool as it passes; one without room there is found again by reading
    the archive from its start.
    """
    counted = Counted(origin.open())
    try:
        yield from _tar_members(counted, origin, name, limits, spool)
    finally:
        counted.stream.close()


def _tar_members(counted: Counted, origin: Origin, name: str, limits: Limits, spool: Spool) -> Iterator[Member]:
    long_name: bytes | None = None
    pax: dict[bytes, bytes] = {}
    pax_global: dict[bytes, bytes] = {}
    seen = 0
    position = 0
    while True:
        if not counted.skip_to(position):
            raise SourceError(f"{name}: the archive is cut off; the members before that were used")
        header = counted.exactly(_BLOCK)
        if not header.strip(b"\0"):
            return  # the end mark, or the end of the file
        if len(header) < _BLOCK or not _checksum_holds(header):
            raise SourceError(f"{name}: the archive is damaged at byte {position}; the members before that were used")
        kind = header[156:157]
        size = _number(header[124:136])
        if b"size" in pax and pax[b"size"].isdigit() and len(pax[b"size"]) < 20:
            size = int(pax[b"size"])
        if size is None or size >= 1 << 62:
            raise SourceError(f"{name}: the archive is damaged at byte {position}; the members before that were used")
        start = counted.position
        position = start + (size + _BLOCK - 1) // _BLOCK * _BLOCK
        seen += 1
        if seen > limits.archive_members:
            raise LimitExceeded(f"{name}: more than {limits.archive_members} members; the rest was not read")
        if kind in b"LKxgX" and kind:
            if size > _EXTENSION_BYTES:
                raise SourceError(f"{name}: a header of {size} bytes is not believable; the rest was not read")
            data = counted.exactly(size)
            if kind == b"L":
                long_name = data.rstrip(b"\0")
            elif kind == b"g":
                pax_global |= _pax(data)
            elif kind in (b"x", b"X"):
                pax = pax_global | _pax(data)
            continue
        raw = long_name or pax.get(b"path") or _ustar_name(header)
        long_name, pax = None, dict(pax_global)
        member = raw.decode("utf-8", "surrogateescape")
        if kind in (b"1", b"2"):
            yield Member(member, origin, "a link inside an archive, not followed")
        elif kind in (b"3", b"4", b"6"):
            yield Member(member, origin, "a device or pipe inside an archive")
        elif kind == b"S" or any(key.startswith(b"GNU.sparse") for key in pax):
            yield Member(member, origin, "stored as a sparse file; unpack the archive and give the folder")
        elif kind == b"5" or (raw.endswith(b"/") and not size):
            continue
        else:
            yield Member(member, _tar_content(counted, origin, start, size, f"{name}!{member}", spool))


def _tar_content(counted: Counted, origin: Origin, start: int, size: int, name: str, spool: Spool) -> Origin:
    if origin.at is not None:
        at = origin.at
        inside = (origin.size or 0) - start

        def window(offset: int, length: int) -> PreadStream:
            return at(start + offset, max(0, min(length, size - offset)))

        # Of a file cut off inside this member only a reading from front to back can say so in time.
        return Origin(lambda: _WholeWindow(at(start, size), size, name), size, window if inside >= size else None)
    stored = spool.store_packed(_Content(counted, start + size, name), name)
    if stored is not None:
        return stored
    return Origin(lambda: _Whole(Skipping(origin.open(), start, size), size, name), size)


def _ustar_name(header: bytes) -> bytes:
    name = header[:100].split(b"\0", 1)[0]
    prefix = header[345:500].split(b"\0", 1)[0]
    if header[257:263] == b"ustar\0" and prefix:
        return prefix + b"/" + name
    return name


def _pax(data: bytes) -> dict[bytes, bytes]:
    """Return the records `<length> <key>=<value>\\n` of a pax header, up to the first damaged one."""
    records: dict[bytes, bytes] = {}
    while data:
        length, space, _ = data[:24].partition(b" ")
        if not space or not length.isdigit() or int(length) <= len(length) + 1:
            break
        key, _, value = data[len(length) + 1 : int(length)].rstrip(b"\n").partition(b"=")
        records[key] = value
        data = data[int(length) :]
    return records
