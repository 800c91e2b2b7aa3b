"""Late ranks at several real processes: each hears of what any has taken, one diagnosis comes, and no kill loses it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select

from diagnose.store.database import open_database
from diagnose.store.service_tables import Outgoing, Submission
from diagnose.store.tables import Attempt
from tests.serving import KEY_ERROR
from tests.stores import new_database
from tests.topology import Site, free_port, site

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])
JOB = "/v1/jobs/gx/4711/0"
LOG = KEY_ERROR.encode()


@pytest.fixture
def shared(postgres: str, tmp_path: Path) -> Iterator[Site]:
    secret = tmp_path / "secret"
    secret.write_text("whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    more = {
        "DIAGNOSE_LATE_RANKS": "2,2,60",
        "DIAGNOSE_WEBHOOKS_TO": "http://127.0.0.1:9/",
        "DIAGNOSE_WEBHOOK_SECRET_FILE": str(secret),
    }
    with new_database(postgres) as address, site(tmp_path, address, **more) as made:
        yield made


def second(made: Site) -> tuple[subprocess.Popen[bytes], str]:
    port = free_port()
    process = made.start("serve", "--port", str(port))
    made.wait_for(f"http://127.0.0.1:{port}/healthz", process)
    return process, f"http://127.0.0.1:{port}"


def put(at: str, name: str, data: bytes, offset: int = 0) -> None:
    answer = httpx.put(f"{at}{JOB}/logs/{name}", params={"offset": offset}, content=data, timeout=30.0)
    assert answer.status_code == 200, answer.text


def once(made: Site) -> Submission:
    """The one job, which was diagnosed once, recorded once and told of once."""
    with open_database(made.environment["DIAGNOSE_DATABASE"]) as database, database.reading() as session:
        (row,) = session.scalars(select(Submission))
        assert (row.state, row.tries, row.revision) == ("done", 1, 1), made.said()
        assert session.scalar(select(func.count()).select_from(Attempt)) == 1
        told = select(func.count()).select_from(Outgoing).where(Outgoing.type == "diagnosis.done")
        assert session.scalar(told) == 1
        session.expunge_all()
    return row


def sources(report: dict[str, Any]) -> set[str]:
    return {one["source"] for one in report["coverage"]["sources"]}


def test_late_chunks_at_another_process_lengthen_the_wait(shared: Site) -> None:
    shared.serve()
    _, other = second(shared)
    shared.worker()
    put(shared.url, "r0.log", LOG)
    ended = httpx.post(f"{shared.url}{JOB}/end", json={"exit": {"code": 1}}, timeout=30.0)
    place = ended.headers["location"]
    known = 0
    until = time.monotonic() + 8.0
    while time.monotonic() < until:  # four times as long as it would be waited for
        put(other, "r1.log", b"step 1 loss 2.0\n", known)
        known += 16
        for at in (shared.url, other):
            answer = httpx.get(f"{at}{place}", timeout=30.0)
            assert (answer.status_code, answer.headers["diagnosis-state"]) == (202, "queued")
            assert 1 <= int(answer.headers["retry-after"]) <= 3
        time.sleep(0.3)
    report = httpx.get(f"{other}{place}", headers={"Prefer": "wait=60"}, timeout=90.0)
    assert report.status_code == 200, shared.said()
    assert {"r0.log", "r1.log"} <= sources(report.json())
    assert shared.final(place)["state"] == "done"
    time.sleep(3.0)  # what the other process would do of its own
    once(shared)


def test_a_process_that_is_killed_after_the_end_is_stood_in_for(shared: Site) -> None:
    api = shared.serve()
    _, other = second(shared)
    shared.worker()
    put(shared.url, "r0.log", LOG)
    place = httpx.post(f"{shared.url}{JOB}/end", timeout=30.0).headers["location"]
    os.kill(api.pid, signal.SIGKILL)
    api.wait()
    report = httpx.get(f"{other}{place}", headers={"Prefer": "wait=60"}, timeout=90.0)
    assert (report.status_code, report.json()["error_type"]) == (200, "KeyError"), shared.said()
    once(shared)


def test_a_kill_between_the_end_and_the_diagnosis_loses_nothing(tmp_path: Path) -> None:
    """Alone on its machine: whoever is started next goes on."""
    with site(tmp_path, str(tmp_path / "memory.sqlite3"), DIAGNOSE_LATE_RANKS="2,1,60") as made:
        api = made.serve()
        put(made.url, "r0.log", LOG)
        place = httpx.post(f"{made.url}{JOB}/end", timeout=30.0).headers["location"]
        os.killpg(api.pid, signal.SIGKILL)
        api.wait()
        made.serve()
        answer = made.client.get(place)
        assert (answer.status_code, answer.headers["diagnosis-state"]) == (202, "queued")
        assert made.final(place)["state"] == "done", made.said()
        assert sources(made.client.get(place).json()) == {"r0.log"}
        with open_database(made.environment["DIAGNOSE_DATABASE"]) as database, database.reading() as session:
            assert session.execute(select(Submission.tries, Submission.revision)).all() == [(1, 1)]
