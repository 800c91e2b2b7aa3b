"""What failed over time, whose fault it was, and on which nodes: for people who look after a cluster.

In: the submissions and the memory of a database, the projects that may be seen. Out: `Summary`. Failures are weighted
by GPU time, where a job said how many it had and when it ran. Every count is of what whoever asks may see.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from diagnose.dataclass import dataclass
from diagnose.service.jobs import Projects
from diagnose.service.submissions import visible
from diagnose.store.database import Database
from diagnose.store.service_tables import Submission
from diagnose.store.tables import Attempt, Job, NodeEvent

_DAY: Final = 86_400.0
_MOST: Final = 500_000  # submissions looked at, the latest first
_NODES: Final = 50


@dataclass(slots=True)
class Group:
    """Failures of one error type."""

    error_type: str | None
    attribution: str | None
    count: int = 0
    gpu_seconds: float = 0.0


@dataclass(slots=True)
class Day:
    """What came of the jobs of one day, in UTC."""

    day: str
    jobs: int = 0
    failed: int = 0
    gpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Node:
    """A host that jobs blamed: how many, and for what."""

    host: str
    cluster: str
    jobs: int
    error_types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """All of it."""

    jobs: int
    statuses: dict[str, int]
    failures: tuple[Group, ...]
    days: tuple[Day, ...]
    nodes: tuple[Node, ...]


def summary(
    database: Database,
    projects: Projects,
    *,
    days: int,
    cluster: str | None = None,
    clock: Callable[[], float] = time.time,
) -> Summary:
    """What the last days' jobs came to."""
    since = clock() - days * _DAY
    query = visible(
        select(
            Submission.created,
            Submission.status,
            Submission.state,
            Submission.error_type,
            Submission.attribution,
            Submission.gpus,
            Submission.started,
            Submission.ended,
        ).where(Submission.created >= since),
        projects,
    )
    if cluster is not None:
        query = query.where(Submission.cluster == cluster)
    groups: dict[tuple[str | None, str | None], Group] = {}
    by_day: dict[str, Day] = {}
    statuses: dict[str, int] = {}
    jobs = 0
    with database.reading() as session:
        rows = session.execute(query.order_by(Submission.created.desc()).limit(_MOST)).all()
        nodes = _nodes(session, projects, since, cluster)
    for row in rows:
        jobs += 1
        status = row.status or row.state
        statuses[status] = statuses.get(status, 0) + 1
        name = datetime.fromtimestamp(row.created, UTC).date().isoformat()
        day = by_day.setdefault(name, Day(name))
        day.jobs += 1
        if row.status != "failed":
            continue
        cost = max(0.0, row.ended - row.started) * row.gpus if row.gpus and row.started and row.ended else 0.0
        day.failed += 1
        day.gpu_seconds += cost
        group = groups.setdefault((row.error_type, row.attribution), Group(row.error_type, row.attribution))
        group.count += 1
        group.gpu_seconds += cost
    return Summary(
        jobs,
        statuses,
        tuple(sorted(groups.values(), key=lambda one: (-one.gpu_seconds, -one.count, one.error_type or ""))),
        tuple(by_day[name] for name in sorted(by_day)),
        nodes,
    )


def _nodes(session: Session, projects: Projects, since: float, cluster: str | None) -> tuple[Node, ...]:
    """The hosts that most jobs blamed."""
    query = (
        select(NodeEvent.host, NodeEvent.cluster, NodeEvent.error_type, Attempt.job_id)
        .join(Attempt, Attempt.id == NodeEvent.attempt_id)
        .join(Job, Job.id == Attempt.job_id)
        .where(NodeEvent.error_type.is_not(None), NodeEvent.asked >= since)
        .distinct()
    )
    if projects is not None:
        query = query.where(Job.project.in_(sorted(projects)))
    if cluster is not None:
        query = query.where(NodeEvent.cluster == cluster)
    found: dict[tuple[str, str], tuple[set[int], set[str]]] = {}
    for host, where, error_type, job in session.execute(query.limit(_MOST)).all():
        jobs, types = found.setdefault((host, where), (set(), set()))
        jobs.add(job)
        types.add(error_type or "")
    listed = [Node(host, where, len(jobs), tuple(sorted(types))) for (host, where), (jobs, types) in found.items()]
    return tuple(sorted(listed, key=lambda one: (-one.jobs, one.host))[:_NODES])
