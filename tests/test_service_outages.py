"""The database is away: jobs are accepted all the same, what was read lately can be read, and all is well after."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving import KEY_ERROR
from tests.stores import chroma_server, new_database
from tests.topology import Site, free_port, site

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])
LOG = KEY_ERROR.encode()


@pytest.fixture
def away(postgres: str, tmp_path: Path) -> Iterator[tuple[Site, Path, Path]]:
    """A service whose way to its Postgres can be taken away: the socket's folder is a link."""
    with new_database(postgres) as address:
        folder = Path(address.partition("host=")[2])
        link = tmp_path / "sock"
        link.symlink_to(folder)
        with site(tmp_path, address.replace(str(folder), str(link))) as made:
            yield made, link, folder


def cut(link: Path) -> None:
    link.unlink()
    link.mkdir()


def mend(link: Path, folder: Path) -> None:
    link.rmdir()
    link.symlink_to(folder)


def drop_connections(address: str) -> None:
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def test_jobs_are_accepted_while_the_database_is_away(away: tuple[Site, Path, Path]) -> None:
    made, link, folder = away
    address = made.environment["DIAGNOSE_DATABASE"].replace(str(link), str(folder))
    made.serve()
    made.worker()
    first = made.submit("before", LOG, headers={"Prefer": "wait=60"})
    assert first.status_code == 200, made.said()
    cut(link)
    drop_connections(address)
    sent = [made.submit(f"away-{number}", LOG) for number in range(3)]
    assert [one.status_code for one in sent] == [202] * 3, [one.text for one in sent]
    assert [one.status_code for one in [made.submit("away-0", LOG)]] == [202]
    ready = made.client.get("/readyz")
    assert (ready.status_code, ready.json()["database"], ready.json()["accepts"]) == (503, "away", True)
    assert made.client.get("/healthz").status_code == 200
    read = made.client.get(first.headers["location"])
    if made.client.get(first.headers["location"]).status_code != 200:  # it was not read before the outage
        assert read.headers["retry-after"]
    assert made.client.get("/v1/taxonomy").status_code == 200
    listed = made.client.get("/v1/diagnoses")
    assert (listed.status_code, listed.headers["content-type"]) == (503, "application/problem+json")
    mend(link, folder)
    assert {made.final(one.headers["location"])["state"] for one in sent} == {"done"}, made.said()
    made.wait_for("/readyz", made.running[0])


def test_a_report_that_was_read_can_be_read_again_in_an_outage(away: tuple[Site, Path, Path]) -> None:
    made, link, folder = away
    address = made.environment["DIAGNOSE_DATABASE"].replace(str(link), str(folder))
    made.serve()
    made.worker()
    where = made.submit("read", LOG, headers={"Prefer": "wait=60"}).headers["location"]
    report = made.client.get(where).text
    cut(link)
    drop_connections(address)
    assert made.client.get(where).text == report
    page = made.client.get(where.removeprefix("/v1"))
    assert (page.status_code, "Evidence" in page.text) == (200, True)
    mend(link, folder)


@pytest.mark.slow
def test_postgres_is_restarted_in_the_midst(tmp_path: Path) -> None:
    """The server itself is stopped at once and started again, twice; every acknowledged job is done."""
    from tests.stores import restartable_postgres

    with restartable_postgres() as server, new_database(server.uri) as address, site(tmp_path, address) as made:
        made.serve()
        for _ in range(2):
            made.worker()
        acknowledged = []
        for number in range(30):
            if number in (8, 20):
                server.stop()
            if number in (12, 24):
                server.start()
            answer = made.submit(str(number), LOG)
            if answer.status_code == 202:
                acknowledged.append(answer.headers["location"])
            else:
                assert answer.status_code == 503, answer.text
        assert len(acknowledged) >= 24
        assert {made.final(where, 120)["state"] for where in acknowledged} == {"done"}, made.said()


def test_the_chroma_server_is_killed_and_comes_back(tmp_path: Path) -> None:
    """Every job is done meanwhile; only who asks for similar incidents is told to come again."""
    odd = b"2026-10-01 00:00:10 INFO step 1 loss 2.1\n2026-10-01 00:00:11 ERROR bridge watcher: the lane failed its shake\n"
    folder, port = tmp_path / "chroma", free_port()
    told = {"DIAGNOSE_CHROMA_URL": f"http://127.0.0.1:{port}", "DIAGNOSE_VECTORS": ""}
    waits = {"Prefer": "wait=60"}
    with site(tmp_path, str(tmp_path / "memory.sqlite3"), **told) as made:
        with chroma_server(folder, port) as (_, process):
            made.serve()
            where = [made.submit(f"before-{number}", LOG, headers=waits).headers["location"] for number in range(2)]
            assert made.client.get(f"{where[0]}/similar").json()["items"], made.said()
            os.kill(process, signal.SIGKILL)
        for number in range(4):
            answer = made.submit(f"away-{number}", odd, headers=waits)
            assert (answer.status_code, answer.headers["diagnosis-state"]) == (200, "done"), made.said()
            text = made.client.get(answer.headers["location"], headers={"Accept": "text/plain"}).text
            assert "no Chroma server answers" in text or "the servers of the index failed 3 times" in text, text
        away = made.client.get(f"{where[0]}/similar")
        assert (away.status_code, away.headers["content-type"]) == (503, "application/problem+json")
        with chroma_server(folder, port):
            assert made.client.get(f"{where[0]}/similar").json()["items"], made.said()
            assert made.submit("after", odd, headers=waits).headers["diagnosis-state"] == "done"
