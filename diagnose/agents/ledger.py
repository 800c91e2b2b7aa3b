"""What is remembered of asking models: tokens used per day, answers already paid for, how each server is doing.

In: keys and figures. Out: the same, whichever process asks. One small SQLite file that several processes may use at
once; None keeps everything in this process. Raises `LedgerError` where the file cannot be used.
"""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator

from diagnose.errors import DiagnoseError
from diagnose.sources.places import as_known

_BUSY = 5.0  # seconds
_ANSWERS = 5_000
_ANSWER_DAYS = 30
_DAYS = 400  # kept of the account
_SCHEMA = """
CREATE TABLE IF NOT EXISTS usage (day TEXT PRIMARY KEY, tokens INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, answer TEXT NOT NULL, kept REAL NOT NULL);
CREATE TABLE IF NOT EXISTS dialects (server TEXT PRIMARY KEY, dialect TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS outages (server TEXT PRIMARY KEY, often INTEGER NOT NULL, latest REAL NOT NULL);
"""
_VERSION = 2
_PAUSE = 300.0  # seconds for which a server that failed too often is left alone
_ROW = 3_600.0  # outages further apart than this are not in a row


class LedgerError(DiagnoseError):
    """The account cannot be kept."""


class Ledger:
    """The account of one place. Safe for threads, processes and forks: each use opens the file anew."""

    def __init__(self, path: str | None = None, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._now = now
        self._lock = threading.Lock()
        self._memory = sqlite3.connect(":memory:", check_same_thread=False) if path is None else None
        if self._memory is not None:
            self._memory.executescript(_SCHEMA)

    def close(self) -> None:
        """Let go of what is held in memory."""
        if self._memory is not None:
            self._memory.close()

    def reserve(self, tokens: int, limit: int) -> str | None:
        """Put tokens down to today unless that exceeds the limit; the day they were put down to, or None."""
        day = self._today()
        with self._open() as base:
            base.execute("BEGIN IMMEDIATE")  # who reads to write must be alone, or two would both fit
            row = base.execute("SELECT tokens FROM usage WHERE day = ?", (day,)).fetchone()
            if (row[0] if row else 0) + tokens > limit:
                return None
            base.execute(
                "INSERT INTO usage VALUES (?, ?) ON CONFLICT (day) DO UPDATE SET tokens = tokens + excluded.tokens",
                (day, tokens),
            )
            if row is None:
                base.execute("DELETE FROM usage WHERE day < ?", (self._day(self._now() - _DAYS * 86_400),))
        return day

    def settle(self, day: str, reserved: int, used: int) -> None:
        """Replace what was reserved by what was used. A process that dies before leaves the reservation standing."""
        with self._open() as base:
            base.execute("UPDATE usage SET tokens = max(0, tokens + ?) WHERE day = ?", (used - reserved, day))

    def used(self) -> int:
        """Tokens of today."""
        with self._open() as base:
            row = base.execute("SELECT tokens FROM usage WHERE day = ?", (self._today(),)).fetchone()
        return int(row[0]) if row else 0

    def answer(self, key: str) -> str | None:
        """An answer kept under a key; None where there is none, or the file cannot be read."""
        with contextlib.suppress(LedgerError), self._open() as base:
            oldest = self._now() - _ANSWER_DAYS * 86_400
            row = base.execute("SELECT answer FROM answers WHERE key = ? AND kept > ?", (key, oldest)).fetchone()
            return str(row[0]) if row else None
        return None

    def keep(self, key: str, answer: str) -> None:
        """Keep an answer; the oldest go. That it cannot be kept does no harm."""
        with contextlib.suppress(LedgerError), self._open() as base:
            base.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", (key, answer, self._now()))
            base.execute(
                "DELETE FROM answers WHERE kept < ? OR key IN "
                "(SELECT key FROM answers ORDER BY kept DESC LIMIT -1 OFFSET ?)",
                (self._now() - _ANSWER_DAYS * 86_400, _ANSWERS),
            )

    def dialect(self, server: str) -> str | None:
        """What is known of a server; None where nothing is."""
        with contextlib.suppress(LedgerError), self._open() as base:
            row = base.execute("SELECT dialect FROM dialects WHERE server = ?", (server,)).fetchone()
            return str(row[0]) if row else None
        return None

    def learn(self, server: str, dialect: str | None) -> None:
        """Remember what a server can do, or forget it."""
        with contextlib.suppress(LedgerError), self._open() as base:
            if dialect is None:
                base.execute("DELETE FROM dialects WHERE server = ?", (server,))
            else:
                base.execute("INSERT OR REPLACE INTO dialects VALUES (?, ?)", (server, dialect))

    def failed(self, server: str) -> None:
        """Note that a server did not serve; the more in a row, the sooner it is left alone."""
        now = self._now()
        with contextlib.suppress(LedgerError), self._open() as base:
            base.execute(
                "INSERT INTO outages VALUES (?, 1, ?) ON CONFLICT (server) DO UPDATE SET latest = excluded.latest, "
                "often = CASE WHEN abs(excluded.latest - latest) < ? THEN often + 1 ELSE 1 END",
                (server, now, _ROW),
            )

    def served(self, server: str) -> None:
        """Note that a server did serve."""
        with contextlib.suppress(LedgerError), self._open() as base:
            base.execute("DELETE FROM outages WHERE server = ?", (server,))

    def left_alone(self, server: str, most: int) -> tuple[int, int] | None:
        """How often a server has failed in a row, and for how many seconds it is not asked; None if it may be.

        When those are over, whoever comes first asks, and all others wait until it is known what came of that.
        """
        now = self._now()
        with contextlib.suppress(LedgerError), self._open() as base:
            found = "SELECT often, latest FROM outages WHERE server = ? AND often >= ? AND abs(? - latest) < ?"
            if most < 1 or base.execute(found, (server, most, now, _ROW)).fetchone() is None:
                return None
            base.execute("BEGIN IMMEDIATE")
            often, latest = base.execute(found, (server, most, now, _ROW)).fetchone() or (0, 0.0)
            if often and 0 <= now - latest < _PAUSE:  # a clock that was put back is no reason to wait
                return int(often), math.ceil(latest + _PAUSE - now)
            base.execute("UPDATE outages SET latest = ? WHERE server = ?", (now, server))
        return None

    def _today(self) -> str:
        return self._day(self._now())

    @staticmethod
    def _day(seconds: float) -> str:
        return time.strftime("%Y-%m-%d", time.gmtime(seconds))

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A transaction; written whole or not at all."""
        with self._lock:
            try:
                base = self._memory or self._file()
                try:
                    with base:
                        yield base
                finally:
                    if base is not self._memory:
                        base.close()
            except (sqlite3.Error, OSError) as error:
                why = getattr(error, "strerror", None) or str(error)
                raise LedgerError(
                    f"the account of tokens cannot be kept in {as_known(self._path or '')} ({why}): delete the file "
                    "if it is damaged, or name another by DIAGNOSE_LLM_STATE"
                ) from error

    def _file(self) -> sqlite3.Connection:
        path = self._path or ""
        if not os.path.exists(path):
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # answers are for their owner only
        base = sqlite3.connect(path, timeout=_BUSY)
        try:
            base.execute("PRAGMA synchronous = NORMAL")
            if base.execute("PRAGMA user_version").fetchone()[0] < _VERSION:
                base.execute("PRAGMA journal_mode = WAL")
                base.executescript(f"{_SCHEMA}PRAGMA user_version = {_VERSION};")
        except BaseException:
            base.close()
            raise
        return base
