"""Templates become responses, and errors pages.

In: the name of a template and values. Out: HTML under a strict policy of content. Every value is made harmless before
it is escaped: control characters and ones that turn the direction of writing are shown as codes, as the terminal has
them. `PageRoute` has errors of any layer answered as pages.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse

from diagnose.api.negotiate import HTML, JSON, wanted
from diagnose.api.problems import ProblemError, of_error, request_id, shown_errors
from diagnose.api.web.assets import address
from diagnose.api.web.sessions import LoginNeeded, Viewer, sessions_of
from diagnose.errors import DiagnoseError, StoreError
from diagnose.report.text import printable

POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    # Not `no-referrer`: with that browsers hide the origin of forms, by which foreign ones are told.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


def _shown(value: object) -> object:
    """A value as it may stand on a page."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def _day(iso: str) -> str:
    """ISO 8601 in UTC as the other times on a page."""
    return iso[:16].replace("T", " ")


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _words(name: str | None) -> str:
    return (name or "").replace("_", " ")


_TEMPLATES: Final = Environment(
    loader=FileSystemLoader(os.path.join(os.path.dirname(__file__), "templates")),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_shown,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
_TEMPLATES.filters.update(when=_when, day=_day, iso=_iso, words=_words)
_TEMPLATES.globals["asset"] = address


def page(request: Request, name: str, looking: Viewer | None = None, *, status: int = 200, **values: Any) -> Response:
    """A template as a response."""
    text = _TEMPLATES.get_template(name).render(
        here=request.url.path,
        viewer=looking,
        token=sessions_of(request).token(looking.word) if looking is not None else "",
        **values,
    )
    return HTMLResponse(text.encode("utf-8", "backslashreplace"), status, headers=_HEADERS)


def see(where: str) -> Response:
    """Has the browser look there."""
    return RedirectResponse(where, HTTPStatus.SEE_OTHER, headers=_HEADERS)


def _failed(request: Request, status: int, detail: str, headers: dict[str, str]) -> Response:
    try:
        title = HTTPStatus(status).phrase
    except ValueError:
        title = "Error"
    made = page(request, "message.html", status=status, title=title, detail=detail[:2_000], id=request_id(request))
    made.headers.update(headers)
    return made


def _login(request: Request) -> Response:
    """To the form for the key; by a link elsewhere one comes without cookie, and comes again from here with it."""
    if request.method != "GET":
        return see("/login")
    if request.headers.get("sec-fetch-site") in ("cross-site", "same-site") and "again" not in request.query_params:
        return page(request, "again.html")
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return see(f"/login?next={quote(wanted, safe='')}")


def answer(request: Request, error: Exception) -> Response | None:
    """The page that an error becomes; None for a defect."""
    if isinstance(error, LoginNeeded):
        return _login(request)
    if isinstance(error, ProblemError):
        return _failed(request, error.status, error.detail, dict(error.headers))
    if isinstance(error, RequestValidationError | ValidationError):
        first = shown_errors(error)[0]
        if first["pointer"] == "/path/id":
            return _failed(request, 404, "There is no such diagnosis.", {})
        return _failed(request, 422, f"{first['pointer']}: {first['detail']}", {})
    if isinstance(error, HTTPException):
        return _failed(request, error.status_code, str(error.detail), dict(error.headers or {}))
    if isinstance(error, DiagnoseError):
        running = request.app.state.running
        if isinstance(error, StoreError):
            running.opening.failed(error)
        status, headers = of_error(error)
        return _failed(request, status, str(error), headers)
    return None


def add_lost(app: FastAPI) -> None:
    """Has a browser told by a page that there is nothing at an address; programs, and all below `/v1`, by a problem."""
    otherwise = app.exception_handlers[HTTPException]

    @app.exception_handler(HTTPException)
    def lost(request: Request, error: HTTPException) -> Response:
        read = request.method == "GET" and not request.url.path.startswith("/v1/")
        if read and error.status_code == HTTPStatus.NOT_FOUND and _likes_pages(request):
            return _failed(request, error.status_code, "There is nothing at this address.", {})
        made: Response = otherwise(request, error)  # type: ignore[assignment]
        return made


def _likes_pages(request: Request) -> bool:
    try:
        return wanted(request.headers.get("accept"), (JSON, HTML)) == HTML
    except ProblemError:
        return False


class PageRoute(APIRoute):
    """A route whose errors are pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler with its errors answered."""
        handler = super().get_route_handler()

        async def told(request: Request) -> Response:
            try:
                return await handler(request)
            except Exception as error:
                made = answer(request, error)
                if made is None:
                    raise
                return made

        return told
