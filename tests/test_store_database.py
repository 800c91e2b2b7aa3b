"""Where the memory is kept: tables as the migrations make them, and every way in which it cannot be used, in words."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from diagnose.errors import StoreError
from diagnose.store.database import HEAD, Database, open_database
from diagnose.store.migrations import config
from diagnose.store.tables import Table
from tests.commandline import environment
from tests.stores import new_database


def test_the_migrations_make_the_tables_that_the_code_knows(database_address: str) -> None:
    with open_database(database_address) as database, database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Table.metadata) == []


def test_the_latest_migration_is_the_one_that_is_asked_for() -> None:
    assert ScriptDirectory.from_config(config()).get_current_head() == HEAD


def test_opening_again_changes_nothing(database_address: str) -> None:
    for _ in range(2):
        with open_database(database_address) as database, database.reading() as session:
            assert session.execute(text("SELECT value FROM counters WHERE name = 'revision'")).scalar() == 0


def broken_off(database: Database) -> None:
    with database.writing() as session:
        session.execute(text("UPDATE counters SET value = 7"))
        raise KeyError


def test_a_writer_that_fails_leaves_nothing(database_address: str) -> None:
    with open_database(database_address) as database:
        with pytest.raises(KeyError):
            broken_off(database)
        with database.reading() as session:
            assert session.execute(text("SELECT value FROM counters")).scalar() == 0


def test_many_processes_may_open_a_new_memory_at_once(database_address: str) -> None:
    code = "import sys; from diagnose.store.database import open_database; open_database(sys.argv[1]).close()"
    started = [
        subprocess.Popen([sys.executable, "-c", code, database_address], stderr=subprocess.PIPE, env=environment())
        for _ in range(4)
    ]
    told = [process.communicate()[1] for process in started]
    assert [process.returncode for process in started] == [0] * 4, told


def test_a_memory_of_a_newer_release_is_left_alone(database_address: str) -> None:
    with open_database(database_address) as database, database.writing() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StoreError, match=r"made by a newer release.*upgrade"):
        open_database(database_address)


@pytest.mark.parametrize("number", ["", "0000", "00", "abc", "1", "\u0664\u0664\u0664\u0664"])
def test_a_memory_of_no_release_is_left_alone(number: str, database_address: str) -> None:
    with open_database(database_address) as database, database.writing() as session:
        session.execute(text("UPDATE alembic_version SET version_num = :number"), {"number": number})
    with pytest.raises(StoreError, match=r"which no release has given; restore it from a copy"):
        open_database(database_address)


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    place = tmp_path / "new" / "memory.sqlite3"
    with open_database(str(place)) as database, database.writing() as session:
        session.execute(text("UPDATE counters SET value = 1"))
        modes = {os.stat(place.parent / name).st_mode & 0o077 for name in os.listdir(place.parent)}
    assert modes == {0}
    assert os.stat(place.parent).st_mode & 0o077 == 0


def test_another_programs_database_is_not_touched(tmp_path: Path) -> None:
    place = tmp_path / "other.db"
    with sqlite3.connect(place) as connection:
        connection.execute("CREATE TABLE jobs (x)")
    connection.close()
    with pytest.raises(StoreError, match="tables of another program"):
        open_database(str(place))


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("{folder}/text.txt", "is a file of another kind"),
        ("{folder}", "cannot be opened"),
        ("{folder}/text.txt/below", "cannot be opened"),
        ("mysql://u:geheim@h/d", "names mysql, which is not supported"),
        ("postgresql://u:geheim@127.0.0.1:1/d", "cannot be used"),
        ("://", "is no address"),
        ("x\0y", "cannot be opened"),
        ("/proc/geheim/x", "below /proc cannot be opened.*set DIAGNOSE_DATABASE"),
        ("{folder}/geheim" + "x" * 5_000, "cannot be opened: File name too long; set DIAGNOSE_DATABASE"),
        ("postgresql:/u:geheim@h/d", "is no address"),
        ("postgresql:geheim", "is no address"),
        ("u:geheim@h/d", "is no address"),
    ],
)
def test_what_cannot_be_a_memory_is_told_in_one_line(tmp_path: Path, where: str, said: str) -> None:
    (tmp_path / "text.txt").write_text("these are the words of a log\n" * 100)
    with pytest.raises(StoreError, match=said) as raised:
        open_database(where.format(folder=tmp_path))
    assert "\n" not in str(raised.value)
    assert "geheim" not in str(raised.value)
    assert len(str(raised.value)) < 500


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    place = tmp_path / "memory.sqlite3"
    open_database(str(place)).close()
    data = bytearray(place.read_bytes())
    data[4096 * 2 :] = os.urandom(len(data) - 4096 * 2)
    place.write_bytes(data)
    with pytest.raises(StoreError, match=r"damaged|another kind|cannot be used"):
        read_all(str(place))


def read_all(place: str) -> None:
    with open_database(place) as database, database.writing() as session:
        session.execute(text("INSERT INTO removals (id, revision) SELECT name, value FROM counters"))
        session.execute(text("SELECT * FROM incidents")).all()
        session.execute(text("SELECT * FROM evidence")).all()


def test_a_writer_waits_for_another(tmp_path: Path) -> None:
    place = str(tmp_path / "memory.sqlite3")
    code = (
        "import sys; from sqlalchemy import text; from diagnose.store.database import open_database\n"
        "with open_database(sys.argv[1]) as d:\n"
        "    for _ in range(25):\n"
        "        with d.writing() as s: s.execute(text('UPDATE counters SET value = value + 1'))\n"
    )
    started = [subprocess.Popen([sys.executable, "-c", code, place], env=environment()) for _ in range(3)]
    assert [process.wait() for process in started] == [0] * 3
    with open_database(place) as database, database.reading() as session:
        assert session.execute(text("SELECT value FROM counters")).scalar() == 75


def test_a_full_disk_is_told_and_leaves_what_was_there(tmp_path: Path) -> None:
    place = str(tmp_path / "memory.sqlite3")
    open_database(place).close()
    code = (
        "import resource, signal, sys; from sqlalchemy import text\n"
        "from diagnose.errors import StoreError; from diagnose.store.database import open_database\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (400_000,) * 2)\n"
        "with open_database(sys.argv[1]) as d:\n"
        "    try:\n"
        "        with d.writing() as s:\n"
        "            s.execute(text('UPDATE counters SET value = 7'))\n"
        "            for n in range(200):\n"
        "                s.execute(text('INSERT INTO removals VALUES (:i, 1)'), {'i': f'{n} ' + 'x' * 20_000})\n"
        "    except StoreError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, place], capture_output=True, text=True, env=environment(), check=True
    )
    assert done.stdout.startswith(f"the memory {place} cannot be")
    with open_database(place) as database, database.reading() as session:
        assert session.execute(text("SELECT value FROM counters")).scalar() == 0
        assert session.execute(text("SELECT count(*) FROM removals")).scalar() == 0


@pytest.mark.parametrize("trusted", [0.0, 3600.0])
def test_a_connection_that_its_server_has_closed_fails_nobody(
    postgres: str, monkeypatch: pytest.MonkeyPatch, trusted: float
) -> None:
    """One that has rested is asked first; one that was used just now has something to read."""
    monkeypatch.setattr("diagnose.store.database._TRUSTED", trusted)
    with new_database(postgres) as address, open_database(address) as database, open_database(address) as other:
        for use in (database.reading, database.changing, database.writing):
            with use() as session:
                gone = session.execute(text("SELECT pg_backend_pid()")).scalar()
            with other.changing() as session:
                session.execute(text("SELECT pg_terminate_backend(:gone, 5000)"), {"gone": gone})
            with use() as session:
                assert session.execute(text("SELECT pg_backend_pid()")).scalar() != gone


def _fail_midway(database: Database) -> None:
    with database.changing() as session:
        session.execute(text("UPDATE counters SET value = value + 1 WHERE name = 'revision'"))
        raise ZeroDivisionError


def test_what_is_changed_is_there_whole_or_not_at_all_though_reads_need_no_transaction(database_address: str) -> None:
    with open_database(database_address) as database:
        for _ in range(3):  # one connection serves both in turn
            with database.reading() as session:
                before = session.execute(text("SELECT value FROM counters WHERE name = 'revision'")).scalar()
            with pytest.raises(ZeroDivisionError):
                _fail_midway(database)
            with database.reading() as session:
                assert session.execute(text("SELECT value FROM counters WHERE name = 'revision'")).scalar() == before
