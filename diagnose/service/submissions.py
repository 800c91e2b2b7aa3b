"""The jobs that were accepted: what is known of each, how far it is, and who may see it.

In: a `Database`. Out: `Submissions`. An attempt of a job is one row, whoever sends it how often. Each query of the
outside goes through `visible`, the one place where projects are told apart.
"""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlalchemy import and_, delete, func, or_, select
from sqlalchemy.orm import Session

from diagnose.dataclass import replace
from diagnose.errors import StoreError, UsageError
from diagnose.service.jobs import FINAL, Absent, Conflict, Filters, InputRef, NewJob, Projects, Uploaded
from diagnose.service.rows import input_of, input_row, row_of
from diagnose.service.uploads import upload_row
from diagnose.store.database import Database, is_duplicate
from diagnose.store.service_tables import Outgoing, Submission, SubmissionInput, UploadRow
from diagnose.store.tables import IncidentRow


def visible(query: Any, projects: Projects) -> Any:
    """A query of submissions, for whoever may see these projects."""
    return query if projects is None else query.where(Submission.project.in_(sorted(projects)))


class Submissions:
    """The submissions of a database. Raises `StoreError` where it cannot be used."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    # Accepting

    def accept(
        self, job: NewJob, uploaded: Sequence[Uploaded] = (), *, replayed: bool = False
    ) -> tuple[Submission, bool]:
        """The resource of a job, and whether it is new. Raises `Conflict` where an upload is not there.

        What came with it is `uploaded`, and is kept even where the job is not new. One that was `replayed` was
        acknowledged before: it is there, whatever has become of its inputs, but without uploads of other projects.
        """
        for _ in range(2):
            try:
                return self._accept(job, uploaded, replayed=replayed)
            except StoreError as error:  # somebody may have sent the same at the same time
                if not is_duplicate(error):
                    raise
        raise Conflict("the same job is being handed in by others; try again")

    def _accept(self, job: NewJob, uploaded: Sequence[Uploaded], *, replayed: bool) -> tuple[Submission, bool]:
        now = self._clock()
        with self._database.changing() as session:
            session.add_all(upload_row(one, now) for one in uploaded)
            row = session.get(Submission, job.id)
            if row is not None and row.due is None:
                return row, False
            if replayed:
                job = replace(job, inputs=self._own(session, job.inputs, job.project))
            else:
                came = {one.id for one in uploaded}
                self._check_uploads(session, [one for one in job.inputs if one.upload not in came], job.project)
            if row is not None:
                _join(row, job, now)
                return row, False
            return _added(session, job, now), True

    # Jobs that wait for their last ranks

    def hold(self, job: NewJob) -> bool:
        """The resource of a job that has ended, which nobody takes up before it is due; says whether it is new."""
        for _ in range(2):
            try:
                with self._database.changing() as session:
                    row = session.get(Submission, job.id, with_for_update=True)
                    if row is None:
                        _added(session, job, self._clock())
                        return True
                    row.due = job.due
                    return False
            except StoreError as error:  # somebody may have sent the same at the same time
                if not is_duplicate(error):
                    raise
        return False

    def fall_due(self, job: NewJob, *, late: bool) -> str | None:
        """The last ranks of a job have spoken: its id, where it is to be worked on now; None where that was known.

        `late`: they had spoken before, and something came after that.
        """
        now = self._clock()
        with self._database.changing() as session:
            row = session.get(Submission, job.id, with_for_update=True)
            if row is None:  # the database was away when it ended; or it was deleted since
                return None if late else _added(session, replace(job, due=None), now).id
            if row.due is None and not late:
                return None
            if row.state != "queued":
                _restart(row, now)
            row.due = None
            return row.id

    def _own(self, session: Session, inputs: tuple[InputRef, ...], project: str) -> tuple[InputRef, ...]:
        """The inputs without what others have put here: while the database was away nobody could say whose it is."""
        named = {one.upload for one in inputs if one.upload}
        others = set(
            session.scalars(select(UploadRow.id).where(UploadRow.id.in_(named), UploadRow.project != project))
            if named
            else ()
        )
        return tuple(one for one in inputs if one.upload not in others)

    def _check_uploads(self, session: Session, inputs: Sequence[InputRef], project: str) -> None:
        wanted = {one.upload for one in inputs if one.upload}
        if wanted:
            known = set(
                session.scalars(select(UploadRow.id).where(UploadRow.id.in_(wanted), UploadRow.project == project))
            )
            if missing := sorted(wanted - known):
                raise Conflict(f"there is no upload {missing[0]}; send it first")

    def add_inputs(self, id: str, inputs: Sequence[InputRef], projects: Projects) -> Submission:
        """Adds inputs; the job is diagnosed again. What is being made of it without them counts no more."""
        now = self._clock()
        with self._database.changing() as session:
            row = self._known(session, id, projects)
            self._check_uploads(session, inputs, row.project)
            row.inputs.extend(input_row(one, now) for one in inputs)
            _restart(row, now)
            return row

    # Reading

    def get(self, id: str, projects: Projects) -> Submission:
        """One, with its renderings. Raises `Absent`."""
        with self._database.reading() as session:
            row = self._known(session, id, projects)
            session.expunge(row)
            return row

    def _known(self, session: Session, id: str, projects: Projects) -> Submission:
        row: Submission | None = session.scalar(visible(select(Submission).where(Submission.id == id), projects))
        if row is None:
            raise Absent(f"there is no diagnosis {id[:60]!r}")
        return row

    def page(
        self, filters: Filters, projects: Projects, *, count: int, cursor: str | None
    ) -> tuple[list[Submission], str | None]:
        """Those that fit, the newest first, and the cursor of the rest."""
        query = visible(select(Submission), projects)
        for name in _EQUAL:
            wanted = getattr(filters, name)
            if wanted is not None:
                query = query.where(getattr(Submission, name) == wanted)
        if filters.since is not None:
            query = query.where(Submission.created >= filters.since)
        if filters.until is not None:
            query = query.where(Submission.created < filters.until)
        if filters.text:
            fields = (Submission.job_id, Submission.name, Submission.user, Submission.summary, Submission.error_type)
            query = query.where(or_(*(field.icontains(filters.text, autoescape=True) for field in fields)))
        if cursor is not None:
            created, name = _read_cursor(cursor)
            query = query.where(
                or_(Submission.created < created, and_(Submission.created == created, Submission.id < name))
            )
        query = query.order_by(Submission.created.desc(), Submission.id.desc()).limit(count + 1)
        query = query.with_only_columns(*_LISTED)
        with self._database.reading() as session:
            rows = [Submission(**row._mapping) for row in session.execute(query)]  # noqa: SLF001 - its public name
        more = len(rows) > count
        rows = rows[:count]
        return rows, _cursor(rows[-1].created, rows[-1].id) if more and rows else None

    def inputs(self, id: str) -> tuple[InputRef, ...]:
        """The inputs of one, in order."""
        with self._database.reading() as session:
            return tuple(
                input_of(row)
                for row in session.scalars(
                    select(SubmissionInput).where(SubmissionInput.submission_id == id).order_by(SubmissionInput.id)
                )
            )

    def counts(self) -> dict[str, int]:
        """How many there are of each state."""
        with self._database.reading() as session:
            rows = session.execute(select(Submission.state, func.count()).group_by(Submission.state))
            return {row[0]: row[1] for row in rows.all()}

    # Deleting

    def outdated(self, before: float, *, count: int = 500) -> list[str]:
        """Those that ended before a time, of which nobody has confirmed the incident."""
        query = (
            select(Submission.id)
            .outerjoin(IncidentRow, IncidentRow.id == Submission.incident)
            .where(Submission.state.in_(FINAL), Submission.updated < before)
            .where(or_(IncidentRow.id.is_(None), IncidentRow.confirmed.is_(False)))
            .order_by(Submission.updated)
            .limit(count)
        )
        with self._database.reading() as session:
            return list(session.scalars(query))

    def delete(self, id: str, projects: Projects) -> tuple[Submission, tuple[str, ...]]:
        """Deletes one; returns what it was, and the uploads that nobody names any more."""
        with self._database.changing() as session:
            row = self._known(session, id, projects)
            uploads = {one.upload for one in row.inputs if one.upload}
            session.delete(row)
            session.execute(delete(Outgoing).where(Outgoing.about == id))
            session.flush()
            kept = set(session.scalars(select(SubmissionInput.upload).where(SubmissionInput.upload.in_(uploads))))
            gone = tuple(sorted(uploads - kept))
            session.execute(delete(UploadRow).where(UploadRow.id.in_(gone)))
            return row, gone


_EQUAL: Final = ("state", "status", "error_type", "attribution", "cluster", "project", "job_id", "user", "name", "rule")
_LISTED: Final = tuple(
    column for column in Submission.__table__.columns if column.key not in ("report", "markdown", "screen", "layout")
)


def _added(session: Session, job: NewJob, now: float) -> Submission:
    row = row_of(job, now)
    session.add(row)
    session.flush()
    return row


def _join(row: Submission, job: NewJob, now: float) -> None:
    """A job that waits for its last ranks is handed in as well: what is said of it there is read with the rest."""
    known = {input_of(one) for one in row.inputs}
    row.inputs.extend(input_row(one, now) for one in job.inputs if one not in known)
    row.callback = row.callback or job.callback


def _restart(row: Submission, now: float) -> None:
    """It is diagnosed again; what is being made of it without what came now counts no more."""
    row.state, row.updated = "queued", now
    row.epoch += 1
    row.revision += 1
    row.tries = 0
    row.error = None


def _cursor(created: float, id: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([created, id]).encode()).decode().rstrip("=")


def _read_cursor(cursor: str) -> tuple[float, str]:
    try:
        created, name = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        return float(created), str(name)
    except (ValueError, TypeError, binascii.Error):
        raise UsageError("that is no cursor of this service: take `next` of the page before") from None
