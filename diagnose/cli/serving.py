"""`diagnose serve`, `worker`, `migrate`: the service, what works for it on Postgres, and its tables.

In: options, the environment. Out: a running service until a signal ends it, and an exit code.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from diagnose.cli.streams import tell
from diagnose.errors import UsageError, installing

if TYPE_CHECKING:
    from diagnose.service.settings import ServiceConfig


def add_serving_parsers(verbs: Any) -> None:
    """Add the verbs to the parser."""
    serve = verbs.add_parser(
        "serve",
        help="run the service: REST for schedulers and people",
        description="Run the service. Without settings it needs nothing else: SQLite, and workers of its own.",
        epilog=(
            "example:\n  DIAGNOSE_ROOTS=/scratch diagnose serve\n"
            "  DIAGNOSE_DATABASE=postgresql://diagnose@db/diagnose diagnose serve --host 0.0.0.0\n\n"
            "docs/service.md has all settings. With Postgres, `diagnose worker` does the work."
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    serve.add_argument("--host", help="where to listen; beyond 127.0.0.1 a key is needed (DIAGNOSE_HOST)")
    serve.add_argument("--port", type=int, help="8321 by default (DIAGNOSE_PORT)")
    _add_common(serve)
    worker = verbs.add_parser(
        "worker",
        help="work for a service on Postgres",
        description="Take jobs of the service's queue and diagnose them, until a signal ends it.",
        epilog="example:\n  DIAGNOSE_DATABASE=postgresql://diagnose@db/diagnose diagnose worker",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_common(worker)
    verbs.add_parser(
        "migrate",
        help="make or bring up to date the tables of the memory and the service",
        description="Make or bring up to date all tables; whoever opens a database does so too.",
        epilog="example:\n  DIAGNOSE_DATABASE=postgresql://diagnose@db/diagnose diagnose migrate",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--processes", type=int, metavar="N", help="diagnoses at once (DIAGNOSE_PROCESSES)")
    parser.add_argument("--rules", action="append", metavar="DIR", help="a site's own rules (DIAGNOSE_RULES)")
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")


def run_serving(options: argparse.Namespace) -> int:
    """Run the verb."""
    try:
        from diagnose.api.logging import configure
        from diagnose.service.settings import config_of
    except ModuleNotFoundError as error:
        raise UsageError(f"the service needs {error.name}, which is not installed: {installing('service')}") from error
    if options.verb == "migrate":
        return _migrate(config_of(os.environ))
    environment = _environment(options)
    config = config_of(environment)
    configure(options.log_level)
    if options.verb == "worker":
        if not config.on_postgres:
            raise UsageError(
                "a worker takes jobs from Postgres: set DIAGNOSE_DATABASE to postgresql://...; on SQLite "
                "`diagnose serve` works by itself"
            )
        from diagnose.service.working import run

        run(config, environment)
        return 0
    from diagnose.api.server import serve

    return serve(config, environment)


def _migrate(config: ServiceConfig) -> int:
    from diagnose.service.opening import Opening

    opening = Opening(config.database)
    try:
        name = opening.database().name
        if config.on_postgres:
            from diagnose.service.procrastinate import prepare

            prepare(opening)
    finally:
        opening.close()
    tell(f"{name} is up to date")
    return 0


def _environment(options: argparse.Namespace) -> dict[str, str]:
    """The environment with what the command line says; processes of the service get it."""
    said: dict[str, object] = {
        "DIAGNOSE_HOST": getattr(options, "host", None),
        "DIAGNOSE_PORT": getattr(options, "port", None),
        "DIAGNOSE_PROCESSES": options.processes,
        "DIAGNOSE_RULES": os.pathsep.join(options.rules) if options.rules else None,
    }
    return {**os.environ, **{name: str(value) for name, value in said.items() if value is not None}}
