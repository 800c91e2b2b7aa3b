"""What is kept of past runs, as tables.

A job has attempts; an attempt has diagnoses (one for each ruleset that judged it), and of a failed one an incident is
made. What a person says of an incident is feedback and stays. Times are seconds since the epoch. `place` is where in
the code a failure arose, `workload` what is started again and again (name, user and image). The migrations in
`migrations/versions` make these tables; a test holds that both say the same.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Float, ForeignKey, Index, Integer, LargeBinary, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from diagnose.store.columns import Plain, Whole, Words

_OWNED = "all, delete-orphan"


class Table(DeclarativeBase):
    """Base of all tables."""

    type_annotation_map = {str: Words(), float: Float(53), int: Whole()}  # noqa: RUF012 - SQLAlchemy's own name


# SQLite counts rows up only in a column that is just INTEGER.
_ROW = BigInteger().with_variant(Integer(), "sqlite")


def _key() -> Mapped[int]:
    return mapped_column(_ROW, primary_key=True, autoincrement=True)


class Job(Table):
    """A job of a scheduler, or a set of logs of which no scheduler's number is known."""

    __tablename__ = "jobs"

    id: Mapped[int] = _key()
    key: Mapped[str] = mapped_column(unique=True)
    number: Mapped[str] = mapped_column(Words(200), default="")
    name: Mapped[str] = mapped_column(Words(500), default="")
    user: Mapped[str] = mapped_column(Words(200), default="", index=True)
    image: Mapped[str] = mapped_column(Words(1000), default="")
    cluster: Mapped[str] = mapped_column(Words(200), default="")
    project: Mapped[str] = mapped_column(Words(200), default="")
    workload: Mapped[str] = mapped_column(default="", index=True)
    recorded: Mapped[float]
    attempts: Mapped[list[Attempt]] = relationship(back_populates="job", cascade=_OWNED, passive_deletes=True)


class Attempt(Table):
    """One try of a job. `at` orders attempts: when it ended, as far as is known."""

    __tablename__ = "attempts"
    __table_args__ = (UniqueConstraint("job_id", "key"), Index("ix_attempts_at", "at"))

    id: Mapped[int] = _key()
    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    key: Mapped[str]
    number: Mapped[int] = mapped_column(default=0)
    status: Mapped[str]
    error_type: Mapped[str | None] = mapped_column(index=True)
    place: Mapped[str] = mapped_column(Words(1000), default="")
    last_step: Mapped[int | None]
    completed: Mapped[bool] = mapped_column(default=False)
    started: Mapped[float | None]
    ended: Mapped[float | None]
    at: Mapped[float]
    recorded: Mapped[float]
    gpus: Mapped[int | None]
    templates: Mapped[bytes] = mapped_column(LargeBinary, default=b"")
    job: Mapped[Job] = relationship(back_populates="attempts")
    diagnoses: Mapped[list[Diagnosis]] = relationship(back_populates="attempt", cascade=_OWNED, passive_deletes=True)
    facts: Mapped[list[Fact]] = relationship(cascade=_OWNED, passive_deletes=True)
    nodes: Mapped[list[NodeEvent]] = relationship(cascade=_OWNED, passive_deletes=True)


class Diagnosis(Table):
    """One verdict on an attempt: by which rules, which prompt and which model. `circumstances` can be replayed."""

    __tablename__ = "diagnoses"
    __table_args__ = (UniqueConstraint("attempt_id", "key"),)

    id: Mapped[int] = _key()
    attempt_id: Mapped[int] = mapped_column(ForeignKey("attempts.id", ondelete="CASCADE"))
    key: Mapped[str]
    recorded: Mapped[float]
    status: Mapped[str]
    error_type: Mapped[str | None]
    attribution: Mapped[str | None]
    sureness: Mapped[str | None]
    summary: Mapped[str] = mapped_column(Words(4000), default="")
    stage: Mapped[str]
    rule: Mapped[str | None] = mapped_column(Words(200), index=True)
    ruleset: Mapped[str | None] = mapped_column(Words(200))
    model: Mapped[str | None] = mapped_column(Words(200))
    prompt: Mapped[str | None] = mapped_column(Words(200))
    agent_state: Mapped[str | None] = mapped_column(Words(50))
    job_action: Mapped[str]
    policy: Mapped[str | None] = mapped_column(Words(200))
    circumstances: Mapped[dict[str, Any]] = mapped_column(Plain)
    report: Mapped[dict[str, Any]] = mapped_column(Plain)
    attempt: Mapped[Attempt] = relationship(back_populates="diagnoses")
    sources: Mapped[list[Source]] = relationship(cascade=_OWNED, passive_deletes=True)
    findings: Mapped[list[FindingRow]] = relationship(cascade=_OWNED, passive_deletes=True)
    evidence: Mapped[list[EvidenceRow]] = relationship(cascade=_OWNED, passive_deletes=True)


class Source(Table):
    """A log that was read for a diagnosis."""

    __tablename__ = "log_sources"

    id: Mapped[int] = _key()
    diagnosis_id: Mapped[int] = mapped_column(ForeignKey("diagnoses.id", ondelete="CASCADE"), index=True)
    name: Mapped[str] = mapped_column(Words(4000))
    kind: Mapped[str]
    lines: Mapped[int]
    truncated: Mapped[bool]


class FindingRow(Table):
    """A finding of a diagnosis; `excluded` says why it was set aside, `decided` whether its rule decided."""

    __tablename__ = "findings"

    id: Mapped[int] = _key()
    diagnosis_id: Mapped[int] = mapped_column(ForeignKey("diagnoses.id", ondelete="CASCADE"), index=True)
    name: Mapped[str] = mapped_column(Words(200))
    rule: Mapped[str | None] = mapped_column(Words(200), index=True)
    error_type: Mapped[str]
    role: Mapped[str]
    attempt: Mapped[int]
    count: Mapped[int]
    first: Mapped[float | None]
    last: Mapped[float | None]
    hosts: Mapped[list[str]] = mapped_column(Plain)
    gpus: Mapped[list[str]] = mapped_column(Plain)
    ranks: Mapped[list[int]] = mapped_column(Plain)
    explained_by: Mapped[list[str]] = mapped_column(Plain)
    excluded: Mapped[str | None] = mapped_column(Words(2000))
    shadow: Mapped[bool]
    decided: Mapped[bool]


class EvidenceRow(Table):
    """A line that proves something: of a finding by its name, or of the root cause where that is None."""

    __tablename__ = "evidence"

    id: Mapped[int] = _key()
    diagnosis_id: Mapped[int] = mapped_column(ForeignKey("diagnoses.id", ondelete="CASCADE"), index=True)
    finding: Mapped[str | None] = mapped_column(Words(200))
    source: Mapped[str] = mapped_column(Words(4000))
    line: Mapped[int | None]
    text: Mapped[str] = mapped_column(Words(4000))
    time: Mapped[str | None] = mapped_column(Words(50))
    rank: Mapped[int | None]
    host: Mapped[str | None] = mapped_column(Words(500))


class NodeEvent(Table):
    """What an attempt says of a host: that it took part, that it was to blame, what was to be done with it."""

    __tablename__ = "node_history"
    __table_args__ = (
        Index("ix_node_history_host", "host", "error_type"),
        Index("ix_node_history_actions", "action", "asked"),
    )

    id: Mapped[int] = _key()
    attempt_id: Mapped[int] = mapped_column(ForeignKey("attempts.id", ondelete="CASCADE"), index=True)
    cluster: Mapped[str] = mapped_column(Words(200), default="")
    host: Mapped[str] = mapped_column(Words(500))
    gpu: Mapped[str | None] = mapped_column(Words(200))
    error_type: Mapped[str | None]
    action: Mapped[str | None] = mapped_column(Words(50))
    at: Mapped[float]
    asked: Mapped[float]


class Fact(Table):
    """A fact of an attempt that may differ from run to run: an argument, a package, a driver."""

    __tablename__ = "facts"

    id: Mapped[int] = _key()
    attempt_id: Mapped[int] = mapped_column(ForeignKey("attempts.id", ondelete="CASCADE"), index=True)
    kind: Mapped[str]
    name: Mapped[str] = mapped_column(Words(500))
    value: Mapped[str] = mapped_column(Words(2000))


class IncidentRow(Table):
    """A failure that may happen again: what it was, whether a person confirmed it, whether what was done helped.

    `accepted` are error types that are right as well.
    """

    __tablename__ = "incidents"
    __table_args__ = (Index("ix_incidents_revision", "revision"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    attempt_id: Mapped[int | None] = mapped_column(ForeignKey("attempts.id", ondelete="SET NULL"), index=True)
    status: Mapped[str]
    error_type: Mapped[str | None] = mapped_column(index=True)
    accepted: Mapped[list[str]] = mapped_column(Plain, default=list, server_default="[]")
    attribution: Mapped[str | None]
    summary: Mapped[str] = mapped_column(Words(4000), default="")
    text: Mapped[str] = mapped_column(default="")
    job_action: Mapped[str | None]
    recovered: Mapped[bool | None]
    outcome_by: Mapped[str] = mapped_column(default="")
    confirmed: Mapped[bool] = mapped_column(default=False, index=True)
    decided_by: Mapped[str]
    rule: Mapped[str | None] = mapped_column(Words(200))
    created: Mapped[float] = mapped_column(index=True)
    number: Mapped[str] = mapped_column(Words(200), default="")
    name: Mapped[str] = mapped_column(Words(500), default="")
    user: Mapped[str] = mapped_column(Words(200), default="", index=True)
    image: Mapped[str] = mapped_column(Words(1000), default="")
    cluster: Mapped[str] = mapped_column(Words(200), default="")
    project: Mapped[str] = mapped_column(Words(200), default="")
    culprits: Mapped[list[str]] = mapped_column(Plain)
    nodes: Mapped[list[str]] = mapped_column(Plain)
    origin: Mapped[str] = mapped_column(Words(4000), default="")
    revision: Mapped[int]
    feedback: Mapped[list[Feedback]] = relationship(cascade=_OWNED, passive_deletes=True, order_by="Feedback.id")


class Feedback(Table):
    """What a person said of an incident. `before` and `after` are error types."""

    __tablename__ = "feedback"

    id: Mapped[int] = _key()
    incident_id: Mapped[str] = mapped_column(ForeignKey("incidents.id", ondelete="CASCADE"), index=True)
    at: Mapped[float]
    by: Mapped[str] = mapped_column(Words(200), default="")
    kind: Mapped[str]
    before: Mapped[str | None]
    after: Mapped[str | None]
    rule: Mapped[str | None] = mapped_column(Words(200), index=True)
    recovered: Mapped[bool | None]
    note: Mapped[str] = mapped_column(Words(4000), default="")


class Candidate(Table):
    """A rule that somebody or some model proposed, until people have reviewed it."""

    __tablename__ = "candidate_rules"

    id: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(index=True)
    status: Mapped[str] = mapped_column(index=True)
    incident_id: Mapped[str | None] = mapped_column(ForeignKey("incidents.id", ondelete="SET NULL"), index=True)
    body: Mapped[str]
    author: Mapped[str] = mapped_column(Words(200), default="")
    scope: Mapped[str] = mapped_column(Words(500), default="", index=True)
    samples: Mapped[list[str]] = mapped_column(Plain)
    hits: Mapped[int] = mapped_column(default=0)
    note: Mapped[str] = mapped_column(Words(4000), default="")
    created: Mapped[float]
    updated: Mapped[float]


class Removal(Table):
    """An incident that was deleted, so that whoever copied it learns so."""

    __tablename__ = "removals"

    id: Mapped[str] = mapped_column(primary_key=True)
    revision: Mapped[int] = mapped_column(index=True)


class Counter(Table):
    """A number that only grows: the revision of the incidents."""

    __tablename__ = "counters"

    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[int]
