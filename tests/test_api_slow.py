"""Bodies that trickle end with a 408 and leave nothing; slow ones that keep a pace are taken."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from diagnose.api.app import create_app
from diagnose.api.wire import Patient
from diagnose.dataclass import replace
from diagnose.service.settings import Bounds, config_of
from tests.serving import environment_of
from tests.test_api_wire import answered

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])
_FORM = "multipart/form-data; boundary=b"
_PART = b'--b\r\nContent-Disposition: form-data; name="logs"; filename="a.log"\r\n\r\nfirst bytes'


class Place:
    def __init__(self, port: int, spool: Path) -> None:
        self.port, self.spool = port, spool

    def begun(self, line: str, kind: str, size: int = 1_000_000) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.port))
        made.sendall(
            f"{line} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\n\r\n".encode()
        )
        return made

    def files(self) -> list[str]:
        return [
            name
            for part in ("uploads", "parts", "streams", "pending")
            for _, _, names in os.walk(self.spool / part)
            for name in names
            if name != ".room"
        ]


@contextlib.contextmanager
def served(folder: Path, **bounds: float) -> Iterator[Place]:
    environment = environment_of(folder)
    config = config_of(environment)
    config = replace(config, bounds=replace(config.bounds, **bounds))
    listening = socket.create_server(("127.0.0.1", 0))
    app = create_app(config, environment)
    server = uvicorn.Server(uvicorn.Config(app, http=Patient, log_config=None, timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield Place(listening.getsockname()[1], folder / "spool")
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with served(tmp_path_factory.mktemp("hasty"), body_grace=0.5, body_rate=100_000) as place:
        yield place


@pytest.mark.parametrize(
    ("line", "kind", "begin"),
    [
        ("POST /v1/uploads?name=a.log", "application/octet-stream", b"x"),
        ("PUT /v1/jobs/-/7/0/logs/a.log?offset=0", "application/octet-stream", b"x"),
        ("POST /v1/diagnoses", "application/json", b"{"),
        ("POST /v1/jobs/-/8/0/end", "application/json", b"{"),
        ("POST /v1/diagnoses", _FORM, _PART),
        ("POST /login", "application/x-www-form-urlencoded", b"key="),
    ],
)
def test_a_body_that_trickles_ends_and_leaves_nothing(hasty: Place, line: str, kind: str, begin: bytes) -> None:
    over = threading.Event()

    def trickle() -> None:
        with contextlib.suppress(OSError):
            while not over.wait(0.05):
                connection.sendall(b"x")

    with hasty.begun(line, kind) as connection:
        connection.sendall(begin)
        thread = threading.Thread(target=trickle)
        thread.start()
        head, _, body = answered(connection).partition(b"\r\n\r\n")
        over.set()
        thread.join()
    assert head.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in head.lower()
    if "login" not in line:
        assert b"application/problem+json" in head
        said = json.loads(body)
        assert said["type"] == "urn:diagnose:problem:request-timeout"
        assert "send it again" in said["detail"]
    assert hasty.files() == []


def test_much_at_the_beginning_buys_no_time(hasty: Place) -> None:
    with hasty.begun("POST /v1/uploads?name=a.log", "application/octet-stream", 1 << 30) as connection:
        connection.sendall(bytes(2_000_000))  # by its average 20 seconds ahead
        began = time.monotonic()
        assert answered(connection).startswith(b"HTTP/1.1 408 ")
        assert time.monotonic() - began < 20.0
    assert hasty.files() == []


def test_a_body_in_all_has_its_time(tmp_path: Path) -> None:
    with (
        served(tmp_path, body_grace=60.0, body_rate=1, body_seconds=0.5) as place,
        place.begun("POST /v1/uploads?name=a.log", "application/octet-stream") as connection,
    ):
        connection.sendall(bytes(10_000))
        assert answered(connection).startswith(b"HTTP/1.1 408 ")
        assert place.files() == []


def test_a_slow_body_that_keeps_its_pace_is_taken(tmp_path: Path) -> None:
    """In pieces with pauses, which together are longer than the grace."""
    with (
        served(tmp_path, body_grace=5.0, body_rate=100) as place,
        place.begun("POST /v1/uploads?name=a.log", "application/octet-stream", 12_000) as connection,
    ):
        for _ in range(12):
            time.sleep(0.5)
            connection.sendall(bytes(1_000))
        connection.settimeout(60.0)
        assert connection.recv(100).startswith(b"HTTP/1.1 201 ")
        assert len(place.files()) == 1


def test_the_bounds_are_told_by_the_environment(tmp_path: Path) -> None:
    found = config_of(
        environment_of(tmp_path, DIAGNOSE_BODY_RATE="2000", DIAGNOSE_BODY_GRACE="5", DIAGNOSE_BODY_SECONDS="100")
    ).bounds
    assert (found.body_rate, found.body_grace, found.body_seconds) == (2000, 5.0, 100.0)
    assert (Bounds().body_rate, Bounds().body_grace) == (1024, 60.0)
