"""The service as its clients see it: jobs are handed in, reports fetched, over REST.

In: an address, a file with an API key, a job. Out: the report as JSON. What may be sent again is sent again while the
service is away or busy, as long as the time given lasts. The key is read anew for each request, so that it can be
rotated, and stands in no message; no redirect is followed, and of an answer no more is read than a report can be.
Needs the extra `service`.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self
from urllib.parse import quote, urlsplit

from diagnose.dataclass import dataclass
from diagnose.errors import DiagnoseError, UsageError, installing

if TYPE_CHECKING:
    import httpx

_LARGEST: Final = 64 * 1024 * 1024
_KEY: Final = 4096
_AGAIN: Final = frozenset({408, 429, 502, 503, 504})
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 15.0  # seconds
_WAIT_AT_ONCE: Final = 30  # seconds the service is asked to keep a request
_BLOCK: Final = 256 * 1024
_TIMEOUT: Final = 20.0
_ASKED_AGAIN: Final = 2.0
_SLOWEST: Final = 64 * 1024  # bytes a second that a service takes at least of what is sent, beyond the patience
_LOOK: Final = 0.5

Json = Mapping[str, Any]


class ServiceError(DiagnoseError):
    """The service cannot be reached, or has refused; says what to do."""

    def __init__(self, message: str, status: int | None = None) -> None:
        self.status = status
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Served:
    """What became of a job: the resource's id, and the report once there is one."""

    id: str
    report: Json | None = None
    error: str = ""


class Client:
    """A connection to a service; a context manager."""

    def __init__(
        self,
        address: str,
        *,
        key_file: str | None = None,
        ca_file: str | None = None,
        patience: float = 120.0,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        try:
            import httpx
        except ImportError as error:
            raise UsageError(f"a service needs: {installing('service')}") from error
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise UsageError(f"{address!r} is no address of a service; say https://host[:port], keys go into a file")
        self._errors = (httpx.TransportError, httpx.DecodingError)
        self._key_file = key_file
        self._until = time.monotonic() + patience
        self._sleep = sleep
        self._sockets: list[socket.socket] = []
        self._http = httpx.Client(
            base_url=address.rstrip("/") + "/v1/",
            timeout=_TIMEOUT,
            follow_redirects=False,
            transport=transport,
            verify=ca_file or True,
            headers={"Accept": "application/json", "User-Agent": "diagnose"},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()
        for each in self._sockets:
            each.close()

    def upload(self, name: str, file: BinaryIO, *, project: str = "") -> str:
        """Puts a log on the server, compressed on the way; returns the id by which a submission names it."""

        def body() -> Iterator[bytes]:
            file.seek(0)
            return _compressed(file)

        more = file.seek(0, os.SEEK_END) / _SLOWEST

        named = {"name": name, **({"project": project} if project else {})}
        return _word(self._call("POST", "uploads", body=body, params=named, more=more)[0], "id")

    def submit(self, job: Json) -> Served:
        """Hands a job in; the same job again is the same resource."""
        return _served(self._call("POST", "diagnoses", json=job)[0])

    def add(self, id: str, inputs: Json, *, key: str) -> Served:
        """Adds inputs that came later; `key` makes it safe to repeat."""
        path = f"diagnoses/{quote(id, safe='')}/inputs"
        return _served(self._call("POST", path, json=inputs, headers={"Idempotency-Key": key})[0])

    def find(self, cluster: str, job_id: str, attempt: int | None = None) -> Served | None:
        """The resource of a job that was handed in: of an attempt, or of the last one."""
        query = {"cluster": cluster, "job_id": job_id, "limit": "50"}
        items = _list(self._call("GET", "diagnoses", params=query)[0].get("items"))
        known = [one for one in items if one.get("job_id") == job_id and one.get("cluster") == cluster]
        if attempt is not None:
            known = [one for one in known if one.get("attempt") == attempt]
        return _served(max(known, key=_attempt)) if known else None

    def report(self, id: str) -> Served:
        """Waits for the report, as long as patience lasts; raises `ServiceError` where it does not come.

        One that names a failure is final enough: whoever is asked after the rules changes no advice that was given.
        """
        path = f"diagnoses/{quote(id, safe='')}"
        while True:
            rest = self._until - time.monotonic()
            wait = max(1, min(_WAIT_AT_ONCE, int(rest)))
            answer, state = self._call("GET", path, headers={"Prefer": f"wait={wait}"}, timeout=wait + _TIMEOUT)
            if answer.get("schema") == "diagnose.report/v1":
                late = time.monotonic() + _ASKED_AGAIN >= self._until
                if state != "rules_done" or answer.get("status") == "failed" or late:
                    return Served(id, answer)
                self._sleep(_ASKED_AGAIN)
                continue
            if answer.get("state") == "error":
                return Served(id, None, _word(answer, "error") or "the service could not diagnose it")
            if time.monotonic() >= self._until:
                raise ServiceError(f"the service has no report yet ({_word(answer, 'state') or 'no state'}); ask again")
            self._sleep(_FIRST_WAIT)

    def shown(self, id: str, media: str) -> str:
        """The report as a person reads it; `media` is text/plain or text/markdown."""
        raw, _ = self._raw("GET", f"diagnoses/{quote(id, safe='')}", headers={"Accept": media})
        return raw.decode("utf-8", "replace")

    def _call(self, method: str, path: str, **how: Any) -> tuple[Json, str]:
        """One call; returns the object that the service answers with, and its state."""
        raw, state = self._raw(method, path, **how)
        return _object(raw, path), state

    def _raw(
        self,
        method: str,
        path: str,
        *,
        json: Json | None = None,
        body: Callable[[], Iterator[bytes]] | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        timeout: float = _TIMEOUT,
        more: float = 0.0,
    ) -> tuple[bytes, str]:
        """One call, again and again while the service is away; returns what it answers with, and its state.

        Each time it ends with the patience and `timeout` and `more` seconds, whatever the service does.
        """
        wait = _FIRST_WAIT
        while True:
            problem, retry_after, status = "", None, None
            until = max(self._until, time.monotonic()) + timeout + more
            try:
                with (
                    self._in_time(until) as trace,
                    self._http.stream(
                        method,
                        path,
                        json=json,
                        content=body() if body is not None else None,
                        headers={**self._authorization(), **(headers or {})},
                        params=params,
                        timeout=timeout,
                        extensions={"trace": trace},
                    ) as answer,
                ):
                    status = answer.status_code
                    raw = _bounded(answer, until)
                    if answer.is_success:
                        return raw, answer.headers.get("diagnosis-state", "")
                    problem = _problem(raw, status)
                    retry_after = _seconds(answer.headers.get("retry-after"))
                    if status not in _AGAIN:
                        raise ServiceError(f"the service refused {method} {path}: {problem}", status)
            except self._errors as error:
                problem = f"{type(error).__name__}: {error}".rstrip(": ")
            pause = max(wait, retry_after or 0.0)
            if time.monotonic() + pause > self._until:
                raise ServiceError(f"the service at {self._http.base_url} cannot be used: {problem}", status)
            self._sleep(pause)
            wait = min(2 * wait, _LONGEST_WAIT)

    @contextlib.contextmanager
    def _in_time(self, until: float) -> Iterator[Callable[[str, Mapping[str, Any]], None]]:
        """Ends an exchange when time is up, from outside: timeouts of the library count from byte to byte."""
        over, late = threading.Event(), threading.Event()

        def trace(event: str, info: Mapping[str, Any]) -> None:
            if event.endswith(".connect_tcp.complete"):
                found = info["return_value"].get_extra_info("socket")
                self._sockets.append(found.dup())  # the other one is taken apart where TLS begins

        def watch() -> None:
            while not over.wait(_LOOK):
                if time.monotonic() > until:
                    late.set()
                    for each in list(self._sockets):
                        with contextlib.suppress(OSError):
                            each.shutdown(socket.SHUT_RDWR)

        threading.Thread(target=watch, name="in-time", daemon=True).start()
        try:
            yield trace
        except self._errors:
            if late.is_set():
                raise ServiceError("the service's answer takes too long") from None
            raise
        finally:
            over.set()

    def _authorization(self) -> dict[str, str]:
        if self._key_file is None:
            return {}
        return {"Authorization": f"Bearer {read_key(self._key_file)}"}


def read_key(path: str) -> str:
    """The key in a file; raises `UsageError` where it cannot be one, and never shows it."""
    try:
        with open(path, encoding="ascii") as file:
            key = file.read(_KEY).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UsageError(f"the API key's file {path} cannot be read: {reason}") from None
    if not key or not key.isprintable() or " " in key:
        raise UsageError(f"the API key's file {path} must hold one key and nothing else")
    return key


def _compressed(file: BinaryIO) -> Iterator[bytes]:
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)  # 31: with gzip's head
    while block := file.read(_BLOCK):
        if packed := packer.compress(block):
            yield packed
    yield packer.flush()


def _bounded(answer: httpx.Response, until: float) -> bytes:
    raw = bytearray()
    for block in answer.iter_bytes():
        raw += block
        if time.monotonic() > until:
            raise ServiceError("the service's answer takes too long")
        if len(raw) > _LARGEST:
            raise ServiceError("the service's answer is too large")
    return bytes(raw)


def _object(raw: bytes, path: str) -> Json:
    try:
        given = json.loads(raw) if raw else {}
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise ServiceError(f"the answer to {path} is no JSON object; is it the service that listens there?")
    return given


def _problem(raw: bytes, status: int) -> str:
    """What a problem of RFC 9457 says, in one line."""
    from diagnose.integrations.summary import cut

    with contextlib.suppress(ValueError, RecursionError):
        given = json.loads(raw)
        if isinstance(given, dict):
            told = " - ".join(str(given[key]) for key in ("title", "detail") if isinstance(given.get(key), str))
            return cut(f"{status} {told}", 300)
    return str(status)


def _seconds(text: str | None) -> float | None:
    return float(text) if text and text.isascii() and text.isdigit() and len(text) < 6 else None


def _served(resource: Json) -> Served:
    named = _word(resource, "id")
    if not named:
        raise ServiceError("the service's answer names no diagnosis; is it the service that listens there?")
    return Served(named, None, _word(resource, "error"))


def _attempt(resource: Json) -> int:
    value = resource.get("attempt")
    return value if isinstance(value, int) else 0


def _word(given: Json, key: str) -> str:
    value = given.get(key)
    return value if isinstance(value, str) else ""


def _list(value: object) -> list[Json]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def client_of(environment: Mapping[str, str], *, patience: float = 120.0) -> Client | None:
    """The service that `DIAGNOSE_SERVICE` names, with the key in `DIAGNOSE_API_KEY_FILE`; None where none is named."""
    address = environment.get("DIAGNOSE_SERVICE", "").strip()
    if not address:
        return None
    key_file = environment.get("DIAGNOSE_API_KEY_FILE", "").strip() or None
    ca_file = environment.get("DIAGNOSE_SERVICE_CA_FILE", "").strip() or None
    if ca_file is not None and not os.path.exists(ca_file):
        raise UsageError(f"DIAGNOSE_SERVICE_CA_FILE: {ca_file} does not exist")
    return Client(address, key_file=key_file, ca_file=ca_file, patience=patience)
