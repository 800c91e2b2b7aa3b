"""A scripted OpenAI-compatible server on 127.0.0.1: what tests of model access speak with, over real sockets."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Asked:
    """One request as it came over the wire."""

    raw: bytes
    head: str
    body: Any

    @property
    def text(self) -> str:
        """All that was said to the model."""
        return "\n".join(message["content"] for message in self.body["messages"])


@dataclass(frozen=True)
class Reply:
    """What the server says: a status line, headers and bytes, or pieces of bytes one after another."""

    body: bytes | Iterator[bytes] = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bool = False  # the body is the whole answer, head and all


def completion(content: Any, *, finish: str = "stop", usage: Any = None, **more: Any) -> Reply:
    """A completion whose text is `content` (JSON where it is no text)."""
    text = content if isinstance(content, str) or content is None else json.dumps(content)
    body = {
        "id": "c-1",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120} if usage is None else usage,
        **more,
    }
    return Reply(json.dumps(body).encode(), headers={"Content-Type": "application/json"})


def refused(status: int, message: str = "no", **headers: str) -> Reply:
    """An error as such servers send it."""
    return Reply(json.dumps({"error": {"message": message}}).encode(), status, headers)


Script = Callable[[Asked], Reply]


class ModelServer:
    """Answers each request by the script; remembers every byte that came."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[Asked] = []
        self._stop = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"

    @property
    def wire(self) -> bytes:
        """Everything that came."""
        return b"".join(asked.raw for asked in self.asked)

    def close(self) -> None:
        self._stop.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for each in self._open:
            each.close()
        self._thread.join(5)

    def _serve(self) -> None:
        workers = []
        while not self._stop.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                break
            self._open.append(connection)
            worker = threading.Thread(target=self._handle, args=(connection,), daemon=True)
            worker.start()
            workers.append(worker)
        for worker in workers:
            worker.join(5)

    def _handle(self, connection: socket.socket) -> None:
        try:
            with connection:
                asked = _request(connection)
                if asked is None:
                    return
                self.asked.append(asked)
                reply = self.script(asked)
                pieces = [reply.body] if isinstance(reply.body, bytes) else reply.body
                if not reply.raw:
                    head = {"Connection": "close", **reply.headers}
                    if isinstance(reply.body, bytes):
                        head.setdefault("Content-Length", str(len(reply.body)))
                    lines = [f"HTTP/1.1 {reply.status} Said", *(f"{name}: {value}" for name, value in head.items())]
                    connection.sendall("\r\n".join([*lines, "", ""]).encode())
                for piece in pieces:
                    if self._stop.is_set():
                        return
                    connection.sendall(piece)
        except OSError:
            return

    def wait(self, seconds: float) -> None:
        """Hold a reply back, though not beyond the end of the test."""
        self._stop.wait(seconds)


def _request(connection: socket.socket) -> Asked | None:
    raw = b""
    while b"\r\n\r\n" not in raw:
        more = connection.recv(65_536)
        if not more:
            return None
        raw += more
    head, _, body = raw.partition(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    while len(body) < length:
        more = connection.recv(65_536)
        if not more:
            return None
        raw += more
        body += more
    return Asked(raw, head.decode(), json.loads(body))


@contextmanager
def model_server(script: Script) -> Iterator[ModelServer]:
    """A server for the length of a test."""
    server = ModelServer(script)
    try:
        yield server
    finally:
        server.close()
