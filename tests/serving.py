"""A service for tests: an application on a database of its own, with worker processes of its own."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import structlog
from fastapi.testclient import TestClient

from diagnose.api.app import create_app
from diagnose.service.jobs import Outcome
from diagnose.service.settings import ServiceConfig, config_of

structlog.configure(processors=[structlog.processors.format_exc_info, structlog.processors.KeyValueRenderer()])

KEY_ERROR = (
    "2026-10-01 00:00:10 INFO step 1 loss 2.1\n"
    "Traceback (most recent call last):\n"
    '  File "/job/train.py", line 12, in step\n'
    "    item = batch['role']\n"
    "KeyError: 'role'\n"
)


def environment_of(folder: Path, **more: str) -> dict[str, str]:
    """What a service and its processes are told."""
    kept = {
        name: os.environ[name] for name in ("PATH", "HOME", "XDG_CACHE_HOME", "TMPDIR", "LANG") if name in os.environ
    }
    return {
        **kept,
        "XDG_DATA_HOME": str(folder / "data"),
        "DIAGNOSE_DATABASE": str(folder / "memory.sqlite3"),
        "DIAGNOSE_SPOOL": str(folder / "spool"),
        "DIAGNOSE_VECTORS": "numpy",
        "DIAGNOSE_EMBEDDINGS": "hashed",
        "DIAGNOSE_PROCESSES": "1",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        **more,
    }


@contextlib.contextmanager
def serving(folder: Path, **more: str) -> Iterator[TestClient]:
    """A client of a running application."""
    environment = environment_of(folder, **more)
    config: ServiceConfig = config_of(environment)
    with TestClient(create_app(config, environment), base_url="http://testserver") as client:
        yield client


def upload(client: TestClient, data: bytes | str, name: str = "job.log", **how: Any) -> str:
    """The id of bytes that were put on the server."""
    answer = client.post("/v1/uploads", params={"name": name}, content=data, **how)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def job(number: str, *uploads: str, **more: Any) -> dict[str, Any]:
    """A job as a hook hands it in."""
    return {"job_id": number, "logs": [{"upload": one} for one in uploads], **more}


def outcome(**how: Any) -> Outcome:
    """What a diagnosis came to."""
    known = {
        "report": "{}",
        "markdown": "",
        "screen": "",
        "status": "failed",
        "error_type": "KeyError",
        "attribution": "user",
        "sureness": "likely",
        "summary": "KeyError: 'role'",
        "job_action": "fix_and_resubmit",
        "rule": None,
    }
    return Outcome(**{**known, **how})
