"""The service as people run it: processes of `diagnose serve` and `diagnose worker` on one database."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from tests.serving import environment_of

_CLI = "import sys; from diagnose.cli import main; sys.argv[0] = 'diagnose'; sys.exit(main())"


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


class Site:
    """API and worker processes that share a database and a spool."""

    def __init__(self, folder: Path, database: str, **more: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.environment = environment_of(folder, **{"DIAGNOSE_DATABASE": database, "DIAGNOSE_RATE": "1000000", **more})
        self.running: list[subprocess.Popen[bytes]] = []
        self.client = httpx.Client(base_url=self.url, timeout=90.0)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{arguments[0]}-{len(self.running)}.log").open("wb")
        process = subprocess.Popen(
            [sys.executable, "-c", _CLI, *arguments],
            env=self.environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        log.close()
        self.running.append(process)
        return process

    def serve(self) -> subprocess.Popen[bytes]:
        process = self.start("serve", "--port", str(self.port))
        self.wait_for("/healthz", process)
        return process

    def wait_for(self, path: str, process: subprocess.Popen[bytes], seconds: float = 60.0) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            assert process.poll() is None, self.said()
            with contextlib.suppress(httpx.HTTPError):
                if self.client.get(path).status_code == 200:
                    return
            time.sleep(0.05)
        raise AssertionError(f"{path} is not there: {self.said()}")

    def worker(self) -> subprocess.Popen[bytes]:
        return self.start("worker")

    def said(self) -> str:
        return "\n".join(f"{path.name}: {path.read_text()[-3000:]}" for path in sorted(self.folder.glob("*.log")))

    def submit(self, number: str, log: bytes, **more: Any) -> httpx.Response:
        form = {"job": json.dumps({"job_id": number})}
        return self.client.post("/v1/diagnoses", data=form, files=[("logs", ("job.log", log))], **more)

    def final(self, where: str, seconds: float = 90.0) -> dict[str, Any]:
        """The resource once it is done, or as it is."""
        until = time.monotonic() + seconds
        state: dict[str, Any] = {}
        while time.monotonic() < until:
            with contextlib.suppress(httpx.HTTPError):
                answer = self.client.get(f"{where}/state")
                if answer.status_code == 200:
                    state = answer.json()
                    if state["state"] in ("done", "error"):
                        return state
            time.sleep(0.1)
        return state

    def end(self) -> None:
        self.client.close()
        for process in self.running:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextlib.contextmanager
def site(folder: Path, database: str, **more: str) -> Iterator[Site]:
    made = Site(folder, database, **more)
    try:
        yield made
    finally:
        made.end()
