"""Notices: one an incident, updated, never a second page; nothing for what is nobody's trouble."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from diagnose.dataclass import replace
from diagnose.errors import StoreError, UsageError
from diagnose.integrations.notices import (
    OPEN_SECONDS,
    CommandSink,
    JobRef,
    Notices,
    WebhookSink,
    audience,
    webhook_secret,
)
from diagnose.integrations.summary import NodeAdvice, Summary

ECC = Summary(
    "failed", "ECCError", "infrastructure", "confirmed", "Xid 95", job="restart_elsewhere", hosts=("gx-043",),
    units=("gx-043", "gpu 0000:5d:00"), nodes=(NodeAdvice("gx-043", "drain"), NodeAdvice("gx-043", "reset_gpu")),
)  # fmt: skip
BUG = Summary("failed", "KeyError", "user", "likely", "KeyError: 'role'", job="fix_and_resubmit")
TIMEOUT = Summary("failed", "NCCLTimeoutError", "infrastructure", "likely", "allreduce", job="restart")


class Inbox:
    """A sink that remembers, and fails as often as it is told."""

    def __init__(self, name: str = "inbox", least: Any = "owner") -> None:
        self.name = name
        self.least = least
        self.got: list[dict[str, Any]] = []
        self.ids: list[str] = []
        self.fails = 0

    def send(self, id: str, body: bytes) -> None:
        if self.fails:
            self.fails -= 1
            raise OSError("away")
        self.ids.append(id)
        self.got.append(json.loads(body))


class Lab:
    def __init__(self, folder: Path, *sinks: Any) -> None:
        self.now = 1_000_000.0
        self.inbox = Inbox()
        self.path = str(folder / "notices.sqlite3")
        self.sinks = sinks or (self.inbox,)

    @property
    def notices(self) -> Notices:
        """Opened anew each time, as by hooks that are processes."""
        return Notices(self.path, self.sinks, clock=lambda: self.now)

    def tell(self, job: str, summary: Summary, **who: Any) -> str | None:
        told = self.notices.tell(JobRef("lab", job, **{"user": "ada", "name": "qx7b", **who}), summary)
        self.notices.deliver()
        return told

    def later(self, seconds: float) -> list[str]:
        self.now += seconds
        return self.notices.deliver()


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


@pytest.mark.parametrize(
    "summary, expected",
    [
        (ECC, "page"),
        (BUG, "owner"),
        (replace(BUG, sureness="possible"), "owner"),
        (replace(BUG, job="none"), "owner"),  # not even where restarts have not helped
        (TIMEOUT, "operators"),
        (replace(ECC, sureness="possible"), "operators"),
        (Summary("no_failure"), "nobody"),
        (Summary("failed", "JobCancelled", "scheduler", "possible", job="restart"), "nobody"),
        (Summary("failed", "JobCancelled", "user", "likely", job="none"), "nobody"),
        (Summary("failed", "Preempted", "scheduler", "likely", job="wait_and_retry"), "nobody"),
        (Summary("failed", "TimeLimitExceeded", "scheduler", "likely", job="restart"), "owner"),
        (Summary("failed", "NetworkError", "infrastructure", "likely", job="wait_and_retry"), "page"),
        (Summary("failed", "CollectiveHang", "unknown", "likely", job="none"), "page"),
        (Summary("inconclusive", job="none"), "page"),
        (Summary("inconclusive", job="restart"), "owner"),
        (Summary("failed", None, None, "possible", job="restart"), "operators"),
    ],
)
def test_who_is_told(summary: Summary, expected: str) -> None:
    assert audience(summary) == expected


def test_one_notice_for_one_incident(lab: Lab) -> None:
    first = lab.tell("1", ECC)
    for job in range(2, 40):
        assert lab.tell(str(job), ECC, name=f"other-{job}", user="eve") == first
    assert [(one["type"], one["page"], one["count"]) for one in lab.inbox.got] == [("notice.opened", True, 1)]
    lab.later(61)
    assert [(one["type"], one["page"], one["count"]) for one in lab.inbox.got[1:]] == [("notice.updated", False, 39)]
    lab.later(600)
    assert len(lab.inbox.got) == 2


def test_the_same_verdict_told_twice_is_told_once(lab: Lab) -> None:
    first = lab.tell("1", ECC)
    assert lab.tell("1", ECC) == first
    lab.later(3600)
    assert len(lab.inbox.got) == 1


def test_a_verdict_that_changes_updates_its_notice(lab: Lab) -> None:
    first = lab.tell("1", TIMEOUT)
    assert lab.tell("1", ECC) == first  # the kernel log came later: now somebody has to act
    assert [(one["page"], one["title"].split()[2]) for one in lab.inbox.got] == [
        (False, "NCCLTimeoutError"),
        (True, "ECCError"),
    ]
    lab.tell("1", TIMEOUT)
    lab.tell("1", replace(ECC, cause="Xid 48"))
    lab.later(61)
    assert [one["page"] for one in lab.inbox.got] == [False, True, False]


def test_two_incidents_that_turn_out_one_wake_nobody_again(lab: Lab) -> None:
    lab.tell("1", ECC)
    lab.tell("2", TIMEOUT, name="other")
    lab.later(61)
    lab.tell("2", ECC, name="other")
    lab.later(61)
    assert [one["page"] for one in lab.inbox.got].count(True) == 1


def test_an_incident_of_long_ago_is_another(lab: Lab) -> None:
    first = lab.tell("1", ECC)
    lab.now += OPEN_SECONDS - 10
    assert lab.tell("2", ECC) == first
    lab.now += OPEN_SECONDS + 10
    assert lab.tell("3", ECC) != first
    assert [one["page"] for one in lab.inbox.got] == [True, False, True]


def test_bugs_of_two_users_are_two_notices(lab: Lab) -> None:
    assert lab.tell("1", BUG) != lab.tell("2", BUG, user="eve")
    assert [(one["owner"], one["page"], one["audience"]) for one in lab.inbox.got] == [
        ("ada", False, "owner"), ("eve", False, "owner"),
    ]  # fmt: skip


def test_nobody_is_told_of_a_cancelled_job(lab: Lab) -> None:
    assert lab.tell("1", Summary("failed", "JobCancelled", "user", "likely", job="none")) is None
    assert lab.inbox.got == []


def test_what_cannot_be_delivered_waits(lab: Lab) -> None:
    lab.inbox.fails = 3
    lab.notices.tell(JobRef("lab", "1"), ECC)
    assert lab.notices.deliver() == ["inbox: away; tried again in 30 s"]
    assert lab.later(10) == []
    assert lab.later(21) == ["inbox: away; tried again in 60 s"]
    lab.tell("2", TIMEOUT)  # what comes meanwhile is as late
    lab.later(40)
    lab.tell("3", ECC)
    lab.later(3600)
    pages = [one for one in lab.inbox.got if one["page"]]
    assert len(pages) == 1  # the page is not lost, though the notice has grown since
    assert pages[0]["count"] == 2


def test_what_nobody_takes_for_days_is_given_up(lab: Lab) -> None:
    lab.inbox.fails = 10**6
    lab.tell("1", ECC)
    for _ in range(100):
        lab.later(3600)
    lab.inbox.fails = 0
    lab.later(3600)
    assert lab.inbox.got == []


def test_sinks_hear_what_they_want_to(tmp_path: Path) -> None:
    calls, mails = Inbox("calls", "page"), Inbox("mails", "owner")
    lab = Lab(tmp_path, calls, mails)
    lab.tell("1", BUG)
    lab.tell("2", ECC)
    assert ([one["title"].split()[-1] for one in calls.got], len(mails.got)) == (["0000:5d:00"], 2)


def test_several_processes_at_once(tmp_path: Path) -> None:
    lab = Lab(tmp_path)

    def tell(number: int) -> None:
        for job in range(5):
            lab.notices.tell(JobRef("lab", f"{number}-{job}"), ECC)
            lab.notices.deliver()

    threads = [threading.Thread(target=tell, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lab.later(61)
    assert [one["page"] for one in lab.inbox.got].count(True) == 1
    assert lab.inbox.got[-1]["count"] == 20


class Meanwhile(Inbox):
    """A sink while whose delivery is on its way another process hears of a job, and delivers."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: list[Callable[[], object]] = []

    def send(self, id: str, body: bytes) -> None:
        if self.meanwhile:
            self.meanwhile.pop()()
        super().send(id, body)


@pytest.mark.parametrize("fails, got", [(0, [(True, 1), (False, 2)]), (1, [(True, 2)])])
def test_a_page_on_its_way_is_not_sent_by_another_process(
    tmp_path: Path, fails: int, got: list[tuple[bool, int]]
) -> None:
    inbox = Meanwhile()
    lab = Lab(tmp_path, inbox)
    inbox.meanwhile = [lambda: lab.tell("2", ECC)]
    inbox.fails = fails
    lab.tell("1", ECC)
    lab.later(61)
    assert [(one["page"], one["count"]) for one in inbox.got] == got


def test_a_page_that_comes_while_a_quieter_notice_is_on_its_way_is_sent(tmp_path: Path) -> None:
    inbox = Meanwhile()
    lab = Lab(tmp_path, inbox)
    inbox.meanwhile = [lambda: lab.notices.tell(JobRef("lab", "1", user="ada", name="qx7b"), ECC)]
    lab.tell("1", replace(ECC, sureness="possible"))
    assert [one["page"] for one in inbox.got] == [False, True]


def test_old_ones_are_forgotten(lab: Lab) -> None:
    first = lab.tell("1", ECC)
    lab.later(100 * 86400)
    assert lab.tell("1", ECC) != first


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database, but long enough to be taken for one by its size" * 40)
    for path in (tmp_path / "text", tmp_path / "absent" / "file"):
        with pytest.raises(StoreError, match="notices' file"):
            Notices(str(path), [])


def test_a_command_gets_the_notice(tmp_path: Path) -> None:
    code = "import os, sys; open(sys.argv[1], 'a').write(os.environ['DIAGNOSE_NOTICE'] + ' ' + sys.stdin.read())"
    sink = CommandSink([sys.executable, "-c", code, str(tmp_path / "got")])
    lab = Lab(tmp_path, sink)
    told = lab.tell("1", ECC)
    delivery, _, body = (tmp_path / "got").read_text().partition(" ")
    assert (delivery, json.loads(body)["notice"]) == (f"{told}-1", told)


def test_a_command_that_fails_is_told(tmp_path: Path) -> None:
    for command, problem in ((["false"], "exit code 1"), (["/no/such"], "No such file")):
        with pytest.raises(OSError, match=problem):
            CommandSink(command).send("n1-1", b"{}")


@pytest.mark.allow_hosts(["127.0.0.1"])
def test_a_webhook_is_signed_and_follows_nothing() -> None:
    got: list[tuple[dict[str, str], bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_POST(self) -> None:
            got.append((dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(302 if self.path == "/moved" else 204)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_address[1]}"
        secret = webhook_secret("whsec_" + base64.b64encode(b"0123456789abcdef").decode())
        WebhookSink(address + "/hook", secret=secret, clock=lambda: 1_700_000_000.0).send("n1-1", b'{"a": 1}')
        headers, body = got[0]
        digest = hmac.new(b"0123456789abcdef", b"n1-1.1700000000." + body, hashlib.sha256).digest()
        assert headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode()
        with pytest.raises(OSError, match="answered 302"):
            WebhookSink(address + "/moved").send("n1-2", b"{}")
        assert len(got) == 2
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    with pytest.raises(OSError, match="ConnectError"):
        WebhookSink(address).send("n1-3", b"{}")


def test_addresses_and_secrets_that_cannot_be_meant() -> None:
    for address in ("hooks.example.org", "ftp://x", "https://user:pass@x/"):
        with pytest.raises(UsageError):
            WebhookSink(address)
    with pytest.raises(UsageError):
        webhook_secret("whsec_***")
    with pytest.raises(UsageError):
        CommandSink([])


def test_a_log_calls_nobody_in_a_chat(lab: Lab) -> None:
    hostile = "<!channel> <@U024BE7LH> @here mail@everyone [your account](https://evil.example) \x1b[31m\nred"
    bug = Summary(
        "failed", "KeyError", "user", "likely", hostile, job="fix_and_resubmit", hint=hostile, units=(hostile,)
    )
    lab.tell("1", bug)
    (told,) = lab.inbox.got
    for field in ("title", "text", "hint"):
        assert not set(told[field]) & set("<>@"), told[field]
        assert "](" not in told[field]
        assert "here" in told[field]  # it can still be read
    assert told["text"].isprintable()
