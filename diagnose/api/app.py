"""The application: `create_app(config)`.

In: a `ServiceConfig`. Out: a FastAPI application that starts its queue with the event loop and ends it gracefully.
Raises `UsageError` where it would be reachable from other machines without a key.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from importlib.metadata import PackageNotFoundError, version

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool

from diagnose.api import problems
from diagnose.api.auth import Gate
from diagnose.api.contract import documented
from diagnose.api.middleware import Around
from diagnose.api.routes import diagnoses, health, jobs, knowledge, memory, uploads
from diagnose.api.running import Running, environment_of
from diagnose.api.tracing import Tracing
from diagnose.api.waiting import Waiters
from diagnose.api.web import pages
from diagnose.errors import DiagnoseError, StoreError, UsageError
from diagnose.service.keys import Keys
from diagnose.service.settings import ServiceConfig

_DESCRIPTION = "Says what failed in a GPU training job, whose fault it is, why, and what to do next."


def create_app(config: ServiceConfig, environment: Mapping[str, str] | None = None) -> FastAPI:
    """The application of a service; worker processes get `environment`."""
    own = environment_of(config, environment)
    tracing = Tracing(own)
    running = Running(config, own)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        waiters = Waiters()
        try:
            await run_in_threadpool(refuse_open, running)
            await run_in_threadpool(running.start, waiters)
        except DiagnoseError as error:
            app.state.failed.append(error)  # the server says it in one line
            raise
        try:
            yield
        finally:
            await run_in_threadpool(running.close)
            tracing.close()

    app = FastAPI(
        title="diagnose",
        description=_DESCRIPTION,
        version=_version(),
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # to whatever host the request names, and from https to http behind a proxy
        separate_input_output_schemas=False,
    )
    app.state.running = running
    app.state.failed = []
    app.state.gate = Gate(config, running.opening)
    problems.add_handlers(app)
    for router in (
        diagnoses.router,
        uploads.router,
        jobs.router,
        knowledge.router,
        memory.router,
        health.router,
    ):
        app.include_router(router)
    pages.add_to(app)
    app.openapi = documented(app)  # type: ignore[method-assign]
    app.add_middleware(Around, running=running, tracing=tracing)
    return app


def refuse_open(running: Running) -> None:
    """Raises `UsageError` where other machines could reach a service that knows no keys."""
    config = running.config
    if config.is_local and config.keys != "required":
        return
    try:
        known = Keys(running.opening.database()).any()
    except StoreError as error:
        if running.opening.failed(error) and config.on_postgres:
            return  # then nobody is let in until it is back
        raise
    if not known:
        raise UsageError(
            f"{config.host} can be reached from other machines and there is no key yet: make one with "
            "`diagnose keys add --scope submit --scope read --project NAME`, or listen on 127.0.0.1"
        )


def _version() -> str:
    try:
        return version("gpu-job-diagnose")
    except PackageNotFoundError:
        return "0"
