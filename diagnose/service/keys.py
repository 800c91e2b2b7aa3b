"""API keys: who may do what, for which projects.

In: a `Database`. Out: `Keys`. A key is `dk_`, an id by which its row is found, and 256 random bits; only their SHA-256
is kept, which is right for a secret that nobody could guess. It is shown once. A rotated key lives on a while beside
the new one. `Scope` names what a key may do; `admin` may do everything, in every project.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Final

from sqlalchemy import func, select, update

from diagnose.dataclass import dataclass
from diagnose.errors import UsageError
from diagnose.service.jobs import Projects
from diagnose.store.database import Database
from diagnose.store.service_tables import ApiKey

SCOPES: Final = ("submit", "read", "feedback", "admin")
ALL: Final = "*"
_DAY: Final = 86_400.0
_USED_EVERY: Final = 60.0  # seconds between notes of use
_LONGEST: Final = 200


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever asks. `projects` None: all of them. `local`: this machine, where no keys are needed."""

    key: str
    scopes: frozenset[str]
    projects: Projects
    local: bool = False

    def may(self, scope: str) -> bool:
        """Whether it may do what a scope names."""
        return scope in self.scopes or "admin" in self.scopes

    @property
    def sees(self) -> Projects:
        """The projects whose rows it sees: an admin those of all."""
        return None if "admin" in self.scopes else self.projects


LOCAL: Final = Caller("", frozenset(SCOPES), None, local=True)


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A key as people see it."""

    id: str
    scopes: tuple[str, ...]
    projects: tuple[str, ...]
    note: str
    created: float
    expires: float | None
    revoked: float | None
    used: float | None

    def state(self, now: float) -> str:
        """`active`, `expired` or `revoked`."""
        if self.revoked is not None and self.revoked <= now:
            return "revoked"
        return "expired" if self.expires is not None and self.expires <= now else "active"


class Keys:
    """The keys of a database."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def add(
        self, scopes: Sequence[str], projects: Sequence[str], *, days: float | None = None, note: str = ""
    ) -> tuple[str, str]:
        """Makes a key; returns its id and the key itself, which nobody can tell again."""
        unknown = sorted(set(scopes) - set(SCOPES))
        if unknown or not scopes:
            raise UsageError(f"a key needs scopes of {', '.join(SCOPES)}" + (f", not {unknown[0]}" if unknown else ""))
        if not projects:
            raise UsageError("a key is bound to projects: name them, or * for all")
        if any(not one or len(one) > _LONGEST or not one.isprintable() for one in projects):
            raise UsageError(f"a project is a printable word of at most {_LONGEST} characters")
        if days is not None and not 0 < days <= 36_500:
            raise UsageError("a key lives for more than 0 and at most 36500 days")
        now, name, secret = self._clock(), secrets.token_hex(6), secrets.token_urlsafe(32)
        with self._database.changing() as session:
            session.add(
                ApiKey(
                    id=name,
                    digest=_digest(secret),
                    scopes=sorted(set(scopes)),
                    projects=sorted(set(projects)),
                    note=note[:500],
                    created=now,
                    expires=None if days is None else now + days * _DAY,
                )
            )
        return name, f"dk_{name}_{secret}"

    def rows(self) -> list[KeyRow]:
        """All keys, the newest first."""
        with self._database.reading() as session:
            return [_row(row) for row in session.scalars(select(ApiKey).order_by(ApiKey.created.desc()))]

    def revoke(self, id: str, *, after: float = 0.0) -> None:
        """Ends a key, at once or after so many seconds."""
        with self._database.changing() as session:
            row = session.get(ApiKey, id)
            if row is None:
                raise UsageError(f"there is no key {id[:60]!r}; `diagnose keys list` shows which there are")
            end = self._clock() + after
            row.revoked = end if row.revoked is None else min(row.revoked, end)  # rotated twice it lives no longer

    def rotate(self, id: str, *, hours: float = 24.0) -> tuple[str, str]:
        """Makes a key that may do the same; the old one ends after so many hours."""
        if not 0 <= hours <= 24 * 365:
            raise UsageError("the old key may live on for 0 to 8760 hours")
        with self._database.reading() as session:
            row = session.get(ApiKey, id)
            if row is None or _row(row).state(self._clock()) != "active":
                raise UsageError(f"there is no active key {id[:60]!r}; `diagnose keys list` shows which there are")
            scopes, projects, note = list(row.scopes), list(row.projects), row.note
            days = None if row.expires is None else (row.expires - row.created) / _DAY
        made = self.add(scopes, projects, days=days, note=note)
        self.revoke(id, after=hours * 3_600)
        return made

    def any(self) -> bool:
        """Whether any key was ever made."""
        with self._database.reading() as session:
            return bool(session.scalar(select(func.count()).select_from(ApiKey)))

    def check(self, key: str) -> Caller | None:
        """Whose key this is; None where it is no good one."""
        parts = key.split("_", 2)
        if len(parts) != 3 or parts[0] != "dk" or len(key) > _LONGEST:
            return None
        with self._database.reading() as session:
            row = session.get(ApiKey, parts[1])
            if row is None or not hmac.compare_digest(row.digest, _digest(parts[2])):
                return None
            known = _row(row)
        return self._caller(known)

    def called(self, id: str) -> Caller | None:
        """Whose key bears this id, for somebody who has shown the key before; None where it is no good one any more."""
        with self._database.reading() as session:
            row = session.get(ApiKey, id)
            known = None if row is None else _row(row)
        return None if known is None else self._caller(known)

    def _caller(self, known: KeyRow) -> Caller | None:
        now = self._clock()
        if known.state(now) != "active":
            return None
        if known.used is None or now - known.used > _USED_EVERY:
            with self._database.changing() as session:
                session.execute(update(ApiKey).where(ApiKey.id == known.id).values(used=now))
        projects = None if ALL in known.projects else frozenset(known.projects)
        return Caller(known.id, frozenset(known.scopes), projects)


def _digest(secret: str) -> str:
    return sha256(secret.encode("utf-8", "backslashreplace")).hexdigest()


def _row(row: ApiKey) -> KeyRow:
    return KeyRow(
        row.id, tuple(row.scopes), tuple(row.projects), row.note, row.created, row.expires, row.revoked, row.used
    )
