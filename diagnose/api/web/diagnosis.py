"""The page of one diagnosis, at its own address and as the HTML that `/v1/diagnoses/{id}` answers with.

In: a submission that whoever looks may see. Out: its page, or one that says that there is no verdict yet. While the
database is away the page does without what people said of the verdict.
"""

from __future__ import annotations

from fastapi import Request, Response

from diagnose.api.routes.common import running_of
from diagnose.api.routes.knowledge import known_rules
from diagnose.api.web.chain import LEFT, WIDTH, picture_of
from diagnose.api.web.excerpts import evidence_of
from diagnose.api.web.reading import kept
from diagnose.api.web.rendering import page
from diagnose.api.web.sessions import Viewer
from diagnose.errors import StoreError
from diagnose.service.firstscreen import read_layout
from diagnose.service.jobs import FINAL
from diagnose.store.incidents import StoredIncidents
from diagnose.store.service_tables import Submission


def diagnosis_page(
    request: Request, looking: Viewer, row: Submission, *, said: str = "", status: int = 200
) -> Response:
    """One diagnosis as a page."""
    running = running_of(request)
    if row.report is None:
        return page(request, "waiting.html", looking, status=status, row=row, final=row.state in FINAL)
    report = kept(row.report)
    evidence = evidence_of(report)
    head, rows = read_layout(row.layout) if row.layout else (None, ())
    incident, told = None, []
    if row.incident is not None:
        try:
            stored = StoredIncidents(running.opening.database())
            incident, told = stored.get(row.incident), stored.said(row.incident)
        except StoreError as error:
            if not running.opening.failed(error):
                raise
    return page(
        request,
        "diagnosis.html",
        looking,
        status=status,
        row=row,
        head=head,
        rows=rows,
        evidence=evidence,
        picture=picture_of(report, evidence),
        wide=WIDTH,
        left=LEFT,
        incident=incident,
        told=told,
        said=said,
        types=[entry.name for entry in known_rules(running.config.rules).taxonomy.values() if not entry.symptom],
        final=row.state in FINAL,
    )
