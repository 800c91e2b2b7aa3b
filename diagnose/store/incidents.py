"""Incidents as everybody reads them, and what people say of them.

In: a `Database`. Out: `StoredIncidents` (the protocol `Incidents`, and what the command line lists), and `confirm`,
`correct` and `delete`, each one transaction. Every change takes the next revision, so that copies can follow.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from typing import cast

from sqlalchemy import delete as sql_delete
from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from diagnose.dataclass import dataclass
from diagnose.errors import UsageError
from diagnose.models import Incident, JobContext
from diagnose.models.memory import IncidentStage
from diagnose.models.report import ReportStatus
from diagnose.models.rule import AttributionName
from diagnose.store.database import Database
from diagnose.store.tables import Attempt, Counter, Feedback, IncidentRow, Job, Removal

_PAGE = 500
_MOST_IDS = 500  # in one question
PERSON = "person"
NEXT_ATTEMPT = "next_attempt"


class StoredIncidents:
    """The incidents of a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def __iter__(self) -> Iterator[Incident]:
        last = ""
        while page := self._page(last):
            yield from page
            last = page[-1].id

    def _page(self, after: str) -> list[Incident]:
        with self._database.reading() as session:
            found = session.scalars(
                select(IncidentRow).where(IncidentRow.id > after).order_by(IncidentRow.id).limit(_PAGE)
            )
            return [of_row(row) for row in found]

    def __len__(self) -> int:
        with self._database.reading() as session:
            return session.scalar(select(func.count()).select_from(IncidentRow)) or 0

    def get(self, id: str) -> Incident | None:
        """One incident, None where there is none of that id."""
        with self._database.reading() as session:
            row = session.get(IncidentRow, id)
            return None if row is None else of_row(row)

    def many(self, ids: Sequence[str]) -> tuple[Incident, ...]:
        """Those of the given ids that there are, in the order asked for."""
        found: dict[str, Incident] = {}
        with self._database.reading() as session:
            for start in range(0, len(ids), _MOST_IDS):
                some = ids[start : start + _MOST_IDS]
                rows = session.scalars(select(IncidentRow).where(IncidentRow.id.in_(some)))
                found.update((row.id, of_row(row)) for row in rows)
        return tuple(found[one] for one in ids if one in found)

    def changed_since(self, revision: int) -> Iterator[Incident]:
        """What was added or changed after a revision, in order of revision; 0 gives all."""
        while True:
            with self._database.reading() as session:
                rows = session.scalars(
                    select(IncidentRow)
                    .where(IncidentRow.revision > revision)
                    .order_by(IncidentRow.revision)
                    .limit(_PAGE)
                )
                page = [of_row(row) for row in rows]
            if not page:
                return
            yield from page
            revision = page[-1].revision

    def removed_since(self, revision: int) -> Iterator[tuple[int, str]]:
        """Revision and id of incidents that were deleted after a revision, in order of revision."""
        while True:
            with self._database.reading() as session:
                rows = session.execute(
                    select(Removal.revision, Removal.id)
                    .where(Removal.revision > revision)
                    .order_by(Removal.revision)
                    .limit(_PAGE)
                ).all()
            if not rows:
                return
            yield from ((row.revision, row.id) for row in rows)
            revision = rows[-1].revision

    def revision(self) -> int:
        """The latest revision of the store."""
        with self._database.reading() as session:
            return session.scalar(select(Counter.value).where(Counter.name == "revision")) or 0

    def latest(
        self,
        *,
        error_type: str | None = None,
        user: str | None = None,
        since: float | None = None,
        confirmed: bool | None = None,
        projects: Collection[str] | None = None,
        limit: int = 50,
    ) -> list[Incident]:
        """The latest incidents of a kind, the newest first; of all projects, or of these."""
        query = select(IncidentRow).order_by(IncidentRow.created.desc(), IncidentRow.id).limit(limit)
        if projects is not None:
            query = query.where(IncidentRow.project.in_(sorted(projects)))
        if error_type is not None:
            query = query.where(IncidentRow.error_type == error_type)
        if user is not None:
            query = query.where(IncidentRow.user == user)
        if since is not None:
            query = query.where(IncidentRow.created >= since)
        if confirmed is not None:
            query = query.where(IncidentRow.confirmed == confirmed)
        with self._database.reading() as session:
            return [of_row(row) for row in session.scalars(query)]

    def said(self, id: str) -> list[Said]:
        """What people said of an incident, the oldest first."""
        with self._database.reading() as session:
            rows = session.scalars(select(Feedback).where(Feedback.incident_id == id).order_by(Feedback.id))
            return [Said(iso_time(row.at), row.by, row.kind, row.after, row.recovered, row.note) for row in rows]


@dataclass(frozen=True, slots=True)
class Said:
    """What a person said of an incident."""

    at: str
    by: str
    kind: str
    error_type: str | None
    recovered: bool | None
    note: str


def iso_time(seconds: float) -> str:
    """Seconds since the epoch as ISO 8601 in UTC, whole seconds."""
    try:
        return datetime.fromtimestamp(int(seconds), UTC).isoformat()
    except (OverflowError, OSError, ValueError):
        return ""


def seconds_of(stamp: str) -> float:
    """What `iso_time` made a stamp of; 0 for what is none."""
    try:
        made = datetime.fromisoformat(stamp)
        return (made if made.tzinfo is not None else made.replace(tzinfo=UTC)).timestamp()
    except (OverflowError, OSError, ValueError):
        return 0.0


def of_row(row: IncidentRow) -> Incident:
    """An incident as others read it."""
    return Incident(
        id=row.id,
        error_type=row.error_type,
        attribution=cast("AttributionName | None", row.attribution),
        status=cast("ReportStatus", row.status),
        summary=row.summary,
        text=row.text,
        job=row.job_action,
        recovered=row.recovered,
        confirmed=row.confirmed,
        decided_by=cast("IncidentStage", row.decided_by),
        rule=row.rule,
        created=iso_time(row.created),
        context=JobContext(row.number, row.name, row.user, row.image, row.cluster, row.project),
        culprits=tuple(row.culprits),
        accepted=tuple(row.accepted),
        nodes=tuple(row.nodes),
        origin=row.origin,
        revision=row.revision,
    )


def next_revision(session: Session) -> int:
    """The number of the change that is being made; one for each changed incident."""
    value: int | None = session.scalar(
        update(Counter).where(Counter.name == "revision").values(value=Counter.value + 1).returning(Counter.value)
    )
    if value is None:
        raise UsageError("the memory has lost its counter of revisions; restore it from a copy")
    return value


def announce(session: Session, row: IncidentRow) -> None:
    """Gives an incident that was added or changed the next revision; one that was deleted before is there again."""
    row.revision = next_revision(session)
    session.execute(sql_delete(Removal).where(Removal.id == row.id))


def known(session: Session, id: str) -> IncidentRow:
    """An incident that must be there. Raises `UsageError`."""
    row = session.get(IncidentRow, id)
    if row is None:
        raise UsageError(f"there is no incident {id}; `diagnose incidents list` shows which there are")
    return row


def confirm(database: Database, id: str, *, recovered: bool | None = None, by: str = "", note: str = "") -> Incident:
    """Says that the verdict on an incident was right, and whether what was done about it helped."""
    with database.writing() as session:
        row = known(session, id)
        if row.error_type is None:
            raise UsageError(
                f"incident {id} has no error type to confirm; name it: "
                f"diagnose incidents correct {id} --error-type TYPE"
            )
        _say(session, row, "confirm", row.error_type, recovered, by, note)
        return of_row(row)


def tell_outcome(database: Database, id: str, *, recovered: bool, by: str = "", note: str = "") -> Incident:
    """Says whether what was done about an incident helped; its verdict stays as it is, confirmed or not."""
    with database.writing() as session:
        row = known(session, id)
        confirmed = row.confirmed
        _say(session, row, "outcome", row.error_type, recovered, by, note)
        row.confirmed = confirmed
        return of_row(row)


def correct(
    database: Database,
    id: str,
    *,
    error_type: str,
    attribution: AttributionName | None = None,
    summary: str | None = None,
    recovered: bool | None = None,
    by: str = "",
    note: str = "",
) -> Incident:
    """Says what an incident really was; that is confirmed from then on."""
    with database.writing() as session:
        row = known(session, id)
        kind = "confirm" if row.error_type == error_type else "correct"
        before = row.error_type
        if attribution is not None or kind == "correct":
            row.attribution = attribution
        row.error_type = error_type
        row.status = "failed"
        if summary is not None:
            row.summary = summary
        if kind == "correct":
            row.decided_by = "person"
        _say(session, row, kind, before, recovered, by, note)
        return of_row(row)


def _say(
    session: Session, row: IncidentRow, kind: str, before: str | None, recovered: bool | None, by: str, note: str
) -> None:
    row.confirmed = True
    if recovered is not None:
        row.recovered, row.outcome_by = recovered, PERSON
    row.revision = next_revision(session)
    said = Feedback(
        incident_id=row.id,
        at=time.time(),
        by=by,
        kind=kind,
        before=before,
        after=row.error_type,
        rule=row.rule,
        recovered=recovered,
        note=note,
    )
    session.add(said)
    if kind == "correct":
        row.rule = None  # it was wrong: what people said keeps it


def delete(database: Database, ids: Sequence[str], *, with_run: bool = True) -> int:
    """Deletes incidents, and what was recorded of their runs; returns how many there were."""
    deleted = 0
    with database.writing() as session:
        for one in ids:
            row = session.get(IncidentRow, one)
            if row is not None:
                remove(session, row, with_run=with_run)
                deleted += 1
    return deleted


def forget_run(database: Database, attempt: int) -> None:
    """Deletes what was recorded of one attempt that no incident speaks of."""
    with database.writing() as session:
        if session.scalar(select(func.count()).select_from(IncidentRow).where(IncidentRow.attempt_id == attempt)):
            return
        row = session.get(Attempt, attempt)
        if row is not None:
            remove_run(session, row)


def remove(session: Session, row: IncidentRow, *, with_run: bool) -> None:
    """Removes one incident within a transaction, leaving word that it is gone."""
    attempt = session.get(Attempt, row.attempt_id) if with_run and row.attempt_id is not None else None
    session.merge(Removal(id=row.id, revision=next_revision(session)))
    session.delete(row)
    session.flush()
    if attempt is not None:
        remove_run(session, attempt)


def remove_run(session: Session, attempt: Attempt) -> None:
    """Removes an attempt, and its job where it was the last."""
    job = attempt.job_id
    session.delete(attempt)
    session.flush()
    if not session.scalar(select(func.count()).select_from(Attempt).where(Attempt.job_id == job)):
        left = session.get(Job, job)
        if left is not None:
            session.delete(left)
