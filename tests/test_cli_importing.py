"""Many cases at once: by several processes, and again after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import func, select

from diagnose.cli import importing
from diagnose.cli.importing import import_cases
from diagnose.errors import StoreError
from diagnose.store.database import open_database
from diagnose.store.incidents import StoredIncidents
from diagnose.store.tables import Diagnosis, IncidentRow
from tests.commandline import environment
from tests.stores import KEY_ERROR, Lab

COUNT = 44


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    root = tmp_path / "cases"
    root.mkdir()
    for number in range(COUNT):
        (root / f"c{number:02}.log").write_text(f"2026-10-01 00:{number:02}:00 INFO step 1 loss 2.0\n{KEY_ERROR}")
        (root / f"c{number:02}.yaml").write_text("error_type: KeyError\n")
    return root


def test_several_processes_lose_nothing(
    lab: Lab, cases: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importing, "_FEW", 4)
    monkeypatch.setattr(importing, "_processors", lambda: 3)
    assert import_cases(str(cases), lab.database, lab.rules) == 0
    assert capsys.readouterr().out == f"added {COUNT} incidents, 0 were there already\n"
    store = StoredIncidents(lab.database)
    assert [incident.id for incident in store] == [f"c{number:02}" for number in range(COUNT)]
    assert sorted(incident.revision for incident in store) == list(range(1, COUNT + 1))
    import_cases(str(cases), lab.database, lab.rules)
    assert capsys.readouterr().out == f"added 0 incidents, {COUNT} were there already\n"


def test_where_nothing_can_be_recorded_the_import_ends(lab: Lab, cases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object, **_how: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr("diagnose.store.memory.record", full)
    with pytest.raises(StoreError, match="the disk is full"):
        import_cases(str(cases), lab.database, lab.rules)


def test_an_import_that_was_killed_is_just_started_again(tmp_path: Path, cases: Path) -> None:
    place = str(tmp_path / "memory.sqlite3")
    code = (
        "import sys; from diagnose.cli import importing, main\n"
        "importing._FEW, importing._processors = 4, lambda: 3\n"
        "sys.exit(main(['incidents', 'import', sys.argv[1]]))"
    )
    command = [sys.executable, "-c", code, str(cases)]
    env = environment({"DIAGNOSE_DATABASE": place})
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, start_new_session=True)
    with open_database(place) as database:
        store = StoredIncidents(database)
        while len(store) < 6 and process.poll() is None:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        before = {incident.id: incident for incident in store if incident.confirmed}
        assert len(before) >= 6
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        assert "were there already" in done.stdout
        assert len(store) == COUNT
        assert all(store.get(name) == incident for name, incident in before.items())
        with database.reading() as session:
            assert session.scalar(select(func.count()).select_from(Diagnosis)) == COUNT
            assert session.scalar(select(func.count()).where(IncidentRow.attempt_id.is_(None))) == 0
