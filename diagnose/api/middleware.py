"""What happens around every request: an id, a bound on its body, a line in the log, counts, an audit row.

In: ASGI messages. Out: the same, with `X-Request-Id` and headers that keep browsers strict. What no handler has caught
becomes a problem of status 500 that says nothing of the inside.
"""

from __future__ import annotations

import re
import secrets
import time
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from diagnose.api.problems import problem
from diagnose.api.tracing import Tracing
from diagnose.service.audit import Act

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

        async def bounded() -> Message:
            nonlocal size
            message = await receive()
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
            except _TooMuchError as error:
                if status:
                    raise
                said = problem(scope["request_id"], 413, error.detail, headers=error.headers)
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
