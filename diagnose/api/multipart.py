"""A job and its logs in one request: `multipart/form-data`, straight to the spool.

In: the blocks of a body. Out: the JSON of the part `job`, and the uploads of the parts `logs`, `kernel_logs` and
`scheduler_records`. Nothing is held but a part's head and the JSON; every count and size is bounded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import python_multipart
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from diagnose.api.problems import ProblemError
from diagnose.dataclass import dataclass
from diagnose.service.spool import Spool, Stored, Writing

ROLES: Final = {"logs": "job", "kernel_logs": "kernel", "scheduler_records": "scheduler"}
_MOST_PARTS: Final = 1_000
_HEAD: Final = 8 * 1024


@dataclass(frozen=True, slots=True)
class Part:
    """A file of the form, in the spool."""

    role: str
    name: str
    stored: Stored


class Form:
    """Parses a body as it comes. `abort()` where it is not wanted to its end."""

    def __init__(self, content_type: str, spool: Spool, *, json_bytes: int) -> None:
        kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary")
        if kind != b"multipart/form-data" or not boundary or len(boundary) > 200:
            raise ProblemError(422, "multipart/form-data needs a boundary")
        self.job = b""
        self.parts: list[Part] = []
        self._spool, self._json_bytes = spool, json_bytes
        self._head = b""
        self._field = b""
        self._headers: dict[bytes, bytes] = {}
        self._role = ""
        self._name = ""
        self._writing: Writing | None = None
        self._count = 0
        callbacks: Any = {
            "on_part_begin": self._part_begin,
            "on_header_field": self._header_field,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_finished,
            "on_part_data": self._data,
            "on_part_end": self._part_end,
        }
        self._ended = False
        callbacks["on_end"] = self._end
        self._parser = python_multipart.MultipartParser(boundary, callbacks)

    def write(self, data: bytes) -> None:
        """Takes the next bytes of the body."""
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise ProblemError(422, f"the form cannot be read: {str(error)[:200]}") from None

    def finish(self) -> None:
        """Says that the body is over."""
        if not self._ended:
            raise ProblemError(422, "the form ends before its last boundary; send it again")

    def abort(self) -> None:
        """Leaves nothing of it."""
        if self._writing is not None:
            self._writing.abort()
            self._writing = None
        for part in self.parts:
            self._spool.remove(part.stored.id)
        self.parts.clear()

    def _end(self) -> None:
        self._ended = True

    def _part_begin(self) -> None:
        self._count += 1
        if self._count > _MOST_PARTS:
            raise ProblemError(413, f"a form may have {_MOST_PARTS} parts at most; send an archive")
        self._headers, self._head, self._field = {}, b"", b""
        self._role = self._name = ""

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]
        self._bound()

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._head += data[start:end]
        self._bound()

    def _bound(self) -> None:
        if len(self._field) + len(self._head) + sum(map(len, self._headers.values())) > _HEAD:
            raise ProblemError(413, f"the head of a part may have {_HEAD} bytes at most")

    def _header_end(self) -> None:
        self._headers[self._field.lower()] = self._head
        self._field, self._head = b"", b""

    def _headers_finished(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        self._role = options.get(b"name", b"").decode("utf-8", "replace")
        if self._role == "job":
            return
        if self._role not in ROLES:
            raise ProblemError(422, f"a part is called job, {', '.join(ROLES)}; not {self._role[:50]!r}")
        name = options.get(b"filename", b"").decode("utf-8", "backslashreplace")
        self._name = "".join(sign if sign.isprintable() else "_" for sign in name)[:500] or "log"
        self._writing = self._spool.begin()

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._writing is not None:
            self._writing.write(data[start:end])
            return
        self.job += data[start:end]
        if len(self.job) > self._json_bytes:
            raise ProblemError(413, f"the part job may have {self._json_bytes} bytes at most")

    def _part_end(self) -> None:
        if self._writing is not None:
            self.parts.append(Part(ROLES[self._role], self._name, self._writing.end()))
            self._writing = None


@contextlib.contextmanager
def aborting(undo: Callable[[], Any]) -> Iterator[None]:
    """Undoes what was begun, where it does not come to its end."""
    try:
        yield
    except BaseException:
        undo()
        raise
