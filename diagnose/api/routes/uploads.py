"""`/v1/uploads`: bytes that jobs name.

In: a body, in blocks. Out: an id. It is on disk before it is acknowledged.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool

from diagnose.api import schemas
from diagnose.api.auth import Submitter, project_for
from diagnose.api.multipart import aborting
from diagnose.api.routes.common import large_blocks, problems, running_of
from diagnose.service.jobs import Uploaded

router = APIRouter(prefix="/v1/uploads", tags=["uploads"])


@router.post(
    "",
    status_code=201,
    response_model=schemas.Upload,
    responses=problems(408, 413, 507),
    openapi_extra={
        "requestBody": {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
    },
)
async def upload(
    request: Request,
    caller: Submitter,
    name: Annotated[
        str,
        Query(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]+$", description="such as `ranks/r3.log.gz`"),
    ] = "log",
    project: Annotated[str | None, Query(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")] = None,
) -> schemas.Upload:
    """Put a log on the server, compressed or not; a job names it by its id within a day."""
    running = running_of(request)
    whose = project_for(caller, project)
    writing = await run_in_threadpool(running.spool.begin)
    with aborting(writing.abort):
        async for block in large_blocks(request):
            await run_in_threadpool(writing.write, block)
        stored = await run_in_threadpool(writing.end)
    uploaded = Uploaded(stored.id, whose, name, stored.size, stored.sha256, caller.key)
    await run_in_threadpool(running.keep_upload, uploaded)
    running.metrics.uploaded.inc(stored.size)
    return schemas.Upload(id=stored.id, name=name, size=stored.size, sha256=stored.sha256)
