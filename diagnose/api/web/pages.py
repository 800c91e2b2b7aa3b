"""The pages.

In: requests of a browser. Out: HTML. What is shown is what `/v1` would give to the same key, by the same functions.
"""

from __future__ import annotations

import functools
import re
from typing import Annotated, Any, Final, Literal, cast
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, FastAPI, Path, Query, Request, Response
from sqlalchemy import select

from diagnose.api import schemas
from diagnose.api.problems import ProblemError
from diagnose.api.routes.common import DiagnosisId, running_of
from diagnose.api.running import Running
from diagnose.api.web import charts
from diagnose.api.web.assets import ASSETS
from diagnose.api.web.changes import change_of
from diagnose.api.web.diagnosis import diagnosis_page
from diagnose.api.web.forms import Form
from diagnose.api.web.rendering import PageRoute, add_lost, page, see
from diagnose.api.web.sessions import (
    Sessions,
    Viewer,
    checked_form,
    drop_cookies,
    limited,
    own_site,
    sessions_of,
    set_cookie,
    viewer,
)
from diagnose.errors import DiagnoseError, StoreError
from diagnose.models import RuleSet
from diagnose.models.learning import Proposed
from diagnose.rules.load import load_rules
from diagnose.service.feedback import say
from diagnose.service.jobs import FINAL, Conflict, Filters, Projects
from diagnose.service.similar import similar_to
from diagnose.service.submissions import visible
from diagnose.store.database import Database
from diagnose.store.review import Review
from diagnose.store.service_tables import Submission

router = APIRouter(route_class=PageRoute, include_in_schema=False)
_PAGE: Final = 50
_ALIKE: Final = 0.2  # what is less alike has words in common, no more
_OWN: Final = re.compile(r"/(?:diagnoses|overview|candidates)(?:[/?][\x21-\x7e]*)?\Z")
_FILTERS: Final = ("q", "state", "status", "attribution", "error_type", "cluster", "project", "user", "rule")
_PERIODS: Final = (7, 30, 90)
Looking = Annotated[Viewer, Depends(viewer)]
Word = Annotated[str, Query(max_length=200)]
_YES_NO: Final = {"yes": True, "no": False}


def add_to(app: FastAPI) -> None:
    """Gives an application its pages."""
    app.state.sessions = Sessions(app.state.running.config.spool)
    app.include_router(router)
    add_lost(app)


def _may(looking: Viewer, scope: str) -> None:
    if not looking.caller.may(scope):
        raise ProblemError(403, f"your key may not do that: it needs the scope {scope}")


@router.get("/")
def start() -> Response:
    """The list."""
    return see("/diagnoses")


@router.get("/static/{name}")
def static(name: Annotated[str, Path(max_length=50)], v: Word = "") -> Response:
    """Style, script, picture."""
    asset = ASSETS.get(name)
    if asset is None:
        raise ProblemError(404, "there is no such file")
    lasting = "public, max-age=31536000, immutable" if v == asset.digest else "no-cache"
    return Response(asset.data, media_type=asset.media, headers={"Cache-Control": lasting})


# Who looks


@router.get("/login")
def login(request: Request, next: Annotated[str, Query(max_length=4_000)] = "/diagnoses") -> Response:
    """The form for a key."""
    return page(request, "login.html", wanted=next, wrong="")


@router.post("/login")
def enter(request: Request, form: Form) -> Response:
    """Takes a key once, and gives a cookie for it."""
    own_site(request)
    address = request.client.host if request.client is not None else ""
    limited(request, f"login {address}")
    wanted = form.get("next", "")
    caller = request.app.state.gate.caller(form.get("key", "").strip() or "-")
    if caller is None or not caller.may("read"):
        wrong = "That key is none, or it has expired or was revoked." if caller is None else "That key may not read."
        return page(request, "login.html", wanted=wanted, wrong=wrong, status=401 if caller is None else 403)
    request.scope["caller"] = caller
    made = see(wanted if _OWN.match(wanted) else "/diagnoses")
    set_cookie(request, made, sessions_of(request).cookie(caller.key))
    return made


@router.post("/logout")
def leave(request: Request, looking: Looking, form: Form) -> Response:
    """Ends a session."""
    checked_form(request, looking, form.get("token", ""))
    if looking.session:
        sessions_of(request).leave(looking.word)
    made = see("/login")
    drop_cookies(made)
    return made


# What was diagnosed


@router.get("/diagnoses")
def listed(
    request: Request,
    looking: Looking,
    q: Word = "",
    state: Literal["", "queued", "running", "rules_done", "done", "error"] = "",
    status: Literal["", "failed", "no_failure", "inconclusive"] = "",
    attribution: Literal["", "infrastructure", "user", "scheduler", "unknown"] = "",
    error_type: Word = "",
    cluster: Word = "",
    project: Word = "",
    user: Word = "",
    rule: Word = "",
    cursor: Word = "",
) -> Response:
    """The list of diagnoses, the newest first."""
    _may(looking, "read")
    chosen = {
        "q": q.strip(),
        "state": state,
        "status": status,
        "attribution": attribution,
        "error_type": error_type.strip(),
        "cluster": cluster.strip(),
        "project": project.strip(),
        "user": user.strip(),
        "rule": rule.strip(),
    }
    given = {name: value for name, value in chosen.items() if value}
    wanted: dict[str, Any] = {"text" if name == "q" else name: value for name, value in given.items()}
    filters = Filters(**wanted)
    rows, following = running_of(request).submissions.page(
        filters, looking.caller.sees, count=_PAGE, cursor=cursor or None
    )
    return page(
        request,
        "list.html",
        looking,
        rows=rows,
        chosen=chosen,
        filtered=bool(given),
        more=[name for name in _FILTERS[4:] if chosen[name]],
        later=f"/diagnoses?{urlencode({**given, 'cursor': following})}" if following else "",
        begin=f"/diagnoses?{urlencode(given)}" if cursor else "",
    )


def _row(running: Running, id: str, looking: Viewer) -> Submission:
    """A submission that somebody may see; while the database is away, as it was read lately."""
    _may(looking, "read")
    try:
        row = running.submissions.get(id, looking.caller.sees)
    except StoreError as error:
        remembered = running.recent.get(id, looking.caller.sees)
        if not running.opening.failed(error) or remembered is None:
            raise
        return remembered
    if row.state in FINAL:
        running.recent.keep(row)
    return row


@router.get("/diagnoses/{id}")
def one(
    request: Request, looking: Looking, id: DiagnosisId, said: Literal["", "confirm", "correct", "outcome"] = ""
) -> Response:
    """One diagnosis."""
    running = running_of(request)
    row = _row(running, id, looking)
    request.scope["project"] = row.project
    if row.report is not None and row.state == "rules_done" and not row.given:
        running.submissions_changed(row.id)
    return diagnosis_page(request, looking, row, said=said)


@router.get("/diagnoses/{id}/similar")
def similar(request: Request, looking: Looking, id: DiagnosisId) -> Response:
    """Past incidents that read alike."""
    running = running_of(request)
    row = _row(running, id, looking)
    request.scope["project"] = row.project
    database = running.opening.database()
    wrong, found = "", []
    try:
        found = similar_to(row, database, running.config, looking.caller.sees, 5)
    except StoreError:
        raise
    except DiagnoseError as error:
        wrong = str(error)
    where = _pages_of(database, [str(each["id"]) for each in found if each["id"]], looking.caller.sees)
    alike = [each for each in found if each["similarity"] >= _ALIKE]
    return page(
        request,
        "similar.html",
        looking,
        row=row,
        found=alike,
        less=len(found) - len(alike),
        where=where,
        wrong=wrong,
    )


def _pages_of(database: Database, incidents: list[str], projects: Projects) -> dict[str, str]:
    """Of which diagnosis these incidents are, as far as somebody may see them."""
    query = select(Submission.incident, Submission.id).where(Submission.incident.in_(incidents))
    with database.reading() as session:
        return {row[0]: row[1] for row in session.execute(visible(query, projects)).all()}


@router.post("/diagnoses/{id}/feedback")
def feedback(request: Request, looking: Looking, id: DiagnosisId, form: Form) -> Response:
    """Takes what a person says of a verdict."""
    checked_form(request, looking, form.get("token", ""))
    _may(looking, "feedback")
    running = running_of(request)
    row = running.submissions.get(id, looking.caller.sees)
    request.scope["project"] = row.project
    if row.incident is None:
        raise Conflict("there is no incident to speak of: the job did not fail, or is not diagnosed yet")
    body = schemas.Feedback.model_validate(
        {
            "kind": form.get("kind", ""),
            "error_type": form.get("error_type", "").strip() or None,
            "attribution": form.get("attribution", "") or None,
            "recovered": _YES_NO.get(form.get("recovered", "")),
            "note": form.get("note", "").strip(),
        }
    )
    say(running.opening.database(), running.config, row.incident, body.model_dump(), by=looking.caller.key)
    return see(f"/diagnoses/{id}?said={body.kind}#feedback")


# All of them


@router.get("/overview")
def overview(
    request: Request, looking: Looking, days: Annotated[int, Query(ge=1, le=366)] = 30, cluster: Word = ""
) -> Response:
    """Failures over time and by type, and nodes that were blamed."""
    _may(looking, "read")
    running = running_of(request)
    database = running.opening.database()
    found = running.summaries.get(database, looking.caller.sees, days=days, cluster=cluster.strip() or None)
    every = charts.every_day(found, days)
    drawn = [
        ("Failed jobs", charts.chart_of(every, by_gpu=False)),
        ("Lost GPU time", charts.chart_of(every, by_gpu=True)),
    ]
    return page(
        request,
        "overview.html",
        looking,
        days=days,
        cluster=cluster.strip(),
        periods=_PERIODS,
        found=found,
        failed=sum(group.count for group in found.failures),
        drawn=drawn,
        every=[day for day in reversed(every) if day.jobs],
        types=charts.rows_of(found.failures),
        blamed=charts.BLAMED,
        amount=charts.amount,
        wide=charts.WIDTH,
        high=charts.HEIGHT,
    )


# Rules that are proposed


@router.get("/candidates")
def candidates(
    request: Request, looking: Looking, state: Literal["", "proposed", "applied", "rejected", "promoted"] = ""
) -> Response:
    """Rules that were proposed, those with the most hits first."""
    _may(looking, "admin")
    found = Review(running_of(request).opening.database()).all(state=state or None)
    return page(request, "candidates.html", looking, found=found[:200], count=len(found), state=state)


def _candidate(request: Request, id: str) -> Proposed:
    for each in Review(running_of(request).opening.database()).called(id):
        if each.id == id:
            return each
    raise ProblemError(404, f"there is no candidate {id[:60]!r}")


@functools.lru_cache(2)
def _written_rules(dirs: tuple[str, ...]) -> RuleSet:
    """The rules with all that is written in their files, as a diff needs them."""
    return load_rules(dirs)


CandidateId = Annotated[str, Path(max_length=64)]


@router.get("/candidates/{id}")
def candidate(request: Request, looking: Looking, id: CandidateId) -> Response:
    """One candidate and what it would change."""
    _may(looking, "admin")
    each = _candidate(request, id)
    change = change_of(each, _written_rules(running_of(request).config.rules))
    return page(request, "candidate.html", looking, one=each, change=change)


@router.post("/candidates/{id}")
def decide(request: Request, looking: Looking, id: CandidateId, form: Form) -> Response:
    """Rejects a candidate, or takes that back."""
    checked_form(request, looking, form.get("token", ""))
    _may(looking, "admin")
    each = _candidate(request, id)
    body = schemas.Decision.model_validate({"state": form.get("state", "")})
    if each.state == "promoted":
        raise ProblemError(409, "a promoted rule is a file: change it there")
    Review(running_of(request).opening.database()).decide(each.id, cast("schemas.CandidateState", body.state))
    return see(f"/candidates/{each.id}")
