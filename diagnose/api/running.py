"""What an application holds while it runs: its database, spool, queue, who waits, what is noted.

In: a `ServiceConfig`. Out: `Running`, made at the start and closed at the end; handlers get it from the application.
Its `janitor` replays what was taken while the database was away, and deletes what nobody needs any more.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog

from diagnose.api.limits import Rates
from diagnose.api.metrics import Metrics
from diagnose.api.recent import Recent
from diagnose.api.summaries import Summaries
from diagnose.api.waiting import Waiters
from diagnose.dataclass import fields, replace
from diagnose.errors import DiagnoseError, StoreError
from diagnose.service.audit import Trail
from diagnose.service.claims import Claims
from diagnose.service.clocks import Ages, Jumps, Span
from diagnose.service.embedded import EmbeddedQueue
from diagnose.service.handing import live_of, streamed_job, tell_of_stall
from diagnose.service.jobs import OVERDUE, Absent, InputRef, NewJob, Uploaded
from diagnose.service.opening import Opening
from diagnose.service.queue import Queue
from diagnose.service.removing import remove_diagnosis
from diagnose.service.settings import ServiceConfig
from diagnose.service.spool import Spool
from diagnose.service.stall import StallNotice
from diagnose.service.streams import JobKey
from diagnose.service.submissions import Submissions
from diagnose.service.uploads import Uploads
from diagnose.service.webhooks import Sender
from diagnose.store.service_tables import Submission

_TICK: Final = 2.0
_SOON: Final = 1.0
_CHUNK_COSTS: Final = 16 * 1024  # bytes that could be taken in the time that a chunk takes anyway
_TIDY: Final = 600.0


class Running:
    """The parts of a running application."""

    def __init__(self, config: ServiceConfig, environment: Mapping[str, str]) -> None:
        self.config = config
        self.environment = environment
        self.log = structlog.get_logger("diagnose.api")
        self.opening = Opening(config.database)
        self.spool = Spool(config.spool, most_bytes=config.bounds.spool_bytes, upload_bytes=config.bounds.upload_bytes)
        self.ages = Ages(os.path.join(config.spool, "clock"))
        self._jumps = Jumps()
        self.metrics = Metrics()
        self.rates = Rates(config.bounds.rate)
        self.stream_rates = Rates(config.bounds.stream_rate)
        self.recent = Recent()
        self.summaries = Summaries()
        self.trail = Trail(self.opening.database)
        self.live = live_of(config, self._hand_in, self._stalled)
        self.waiters: Waiters | None = None
        self.queue: Queue | None = None
        self._sender: Sender | None = None
        self._stop = threading.Event()
        self._janitor = threading.Thread(target=self._keep_house, name="janitor", daemon=True)

    def start(self, waiters: Waiters) -> None:
        """Begins to work. Raises `StoreError` where a database that is a file cannot be opened."""
        self.waiters = waiters
        if not self.config.on_postgres:
            self.opening.database()
        self.queue = self._queue()
        if self.config.webhook_secret_file is not None:
            self._sender = Sender(self.config, self.opening)
            self._sender.start()
        self.live.start()
        self._janitor.start()

    def _queue(self) -> Queue:
        config = self.config
        if config.on_postgres:
            from diagnose.service.procrastinate import PostgresQueue

            return PostgresQueue(config, self.opening, self.on_state)
        return EmbeddedQueue(
            config.processes,
            self.environment,
            self.on_state,
            self._unfinished,
            job_seconds=config.bounds.job_seconds,
        )

    def _unfinished(self) -> list[str]:
        """What is left undone; whether a job waits for too long, a clock that was set just now does not tell."""
        overdue = self._jumps.quiet(self.config.waits.most + OVERDUE)
        return Claims(self.opening.database()).unfinished(overdue=overdue)

    def on_state(self, id: str, state: str) -> None:
        """A job has changed: whoever waits for it is woken."""
        self.metrics.states.labels(state).inc()
        if self.waiters is not None:
            self.waiters.tell(id, state)

    def close(self, seconds: float = 20.0) -> None:
        """Ends; what is being worked on may end within a while."""
        self._stop.set()
        self.live.close()
        if self.queue is not None:
            self.queue.close(seconds)
        if self._sender is not None:
            self._sender.close()
        self.trail.close()
        if self._janitor.is_alive():
            self._janitor.join(5.0)
        self.opening.close()

    @property
    def submissions(self) -> Submissions:
        """The submissions. Raises `StoreError`."""
        return Submissions(self.opening.database())

    @property
    def uploads(self) -> Uploads:
        """The uploads. Raises `StoreError`."""
        return Uploads(self.opening.database())

    def put(self, id: str) -> None:
        """Has a job worked on; where that cannot be told now, whoever looks for unfinished ones will find it."""
        assert self.queue is not None
        try:
            self.queue.put(id)
        except StoreError as error:
            self.opening.failed(error)

    def submissions_changed(self, id: str) -> None:
        """Takes note that somebody was shown what the rules said."""
        try:
            Claims(self.opening.database()).shown(id)
        except StoreError as error:
            self.opening.failed(error)

    def streamed(self, key: str, size: int) -> None:
        """Takes the bytes of a chunk from those that a key has; a small one counts as much as its handling costs."""
        self.stream_rates.spend(key, max(size, _CHUNK_COSTS) - 1)

    # While the database is away

    def keep_upload(self, uploaded: Uploaded) -> None:
        """Notes an upload in the database, or in the journal while that is away."""
        try:
            self.uploads.add(uploaded)
        except StoreError as error:
            if not self.opening.failed(error):
                raise
            self._put_off(uploaded)

    def _put_off(self, uploaded: Uploaded) -> None:
        said = {each.name: getattr(uploaded, each.name) for each in fields(Uploaded)}
        self.spool.put_pending(uploaded.id, json.dumps({"upload": said}).encode())

    def keep_job(self, job: NewJob, uploaded: Sequence[Uploaded] = ()) -> None:
        """Notes a job, and what came with it, in the journal."""
        for one in uploaded:
            self._put_off(one)
        said = {each.name: getattr(job, each.name) for each in fields(job) if each.name != "inputs"}
        inputs = [{each.name: getattr(one, each.name) for each in fields(one)} for one in job.inputs]
        self.spool.put_pending(job.id, json.dumps({"job": {**said, "inputs": inputs}}).encode())

    def replay(self) -> int:
        """Hands the database what the journal holds; returns how much that was. Raises `StoreError`."""
        names = self.spool.pending()
        if not names:
            return 0
        self.opening.database()
        for name in sorted(names, key=lambda one: not one.startswith("u")):  # what jobs name comes first
            try:
                self._replay(name)
            except StoreError as error:
                if self.opening.failed(error):
                    raise
                self.log.warning("one of the journal cannot be replayed", name=name, error=str(error))
            except (ValueError, TypeError, KeyError) as error:  # it keeps no other waiting
                self.log.warning("one of the journal cannot be read", name=name, error=str(error)[:200])
        return len(names)

    def _replay(self, name: str) -> None:
        data = self.spool.pending_bytes(name)
        if data is None:
            return
        said = json.loads(data)
        if "upload" not in said:
            job = _job_of(said["job"])
            if job.due is not None:
                self.submissions.hold(job)
            else:
                accepted, _ = self.submissions.accept(job, replayed=True)
                self.put(accepted.id)
        elif not self.uploads.known([name]):
            self.uploads.add(Uploaded(**said["upload"]))
        self.spool.drop_pending(name)

    # Jobs whose logs come while they run

    def ended(self, key: JobKey, said: str) -> bool:
        """A job has ended: its resource is there at once, and waits for the last ranks. Says whether that is news."""
        if not self.live.streams.endings.state(key):
            # Whatever becomes of this process, the job is diagnosed then.
            job = replace(streamed_job(key, said), due=time.time() + self.config.waits.most + OVERDUE)
            try:
                if self.submissions.hold(job):
                    self.metrics.states.labels("queued").inc()
            except StoreError as error:
                if not self.opening.failed(error):
                    raise
                self.keep_job(job)
        return self.live.ended(key, said)

    def again_in(self, row: Submission) -> float:
        """In how many seconds it makes sense to ask for a job's report again."""
        if row.due is None:
            return _SOON
        left = self.live.left(JobKey(row.project, row.cluster, row.job_id, row.attempt))
        return max(_SOON, self.config.waits.least if left is None else left)

    def _hand_in(self, key: JobKey, said: str, late: bool) -> bool:
        """A job has ended and its last ranks have spoken: it is diagnosed, once more where something came late."""
        try:
            self.replay()
            due = self.submissions.fall_due(streamed_job(key, said), late=late)
        except StoreError as error:
            self.opening.failed(error)
            return False  # it is asked again, as long as that takes
        if due is not None:
            self.recent.drop(due)
            self.put(due)
        return True

    def _stalled(self, key: JobKey, notice: StallNotice) -> None:
        """A running job stands still, or goes on: it is told, and nothing is done about it."""
        job = {each.name: getattr(key, each.name) for each in fields(JobKey)}
        self.log.warning("resumed" if notice.over else "stalled", **job, detail=notice.sentence)
        try:
            tell_of_stall(self.opening, self.config.webhooks_to, key, notice)
        except StoreError as error:
            self.opening.failed(error)

    def _keep_house(self) -> None:
        tidied = 0.0
        while not self._stop.wait(_TICK):
            try:
                self.replay()
                if time.monotonic() - tidied > _TIDY:
                    tidied = time.monotonic()
                    self._tidy()
            except StoreError as error:
                self.opening.failed(error)
            except (DiagnoseError, OSError, ValueError) as error:
                self.log.warning("keeping house failed", error=str(error))

    def _tidy(self) -> None:
        """Deletes jobs that are too old, uploads that no job names, and bytes of which nobody knows."""
        self.ages.look()
        keep = self.ages.span((self.config.memory.keep_days or 0) * 86_400)
        if self.config.memory.keep_days is not None and keep is not None:
            for name in self.submissions.outdated(keep.since):
                with contextlib.suppress(Absent):
                    remove_diagnosis(self.opening.database(), self.spool, self.live.forget, name, None)
        if (keep := self.ages.span(self.config.bounds.upload_keep)) is not None:
            self._tidy_uploads(keep)
        self.spool.tidy()
        if (keep := self.ages.span(self.config.bounds.stream_keep)) is not None:
            self.live.streams.tidy(keep.since, keep.until)

    def _tidy_uploads(self, keep: Span) -> None:
        """Deletes uploads that no job names, and bytes of which nobody knows."""
        for name in self.uploads.unused(keep.since, keep.until):
            self.spool.remove(name)
        old = [name for name, written in self.spool.uploads() if written not in keep]
        for start in range(0, len(old), 500):
            some = old[start : start + 500]
            waiting = set(self.spool.pending())
            for name in set(some) - self.uploads.known(some) - waiting:
                self.spool.remove(name)


def _job_of(said: dict[str, Any]) -> NewJob:
    inputs = tuple(InputRef(**one) for one in said.pop("inputs"))
    return NewJob(**{**said, "nodes": tuple(said["nodes"]), "inputs": inputs})


def environment_of(config: ServiceConfig, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of worker processes: the service's own, with what the command line has changed."""
    made = dict(os.environ if environment is None else environment)
    made["DIAGNOSE_DATABASE"] = config.database
    made["DIAGNOSE_SPOOL"] = config.spool
    with contextlib.suppress(KeyError):
        del made["PYTHONSTARTUP"]
    return made
