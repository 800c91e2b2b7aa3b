"""Who read or changed what, and when: a row for each request that did, without a text of any log.

In: what a request was about. Out: rows, written by a thread of its own so that nobody waits for them; when the database
is away they wait, a bounded number, and what is lost then is counted. Of what goes on and on, such as the chunks of one
log, there is one row an hour. `Trail.recent` is how administrators read them.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import delete, insert, select

from diagnose.dataclass import dataclass
from diagnose.errors import StoreError
from diagnose.store.database import Database
from diagnose.store.service_tables import AuditRow

_HELD: Final = 100_000
_BATCH: Final = 500
_GATHER: Final = 0.5  # seconds
_KEEP: Final = 400 * 86_400.0  # seconds: a year and a bit
_GOES_ON: Final = 3_600.0  # seconds that one row speaks for
_KNOWN: Final = 100_000


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that somebody did; `goes_on` where it is one of many alike."""

    key: str
    action: str
    object: str
    project: str
    status: int
    request: str
    address: str
    goes_on: bool = False


class Trail:
    """The audit log. `database` gives the database, or raises `StoreError`."""

    def __init__(self, database: Callable[[], Database], clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        self._waiting: queue.Queue[dict[str, Any] | None] = queue.Queue(_HELD)
        self._going_on: dict[tuple[object, ...], float] = {}
        self._lock = threading.Lock()
        self.lost = 0
        self._thread = threading.Thread(target=self._write, name="audit", daemon=True)
        self._thread.start()

    def note(self, act: Act) -> None:
        """Takes one down."""
        if act.goes_on and self._is_known(act):
            return
        row = {
            "at": self._clock(),
            "key_id": act.key,
            "project": act.project,
            "action": act.action,
            "object": act.object[:300],
            "status": act.status,
            "request_id": act.request,
            "address": act.address,
        }
        try:
            self._waiting.put_nowait(row)
        except queue.Full:
            self.lost += 1

    def _is_known(self, act: Act) -> bool:
        """Whether a row of this hour speaks for it: the same key doing the same, with the same end."""
        what, now = (act.key, act.address, act.action, act.project, act.object, act.status), self._clock()
        with self._lock:
            if now - self._going_on.get(what, 0.0) < _GOES_ON:
                return True
            self._going_on.pop(what, None)
            self._going_on[what] = now  # the oldest stand first
            if len(self._going_on) > _KNOWN:
                del self._going_on[next(iter(self._going_on))]
        return False

    def close(self) -> None:
        """Writes what waits, for a few seconds."""
        self._waiting.put(None)
        self._thread.join(5.0)

    def recent(self, *, since: float = 0.0, key: str | None = None, count: int = 200) -> list[dict[str, Any]]:
        """The latest acts, the newest first."""
        query = select(AuditRow).where(AuditRow.at >= since).order_by(AuditRow.at.desc(), AuditRow.id.desc())
        if key is not None:
            query = query.where(AuditRow.key_id == key)
        with self._database().reading() as session:
            return [
                {name: getattr(row, name) for name in (*_SHOWN, "object")}
                for row in session.scalars(query.limit(count))
            ]

    def _write(self) -> None:
        ending = False
        pruned = 0.0
        rows: list[dict[str, Any]] = []
        while not ending:
            rows, ending = self._more(rows)
            if not rows:
                continue
            try:
                with self._database().changing() as session:
                    session.execute(insert(AuditRow), rows)
                    if self._clock() - pruned > 86_400:
                        pruned = self._clock()
                        session.execute(delete(AuditRow).where(AuditRow.at < pruned - _KEEP))
                rows = []
            except StoreError:
                if ending:
                    self.lost += len(rows)
                time.sleep(0 if ending else 2.0)

    def _more(self, rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], bool]:
        """What has come since, within a short while after the first, and whether that was all."""
        until = time.monotonic() + _GATHER
        while len(rows) < _BATCH:
            try:
                row = self._waiting.get(timeout=max(0.0, until - time.monotonic()) if rows else None)
            except queue.Empty:
                break
            if row is None:
                return rows, True
            if not rows:
                until = time.monotonic() + _GATHER
            rows.append(row)
        return rows, False


_SHOWN: Final = ("at", "key_id", "project", "action", "status", "request_id", "address")
