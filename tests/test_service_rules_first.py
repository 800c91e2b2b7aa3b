"""Rules answer first: their report is there while a model hangs, and nothing that was given changes after."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving import KEY_ERROR, job, serving, upload

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])
OPEN = "2026-10-01 00:00:10 INFO step 1 loss 2.1\n2026-10-01 00:00:11 ERROR bridge watcher: the lane failed its shake\n"


@pytest.fixture
def hanging() -> Iterator[str]:
    """A model's server that takes every question and answers none."""
    held: list[socket.socket] = []
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()

        def accept() -> None:
            while True:
                try:
                    held.append(listening.accept()[0])
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        listening.shutdown(socket.SHUT_RDWR)
        for one in held:
            one.close()


def test_a_model_that_hangs_delays_no_report(hanging: str, tmp_path: Path) -> None:
    settings = {"DIAGNOSE_LLM_BASE_URL": hanging, "DIAGNOSE_LLM_MODEL": "m", "DIAGNOSE_LLM_DEADLINE": "8"}
    with serving(tmp_path, **settings) as client:
        known = client.post("/v1/diagnoses", json=job("0", upload(client, KEY_ERROR)), headers={"Prefer": "wait=60"})
        assert known.status_code == 200  # the process that diagnoses is there, whatever else this machine does
        answer = client.post("/v1/diagnoses", json=job("1", upload(client, OPEN)), headers={"Prefer": "wait=5"})
        assert (answer.status_code, answer.headers["diagnosis-state"]) == (200, "rules_done"), answer.text
        where, first = answer.headers["location"], answer.json()
        last = client.get(where, headers={"Prefer": "wait=60"})
        assert last.headers["diagnosis-state"] == "done"
        assert last.json()["decided_by"]["agent_state"] == "unavailable"
        assert last.json()["recovery"] == first["recovery"]


def test_a_chroma_server_that_is_away_ends_no_diagnosis(tmp_path: Path) -> None:
    """Past incidents cannot be looked up: the report does without, and whoever asks for them is told to come again."""
    settings = {"DIAGNOSE_CHROMA_URL": "http://127.0.0.1:9", "DIAGNOSE_VECTORS": "chroma"}
    with serving(tmp_path, **settings) as client:
        failed = client.post("/v1/diagnoses", json=job("1", upload(client, KEY_ERROR)), headers={"Prefer": "wait=60"})
        assert failed.json()["error_type"] == "KeyError"
        answer = client.post("/v1/diagnoses", json=job("2", upload(client, OPEN)), headers={"Prefer": "wait=60"})
        assert (answer.status_code, answer.headers["diagnosis-state"]) == (200, "done"), answer.text
        similar = client.get(f"{failed.headers['location']}/similar")
        assert (similar.status_code, "no Chroma server" in similar.json()["detail"]) == (503, True)
        assert similar.headers["retry-after"]
