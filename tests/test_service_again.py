"""A job that is diagnosed again, later, or deleted while it is: in the memory it is one run, or none, and none is lost."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from diagnose.rules.bundle import load_bundled
from diagnose.service.claims import Claims
from diagnose.service.jobs import InputRef, NewJob
from diagnose.service.removing import remove_diagnosis
from diagnose.service.settings import config_of
from diagnose.service.spool import Spool, SpoolError
from diagnose.service.submissions import Submissions
from diagnose.service.work import Worker
from diagnose.store.database import Database, open_database
from diagnose.store.incidents import StoredIncidents
from diagnose.store.tables import Attempt
from tests.serving import KEY_ERROR, environment_of

KERNEL = "[Thu Oct  1 00:00:10 2026] NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.\n"
ILLEGAL = "INFO step 7 loss 2.1\nRuntimeError: CUDA error: an illegal memory access was encountered\n"
Work = Callable[..., None]


@pytest.fixture
def database(tmp_path: Path) -> Any:
    with open_database(str(tmp_path / "memory.sqlite3")) as made:
        yield made


@pytest.fixture
def work(tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch) -> Work:
    (tmp_path / "logs").mkdir()
    monkeypatch.chdir(tmp_path)  # a worker has a process of its own, and goes where its jobs lie
    config = config_of(environment_of(tmp_path, DIAGNOSE_ROOTS=str(tmp_path / "logs")))
    worker = Worker(config, database, load_bundled(), "w", print)

    def made(job: NewJob, on_state: Callable[[str], None] = lambda _: None) -> None:
        worker.work(job.id, on_state)

    return made


def log(folder: Path, name: str, text: str, role: str = "job") -> InputRef:
    path = folder / "logs" / name
    path.write_text(text)
    return InputRef(role, path=str(path), host="gx-1" if role == "kernel" else None)


def forget(database: Database, folder: Path, job: NewJob) -> None:
    spool = Spool(str(folder / "spool"), most_bytes=1, upload_bytes=1)
    remove_diagnosis(database, spool, lambda _: None, job.id, None)


def attempts(database: Database) -> int:
    with database.reading() as session:
        return session.scalar(select(func.count()).select_from(Attempt)) or 0


def test_more_inputs_change_what_is_remembered_and_add_nothing_to_it(
    tmp_path: Path, database: Database, work: Work
) -> None:
    job = NewJob("1", name="qx7b", user="ada", inputs=(log(tmp_path, "a.log", ILLEGAL),))
    jobs = Submissions(database)
    jobs.accept(job)
    work(job)
    before = jobs.get(job.id, None)
    assert before.error_type == "CUDAError"
    for name, text, role in (("0.log", "INFO other\n", "job"), ("k.dmesg", KERNEL, "kernel")):
        jobs.add_inputs(job.id, (log(tmp_path, name, text, role),), None)
        work(job)
        row = jobs.get(job.id, None)
        [incident] = StoredIncidents(database).latest()
        assert (incident.id, incident.error_type) == (row.incident, row.error_type)
        assert attempts(database) == 1
    assert row.error_type == "GPUFallenOffBus"
    forget(database, tmp_path, job)
    assert list(StoredIncidents(database)) == []
    assert attempts(database) == 0


def test_a_job_is_no_earlier_failure_of_itself(tmp_path: Path, database: Database, work: Work) -> None:
    job = NewJob("1", name="qx7b", user="ada", inputs=(log(tmp_path, "b.log", ILLEGAL),))
    jobs = Submissions(database)
    jobs.accept(job)
    work(job)
    first = jobs.get(job.id, None)
    for name in ("0.log", "1.log", "2.log"):
        jobs.add_inputs(job.id, (log(tmp_path, name, f"INFO {name}\n"),), None)
        work(job)
    last = jobs.get(job.id, None)
    assert (last.error_type, last.job_action) == (first.error_type, first.job_action)


def test_of_a_job_that_is_deleted_meanwhile_nothing_is_remembered(
    tmp_path: Path, database: Database, work: Work
) -> None:
    job = NewJob("1", inputs=(log(tmp_path, "a.log", KEY_ERROR),))
    jobs = Submissions(database)
    jobs.accept(job)

    def delete(state: str) -> None:
        if state == "running":
            forget(database, tmp_path, job)

    work(job, delete)
    assert list(StoredIncidents(database)) == []
    assert attempts(database) == 0


def test_a_worker_on_a_deleted_job_says_nothing_of_the_one_that_came_in_its_place(
    tmp_path: Path, database: Database, work: Work
) -> None:
    job = NewJob("1", inputs=(log(tmp_path, "a.log", KEY_ERROR),))
    jobs = Submissions(database)
    jobs.accept(job)
    other = NewJob("1", inputs=(log(tmp_path, "z.log", ILLEGAL),))

    def replace(state: str) -> None:
        if state == "running" and jobs.get(job.id, None).worker == "w":
            forget(database, tmp_path, job)
            jobs.accept(other)
            assert Claims(database).claim(other.id, "another", 3)

    work(job, replace)
    row = jobs.get(other.id, None)
    assert (row.state, row.report, row.worker) == ("running", None, "another")


def test_a_disk_that_is_full_ends_no_job(
    tmp_path: Path, database: Database, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that waits for room loses no try by it, however often, and is diagnosed once there is some."""
    job = NewJob("1", inputs=(log(tmp_path, "a.log", KEY_ERROR),))
    jobs = Submissions(database)
    jobs.accept(job)

    def full(*_: object, **__: object) -> list[str]:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("diagnose.service.work.snapshot_of", full)
        for _ in range(5):
            with pytest.raises(SpoolError, match="no room to diagnose in"):
                work(job)
        assert jobs.get(job.id, None).state == "queued"
        patched.setattr("diagnose.service.spool.os.makedirs", full)
        with pytest.raises(SpoolError, match="full"):
            work(job)
    work(job)
    row = jobs.get(job.id, None)
    assert (row.state, row.error_type, row.tries) == ("done", "KeyError", 1)
