"""The HTTP server: uvicorn around the application.

In: a `ServiceConfig`. Out: an exit code, when a signal has ended it: what is in hand may end, new requests are refused.
"""

from __future__ import annotations

import contextlib
import logging
import resource
import signal
import socket
from collections.abc import Mapping

import structlog
import uvicorn

from diagnose.api.app import create_app, refuse_open
from diagnose.api.wire import Patient
from diagnose.errors import DiagnoseError, UsageError
from diagnose.service.settings import ServiceConfig

_GRACE = 20  # seconds for requests in hand
_WAITING = 2_048


def serve(config: ServiceConfig, environment: Mapping[str, str]) -> int:
    """Serves until it is asked to end. Raises `UsageError` where it cannot listen."""
    _take_all_files()
    app = create_app(config, environment)
    refuse_open(app.state.running)  # here, so that it is told in one line
    listening = _listen(config)
    port = listening.getsockname()[1]
    structlog.get_logger("diagnose.api").info(
        "serving", url=f"http://{config.host}:{port}", database="postgres" if config.on_postgres else config.database
    )
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            http=Patient,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_GRACE,
            timeout_keep_alive=30,
            h11_max_incomplete_event_size=64 * 1024,
            proxy_headers=False,
        )
    )
    # Why it cannot start is told in one line below, not as a stack.
    logging.getLogger("uvicorn.error").addFilter(lambda _record: not app.state.failed)
    for number in (signal.SIGTERM, signal.SIGINT):  # which uvicorn hears itself, and sends again when it has ended
        signal.signal(number, signal.SIG_IGN)
    try:
        server.run(sockets=[listening])
    except SystemExit:  # it could not start; why, the application knows
        if not app.state.failed:
            raise
    finally:
        listening.close()
    failed: list[DiagnoseError] = app.state.failed
    if failed:
        raise failed[0]
    return 0 if server.started else 2


def _take_all_files() -> None:
    """Has as many files open at once as the system grants: each connection is one, and the usual 1024 are few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _listen(config: ServiceConfig) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((config.host, config.port))
        made.listen(_WAITING)
    except OSError as error:
        made.close()
        raise UsageError(
            f"cannot listen on {config.host} port {config.port}: {error.strerror}; choose another --port or --host"
        ) from error
    return made
