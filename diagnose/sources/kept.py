"""Kept logs: what compression has let through of a log, with the log's own first bytes and its own line numbers.

In: the first bytes of an input. Out: `KeptHead`: under which name the log was read, by which guard its lines were
chosen, and where its records begin. Errors: `SourceError` where these bytes are not what they say they are.

A kept log is written in the order in which the log grows, and is the same bytes however that was cut: one line that
names it, the log's first 128 KiB as they were, one line that says of which kind it was taken to be, then records
(`compress/keptlog.py`). Of a log that is shorter than that it is the log itself, behind one line.
"""

from __future__ import annotations

from typing import Final, get_args

from diagnose.dataclass import dataclass
from diagnose.errors import SourceError
from diagnose.models import SourceKind

KEPT_MAGIC: Final = b"diagnose-kept/"
KEPT_VERSION: Final = 1
KEPT_HEAD_BYTES: Final = 128 * 1024
"""So much of a log stands in front as it was: whoever looks at its beginning needs no more."""
_LINE_BYTES: Final = 2048
KEPT_LOOKED_BYTES: Final = KEPT_HEAD_BYTES + 2 * _LINE_BYTES
_NAME_BYTES: Final = 255
_GUARD_DIGITS: Final = 32
_HEX: Final = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class KeptHead:
    """The beginning of a kept log: `head` is the log's own, `start` where its records begin, 0 where it has none yet.

    `kind` is the kind of source it was compressed as; it is known where there are records.
    """

    name: str
    guard: str
    head: bytes
    kind: SourceKind = "job"
    start: int = 0
    head_start: int = 0


def is_kept(head: bytes) -> bool:
    """Say whether an input that begins so is a kept log."""
    return head.startswith(KEPT_MAGIC)


def first_line(name: str, guard: str) -> bytes:
    """The line that a kept log of `name` begins with."""
    from urllib.parse import quote

    data = name.replace("/", "_").encode("utf-8", "surrogateescape")[:_NAME_BYTES]
    return b"%s%d guard=%s name=%s\n" % (KEPT_MAGIC, KEPT_VERSION, guard.encode(), quote(data, safe="").encode())


def kind_line(kind: SourceKind) -> bytes:
    """The line between a log's first bytes and the records."""
    return b"kept as=%s\n" % kind.encode()


def kept_head(data: bytes, shown: str) -> KeptHead:
    """Read the first `KEPT_LOOKED_BYTES` of the kept log that is called `shown`."""
    from urllib.parse import unquote_to_bytes

    first, newline, _ = data[: _LINE_BYTES + 1].partition(b"\n")
    words = first[len(KEPT_MAGIC) :].decode("ascii", "replace").split(" ")
    if words[0].isdigit() and words[0] != str(KEPT_VERSION):
        raise SourceError(
            f"{shown}: a kept log of version {words[0][:8]}, and this diagnose reads version {KEPT_VERSION}; update "
            "diagnose, or give the log itself"
        )
    guard, name = (word.partition("=")[2] for word in words[1:3]) if len(words) == 3 else ("", "")
    said = unquote_to_bytes(name).decode("utf-8", "surrogateescape")
    if (
        not newline
        or words[1:2] != [f"guard={guard}"]
        or words[2:3] != [f"name={name}"]
        or len(guard) != _GUARD_DIGITS
        or not _HEX.issuperset(guard)
        or said in ("", ".", "..")
        or "/" in said
        or "\0" in said
        or len(said) > _NAME_BYTES
    ):
        raise SourceError(f"{shown}: a kept log whose first line is damaged; give the log itself")
    begin = len(first) + 1
    head = data[begin : begin + KEPT_HEAD_BYTES]
    if len(head) < KEPT_HEAD_BYTES:
        return KeptHead(said, guard, head, head_start=begin)
    line, newline, _ = data[begin + KEPT_HEAD_BYTES :][:_LINE_BYTES].partition(b"\n")
    kind = next((kind for kind in get_args(SourceKind) if line + newline == kind_line(kind)), None)
    if kind is None and newline:
        raise SourceError(f"{shown}: a kept log that does not say what kind it is; give the log itself")
    if kind is None:  # it broke off right there
        return KeptHead(said, guard, head, head_start=begin)
    return KeptHead(said, guard, head, kind, begin + KEPT_HEAD_BYTES + len(line) + 1, begin)
