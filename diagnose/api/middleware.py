"""What happens around every request: an id, bounds on its body, a line in the log, counts, an audit row.

In: ASGI messages. Out: the same, with `X-Request-Id` and headers that keep browsers strict. What no handler has caught
becomes a problem of status 500 that says nothing of the inside.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Callable
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from diagnose.api.problems import problem
from diagnose.api.tracing import Tracing
from diagnose.service.audit import Act
from diagnose.service.settings import Bounds

_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}\Z")
_QUIET: Final = frozenset({"/healthz", "/readyz", "/metrics"})
_CHUNKS: Final = "/v1/jobs/{cluster}/{job_id}/{attempt}/logs/"
_GONE: Final = 499  # as nginx notes a client that hung up
_STRICT: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"),
)


class _TooMuchError(HTTPException):
    """A body is larger than it may be; of this kind, so that nobody on its way takes it for another error."""

    def __init__(self, most: int) -> None:
        super().__init__(413, f"a request may have {most} bytes at most", {"Connection": "close"})


class _SlowError(HTTPException):
    """A body does not come fast enough; its sender may be slow, but does not keep a connection for nothing."""

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(
            408,
            f"a body comes at {bounds.body_rate} bytes a second at least, but for {bounds.body_grace:.0f} s, and "
            f"within {bounds.body_seconds:.0f} s; send it again, in smaller parts where the way is slow",
            {"Connection": "close"},
        )


class _Pace:
    """How long a body is waited for: pauses use up the grace, and what comes restores it."""

    def __init__(self, receive: Receive, bounds: Bounds, clock: Callable[[], float]) -> None:
        self._receive, self._bounds, self._clock = receive, bounds, clock
        self._grace, self._rest = bounds.body_grace, bounds.body_seconds
        self._whole = False

    async def __call__(self) -> Message:
        """The next of a body. Raises `_SlowError`. Only time in which the sender is waited for counts."""
        if self._whole:  # what is waited for now is that the client hangs up
            return await self._receive()
        began = self._clock()
        try:
            async with asyncio.timeout(max(0.0, min(self._grace, self._rest))):
                message = await self._receive()
        except TimeoutError:
            raise _SlowError(self._bounds) from None
        waited = self._clock() - began
        self._rest -= waited
        earned = len(message.get("body", b"")) / self._bounds.body_rate
        self._grace = min(self._bounds.body_grace, self._grace - waited + earned)
        self._whole = message["type"] != "http.request" or not message.get("more_body", False)
        return message


class Around:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, running: Any, tracing: Tracing) -> None:
        self._app, self._running, self._tracing = app, running, tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"")
        scope["request_id"] = given.decode() if _ID.match(given) else secrets.token_hex(8)
        most = self._most(scope)
        began = time.perf_counter()
        status = 0
        size = 0

        in_time = _Pace(receive, self._running.config.bounds, asyncio.get_running_loop().time)

        async def bounded() -> Message:
            nonlocal size
            message = await in_time()
            size += len(message.get("body", b""))
            if size > most:
                raise _TooMuchError(most)
            return message

        async def answered(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                present = {name for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *((name, value) for name, value in _STRICT if name not in present),
                    (b"x-request-id", scope["request_id"].encode()),
                ]
            await send(message)

        with self._tracing.request(scope) as span:
            try:
                try:
                    length = int(headers.get(b"content-length", b"0"))
                except ValueError:
                    length = 0
                if length > most:
                    raise _TooMuchError(most)  # noqa: TRY301 - before a byte is read
                await self._app(scope, bounded, answered)
            except (_TooMuchError, _SlowError) as error:
                if status:
                    raise
                said = problem(scope["request_id"], error.status_code, error.detail, headers=error.headers)
                await said(scope, receive, answered)
            except ClientDisconnect:  # nobody is left who could be answered
                status = status or _GONE
            except Exception:
                self._running.log.exception("internal error", request_id=scope["request_id"], path=scope["path"])
                if status:
                    raise
                said = problem(
                    scope["request_id"], 500, "this is a defect of the service; its log has more under this id"
                )
                await said(scope, receive, answered)
            finally:
                self._note(scope, headers, status, time.perf_counter() - began)
                span(status, _route(scope))

    def _most(self, scope: Scope) -> int:
        """How many bytes the body of a request may have."""
        bounds = self._running.config.bounds
        kind = next((value for name, value in scope["headers"] if name == b"content-type"), b"")  # as handlers take it
        form = kind.strip().lower().startswith(b"multipart/form-data")
        if scope["path"] == "/v1/uploads" or (scope["path"] == "/v1/diagnoses" and form):
            return int(bounds.upload_bytes + bounds.body_bytes)
        if scope["path"].startswith("/v1/jobs/") and scope["method"] == "PUT":  # of which no body is held whole
            return int(bounds.upload_bytes)
        return int(bounds.body_bytes)

    def _note(self, scope: Scope, headers: dict[bytes, bytes], status: int, seconds: float) -> None:
        """Counts a request, logs it, and writes down who it was."""
        running, route = self._running, _route(scope)
        running.metrics.requests.labels(scope["method"] if route else "?", route or "none", str(status)).inc()
        running.metrics.seconds.labels(scope["method"] if route else "?", route or "none").observe(seconds)
        caller = scope.get("caller")
        if scope["path"] not in _QUIET:
            running.log.info(
                "request",
                request_id=scope["request_id"],
                method=scope["method"][:20],
                route=route or "none",
                status=status,
                ms=round(seconds * 1000, 1),
                key=caller.key if caller is not None else None,
            )
        refused = status in (401, 403)
        if route is None or (caller is None and not refused) or route in _QUIET:
            return
        address = scope["client"][0] if scope.get("client") else ""
        parameters = scope.get("path_params", {})
        running.trail.note(
            Act(
                caller.key if caller is not None else "",
                f"{scope['method']} {route}",
                "/".join(str(value) for value in parameters.values()),
                str(scope.get("project", "")),
                status,
                scope["request_id"],
                address,
                goes_on=route.startswith(_CHUNKS),
            )
        )


def _route(scope: Scope) -> str | None:
    """The pattern of the address, so that there are few; None where there is none."""
    route = scope.get("route")
    path = getattr(route, "path", None)
    return str(path) if path is not None else None
