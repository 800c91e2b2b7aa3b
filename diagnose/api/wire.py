"""Connections that bring nothing do not stay: uvicorn's protocol, with the heads of requests bounded in size and time.

In: bytes of clients. Out: the same, to uvicorn's own protocol; a connection whose head does not end, or whose body does
not go on, or goes on long after its answer, is closed. Neither of uvicorn's parsers does that by itself, and the faster
one holds heads of any size.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEAD_BYTES: Final = 128 * 1024
HEAD_SECONDS: Final = 20.0
BODY_SECONDS: Final = 60.0  # without a byte of it
_LOOK: Final = 5.0
_TELLS: Final = hasattr(AutoHTTPProtocol, "on_headers_complete")  # else the parser bounds heads itself

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as _Protocol
else:
    _Protocol = AutoHTTPProtocol


class Patient(_Protocol):
    """One connection."""

    head_bytes, head_seconds, body_seconds, look = HEAD_BYTES, HEAD_SECONDS, BODY_SECONDS, _LOOK

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._head = 0  # bytes of the head that is on its way
        self._began: float | None = None  # when that began; None where there is none
        self._heard = 0.0
        self._left: float | None = None  # since when a body is on its way that nobody wants any more
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody is there, and has a while to say what is wanted."""
        super().connection_made(transport)
        self._began = self._heard = self.loop.time()
        self._timer = self.loop.call_later(self.look, self._watch)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Takes bytes."""
        self._heard = self.loop.time()
        super().data_received(data)
        if not _TELLS and self.cycle is not None:
            self._began = None
        if self._began is not None:
            self._head += len(data)
            if self._head > self.head_bytes and not self.transport.is_closing():
                self.send_400_response("The head of a request is too large.")

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._began, self._head = self._heard, 0

    def on_headers_complete(self) -> None:
        """A head has ended."""
        super().on_headers_complete()
        self._began = None

    def _watch(self) -> None:
        """Closes what does not go on."""
        now = self.loop.time()
        slow = self._began is not None and now - self._began > self.head_seconds
        reading = self.cycle is not None and self.cycle.more_body and not self.flow.read_paused
        unwanted = reading and self.cycle.response_complete
        self._left = None if not unwanted else self._left if self._left is not None else now
        slow = slow or (self._left is not None and now - self._left > self.body_seconds)
        if slow or (reading and now - self._heard > self.body_seconds):
            self.transport.close()
            return
        self._timer = self.loop.call_later(self.look, self._watch)
