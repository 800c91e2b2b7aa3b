"""Requests of `diagnose ship` to a service: nothing but the standard library, so that any node can send.

In: method, path, query, body. Out: status and the JSON that came. Raises `Away` where asking again may help. No
redirect is followed, the key is read anew for each request and stands in no message, and answers are bounded.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from diagnose.dataclass import dataclass
from diagnose.errors import DiagnoseError, UsageError

_TIMEOUT: Final = 20.0
_TOTAL: Final = 60.0
_LARGEST: Final = 1024 * 1024
_KEY: Final = 4096
_AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504, 507})


class Away(DiagnoseError):
    """The service cannot be reached, or has no room; `after` is when it wants to be asked again, in seconds."""

    def __init__(self, message: str, after: float = 0.0) -> None:
        super().__init__(message)
        self.after = after


@dataclass(frozen=True, slots=True)
class Answer:
    """What came."""

    status: int
    said: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """The last word of a problem's type, such as `offset-gap`."""
        return str(self.said.get("type", "")).rpartition(":")[2]

    @property
    def detail(self) -> str:
        """What a problem says, in one line."""
        text = str(self.said.get("detail") or self.said.get("title") or f"status {self.status}")
        return "".join(char if char.isprintable() else " " for char in text)[:300]

    def number(self, name: str) -> int:
        """A whole number of the answer, 0 where it has none."""
        value = self.said.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


class Sender:
    """A connection to a service, made when it is needed."""

    def __init__(
        self, address: str, *, key: str | None = None, key_file: str | None = None, ca_file: str | None = None
    ) -> None:
        parts = urlsplit(address)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query or port == -1:
            raise UsageError(f"{address!r} is no address of a service; say https://host[:port], keys go into a file")
        self.address = f"{parts.scheme}://{parts.hostname}" + (f":{port}" if port else "")
        self._host, self._port = parts.hostname, port
        self._base = parts.path.rstrip("/") + "/v1"
        self._key, self._key_file = key, key_file
        self._context: ssl.SSLContext | None = None
        if parts.scheme == "https":
            try:
                self._context = ssl.create_default_context(cafile=ca_file)
            except (OSError, ssl.SSLError) as error:
                raise UsageError(f"the certificates in {ca_file} cannot be used ({error}); give a PEM file") from error
        self._connection: http.client.HTTPConnection | None = None
        self._authorization()  # what is wrong with the key is told at once

    def send(
        self,
        method: str,
        path: tuple[str, ...],
        query: Mapping[str, str | int] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request. `path` are the parts behind `/v1`, slashes in the last of them stay."""
        parts = [quote(part, safe="") for part in path[:-1]] + [quote(path[-1], safe="/")]
        target = "/".join([self._base, *parts]) + (f"?{urlencode(query)}" if query else "")
        sent = {"Accept": "application/json", "User-Agent": "diagnose", **self._authorization(), **(headers or {})}
        kept = self._connection is not None
        try:
            return self._once(method, target, body, sent)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if not kept:
                raise Away(f"{self.address} cannot be reached: {_reason(error)}") from error
        try:  # it may only have ended a connection that was idle
            return self._once(method, target, body, sent)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Away(f"{self.address} cannot be reached: {_reason(error)}") from error

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _once(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        if self._connection is None:
            self._connection = (
                _Tls(self._host, self._port, timeout=_TIMEOUT, context=self._context)
                if self._context is not None
                else http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT)
            )
        with _in_time(self._connection):
            self._connection.request(method, target, body=body, headers=dict(headers))
            response = self._connection.getresponse()
            raw = response.read(_LARGEST + 1)
        if response.length and len(raw) <= _LARGEST:
            raise http.client.IncompleteRead(raw)
        if len(raw) > _LARGEST or response.will_close:
            self.close()
        answer = Answer(response.status, _object(raw))
        if response.status == http.client.OK and not answer.said:
            self.close()
            raise Away(f"{self.address} answers, but not as the service does; is it the right address?")
        if answer.status in _AGAIN:
            after = response.headers.get("Retry-After", "")
            seconds = float(after) if after.isascii() and after.isdigit() and len(after) < 6 else 0.0
            raise Away(f"{self.address}: {answer.detail}", seconds)
        return answer

    def _authorization(self) -> dict[str, str]:
        key = self._key
        if self._key_file is not None:
            try:
                with open(self._key_file, encoding="ascii") as file:
                    key = file.read(_KEY).strip()
            except (OSError, UnicodeDecodeError) as error:
                why = error.strerror if isinstance(error, OSError) else "it is no text"
                raise UsageError(f"the API key's file {self._key_file} cannot be read: {why}") from None
        if key is None:
            return {}
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise UsageError("the API key must be one word, as `diagnose keys add` has shown it")
        return {"Authorization": f"Bearer {key}"}


class _Tls(http.client.HTTPSConnection):
    """One whose socket is known while both ends still shake hands, so that this can be ended too."""

    def __init__(self, host: str, port: int | None, *, timeout: float, context: ssl.SSLContext) -> None:
        super().__init__(host, port, timeout=timeout, context=context)
        self._secure = context

    def connect(self) -> None:
        """Connect."""
        http.client.HTTPConnection.connect(self)
        made = self._secure.wrap_socket(self.sock, server_hostname=self.host, do_handshake_on_connect=False)
        self.sock = made
        made.do_handshake()


@contextlib.contextmanager
def _in_time(connection: http.client.HTTPConnection) -> Iterator[None]:
    """Ends a request whose answer does not end: the timeout of the connection is one for each byte."""
    late, over = threading.Event(), threading.Event()

    def cut() -> None:
        wait = _TOTAL
        while not over.wait(wait):
            late.set()
            wait = 1.0  # it may only be about to connect
            with contextlib.suppress(OSError, AttributeError):  # there may be no socket
                connection.sock.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=cut, daemon=True).start()
    try:
        yield
    finally:
        over.set()
        if late.is_set():
            raise TimeoutError("its answer takes too long")


def sender_of(environment: Mapping[str, str], address: str | None = None, key_file: str | None = None) -> Sender:
    """What sends to the service that is named here or by `DIAGNOSE_SERVICE`."""
    where = address or environment.get("DIAGNOSE_SERVICE", "").strip()
    if not where:
        raise UsageError("no service: say --service https://host[:port], or set DIAGNOSE_SERVICE")
    file = key_file or environment.get("DIAGNOSE_API_KEY_FILE", "").strip() or None
    key = environment.get("DIAGNOSE_API_KEY", "").strip() or None
    ca_file = environment.get("DIAGNOSE_SERVICE_CA_FILE", "").strip() or None
    if ca_file is not None and not os.path.exists(ca_file):
        raise UsageError(f"DIAGNOSE_SERVICE_CA_FILE: {ca_file} does not exist")
    return Sender(where, key=key if file is None else None, key_file=file, ca_file=ca_file)


def _object(raw: bytes) -> Mapping[str, Any]:
    try:
        given = json.loads(raw) if raw else {}
    except (ValueError, RecursionError):
        return {}
    return given if isinstance(given, dict) else {}


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
