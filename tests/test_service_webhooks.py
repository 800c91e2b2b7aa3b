"""Webhooks: signed, sent until they arrive, and never to where a stranger must not lead."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest
from sqlalchemy import select
from standardwebhooks.webhooks import Webhook

from diagnose.dataclass import replace
from diagnose.errors import UsageError
from diagnose.service.claims import Claims
from diagnose.service.guard import target_of
from diagnose.service.handing import tell_of_stall
from diagnose.service.jobs import NewJob, Notice
from diagnose.service.opening import Opening
from diagnose.service.paths import Refused
from diagnose.service.settings import ServiceConfig, config_of
from diagnose.service.stall import StallNotice
from diagnose.service.streams import JobKey
from diagnose.service.submissions import Submissions
from diagnose.service.webhooks import PAUSES, Sender, signer_of
from diagnose.store.service_tables import Outgoing
from tests.serving import environment_of, outcome

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Lab:
    """An outbox, a clock, and a receiver that is there or not."""

    def __init__(self, config: ServiceConfig) -> None:
        self.config, self.now = config, 1_800_000_000.0
        self.opening = Opening(config.database)
        self.got: list[httpx.Request] = []
        self.answer = 200
        self.there = True
        self.addresses = ["93.184.216.34"]
        self.sender = Sender(
            config,
            self.opening,
            clock=lambda: self.now,
            resolve=lambda _host, _port: self.addresses,
            transport=httpx.MockTransport(self._receive),
        )

    def _receive(self, request: httpx.Request) -> httpx.Response:
        if not self.there:
            raise httpx.ConnectError("nobody")
        self.got.append(request)
        return httpx.Response(self.answer, headers={"Location": "http://169.254.169.254/"})

    def done(self, number: str, callback: str | None = "https://hooks.example/x") -> str:
        database = self.opening.database()
        row, _ = Submissions(database, lambda: self.now).accept(NewJob(number, callback=callback))
        claims = Claims(database, Notice(None), lambda: self.now)
        claim = claims.claim(row.id, "w", 3)
        assert claim is not None
        assert claims.finish(claim, outcome())
        return row.id

    def rows(self) -> list[Outgoing]:
        with self.opening.database().reading() as session:
            return list(session.scalars(select(Outgoing).order_by(Outgoing.created)))


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    (tmp_path / "secret").write_text(SECRET + "\n")
    made = Lab(config_of(environment_of(tmp_path, DIAGNOSE_WEBHOOK_SECRET_FILE=str(tmp_path / "secret"))))
    yield made
    made.sender.close()
    made.opening.close()


def test_a_message_is_signed_as_the_standard_says(lab: Lab) -> None:
    name = lab.done("1")
    assert lab.sender.send_due() == 1
    (request,) = lab.got
    assert str(request.url) == "https://93.184.216.34/x"
    assert request.headers["host"] == "hooks.example"
    assert request.extensions["sni_hostname"] == "hooks.example"
    body = json.loads(request.content)
    assert (body["type"], body["data"]["id"]) == ("diagnosis.done", name)
    headers = {name: request.headers[name] for name in ("webhook-id", "webhook-timestamp", "webhook-signature")}
    signed = Webhook(SECRET)
    assert (
        signed.sign(headers["webhook-id"], _moment(headers), request.content.decode()) == headers["webhook-signature"]
    )
    assert lab.sender.send_due() == 0
    assert lab.rows()[0].delivered


def _moment(headers: dict[str, str]) -> object:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)


def test_a_standstill_is_sent_and_that_it_is_over(lab: Lab) -> None:
    key, notice = JobKey("p", "gx", "4711", 1), StallNotice("training", 59, 1300.0, 1200.0, 10.0)
    to = "https://hooks.example/stalls"
    tell_of_stall(lab.opening, None, key, notice)
    assert lab.rows() == []  # nobody is to be told
    tell_of_stall(lab.opening, to, key, notice)
    tell_of_stall(lab.opening, to, key, replace(notice, over=True))
    lab.now = time.time() + 1
    assert lab.sender.send_due() == 2
    heard = {}
    for request in lab.got:
        Webhook(SECRET).verify(request.content, dict(request.headers))
        said = json.loads(request.content)
        heard[said["type"]] = said["data"]
    assert set(heard) == {"job.stalled", "job.resumed"}
    assert (heard["job.stalled"]["job_id"], heard["job.stalled"]["step"]) == ("4711", 59)
    assert "Nothing was ended" in heard["job.stalled"]["summary"]


def test_a_receiver_that_was_away_for_an_hour_hears_it_once(lab: Lab) -> None:
    lab.there = False
    names = {lab.done(str(number)) for number in range(3)}
    start = lab.now
    while lab.now < start + 3_600:
        lab.sender.send_due()
        lab.now += 30
    assert not lab.got
    lab.there = True
    while lab.now < start + 4 * 3_600:
        lab.sender.send_due()
        lab.now += 30
    assert sorted(json.loads(one.content)["data"]["id"] for one in lab.got) == sorted(names)


def test_it_is_tried_for_about_three_days_first_often_then_seldom() -> None:
    assert 2.5 * 86_400 < sum(PAUSES) < 4 * 86_400
    assert list(PAUSES) == sorted(PAUSES)
    assert sum(PAUSES[:3]) <= 3_600  # who was away for less than an hour hears within it


def test_it_is_given_up_after_days(lab: Lab) -> None:
    lab.done("1")
    lab.answer = 500
    for _ in range(5_000):
        lab.sender.send_due()
        lab.now += 120
    assert len(lab.got) == len(PAUSES) + 1
    assert len({one.headers["webhook-id"] for one in lab.got}) == 1
    assert (lab.rows()[0].due, lab.rows()[0].delivered) == (None, None)
    lab.answer = 410
    lab.done("2")
    lab.sender.send_due()
    assert "given up after 1 tries: gone" in lab.rows()[1].error


def test_no_redirect_is_followed(lab: Lab) -> None:
    lab.answer = 302
    lab.done("1")
    lab.sender.send_due()
    assert len(lab.got) == 1
    assert "answered 302" in lab.rows()[0].error


def test_two_senders_send_a_message_once(lab: Lab) -> None:
    other = Sender(
        lab.config, lab.opening, clock=lambda: lab.now, resolve=lambda _h, _p: lab.addresses,
        transport=httpx.MockTransport(lab._receive),
    )  # fmt: skip
    lab.done("1")
    taken = lab.sender._taken()
    assert (len(taken), len(other._taken())) == (1, 0)
    other.close()


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.9.9", "169.254.169.254", "0.0.0.0", "::1", "fe80::1", "fc00::1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "2002:7f00:1::", "224.0.0.1", "100.64.0.1", "255.255.255.255", "64:ff9b::a00:1",
        "::7f00:1", "64:ff9b:1::7f00:1", "::ffff:0:127.0.0.1", "fec0::1",
    ],
)  # fmt: skip
def test_private_addresses_are_not_reached(lab: Lab, address: str) -> None:
    lab.addresses = ["93.184.216.34", address]  # one public address beside it helps nobody
    lab.done("1")
    lab.sender.send_due()
    assert lab.got == []
    assert "not public" in lab.rows()[0].error


def test_a_private_network_can_be_allowed(lab: Lab) -> None:
    found = target_of("http://hooks.internal:8080/a?b=c", ("10.0.0.0/8",), lambda _h, _p: ["10.1.2.3"])
    assert (found.url, found.host) == ("http://10.1.2.3:8080/a?b=c", "hooks.internal:8080")
    with pytest.raises(Refused):
        target_of("http://hooks.internal/", ("10.0.0.0/8",), lambda _h, _p: ["10.1.2.3", "192.168.1.1"])


@pytest.mark.parametrize("url", ["ftp://x/", "https://u:p@x/", "https:///x", "https://[::1", "http://x:99999/", "x"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(Refused):
        target_of(url, (), lambda _h, _p: ["93.184.216.34"])


@pytest.mark.parametrize(
    ("secret", "said"), [("short", "at least 16 bytes"), ("whsec_!!!!", "at least"), ("é" * 20, "plain")]
)
def test_a_secret_that_cannot_be_used_is_told(lab: Lab, tmp_path: Path, secret: str, said: str) -> None:
    (tmp_path / "bad").write_text(secret)
    with pytest.raises(UsageError, match=said):
        signer_of(replace(lab.config, webhook_secret_file=str(tmp_path / "bad")))
    with pytest.raises(UsageError, match="cannot be read"):
        signer_of(replace(lab.config, webhook_secret_file=str(tmp_path / "none")))


@contextlib.contextmanager
def serving_once() -> Iterator[tuple[int, list[bytes]]]:
    """The port of a receiver of one message, and what it has got."""
    got: list[bytes] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        yield server.server_port, got
        thread.join()


def test_a_receiver_that_dribbles_keeps_nobody_waiting(lab: Lab) -> None:
    """One that answers a byte at a time, without end, is given up in its time; what goes to others goes at once."""
    over = threading.Event()

    def dribble(listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            taken, _ = listening.accept()
            with taken:
                taken.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                while not over.wait(0.01):
                    taken.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as slow, serving_once() as (quick, heard):
        thread = threading.Thread(target=dribble, args=(slow,))
        thread.start()
        allowed = replace(lab.config, webhook_allow=("127.0.0.0/8",))
        sender = Sender(allowed, lab.opening, clock=lambda: lab.now, timeout=1.0)
        lab.done("1", f"http://127.0.0.1:{slow.getsockname()[1]}/")
        lab.done("2", f"http://127.0.0.1:{quick}/")
        assert sender.send_due() == 2
        over.set()
        thread.join()
    assert len(heard) == 1
    one, other = lab.rows()
    assert "no answer within 1 s" in one.error
    assert other.delivered
