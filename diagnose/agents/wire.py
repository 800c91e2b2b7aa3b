"""One HTTP exchange that ends when it must, whatever the server does.

In: limits. Out: an HTTP client for the `openai` library that follows no redirect, takes no compressed body and no more
bytes than allowed, and `within`, which runs a call and cuts its connections when time is up: a server that drips, or
never ends, holds nobody.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from diagnose.bounded import bounded

T = TypeVar("T")
_HEADERS = frozenset(
    {"host", "connection", "accept", "accept-encoding", "content-type", "content-length", "user-agent"}
)


class Late(Exception):
    """Time was up before the call came back."""


class Exchange:
    """The connections of one call, and how to end them from outside."""

    def __init__(self, most: int, authorization: str | None = None) -> None:
        self._most = most
        self._authorization = authorization
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._cut = False

    def client(self, seconds: float) -> Any:
        """A client for `openai.OpenAI(http_client=...)`, to be closed by who asked for it."""
        import httpx

        return httpx.Client(
            timeout=seconds,
            follow_redirects=False,
            headers={"Accept-Encoding": "identity", "User-Agent": "diagnose"},
            event_hooks={"request": [self._watch], "response": [bounded(self._most)]},
        )

    def cut(self) -> None:
        """End all connections, now and from now on."""
        with self._lock:
            self._cut = True
            for each in self._sockets:
                with contextlib.suppress(OSError, ValueError):
                    each.shutdown(socket.SHUT_RDWR)  # not closed: another thread may be about to read

    def _watch(self, request: Any) -> None:
        request.extensions = {**request.extensions, "trace": self._trace}
        # The library adds what it finds in the environment and what it knows of this machine: none of that is ours.
        for name in [name for name in request.headers if name.lower() not in _HEADERS]:
            del request.headers[name]
        if self._authorization is not None:
            request.headers["Authorization"] = self._authorization

    def _trace(self, event: str, info: dict[str, Any]) -> None:
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            found = info["return_value"].get_extra_info("socket")
            with self._lock:
                self._sockets.append(found)
            if self._cut:
                self.cut()


def within(seconds: float, call: Callable[[], T], cut: Callable[[], None]) -> T:
    """What a call returns or raises; `Late` when time is up, after `cut` has ended what it waits for."""
    box = _Box[T]()

    def run() -> None:
        try:
            box.value = call()
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            box.error = error
        box.done.set()

    # A daemon: looking up a name cannot be interrupted, and nobody should wait for it at the end either.
    threading.Thread(target=run, name="diagnose-model", daemon=True).start()
    try:
        in_time = box.done.wait(max(0.0, seconds))
    except BaseException:
        cut()
        raise
    if not in_time:
        cut()
        raise Late
    if box.error is not None:
        raise box.error
    return box.value  # type: ignore[return-value]  # set where no error is


class _Box(Generic[T]):
    def __init__(self) -> None:
        self.done = threading.Event()
        self.value: T | None = None
        self.error: BaseException | None = None
