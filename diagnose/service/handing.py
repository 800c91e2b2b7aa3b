"""What a running service makes of its running jobs: a submission when one has ended, a webhook when one stands still.

In: keys of jobs, what was said at their end. Out: `Live`, `NewJob`s, rows of the outbox. Raises `StoreError`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from diagnose.keeping import Keeping
from diagnose.models import RuleSet
from diagnose.service.jobs import NewJob, digest
from diagnose.service.live import Live
from diagnose.service.opening import Opening
from diagnose.service.settings import ServiceConfig, streams_folder
from diagnose.service.stall import StallNotice
from diagnose.service.streams import JobKey, StreamBounds, Streams
from diagnose.store.incidents import iso_time
from diagnose.store.service_tables import Outgoing


def live_of(
    config: ServiceConfig,
    on_end: Callable[[JobKey, str, bool], bool],
    on_stall: Callable[[JobKey, StallNotice], None],
) -> Live:
    """The running jobs of a service; the rules are read when the first needs them."""

    def rules() -> RuleSet:
        from diagnose.rules.bundle import load_bundled

        return load_bundled(config.rules)

    bounds = StreamBounds(
        chunk_bytes=config.bounds.body_bytes,
        log_bytes=config.bounds.expanded_bytes,
        spool_bytes=config.bounds.spool_bytes,
    )
    streams = Streams(streams_folder(config), lambda: Keeping(rules()), bounds)
    return Live(streams, rules, on_end, on_stall, waits=config.waits, stall=config.stall)


def streamed_job(key: JobKey, said: str) -> NewJob:
    """The job that has ended, with what its scheduler said of it (`api.schemas.End` as JSON)."""
    try:
        told: dict[str, Any] = json.loads(said) if said else {}
    except ValueError:
        told = {}
    how = told.get("exit") or {}
    return NewJob(
        job_id=key.job_id,
        project=key.project,
        cluster=key.cluster,
        attempt=key.attempt,
        nodes=tuple(told.get("nodes") or ()),
        gpus=told.get("gpus"),
        code=how.get("code"),
        signal=how.get("signal"),
        state=how.get("state"),
        started=_seconds(told.get("started_at")),
        ended=_seconds(told.get("ended_at")),
        scheduler=told.get("scheduler") or "",
        name=told.get("name") or "",
        user=told.get("user") or "",
        image=told.get("image") or "",
    )


def tell_of_stall(opening: Opening, to: str | None, key: JobKey, notice: StallNotice) -> None:
    """Puts what happened into the outbox, where somebody is to be told."""
    if to is None:
        return
    job = NewJob(key.job_id, key.project, key.cluster, key.attempt).id
    event = "job.resumed" if notice.over else "job.stalled"
    now = time.time()
    said = {
        "cluster": key.cluster,
        "job_id": key.job_id,
        "attempt": key.attempt,
        "project": key.project,
        "step": notice.step,
        "phase": notice.phase,
        "seconds": round(notice.seconds, 1),
        "usual_seconds_per_step": notice.usual,
        "summary": notice.sentence,
    }
    with opening.database().changing() as session:
        session.merge(
            Outgoing(
                id=f"msg_{digest(job, event, str(notice.step), f'{now:.0f}', to)[:27]}",
                project=key.project,
                about=job,
                url=to,
                type=event,
                body={"type": event, "timestamp": iso_time(now), "data": said},
                created=now,
                due=now,
                tries=0,
            )
        )


def _seconds(stamp: str | None) -> float | None:
    return None if not stamp else datetime.fromisoformat(stamp).timestamp()
