"""What `diagnose ship` makes of answers that no service gives: it tries again, and gives up no log for them."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from diagnose.integrations import sending
from diagnose.integrations.sending import Away, Sender

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])


@contextlib.contextmanager
def answering(answer: bytes, *, drip: bytes = b"", scheme: str = "http") -> Iterator[str]:
    """The address of what gives this answer to whatever is asked, and goes on with `drip` until nobody listens."""
    over = threading.Event()

    def serve(listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                taken, _ = listening.accept()
                with contextlib.suppress(OSError), taken:
                    taken.recv(65_536)
                    taken.sendall(answer)
                    while drip and not over.wait(0.01):
                        taken.sendall(drip)

    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=serve, args=(listening,))
    thread.start()
    try:
        yield f"{scheme}://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        over.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


@pytest.mark.parametrize("begin", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"])
def test_an_answer_without_end_is_not_waited_for(begin: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "_TOTAL", 0.2)
    with answering(begin, drip=b"x") as address, pytest.raises(Away, match="takes too long"):
        Sender(address).send("GET", ("jobs", "x"))


def test_hands_that_are_shaken_without_end_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS begins, and the first record of the server comes byte by byte."""
    monkeypatch.setattr(sending, "_TOTAL", 0.2)
    with (
        answering(b"\x16\x03\x03\x3f\xff\x02\x00\x3f\xf0", drip=b"\0", scheme="https") as address,
        pytest.raises(Away, match="takes too long"),
    ):
        Sender(address).send("GET", ("jobs", "x"))


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n<html",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"offset": 5}',
        b"",
        b"garbage\r\n\r\n",
    ],
)
def test_what_no_service_says_is_asked_again_later(answer: bytes) -> None:
    with answering(answer) as address, pytest.raises(Away):
        Sender(address).send("PUT", ("jobs", "x"), body=b"chunk")
