"""Logs that a submission names by address, from hosts that the service's keeper has allowed.

In: an address. Out: its bytes in a file, bounded in size and time, by no redirect. Raises `Refused`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from diagnose.service.paths import Refused, allowed_uri
from diagnose.service.settings import ServiceConfig

_SECONDS = 60.0
_BLOCK = 1 << 20


def fetcher(config: ServiceConfig) -> Callable[[str, str], None]:
    """What fetches for this service."""

    def fetch(uri: str, path: str) -> None:
        import httpx

        allowed_uri(uri, config, "")
        most, until = config.bounds.upload_bytes, time.monotonic() + _SECONDS
        size = 0
        try:
            with (
                httpx.Client(timeout=10.0, follow_redirects=False, trust_env=False) as client,
                client.stream("GET", uri, headers={"Accept-Encoding": "identity"}) as answer,
                open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb") as file,
            ):
                if answer.status_code != httpx.codes.OK:
                    raise Refused(f"{uri}: answered {answer.status_code}; upload the log instead")
                for block in answer.iter_raw(_BLOCK):
                    size += len(block)
                    if size > most:
                        raise Refused(f"{uri}: more than {most} bytes; compress it")
                    if time.monotonic() > until:
                        raise Refused(f"{uri}: took more than {_SECONDS:.0f} s; upload the log instead")
                    file.write(block)
        except httpx.HTTPError as error:
            raise Refused(f"{uri}: cannot be fetched ({type(error).__name__}); upload the log instead") from None

    return fetch
