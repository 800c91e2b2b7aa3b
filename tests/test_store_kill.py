"""A process that is killed while it records loses nothing that was confirmed and leaves nothing half there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import func, select, text

from diagnose.store.database import open_database
from diagnose.store.incidents import StoredIncidents
from diagnose.store.tables import Attempt, Counter, Diagnosis, EvidenceRow, Feedback, FindingRow, IncidentRow
from tests.commandline import environment
from tests.stores import KEY_ERROR

# Records and confirms runs, and says so; killed by itself right before its nth statement, where one is given.
RECORDER = """
import os, signal, sys
from sqlalchemy import event
from diagnose.models import JobContext
from diagnose.pipeline import Request, Services, diagnose
from diagnose.rules.bundle import load_bundled
from diagnose.services import ServiceSettings, memory_of
from diagnose.store.database import open_database
from diagnose.store.incidents import confirm, correct

place, folder, first, last, at = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
rules = load_bundled()
became = []
with open_database(place) as database:
    seen = 0

    def count(*_args):
        global seen
        seen += 1
        if seen == at:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(database.engine, "before_cursor_execute", count)
    event.listen(database.engine, "commit", count)
    memory = memory_of(database, rules, ServiceSettings(records=True), print, became.append)
    for number in range(first, last):
        context = JobContext(str(number), "pretrain", "ada")
        diagnose(Request([f"{folder}/run{number % 8}.log"], context=context), Services(rules, memory=memory))
        name = became[-1].incident
        if number % 2:
            confirm(database, name, recovered=True)
        else:
            correct(database, name, error_type="DiskFull")
        print("confirmed", name, flush=True)
print("statements", seen, flush=True)
"""


def logs(folder: Path) -> Path:
    for number in range(8):
        lines = "".join(f"2026-10-01 00:0{i}:0{number} INFO step {i} loss 2.0\n" for i in range(5))
        (folder / f"run{number}.log").write_text(lines + KEY_ERROR)
    return folder


def recorder(place: str, folder: Path, first: int, last: int, at: int = 0) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", RECORDER, place, str(folder), str(first), str(last), str(at)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment())


def check(place: str) -> set[str]:
    """That nothing is half there; returns the confirmed incidents."""
    with open_database(place) as database, database.reading() as session:
        if database.is_file:
            assert session.execute(text("PRAGMA integrity_check")).scalar() == "ok"
            assert session.execute(text("PRAGMA foreign_key_check")).all() == []
        revision = session.scalar(select(Counter.value).where(Counter.name == "revision")) or 0
        for row in session.scalars(select(IncidentRow)):
            assert 0 < row.revision <= revision
            assert row.text
            assert row.confirmed == bool(session.scalar(select(func.count()).where(Feedback.incident_id == row.id)))
            diagnoses = session.scalars(select(Diagnosis).where(Diagnosis.attempt_id == row.attempt_id)).all()
            assert len(diagnoses) == 1
            for table in (FindingRow, EvidenceRow):
                assert session.scalar(select(func.count()).where(table.diagnosis_id == diagnoses[0].id))
        attempts = session.scalar(select(func.count()).select_from(Attempt))
        assert attempts == session.scalar(select(func.count()).select_from(IncidentRow))
        return {row.id for row in session.scalars(select(IncidentRow).where(IncidentRow.confirmed))}


def told(output: str) -> list[str]:
    return [line.split()[1] for line in output.splitlines() if line.startswith("confirmed ")]


@pytest.mark.slow
def test_killed_before_each_statement(database_address: str, tmp_path: Path) -> None:
    """Each statement and each commit of recording, confirming and correcting."""
    folder = logs(tmp_path)
    process = recorder(database_address, folder, 1000, 1002)
    statements = int(process.communicate()[0].split()[-1])
    assert statements > 40
    safe = set(check(database_address))
    for at in range(1, statements):
        process = recorder(database_address, folder, at * 10, at * 10 + 2, at)
        output = process.communicate()[0]
        assert process.returncode == -signal.SIGKILL, at
        safe.update(told(output))
        assert safe <= check(database_address)


@pytest.mark.parametrize("at", [9, 27, 41])
def test_killed_in_between(tmp_path: Path, at: int) -> None:
    """A few of those places in every run of the tests."""
    place, folder = str(tmp_path / "memory.sqlite3"), logs(tmp_path)
    process = recorder(place, folder, 0, 3, at)
    output = process.communicate()[0]
    assert process.returncode == -signal.SIGKILL
    assert set(told(output)) <= check(place)
    process = recorder(place, folder, 0, 3)
    output = process.communicate()[0]
    assert process.returncode == 0
    assert check(place) == set(told(output))
    assert len(told(output)) == 3


def test_killed_at_any_time(database_address: str, tmp_path: Path) -> None:
    """A writer that is killed by the clock, while another goes on."""
    folder = logs(tmp_path)
    open_database(database_address).close()
    other = recorder(database_address, folder, 5000, 5006)
    safe: list[str] = []
    for number, seconds in enumerate((0.02, 0.11, 0.19)):
        process = recorder(database_address, folder, number * 100, number * 100 + 90)
        assert process.stdout is not None
        safe += told(process.stdout.readline())
        time.sleep(seconds)
        os.kill(process.pid, signal.SIGKILL)
        safe += told(process.communicate()[0])
    output = other.communicate()[0]
    assert other.returncode == 0
    assert len(told(output)) == 6
    assert set(safe) | set(told(output)) <= check(database_address)


def test_two_processes_lose_nothing(database_address: str, tmp_path: Path) -> None:
    folder = logs(tmp_path)
    processes = [recorder(database_address, folder, start, start + 6) for start in (0, 100)]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    names = [name for output in outputs for name in told(output)]
    assert len(set(names)) == 12
    assert check(database_address) == set(names)
    with open_database(database_address) as database:
        store = StoredIncidents(database)
        revisions = [incident.revision for incident in store.changed_since(0)]
        assert revisions == sorted(set(revisions))
        assert len(revisions) == 12
