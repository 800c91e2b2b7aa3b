"""`/v1/jobs`: logs that are sent while their job runs, and that it has ended.

In: chunks by offset, as they are or packed. Out: how far the log is known, once that is on disk.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Path, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse

from diagnose.api import schemas
from diagnose.api.auth import Streamer, Submitter, project_for
from diagnose.api.problems import ProblemError, retry_after
from diagnose.api.routes.common import problems, running_of
from diagnose.service.chunks import expanded
from diagnose.service.jobs import NewJob
from diagnose.service.keys import Caller
from diagnose.service.streams import Chunk, JobKey

router = APIRouter(prefix="/v1/jobs/{cluster}/{job_id}/{attempt}", tags=["jobs"])
NO_CLUSTER: Final = "-"
_BODY: Final = {
    "requestBody": {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
}

_LINE: Final = r"^[^\x00-\x1f\x7f]*$"
Cluster = Annotated[str, Path(min_length=1, max_length=200, pattern=_LINE, description="`-` where there is only one")]
Number = Annotated[str, Path(min_length=1, max_length=200, pattern=_LINE)]
Attempt = Annotated[int, Path(ge=0, le=1_000_000)]
Name = Annotated[str, Path(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]+$")]
Project = Annotated[str | None, Query(max_length=200, pattern=_LINE)]
_Count = Annotated[int, Query(ge=0, le=1 << 50)]


def _key(request: Request, caller: Caller, project: str | None, cluster: str, job_id: str, attempt: int) -> JobKey:
    whose = project_for(caller, project)
    request.scope["project"] = whose
    return JobKey(whose, "" if cluster == NO_CLUSTER else cluster, job_id, attempt)


@router.put(
    "/logs/{name:path}", response_model=schemas.Known, responses=problems(408, 409, 413, 507), openapi_extra=_BODY
)
async def append(
    request: Request,
    caller: Streamer,
    cluster: Cluster,
    job_id: Number,
    attempt: Attempt,
    name: Name,
    offset: _Count,
    generation: Annotated[int | None, Query(ge=0, le=1_000_000)] = None,
    again: Annotated[bool, Query(description="this generation is the log sent anew, and takes its place")] = False,
    form: Annotated[Literal["raw", "kept"], Query(description="kept: a kept log, made by `guard`")] = "raw",
    guard: Annotated[str | None, Query(pattern=r"^[0-9a-f]{32}$")] = None,
    step: Annotated[int | None, Query(ge=0, le=1 << 50, description="the last step seen in what was left out")] = None,
    project: Project = None,
) -> schemas.Known:
    """Append a chunk at its offset. Known bytes are passed over; one without bytes says that its sender is there.

    `Content-Encoding` is `gzip` or `zstd` where the chunk is packed; offsets count the bytes before that. A log that
    begins anew (rotated, truncated) is the next generation, from offset 0. 409 says which offset or generation is
    wanted (`offset-gap`, `old-generation`), or that the log itself is (`guard-differs`).
    """
    running = running_of(request)
    live = running.live
    job = _key(request, caller, project, cluster, job_id, attempt)
    most = live.streams.chunk_bytes
    data = bytearray()
    async for block in request.stream():
        data += block
        if len(data) > most:
            raise ProblemError(413, f"a chunk may have {most} bytes at most; send smaller ones")
    encoding = request.headers.get("content-encoding", "").strip().lower()

    def take() -> schemas.Known:
        plain = b""
        try:
            plain = expanded(bytes(data), encoding, most)
        finally:
            running.streamed(caller.key, max(len(plain), len(data)))
        took = live.append(job, Chunk(name, plain, offset, generation, again, form, guard), step)
        running.metrics.uploaded.inc(took.new)
        return schemas.Known(generation=took.generation, offset=took.offset, new=took.new)

    return await run_in_threadpool(take)


@router.get("/logs/{name:path}", response_model=schemas.Known, responses=problems())
def known(
    request: Request,
    caller: Streamer,
    cluster: Cluster,
    job_id: Number,
    attempt: Attempt,
    name: Name,
    project: Project = None,
) -> schemas.Known:
    """How far a log is known, 0 where nothing is; where a sender goes on after a restart."""
    streams = running_of(request).live.streams
    found = streams.known(_key(request, caller, project, cluster, job_id, attempt), name)
    offset, generation = (found.offset, found.generation) if found is not None else (0, 0)
    return schemas.Known(generation=generation, offset=offset, guard=streams.guard)


@router.post("/end", status_code=202, response_model=schemas.Ended, responses=problems(408))
async def end(
    request: Request,
    caller: Submitter,
    cluster: Cluster,
    job_id: Number,
    attempt: Attempt,
    body: schemas.End | None = None,
    project: Project = None,
) -> JSONResponse:
    """Say that a job has ended; its logs are diagnosed once its last ranks have spoken. Said twice, it is said once.

    `Location` is there at once, as `queued`; `Prefer: wait=N` works on it, and `Retry-After` says when it is due.
    """
    running = running_of(request)
    job = _key(request, caller, project, cluster, job_id, attempt)
    said = (body or schemas.End()).model_dump_json()
    news = await run_in_threadpool(partial(running.ended, job, said))
    name = NewJob(job.job_id, job.project, job.cluster, job.attempt).id
    ended = schemas.Ended(id=name, report=f"/v1/diagnoses/{name}", new=news)
    left = running.live.left(job)
    return JSONResponse(ended.model_dump(), 202, headers={"Location": ended.report, **retry_after(left or 1.0)})
