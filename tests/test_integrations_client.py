"""The REST client, and what schedulers do with it: against a stand-in for what goes wrong, against the service itself."""

from __future__ import annotations

import io
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from diagnose.errors import UsageError
from diagnose.integrations.client import Client, ServiceError, client_of, read_key
from diagnose.integrations.hook import How, verdict_of
from diagnose.integrations.kubernetes.verdicts import Asking, ask
from diagnose.integrations.kubernetes.watcher import Job
from diagnose.integrations.kubernetes.workloads import Workload
from diagnose.integrations.slurm import read_job
from tests.commandline import environment, start
from tests.test_integrations_sending import answering
from tests.test_integrations_slurm import HOOKS, LOG, Slurm, installed, stubs, until
from tests.topology import Site, site

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

KERNEL = (
    "2026-11-30T17:19:58.000000+00:00 gx-01 kernel: NVRM: Xid (PCI:0000:52:00): 48, pid=7102, name=python3, "
    "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 2, subpartition 0.\n"
)


def client(
    answers: Callable[[httpx.Request], httpx.Response], tmp_path: Path, **more: Any
) -> tuple[Client, list[float]]:
    """A client of a stand-in, and how long it has slept."""
    slept: list[float] = []
    (tmp_path / "key").write_text("dk_secret\n")
    made = Client(
        "https://diagnose.example.org", key_file=str(tmp_path / "key"), transport=httpx.MockTransport(answers),
        sleep=slept.append, **more,
    )  # fmt: skip
    return made, slept


def test_what_may_be_repeated_is(tmp_path: Path) -> None:
    answers = iter([503, 429, 202])
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        if len(seen) == 1:
            raise httpx.ConnectError("refused")
        code = next(answers)
        return httpx.Response(code, json={"id": "d1"}, headers={"Retry-After": "7"} if code == 429 else {})

    made, slept = client(answer, tmp_path)
    with made:
        assert made.submit({"job_id": "1"}).id == "d1"
    assert slept == [0.5, 1.0, 7.0]
    assert {request.headers["authorization"] for request in seen} == {"Bearer dk_secret"}


@pytest.mark.parametrize(
    "response, says",
    [
        (httpx.Response(401, json={"title": "No such key", "detail": "dk_..."}), "401 No such key - dk_..."),
        (httpx.Response(302, headers={"Location": "https://elsewhere/"}), "302"),
        (httpx.Response(200, text="<html>a proxy</html>"), "is no JSON object"),
        (httpx.Response(200, json=[1]), "is no JSON object"),
        (httpx.Response(200, json={"job": 1}), "names no diagnosis"),
        (httpx.Response(413, text="x" * 100), "413"),
    ],
)
def test_what_the_service_refuses_is_told(tmp_path: Path, response: httpx.Response, says: str) -> None:
    made, slept = client(lambda _: response, tmp_path)
    with made, pytest.raises(ServiceError) as refused:
        made.submit({"job_id": "1"})
    assert says in str(refused.value)
    assert "secret" not in str(refused.value)
    assert slept == []


def test_a_service_that_stays_away_is_given_up(tmp_path: Path) -> None:
    made, slept = client(lambda _: httpx.Response(503), tmp_path, patience=0.0)
    with made, pytest.raises(ServiceError, match="cannot be used: 503"):
        made.submit({"job_id": "1"})
    assert slept == []


def test_keys_and_addresses_that_cannot_be_meant(tmp_path: Path) -> None:
    for address in ("diagnose.example.org", "ftp://x", "https://user:dk_secret@x", "https://"):
        with pytest.raises(UsageError):
            Client(address)
    for text in ("", "two words", "line\nline\n", "\x00"):
        (tmp_path / "key").write_text(text)
        with pytest.raises(UsageError) as refused:
            read_key(str(tmp_path / "key"))
        assert "words" not in str(refused.value)
    assert client_of({}) is None
    with pytest.raises(UsageError):
        client_of({"DIAGNOSE_SERVICE": "https://x", "DIAGNOSE_SERVICE_CA_FILE": "/no/such"})


def test_what_rules_leave_open_is_waited_for(tmp_path: Path) -> None:
    states = iter(["rules_done", "rules_done", "done"])

    def answer(_: httpx.Request) -> httpx.Response:
        state = next(states)
        report = {"schema": "diagnose.report/v1", "status": "failed" if state == "done" else "inconclusive"}
        return httpx.Response(200, json=report, headers={"Diagnosis-State": state})

    made, slept = client(answer, tmp_path)
    with made:
        served = made.report("d1")
    assert served.report is not None
    assert served.report["status"] == "failed"
    assert slept == [2.0, 2.0]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    with site(folder, str(folder / "memory.sqlite3")) as made:
        made.serve()
        yield made


def test_a_log_goes_there_and_a_verdict_comes_back(service: Site) -> None:
    with Client(service.url) as made:
        upload = made.upload("job.log", io.BytesIO(LOG.encode() * 3))
        first = made.submit({"job_id": "c1", "cluster": "lab", "logs": [{"upload": upload, "source": "job.log"}]})
        report = made.report(first.id).report
        assert report is not None
        assert report["error_type"] == "KeyError"
        found = made.find("lab", "c1")
        assert found is not None
        assert found.id == first.id
        assert made.find("lab", "c1", 3) is None
        assert made.find("lab", "none") is None


def test_a_slurm_job_is_diagnosed_by_the_service(service: Site, tmp_path: Path) -> None:
    (tmp_path / "slurm-4711.out").write_text(LOG)
    job = read_job("4711", cluster="lab", run=Slurm(tmp_path).run)
    said: list[str] = []
    with Client(service.url) as made:
        verdict = verdict_of(job, How(client=made), said.append)
    assert verdict is not None
    assert (verdict.summary.error_type, verdict.summary.attribution, said) == ("KeyError", "user", [])
    resource = service.client.get("/v1/diagnoses", params={"cluster": "lab", "job_id": "4711"}).json()["items"][0]
    assert (resource["user"], resource["nodes"], resource["gpus"], resource["exit"]["state"]) == (
        "ada", ["gx-01", "gx-02"], 16, "FAILED",
    )  # fmt: skip


@pytest.mark.parametrize(("form", "begins"), [("text", "FAILED  your code"), ("markdown", "**FAILED** your code")])
@pytest.mark.parametrize("served", [True, False])
def test_a_person_reads_the_same_wherever_the_job_was_diagnosed(
    service: Site, tmp_path: Path, served: bool, form: str, begins: str
) -> None:
    env = installed(tmp_path) | ({"DIAGNOSE_SERVICE": service.url} if served else {})
    with start("slurm", "4711", "--format", form, env=environment(env)) as process:
        out, told = process.communicate(timeout=120)
    assert (process.returncode, out.decode()[: len(begins)], told) == (0, begins, b"")


def test_where_the_service_is_away_the_job_is_diagnosed_here(tmp_path: Path) -> None:
    (tmp_path / "slurm-4711.out").write_text(LOG)
    job = read_job("4711", cluster="lab", run=Slurm(tmp_path).run)
    said: list[str] = []
    with Client("http://127.0.0.1:1", patience=0.0) as made:
        verdict = verdict_of(job, How(client=made), said.append)
    assert verdict is not None
    assert verdict.summary.error_type == "KeyError"
    assert len(said) == 1
    assert said[0].endswith("diagnosed here instead")


def test_a_nodes_kernel_log_reaches_a_job_that_was_diagnosed(service: Site, tmp_path: Path) -> None:
    with Client(service.url) as made:
        text = b"step 1 loss 2\ntorch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
        upload = made.upload("job.log", io.BytesIO(text))
        first = made.submit({
            "job_id": "81", "cluster": "lab", "nodes": ["gx-01"], "logs": [{"upload": upload, "source": "job.log"}],
        })  # fmt: skip
        made.report(first.id)
    env = environment(
        {**installed(tmp_path, DIAGNOSE_SERVICE=service.url), "SLURMD_NODENAME": "gx-01", "SLURM_JOB_ID": "81",
         "TMPDIR": str(tmp_path / "tmp")}
    )  # fmt: skip
    (tmp_path / "tmp").mkdir()
    stubs(tmp_path, journalctl=f"echo '{KERNEL.strip()}'")
    subprocess.run([HOOKS / "epilog"], env=env, check=True, timeout=60)

    def diagnosed_again() -> bool:
        state = service.client.get(f"/v1/diagnoses/{first.id}/state").json()
        return state["revision"] > 1 and state["state"] == "done"

    wait_until(diagnosed_again)
    wait_until(lambda: not os.listdir(tmp_path / "tmp"))
    report = service.client.get(f"/v1/diagnoses/{first.id}").json()
    assert report["error_type"] == "ECCError"
    assert "gx-01.dmesg" in json.dumps(report["coverage"]["sources"])


def wait_until(question: Callable[[], bool]) -> None:
    import time

    end = time.monotonic() + 60
    while not question():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_the_hook_uses_the_service(service: Site, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("any")
    more = {"DIAGNOSE_SERVICE": service.url}
    env = environment({**installed(tmp_path, **more), "SLURM_CLUSTER_NAME": "hooked"})
    subprocess.run([HOOKS / "epilogslurmctld"], env=env, check=True, timeout=60)
    assert "comment=diagnose: FAILED your code KeyError" in until(tmp_path / "updates", "comment=")
    items = service.client.get("/v1/diagnoses", params={"cluster": "hooked", "job_id": "4711"}).json()["items"]
    assert len(items) == 1


def test_a_kubernetes_workload_is_diagnosed_by_the_service(service: Site, tmp_path: Path) -> None:
    (tmp_path / "pods" / "train-0").mkdir(parents=True)
    (tmp_path / "pods" / "train-0" / "main.log").write_text(LOG)
    (tmp_path / "pods.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": []}))
    workload = Workload("Job", "batch/v1", "ml", "train", "uid-1")
    job = Job(workload, 0, str(tmp_path), ["pods/train-0/main.log"], ["pods.json"], [], ("gx-01",), 8, "image:1", ())
    said: list[str] = []
    summary = ask(job, Asking(cluster="k", client=lambda: Client(service.url)), said.append)
    assert summary is not None
    assert (summary.error_type, said) == ("KeyError", [])
    item = service.client.get("/v1/diagnoses", params={"cluster": "k"}).json()["items"][0]
    assert (item["job_id"], item["name"], item["image"]) == ("uid-1", "ml/train", "image:1")


def test_the_command_refuses_what_it_cannot_do() -> None:
    with start("slurm", "4711", "--add-kernel-log", "/no/such", env={}) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert b"set DIAGNOSE_SERVICE" in err


@pytest.mark.parametrize(
    ("status", "data", "packed"),
    [(200, b"no gzip", True), (200, b"[" * 200_000, False), (409, b'{"title":' + b"[" * 200_000, False)],
)
def test_garbage_of_a_service_is_told_in_a_line(tmp_path: Path, status: int, data: bytes, *, packed: bool) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        headers = {"Content-Encoding": "gzip"} if packed else {}
        return httpx.Response(status, stream=httpx.ByteStream(data), headers=headers)

    made, _ = client(answer, tmp_path, patience=0.0)
    with made, pytest.raises(ServiceError) as told:
        made.submit({"job_id": "1"})
    assert "\n" not in str(told.value)


def test_a_number_of_an_attempt_that_is_none_is_passed_over(tmp_path: Path) -> None:
    items = [{"id": "d1", "job_id": "7", "cluster": "", "attempt": attempt} for attempt in ("x", None, {})]
    made, _ = client(lambda _: httpx.Response(200, json={"items": items}), tmp_path)
    with made:
        assert made.find("", "7")


@pytest.mark.parametrize(
    ("scheme", "begin"),
    [
        ("http", b"HTTP/1.1 200 OK\r\nX: "),
        ("http", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"),
        ("https", b"\x16\x03\x03\x3f\xff\x02\x00\x3f\xf0"),  # the beginning of a record of TLS
    ],
)
def test_whatever_a_service_drips_ends_with_patience(
    monkeypatch: pytest.MonkeyPatch, scheme: str, begin: bytes
) -> None:
    monkeypatch.setattr("diagnose.integrations.client._TIMEOUT", 5.0)
    monkeypatch.setattr("diagnose.integrations.client._LOOK", 0.05)
    with (
        answering(begin, drip=b"x", scheme=scheme) as address,
        Client(address, patience=0.0) as made,
        pytest.raises(ServiceError, match=r"takes too long|Timeout"),
    ):
        made._call("POST", "diagnoses", json={"job_id": "1"}, timeout=0.5)


def test_an_answer_that_does_not_end_ends_with_patience(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("diagnose.integrations.client.time.monotonic", lambda: now[0])

    def dribble() -> Iterator[bytes]:
        while True:
            now[0] += 10.0  # each byte within the time for one
            yield b" "

    made, _ = client(lambda _: httpx.Response(200, content=dribble()), tmp_path, patience=60.0)
    with made, pytest.raises(ServiceError, match="takes too long"):
        made.submit({"job_id": "1"})
    assert now[0] < 120
