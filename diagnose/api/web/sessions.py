"""Who looks at a page: a key that was shown once becomes a signed cookie.

In: requests. Out: a `Viewer`, or `LoginNeeded`. The cookie holds the id of the key, until when it is good and a random
word, under a MAC by a secret that lies in the spool, which all processes of a service share; the key itself is not in
it, and one that is revoked or expires ends its sessions. One that was left is noted in the spool until its time is
over, so that a copy of its cookie is worth nothing. A form carries a token that is made of that word.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import os
import secrets
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Final
from urllib.parse import urlsplit

from fastapi import Request, Response

from diagnose.api.auth import Gate, refuse_foreign
from diagnose.api.problems import ProblemError, retry_after
from diagnose.dataclass import dataclass
from diagnose.service.durable import sync
from diagnose.service.keys import Caller
from diagnose.service.spool import SpoolError

_HOURS: Final = 12
_SKEW: Final = 3_600  # seconds by which clocks of processes may differ
_BYTES: Final = 32
_PLAIN, _SECURE = "diagnose_session", "__Host-diagnose_session"
NO_SESSION: Final = "local"
_SITES: Final = ("none", "same-origin", "same-site", "cross-site")  # a link elsewhere may lead here: nothing is changed


class LoginNeeded(Exception):
    """Nobody is known, and somebody has to be."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """Whoever looks. `word` is the session's random word; `session` says whether there is one that can be ended."""

    caller: Caller
    word: str
    session: bool


class Sessions:
    """Makes and reads cookies. `folder` is the spool's."""

    def __init__(self, folder: str, clock: Callable[[], float] = time.time) -> None:
        self._folder, self._clock = folder, clock
        self._secret = b""

    def cookie(self, key_id: str) -> str:
        """A new session of a key."""
        said = f"{key_id}.{int(self._clock() + _HOURS * 3_600)}.{secrets.token_urlsafe(16)}"
        return f"{said}.{self._mac('session', said)}"

    def read(self, cookie: str) -> tuple[str, str] | None:
        """The id of the key and the session's word; None where the cookie is none of ours or too old."""
        said, _, mac = cookie[:500].rpartition(".")
        if not hmac.compare_digest(mac.encode(), self._mac("session", said).encode()):
            return None
        key_id, until, word = said.split(".")
        if self._clock() >= int(until) or os.path.exists(self._left(word)):
            return None
        return key_id, word

    def leave(self, word: str) -> None:
        """Ends a session, for all processes."""
        with self._told():
            folder = os.path.dirname(self._left(word))
            os.makedirs(folder, mode=0o700, exist_ok=True)
            os.close(os.open(self._left(word), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            sync(folder)
            for name in os.listdir(folder):
                path = os.path.join(folder, name)
                with contextlib.suppress(FileNotFoundError):
                    if time.time() - os.stat(path).st_mtime > _HOURS * 3_600 + _SKEW:
                        os.unlink(path)

    def _left(self, word: str) -> str:
        return os.path.join(self._folder, "sessions-left", sha256(word.encode()).hexdigest()[:_BYTES])

    def token(self, word: str) -> str:
        """What a form of this session must carry."""
        return self._mac("form", word)

    def _mac(self, what: str, said: str) -> str:
        made = hmac.digest(self._key(), f"{what}\0{said}".encode("utf-8", "backslashreplace"), sha256)
        return base64.urlsafe_b64encode(made).decode().rstrip("=")

    def _key(self) -> bytes:
        if not self._secret:
            with self._told():
                self._secret = _kept(os.path.join(self._folder, "session.key"))
        return self._secret

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SpoolError(
                f"the spool {self._folder} cannot be used: {error.strerror}; mend its permissions, or make room"
            ) from error


def _kept(path: str) -> bytes:
    """The secret in a file, which is made where there is none; who comes second takes the first one's."""
    with contextlib.suppress(FileExistsError):
        if not os.path.exists(path):
            part = f"{path}-{secrets.token_hex(8)}"
            descriptor = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, secrets.token_bytes(_BYTES))
                os.fsync(descriptor)
                os.link(part, path)
            finally:
                os.close(descriptor)
                os.unlink(part)
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as file:
        data = file.read(_BYTES + 1)
    if len(data) != _BYTES:
        raise SpoolError(f"{path} is damaged: delete it; whoever is logged in has to log in again")
    return data


def sessions_of(request: Request) -> Sessions:
    """The sessions of the application."""
    made: Sessions = request.app.state.sessions
    return made


def viewer(request: Request) -> Viewer:
    """Who asks for a page. Raises `LoginNeeded`, or a problem beyond the rate."""
    gate: Gate = request.app.state.gate
    found = _by_cookie(request, gate)
    if found is None:
        caller = gate.caller(None)
        if caller is None:
            raise LoginNeeded
        refuse_foreign(request, _SITES)
        found = Viewer(caller, NO_SESSION, session=False)
    limited(request, found.caller.key)
    request.scope["caller"] = found.caller
    return found


def limited(request: Request, who: str) -> None:
    """Raises a problem where somebody asks too often."""
    running = request.app.state.running
    wait = running.rates.wait(who)
    if wait:
        raise ProblemError(429, f"more than {running.config.bounds.rate} requests a minute", retry_after(wait))


def _by_cookie(request: Request, gate: Gate) -> Viewer | None:
    cookie = request.cookies.get(_SECURE) or request.cookies.get(_PLAIN)
    known = sessions_of(request).read(cookie) if cookie else None
    caller = gate.session(known[0]) if known is not None else None
    return Viewer(caller, known[1], session=True) if caller is not None and known is not None else None


def checked_form(request: Request, looking: Viewer, token: str) -> None:
    """Raises a problem for a form that is none of this session's own."""
    own_site(request)
    if not hmac.compare_digest(token.encode(), sessions_of(request).token(looking.word).encode()):
        raise ProblemError(403, "this form is not of your session any more: go back, reload the page, send it again")


def own_site(request: Request) -> None:
    """Raises a problem where a form of another site was sent here."""
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site", "same-origin")
    try:
        foreign = origin is not None and urlsplit(origin).netloc != request.headers.get("host")
    except ValueError:  # no address at all
        foreign = True
    if foreign or site not in ("same-origin", "none"):
        raise ProblemError(403, "this form comes from another site")


def set_cookie(request: Request, response: Response, value: str) -> None:
    """Begins a session."""
    secure = _https(request)
    response.set_cookie(
        _SECURE if secure else _PLAIN,
        value,
        max_age=_HOURS * 3_600,
        path="/",
        secure=secure,
        httponly=True,
        samesite="strict",
    )


def drop_cookies(response: Response) -> None:
    """Ends a session."""
    response.delete_cookie(_PLAIN, path="/", httponly=True, samesite="strict")
    response.delete_cookie(_SECURE, path="/", secure=True, httponly=True, samesite="strict")


def _https(request: Request) -> bool:
    # Whoever makes this header up has a cookie that is sent by https only, which harms nobody else.
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))
