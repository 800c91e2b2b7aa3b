"""Who asks, and whether they may.

In: a request. Out: a `Caller`, or a problem: 401 without a good key, 403 without the scope, 429 beyond the rate. Where
only this machine can reach the service and no key was ever made, none is needed; then requests that a web page of
elsewhere made, or a proxy passed on, are refused. A key is believed for ten seconds after it was looked up, and while
the database is away for an hour.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from typing import Annotated, Final

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from diagnose.api.problems import ProblemError, retry_after
from diagnose.api.running import Running
from diagnose.errors import StoreError
from diagnose.service.keys import LOCAL, Caller, Keys
from diagnose.service.opening import Opening
from diagnose.service.settings import ServiceConfig

_FRESH: Final = 10.0
_STALE: Final = 3_600.0
_MOST: Final = 10_000
_PASSED_ON: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
_OWN_NAMES: Final = ("localhost", "127.0.0.1", "[::1]", "testserver")
_BEARER: Final = HTTPBearer(auto_error=False, description="a key of `diagnose keys add`")


class Gate:
    """Knows keys, for a while."""

    def __init__(self, config: ServiceConfig, opening: Opening, clock: Callable[[], float] = time.monotonic) -> None:
        self._config, self._opening, self._clock = config, opening, clock
        self._known: OrderedDict[str, tuple[Caller | None, float]] = OrderedDict()
        self._lock = threading.Lock()
        self._open: tuple[bool, float] = (False, 0.0)

    def caller(self, key: str | None) -> Caller | None:
        """Whose key this is; without one, this machine's own user where that is enough. Raises `StoreError`."""
        if key is None:
            return LOCAL if self._needs_none() else None
        digest = sha256(key.encode("utf-8", "backslashreplace")).hexdigest()
        return self._looked_up(digest, lambda keys: keys.check(key))

    def session(self, id: str) -> Caller | None:
        """Whose key bears this id, for a browser that has shown the key itself before. Raises `StoreError`."""
        return self._looked_up(f"id {id}", lambda keys: keys.called(id))

    def _looked_up(self, digest: str, look: Callable[[Keys], Caller | None]) -> Caller | None:
        now = self._clock()
        with self._lock:
            known = self._known.get(digest)
        if known is not None and now - known[1] < _FRESH:
            return known[0]
        try:
            caller = look(Keys(self._opening.database()))
        except StoreError as error:
            self._opening.failed(error)
            if known is not None and known[0] is not None and now - known[1] < _STALE:
                return known[0]
            raise
        with self._lock:
            self._known[digest] = (caller, now)
            self._known.move_to_end(digest)
            while len(self._known) > _MOST:
                self._known.popitem(last=False)
        return caller

    def _needs_none(self) -> bool:
        """Whether nobody needs a key."""
        if not self._config.is_local or self._config.keys == "required":
            return False
        now = self._clock()
        if now - self._open[1] > _FRESH or not self._open[1]:
            try:
                self._open = (not Keys(self._opening.database()).any(), now)
            except StoreError as error:
                self._opening.failed(error)
                if not self._open[1] or now - self._open[1] > _STALE:
                    raise
        return self._open[0]


def _caller(request: Request, bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)]) -> Caller:
    gate: Gate = request.app.state.gate
    if bearer is None and "authorization" in request.headers:
        raise ProblemError(401, "Authorization must be `Bearer dk_...`", {"WWW-Authenticate": "Bearer"})
    caller = gate.caller(bearer.credentials if bearer is not None else None)
    if caller is None:
        said = "that key is none, or it has expired or was revoked" if bearer else "a key is needed: Bearer dk_..."
        raise ProblemError(401, f"{said}; `diagnose keys add` makes one", {"WWW-Authenticate": "Bearer"})
    if caller.local:
        refuse_foreign(request)
    request.scope["caller"] = caller
    return caller


def _of_requests(running: Running, caller: Caller) -> None:
    """Takes one request of those that a key has."""
    if wait := running.rates.wait(caller.key):
        raise ProblemError(429, f"more than {running.config.bounds.rate} requests a minute", retry_after(wait))


def _of_bytes(running: Running, caller: Caller) -> None:
    """Sees that a key has bytes left; `Running.streamed` takes them when they are known."""
    if wait := running.stream_rates.wait(caller.key):
        megabytes = running.config.bounds.stream_rate >> 20
        raise ProblemError(429, f"more than {megabytes} MB of streamed logs a minute", retry_after(wait))


def refuse_foreign(request: Request, sites: tuple[str, ...] = ("none", "same-origin")) -> None:
    """Refuses what a web page made a browser send, and what a proxy lets in from elsewhere."""
    name = request.headers.get("host", "").rpartition(":")[0] or request.headers.get("host", "")
    own = name in _OWN_NAMES or request.headers.get("host") in _OWN_NAMES
    site = request.headers.get("sec-fetch-site", "none")
    if not own or site not in sites or any(header in request.headers for header in _PASSED_ON):
        raise ProblemError(
            403, "without keys only this machine's own programs are served; make one with `diagnose keys add`"
        )


def needs(scope: str, take: Callable[[Running, Caller], None] = _of_requests) -> Callable[..., Caller]:
    """A dependency: whoever asks, if they may do what the scope names, and do not ask too often."""

    def allowed(request: Request, caller: Annotated[Caller, Depends(_caller)]) -> Caller:
        take(request.app.state.running, caller)
        if not caller.may(scope):
            raise ProblemError(403, f"this key may not do that: it needs the scope {scope}")
        return caller

    return allowed


Submitter = Annotated[Caller, Depends(needs("submit"))]
Streamer = Annotated[Caller, Depends(needs("submit", _of_bytes))]
Reader = Annotated[Caller, Depends(needs("read"))]
Critic = Annotated[Caller, Depends(needs("feedback"))]
Admin = Annotated[Caller, Depends(needs("admin"))]


def project_for(caller: Caller, wanted: str | None) -> str:
    """The project that something is handed in for."""
    own = caller.projects
    if own is None:
        return wanted or ""
    if wanted is None and len(own) == 1:
        return next(iter(own))
    if wanted is None:
        raise ProblemError(422, "the key is bound to several projects: say which by `project`")
    if wanted not in own:
        raise ProblemError(403, "this key is not bound to that project")
    return wanted
