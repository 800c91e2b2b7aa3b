"""Uploads, and requests that are sent again: what the database knows of them.

In: a `Database`. Out: `Uploads` and `Answers`. The bytes themselves lie in the spool.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import delete, or_, select

from diagnose.dataclass import fields
from diagnose.errors import StoreError
from diagnose.service.jobs import Conflict, Uploaded
from diagnose.store.database import Database, is_duplicate
from diagnose.store.service_tables import Idempotency, SubmissionInput, UploadRow


class Uploads:
    """What is known of bytes in the spool, and of requests that may come again."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def add(self, uploaded: Uploaded) -> None:
        """Says that bytes lie in the spool."""
        with self._database.changing() as session:
            session.add(upload_row(uploaded, self._clock()))

    def names(self, ids: Sequence[str]) -> dict[str, str]:
        """The names under which bytes were sent."""
        with self._database.reading() as session:
            rows = session.execute(select(UploadRow.id, UploadRow.name).where(UploadRow.id.in_(ids)))
            return {row[0]: row[1] for row in rows.all()}

    def unused(self, before: float, until: float = math.inf) -> list[str]:
        """Forgets uploads older than this that no job names, and returns them; what came after `until` did not so."""
        with self._database.changing() as session:
            used = select(SubmissionInput.upload).where(SubmissionInput.upload.is_not(None))
            ids = list(
                session.scalars(
                    select(UploadRow.id)
                    .where(_outside(UploadRow.created, before, until), UploadRow.id.not_in(used))
                    .limit(10_000)
                )
            )
            session.execute(delete(UploadRow).where(UploadRow.id.in_(ids)))
            session.execute(delete(Idempotency).where(_outside(Idempotency.created, before, until)))
            return ids

    def known(self, ids: Sequence[str]) -> set[str]:
        """Those of the ids that are known."""
        with self._database.reading() as session:
            return set(session.scalars(select(UploadRow.id).where(UploadRow.id.in_(ids))))

    def answered(self, key: str, request: str) -> dict[str, Any] | None:
        """What was answered to this request before. Raises `Conflict` where the key came with another one."""
        with self._database.reading() as session:
            row = session.get(Idempotency, key)
            if row is None:
                return None
            if row.digest != request:
                raise Conflict("this Idempotency-Key came with another request before; use a new one")
            return row.answer

    def remember(self, key: str, request: str, answer: dict[str, Any]) -> None:
        """Keeps what was answered to a request; the first answer stays."""
        try:
            with self._database.changing() as session:
                if session.get(Idempotency, key) is None:
                    session.add(Idempotency(key=key, digest=request, answer=answer, created=self._clock()))
                    session.flush()
        except StoreError as error:
            if not is_duplicate(error):
                raise


def _outside(stamp: Any, since: float, until: float) -> Any:
    return stamp < since if until == math.inf else or_(stamp < since, stamp > until)


def upload_row(uploaded: Uploaded, now: float) -> UploadRow:
    """The row of bytes in the spool."""
    return UploadRow(**{each.name: getattr(uploaded, each.name) for each in fields(Uploaded)}, created=now)
