"""A model's server may be away, slow, broken or hostile: the question gets a state, never an exception."""

from __future__ import annotations

import codecs
import logging
import threading
import time
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from diagnose.agents.ledger import Ledger
from diagnose.agents.model import ChatModel, Message, ModelAnswer
from diagnose.agents.settings import ModelSettings, Secret
from tests.modelserver import Asked, ModelServer, Reply, completion, model_server, refused

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

SCHEMA = {
    "type": "object",
    "properties": {"label": {"type": "string", "enum": ["A", "B"]}, "why": {"type": "string"}},
    "required": ["label", "why"],
    "additionalProperties": False,
}
GOOD = {"label": "A", "why": "because"}
MESSAGES = (Message("system", "You are terse."), Message("user", "A or B?"))


def settings(url: str, **how: Any) -> ModelSettings:
    given = {"seconds": 60.0, "retry_wait": 0.01, "state": None} | how
    return ModelSettings(url, "scripted", **given)


def ask(server: ModelServer, *, model: ChatModel | None = None, **how: Any) -> ModelAnswer:
    model = model or ChatModel(settings(server.url, **how))
    return model.ask(MESSAGES, SCHEMA, model.allowance())


def test_an_answer_with_what_it_cost() -> None:
    with model_server(lambda _: completion(GOOD)) as server:
        answer = ask(server)
    assert (answer.state, answer.data, answer.tokens_in, answer.tokens_out) == ("answered", GOOD, 100, 20)
    assert server.asked[0].body["response_format"]["json_schema"]["schema"] == SCHEMA
    assert server.asked[0].body["model"] == "scripted"


def llama_cpp(asked: Asked) -> Reply:
    """As llama-cpp-python's server: it knows a schema only beside json_object."""
    form = asked.body.get("response_format", {})
    if form.get("type") == "json_schema":
        return refused(500, "Internal Server Error")
    return completion(GOOD if "schema" in form else "well, A")


def newer_openai(asked: Asked) -> Reply:
    if "max_tokens" in asked.body:
        return refused(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
    if "temperature" in asked.body:
        return refused(400, "'temperature' does not support 0.0 with this model.")
    return completion(GOOD)


def plain_text(asked: Asked) -> Reply:
    if "response_format" in asked.body:
        return refused(422, "extra fields not permitted")
    assert '"additionalProperties": false' in asked.text
    return completion(
        "<think>{hm}</think>Sure! Here you are:\n```json\n" + '{"label": "A", "why": "because"}' + "\n```"
    )


def deaf(asked: Asked) -> Reply:
    """Takes every parameter, and heeds none."""
    return completion(GOOD if "JSON Schema" in asked.text else "I think it is A.")


@pytest.mark.parametrize(
    "script, form",
    [(llama_cpp, "json_object_schema"), (newer_openai, "json_schema"), (plain_text, "text"), (deaf, "text")],
)
def test_what_a_server_can_do_is_found_out_once(script: Any, form: str) -> None:
    with model_server(script) as server:
        model = ChatModel(settings(server.url, cache=False))
        assert ask(server, model=model).data == GOOD
        before = len(server.asked)
        assert ask(server, model=model).data == GOOD
    assert before > 1
    assert len(server.asked) == before + 1


def test_a_server_that_was_replaced_by_a_lesser_one_is_learnt_anew() -> None:
    with model_server(lambda _: completion(GOOD)) as server:
        model = ChatModel(settings(server.url, cache=False))
        assert ask(server, model=model).state == "answered"
        server.script = plain_text
        assert ask(server, model=model).state == "answered"


@pytest.mark.parametrize("status", [429, 502, 503, 529])
def test_what_may_pass_is_tried_again(status: int) -> None:
    replies = iter([refused(status, **{"Retry-After": "0"}), refused(status), completion(GOOD)])
    with model_server(lambda _: next(replies)) as server:
        assert ask(server).state == "answered"
        assert len(server.asked) == 3


@pytest.mark.parametrize("status, often", [(401, 1), (403, 1), (404, 1), (302, 1), (503, 3)])
def test_what_does_not_pass_is_unavailable(status: int, often: int) -> None:
    with model_server(lambda _: refused(status, "sk-echo", Location="http://127.0.0.1:1/")) as server:
        answer = ask(server)
    assert answer.state == "unavailable"
    assert len(server.asked) == often
    assert str(status) in answer.reason
    assert "sk-echo" not in answer.reason


def test_nobody_there() -> None:
    answer = ChatModel(settings("http://127.0.0.1:1/v1")).ask(MESSAGES, SCHEMA, ChatModel(settings("x")).allowance())
    assert answer.state == "unavailable"
    assert "DIAGNOSE_LLM_BASE_URL" in answer.reason


def test_a_wish_to_wait_beyond_the_deadline_is_not_granted() -> None:
    with model_server(lambda _: refused(429, **{"Retry-After": "3600"})) as server:
        assert ask(server).state == "unavailable"
        assert len(server.asked) == 1


def drip(piece: bytes) -> Iterator[bytes]:
    while True:
        yield piece
        time.sleep(0.02)


def endless(piece: bytes) -> Iterator[bytes]:
    while True:
        yield piece


CHUNK = b"1\r\n \r\n"
CHUNKED = {"Transfer-Encoding": "chunked"}
SLOW = {
    "drips its body": Reply(drip(CHUNK), headers=CHUNKED),
    "drips its head": Reply(drip(b"x"), raw=True),
    "says for ever that it goes on": Reply(drip(b"HTTP/1.1 100 Continue\r\n\r\n"), raw=True),
    "declares more than it sends": Reply(drip(b" "), headers={"Content-Length": "100000"}),
}
HUGE = {
    "declares too much": Reply(b"{}", headers={"Content-Length": str(10**12)}),
    "sends without end": Reply(endless(b"10000\r\n" + b"x" * 65_536 + b"\r\n"), headers=CHUNKED),
    "sends an endless head": Reply(endless(b"X-Y: " + b"z" * 65_536 + b"\r\n"), raw=True),
    "a bomb": Reply(b"\x1f\x8b" + b"0" * 100, headers={"Content-Encoding": "gzip"}),
    "a bomb by another name": Reply(b"\x1f\x8b" + b"0" * 100, headers={"Content-Encoding": "identity, gzip"}),
    "no HTTP": Reply(b"SSH-2.0-OpenSSH_9.6\r\n", raw=True),
    "nothing": Reply(b"", raw=True),
}
WRONG = {
    "no JSON": Reply(b"<html>", headers={"Content-Type": "text/html"}),
    "a number": Reply(b"1", headers={"Content-Type": "application/json"}),
    "no choices": Reply(b'{"choices": []}', headers={"Content-Type": "application/json"}),
    "choices of another kind": Reply(b'{"choices": "A"}', headers={"Content-Type": "application/json"}),
    "a number for a text": Reply(b'{"choices": [{"message": {"content": 3}}]}'),
    "deep": Reply(b"[" * 200_000, headers={"Content-Type": "application/json"}),
    "a huge number": Reply(b'{"choices": ' + b"9" * 100_000 + b"}"),
    "no UTF-8": Reply(b'{"choices": [{"message": {"content": "\xff"}}]}'),
}


@pytest.mark.parametrize("what", SLOW)
def test_a_slow_server_holds_nobody_beyond_the_deadline(what: str) -> None:
    with model_server(lambda _: SLOW[what]) as server:
        threads = threading.active_count()
        answer = ask(server, seconds=0.4)
        assert answer.state == "unavailable"
        for _ in range(200):
            if threading.active_count() <= threads + 1:  # the server's own
                break
            time.sleep(0.01)
        assert not [thread for thread in threading.enumerate() if thread.name == "diagnose-model"]


@pytest.mark.parametrize("what", [*HUGE, *WRONG])
def test_a_broken_or_hostile_server_is_unavailable(what: str) -> None:
    with model_server(lambda _: (HUGE | WRONG)[what]) as server:
        answer = ask(server, answer_bytes=200_000)
    assert answer.state == "unavailable", answer
    assert answer.data is None
    assert answer.reason.count("\n") == 0


ENCODINGS = ["zlib", "bz2", "punycode", "idna", "unicode_escape", "utf-7", "undefined", "uu", "utf-16", "nothing known"]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("status", [200, 400, 404])
def test_the_encoding_that_a_server_names_is_never_looked_up(
    encoding: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python knows encodings that unpack bombs and such as take hours for a megabyte."""
    bomb = zlib.compress(bytes(3_000_000)) if encoding == "zlib" else b"a-" + b"b" * 3_000
    reply = Reply(bomb, status, {"Content-Type": f"application/json; charset={encoding}"})
    read: list[str] = []
    monkeypatch.setattr("codecs.lookup", lambda name, found=codecs.lookup: read.append(name) or found(name))
    with model_server(lambda _: reply) as server:
        answer = ask(server)
    assert answer.state == "unavailable"
    assert "could not be understood" not in answer.reason
    assert encoding not in read


TEXTS = {
    "prose": "It is A, no doubt.",
    "another label": '{"label": "C", "why": "x"}',
    "a field too many": '{"label": "A", "why": "x", "action": "drain"}',
    "a field too few": '{"label": "A"}',
    "another type": '{"label": ["A"], "why": "x"}',
    "not a number": '{"label": "A", "why": NaN}',
    "a list": '[{"label": "A"}]',
    "braces": "{" * 200_000,
    "deep": '{"label":' * 50_000,
    "nothing": "",
    "null": None,
}


@pytest.mark.parametrize("what", TEXTS)
def test_an_answer_that_does_not_fit_is_rejected(what: str) -> None:
    with model_server(lambda _: completion(TEXTS[what])) as server:
        answer = ask(server)
    assert (answer.state, answer.data) == ("rejected", None)


def test_an_answer_that_was_cut_off_says_so() -> None:
    with model_server(lambda _: completion('{"label": "A", "wh', finish="length")) as server:
        answer = ask(server, answer_tokens=77)
    assert answer.state == "rejected"
    assert "77 tokens" in answer.reason


def test_the_same_question_is_paid_for_once() -> None:
    with model_server(lambda _: completion(GOOD)) as server:
        model = ChatModel(settings(server.url))
        first, second = ask(server, model=model), ask(server, model=model)
        other = model.ask(MESSAGES, SCHEMA, model.allowance(), sample=1)
        assert (first.cached, second.cached, other.cached) == (False, True, False)
        assert (second.data, second.tokens_in, second.tokens_out) == (GOOD, 0, 0)
        assert len(server.asked) == 2


def test_a_server_that_fails_again_and_again_is_left_alone(tmp_path: Any) -> None:
    """Each diagnosis would wait for it until its deadline; the next process knows, too."""
    state = str(tmp_path / "llm.sqlite3")
    now = [1_000_000.0]

    def asked(server: ModelServer, **how: Any) -> ModelAnswer:
        made = settings(server.url, **{"state": state, "attempts": 1, "cache": False} | how)
        return ask(server, model=ChatModel(made, Ledger(state, lambda: now[0])))

    script: list[Any] = [refused(503)]
    with model_server(lambda _: script[0]) as server:
        for _ in range(3):
            assert "HTTP 503" in asked(server).reason
        left = asked(server)
        assert left.state == "unavailable"
        assert "3 times in a row" in left.reason
        assert "DIAGNOSE_LLM_OUTAGES=0" in left.reason
        assert len(server.asked) == 3
        assert asked(server, outages=0).state == "unavailable"
        assert len(server.asked) == 4
        now[0] += 301  # one may see whether it is back; until that is known, nobody else
        assert "HTTP 503" in asked(server).reason
        assert "in a row" in asked(server).reason
        script[0] = completion(GOOD)
        now[0] += 301
        assert asked(server).state == "answered"
        assert asked(server).state == "answered"
        script[0] = refused(503)
        assert "HTTP 503" in asked(server).reason


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_a_server_that_refuses_at_once_is_asked_again(status: int) -> None:
    """That costs no time, and whoever has mended the key wants to see it."""
    with model_server(lambda _: refused(status)) as server:
        model = ChatModel(settings(server.url, cache=False))
        for _ in range(5):
            assert f"HTTP {status}" in ask(server, model=model).reason


def test_one_diagnosis_that_asks_often_is_one_outage() -> None:
    with model_server(lambda _: refused(503)) as server:
        model = ChatModel(settings(server.url, cache=False, attempts=1))
        allowance = model.allowance()
        for _ in range(5):
            assert "HTTP 503" in model.ask(MESSAGES, SCHEMA, allowance).reason


def test_a_diagnosis_has_its_budget() -> None:
    with model_server(lambda _: completion(GOOD)) as server:
        model = ChatModel(settings(server.url, tokens=1_640, cache=False))
        allowance = model.allowance()
        states = [model.ask(MESSAGES, SCHEMA, allowance).state for _ in range(3)]
        assert states == ["answered", "over_budget", "over_budget"]
        assert len(server.asked) == 1


def test_a_day_has_its_budget_and_processes_share_it(tmp_path: Any) -> None:
    state = str(tmp_path / "state" / "llm.sqlite3")
    with model_server(lambda _: completion(GOOD)) as server:
        how = {"state": state, "day_tokens": 1_640, "cache": False}
        states = [ask(server, **how).state for _ in range(3)]
        assert states == ["answered", "over_budget", "over_budget"]
        assert Ledger(state).used() == 120


def test_what_a_server_says_it_took_is_believed_within_reason() -> None:
    lies = iter([{"prompt_tokens": -5, "completion_tokens": 10**18}, "much", [], {"prompt_tokens": True}, None])
    with model_server(lambda _: completion(GOOD, usage=next(lies))) as server:
        for _ in range(5):
            answer = ask(server)
            assert answer.state == "answered"
            assert 0 < answer.tokens_in < 1_000
            assert 0 < answer.tokens_out < 1_000


def test_an_account_that_cannot_be_kept_asks_nobody(tmp_path: Any) -> None:
    (tmp_path / "llm.sqlite3").write_bytes(b"no database " * 1_000)
    with model_server(lambda _: completion(GOOD)) as server:
        answer = ask(server, state=str(tmp_path / "llm.sqlite3"))
        assert server.asked == []
    assert answer.state == "unavailable"
    assert "DIAGNOSE_LLM_STATE" in answer.reason


KEY = "sk-proj-0123456789abcdefSECRET"


@pytest.mark.parametrize("status", [200, 401, 500, 302])
def test_the_key_shows_itself_nowhere(status: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    def echo(asked: Asked) -> Reply:
        return completion(GOOD) if status == 200 else refused(status, f"bad key {KEY}")

    with model_server(echo) as server:
        model = ChatModel(settings(server.url, key=Secret(KEY)))
        answer = ask(server, model=model)
        assert f"authorization: bearer {KEY}".lower() in server.asked[0].head.lower()
    shown = f"{answer!r} {model!r} {model.settings!r} {caplog.text}"
    assert KEY not in shown
    assert KEY[8:] not in shown


def test_the_environment_of_other_programs_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_BASE_URL", "OPENAI_CUSTOM_HEADERS"):
        monkeypatch.setenv(name, f"X-Stray: stray-{name}")
    with model_server(lambda _: completion(GOOD)) as server:
        assert ask(server).state == "answered"
    assert b"stray" not in server.wire.lower()
    assert b"x-stainless" not in server.wire.lower()  # what system this is, is nobody's business
