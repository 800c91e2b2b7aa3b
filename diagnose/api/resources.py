"""Rows as the wire has them, and what comes over the wire as the service's own types.

In: rows of submissions, pydantic models. Out: `Diagnosis`, `NewJob`. The only place where the two meet.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from diagnose.api import schemas
from diagnose.service.jobs import InputRef, NewJob
from diagnose.service.paths import Refused, allowed_path, allowed_uri
from diagnose.service.rows import row_of
from diagnose.service.settings import ServiceConfig
from diagnose.store.incidents import iso_time
from diagnose.store.service_tables import Submission


def inputs_of(
    body: schemas.Submission | schemas.MoreInputs, config: ServiceConfig, project: str
) -> tuple[InputRef, ...]:
    """The inputs that a body names. Raises `Refused` for what this service does not read."""
    found: list[InputRef] = []
    for role, logs in (("job", body.logs), ("kernel", body.kernel_logs), ("scheduler", body.scheduler_records)):
        for log in logs:
            path, uri = log.path, None
            if path is not None:
                path = allowed_path(path, config, project)
            elif log.uri is not None:
                path, uri = allowed_uri(log.uri, config, project)
            said = log.host is not None or log.rank is not None
            if path is not None and said and any(mark in path for mark in "*?["):
                raise Refused(f"{path}: host and rank are of one file, not of a pattern")
            found.append(InputRef(role, path, uri, log.upload, log.source, log.host, log.rank))
    return tuple(found)


def job_of(body: schemas.Submission, inputs: tuple[InputRef, ...], project: str, key: str) -> NewJob:
    """The job that was handed in."""
    return NewJob(
        job_id=body.job_id,
        project=project,
        cluster=body.cluster,
        attempt=body.attempt,
        scheduler=body.scheduler,
        name=body.name,
        user=body.user,
        image=body.image,
        nodes=tuple(body.nodes),
        gpus=body.gpus,
        code=body.exit.code,
        signal=body.exit.signal,
        state=body.exit.state,
        started=_seconds(body.started_at),
        ended=_seconds(body.ended_at),
        inputs=inputs,
        callback=body.callback,
        key_id=key,
    )


def resource(row: Submission) -> schemas.Diagnosis:
    """A submission as clients see it."""
    return schemas.Diagnosis.model_validate(
        {
            "id": row.id,
            "state": row.state,
            "project": row.project,
            "cluster": row.cluster,
            "job_id": row.job_id,
            "attempt": row.attempt,
            "scheduler": row.scheduler,
            "name": row.name,
            "user": row.user,
            "image": row.image,
            "nodes": row.nodes,
            "gpus": row.gpus,
            "exit": row.ended_as,
            "started_at": _stamp(row.started),
            "ended_at": _stamp(row.ended),
            "created_at": iso_time(row.created),
            "updated_at": iso_time(row.updated),
            "revision": row.revision,
            "verdict": _verdict(row),
            "incident": row.incident,
            "error": row.error,
            "report": f"/v1/diagnoses/{row.id}",
        }
    )


def accepted(job: NewJob, now: float) -> Submission:
    """A job that is in the journal, as it will be."""
    row = row_of(job, now)
    row.given, row.summary, row.job_action = False, "", ""
    return row


def _verdict(row: Submission) -> dict[str, Any] | None:
    if row.status is None:
        return None
    return {
        name: getattr(row, name)
        for name in ("status", "error_type", "attribution", "sureness", "summary", "job_action", "rule")
    }


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def _stamp(seconds: float | None) -> str | None:
    return None if seconds is None else iso_time(seconds)
