"""`/healthz`, `/readyz`, `/metrics`: for whoever looks after the service.

In: requests. Out: whether the process lives, whether it can work, what it has counted.
"""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.responses import JSONResponse

from diagnose.api.auth import Reader
from diagnose.api.problems import ProblemError
from diagnose.api.routes.common import problems, running_of
from diagnose.api.running import Running
from diagnose.errors import DiagnoseError, StoreError
from diagnose.service.jobs import OPEN

router = APIRouter(tags=["operations"])


@router.get("/healthz")
def healthz() -> dict[str, str]:
    """Whether the process lives."""
    return {"status": "ok"}


@router.get("/readyz", responses={503: {"description": "not all of it works; what works is said"}})
def readyz(request: Request) -> Response:
    """Whether it can do all it should; jobs are accepted as long as `accepts` says so."""
    running = running_of(request)
    database, spool = _database(running), _spool(running)
    body = {
        "status": "ok" if database == spool == "ok" else "degraded",
        "database": database,
        "spool": spool,
        "accepts": spool == "ok",
    }
    return JSONResponse(body, 200 if body["status"] == "ok" else 503)


@router.get("/metrics", response_class=Response, responses=problems())
def metrics(request: Request, caller: Reader) -> Response:
    """What was counted, for Prometheus. Needs a key that reads all projects."""
    if caller.sees is not None:
        raise ProblemError(403, "counts are of all projects: this needs a key for all (`--project '*'`)")
    running = running_of(request)
    counted = running.metrics
    counted.up.set(_database(running) == "ok")
    counted.depth.set((running.queue.depth if running.queue else None) or 0)
    counted.lost.set(running.trail.lost)
    try:
        counted.pending.set(len(running.spool.pending()))
        counts = running.submissions.counts()
        for state in (*OPEN, "done", "error"):
            counted.submissions.labels(state).set(counts.get(state, 0))
    except DiagnoseError:
        counted.up.set(0)
    return Response(counted.page(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _database(running: Running) -> str:
    try:
        with running.opening.database().reading() as session:
            session.connection()
    except StoreError as error:
        running.opening.failed(error)
        return "away"
    return "ok"


def _spool(running: Running) -> str:
    try:
        writing = running.spool.begin()
        try:
            writing.write(str(time.time()).encode())
        finally:
            writing.abort()
    except DiagnoseError:
        return "full"
    return "ok"


def summary(running: Running) -> dict[str, Any]:
    """What `diagnose doctor` asks of a running service."""
    return {"database": _database(running), "spool": _spool(running)}
