"""What stands in deploy/ and beside it: the compose file as far as it can be checked here, and the same without it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.serving import KEY_ERROR
from tests.topology import _CLI, free_port

ROOT = Path(__file__).parent.parent
COMPOSE = ROOT / "docker-compose.yml"


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text())["services"]
    return found


def test_the_compose_file_has_the_parts_and_they_wait_for_each_other() -> None:
    found = services()
    assert set(found) == {"postgres", "chroma", "migrate", "api", "worker", "ollama", "vllm"}
    assert {name for name, one in found.items() if "profiles" in one} == {"ollama", "vllm"}
    for one in found.values():
        assert set(one.get("depends_on", {})) <= set(found)
        assert "healthcheck" in one or "build" in one  # the image has one of its own
    assert found["api"]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"


@pytest.mark.parametrize("name", ["postgres", "chroma", "migrate", "api", "worker"])
def test_containers_can_do_little(name: str) -> None:
    one = services()[name]
    assert one["read_only"] is True
    assert one["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in one["security_opt"]
    assert name == "postgres" or one["user"] != "0"


def test_volumes_and_variables_are_declared() -> None:
    document, text = yaml.safe_load(COMPOSE.read_text()), COMPOSE.read_text()
    used = {
        volume.split(":")[0]
        for one in services().values()
        for volume in one.get("volumes", [])
        if volume[0] not in "/$"
    }
    assert used == set(document["volumes"])
    assert set(re.findall(r"\$\{(\w+):\?", text)) == {"POSTGRES_PASSWORD", "DIAGNOSE_LOGS"}
    assert "USER 10001" in (ROOT / "Dockerfile").read_text()


@pytest.mark.slow
@pytest.mark.allow_hosts(["127.0.0.1"])
def test_the_topology_without_containers(tmp_path: Path) -> None:
    """Postgres, Chroma, the API and two workers, by one script; a job goes through, and all of it ends with the script."""
    command = tmp_path / "diagnose"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{_CLI}" "$@"\n')
    command.chmod(0o755)
    port = free_port()
    environment = {
        **{name: os.environ[name] for name in ("PATH", "HOME", "XDG_CACHE_HOME") if name in os.environ},
        "PYTHONPATH": str(ROOT),
        "DIAGNOSE": str(command),
        "PYTHON": sys.executable,
        "DIAGNOSE_PORT": str(port),
        "CHROMA_PORT": str(free_port()),
        "DIAGNOSE_PROCESSES": "1",
    }
    with (tmp_path / "said").open("wb") as said:
        script = subprocess.Popen(
            [str(ROOT / "deploy" / "topology"), str(tmp_path / "home")], env=environment, stdout=said, stderr=said,
            start_new_session=True,
        )  # fmt: skip
    try:
        until = time.monotonic() + 120
        while "ready" not in (tmp_path / "said").read_text():
            assert script.poll() is None, (tmp_path / "said").read_text()
            assert time.monotonic() < until, (tmp_path / "said").read_text()
            time.sleep(0.2)
        answer = httpx.post(
            f"http://127.0.0.1:{port}/v1/diagnoses", data={"job": '{"job_id": "1"}'},
            files=[("logs", ("job.log", KEY_ERROR.encode()))], headers={"Prefer": "wait=60"}, timeout=90,
        )  # fmt: skip
        assert (answer.status_code, answer.json().get("error_type")) == (200, "KeyError")
        script.send_signal(signal.SIGTERM)
        assert script.wait(90) == 0
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://127.0.0.1:{port}/healthz")
    finally:
        if script.poll() is None:
            os.killpg(script.pid, signal.SIGKILL)
        script.wait()
