"""The database of a service, which may be away for a while.

In: where it is. Out: `Opening.database()`: the open database, or `StoreError` at once while it is known to be away, so
that nobody waits for a server that does not answer. It is tried again every two seconds.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from sqlalchemy.exc import InterfaceError, OperationalError

from diagnose.errors import StoreError
from diagnose.store.database import Database, open_database

_PAUSE: Final = 2.0


class Away(StoreError):
    """The database cannot be reached at present."""


class Opening:
    """A database that is opened when it is first asked for, and again after it was away."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._database: Database | None = None
        self._lock = threading.Lock()
        self._until = 0.0
        self._why = ""

    def database(self) -> Database:
        """The database. Raises `Away`."""
        if time.monotonic() < self._until:
            raise Away(self._why)
        if self._database is not None:
            return self._database
        with self._lock:
            if time.monotonic() < self._until:
                raise Away(self._why)
            if self._database is None:
                try:
                    self._database = open_database(self._where)
                except StoreError as error:
                    self.failed(error)
                    raise Away(str(error)) from error
            return self._database

    def failed(self, error: StoreError) -> bool:
        """Takes note of an error; returns whether it says that the database is away."""
        if isinstance(error, Away):
            return True
        cause = error.__cause__
        gone = isinstance(cause, OperationalError | InterfaceError) or isinstance(error.__context__, OSError)
        if gone:
            self._why, self._until = str(error), time.monotonic() + _PAUSE
        return gone

    def close(self) -> None:
        """Lets go of it."""
        if self._database is not None:
            self._database.close()
