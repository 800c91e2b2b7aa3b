"""A service and the command line on one's own machine: one history, and a list that says what it does not show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commandline import caller
from tests.serving import KEY_ERROR, job, serving, upload


def test_the_command_line_and_the_service_share_one_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    call = caller(capsys, monkeypatch)
    monkeypatch.setenv("DIAGNOSE_DATABASE", str(tmp_path / "memory.sqlite3"))
    (tmp_path / "job.log").write_text(KEY_ERROR)
    who = ("--name", "pretrain", "--user", "ada")
    assert call(str(tmp_path / "job.log"), "--record", *who).err.startswith("diagnose: recorded as incident")
    with serving(tmp_path) as client:
        assert client.get("/v1/diagnoses").json()["items"] == []  # it lists what was handed in
        text = client.get("/diagnoses").text
        assert "Nothing was handed in yet" in text
        assert "<code>diagnose incidents list</code> shows them" in text  # and says where the others are
        [known] = client.get("/v1/incidents").json()["items"]
        assert known["error_type"] == "KeyError"
        later = KEY_ERROR.replace("2026-10-01", "2026-10-02")
        body = job("2", upload(client, later), name="pretrain", user="ada")
        report = client.post("/v1/diagnoses", json=body, headers={"Prefer": "wait=60"})
        assert "this workload failed alike once before" in report.text
        form = {"job": json.dumps({"job_id": "3", "name": "pretrain", "user": "ada", "project": "p"})}
        log = ("job.log", later.replace("10-02", "10-03").encode())
        report = client.post("/v1/diagnoses", data=form, files=[("logs", log)], headers={"Prefer": "wait=60"})
        assert (report.status_code, report.json().get("error_type")) == (200, "KeyError"), report.text
        assert "failed alike" not in report.text
    assert len(call("incidents", "list").out.splitlines()) == 4  # a head, and what both have recorded
