"""Accepted jobs and who works on them: one resource for each, one end for each, whoever was thought dead meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from diagnose.dataclass import replace
from diagnose.service.claims import CHANNEL, Claims, Recording
from diagnose.service.jobs import Absent, Conflict, InputRef, NewJob, Notice, Uploaded
from diagnose.service.keys import Keys
from diagnose.service.submissions import Submissions
from diagnose.service.uploads import Uploads
from diagnose.store.database import Database, open_database
from diagnose.store.recorder import Recorded
from diagnose.store.tables import IncidentRow
from tests.serving import outcome
from tests.stores import new_database

JOB = NewJob("4711", project="llm", cluster="gx", name="qx7b")


@pytest.fixture
def database(database_address: str) -> Iterator[Database]:
    with open_database(database_address) as made:
        yield made


def test_the_same_job_handed_in_by_many_at_once_is_one(database: Database) -> None:
    seen: list[tuple[str, bool]] = []

    def hand_in() -> None:
        row, new = Submissions(database).accept(JOB)
        seen.append((row.id, new))

    threads = [threading.Thread(target=hand_in) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name for name, _ in seen} == {JOB.id}
    assert [new for _, new in seen].count(True) == 1


def test_only_the_latest_to_take_a_job_up_may_end_it(database: Database) -> None:
    Submissions(database).accept(JOB)
    claims = Claims(database, Notice("https://x.example/"))
    dead = claims.claim(JOB.id, "a", 3)
    alive = claims.claim(JOB.id, "b", 3)
    assert dead
    assert alive
    assert not claims.rules_done(dead, outcome())
    assert not claims.finish(dead, outcome(error_type="Wrong"))
    assert claims.finish(alive, outcome())
    assert not claims.finish(alive, outcome(error_type="Twice"))
    assert not claims.fail(alive, "late")
    assert claims.claim(JOB.id, "c", 3) is None
    row = Submissions(database).get(JOB.id, None)
    assert (row.state, row.error_type) == ("done", "KeyError")


def test_a_job_that_ends_its_worker_each_time_ends_as_an_error(database: Database) -> None:
    Submissions(database).accept(JOB)
    claims = Claims(database)
    assert [claims.claim(JOB.id, "w", 3) is not None for _ in range(5)] == [True, True, True, False, False]
    row = Submissions(database).get(JOB.id, None)
    assert (row.state, row.tries) == ("error", 3)
    assert "given up after 3 tries" in (row.error or "")


def test_inputs_that_come_meanwhile_make_it_begin_anew(database: Database) -> None:
    jobs, claims = Submissions(database), Claims(database)
    jobs.accept(JOB)
    claim = claims.claim(JOB.id, "w", 3)
    assert claim
    row = jobs.add_inputs(JOB.id, [InputRef("kernel", path="/x")], frozenset({"llm"}))
    assert (row.state, row.revision) == ("queued", 2)
    assert not claims.finish(claim, outcome())
    again = claims.claim(JOB.id, "w", 3)
    assert again
    assert [one.path for one in again.job.inputs] == ["/x"]
    assert claims.finish(again, outcome())


def test_an_action_that_was_given_stays(database: Database) -> None:
    jobs, claims = Submissions(database), Claims(database)
    for seen in (True, False):
        job = NewJob(f"given-{seen}")
        jobs.accept(job)
        claim = claims.claim(job.id, "w", 3)
        assert claim
        assert claims.rules_done(claim, outcome(job_action="restart"))
        if seen:
            claims.shown(job.id)
        assert claims.finish(claim, outcome(job_action="wait_and_retry"), lambda: outcome(job_action="restart"))
        assert jobs.get(job.id, None).job_action == ("restart" if seen else "wait_and_retry")


def test_who_is_silent_is_found(database: Database) -> None:
    now = [1000.0]
    jobs, claims = Submissions(database, lambda: now[0]), Claims(database, clock=lambda: now[0])
    for number in "abc":
        jobs.accept(NewJob(number))
    claims.claim(NewJob("a").id, "w", 3)
    claims.claim(NewJob("b").id, "w", 3)
    now[0] += 30
    claims.beat([NewJob("a").id])
    assert set(claims.unfinished(silent_since=now[0] - 20)) == {NewJob("b").id, NewJob("c").id}
    assert len(claims.unfinished()) == 3


def test_a_clock_that_jumps_doubles_nothing(database: Database) -> None:
    """All leases seem over: jobs are taken up again, and end once all the same."""
    now = [1000.0]
    jobs, claims = Submissions(database, lambda: now[0]), Claims(database, Notice("https://x.example/"), lambda: now[0])
    jobs.accept(JOB)
    first = claims.claim(JOB.id, "w", 3)
    assert first
    now[0] += 86_400 * 365
    assert claims.unfinished(silent_since=now[0] - 20) == [JOB.id]
    second = claims.claim(JOB.id, "v", 3)
    assert second
    now[0] -= 86_400 * 700
    assert [claims.finish(second, outcome()), claims.finish(first, outcome())] == [True, False]


def test_uploads_are_a_projects_own(database: Database) -> None:
    uploads, jobs = Uploads(database), Submissions(database)
    uploads.add(Uploaded("u1", "llm", "a.log", 1, "", ""))
    with pytest.raises(Conflict):
        jobs.accept(NewJob("1", project="other", inputs=(InputRef("job", upload="u1"),)))
    jobs.accept(NewJob("1", project="llm", inputs=(InputRef("job", upload="u1"),)))
    uploads.add(Uploaded("u2", "llm", "b.log", 1, "", ""))
    assert uploads.unused(2e9 * 2) == ["u2"]
    with pytest.raises(Absent):
        jobs.delete(NewJob("1", project="llm").id, frozenset({"other"}))
    assert jobs.delete(NewJob("1", project="llm").id, frozenset({"llm"}))[1] == ("u1",)


def test_a_key_of_a_request_is_for_one_request(database: Database, tmp_path: Path) -> None:
    uploads = Uploads(database)
    assert uploads.answered("k", "x") is None
    uploads.remember("k", "x", {"id": "1"})
    uploads.remember("k", "x", {"id": "2"})
    assert uploads.answered("k", "x") == {"id": "1"}
    with pytest.raises(Conflict):
        uploads.answered("k", "y")


def test_what_is_too_old_is_found_unless_a_person_confirmed_it(database: Database) -> None:
    now = [1000.0]
    jobs, claims = Submissions(database, lambda: now[0]), Claims(database, clock=lambda: now[0])
    for number, incident in (("old", None), ("confirmed", "i1"), ("open", "i2")):
        jobs.accept(NewJob(number))
        claim = claims.claim(NewJob(number).id, "w", 3)
        assert claim
        if number != "open":
            claims.finish(claim, outcome())
            with database.changing() as session:
                Recording(claim).became(session, Recorded(incident, new=True))
    with database.writing() as session:
        row = IncidentRow(id="i1", status="failed", confirmed=True, decided_by="person", created=0.0, revision=1)
        row.culprits = row.nodes = []
        session.add(row)
    assert jobs.outdated(1001.0) == [NewJob("old").id]
    assert jobs.outdated(999.0) == []


def test_a_job_of_the_journal_gets_no_upload_of_another_project(database: Database) -> None:
    uploads = Uploads(database)
    for name, project in (("u1", "llm"), ("u2", "other")):
        uploads.add(Uploaded(id=name, project=project, name="a", size=1, sha256="", key_id=""))
    job = replace(
        JOB, inputs=(InputRef("job", upload="u1"), InputRef("job", upload="u2"), InputRef("job", upload="u3"))
    )
    Submissions(database).accept(job, replayed=True)
    assert [one.upload for one in Submissions(database).inputs(job.id)] == ["u1", "u3"]


def test_a_key_that_is_rotated_twice_lives_no_longer_by_it(database: Database) -> None:
    now = [1000.0]
    keys = Keys(database, lambda: now[0])
    name, key = keys.add(["read"], ["llm"])
    keys.rotate(name, hours=1)
    keys.rotate(name, hours=100)
    now[0] += 3_601
    assert keys.check(key) is None


def test_who_listens_hears_of_a_state_when_it_is_there(postgres: str) -> None:
    import psycopg

    with new_database(postgres) as address, open_database(address) as database:
        jobs, claims = Submissions(database), Claims(database)
        jobs.accept(JOB)
        with psycopg.connect(address, autocommit=True) as listener:
            listener.execute(f"LISTEN {CHANNEL}")
            claim = claims.claim(JOB.id, "w1", 3)
            assert claim is not None
            assert claims.rules_done(claim, outcome())
            assert claims.finish(claim, outcome())
            assert not claims.finish(claim, outcome())  # nothing has changed
            heard = [notice.payload for notice in listener.notifies(timeout=0.5)]
    assert heard == [f"{JOB.id} rules_done", f"{JOB.id} done"]
