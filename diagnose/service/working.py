"""A worker of a service on Postgres: `diagnose worker`.

In: jobs of the queue. Out: diagnoses, made by processes of its own (`pool.py`), and word of their states. It says every
few seconds that it lives; what a worker that was killed had in hand is put into the queue again by any other. It goes
on when the database was away.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

import procrastinate
import psycopg
import structlog
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Status

from diagnose.errors import DiagnoseError, StoreError
from diagnose.service.claims import Claims
from diagnose.service.clocks import Jumps
from diagnose.service.jobs import OVERDUE, Notice
from diagnose.service.opening import Opening
from diagnose.service.pool import Done, Pool
from diagnose.service.procrastinate import QUEUE, TASK, address_of, prepare, put_in, sync_app, told
from diagnose.service.settings import ServiceConfig

# Procrastinate forgets a notice that comes while it fetches, which under load is often.
_POLL: Final = 0.15  # seconds
_BEAT: Final = 4.0  # seconds
SILENT: Final = 20.0  # seconds after which nobody is thought to work on a job any more
_GRACE: Final = 25.0  # seconds that work in hand has when the worker is to end


class Working:
    """A worker process: a pool, and the threads that keep its jobs known as its own."""

    def __init__(self, config: ServiceConfig, environment: Mapping[str, str]) -> None:
        self._config = config
        self._opening = Opening(config.database)
        self._address = address_of(config)
        self._log = structlog.get_logger("diagnose.worker")
        self._stop = threading.Event()
        self._mine: dict[str, int] = {}
        self._lock = threading.Lock()
        self._pool = Pool(config.processes, environment, _heard, job_seconds=config.bounds.job_seconds)
        self._keeper = threading.Thread(target=self._keep, name="keeper", daemon=True)

    async def run(self) -> None:
        """Works until a signal asks it to end."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        self._keeper.start()
        while not self._stop.is_set():
            try:
                await asyncio.to_thread(prepare, self._opening)
                await self._serve()
            except (StoreError, ConnectorException, psycopg.Error, OSError) as error:
                self._log.warning("the queue is away", error=str(error)[:300])
                await asyncio.to_thread(self._stop.wait, 2.0)
        await asyncio.to_thread(self._pool.close, _GRACE)
        self._opening.close()

    async def _serve(self) -> None:
        connector = procrastinate.PsycopgConnector(conninfo=self._address, min_size=1, max_size=4)
        app = procrastinate.App(connector=connector)

        @app.task(name=TASK, queue=QUEUE)
        async def work(id: str) -> None:
            await self._work(id)

        async with app.open_async():
            serving = asyncio.create_task(
                app.run_worker_async(
                    queues=[QUEUE],
                    concurrency=self._config.processes,
                    install_signal_handlers=False,
                    delete_jobs="always",
                    shutdown_graceful_timeout=_GRACE,
                    fetch_job_polling_interval=_POLL,
                )
            )
            stopping = asyncio.create_task(asyncio.to_thread(self._stop.wait))
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving

    async def _work(self, id: str) -> None:
        """One job: it is in hand until the pool is through with it."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Done] = loop.create_future()

        def tell(done: Done) -> None:
            if not ended.done():
                ended.set_result(done)

        def then(done: Done) -> None:
            loop.call_soon_threadsafe(tell, done)

        with self._lock:
            self._mine[id] = self._mine.get(id, 0) + 1
        try:
            self._pool.put(id, then)
            done = await ended
        finally:
            with self._lock:
                self._mine[id] -= 1
                if not self._mine[id]:
                    del self._mine[id]
        if done.end not in ("done", "later") and not self._stop.is_set():
            await asyncio.to_thread(self._again, id)

    def _again(self, id: str) -> None:
        """Puts a job back; where that cannot be, the keeper of some worker finds it."""
        with contextlib.suppress(DiagnoseError):
            app = sync_app(self._address)
            with told(), app.open():
                put_in(app, id)

    def _keep(self) -> None:
        """Says which jobs are in hand, and puts again what nobody has."""
        looked, jumps = 0.0, Jumps()
        while not self._stop.wait(_BEAT):
            try:
                claims = Claims(self._opening.database(), Notice(self._config.webhooks_to))
                with self._lock:
                    mine = list(self._mine)
                claims.beat(mine)
                quiet = jumps.quiet(SILENT)  # once the clock was set, others have as long to speak as they ever have
                if quiet and time.monotonic() - looked > SILENT / 2:
                    looked = time.monotonic()
                    overdue = jumps.quiet(self._config.waits.most + OVERDUE)
                    left = claims.unfinished(silent_since=time.time() - SILENT, overdue=overdue)
                    self._sweep([name for name in left if name not in mine])
            except StoreError as error:
                self._opening.failed(error)
            except Exception:  # noqa: BLE001 - whatever it is, who watches goes on
                self._log.exception("keeping watch failed")

    def _sweep(self, left: list[str]) -> None:
        """Puts jobs again that nobody has in hand, and forgets entries of workers that are gone."""
        app = sync_app(self._address)
        with told(), app.open():
            for name in left:
                put_in(app, name)
        asyncio.run(self._forget())

    async def _forget(self) -> None:
        connector = procrastinate.PsycopgConnector(conninfo=self._address, min_size=1, max_size=1)
        app = procrastinate.App(connector=connector)
        async with app.open_async():
            for job in await app.job_manager.get_stalled_jobs(queue=QUEUE, seconds_since_heartbeat=SILENT):
                await app.job_manager.finish_job(job, Status.FAILED, delete_job=True)


def _heard(_id: str, _state: str) -> None:
    """Whoever waits was told by the database itself."""


def run(config: ServiceConfig, environment: Mapping[str, str]) -> Any:
    """Works until it is asked to end."""
    return asyncio.run(Working(config, environment).run())
