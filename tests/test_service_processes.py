"""The service's processes for real: Postgres and several workers, and every one of them killed in the midst of it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy import func, select

from diagnose.store.database import open_database
from diagnose.store.service_tables import Outgoing, Submission
from diagnose.store.tables import Attempt
from tests.serving import KEY_ERROR
from tests.stores import new_database
from tests.topology import Site, site

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])
LOG = KEY_ERROR.encode()


@pytest.fixture
def on_postgres(postgres: str, tmp_path: Path) -> Iterator[Site]:
    with new_database(postgres) as address, site(tmp_path, address) as made:
        yield made


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path, str(tmp_path / "memory.sqlite3")) as made:
        yield made


def each_done_once(made: Site, count: int) -> None:
    """Every job is done, and each was recorded once."""
    with open_database(made.environment["DIAGNOSE_DATABASE"]) as database, database.reading() as session:
        states = dict(session.execute(select(Submission.state, func.count()).group_by(Submission.state)).all())
        assert states == {"done": count}, made.said()
        assert session.scalar(select(func.count()).select_from(Attempt)) == count


def test_two_workers_share_the_jobs_of_one_api(on_postgres: Site) -> None:
    api = on_postgres.serve()
    workers = [on_postgres.worker() for _ in range(2)]
    answer = on_postgres.submit("first", LOG, headers={"Prefer": "wait=60"})
    assert (answer.status_code, answer.json().get("error_type")) == (200, "KeyError"), on_postgres.said()
    sent = [on_postgres.submit(str(number), LOG) for number in range(20)]
    assert {one.status_code for one in sent} <= {200, 202}
    assert {on_postgres.final(one.headers["location"])["state"] for one in sent} == {"done"}
    each_done_once(on_postgres, 21)
    for process in (api, *workers):
        process.send_signal(signal.SIGTERM)
    assert [process.wait(40) for process in (api, *workers)] == [0, 0, 0], on_postgres.said()


def test_an_api_process_that_is_killed_loses_nothing(on_sqlite: Site) -> None:
    """Embedded: its workers die with it; what was acknowledged is done after the next start."""
    api = on_sqlite.serve()
    acknowledged = []
    for number in range(12):
        if number == 8:
            os.killpg(api.pid, signal.SIGKILL)
        try:
            answer = on_sqlite.submit(str(number), LOG)
        except httpx.HTTPError:
            continue
        assert answer.status_code == 202
        acknowledged.append(answer.headers["location"])
    api.wait()
    assert len(acknowledged) == 8
    on_sqlite.serve()
    assert {on_sqlite.final(where)["state"] for where in acknowledged} == {"done"}
    each_done_once(on_sqlite, 8)


@pytest.mark.slow
def test_workers_that_are_killed_lose_and_double_nothing(on_postgres: Site) -> None:
    """One worker after the other is killed with its processes while jobs come; each job ends once."""
    on_postgres.environment["DIAGNOSE_WEBHOOKS_TO"] = "http://127.0.0.1:9/"
    secret = on_postgres.folder / "secret"
    secret.write_text("whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    on_postgres.environment["DIAGNOSE_WEBHOOK_SECRET_FILE"] = str(secret)
    on_postgres.serve()
    log = b"2026-10-01 00:00:10 INFO step 1 loss 2.1\n" * 200_000 + LOG  # long enough to be killed within
    worker = on_postgres.worker()
    sent = []
    for number in range(12):
        answer = on_postgres.submit(str(number), log)
        assert answer.status_code == 202
        sent.append(answer.headers["location"])
        if number % 4 == 3:
            time.sleep(2.0)
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
            worker = on_postgres.worker()
    on_postgres.worker()
    assert {on_postgres.final(where, 180)["state"] for where in sent} == {"done"}, on_postgres.said()
    each_done_once(on_postgres, 12)
    with open_database(on_postgres.environment["DIAGNOSE_DATABASE"]) as database, database.reading() as session:
        told = session.execute(
            select(Outgoing.about, func.count()).where(Outgoing.type == "diagnosis.done").group_by(Outgoing.about)
        ).all()
    assert sorted(count for _, count in told) == [1] * 12


@pytest.mark.slow
def test_an_api_process_killed_in_mid_request_on_postgres(on_postgres: Site) -> None:
    on_postgres.worker()
    acknowledged = []
    for _ in range(3):
        api = on_postgres.serve()
        for number in range(6):
            if number == 5:
                os.kill(api.pid, signal.SIGKILL)
            try:
                answer = on_postgres.submit(f"{len(on_postgres.running)}-{number}", LOG)
            except httpx.HTTPError:
                continue
            acknowledged.append(answer.headers["location"])
        api.wait()
    on_postgres.serve()
    assert len(acknowledged) >= 15
    assert {on_postgres.final(where)["state"] for where in acknowledged} == {"done"}, on_postgres.said()
