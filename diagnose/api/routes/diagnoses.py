"""`/v1/diagnoses`: jobs are handed in, and what came of them is read.

In: requests. Out: resources, reports, problems.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import AwareDatetime
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse

from diagnose.api import schemas
from diagnose.api.auth import Admin, Critic, Reader, Submitter, project_for
from diagnose.api.multipart import Form, aborting
from diagnose.api.negotiate import FORMS, HTML, JSON, MARKDOWN, TEXT, wanted
from diagnose.api.problems import ProblemError, retry_after
from diagnose.api.resources import accepted, inputs_of, job_of, resource
from diagnose.api.routes.common import DiagnosisId, large_blocks, problems, running_of, wait_of
from diagnose.api.running import Running
from diagnose.api.web.diagnosis import diagnosis_page
from diagnose.api.web.sessions import NO_SESSION, Viewer
from diagnose.errors import StoreError
from diagnose.service.feedback import say
from diagnose.service.jobs import FINAL, Absent, Conflict, Filters, InputRef, Uploaded, digest
from diagnose.service.keys import Caller
from diagnose.service.removing import remove_diagnosis
from diagnose.service.similar import similar_to
from diagnose.store.service_tables import Submission

router = APIRouter(prefix="/v1/diagnoses", tags=["diagnoses"])
_AGAIN = 2.0  # seconds between looks while somebody waits and no event comes
_SOON = 1.0
_REPORTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "the report, or the resource where its state is `error`",
        "content": {
            JSON: {"schema": {"type": "object", "description": "diagnose.report/v1, as `diagnose --format json`"}},
            MARKDOWN: {"schema": {"type": "string"}},
            HTML: {"schema": {"type": "string"}},
            TEXT: {"schema": {"type": "string"}},
        },
    },
    202: {"description": "there is no report yet", "model": schemas.Diagnosis},
}
_BODY = {
    "required": True,
    "content": {
        JSON: {"schema": {"$ref": "#/components/schemas/Submission"}},
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["job"],
                "properties": {
                    "job": {"type": "string", "contentMediaType": JSON, "description": "as the JSON body"},
                    "logs": {"type": "array", "items": {"type": "string", "format": "binary"}},
                    "kernel_logs": {"type": "array", "items": {"type": "string", "format": "binary"}},
                    "scheduler_records": {"type": "array", "items": {"type": "string", "format": "binary"}},
                },
            }
        },
    },
}


@router.post(
    "",
    status_code=202,
    response_model=schemas.Diagnosis,
    responses={
        **problems(408, 409, 413, 415, 507),
        200: _REPORTS[200] | {"description": "it was there before and is done, or it was waited for"},
    },
    openapi_extra={"requestBody": _BODY},
)
async def submit(request: Request, caller: Submitter) -> Response:
    """Hand in a job. The same job again is the same resource; `Prefer: wait=N` answers with the report."""
    running = running_of(request)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        form = Form(request.headers["content-type"], running.spool, json_bytes=running.config.bounds.body_bytes)
        with aborting(form.abort):
            async for block in large_blocks(request):
                await run_in_threadpool(form.write, block)
            form.finish()
            return await _accepted(request, caller, form.job, form)
    if kind != JSON:
        raise ProblemError(415, f"a job is {JSON} or multipart/form-data; set Content-Type")
    return await _accepted(request, caller, await request.body(), None)


async def _accepted(request: Request, caller: Caller, data: bytes, form: Form | None) -> Response:
    running = running_of(request)
    body = await run_in_threadpool(schemas.Submission.model_validate_json, data)
    project = project_for(caller, body.project)
    request.scope["project"] = project
    if body.callback is not None and running.config.webhook_secret_file is None:
        raise ProblemError(422, "/callback: this service sends no webhooks; its keeper sets a secret for them")
    key = request.headers.get("idempotency-key")
    if key is not None and not (0 < len(key) <= 200 and key.isprintable()):
        raise ProblemError(422, "an Idempotency-Key is a printable word of at most 200 characters")
    sent = (
        digest(data.decode("utf-8", "replace"), *(part.stored.sha256 for part in form.parts if form))
        if form
        else (digest(data.decode("utf-8", "replace")))
    )
    wait = wait_of(request, running.config.bounds.wait_seconds)
    media = wanted(request.headers.get("accept")) if wait else JSON  # a form that we have not is told before all else
    row, new = await run_in_threadpool(_accept, running, body, caller, project, form, key, sent)
    headers = {"Location": f"/v1/diagnoses/{row.id}"}
    if wait:
        headers["Preference-Applied"] = f"wait={wait:.0f}"
        row = await _waited(running, row, wait, put=new)
    elif new:
        await run_in_threadpool(running.put, row.id)
    if wait and row.state in ("rules_done", *FINAL) and row.report is not None:
        return await run_in_threadpool(_report, request, caller, row, media, headers)
    if row.state in FINAL:
        return _resource(row, 200, headers)
    return _resource(row, 202, {**headers, **retry_after(running.again_in(row))})


def _accept(
    running: Running,
    body: schemas.Submission,
    caller: Caller,
    project: str,
    form: Form | None,
    key: str | None,
    sent: str,
) -> tuple[Submission, bool]:
    """The resource of a job that was handed in, kept for good, and whether it is new."""
    inputs = inputs_of(body, running.config, project)
    uploaded = []
    for part in form.parts if form else ():
        stored = part.stored
        uploaded.append(Uploaded(stored.id, project, part.name, stored.size, stored.sha256, caller.key))
        inputs += (InputRef(part.role, upload=stored.id, source=part.name),)
    job = job_of(body, inputs, project, caller.key)
    name = digest("submit", caller.key, project, key) if key is not None else None
    try:
        if name is not None and (answer := running.uploads.answered(name, sent)) is not None:
            with contextlib.suppress(Absent):  # it was deleted since
                return running.submissions.get(str(answer["id"]), caller.sees), False
        row, new = running.submissions.accept(job, uploaded)
        if name is not None:
            running.uploads.remember(name, sent, {"id": row.id})
    except StoreError as error:
        if not running.opening.failed(error):
            raise
        running.keep_job(job, uploaded)
        return accepted(job, time.time()), False
    if new:
        running.metrics.states.labels("queued").inc()
    return row, new


async def _waited(running: Running, row: Submission, seconds: float, *, put: bool) -> Submission:
    """The resource once its report is there, or as it is after so many seconds."""
    assert running.waiters is not None
    until = time.monotonic() + seconds
    with running.waiters.waiting(row.id) as event:
        if put:
            await run_in_threadpool(running.put, row.id)
        else:
            row = await run_in_threadpool(_again, running, row)
        while row.state not in FINAL and (left := until - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), min(left, _AGAIN))
            event.clear()
            row = await run_in_threadpool(_again, running, row)
    return row


def _again(running: Running, row: Submission) -> Submission:
    """The row as it is now; as it was, where the database does not say."""
    try:
        return running.submissions.get(row.id, None)
    except StoreError as error:
        running.opening.failed(error)
        return row


@router.get("", response_model=schemas.Page, responses=problems())
def pages(
    request: Request,
    caller: Reader,
    state: schemas.State | None = None,
    status: schemas.Status | None = None,
    attribution: schemas.Attribution | None = None,
    error_type: Annotated[str | None, Query(max_length=200)] = None,
    cluster: Annotated[str | None, Query(max_length=200)] = None,
    project: Annotated[str | None, Query(max_length=200)] = None,
    job_id: Annotated[str | None, Query(max_length=200)] = None,
    user: Annotated[str | None, Query(max_length=200)] = None,
    name: Annotated[str | None, Query(max_length=500)] = None,
    rule: Annotated[str | None, Query(max_length=200)] = None,
    q: Annotated[str | None, Query(max_length=200, description="words of the job, its user or the cause")] = None,
    since: AwareDatetime | None = None,
    until: AwareDatetime | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[str | None, Query(max_length=200)] = None,
) -> schemas.Page:
    """List diagnoses, the newest first."""
    filters = Filters(
        state=state,
        status=status,
        error_type=error_type,
        attribution=attribution,
        cluster=cluster,
        project=project,
        job_id=job_id,
        user=user,
        name=name,
        rule=rule,
        text=q,
        since=_seconds(since),
        until=_seconds(until),
    )
    rows, following = running_of(request).submissions.page(filters, caller.sees, count=limit, cursor=cursor)
    return schemas.Page(items=[resource(row) for row in rows], next=following)


def _browsing(request: Request, id: DiagnosisId) -> None:
    """Sends a person's browser on to the page, which asks for a key where one is needed."""
    browses = request.headers.get("sec-fetch-mode") == "navigate" and "authorization" not in request.headers
    if browses and wanted(request.headers.get("accept")) == HTML:
        raise ProblemError(303, "people find the page there", {"Location": f"/diagnoses/{id}"})


@router.get(
    "/{id}",
    dependencies=[Depends(_browsing)],
    responses={
        **_REPORTS,
        **problems(404, 406),
        303: {"description": "where a browser without a key goes there: the page"},
        304: {"description": "as it was"},
    },
)
async def report(request: Request, caller: Reader, id: DiagnosisId) -> Response:
    """The report: the command line's JSON, Markdown, text or HTML by Accept."""
    running = running_of(request)
    form = wanted(request.headers.get("accept"), FORMS)
    row = await run_in_threadpool(_read, running, id, caller)
    request.scope["project"] = row.project
    wait = wait_of(request, running.config.bounds.wait_seconds)
    if wait and row.state not in FINAL:
        row = await _waited(running, row, wait, put=False)
    if row.report is None:
        status, headers = (200, {}) if row.state in FINAL else (202, retry_after(running.again_in(row)))
        if form == HTML:
            return await run_in_threadpool(_as_page, request, caller, row, status, headers)
        return _resource(row, status, headers)
    if form != HTML and request.headers.get("if-none-match") == _tag(row, form):
        return Response(status_code=304, headers={"ETag": _tag(row, form), "Diagnosis-State": row.state})
    return await run_in_threadpool(_report, request, caller, row, form, {})


def _read(running: Running, id: str, caller: Caller) -> Submission:
    """A row that a caller may see; while the database is away, as it was read lately or as it waits."""
    try:
        row = running.submissions.get(id, caller.sees)
    except StoreError as error:
        kept = running.recent.get(id, caller.sees)
        if not running.opening.failed(error) or kept is None:
            raise
        return kept
    if row.state in FINAL:
        running.recent.keep(row)
    return row


def _tag(row: Submission, form: str) -> str:
    return f'"{row.id}-{row.epoch}-{row.state}-{FORMS.index(form)}"'


def _report(request: Request, caller: Caller, row: Submission, form: str, headers: dict[str, str]) -> Response:
    """A report in the form that was asked for."""
    running = running_of(request)
    if row.state == "rules_done" and not row.given:
        running.submissions_changed(row.id)
    headers = {**headers, **(retry_after(_SOON) if row.state == "rules_done" else {})}
    if form == HTML:
        return _as_page(request, caller, row, 200, headers)
    text = {JSON: row.report, MARKDOWN: row.markdown, TEXT: row.screen}[form]
    headers |= {**_said(row), "ETag": _tag(row, form), "Vary": "Accept"}
    return Response((text or "").encode(), 200, headers, media_type=form if form == JSON else f"{form}; charset=utf-8")


def _as_page(request: Request, caller: Caller, row: Submission, status: int, headers: dict[str, str]) -> Response:
    """The page of a diagnosis. It shows what people say meanwhile, so that its tag is of all that it holds."""
    looking = Viewer(caller, NO_SESSION if caller.local else f"key {caller.key}", session=False)
    made = diagnosis_page(request, looking, row, status=status)
    tag = f'"{row.id}-{digest(bytes(made.body).decode())[:32]}"'
    if request.method == "GET" and request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"ETag": tag, "Diagnosis-State": row.state})
    made.headers.update({**headers, **_said(row), "ETag": tag, "Vary": "Accept"})
    return made


def _said(row: Submission) -> dict[str, str]:
    return {"Diagnosis-State": row.state, "Diagnosis-Id": row.id}


def _resource(row: Submission, status: int, headers: dict[str, str]) -> Response:
    return JSONResponse(
        resource(row).model_dump(mode="json", by_alias=True),
        status,
        headers={**headers, **_said(row)},
    )


@router.get("/{id}/state", response_model=schemas.Diagnosis, responses=problems(404))
def state(request: Request, caller: Reader, id: DiagnosisId) -> schemas.Diagnosis:
    """The resource: how far it is, and the verdict in short."""
    row = _read(running_of(request), id, caller)
    request.scope["project"] = row.project
    return resource(row)


@router.get("/{id}/similar", response_model=schemas.SimilarList, responses=problems(404))
def similar(
    request: Request, caller: Reader, id: DiagnosisId, count: Annotated[int, Query(ge=1, le=20)] = 5
) -> schemas.SimilarList:
    """Past incidents that read alike. Of other projects there is type and outcome, no text."""
    running = running_of(request)
    row = running.submissions.get(id, caller.sees)
    request.scope["project"] = row.project
    found = similar_to(row, running.opening.database(), running.config, caller.sees, count)
    return schemas.SimilarList(items=[schemas.Similar(**one) for one in found])


@router.post("/{id}/feedback", response_model=schemas.Said, responses=problems(404, 408, 409))
def feedback(request: Request, caller: Critic, id: DiagnosisId, body: schemas.Feedback) -> schemas.Said:
    """Say whether a verdict was right, what it really was, whether what was done helped."""
    running = running_of(request)
    row = running.submissions.get(id, caller.sees)
    request.scope["project"] = row.project
    if row.incident is None:
        raise Conflict("there is no incident to speak of: the job did not fail, or is not diagnosed yet")
    said = say(running.opening.database(), running.config, row.incident, body.model_dump(), by=caller.key)
    return schemas.Said(
        incident=said.id, error_type=said.error_type, confirmed=said.confirmed, recovered=said.recovered
    )


@router.post("/{id}/inputs", status_code=202, response_model=schemas.Diagnosis, responses=problems(404, 408, 409))
def more(request: Request, caller: Submitter, id: DiagnosisId, body: schemas.MoreInputs) -> Response:
    """Add inputs, such as a kernel log that came later: the job is diagnosed again with them."""
    running = running_of(request)
    key = request.headers.get("idempotency-key")
    name, sent = digest("inputs", caller.key, id, key or ""), digest(body.model_dump_json())
    before = running.submissions.get(id, caller.projects)
    request.scope["project"] = before.project
    if key is not None and running.uploads.answered(name, sent) is not None:
        return _resource(before, 202, retry_after(_SOON))
    inputs = inputs_of(body, running.config, before.project)
    row = running.submissions.add_inputs(id, inputs, caller.projects)
    if key is not None:
        running.uploads.remember(name, sent, {"id": id})
    running.recent.drop(id)
    running.put(id)
    return _resource(row, 202, {"Location": f"/v1/diagnoses/{id}", **retry_after(running.again_in(row))})


@router.delete("/{id}", status_code=204, responses=problems(404))
def remove(request: Request, caller: Admin, id: DiagnosisId) -> Response:
    """Delete a diagnosis, its uploads, and what is remembered of the run."""
    running = running_of(request)
    removed = remove_diagnosis(running.opening.database(), running.spool, running.live.forget, id, caller.sees)
    request.scope["project"] = removed
    running.recent.drop(id)
    running.summaries.forget()
    return Response(status_code=HTTPStatus.NO_CONTENT)


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
