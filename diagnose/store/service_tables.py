"""What a service keeps beside the memory: what it accepted, who may ask, whom to tell, who looked.

A submission is one attempt of a job that is to be diagnosed; `epoch` counts who took it up, and only the latest may say
what came of it. Every row belongs to a project. Times are seconds since the epoch. They link to the memory by the
incident and the attempt that became of them; `migrations/versions/v0002_service.py` makes the tables.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, Integer, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from diagnose.store.columns import Plain, Words
from diagnose.store.tables import Table

_ROW = BigInteger().with_variant(Integer(), "sqlite")
_DOCUMENT = 64 * 1024 * 1024  # characters of a rendered report


class Submission(Table):
    """One attempt of a job that was handed in.

    `report`, `markdown` and `screen` are renderings, `layout` is the first screen before it is laid out; `given` says
    that somebody was shown what the rules said. Before `due` a job waits for its last ranks.
    """

    __tablename__ = "submissions"
    __table_args__ = (
        UniqueConstraint("project", "cluster", "job_id", "attempt"),
        Index("ix_submissions_created", "created", "id"),
        Index("ix_submissions_state", "state", "beat"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    project: Mapped[str] = mapped_column(Words(200))
    cluster: Mapped[str] = mapped_column(Words(200))
    job_id: Mapped[str] = mapped_column(Words(200))
    attempt: Mapped[int]
    scheduler: Mapped[str] = mapped_column(Words(200), default="")
    name: Mapped[str] = mapped_column(Words(500), default="")
    user: Mapped[str] = mapped_column(Words(200), default="", index=True)
    image: Mapped[str] = mapped_column(Words(1000), default="")
    nodes: Mapped[list[str]] = mapped_column(Plain)
    gpus: Mapped[int | None]
    ended_as: Mapped[dict[str, Any]] = mapped_column(Plain)
    started: Mapped[float | None]
    ended: Mapped[float | None]
    callback: Mapped[str | None] = mapped_column(Words(2000))
    key_id: Mapped[str] = mapped_column(Words(50), default="")
    created: Mapped[float]
    updated: Mapped[float]
    state: Mapped[str]
    epoch: Mapped[int] = mapped_column(default=0)
    revision: Mapped[int] = mapped_column(default=1)
    tries: Mapped[int] = mapped_column(default=0)
    beat: Mapped[float] = mapped_column(default=0.0)
    worker: Mapped[str] = mapped_column(Words(200), default="")
    given: Mapped[bool] = mapped_column(default=False)
    due: Mapped[float | None]
    status: Mapped[str | None] = mapped_column(Words(50))
    error_type: Mapped[str | None] = mapped_column(Words(200), index=True)
    attribution: Mapped[str | None] = mapped_column(Words(50))
    sureness: Mapped[str | None] = mapped_column(Words(50))
    summary: Mapped[str] = mapped_column(Words(4000), default="")
    job_action: Mapped[str] = mapped_column(Words(50), default="")
    rule: Mapped[str | None] = mapped_column(Words(200))
    report: Mapped[str | None] = mapped_column(Words(_DOCUMENT))
    markdown: Mapped[str | None] = mapped_column(Words(_DOCUMENT))
    screen: Mapped[str | None] = mapped_column(Words(_DOCUMENT))
    layout: Mapped[str | None] = mapped_column(Words(_DOCUMENT))
    error: Mapped[str | None] = mapped_column(Words(4000))
    incident: Mapped[str | None] = mapped_column(Words(200), index=True)
    remembered: Mapped[int | None]
    inputs: Mapped[list[SubmissionInput]] = relationship(
        cascade="all, delete-orphan", passive_deletes=True, order_by="SubmissionInput.id"
    )


class SubmissionInput(Table):
    """One input of a submission: where its bytes are, and what whoever gave it says of it."""

    __tablename__ = "submission_inputs"

    id: Mapped[int] = mapped_column(_ROW, primary_key=True, autoincrement=True)
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id", ondelete="CASCADE"), index=True)
    role: Mapped[str] = mapped_column(Words(20))
    path: Mapped[str | None] = mapped_column(Words(4096))
    uri: Mapped[str | None] = mapped_column(Words(4096))
    upload: Mapped[str | None] = mapped_column(Words(50), index=True)
    source: Mapped[str | None] = mapped_column(Words(500))
    host: Mapped[str | None] = mapped_column(Words(300))
    rank: Mapped[int | None]
    added: Mapped[float]


class UploadRow(Table):
    """Bytes in the spool, and whose they are."""

    __tablename__ = "uploads"

    id: Mapped[str] = mapped_column(primary_key=True)
    project: Mapped[str] = mapped_column(Words(200))
    name: Mapped[str] = mapped_column(Words(500))
    size: Mapped[int]
    sha256: Mapped[str] = mapped_column(Words(64))
    key_id: Mapped[str] = mapped_column(Words(50), default="")
    created: Mapped[float] = mapped_column(index=True)


class ApiKey(Table):
    """A key to the service, as its digest. `projects` is `["*"]` where it is bound to none."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(Words(64))
    scopes: Mapped[list[str]] = mapped_column(Plain)
    projects: Mapped[list[str]] = mapped_column(Plain)
    note: Mapped[str] = mapped_column(Words(500), default="")
    created: Mapped[float]
    expires: Mapped[float | None]
    revoked: Mapped[float | None]
    used: Mapped[float | None]


class Idempotency(Table):
    """What came of a request that may be sent again.

    `key` is the client's own within its API key, `digest` the request's.
    """

    __tablename__ = "idempotency"

    key: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(Words(64))
    answer: Mapped[dict[str, Any]] = mapped_column(Plain)
    created: Mapped[float] = mapped_column(index=True)


class Outgoing(Table):
    """A webhook to be sent. `due` is None when it was delivered or given up."""

    __tablename__ = "outbox"

    id: Mapped[str] = mapped_column(primary_key=True)
    project: Mapped[str] = mapped_column(Words(200))
    about: Mapped[str] = mapped_column(Words(200), index=True)
    url: Mapped[str] = mapped_column(Words(2000))
    type: Mapped[str] = mapped_column(Words(100))
    body: Mapped[dict[str, Any]] = mapped_column(Plain)
    created: Mapped[float]
    due: Mapped[float | None] = mapped_column(index=True)
    tries: Mapped[int] = mapped_column(default=0)
    delivered: Mapped[float | None]
    error: Mapped[str] = mapped_column(Words(1000), default="")


class AuditRow(Table):
    """Who read or changed what, and what the answer was. No text of any log."""

    __tablename__ = "audit"

    id: Mapped[int] = mapped_column(_ROW, primary_key=True, autoincrement=True)
    at: Mapped[float] = mapped_column(index=True)
    key_id: Mapped[str] = mapped_column(Words(50), default="")
    project: Mapped[str] = mapped_column(Words(200), default="")
    action: Mapped[str] = mapped_column(Words(100))
    object: Mapped[str] = mapped_column(Words(300), default="")
    status: Mapped[int]
    request_id: Mapped[str] = mapped_column(Words(100), default="")
    address: Mapped[str] = mapped_column(Words(100), default="")
