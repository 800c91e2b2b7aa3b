"""Logs over HTTP while their job runs: taken by offset, packed or not, diagnosed after its end; and a server that is killed."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from diagnose.sources.packed import _zstd_module
from tests.serving import KEY_ERROR, environment_of, serving

AT = "/v1/jobs/gx/4711/0"
SOON = {"DIAGNOSE_LATE_RANKS": "0.5,0.2,3"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with serving(tmp_path_factory.mktemp("service"), **SOON) as made:
        yield made


def put(
    client: TestClient, path: str, data: bytes, offset: int, headers: dict[str, str] | None = None, **query: Any
) -> Any:
    return client.put(path, params={"offset": offset, **query}, content=data, headers=headers)


def report(client: TestClient, place: str) -> dict[str, Any]:
    for _ in range(300):
        answer = client.get(place, headers={"Prefer": "wait=20"})
        if answer.status_code == 200:
            return answer.json()
        assert answer.status_code == 202, answer.text
        time.sleep(0.1)
    raise AssertionError("no report came")


def test_what_a_sender_has_lost_is_told_by_the_report(client: TestClient) -> None:
    at = "/v1/jobs/gx/4712/0"
    assert put(client, f"{at}/logs/r0.log", KEY_ERROR.encode(), 0).status_code == 200
    said = {"exit": {"code": 1}, "lost": [{"name": "n1/../r0\u202e.log", "bytes": 123}]}
    place = client.post(f"{at}/end", json=said).headers["location"]
    assert (
        report(client, place)["coverage"]["not_read"][0] == "n1/r0?.log: 123 bytes were lost before they could be sent"
    )


def test_from_chunks_to_a_report(client: TestClient) -> None:
    data = KEY_ERROR.encode()
    log = f"{AT}/logs/ranks/r3.log"
    assert client.get(log).json()["offset"] == 0
    assert put(client, log, data[:50], 0).json() == {"generation": 0, "offset": 50, "new": 50, "guard": None}
    assert put(client, log, gzip.compress(data[20:90]), 20, {"Content-Encoding": "gzip"}).json()["new"] == 40
    gap = put(client, log, b"x", 100)
    assert gap.status_code == 409
    assert gap.headers["content-type"] == "application/problem+json"
    assert (gap.json()["type"], gap.json()["offset"]) == ("urn:diagnose:problem:offset-gap", 90)
    packed = _zstd_module().compress(data[90:])
    assert put(client, log, packed, 90, {"Content-Encoding": "zstd"}).json()["offset"] == len(data)
    assert put(client, log, data, 0).json()["new"] == 0
    assert client.get(log).json()["offset"] == len(data)
    ended = client.post(f"{AT}/end", json={"scheduler": "slurm", "exit": {"code": 1}, "nodes": ["gx-1"]})
    assert ended.status_code == 202
    assert ended.json()["new"]
    assert not client.post(f"{AT}/end").json()["new"]
    found = report(client, ended.headers["location"])
    assert found["root_cause"]["evidence"][0]["source"] == "ranks/r3.log"
    assert {source["source"] for source in found["coverage"]["sources"]} == {"ranks/r3.log", "slurm-4711.sacct"}
    # It is diagnosed once more with what comes later.
    assert put(client, f"{AT}/logs/ranks/r4.log", b"step 1 loss 2.0\n", 0).status_code == 200
    for _ in range(300):
        found = report(client, ended.headers["location"])
        if len(found["coverage"]["sources"]) == 3:
            break
        time.sleep(0.1)
    assert len(found["coverage"]["sources"]) == 3
    assert client.delete(ended.headers["location"]).status_code == 204
    assert client.get(log).json()["offset"] == 0


def test_a_job_that_has_ended_is_there_at_once(tmp_path: Path) -> None:
    with serving(tmp_path, DIAGNOSE_LATE_RANKS="3,1,20") as client:
        assert put(client, f"{AT}/logs/job.log", KEY_ERROR.encode(), 0).status_code == 200
        ended = client.post(f"{AT}/end", json={"exit": {"code": 1}})
        place = ended.headers["location"]
        assert ended.headers["retry-after"] == "3"
        first = client.get(place)
        assert (first.status_code, first.json()["state"], first.json()["exit"]["code"]) == (202, "queued", 1)
        assert 1 <= int(first.headers["retry-after"]) <= 3
        assert [one["id"] for one in client.get("/v1/diagnoses?state=queued").json()["items"]] == [ended.json()["id"]]
        # A hook hands the same job in with a log of its own: it is read with what was streamed, and not before.
        kernel = client.post("/v1/uploads", params={"name": "dmesg"}, content=b"[1.0] all is well\n").json()["id"]
        job = {"job_id": "4711", "cluster": "gx", "kernel_logs": [{"upload": kernel}]}
        for _ in range(2):
            again = client.post("/v1/diagnoses", json=job)
            assert (again.status_code, again.headers["location"], again.json()["state"]) == (202, place, "queued")
        upload = client.post("/v1/uploads", params={"name": "more.log"}, content=b"another line\n").json()["id"]
        more = client.post(f"{place}/inputs", json={"logs": [{"upload": upload}]})
        assert more.json()["state"] == "queued"
        began = time.monotonic()
        found = client.get(place, headers={"Prefer": "wait=60"})
        assert found.status_code == 200
        assert time.monotonic() - began > 1.0  # it was waited for
        assert sorted(one["source"] for one in found.json()["coverage"]["sources"]) == ["dmesg", "job.log", "more.log"]


def test_a_job_that_is_deleted_while_it_waits_does_not_come_back(tmp_path: Path) -> None:
    with serving(tmp_path, DIAGNOSE_LATE_RANKS="1,0.5,20") as client:
        assert put(client, f"{AT}/logs/job.log", KEY_ERROR.encode(), 0).status_code == 200
        place = client.post(f"{AT}/end").headers["location"]
        assert client.delete(place).status_code == 204
        assert client.get(f"{AT}/logs/job.log").json()["offset"] == 0
        time.sleep(2.5)
        assert client.get(place).status_code == 404
        assert client.get("/v1/diagnoses").json()["items"] == []


def test_the_end_of_a_job_that_was_diagnosed_before_has_it_diagnosed_again(tmp_path: Path) -> None:
    with serving(tmp_path, **SOON) as client:
        job = {"job_id": "4711", "cluster": "gx"}
        place = client.post("/v1/diagnoses", json=job, headers={"Prefer": "wait=60"}).headers["location"]
        assert put(client, f"{AT}/logs/job.log", KEY_ERROR.encode(), 0).status_code == 200
        assert client.post(f"{AT}/end").headers["location"] == place
        for _ in range(300):
            found = client.get(f"{place}/state").json()
            if found["revision"] == 2 and found["state"] == "done":
                break
            time.sleep(0.1)
        assert found["verdict"]["error_type"] == "KeyError"


def test_what_cannot_be_taken_is_a_problem(client: TestClient) -> None:
    log = f"{AT}/logs/x.log"
    own = client.get(log).json()["guard"]
    for answer, status, kind in (
        (put(client, log, b"x", 0, form="kept", guard="0" * 32), 409, "guard-differs"),
        (put(client, log, b"x", 0, {"Content-Encoding": "gzip"}), 422, "bad-encoding"),
        (put(client, log, b"x", 0, {"Content-Encoding": "br"}), 422, "bad-encoding"),
        (put(client, log, b"x" * 5_000_000, 0), 413, "content-too-large"),
        (put(client, log, _zstd_module().compress(bytes(50_000_000)), 0, {"Content-Encoding": "zstd"}), 413, "chunk-too-large"),
        (put(client, log, b"x", 5), 409, "offset-gap"),
        (put(client, log, b"x", 0, form="kept", guard=own), 422, "bad-kept-log"),
        (put(client, log, b"diagnose-kept/1 ?\n", 0, form="kept", guard=own), 422, "bad-kept-log"),
        (put(client, log, b"x", -5), 422, None),
        (put(client, log, b"x", 0, form="baked"), 422, None),
        (put(client, "/v1/jobs/gx/4711/none/logs/x", b"x", 0), 422, None),
        (client.post(f"{AT}/end", json={"what": 1}), 422, None),
    ):  # fmt: skip
        assert answer.status_code == status, answer.text
        assert kind is None or kind in answer.json()["type"].replace("request-entity", "content"), answer.text


def served(folder: Path, port: int) -> subprocess.Popen[bytes]:
    code = "import sys; from diagnose.cli import main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "serve", "--port", str(port), "--log-level", "error"],
        env=environment_of(folder, **SOON), stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    for _ in range(600):
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5):
            return process
        assert process.poll() is None
        time.sleep(0.05)
    raise AssertionError("it does not serve")


def send(port: int, data: bytes, offset: int) -> int:
    address = f"http://127.0.0.1:{port}{AT}/logs/job.log?offset={offset}"
    request = urllib.request.Request(
        address, data=data, method="PUT", headers={"Content-Type": "application/octet-stream"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return int(json.load(answer)["offset"])


def fetched(port: int, place: str) -> dict[str, Any]:
    for _ in range(300):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{place}", timeout=30) as answer:
                if answer.status == 200:
                    return json.load(answer)
        except urllib.error.HTTPError as error:
            error.close()
        time.sleep(0.1)
    raise AssertionError("no report came")


@pytest.mark.allow_hosts(["127.0.0.1"])
def test_what_a_killed_server_has_acknowledged_is_there(tmp_path: Path) -> None:
    """`kill -9` in mid-stream, three times; then the job is diagnosed as if nothing had been."""
    log = (
        b"".join(b"2026-10-01 00:00:%02d INFO step %d loss 2.1\n" % (step % 60, step) for step in range(9000))
        + KEY_ERROR.encode()
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    acknowledged = 0
    for wanted in (100_000, 200_000, 300_000, len(log)):
        process = served(tmp_path, port)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{AT}/logs/job.log", timeout=10) as answer:
                known = int(json.load(answer)["offset"])
            assert known >= acknowledged
            stored = b"".join(path.read_bytes() for path in sorted((tmp_path / "spool" / "streams").rglob("*.raw.*")))
            assert stored == log[:known]
            acknowledged = known
            while acknowledged < wanted:
                acknowledged = send(port, log[acknowledged : acknowledged + 7000], acknowledged)
            if wanted == len(log):
                end = urllib.request.Request(
                    f"http://127.0.0.1:{port}{AT}/end",
                    data=b"{}",
                    method="POST",
                    headers={"Content-Type": "application/json"},
                )
                with urllib.request.urlopen(end, timeout=10) as answer:
                    place = answer.headers["location"]
                found = fetched(port, place)
                assert found["root_cause"]["evidence"][0]["line"] == log.count(b"\n")
                process.terminate()
        finally:
            with contextlib.suppress(ProcessLookupError):
                if wanted != len(log):
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
            assert process.stderr is not None
            process.stderr.close()


def test_chunks_are_limited_by_their_bytes_not_by_their_number(tmp_path: Path) -> None:
    with serving(tmp_path, DIAGNOSE_RATE="2", DIAGNOSE_STREAM_MB="1", **SOON) as client:
        line = b"step 1 loss 2.0\n"
        for number in range(10):
            assert put(client, f"{AT}/logs/a.log", line, number * len(line)).status_code == 200
        whole = line * 65_536
        assert put(client, f"{AT}/logs/b.log", whole, 0).status_code == 200  # what is left is enough to begin
        refused = put(client, f"{AT}/logs/b.log", line, len(whole))
        assert (refused.status_code, int(refused.headers["retry-after"]) >= 1) == (429, True)
        assert "MB of streamed logs" in refused.json()["detail"]
        assert client.post(f"{AT}/end", json={}).status_code == 202  # a request like any other


def test_small_chunks_count_too(tmp_path: Path) -> None:
    with serving(tmp_path, DIAGNOSE_STREAM_MB="1", **SOON) as client:
        answers = [put(client, f"{AT}/logs/a.log", b"", 0).status_code for _ in range(100)]
    assert (answers[0], answers[-1]) == (200, 429)


def test_the_chunks_of_a_log_are_one_row_of_the_audit(tmp_path: Path) -> None:
    with serving(tmp_path, **SOON) as client:
        for offset in (0, 2, 4, 99, 99):
            put(client, f"{AT}/logs/a.log", b"x\n", offset)
        put(client, f"{AT}/logs/b.log", b"x\n", 0)
        rows: list[tuple[str, int]] = []
        until = time.monotonic() + 10
        while len(rows) < 3 and time.monotonic() < until:
            time.sleep(0.1)
            items = client.get("/v1/audit").json()["items"]
            rows = [(one["object"], one["status"]) for one in items if one["action"].startswith("PUT ")]
    log = AT.removeprefix("/v1/jobs/")
    assert sorted(rows) == [(f"{log}/a.log", 200), (f"{log}/a.log", 409), (f"{log}/b.log", 200)]
