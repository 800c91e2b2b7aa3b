"""What runs that ended well have printed: what is among it is no news in a run that failed.

In: a `Database`. Out: `HealthyTemplates`, a container of templates (lines with their figures masked). Read when first
asked, since most runs never ask, from the latest runs in which nothing failed. What one job alone has printed does not
count: a job that lived through its own errors must not make them look harmless in others.
"""

from __future__ import annotations

from sqlalchemy import select

from diagnose.errors import StoreError
from diagnose.store.database import Database
from diagnose.store.facts import digest_of, unpacked
from diagnose.store.tables import Attempt

_RUNS = 30  # the latest that ended well; of each at most some thousand templates are kept
_JOBS = 2  # that must have printed a template
_TEXT = 160  # of a line, of which `facts` makes a template


class HealthyTemplates:
    """Templates that several jobs which ended well have printed. A memory that cannot be read has none."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._digests: frozenset[bytes] | None = None
        self._asked: dict[str, bool] = {}

    def __contains__(self, template: object) -> bool:
        if not isinstance(template, str):
            return False
        if self._digests is None:
            self._digests = self._read()
        if not self._digests:
            return False
        text = template[:_TEXT]
        known = self._asked.get(text)
        if known is None:
            known = self._asked[text] = digest_of(text) in self._digests
        return known

    def _read(self) -> frozenset[bytes]:
        query = (
            select(Attempt.job_id, Attempt.templates)
            .where(Attempt.status == "no_failure")
            .order_by(Attempt.at.desc(), Attempt.id.desc())
            .limit(_RUNS)
        )
        try:
            with self._database.reading() as session:
                rows = session.execute(query).all()
        except StoreError:
            return frozenset()
        by_job: dict[int, set[bytes]] = {}
        for row in rows:
            by_job.setdefault(row.job_id, set()).update(unpacked(row.templates))
        counts: dict[bytes, int] = {}
        for digests in by_job.values():
            for digest in digests:
                counts[digest] = counts.get(digest, 0) + 1
        return frozenset(digest for digest, count in counts.items() if count >= _JOBS)
