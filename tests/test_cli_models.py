"""`diagnose` with a model to ask: settings by environment and command line, and what people see of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.asking import LOG, answer, right
from tests.commandline import Outcome, caller
from tests.modelserver import completion, model_server, refused

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])
KEY = "sk-live-5f4dcc3b5aa765d61d8327deb882cf99"


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Outcome]:
    """The command line within this process, beside a log that no rule knows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "job.log").write_text(LOG)
    return caller(capsys, monkeypatch)


def test_a_model_is_asked_as_the_environment_says(
    call: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text(KEY + "\n")
    with model_server(lambda asked: completion(right(asked))) as server:
        monkeypatch.setenv("DIAGNOSE_LLM_BASE_URL", server.url)
        monkeypatch.setenv("DIAGNOSE_LLM_MODEL", "from-the-environment")
        monkeypatch.setenv("DIAGNOSE_LLM_API_KEY_FILE", "key")
        text = call("job.log")
        named = call("job.log", "--llm-model", "from-the-line", "--format", "json")
        without = call("job.log", "--no-llm", "--format", "json")
        assert [asked.body["model"] for asked in server.asked] == ["from-the-environment", "from-the-line"]
        assert KEY in server.asked[0].head
    assert text.code == 0
    assert "NVLinkError" in text.out
    assert text.out.splitlines()[0].endswith("by a model")
    assert "from-the-environment: answered" in text.out
    assert json.loads(named.out)["decided_by"]["model"] == "from-the-line"
    assert json.loads(without.out)["decided_by"]["agent_state"] == "not_configured"
    assert KEY not in text.out + text.err + named.out + named.err
    for path in (tmp_path / "state").rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes()
            assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "environment, says",
    [
        ({"BASE_URL": "http://127.0.0.1:1/v1"}, "DIAGNOSE_LLM_MODEL"),
        ({"MODEL": "m"}, "DIAGNOSE_LLM_BASE_URL"),
        ({"BASE_URL": "ftp://x/v1", "MODEL": "m"}, "no address"),
        ({"BASE_URL": "http://user:hunter2@x/v1", "MODEL": "m"}, "leave out user"),
        ({"BASE_URL": "http://x:99999/v1", "MODEL": "m"}, "no address"),
        ({"BASE_URL": "http://x/v1", "MODEL": "m\x1b[31m"}, "no name of a model"),
        ({"BASE_URL": "http://x/v1", "MODEL": "m", "API_KEY_FILE": "/nowhere/key"}, "cannot be read"),
        ({"BASE_URL": "http://x/v1", "MODEL": "m", "API_KEY_FILE": "empty"}, "is empty"),
        ({"BASE_URL": "http://x/v1", "MODEL": "m", "API_KEY": "two words\nX-Evil: 1"}, "holds no key"),
        ({"BASE_URL": "http://x/v1", "MODEL": "m", "SECONDS": "soon"}, "DIAGNOSE_LLM_SECONDS"),
        ({"BASE_URL": "http://x/v1", "MODEL": "m", "SECONDS": "nan"}, "DIAGNOSE_LLM_SECONDS"),
        ({"BASE_URL": "http://x/v1", "MODEL": "m", "TOKENS": "-1"}, "DIAGNOSE_LLM_TOKENS"),
        ({"BASE_URL": "http://x/v1", "MODEL": "m", "DAY_TOKENS": "9" * 50}, "DIAGNOSE_LLM_DAY_TOKENS"),
        ({"BASE_URL": "http://x/v1", "MODEL": "m", "SAMPLES": "0"}, "DIAGNOSE_LLM_SAMPLES"),
    ],
)
def test_settings_that_cannot_be_meant_are_told_in_a_line(
    environment: dict[str, str],
    says: str,
    call: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / "empty").write_text("\n")
    for name, value in environment.items():
        monkeypatch.setenv(f"DIAGNOSE_LLM_{name}", value)
    outcome = call("job.log")
    assert outcome.code == 2
    assert says in outcome.err
    assert outcome.err.count("\n") == 1
    assert "hunter2" not in outcome.err
    assert "two words" not in outcome.err
    assert call("job.log", "--no-llm").code == 0


def test_an_outage_is_told_and_changes_nothing_else(
    call: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIAGNOSE_LLM_MODEL", "m")
    monkeypatch.setenv("DIAGNOSE_LLM_BASE_URL", "http://127.0.0.1:1/v1")
    away = call("job.log")
    assert away.code == 0
    assert "Asked" in away.out
    assert "cannot be reached" in " ".join(away.out.split())
    alone = call("job.log", "--no-llm")
    assert alone.out.splitlines()[0] == away.out.splitlines()[0]


@pytest.mark.parametrize("reply, state", [("refused", "unavailable"), ("wrong", "rejected"), ("unsure", "abstained")])
def test_states_in_every_format(
    reply: str, state: str, call: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"refused": refused(401), "wrong": completion("?"), "unsure": completion(answer("cannot_tell"))}[reply]
    with model_server(lambda _: said) as server:
        monkeypatch.setenv("DIAGNOSE_LLM_MODEL", "m")
        monkeypatch.setenv("DIAGNOSE_LLM_BASE_URL", server.url)
        for form in ("text", "markdown"):
            shown = call("job.log", "--format", form).out
            assert {"abstained": "cannot tell"}.get(state, state) in shown
        assert json.loads(call("job.log", "--format", "json").out)["decided_by"]["agent_state"] == state
