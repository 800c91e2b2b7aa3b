"""An API server of Kubernetes as its clients see it: lists in pages, watches in chunks, logs, patches, events, refusals.

It speaks the true wire format: HTTP/1.1 with chunked watch streams of one JSON object a line, `continue` tokens that
expire, bookmarks, ERROR events and 410 Gone, `Status` objects for every refusal. What a test wants to happen it does by
methods; whatever a client asks for without the right to is refused and noted in `refused`.
"""

from __future__ import annotations

import contextlib
import copy
import json
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "first-token"

Json = dict[str, Any]

# What deploy/kubernetes/watcher.yaml allows.
ALLOWED = {
    ("pods", "list"), ("pods", "watch"), ("pods/log", "get"), ("pods/status", "patch"), ("events", "list"),
    ("events", "create"), ("nodes", "get"),
}  # fmt: skip


@dataclass
class KubeServer:
    """The state of a cluster, and the ways to change it."""

    token: str = TOKEN
    page: int = 3  # objects in a page, however many a client wants
    allowed: set[tuple[str, str]] = field(default_factory=lambda: set(ALLOWED))
    version: int = 100
    oldest: int = 0  # versions before it are compacted
    pods: dict[tuple[str, str], Json] = field(default_factory=dict)
    nodes: dict[str, Json] = field(default_factory=dict)
    events: list[Json] = field(default_factory=list)
    logs: dict[tuple[str, str, bool], bytes] = field(default_factory=dict)
    history: list[tuple[int, str, Json]] = field(default_factory=list)
    watchers: list[queue.Queue[Json | None]] = field(default_factory=list)
    lists: int = 0
    requests: list[tuple[str, str]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    fail: list[int] = field(default_factory=list)  # the next requests fail with these codes
    expire_continue: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)
    address: str = ""

    def put(self, pod: Json, log: bytes | None = None, previous: bytes | None = None) -> None:
        """Creates a pod, or changes it."""
        with self.lock:
            self.version += 1
            key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
            kind = "MODIFIED" if key in self.pods else "ADDED"
            pod = copy.deepcopy(pod)
            pod["metadata"]["resourceVersion"] = str(self.version)
            self.pods[key] = pod
            for text, before in ((log, False), (previous, True)):
                if text is not None:
                    self.logs[(*key, before)] = text
            self._tell(kind, pod)

    def delete(self, namespace: str, name: str) -> None:
        """Deletes a pod and its logs."""
        with self.lock:
            self.version += 1
            pod = self.pods.pop((namespace, name))
            pod["metadata"]["resourceVersion"] = str(self.version)
            for before in (False, True):
                self.logs.pop((namespace, name, before), None)
            self._tell("DELETED", pod)

    def bookmark(self) -> None:
        """Sends watchers a bookmark."""
        with self.lock:
            self.version += 1
            told = {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": str(self.version)}}
            for watcher in self.watchers:
                watcher.put({"type": "BOOKMARK", "object": told})

    def compact(self, *, in_stream: bool = False) -> None:
        """Forgets the past and ends all watches, as when the server has no memory of what they ask for."""
        with self.lock:
            self.version += 1
            self.oldest = self.version
            for watcher in self.watchers:
                if in_stream:
                    gone = status(410, "Expired", "too old resource version")
                    watcher.put({"type": "ERROR", "object": gone})
                watcher.put(None)

    def end_watches(self) -> None:
        """Ends all watches, as a server does every few minutes."""
        with self.lock:
            for watcher in self.watchers:
                watcher.put(None)

    def _tell(self, kind: str, pod: Json) -> None:
        self.history.append((self.version, kind, copy.deepcopy(pod)))
        for watcher in self.watchers:
            watcher.put({"type": kind, "object": copy.deepcopy(pod)})


def status(code: int, reason: str, message: str) -> Json:
    return {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": reason, "code": code,
    }  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cluster: KubeServer

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_PATCH(self) -> None:
        self._answer("PATCH")

    def _json(self, code: int, given: Json) -> None:
        raw = json.dumps(given).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _refuse(self, code: int, reason: str, message: str) -> None:
        self._json(code, status(code, reason, message))

    def _answer(self, method: str) -> None:
        cluster = self.cluster
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        with cluster.lock:
            cluster.requests.append((method, self.path))
            if cluster.fail:
                return self._refuse(cluster.fail.pop(0), "InternalError", "etcdserver: leader changed")
        if self.headers.get("Authorization") != f"Bearer {cluster.token}":
            return self._refuse(401, "Unauthorized", "Unauthorized")
        words = parts.path.removeprefix("/api/v1/").split("/")
        namespace = ""
        if words[0] == "namespaces" and len(words) > 2:
            namespace, words = words[1], words[2:]
        resource = words[0] if len(words) < 3 else f"{words[0]}/{words[2]}"
        single = len(words) > 1
        verb = {"POST": "create", "PATCH": "patch"}.get(method) or (
            "watch" if query.get("watch") in ("1", "true") else "get" if single else "list"
        )
        if (resource, verb) not in cluster.allowed:
            cluster.refused.append(f"{verb} {resource}")
            return self._refuse(
                403, "Forbidden",
                f'{words[0]} is forbidden: User "system:serviceaccount:diagnose:diagnose-watcher" cannot {verb} resource',
            )  # fmt: skip
        if resource == "pods":
            return self._watch(namespace, query) if verb == "watch" else self._list(namespace, query)
        if resource == "pods/log":
            return self._log(namespace, words[1], query)
        if resource == "pods/status":
            return self._patch(namespace, words[1], body)
        if resource == "events":
            return self._create_event(namespace, body) if method == "POST" else self._list_events(query)
        node = cluster.nodes.get(words[1])
        return self._json(200, node) if node else self._refuse(404, "NotFound", f'nodes "{words[1]}" not found')

    def _list(self, namespace: str, query: dict[str, str]) -> None:
        cluster = self.cluster
        with cluster.lock:
            cluster.lists += not query.get("continue")
            pods = [pod for (where, _), pod in sorted(cluster.pods.items()) if namespace in ("", where)]
            version, begin = str(cluster.version), 0
            if given := query.get("continue"):
                if cluster.expire_continue:
                    cluster.expire_continue -= 1
                    return self._refuse(410, "Expired", "The provided continue parameter is too old")
                version, _, at = given.partition(":")
                begin = int(at)
            size = min(cluster.page, int(query.get("limit") or 500))
            meta: Json = {"resourceVersion": version}
            if begin + size < len(pods):
                meta |= {"continue": f"{version}:{begin + size}", "remainingItemCount": len(pods) - begin - size}
            # Objects within a list have neither kind nor apiVersion.
            page = pods[begin : begin + size]
            return self._json(200, {"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": page})

    def _watch(self, namespace: str, query: dict[str, str]) -> None:
        cluster = self.cluster
        mine: queue.Queue[Json | None] = queue.Queue()
        since = int(query.get("resourceVersion") or 0)
        with cluster.lock:
            if since < cluster.oldest:
                return self._refuse(410, "Expired", f"too old resource version: {since} ({cluster.oldest})")
            for version, kind, pod in cluster.history:
                if version > since:
                    mine.put({"type": kind, "object": pod})
            cluster.watchers.append(mine)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with contextlib.suppress(OSError):
            while (event := mine.get()) is not None:
                where = event["object"]["metadata"].get("namespace")
                if namespace and where and where != namespace:
                    continue
                line = json.dumps(event).encode() + b"\n"
                half = len(line) // 2  # an event may come in pieces
                for piece in (line[:half], line[half:]):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()
        with cluster.lock:
            cluster.watchers.remove(mine)
        return None

    def _log(self, namespace: str, name: str, query: dict[str, str]) -> None:
        cluster = self.cluster
        previous = query.get("previous") == "true"
        with cluster.lock:
            text = cluster.logs.get((namespace, name, previous))
            known = (namespace, name) in cluster.pods
        if not known:
            return self._refuse(404, "NotFound", f'pods "{name}" not found')
        if text is None:
            kind = "previous terminated container" if previous else "container"
            message = f'{kind} "{query.get("container")}" in pod "{name}" not found'
            return self._refuse(400, "BadRequest", message)
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for at in range(0, len(text), 1000):
            piece = text[at : at + 1000]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")
        return None

    def _patch(self, namespace: str, name: str, body: bytes) -> None:
        cluster = self.cluster
        if self.headers.get("Content-Type") != "application/merge-patch+json":
            return self._refuse(415, "UnsupportedMediaType", "the body of the request was in an unknown format")
        with cluster.lock:
            pod = cluster.pods.get((namespace, name))
            if pod is None:
                return self._refuse(404, "NotFound", f'pods "{name}" not found')
            changed = copy.deepcopy(pod)
            changed["metadata"].setdefault("annotations", {}).update(json.loads(body)["metadata"]["annotations"])
            cluster.put(changed)
            return self._json(200, cluster.pods[namespace, name])

    def _create_event(self, namespace: str, body: bytes) -> None:
        cluster, event = self.cluster, json.loads(body)
        problems = [
            name
            for name, wrong in (
                ("metadata.namespace", event["metadata"].get("namespace") != namespace),
                ("involvedObject.namespace", event["involvedObject"].get("namespace") != namespace),
                ("message", len(event["message"].encode()) > 1024),
                ("reason", not 0 < len(event["reason"]) <= 128 or " " in event["reason"]),
                ("type", event["type"] not in ("Normal", "Warning")),
                ("reportingInstance", len(event.get("reportingInstance", "")) > 128),
            )
            if wrong
        ]
        if problems:
            return self._refuse(422, "Invalid", f"Event is invalid: {', '.join(problems)}")
        with cluster.lock:
            event["metadata"] |= {"name": f"diagnose-{len(cluster.events)}", "uid": f"event-{len(cluster.events)}"}
            cluster.events.append(event)
        return self._json(201, event)

    def _list_events(self, query: dict[str, str]) -> None:
        wanted = query.get("fieldSelector", "").removeprefix("involvedObject.name=")
        items = [event for event in self.cluster.events if event["involvedObject"]["name"] == wanted]
        return self._json(
            200, {"kind": "EventList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}
        )


@contextlib.contextmanager
def kube_server() -> Iterator[KubeServer]:
    """A server on a port of its own."""
    cluster = KubeServer()
    handler = type("Handler", (_Handler,), {"cluster": cluster})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.block_on_close = False
    cluster.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield cluster
    finally:
        cluster.end_watches()
        server.shutdown()
        server.server_close()
        thread.join()
