"""Uploads of whoever wants to harm: no crash, no memory without bound, no file outside, and good jobs go on."""

from __future__ import annotations

import asyncio
import bz2
import gzip
import io
import json
import os
import random
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from fastapi.testclient import TestClient

from diagnose.service.jobs import NewJob
from tests.serving import KEY_ERROR, job, serving, upload

WAIT = {"Prefer": "wait=60"}


def tar_of(name: str, data: bytes, kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname, member.size = kind, link, len(data) if kind == tarfile.REGTYPE else 0
        archive.addfile(member, io.BytesIO(data))
    return made.getvalue()


def zip_of(name: str, data: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return made.getvalue()


# What takes long to make, once.
BOMBS = {
    "gzip": gzip.compress(bytes(2_000_000)),
    "bz2": bz2.compress(bytes(5_000_000)),
    "zip": zip_of("bomb.log", bytes(20_000_000)),
}


def hostile(dice: random.Random) -> tuple[str, bytes]:
    """A name and bytes of one upload."""
    error = KEY_ERROR.encode()
    name = dice.choice(
        ["a.log", "../../../etc/cron.d/x", "/etc/passwd", "..", "-", "\u202egol.exe", "x" * 500, "a/b/c/d/e/f/g/h/i/j", "rank0.log.gz",
         "core.1", "slurm-1.out", "nvidia-bug-report.log.gz", "*.log", "[a-z]", "${HOME}", "a b;rm -rf .log", "%00", "é.log"]
    )  # fmt: skip
    kinds = (
        lambda: b"",
        lambda: error,
        lambda: dice.randbytes(dice.randrange(5_000)),
        lambda: bytes(dice.randrange(200_000)),
        lambda: b"x" * 300_000,
        lambda: BOMBS["gzip"],
        lambda: gzip.compress(gzip.compress(gzip.compress(gzip.compress(error)))),
        lambda: gzip.compress(error)[: dice.randrange(60)],
        lambda: BOMBS["bz2"],
        lambda: tar_of("../../../tmp/escaped.log", error),
        lambda: tar_of("/etc/escaped.log", error),
        lambda: tar_of("a.log", b"", tarfile.SYMTYPE, "/etc/passwd"),
        lambda: tar_of("a.log", b"", tarfile.LNKTYPE, "/etc/shadow"),
        lambda: tar_of("fifo", b"", tarfile.FIFOTYPE),
        lambda: zip_of("../escaped.log", error),
        lambda: BOMBS["zip"],
        lambda: zip_of("a.zip", zip_of("b.zip", zip_of("c.zip", zip_of("d.zip", error)))),
        lambda: error.replace(b"role", b"\xff\xfe\x00\x1b]0;owned\x07" * 50),
        lambda: error.decode().encode("utf-16"),
        lambda: b"".join(b"\x1b[%dm" % dice.randrange(99) + error for _ in range(50)),
        lambda: b"[" * 50_000 + b"\n",
        lambda: b"Traceback (most recent call last):\n" * 20_000,
        lambda: b'{"log": "' + b"\\" * 40_000 + b'"}\n',
    )
    return name, dice.choice(kinds)()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, Path]]:
    folder = tmp_path_factory.mktemp("hostile")
    with serving(folder, DIAGNOSE_RATE="10000000", DIAGNOSE_EXPANDED_MB="64", DIAGNOSE_JOB_SECONDS="20") as made:
        yield made, folder


def files_of(folder: Path) -> set[str]:
    return {name for name in os.listdir(folder) if not name.startswith("memory.sqlite3")}


def resident() -> int:
    """The memory of this process and of its children, in bytes."""
    total = 0
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            parent = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
            if os.getpid() in (int(entry), parent):
                total += int(Path(f"/proc/{entry}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError):
            continue
    return total


def attack(service: tuple[TestClient, Path], jobs: int, each: int, seed: int) -> None:
    client, folder = service
    dice = random.Random(seed)
    before = files_of(folder) - {"memory.index"}
    memory = 0
    for number in range(jobs):
        sent = [upload(client, data, name) for name, data in (hostile(dice) for _ in range(each))]
        answer = client.post("/v1/diagnoses", json=job(f"h{seed}-{number}", *sent), headers=WAIT)
        assert answer.status_code == 200, (number, answer.text)
        assert answer.headers["diagnosis-state"] in ("done", "error")
        assert "root:x:" not in answer.text
        assert "\x1b" not in client.get(answer.headers["location"], headers={"Accept": "text/plain"}).text
        if number == jobs // 3:
            memory = resident()
    assert files_of(folder) == before | {"spool", "memory.index"}
    assert not list((folder / "spool" / "parts").iterdir())
    assert not os.path.exists("/tmp/escaped.log")
    assert not os.path.exists("/etc/escaped.log")
    assert resident() < memory + 300 * 1024 * 1024
    good = client.post("/v1/diagnoses", json=job(f"good{seed}", upload(client, KEY_ERROR)), headers=WAIT)
    assert good.json()["error_type"] == "KeyError"


def test_hostile_uploads_harm_nothing(service: tuple[TestClient, Path]) -> None:
    attack(service, 12, 3, 1)


@pytest.mark.slow
def test_ten_thousand_hostile_uploads_harm_nothing(service: tuple[TestClient, Path]) -> None:
    attack(service, 500, 20, 2)


def test_what_is_too_large_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with serving(tmp_path, DIAGNOSE_UPLOAD_MB="1") as client:

        def endless() -> Iterator[bytes]:
            for _ in range(64):
                yield bytes(100_000)

        assert client.post("/v1/uploads", content=endless()).status_code == 413
        form = b'--x\r\nContent-Disposition: form-data; name="logs"; filename="a"\r\n\r\n' + bytes(2_000_000)
        headers = {"Content-Type": "multipart/form-data; boundary=x"}
        assert client.post("/v1/diagnoses", content=form, headers=headers).status_code == 413
        many = b"".join(b'--x\r\nContent-Disposition: form-data; name="job"\r\n\r\n\r\n' for _ in range(1_100))
        assert client.post("/v1/diagnoses", content=many, headers=headers).status_code == 413
        head = b"--x\r\nX: " + b"y" * 20_000 + b"\r\n\r\n"
        assert client.post("/v1/diagnoses", content=head, headers=headers).status_code in (413, 422)
        left = [one.name for one in (tmp_path / "spool").rglob("*") if one.is_file()]
        assert not [name for name in left if not name.endswith(".room") and name != "clock"]  # what is counted


@pytest.mark.parametrize(
    ("method", "path", "kinds"),
    [
        ("POST", "/v1/diagnoses", ["application/json", "multipart/form-data; boundary=x"]),
        ("POST", "/v1/jobs/gx/1/0/end", ["application/json"]),
        ("POST", "/v1/jobs/logs/x/0/end", ["multipart/form-data; boundary=x"]),
    ],
)
def test_what_is_held_whole_is_small_whatever_it_calls_itself(
    tmp_path: Path, method: str, path: str, kinds: list[str]
) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(64):
            yield bytes(1_000_000)

    with serving(tmp_path) as client:
        headers = [("Content-Type", kind) for kind in kinds]
        answer = client.request(method, path, content=endless(), headers=headers)
        assert (answer.status_code, answer.headers["content-type"]) == (413, "application/problem+json")
        whole = [("Content-Length", "64000000"), *headers]
        assert client.request(method, path, content=b"{}", headers=whole).status_code == 413


def test_a_job_is_expanded_to_its_bound_and_says_so(tmp_path: Path) -> None:
    """A few kilobytes that unpack to much more: what lies within the bound is read, and what is beyond is told."""
    line = b"2026-10-01 00:00:10 INFO waiting for %d\n"
    log = KEY_ERROR.encode() + b"".join(line % number for number in range(100_000))
    with serving(tmp_path, DIAGNOSE_EXPANDED_MB="1") as client:
        sent = [upload(client, gzip.compress(log), "a.log.gz"), upload(client, gzip.compress(log[::-1]), "b.log.gz")]
        body = {"job_id": "bomb", "logs": [{"upload": one, "source": f"{one}.gz"} for one in sent]}
        report = client.post("/v1/diagnoses", json=body, headers={"Prefer": "wait=60"}).json()
    assert report["status"] == "failed"
    assert "exceed 1048576 bytes" in json.dumps(report["coverage"])


def test_a_client_that_hangs_up_in_the_midst_is_no_defect(tmp_path: Path) -> None:
    body: list[dict[str, object]] = [
        {"type": "http.request", "body": b"x", "more_body": True},
        {"type": "http.disconnect"},
    ]
    sent: list[object] = []

    async def send(message: object) -> None:
        sent.append(message)

    with serving(tmp_path) as client, structlog.testing.capture_logs() as said:
        for method, path in (("POST", "/v1/uploads"), ("PUT", "/v1/jobs/c/1/0/logs/a"), ("POST", "/v1/diagnoses")):
            messages = iter(body)

            async def receive(messages: Iterator[dict[str, object]] = messages) -> dict[str, object]:
                return next(messages)

            scope = {
                "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"offset=0",
                "headers": [(b"host", b"testserver"), (b"content-type", b"application/json")], "http_version": "1.1",
                "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 1), "scheme": "http", "root_path": "",
            }  # fmt: skip
            asyncio.run(client.app(scope, receive, send))  # type: ignore[arg-type]
        assert list((tmp_path / "spool" / "parts").iterdir()) == []
    assert sent == []
    assert [one for one in said if one["log_level"] == "error"] == []


def test_what_cannot_be_read_of_the_journal_keeps_no_job_waiting(tmp_path: Path) -> None:
    with serving(tmp_path) as client:
        running = client.app.state.running  # type: ignore[attr-defined]
        for number, torn in enumerate((b"{torn", b"[]", b'{"job": {}}', b'{"upload": 7}')):
            running.spool.put_pending(f"d{number:024}", torn)
        later = NewJob("later")
        running.keep_job(later)
        running.replay()
        assert client.get(f"/v1/diagnoses/{later.id}/state").status_code == 200
