"""`diagnose eval` as people call it: its renderings, its errors, and what Ctrl-C leaves behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.commandline import FAILED, FIXTURES, ROOT, Call, caller, start
from tests.modelserver import completion, model_server

EVIL = "<script>alert(1)</script>\u202e' onload=x \x1b[31m & ]]>"


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    return caller(capsys, monkeypatch)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One right case, one that is answered otherwise and is full of markup, one healthy, one broken, one unusable."""
    root = tmp_path_factory.mktemp("cases")
    (root / "healthy").mkdir()
    (root / "right.log").write_text(FAILED)
    (root / "right.yaml").write_text("error_type: KeyError\nattribution: user\nroot_cause_line: 4\n")
    (root / f"evil{EVIL.replace('/', '')}.log").write_text(FAILED.replace("'x'", EVIL))
    (root / f"evil{EVIL.replace('/', '')}.yaml").write_text("error_type: ECCError\nattribution: infrastructure\n")
    (root / "healthy" / "quiet.log").write_text("step 1\nstep 2\ntraining finished, exit code: 0\n")
    (root / "broken.log").write_bytes(b"\x7fELF\x00\x00\x00" * 99)
    (root / "broken.yaml").write_text("error_type: ECCError\n")
    (root / "unusable.yaml").write_text("error_type: [ECCError]\n")
    return root


def test_text(call: Call, cases: Path) -> None:
    outcome = call("eval", str(cases), "--verbose")
    assert outcome.code == 1
    assert "4 cases, 1 broken, 1 unusable; ruleset" in outcome.out
    assert re.search(r"^type +1/3 33\.3 % \(6-79\) ", outcome.out, re.MULTILINE)
    assert "first grep hit" in outcome.out
    assert "broken: broken: nothing to read" in outcome.out
    assert "unusable: unusable: error_type is" in outcome.out
    assert "\x1b" not in outcome.out
    assert "diagnose: 4 of 4 cases" in outcome.err


def test_json_fits_its_schema(call: Call, cases: Path) -> None:
    outcome = call("eval", str(cases), "--format", "json", "--quiet")
    assert outcome.err == ""
    told = json.loads(outcome.out)
    with open(os.path.join(ROOT, "docs", "evaluation.schema.json"), encoding="utf-8") as file:
        assert [error.message for error in Draft202012Validator(json.load(file)).iter_errors(told)] == []
    assert [case["want"] for case in told["cases"]] == ["ECCError", "ECCError", "no_failure", "KeyError"]
    assert told["methods"]["diagnose"]["rates"]["type"] == {
        "right": 1, "of": 3, "rate": 0.3333, "low": 0.0615, "high": 0.7923,
    }  # fmt: skip


class Page(HTMLParser):
    """What a browser makes of a page: its tags with attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html_is_self_contained_and_holds_hostile_text_as_text(call: Call, cases: Path, tmp_path: Path) -> None:
    assert call("eval", str(cases), "--format", "html", "--output", str(tmp_path / "e.html"), "-q").code == 1
    text = (tmp_path / "e.html").read_text()
    page = Page(text)
    assert {tag for tag, _ in page.tags} <= {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "div", "table", "thead", "tbody", "tr", "th",
        "td", "svg", "rect", "line", "text", "circle", "polyline", "g",
    }  # fmt: skip
    assert not [attrs for _, attrs in page.tags if {"src", "href", "style", "onload"} & attrs.keys()]
    assert "<script>alert(1)" in page.text  # as text
    assert "\u202e" not in text
    assert "\\u202e" in text
    assert "\x1b" not in text
    (policy,) = [attrs["content"] for tag, attrs in page.tags if attrs.get("http-equiv")]
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "http:" not in text
    assert "https:" not in text


def test_without_rules(call: Call, cases: Path) -> None:
    told = json.loads(call("eval", str(cases), "--format=json", "-q", "--without-rules", "all", "--no-baselines").out)
    assert told["setup"]["without_rules"] == ["all"]
    assert list(told["methods"]) == ["diagnose"]
    assert told["methods"]["diagnose"]["rates"]["type"]["right"] == 0
    some = json.loads(call("eval", str(cases), "--format=json", "-q", "--without-rules", "ECCError, NVLinkError").out)
    assert some["methods"]["diagnose"]["rates"]["type"]["right"] == 1


def test_half_is_remembered_and_half_is_tested(call: Call, tmp_path: Path) -> None:
    for number in range(6):
        kind = "KeyError" if number % 2 else "ValueError"
        (tmp_path / f"c{number}.log").write_text(FAILED.replace("KeyError", kind).replace("'x'", f"'{number}'"))
        (tmp_path / f"c{number}.yaml").write_text(f"error_type: {kind}\nattribution: user\n")
    arguments = ("eval", str(tmp_path), "-q", "--no-baselines", "--format", "json", "--without-rules", "all", "--split")
    outcome = call(*arguments, "a")
    assert outcome.code == 0
    told = json.loads(outcome.out)
    assert told["setup"]["stored_incidents"] == 3
    assert told["setup"]["split"] == "a"
    assert len(told["cases"]) == 3
    assert all(case["answers"]["diagnose"]["nearest"] for case in told["cases"])
    assert told["methods"]["diagnose"]["nearest_3"]["of"] >= 1
    again = json.loads(call(*arguments, "a").out)
    assert [case["name"] for case in again["cases"]] == [case["name"] for case in told["cases"]]
    # What is tested is not remembered, not even from elsewhere.
    both = json.loads(call(*arguments, "a", "--store", str(tmp_path)).out)
    assert both["setup"]["stored_incidents"] == 3
    gone = call("eval", str(tmp_path), "-q", "--store", str(tmp_path / "gone" / "no.sqlite3"))
    assert gone.code == 2


def test_a_model_must_be_configured(call: Call, cases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DIAGNOSE_LLM_BASE_URL", raising=False)
    monkeypatch.delenv("DIAGNOSE_LLM_MODEL", raising=False)
    outcome = call("eval", str(cases), "--llm")
    assert outcome.code == 2
    assert "no model is configured: set DIAGNOSE_LLM_BASE_URL" in outcome.err


@pytest.mark.enable_socket
@pytest.mark.allow_hosts(["127.0.0.1"])
def test_a_model_is_asked_and_counted(call: Call, cases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with model_server(lambda _asked: completion({"label": "no such answer"})) as server:
        monkeypatch.setenv("DIAGNOSE_LLM_BASE_URL", server.url)
        monkeypatch.setenv("DIAGNOSE_LLM_MODEL", "scripted")
        monkeypatch.setenv("DIAGNOSE_LLM_STATE", "none")
        outcome = call("eval", str(cases), "-q", "--llm", "--without-rules", "all", "--no-baselines")
    assert "model scripted" in outcome.out
    assert re.search(r"^model: .*rejected 2", outcome.out, re.MULTILINE)
    assert re.search(r"^tokens: \d\d+ in, \d+ out by \d+ calls", outcome.out, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["gone"], "gone is no directory"),
        (
            [os.path.join(FIXTURES, "healthy", "mmengine-broken-image-skipped"), "--without-rules", "ECCErr"],
            "did you mean ECCError",
        ),
        ([os.path.join(ROOT, "docs")], "no labelled cases under"),
        ([], "CASES_DIR"),
        (["x", "--jobs", "0"], "is no number from 1 to 64"),
        (["x", "--timeout", "nan"], "is no number of seconds"),
        (["x", "--format", "xml"], "invalid choice"),
    ],
)
def test_errors(call: Call, arguments: list[str], told: str) -> None:
    outcome = call("eval", *arguments)
    assert outcome.code == 2
    assert told in outcome.err
    assert "Traceback" not in outcome.err


def test_an_output_that_cannot_be_written(call: Call, cases: Path) -> None:
    outcome = call("eval", str(cases / "healthy"), "-q", "--output", str(cases / "gone" / "x"))
    assert (outcome.code, "cannot write" in outcome.err) == (2, True)


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """Cases that take a while."""
    (tmp_path / "c0.log").write_text("a line of a job\n" * 200_000 + FAILED)
    for number in range(20):
        if number:
            os.link(tmp_path / "c0.log", tmp_path / f"c{number}.log")
        (tmp_path / f"c{number}.yaml").write_text("error_type: KeyError\n")
    return tmp_path


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ended_early_it_leaves_nothing_behind(many: Path, number: signal.Signals, code: int) -> None:
    process = start("eval", str(many), "--jobs", "2", "-o", str(many / "out.txt"))
    assert process.stderr is not None
    assert b"cases" in process.stderr.readline()
    children = _children(process)
    assert children
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert b"Traceback" not in err
    assert not (many / "out.txt").exists()
    assert [child for child in children if _alive(child)] == []


def _children(process: subprocess.Popen[bytes]) -> list[int]:
    """The processes that work for another one."""
    with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


def _alive(pid: int) -> bool:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return False
        except OSError:
            return False
        time.sleep(0.05)
    return True
