"""What is no longer to be kept: old runs go, what people confirmed stays until somebody deletes it.

In: an age in days. Out: how many attempts and incidents went. In small transactions, so that others can write between
them, each whole.
"""

from __future__ import annotations

from sqlalchemy import delete, exists, select
from sqlalchemy.orm import Session

from diagnose.dataclass import dataclass
from diagnose.store.database import Database
from diagnose.store.incidents import remove
from diagnose.store.tables import Attempt, Counter, IncidentRow, Job, Removal

_DAY = 86_400.0
_AT_ONCE = 200
_REMOVALS_KEPT = 100_000
_PRUNED = "pruned"  # when that was done last


@dataclass(frozen=True, slots=True)
class Pruned:
    """How much went."""

    attempts: int = 0
    incidents: int = 0


def prune(database: Database, days: float, now: float, *, confirmed_too: bool = False) -> Pruned:
    """Deletes what was recorded longer ago than `days`: attempts with all that hangs on them, unconfirmed incidents."""
    before = now - days * _DAY
    attempts = incidents = 0
    while True:
        with database.writing() as session:
            gone = _incidents(session, before, confirmed_too=confirmed_too)
        incidents += gone
        if not gone:
            break
    while True:
        with database.writing() as session:
            gone = _attempts(session, before)
        attempts += gone
        if not gone:
            break
    with database.writing() as session:
        session.execute(delete(Job).where(~exists().where(Attempt.job_id == Job.id)))
        newest = session.scalar(select(Counter.value).where(Counter.name == "revision")) or 0
        session.execute(delete(Removal).where(Removal.revision < newest - _REMOVALS_KEPT))
        session.merge(Counter(name=_PRUNED, value=int(now)))
    return Pruned(attempts, incidents)


def _incidents(session: Session, before: float, *, confirmed_too: bool) -> int:
    query = (
        select(IncidentRow)
        .outerjoin(Attempt, Attempt.id == IncidentRow.attempt_id)
        .where(Attempt.recorded.is_(None) | (Attempt.recorded < before), IncidentRow.created < before)
        .limit(_AT_ONCE)
    )
    if not confirmed_too:
        query = query.where(IncidentRow.confirmed.is_(False))
    rows = session.scalars(query).all()
    for row in rows:
        remove(session, row, with_run=True)
    return len(rows)


def _attempts(session: Session, before: float) -> int:
    old = session.scalars(select(Attempt.id).where(Attempt.recorded < before).limit(_AT_ONCE)).all()
    if old:
        session.execute(delete(Attempt).where(Attempt.id.in_(old)))
    return len(old)


def prune_when_due(database: Database, days: float, now: float) -> None:
    """Prunes once a day."""
    with database.reading() as session:
        last = session.scalar(select(Counter.value).where(Counter.name == _PRUNED)) or 0
    if now - last >= _DAY:
        prune(database, days, now)


def delete_of_user(database: Database, user: str) -> Pruned:
    """Deletes everything that was recorded of one user's jobs, confirmed or not."""
    with database.writing() as session:
        rows = session.scalars(select(IncidentRow).where(IncidentRow.user == user)).all()
        for row in rows:
            remove(session, row, with_run=False)
        jobs = session.scalars(select(Job.id).where(Job.user == user)).all()
        attempts = 0
        for start in range(0, len(jobs), _AT_ONCE):
            some = jobs[start : start + _AT_ONCE]
            attempts += len(session.scalars(select(Attempt.id).where(Attempt.job_id.in_(some))).all())
            session.execute(delete(Job).where(Job.id.in_(some)))
    return Pruned(attempts, len(rows))
