"""The queue of a service on Postgres: several API and worker processes share it.

In: ids of submissions. Out: jobs of Procrastinate, which a worker process takes (`working.py`), and word of changes of
state by `LISTEN`. The queue may forget and repeat: what is unfinished and who may finish it, our own tables say.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import procrastinate
import psycopg
from procrastinate.exceptions import AlreadyEnqueued, ConnectorException
from psycopg_pool import PoolTimeout
from sqlalchemy import text
from sqlalchemy.engine import make_url

from diagnose.errors import StoreError
from diagnose.service.claims import CHANNEL
from diagnose.service.opening import Opening
from diagnose.service.settings import ServiceConfig

TASK: Final = "diagnose.work"
QUEUE: Final = "diagnose"
_LOCK: Final = 0x646961676E7175  # of Postgres, while the queue's tables are made
_PATIENCE: Final = 3.0
_REACH: Final = 5
OnState = Callable[[str, str], None]


def address_of(config: ServiceConfig) -> str:
    """The address of the database as its own library takes it."""
    url = make_url(config.database).set(drivername="postgresql")
    return url.render_as_string(hide_password=False)


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Turns errors of the queue into one line."""
    try:
        yield
    except (ConnectorException, psycopg.Error, PoolTimeout, OSError) as error:
        first = str(error.__cause__ or error).strip().splitlines() or [type(error).__name__]
        raise StoreError(f"the queue cannot be used: {first[0][:300]}") from error


def prepare(opening: Opening) -> None:
    """Makes the queue's tables, where there are none. Raises `StoreError`."""
    database = opening.database()
    with told(), database.changing() as session:
        session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        if session.execute(text("SELECT to_regclass('procrastinate_jobs')")).scalar() is not None:
            return
        schema = procrastinate.schema.SchemaManager.get_schema()
        # Several statements at once, which only a cursor without parameters takes.
        driver = session.connection().connection.driver_connection
        assert driver is not None
        driver.cursor().execute(schema)


class PostgresQueue:
    """Where an API process puts jobs, and hears of them."""

    def __init__(self, config: ServiceConfig, opening: Opening, on_state: OnState) -> None:
        self._opening, self._on_state = opening, on_state
        self._address = address_of(config)
        self._app: Any = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="states", daemon=True)
        self._thread.start()

    def put(self, id: str) -> None:
        """Has a job worked on by whoever is free. Raises `StoreError`."""
        put_in(self._ready(), id)

    def _ready(self) -> Any:
        self._opening.database()
        with self._lock:
            if self._app is None:
                prepare(self._opening)
                app = sync_app(self._address)
                with told():
                    app.open()
                self._app = app
        return self._app

    @property
    def depth(self) -> int | None:
        """Not known here."""
        return None

    def close(self, seconds: float) -> None:
        """Ends; workers go on."""
        self._stop.set()
        self._thread.join(seconds)
        if self._app is not None:
            self._app.close()

    def _listen(self) -> None:
        """Passes on what workers say of states; whoever waits looks by himself now and then as well."""
        while not self._stop.is_set():
            try:
                with psycopg.connect(self._address, autocommit=True, connect_timeout=_REACH) as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    while not self._stop.is_set():
                        for notice in connection.notifies(timeout=0.5):
                            name, _, state = notice.payload.partition(" ")
                            self._on_state(name, state)
                            if self._stop.is_set():
                                break
            except (psycopg.Error, OSError):
                self._stop.wait(2.0)


def sync_app(address: str) -> Any:
    """Procrastinate, to put jobs."""
    connector = procrastinate.SyncPsycopgConnector(
        conninfo=address, min_size=1, max_size=4, timeout=_PATIENCE, kwargs={"connect_timeout": _REACH}
    )
    return procrastinate.App(connector=connector)


def put_in(app: Any, id: str) -> None:
    """Puts one job, unless it waits already. Raises `StoreError`."""
    with told(), contextlib.suppress(AlreadyEnqueued):
        app.configure_task(TASK, queue=QUEUE, queueing_lock=id, allow_unknown=True).defer(id=id)
