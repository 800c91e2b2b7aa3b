"""The API server as this watcher needs it: list, watch, logs, and small writes.

In: where the server is, and a token's file. Out: objects as JSON. Lists come in pages; a watch goes on from where the
list ended and says when it has to begin anew (410 Gone). The token is read anew for each request, because it is
replaced every hour. Every answer is bounded.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from diagnose.dataclass import dataclass
from diagnose.errors import DiagnoseError, UsageError, installing
from diagnose.integrations.summary import cut

if TYPE_CHECKING:
    import httpx

Json = Mapping[str, Any]

_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_PAGE: Final = 500
_LARGEST_PAGE: Final = 256 * 1024 * 1024
_LARGEST_EVENT: Final = 16 * 1024 * 1024
_LARGEST_LOG: Final = 16 * 1024**3
_CONNECT, _READ = 10.0, 60.0
_WATCH_SECONDS: Final = 300
_TRIES: Final = 5
_AGAIN: Final = frozenset({429, 500, 502, 503, 504})


class ApiError(DiagnoseError):
    """The API server refuses or cannot be reached; `status` is None for the latter."""

    def __init__(self, message: str, status: int | None = None) -> None:
        self.status = status
        super().__init__(message)


class Gone(ApiError):
    """What was asked for lies too far back: list again."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the API server is, and who we are."""

    server: str
    token_file: str | None = None
    ca_file: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """What a watch tells: an object was ADDED, MODIFIED or DELETED; a BOOKMARK only moves `version` on."""

    type: str
    object: Json
    version: str


def in_cluster(environment: Mapping[str, str], account: str = _ACCOUNT) -> Place:
    """The place of a pod's own API server; raises `UsageError` outside of a cluster."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise UsageError("this is no pod of a cluster; say --server, such as http://127.0.0.1:8001 for kubectl proxy")
    host = f"[{host}]" if ":" in host else host
    return Place(f"https://{host}:{port}", os.path.join(account, "token"), os.path.join(account, "ca.crt"))


class Api:
    """A connection to the API server; a context manager."""

    def __init__(self, place: Place, *, sleep: Callable[[float], None] = time.sleep) -> None:
        try:
            import httpx
        except ImportError as error:
            raise UsageError(f"Kubernetes needs: {installing('service')}") from error
        if not place.server.startswith(("https://", "http://")):
            raise UsageError(f"--server {place.server!r}: say https://host:port")
        if place.token_file is not None and place.server.startswith("http://") and not _is_local(place.server):
            raise UsageError("a token goes over https only; say an https:// --server")
        verify: Any = True
        if place.ca_file is not None:
            import ssl

            try:
                verify = ssl.create_default_context(cafile=place.ca_file)
            except (OSError, ssl.SSLError) as error:
                raise UsageError(f"--ca-file {place.ca_file}: {error}") from error
        self._place = place
        self._sleep = sleep
        self._errors = (httpx.TransportError,)
        self._timeout = httpx.Timeout(_READ, connect=_CONNECT)
        self._watching = httpx.Timeout(_WATCH_SECONDS + _READ, connect=_CONNECT)
        self._http = httpx.Client(
            base_url=place.server.rstrip("/"), verify=verify, timeout=self._timeout, follow_redirects=False
        )

    def __enter__(self) -> Api:  # noqa: PYI034 - not meant to be derived from
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str) -> Json:
        """One object."""
        return self._json("GET", path)

    def items(self, path: str, params: Mapping[str, str] | None = None) -> tuple[list[Json], str]:
        """All objects of a list, page by page, and the version from which a watch goes on."""
        while True:
            found: list[Json] = []
            asked = {**(params or {}), "limit": str(_PAGE)}
            try:
                while True:
                    page = self._json("GET", path, params=asked)
                    found.extend(one for one in page.get("items") or () if isinstance(one, dict))
                    meta = page.get("metadata") or {}
                    if not meta.get("continue"):
                        return found, str(meta.get("resourceVersion") or "")
                    asked["continue"] = str(meta["continue"])
            except Gone:  # the list has grown too old between two pages
                if "continue" not in asked:
                    raise

    def watch(self, path: str, version: str, params: Mapping[str, str] | None = None) -> Iterator[Change]:
        """What changes from a version on, until the server ends the watch; raises `Gone` where that is too old."""
        asked = {
            **(params or {}),
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(random.randrange(_WATCH_SECONDS // 2, _WATCH_SECONDS)),  # noqa: S311 - not all at once
        }
        try:
            with self._http.stream(
                "GET", path, params=asked, headers=self._headers(), timeout=self._watching
            ) as answer:
                if answer.status_code != 200:
                    raise _refused("GET", path, answer.status_code, _bounded(answer, _LARGEST_EVENT))
                for line in _lines(answer):
                    yield _change(line)
        except self._errors as error:
            raise ApiError(f"watching {path}: {type(error).__name__}: {cut(str(error), 200)}") from error

    def log(self, namespace: str, pod: str, container: str, *, previous: bool = False) -> Iterator[bytes]:
        """A container's log, in blocks; raises `ApiError` where there is none."""
        params = {"container": container, **({"previous": "true"} if previous else {})}
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        total = 0
        try:
            with self._http.stream("GET", path, params=params, headers=self._headers(accept="*/*")) as answer:
                if answer.status_code != 200:
                    raise _refused("GET", path, answer.status_code, _bounded(answer, _LARGEST_EVENT))
                for block in answer.iter_bytes():
                    yield block
                    total += len(block)
                    if total > _LARGEST_LOG:
                        return
        except self._errors as error:
            raise ApiError(f"reading {path}: {type(error).__name__}: {cut(str(error), 200)}") from error

    def patch(self, path: str, change: Json) -> Json:
        """Changes an object by a merge patch."""
        return self._json("PATCH", path, body=change, content="application/merge-patch+json")

    def create(self, path: str, given: Json) -> Json:
        """Creates an object."""
        return self._json("POST", path, body=given, content="application/json")

    def _json(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Json | None = None,
        content: str | None = None,
    ) -> Json:
        """One request; what may be repeated is, when the server is busy or away."""
        wait = 0.5
        for attempt in range(_TRIES):
            try:
                with self._http.stream(
                    method,
                    path,
                    params=params,
                    content=None if body is None else json.dumps(body).encode(),
                    headers=self._headers(content=content),
                ) as answer:
                    raw = _bounded(answer, _LARGEST_PAGE)
                    if answer.is_success:
                        return _object(raw, path)
                    problem: ApiError = _refused(method, path, answer.status_code, raw)
                    after = answer.headers.get("retry-after", "")
            except self._errors as error:
                problem = ApiError(f"{method} {path}: {type(error).__name__}: {cut(str(error), 200)}")
                after = ""
            repeatable = problem.status is None or problem.status in _AGAIN
            if not repeatable or attempt == _TRIES - 1 or (method == "POST" and problem.status is None):
                raise problem
            self._sleep(max(wait, float(after) if after.isdigit() and len(after) < 4 else 0.0))
            wait *= 2
        raise AssertionError

    def _headers(self, *, accept: str = "application/json", content: str | None = None) -> dict[str, str]:
        headers = {"Accept": accept, "User-Agent": "diagnose"}
        if content is not None:
            headers["Content-Type"] = content
        if self._place.token_file is not None:
            try:
                with open(self._place.token_file, encoding="ascii") as file:
                    headers["Authorization"] = f"Bearer {file.read(65536).strip()}"
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "no text"
                raise ApiError(f"the token's file {self._place.token_file} cannot be read: {reason}") from None
        return headers


def _is_local(server: str) -> bool:
    from urllib.parse import urlsplit

    return urlsplit(server).hostname in ("127.0.0.1", "::1", "localhost")


def _bounded(answer: httpx.Response, most: int) -> bytes:
    raw = bytearray()
    for block in answer.iter_bytes():
        raw += block
        if len(raw) > most:
            raise ApiError("the API server's answer is too large")
    return bytes(raw)


def _lines(answer: httpx.Response) -> Iterator[bytes]:
    """The lines of a stream that has no end, each as soon as it is there."""
    held = bytearray()
    for block in answer.iter_bytes():
        held += block
        if len(held) > _LARGEST_EVENT and b"\n" not in held:
            raise ApiError("one event of a watch is too large")
        *whole, rest = bytes(held).split(b"\n")
        held = bytearray(rest)
        yield from (line for line in whole if line.strip())


def _change(line: bytes) -> Change:
    try:
        event = json.loads(line)
    except ValueError:
        event = None
    if not isinstance(event, dict) or not isinstance(event.get("object"), dict):
        raise ApiError("a watch sent something that is no event")
    kind, given = str(event.get("type")), event["object"]
    if kind == "ERROR":
        code = given.get("code")
        told = f"watch: {cut(str(given.get('message')), 300)}"
        raise Gone(told, 410) if code == 410 or given.get("reason") in ("Gone", "Expired") else ApiError(told, code)
    return Change(kind, given, str((given.get("metadata") or {}).get("resourceVersion") or ""))


def _object(raw: bytes, path: str) -> Json:
    try:
        given = json.loads(raw)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise ApiError(f"the answer to {path} is no object; is it an API server that listens there?")
    return given


def _refused(method: str, path: str, status: int, raw: bytes) -> ApiError:
    message = ""
    with contextlib.suppress(ValueError, AttributeError):
        message = cut(str(json.loads(raw).get("message")), 300)
    told = f"{method} {path}: {status} {message}".rstrip()
    return Gone(told, status) if status == 410 else ApiError(told, status)
