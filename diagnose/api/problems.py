"""Errors on the wire: problems of RFC 9457, for everything that can go wrong.

In: exceptions of any layer. Out: `application/problem+json` with a type, a title, what to do, and the request's id.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from diagnose.errors import DiagnoseError, StoreError, UsageError
from diagnose.service.jobs import Absent, Conflict
from diagnose.service.paths import Refused
from diagnose.service.spool import SpoolError, SpoolFull, TooLarge
from diagnose.service.streams import StreamError

_STREAMS = {
    "offset-gap": 409,
    "old-generation": 409,
    "guard-differs": 409,
    "chunk-too-large": 413,
    "too-much": 413,
    "spool-full": 507,
    "bad-encoding": 422,
    "bad-kept-log": 422,
}
MEDIA = "application/problem+json"
_SHOWN = 20  # errors of one request
_CUT = 300


class ProblemError(Exception):
    """A problem that a handler raises itself."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, dict(headers or {})


def problem(
    request_id: str,
    status: int,
    detail: str,
    *,
    headers: Mapping[str, str] | None = None,
    errors: list[dict[str, Any]] | None = None,
    kind: str | None = None,
    more: Mapping[str, Any] | None = None,
) -> Response:
    """The response for a problem; `kind` names it where the status does not say enough, `more` are its own members."""
    title = HTTPStatus(status).phrase if status in _KNOWN else "Error"
    body: dict[str, Any] = {
        "type": f"urn:diagnose:problem:{kind or title.lower().replace(' ', '-')}",
        "title": title,
        "status": status,
        "detail": detail[:2000].encode("utf-8", "backslashreplace").decode(),
        "instance": f"urn:request:{request_id}",
    }
    if errors:
        body["errors"] = errors
    body.update(more or {})
    return JSONResponse(body, status, headers=dict(headers or {}), media_type=MEDIA)


_KNOWN = frozenset(int(status) for status in HTTPStatus)


def request_id(request: Request) -> str:
    """The id of a request."""
    return str(request.scope.get("request_id", ""))


def of_error(error: DiagnoseError) -> tuple[int, dict[str, str]]:
    """The status and the headers that an error of ours becomes."""
    if isinstance(error, Absent):
        return 404, {}
    if isinstance(error, Conflict):
        return 409, {}
    if isinstance(error, TooLarge):
        return 413, {}
    if isinstance(error, SpoolFull):
        return 507, {"Retry-After": "60"}
    if isinstance(error, StreamError):
        status = _STREAMS.get(error.kind, 503)
        return status, {503: {"Retry-After": "5"}, 507: {"Retry-After": "60"}}.get(status, {})
    if isinstance(error, SpoolError | StoreError):
        return 503, {"Retry-After": "5"}
    if isinstance(error, Refused | UsageError):
        return 422, {}
    return 500, {}


def shown_errors(error: RequestValidationError | ValidationError) -> list[dict[str, Any]]:
    """What is wrong with a request, as pointers and sentences; what was sent is not repeated."""
    shown = []
    for one in error.errors()[:_SHOWN]:
        place = [str(part)[:100] for part in one.get("loc", ())]
        shown.append({"pointer": "/" + "/".join(place), "detail": str(one.get("msg", ""))[:_CUT]})
    return shown


def add_handlers(app: FastAPI) -> None:
    """Has every error answered as a problem."""

    @app.exception_handler(ProblemError)
    def _own(request: Request, error: ProblemError) -> Response:
        return problem(request_id(request), error.status, error.detail, headers=error.headers)

    @app.exception_handler(HTTPException)
    def _http(request: Request, error: HTTPException) -> Response:
        detail = error.detail if isinstance(error.detail, str) else str(error.detail)
        if error.status_code == HTTPStatus.NOT_FOUND:
            detail = "there is nothing at this address; GET /openapi.json lists what there is"
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            detail = f"{request.method[:20]} is not possible here; the header Allow says what is"
        return problem(request_id(request), error.status_code, detail, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    def _validation(request: Request, error: RequestValidationError) -> Response:
        errors = shown_errors(error)
        first = errors[0] if errors else {"pointer": "", "detail": "it is not as the contract has it"}
        detail = f"{first['pointer']}: {first['detail']}"
        said = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if first["pointer"] == "/body" and said != "application/json":  # what curl says of its own
            detail = "the body is JSON: set Content-Type: application/json"
        return problem(request_id(request), 422, detail, errors=errors)

    @app.exception_handler(ValidationError)
    def _model(request: Request, error: ValidationError) -> Response:
        errors = shown_errors(error)
        return problem(request_id(request), 422, f"{errors[0]['pointer']}: {errors[0]['detail']}", errors=errors)

    @app.exception_handler(StreamError)
    def _stream(request: Request, error: StreamError) -> Response:
        status, headers = of_error(error)
        more = {name: getattr(error, name) for name in ("offset", "generation") if hasattr(error, name)}
        return problem(request_id(request), status, str(error), headers=headers, kind=error.kind, more=more)

    @app.exception_handler(DiagnoseError)
    def _ours(request: Request, error: DiagnoseError) -> Response:
        running = request.app.state.running
        if isinstance(error, StoreError):
            running.opening.failed(error)
        status, headers = of_error(error)
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            running.log.warning("unavailable", request_id=request_id(request), error=str(error))
        return problem(request_id(request), status, str(error), headers=headers)


def retry_after(seconds: float) -> dict[str, str]:
    """The header that says when to come again."""
    return {"Retry-After": str(max(1, math.ceil(seconds)))}
