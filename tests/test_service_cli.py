"""The verbs of the service: keys, doctor, migrate, and what serve says where it cannot start."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import text

from diagnose.cli import main
from diagnose.service.keys import Keys
from diagnose.store.database import open_database
from tests.stores import new_database
from tests.topology import site

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DIAGNOSE_DATABASE", str(tmp_path / "memory.sqlite3"))
    monkeypatch.setenv("DIAGNOSE_SPOOL", str(tmp_path / "spool"))
    monkeypatch.setenv("DIAGNOSE_PORT", "1")


def test_a_key_is_shown_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["keys", "add", "--scope", "submit", "--project", "llm", "--days", "9", "--note", "slurm"]) == 0
    shown = capsys.readouterr()
    key = shown.out.strip()
    assert key.startswith("dk_")
    assert "this once" in shown.err
    assert "asks everybody for a key" in shown.err  # who was served without one is not any more
    with open_database(str(tmp_path / "memory.sqlite3")) as database:
        caller = Keys(database).check(key)
    assert caller is not None
    assert (caller.scopes, caller.projects) == (frozenset({"submit"}), frozenset({"llm"}))
    assert main(["keys", "add", "--scope", "read", "--project", "llm"]) == 0
    assert "everybody" not in capsys.readouterr().err
    assert main(["keys", "list"]) == 0
    listed = capsys.readouterr().out
    assert "slurm" in listed
    assert key not in listed
    assert main(["keys", "list", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["state"] == "active"


def test_keys_are_rotated_and_revoked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "add", "--scope", "read", "--project", "*"]) == 0
    name = capsys.readouterr().out.split("_")[1]
    assert main(["keys", "rotate", name, "--hours", "1"]) == 0
    fresh = capsys.readouterr().out.split("_")[1]
    assert main(["keys", "revoke", fresh]) == 0
    capsys.readouterr()
    assert main(["keys", "revoke", "nobody"]) == 2
    assert "keys list" in capsys.readouterr().err
    assert main(["keys", "add", "--scope", "read", "--project", ""]) == 2
    assert main(["keys", "add", "--scope", "read", "--project", "a", "--days", "-1"]) == 2


def test_migrate_makes_the_tables(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["migrate"]) == 0
    assert "is up to date" in capsys.readouterr().err
    assert (tmp_path / "memory.sqlite3").exists()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("DIAGNOSE_PORT", "many", "DIAGNOSE_PORT must be a whole number"),
        ("DIAGNOSE_ROOTS", "relative", "must be an absolute path"),
        ("DIAGNOSE_ROOTS", "/nowhere-at-all", "no directory"),
        ("DIAGNOSE_KEYS", "maybe", "auto or required"),
        ("DIAGNOSE_DATABASE", "none", "needs a database"),
        ("DIAGNOSE_WEBHOOKS_TO", "x", "must be an address"),
        ("DIAGNOSE_WEBHOOKS_TO", "https://x/", "DIAGNOSE_WEBHOOK_SECRET_FILE"),
        ("DIAGNOSE_WEBHOOK_ALLOW", "everything", "must be a network"),
        ("DIAGNOSE_HOST", "0.0.0.0", "diagnose keys add"),
    ],
)
def test_settings_that_cannot_be_meant_are_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str, said: str
) -> None:
    database = str(tmp_path / "memory.sqlite3")
    with site(tmp_path, database, DIAGNOSE_PORT="0") as made:
        made.environment[name] = value
        process = made.start("serve", "--log-level", "error")
        assert process.wait(60) == 2
        lines = (tmp_path / "serve-0.log").read_text().strip().splitlines()
    told = [line for line in lines if line.startswith("diagnose: ")]
    assert len(told) == 1, lines
    assert said in told[0]


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.socket() as taken, site(tmp_path, str(tmp_path / "memory.sqlite3")) as made:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process = made.start("serve", "--port", str(taken.getsockname()[1]))
        assert process.wait(60) == 2
        assert "choose another --port" in made.said()


def test_a_database_that_cannot_be_opened_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "memory.sqlite3").write_bytes(b"no database at all" * 1000)
    command = [sys.executable, "-m", "diagnose", "serve", "--port", "0"]
    started = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert started.returncode == 2
    *logged, last = started.stderr.splitlines()
    assert last.startswith("diagnose: the memory")
    assert "is a file of another kind" in last
    assert not [line for line in logged if "Traceback" in line]


def test_a_worker_needs_postgres(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["worker"]) == 2
    assert "on SQLite `diagnose serve` works by itself" in capsys.readouterr().err


def test_doctor_looks_at_everything(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert main(["doctor", "--format", "json"]) == 0
    seen = {one["what"]: one for one in json.loads(capsys.readouterr().out)}
    assert seen["database"]["state"] == "ok"
    assert seen["service"]["said"].endswith("`diagnose serve` starts it")
    (tmp_path / "spool").chmod(0o755)
    monkeypatch.setenv("DIAGNOSE_CHROMA_URL", "http://127.0.0.1:9")
    (tmp_path / "secret").write_text("short")
    monkeypatch.setenv("DIAGNOSE_WEBHOOK_SECRET_FILE", str(tmp_path / "secret"))
    assert main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert "chmod 700" in said
    assert "http://127.0.0.1:9 does not answer" in said
    assert "at least 16 bytes" in said


def test_a_role_that_may_only_read_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, postgres: str
) -> None:
    with new_database(postgres) as uri:
        with open_database(uri) as database, database.writing() as session:
            session.execute(text("CREATE ROLE looks_on LOGIN"))
            session.execute(text("GRANT SELECT ON ALL TABLES IN SCHEMA public TO looks_on"))
        monkeypatch.setenv("DIAGNOSE_DATABASE", uri.replace("://postgres@", "://looks_on@"))
        assert main(["doctor", "--format", "json"]) == 1
        seen = {one["what"]: one for one in json.loads(capsys.readouterr().out)}
        assert seen["database"]["state"] == "amiss"
        assert "permission denied" in seen["database"]["said"]
        assert main(["keys", "add", "--scope", "read", "--project", "a"]) == 2
        assert "permission denied" in capsys.readouterr().err
        with open_database(uri) as database, database.writing() as session:
            session.execute(text("DROP OWNED BY looks_on"))
            session.execute(text("DROP ROLE looks_on"))


def test_a_service_ends_gracefully(tmp_path: Path) -> None:
    """What is in hand when it is asked to end is done; a doctor finds it while it runs."""
    import signal

    with site(tmp_path, str(tmp_path / "memory.sqlite3")) as made:
        api = made.serve()
        log = b"2026-10-01 00:00:10 INFO step 1 loss 2.1\n" * 100_000 + b"KeyError: x\n"
        where = made.submit("1", log).headers["location"]
        api.send_signal(signal.SIGTERM)
        assert api.wait(60) == 0, made.said()
        made.serve()
        assert made.final(where)["state"] == "done"
