"""Connections that bring nothing, or a head without end, do not stay; all others do."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from diagnose.api.wire import HEAD_BYTES, Patient

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])


class Hasty(Patient):
    head_seconds, body_seconds, look = 0.2, 0.3, 0.05


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with how many bytes the body had."""
    size, more = 0, scope["path"] != "/unread"
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message["body"])
        more = message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"8")]})
    await send({"type": "http.response.body", "body": b"%08d" % size})


@pytest.fixture
def port() -> Iterator[int]:
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(echo, http=Hasty, log_config=None, lifespan="off", timeout_keep_alive=1))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    yield listening.getsockname()[1]
    server.should_exit = True
    thread.join()
    listening.close()


def answered(connection: socket.socket) -> bytes:
    connection.settimeout(30.0)
    data = b""
    with contextlib.suppress(ConnectionError):
        while block := connection.recv(65_536):
            data += block
    return data


@pytest.mark.parametrize(
    "begin",
    [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\n", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"],
)
def test_who_does_not_go_on_is_sent_away(port: int, begin: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(begin)
        assert answered(connection) == b""


def test_a_second_head_has_no_more_time_than_the_first(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HT")
        assert answered(connection).endswith(b"00000000")


def test_a_head_without_end_is_refused(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                connection.sendall(b"x: y\r\n" * (HEAD_BYTES // 60))
        assert b"200 OK" not in answered(connection)


def test_a_large_body_is_no_head(port: int) -> None:
    size = 4 * HEAD_BYTES
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for _ in range(3):
            connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size)
        assert answered(connection).count(b"%08d" % size) == 3


def test_a_body_that_nobody_wants_does_not_hold_a_connection(port: int) -> None:
    """It was answered before its body had come, which then trickles without end."""
    over = threading.Event()

    def trickle() -> None:
        with contextlib.suppress(OSError):
            while not over.wait(0.05):
                connection.sendall(b"x")

    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"POST /unread HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nabc")
        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            assert answered(connection).endswith(b"00000000")
        finally:
            over.set()
            thread.join()
