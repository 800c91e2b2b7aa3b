"""Jobs handed in over HTTP, and what is read of them: the same as the command line says."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.serving import KEY_ERROR, environment_of, job, serving, upload

_CLI = "import sys; from diagnose.cli import main; sys.exit(main())"
WAIT = {"Prefer": "wait=60"}
FAILED = Path(__file__).parent / "fixtures" / "incidents" / "ecc-on-one-of-two-hosts"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("service")
    (made / "logs").mkdir()
    return made


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    with serving(folder, DIAGNOSE_ROOTS=f"{folder / 'logs'}:{FAILED.resolve()}") as made:
        yield made


def without_time(report: dict[str, Any]) -> dict[str, Any]:
    return {**report, "stats": {**report["stats"], "seconds": 0}}


def test_the_command_line_and_the_service_give_the_same_json(client: TestClient, folder: Path) -> None:
    """The one test that holds it; the database is the same, so the history is too."""
    paths = [str(FAILED.resolve() / "ranks")]
    kernel = str(FAILED.resolve() / "qx-12.dmesg.txt")
    body = {"job_id": "same", "logs": [{"path": paths[0]}], "kernel_logs": [{"path": kernel}]}
    answer = client.post("/v1/diagnoses", json=body, headers=WAIT)
    assert answer.status_code == 200, answer.text
    command = [sys.executable, "-c", _CLI, *paths, "--kernel-log", kernel, "--job-id", "same"]
    printed = subprocess.run(
        [*command, "--format", "json"], capture_output=True, env=environment_of(folder), check=False, timeout=120
    )
    assert printed.returncode == 0, printed.stderr
    assert without_time(json.loads(printed.stdout)) == without_time(answer.json())
    seconds = re.compile(rb'"seconds": [0-9.e-]+')
    read = client.get(answer.headers["location"])
    assert seconds.sub(b"", read.content) == seconds.sub(b"", printed.stdout), "to the byte"


def test_the_readmes_example_is_what_the_service_answers(client: TestClient) -> None:
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    shown = readme.split("<!-- served -->")[1].split("```text\n", 1)[1].split("```", 1)[0]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(FAILED / "ranks", "ranks")
    files = [
        ("logs", ("ranks.tar.gz", packed.getvalue())),
        ("kernel_logs", ("qx-12.dmesg.txt", (FAILED / "qx-12.dmesg.txt").read_bytes())),
    ]
    form = {"job": json.dumps({"job_id": "4711", "name": "readme", "user": "ada", "cluster": "readme"})}
    answer = client.post("/v1/diagnoses", data=form, files=files, headers={**WAIT, "Accept": "text/plain"})
    seconds = re.compile(r"\d+\.\d s;")
    # What other tests have recorded of this host is told as well.
    lines = [line for line in answer.text.splitlines() if not line.startswith(("Why ", "Changed"))]
    assert seconds.sub("", "\n".join(lines[:5])) == seconds.sub("", "\n".join(shown.splitlines()[:5]))
    assert seconds.sub("", lines[-1]) == seconds.sub("", shown.splitlines()[-1])


def test_a_job_is_accepted_and_then_done(client: TestClient) -> None:
    body = job("accepted", upload(client, KEY_ERROR), name="qx7b", user="ada", gpus=8)
    answer = client.post("/v1/diagnoses", json=body)
    assert answer.status_code == 202
    assert answer.json()["state"] in ("queued", "running")
    assert int(answer.headers["retry-after"]) >= 1
    report = client.get(answer.headers["location"], headers=WAIT)
    assert (report.status_code, report.json()["error_type"]) == (200, "KeyError")
    assert report.headers["diagnosis-state"] == "done"
    state = client.get(f"{answer.headers['location']}/state").json()
    assert (state["state"], state["verdict"]["attribution"], state["user"]) == ("done", "user", "ada")


def test_the_same_job_again_is_the_same_resource(client: TestClient) -> None:
    body = job("twice", upload(client, KEY_ERROR))
    first = client.post("/v1/diagnoses", json=body, headers=WAIT)
    again = client.post("/v1/diagnoses", json=body)
    assert first.headers["location"] == again.headers["location"]
    assert (again.status_code, again.json()["state"]) == (200, "done")
    other = client.post("/v1/diagnoses", json={**body, "attempt": 1}, headers=WAIT)
    assert other.headers["location"] != first.headers["location"]


def test_an_idempotency_key_is_for_one_request(client: TestClient) -> None:
    body, key = job("key", upload(client, KEY_ERROR)), {"Idempotency-Key": "one"}
    first = client.post("/v1/diagnoses", json=body, headers=key)
    again = client.post("/v1/diagnoses", json=body, headers=key)
    assert first.headers["location"] == again.headers["location"]
    other = client.post("/v1/diagnoses", json={**body, "job_id": "another"}, headers=key)
    assert other.status_code == 409
    assert "Idempotency-Key" in other.json()["detail"]


def test_a_form_brings_job_and_logs_in_one_request(client: TestClient) -> None:
    files = [
        ("logs", ("ranks/r0.log", KEY_ERROR.encode())),
        ("logs", ("ranks/r1.log.gz", gzip.compress(b"2026-10-01 00:00:10 INFO step 1 loss 2.1\n" * 3))),
    ]
    form = {"job": json.dumps({"job_id": "form"})}
    answer = client.post("/v1/diagnoses", data=form, files=files, headers=WAIT)
    assert answer.status_code == 200, answer.text
    sources = [one["source"] for one in answer.json()["coverage"]["sources"]]
    assert sources == ["ranks/r0.log", "ranks/r1.log.gz"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'--x\r\nContent-Disposition: form-data; name="job"\r\n\r\n{}\r\n', "ends before"),
        (b'--x\r\nContent-Disposition: form-data; name="what"\r\n\r\n{}\r\n--x--\r\n', "a part is called"),
        (b"no form at all", "cannot be read"),
        (b'--x\r\nContent-Disposition: form-data; name="job"\r\n\r\n[]\r\n--x--\r\n', "an object"),
    ],
)
def test_a_broken_form_is_a_problem(client: TestClient, body: bytes, said: str) -> None:
    answer = client.post("/v1/diagnoses", content=body, headers={"Content-Type": "multipart/form-data; boundary=x"})
    assert answer.status_code == 422
    assert said in answer.json()["detail"]


@pytest.mark.parametrize(
    ("accept", "media", "word"),
    [
        ("text/markdown", "text/markdown", "KeyError"),
        ("text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", "text/html", '<h2 id="evidence">Evidence</h2>'),
        ("text/plain", "text/plain", "FAILED"),
        ("text/plain;q=0.4, text/markdown;q=0.8, */*;q=0.1", "text/markdown", "KeyError"),
        ("text/markdown;q=0.4, text/plain;q=0.8", "text/plain", "FAILED"),
        ("text/html;q=0, text/plain", "text/plain", "FAILED"),
        ("application/json;q=0, */*", "text/markdown", "KeyError"),
        ("*/*", "application/json", "diagnose.report/v1"),
    ],
)
def test_a_report_comes_in_the_form_that_is_asked_for(client: TestClient, accept: str, media: str, word: str) -> None:
    where = client.post("/v1/diagnoses", json=job("forms", upload(client, KEY_ERROR)), headers=WAIT).headers["location"]
    answer = client.get(where, headers={"Accept": accept})
    assert answer.headers["content-type"].partition(";")[0] == media
    assert word in answer.text
    same = client.get(where, headers={"Accept": accept, "If-None-Match": answer.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    assert client.get(where, headers={"Accept": "image/png"}).status_code == 406


def test_html_shows_hostile_logs_as_text(client: TestClient) -> None:
    log = KEY_ERROR.replace("'role'", "'<script>alert(1)</script>'")
    where = client.post("/v1/diagnoses", json=job("xss", upload(client, log)), headers=WAIT).headers["location"]
    page = client.get(where, headers={"Accept": "text/html"})
    assert "<script>" not in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_a_kernel_log_that_comes_later_is_read_too(client: TestClient) -> None:
    ranks = {"path": str(FAILED.resolve() / "ranks")}
    answer = client.post("/v1/diagnoses", json={"job_id": "later", "logs": [ranks]}, headers=WAIT)
    where, before = answer.headers["location"], len(answer.json()["coverage"]["sources"])
    more = {"kernel_logs": [{"path": str(FAILED.resolve() / "qx-12.dmesg.txt")}]}
    added = client.post(f"{where}/inputs", json=more, headers={"Idempotency-Key": "k"})
    assert (added.status_code, added.json()["revision"]) == (202, 2)
    report = client.get(where, headers=WAIT).json()
    assert len(report["coverage"]["sources"]) == before + 1
    assert report["sureness"] == "confirmed"
    again = client.post(f"{where}/inputs", json=more, headers={"Idempotency-Key": "k"})
    assert again.json()["revision"] == 2


def test_people_confirm_correct_and_tell_the_outcome(client: TestClient) -> None:
    where = client.post("/v1/diagnoses", json=job("said", upload(client, KEY_ERROR)), headers=WAIT).headers["location"]
    said = client.post(f"{where}/feedback", json={"kind": "outcome", "recovered": True}).json()
    assert (said["confirmed"], said["recovered"]) == (False, True)
    said = client.post(f"{where}/feedback", json={"kind": "confirm"}).json()
    assert (said["confirmed"], said["error_type"]) == (True, "KeyError")
    said = client.post(f"{where}/feedback", json={"kind": "correct", "error_type": "NetworkError"}).json()
    assert said["error_type"] == "NetworkError"
    unknown = client.post(f"{where}/feedback", json={"kind": "correct", "error_type": "Gremlins"})
    assert unknown.status_code == 422
    assert "taxonomy" in unknown.json()["detail"]


def test_similar_incidents_are_listed(client: TestClient) -> None:
    for number in ("alike-1", "alike-2"):
        where = client.post("/v1/diagnoses", json=job(number, upload(client, KEY_ERROR)), headers=WAIT).headers[
            "location"
        ]
    items = client.get(f"{where}/similar").json()["items"]
    assert items
    assert items[0]["error_type"] in ("KeyError", "NetworkError")
    assert items[0]["similarity"] > 0.5


def test_what_is_deleted_is_gone(client: TestClient, folder: Path) -> None:
    sent = upload(client, KEY_ERROR)
    where = client.post("/v1/diagnoses", json=job("gone", sent), headers=WAIT).headers["location"]
    incident = client.get(f"{where}/state").json()["incident"]
    assert incident
    assert client.delete(where).status_code == 204
    assert client.get(where).status_code == 404
    assert client.delete(where).status_code == 404
    assert not list((folder / "spool" / "uploads").rglob(sent))


def test_pages_hold_each_job_once(client: TestClient) -> None:
    sent = upload(client, KEY_ERROR)
    for number in range(5):
        client.post("/v1/diagnoses", json=job(f"p{number}", sent, user="pages"))
    found: list[str] = []
    cursor = None
    while True:
        page = client.get(
            "/v1/diagnoses", params={"limit": 2, "user": "pages", **({"cursor": cursor} if cursor else {})}
        ).json()
        found += [one["job_id"] for one in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert found == ["p4", "p3", "p2", "p1", "p0"]
    assert client.get("/v1/diagnoses", params={"cursor": "x"}).status_code == 422
    assert [one["job_id"] for one in client.get("/v1/diagnoses", params={"q": "p3"}).json()["items"]] == ["p3"]


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "a/../../b.log", "..", "-", "x" * 500, "é\u2028.log"]
)
def test_names_of_uploads_lead_nowhere(client: TestClient, folder: Path, name: str) -> None:
    answer = client.post("/v1/diagnoses", json=job(f"n{hash(name)}", upload(client, KEY_ERROR, name)), headers=WAIT)
    assert answer.status_code == 200, answer.text
    assert answer.json()["error_type"] == "KeyError"
    assert "spool" not in answer.text


def test_paths_outside_the_roots_are_refused(client: TestClient, folder: Path) -> None:
    (folder / "secret.log").write_text(KEY_ERROR)
    link = folder / "logs" / "link.log"
    if not link.is_symlink():
        link.symlink_to(folder / "secret.log")
        (folder / "logs" / "folder").symlink_to(folder)
    inside = folder / "logs" / "in.log"
    inside.write_text(KEY_ERROR)
    for path in (
        str(folder / "secret.log"), str(link), f"{folder}/logs/../secret.log", f"{folder}/logs/folder/secret.log",
        "/etc/passwd", "/proc/self/environ", f"{folder}/*.log", "/etc/nothing-there",
    ):  # fmt: skip
        answer = client.post("/v1/diagnoses", json={"job_id": "out", "logs": [{"path": path}]})
        assert answer.status_code == 422, path
        assert "outside the folders" in answer.json()["detail"]
    uri = client.post("/v1/diagnoses", json={"job_id": "out", "logs": [{"uri": "http://169.254.169.254/x"}]})
    assert "fetches nothing" in uri.json()["detail"]
    # A folder may hold links that lead out: what lies behind them is not read.
    whole = client.post("/v1/diagnoses", json={"job_id": "in", "logs": [{"path": f"{folder}/logs"}]}, headers=WAIT)
    assert [one["source"] for one in whole.json()["coverage"]["sources"]] == [str(inside)]
    assert any("outside the folders" in one for one in whole.json()["coverage"]["not_read"])
    good = client.post("/v1/diagnoses", json={"job_id": "uri", "logs": [{"uri": f"file://{inside}"}]}, headers=WAIT)
    assert good.json()["error_type"] == "KeyError"


def test_what_slurm_says_of_the_end_is_read(client: TestClient) -> None:
    log = "2026-10-01 00:00:10 INFO step 1 loss 2.1\n" * 3
    body = job("99", upload(client, log), scheduler="slurm", exit={"code": 0, "signal": 15, "state": "PREEMPTED"})
    answer = client.post("/v1/diagnoses", json=body, headers=WAIT)
    assert answer.json()["attribution"] == "scheduler", answer.text


def test_host_and_rank_are_believed_as_given(client: TestClient) -> None:
    body = {"job_id": "told", "logs": [{"upload": upload(client, KEY_ERROR, "log"), "rank": 3, "host": "gx-9"}]}
    answer = client.post("/v1/diagnoses", json=body, headers=WAIT)
    evidence = answer.json()["root_cause"]["evidence"][0]
    assert (evidence["rank"], evidence["host"]) == (3, "gx-9")


def test_a_job_without_logs_is_an_error_that_more_inputs_mend(client: TestClient) -> None:
    answer = client.post("/v1/diagnoses", json={"job_id": "nothing"}, headers=WAIT)
    assert (answer.status_code, answer.json()["state"]) == (200, "error")
    assert "no log came" in answer.json()["error"]
    where = answer.headers["location"]
    client.post(f"{where}/inputs", json={"logs": [{"upload": upload(client, KEY_ERROR)}]})
    assert client.get(where, headers=WAIT).json()["error_type"] == "KeyError"


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "job_id"),
        ({"job_id": ""}, "job_id"),
        ({"job_id": "1", "wrong": 1}, "wrong"),
        ({"job_id": "1", "logs": [{}]}, "logs"),
        ({"job_id": "1", "logs": [{"path": "/a", "upload": "u" + "0" * 20}]}, "logs"),
        ({"job_id": "1", "logs": [{"path": "relative"}]}, "path"),
        ({"job_id": "1\n2"}, "job_id"),
        ({"job_id": "1", "attempt": -1}, "attempt"),
        ({"job_id": "1", "started_at": "2026-01-01T00:00:00"}, "started_at"),
        ({"job_id": "1", "callback": "ftp://x/"}, "callback"),
    ],
)
def test_what_cannot_be_meant_is_told_by_its_place(client: TestClient, body: dict[str, Any], pointer: str) -> None:
    answer = client.post("/v1/diagnoses", json=body)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert pointer in answer.text


def test_every_error_is_a_problem(client: TestClient) -> None:
    for answer, status in (
        (client.get("/nowhere"), 404),
        (client.put("/v1/diagnoses"), 405),
        (client.get("/v1/diagnoses/d" + "0" * 24), 404),
        (client.get("/v1/diagnoses/x"), 422),
        (client.post("/v1/diagnoses", content=b"x", headers={"Content-Type": "text/plain"}), 415),
        (client.post("/v1/diagnoses", content=b"[" * 100_000, headers={"Content-Type": "application/json"}), 422),
        (client.post("/v1/diagnoses", content=b"x" * (5 << 20), headers={"Content-Type": "application/json"}), 413),
        (client.post("/v1/diagnoses", json=job("no-upload", "u" + "0" * 20)), 409),
        (client.get("/v1/diagnoses", params={"limit": 0}), 422),
    ):
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
        problem = answer.json()
        assert problem["status"] == status
        assert problem["instance"] == f"urn:request:{answer.headers['x-request-id']}"


def test_a_body_that_is_not_said_to_be_json_is_told(client: TestClient) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = client.post(f"/v1/diagnoses/d{'0' * 24}/feedback", content=b'{"kind": "confirm"}', headers=form)
    assert (answer.status_code, answer.json()["detail"]) == (
        422,
        "the body is JSON: set Content-Type: application/json",
    )


def test_browsers_of_elsewhere_and_proxies_are_refused_without_keys(client: TestClient) -> None:
    for headers in (
        {"Host": "evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"X-Forwarded-For": "10.1.2.3"},
    ):  # fmt: skip
        assert client.get("/v1/diagnoses", headers=headers).status_code == 403


def test_health_and_metrics(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json()["status"] == "ok"
    page = client.get("/metrics").text
    assert 'diagnose_submissions{state="done"}' in page
    assert "diagnose_database_up 1.0" in page
    assert client.get("/healthz", headers={"X-Request-Id": "mine-1"}).headers["x-request-id"] == "mine-1"
    assert client.get("/healthz", headers={"X-Request-Id": "not mine"}).headers["x-request-id"] != "not mine"


def test_nothing_of_the_spool_is_anybody_elses(client: TestClient, folder: Path) -> None:
    upload(client, "x")
    for path in (folder / "spool").rglob("*"):
        assert not os.stat(path).st_mode & 0o077, path


def test_a_request_that_is_repeated_after_a_delete_is_taken_anew(client: TestClient) -> None:
    how: dict[str, Any] = {"json": {"job_id": "deleted"}, "headers": {"Idempotency-Key": "after-delete"}}
    where = client.post("/v1/diagnoses", **how).headers["location"]
    assert client.delete(where).status_code == 204
    again = client.post("/v1/diagnoses", **how)
    assert (again.status_code, again.headers.get("location")) == (202, where), again.text


def test_a_form_that_nobody_has_is_told_before_the_job_is_taken(client: TestClient) -> None:
    headers = {"Prefer": "wait=5", "Accept": "image/png"}
    assert client.post("/v1/diagnoses", json={"job_id": "no-form"}, headers=headers).status_code == 406
    assert client.get("/v1/diagnoses", params={"job_id": "no-form"}).json()["items"] == []
