"""Where the memory is kept, and its transactions: SQLite for one machine, Postgres for a service.

In: a path or an address. Out: `Database`, whose `reading()` and `writing()` give a session in a transaction. There is
one writer at a time on either, so that revisions are in the order in which changes became visible, and a change is
there whole or not at all. A database made by an older release is brought up to date when it is opened, by alembic.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import sqlite3
import time
from collections.abc import Iterator
from typing import Any, Final, Self

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError, IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from diagnose.errors import StoreError, installing
from diagnose.sources.places import as_known

HEAD: Final = "0004"  # the latest migration; a test holds that this is so
_WAIT = 30.0  # seconds for which one writer waits for another
_REACH = 5  # seconds to reach a server
_TRUSTED = 1.0  # seconds for which a connection to a server is believed to be open still
# A server lets go of a writer whose machine is gone, and a report does not wait for ever for a server.
_PATIENCE = "-c idle_in_transaction_session_timeout=60000 -c statement_timeout=60000 -c lock_timeout=30000"
_LOCK = 0x646961676E6F7365  # of Postgres, while tables are made
_ADDRESS_LIKE = re.compile(r"(?i)(postgres|mysql|maria|sqlite)[a-z0-9+]*:|[^/]*:[^/]*@")  # one that was mistyped
_NUMBER = re.compile(r"(?!0000)[0-9]{4}")  # of a migration
_POSTGRES = frozenset({"postgres", "postgresql", "postgresql+psycopg"})


class Database:
    """An open memory. Closed with `close()`, or at the end of a `with`."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine = engine
        self.name = name
        # Each query of a server sees what is committed by then, in a transaction or not: without, two messages less.
        self._reads = engine if self.is_file else engine.execution_options(isolation_level="AUTOCOMMIT")

    @property
    def address(self) -> str:
        """What `open_database` opens it by again, password and all: not for people."""
        url = self.engine.url
        return url.database or "" if self.is_file else url.render_as_string(hide_password=False)

    @property
    def is_file(self) -> bool:
        """Whether it is a file of this machine, not a server's."""
        return self.engine.dialect.name == "sqlite"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of all connections."""
        self.engine.dispose()

    @contextlib.contextmanager
    def reading(self) -> Iterator[Session]:
        """A session that changes nothing; of a file it sees one state. Raises `StoreError`."""
        with self._told(), Session(self._reads, expire_on_commit=False) as session, session.begin():
            yield session

    @contextlib.contextmanager
    def writing(self) -> Iterator[Session]:
        """A session of the only writer; what it does is kept at its end, or nothing of it. Raises `StoreError`."""
        engine = self.engine.execution_options(writes=True)
        with self._told(), Session(engine, expire_on_commit=False) as session, session.begin():
            if not self.is_file:
                session.execute(text("SELECT value FROM counters WHERE name = 'revision' FOR UPDATE"))
            yield session

    @contextlib.contextmanager
    def changing(self) -> Iterator[Session]:
        """A session that changes single rows of no other's concern: the only writer of a file, one of many of a server.

        What it does is kept at its end, or nothing of it. Raises `StoreError`.
        """
        engine = self.engine.execution_options(writes=True)
        with self._told(), Session(engine, expire_on_commit=False) as session, session.begin():
            yield session

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        with told(self.name):
            yield


@contextlib.contextmanager
def told(name: str) -> Iterator[None]:
    """Turns a database's error into one line that says what to do."""
    try:
        yield
    except SQLAlchemyError as error:
        raise StoreError(f"the memory {name} {_what(error)}") from error


def is_duplicate(error: StoreError) -> bool:
    """Whether it says that a row is there already: somebody else was quicker."""
    return isinstance(error.__cause__, IntegrityError)


def _what(error: SQLAlchemyError) -> str:
    said = str(error.orig if isinstance(error, DBAPIError) else error).strip().splitlines()
    first = said[0][:300] if said else type(error).__name__
    hints = {
        "locked": f"was busy for {_WAIT:.0f} s: another process writes to it; try again",
        "timeout": f"was busy for {_WAIT:.0f} s: another process writes to it; try again",
        "disk is full": "cannot be written: the disk is full; make room, or set DIAGNOSE_DATABASE to another place",
        "readonly": "cannot be written: it is read-only; mend its permissions or set DIAGNOSE_DATABASE",
        "not a database": "is a file of another kind; set DIAGNOSE_DATABASE to another place",
        "malformed": "is damaged; restore it from a copy, or set DIAGNOSE_DATABASE to another place",
        "unable to open": "cannot be opened; mend its permissions or set DIAGNOSE_DATABASE",
        "I/O error": "cannot be read or written; see the disk it lies on, or set DIAGNOSE_DATABASE",
    }
    return next((hint for sign, hint in hints.items() if sign in first), f"cannot be used: {first}")


def open_database(where: str) -> Database:
    """The database at a path or an address, made or brought up to date where needed. Raises `StoreError`."""
    url = _url(where)
    name = url.database or "" if url.drivername == "sqlite" else url.render_as_string(hide_password=True)
    if url.drivername == "sqlite":
        _make_file(name)
        name = as_known(name)
    with told(name):
        try:
            engine = _engine(url)
        except ModuleNotFoundError as error:
            raise StoreError(f"the memory {name} needs a driver: {installing('memory,postgres')}") from error
        database = Database(engine, name)
        try:
            _up_to_date(database)
        except BaseException:
            database.close()
            raise
    return database


def _url(where: str) -> URL:
    if "://" not in where and not _ADDRESS_LIKE.match(where):
        return URL.create("sqlite", database=os.path.abspath(os.path.expanduser(where)))
    try:
        url = make_url(where)
    except (ArgumentError, ValueError) as error:
        raise StoreError("DIAGNOSE_DATABASE is no address; give a path or postgresql://user@host/database") from error
    if url.drivername in _POSTGRES:
        return url.set(drivername="postgresql+psycopg")
    if url.drivername == "sqlite" and url.database:
        return url.set(database=os.path.abspath(url.database))
    raise StoreError(
        f"DIAGNOSE_DATABASE names {url.drivername}, which is not supported; give a path or postgresql://..."
    )


def _make_file(path: str) -> None:
    """Makes the file and its folder for their owner alone: they hold lines of logs."""
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise StoreError(
            f"the memory {as_known(path)} cannot be opened: {why}; set DIAGNOSE_DATABASE to a path where you may write"
        ) from error


def _engine(url: URL) -> Engine:
    if url.drivername != "sqlite":
        connect = {"connect_timeout": _REACH, "options": _PATIENCE}
        engine = create_engine(url, connect_args=connect)
        _ask_the_rested(engine)
        return engine
    engine = create_engine(url, connect_args={"timeout": _WAIT})
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def _prepare(connection: sqlite3.Connection, _record: Any) -> None:
    """A new connection: this module begins transactions itself, since the driver's own way leaves tables out."""
    connection.isolation_level = None
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        with contextlib.suppress(sqlite3.OperationalError):  # another process is about to, or the folder is read-only
            connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA secure_delete = ON")  # what people delete is not left in free pages


def _ask_the_rested(engine: Engine) -> None:
    """Has a connection that was not needed for a while asked whether its server is there; else another is made.

    So is one on which something came while nobody asked: that is how a server says that it has closed it. To ask each
    time, as `pool_pre_ping` does, costs as much as most queries here; to look whether something came costs nothing.
    """

    def rest(_connection: Any, record: Any) -> None:
        record.info["rested"] = time.monotonic()

    def wake(connection: Any, record: Any, _proxy: Any) -> None:
        now = time.monotonic()
        if now - record.info.get("rested", now) > _TRUSTED or _has_spoken(connection):
            try:
                engine.dialect.do_ping(connection)
            except Exception as error:
                raise DisconnectionError from error

    event.listen(engine, "checkin", rest)
    event.listen(engine, "checkout", wake)


def _has_spoken(connection: Any) -> bool:
    """Whether a server's connection has something to read, its end included."""
    try:
        waiting = select.poll()
        waiting.register(connection.fileno(), select.POLLIN)
        return bool(waiting.poll(0))
    except Exception:  # noqa: BLE001 - the driver knows that it is closed
        return True


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _up_to_date(database: Database) -> None:
    with database.engine.connect() as connection:
        if _revision(connection) == HEAD:
            return
    with database.engine.execution_options(writes=True).begin() as connection:
        if not database.is_file:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        found = _revision(connection)
        if found == HEAD:  # another process was quicker
            return
        if found is not None and not _NUMBER.fullmatch(found):
            raise StoreError(
                f"the memory {database.name} bears {found[:40]!r} as the number of its tables, which no release has "
                "given; restore it from a copy, or set DIAGNOSE_DATABASE to another place"
            )
        if found is not None and found > HEAD:
            raise StoreError(
                f"the memory {database.name} was made by a newer release (its tables are {found}, this one knows "
                f"{HEAD}); upgrade gpu-job-diagnose or set DIAGNOSE_DATABASE"
            )
        if found is None and _foreign(connection):
            raise StoreError(
                f"the memory {database.name} holds tables of another program; set DIAGNOSE_DATABASE to another place"
            )
        from diagnose.store.migrations import upgrade

        upgrade(connection)


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def _foreign(connection: Connection) -> bool:
    names = set(inspect(connection).get_table_names())
    return bool({"jobs", "attempts", "incidents"} & names)
