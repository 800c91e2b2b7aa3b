"""Forms that browsers send.

In: a request. Out: its fields, each of them once and bounded.
"""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import parse_qsl

from fastapi import Depends, Request

from diagnose.api.problems import ProblemError

_BYTES: Final = 64 * 1024
_FIELDS: Final = 30
_KIND: Final = "application/x-www-form-urlencoded"


async def _read(request: Request) -> dict[str, str]:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _KIND:
        raise ProblemError(415, f"a form is {_KIND}")
    data = b""
    async for block in request.stream():
        data += block
        if len(data) > _BYTES:
            raise ProblemError(413, f"a form may have {_BYTES} bytes at most; shorten the note")
    try:
        pairs = parse_qsl(data.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_FIELDS)
    except ValueError:
        raise ProblemError(422, f"a form may have {_FIELDS} fields at most") from None
    return dict(pairs)


Form = Annotated[dict[str, str], Depends(_read)]
