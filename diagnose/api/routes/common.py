"""What routes share: the running application, documented problems, small readers of headers.

In: requests. Out: values.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

from fastapi import Path, Request

from diagnose.api.problems import MEDIA
from diagnose.api.running import Running

DiagnosisId = Annotated[str, Path(pattern=r"^d[0-9a-f]{24}$", description="the id of a diagnosis")]
_BLOCK: Final = 1 << 20
_WAIT: Final = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,6})", re.IGNORECASE)
_WORDS: Final = {
    401: "no good key",
    403: "the key may not do that",
    404: "there is no such thing, or not for this key",
    406: "no such form",
    408: "the body comes too slowly",
    409: "it contradicts what is there",
    413: "too large",
    415: "the body is of another kind",
    422: "the request cannot be meant",
    429: "too many requests",
    503: "the database is away",
    507: "no room",
}


def running_of(request: Request) -> Running:
    """The running application."""
    running: Running = request.app.state.running
    return running


async def large_blocks(request: Request) -> AsyncIterator[bytes]:
    """The body of a request in blocks that are worth a change of threads."""
    waiting = bytearray()
    async for block in request.stream():
        waiting += block
        if len(waiting) >= _BLOCK:
            yield bytes(waiting)
            waiting.clear()
    if waiting:
        yield bytes(waiting)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The documentation of problems that a route may answer."""
    return {
        status: {
            "description": _WORDS[status],
            "content": {MEDIA: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in sorted({401, 403, 422, 429, 503, *statuses})
    }


def wait_of(request: Request, most: float) -> float:
    """For how long a client wants to wait, by `Prefer: wait=N`."""
    found = _WAIT.search(request.headers.get("prefer", "")[:500])
    return min(float(found.group(1)), most) if found else 0.0
