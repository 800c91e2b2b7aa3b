"""`/v1/incidents`, `/v1/candidates`, `/v1/stats`, `/v1/audit`: what is remembered.

In: requests. Out: what whoever asks may see of it.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import AwareDatetime

from diagnose.api import schemas
from diagnose.api.auth import Admin, Reader
from diagnose.api.problems import ProblemError
from diagnose.api.routes.common import problems, running_of
from diagnose.api.routes.knowledge import plain
from diagnose.models import Incident
from diagnose.models.learning import Proposed
from diagnose.service.stats import summary
from diagnose.store.candidates import StoredRuleRecords
from diagnose.store.incidents import StoredIncidents
from diagnose.store.review import Review

router = APIRouter(prefix="/v1", tags=["memory"])
_HOUR = 3_600.0
Count = Annotated[int, Query(ge=1, le=500)]


def _incident(one: Incident) -> dict[str, object]:
    context = one.context
    return {
        "id": one.id,
        "status": one.status,
        "error_type": one.error_type,
        "attribution": one.attribution,
        "summary": one.summary,
        "job_action": one.job,
        "recovered": one.recovered,
        "confirmed": one.confirmed,
        "decided_by": one.decided_by,
        "rule": one.rule,
        "created_at": one.created,
        "project": context.project,
        "cluster": context.cluster,
        "job_id": context.id,
        "name": context.name,
        "user": context.user,
        "culprits": list(one.culprits),
        "nodes": list(one.nodes),
    }


@router.get("/incidents", response_model=schemas.IncidentList, responses=problems())
def incidents(
    request: Request,
    caller: Reader,
    error_type: Annotated[str | None, Query(max_length=200)] = None,
    user: Annotated[str | None, Query(max_length=200)] = None,
    confirmed: bool | None = None,
    since: AwareDatetime | None = None,
    limit: Count = 50,
) -> schemas.IncidentList:
    """Past failures, the newest first."""
    found = StoredIncidents(running_of(request).opening.database()).latest(
        error_type=error_type,
        user=user,
        confirmed=confirmed,
        since=None if since is None else since.timestamp(),
        projects=caller.sees,
        limit=limit,
    )
    return schemas.IncidentList(items=[schemas.IncidentItem.model_validate(_incident(one)) for one in found])


@router.get("/incidents/{id}", response_model=schemas.IncidentWhole, responses=problems(404))
def incident(request: Request, caller: Reader, id: Annotated[str, Path(max_length=200)]) -> schemas.IncidentWhole:
    """One past failure: its redacted lines, and what people said."""
    stored = StoredIncidents(running_of(request).opening.database())
    one = stored.get(id)
    if one is None or (caller.sees is not None and one.context.project not in caller.sees):
        raise ProblemError(404, f"there is no incident {id[:60]!r}")
    request.scope["project"] = one.context.project
    said = [
        {
            "at": each.at,
            "by": each.by,
            "kind": each.kind,
            "error_type": each.error_type,
            "recovered": each.recovered,
            "note": each.note,
        }
        for each in stored.said(id)
    ]
    return schemas.IncidentWhole.model_validate({**_incident(one), "text": one.text, "said": said})


def _candidate(one: Proposed) -> dict[str, object]:
    return {
        "id": one.id,
        "kind": one.kind,
        "rule": one.rule.id,
        "state": one.state,
        "author": one.author,
        "hits": one.hits,
        "created_at": one.created,
        "origin": one.origin,
    }


@router.get("/candidates", response_model=schemas.CandidateList, responses=problems())
def candidates(
    request: Request, _caller: Admin, state: schemas.CandidateState | None = None, limit: Count = 100
) -> schemas.CandidateList:
    """Rules that were proposed; they were made of lines of all projects, so an administrator reviews them."""
    found = Review(running_of(request).opening.database()).all(state=state)[:limit]
    return schemas.CandidateList(items=[schemas.CandidateItem.model_validate(_candidate(one)) for one in found])


def _called(request: Request, id: str) -> Proposed:
    for one in Review(running_of(request).opening.database()).called(id):
        if one.id == id:
            return one
    raise ProblemError(404, f"there is no candidate {id[:60]!r}")


@router.get("/candidates/{id}", response_model=schemas.CandidateWhole, responses=problems(404))
def candidate(request: Request, _caller: Admin, id: Annotated[str, Path(max_length=64)]) -> schemas.CandidateWhole:
    """One candidate with its rule."""
    one = _called(request, id)
    return schemas.CandidateWhole.model_validate({**_candidate(one), "body": plain(one.rule)})


@router.post("/candidates/{id}", response_model=schemas.CandidateItem, responses=problems(404, 408))
def decide(
    request: Request, _caller: Admin, id: Annotated[str, Path(max_length=64)], body: schemas.Decision
) -> schemas.CandidateItem:
    """Reject a candidate, or take that back."""
    one = _called(request, id)
    Review(running_of(request).opening.database()).decide(one.id, body.state)
    return schemas.CandidateItem.model_validate({**_candidate(one), "state": body.state})


@router.get("/stats", response_model=schemas.Stats, responses=problems())
def stats(
    request: Request,
    caller: Reader,
    days: Annotated[int, Query(ge=1, le=366)] = 30,
    cluster: Annotated[str | None, Query(max_length=200)] = None,
) -> schemas.Stats:
    """Failures over time and by type, weighted by GPU time; nodes that were blamed."""
    found = summary(running_of(request).opening.database(), caller.sees, days=days, cluster=cluster)
    return schemas.Stats(
        days=days,
        jobs=found.jobs,
        statuses=found.statuses,
        failures=[
            schemas.FailureGroup(
                error_type=one.error_type,
                attribution=one.attribution,
                count=one.count,
                gpu_hours=round(one.gpu_seconds / _HOUR, 3),
            )
            for one in found.failures
        ],
        by_day=[
            schemas.DayCount(day=one.day, jobs=one.jobs, failed=one.failed, gpu_hours=round(one.gpu_seconds / _HOUR, 3))
            for one in found.days
        ],
        nodes=[
            schemas.NodeCount(host=one.host, cluster=one.cluster, jobs=one.jobs, error_types=list(one.error_types))
            for one in found.nodes
        ],
    )


@router.get("/stats/rules", response_model=schemas.RuleStats, responses=problems())
def rule_stats(request: Request, _caller: Admin) -> schemas.RuleStats:
    """How the rules fare, in all projects."""
    records = StoredRuleRecords(running_of(request).opening.database()).rule_records()
    return schemas.RuleStats(
        items=[
            schemas.RuleCount(
                rule=one.rule,
                hits=one.hits,
                decided=one.decided,
                confirmed=one.confirmed,
                refuted=one.refuted,
                last=one.last,
            )
            for one in records
        ]
    )


@router.get("/audit", response_model=schemas.AuditList, responses=problems())
def audit(
    request: Request,
    _caller: Admin,
    since: AwareDatetime | None = None,
    key: Annotated[str | None, Query(max_length=50)] = None,
    limit: Count = 200,
) -> schemas.AuditList:
    """Who read or changed what."""
    rows = running_of(request).trail.recent(since=since.timestamp() if since else 0.0, key=key, count=limit)
    return schemas.AuditList(items=[schemas.AuditItem.model_validate(row) for row in rows])
