"""What failed over time, whose fault it was, and on which nodes: for people who look after a cluster.

In: the submissions and the memory of a database, the projects that may be seen. Out: `Summary`. Failures are weighted
by GPU time, where a job said how many it had and when it ran. Every count is of what whoever asks may see.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from diagnose.dataclass import dataclass, field
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
    """Failures of one error type, as a row of Table 3 of the paper on the Acme cluster.

    `gpus` are how many each job had, `lasted` the seconds until each failed, `away` those until its next attempt began;
    of jobs that said so.
    """

    error_type: str | None
    attribution: str | None
    count: int = 0
    gpu_seconds: float = 0.0
    gpus: list[int] = field(default_factory=list)
    lasted: list[float] = field(default_factory=list)
    away: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Day:
    """What came of the jobs of one day, in UTC."""

    day: str
    jobs: int = 0
    failed: int = 0
    gpu_seconds: float = 0.0
    by: dict[str, tuple[int, float]] = field(default_factory=dict)  # attribution: failures, GPU seconds


@dataclass(frozen=True, slots=True)
class Node:
    """A host that jobs blamed: how many of how many that ran there, and for what."""

    host: str
    cluster: str
    jobs: int
    error_types: tuple[str, ...]
    ran: int


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
            Submission.project,
            Submission.cluster,
            Submission.job_id,
            Submission.attempt,
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
    # Rows are unpacked and days named once each: there may be hundreds of thousands.
    starts = {row[:4]: row.started for row in rows if row[3]}
    names: dict[int, str] = {}
    for project, where, job, attempt, created, said, state, error_type, attribution, gpus, started, ended in rows:
        jobs += 1
        status = said or state
        statuses[status] = statuses.get(status, 0) + 1
        number = int(created // _DAY)
        name = names.get(number)
        if name is None:
            name = names[number] = datetime.fromtimestamp(created, UTC).date().isoformat()
            by_day.setdefault(name, Day(name))
        day = by_day[name]
        day.jobs += 1
        if said != "failed":
            continue
        lasted = max(0.0, ended - started) if started and ended else None
        cost = lasted * gpus if gpus and lasted is not None else 0.0
        day.failed += 1
        day.gpu_seconds += cost
        group = groups.get((error_type, attribution))
        if group is None:
            group = groups[error_type, attribution] = Group(error_type, attribution)
        group.count += 1
        group.gpu_seconds += cost
        if gpus:
            group.gpus.append(gpus)
        if lasted is not None:
            group.lasted.append(lasted)
        began = starts.get((project, where, job, attempt + 1)) if starts else None
        if began and ended and began >= ended:
            group.away.append(began - ended)
        blamed = attribution or "unknown"
        failures, seconds = day.by.get(blamed, (0, 0.0))
        day.by[blamed] = (failures + 1, seconds + cost)
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
    worst = sorted(found.items(), key=lambda one: (-len(one[1][0]), one[0]))[:_NODES]
    ran = _ran(session, projects, since, [host for (host, _), _ in worst])
    return tuple(
        Node(host, where, len(jobs), tuple(sorted(types)), max(ran.get((host, where), 0), len(jobs)))
        for (host, where), (jobs, types) in worst
    )


def _ran(session: Session, projects: Projects, since: float, hosts: list[str]) -> dict[tuple[str, str], int]:
    """How many jobs ran on each of these hosts."""
    query = (
        select(NodeEvent.host, NodeEvent.cluster, func.count(Attempt.job_id.distinct()))
        .join(Attempt, Attempt.id == NodeEvent.attempt_id)
        .join(Job, Job.id == Attempt.job_id)
        .where(NodeEvent.host.in_(hosts), NodeEvent.at >= since)
        .group_by(NodeEvent.host, NodeEvent.cluster)
    )
    if projects is not None:
        query = query.where(Job.project.in_(sorted(projects)))
    return {(host, where): count for host, where, count in session.execute(query).all()}
