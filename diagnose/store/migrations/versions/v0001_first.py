"""The first tables: jobs and their attempts, diagnoses, incidents, what people said, candidate rules."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_ROW = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "counters",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "jobs",
        sa.Column("id", _ROW, autoincrement=True, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("number", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("user", sa.Text(), nullable=False),
        sa.Column("image", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("workload", sa.Text(), nullable=False),
        sa.Column("recorded", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("key"),
    )
    op.create_index(("ix_jobs_user"), "jobs", ["user"], unique=False)
    op.create_index(("ix_jobs_workload"), "jobs", ["workload"], unique=False)
    op.create_table(
        "removals",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(("ix_removals_revision"), "removals", ["revision"], unique=False)
    op.create_table(
        "attempts",
        sa.Column("id", _ROW, autoincrement=True, nullable=False),
        sa.Column("job_id", _ROW, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("error_type", sa.Text(), nullable=True),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=True),
        sa.Column("completed", sa.Boolean(), nullable=False),
        sa.Column("started", sa.Float(precision=53), nullable=True),
        sa.Column("ended", sa.Float(precision=53), nullable=True),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.Column("recorded", sa.Float(precision=53), nullable=False),
        sa.Column("gpus", sa.BigInteger(), nullable=True),
        sa.Column("templates", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("job_id", "key"),
    )
    op.create_index("ix_attempts_at", "attempts", ["at"], unique=False)
    op.create_index(("ix_attempts_error_type"), "attempts", ["error_type"], unique=False)
    op.create_table(
        "diagnoses",
        sa.Column("id", _ROW, autoincrement=True, nullable=False),
        sa.Column("attempt_id", _ROW, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("recorded", sa.Float(precision=53), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("error_type", sa.Text(), nullable=True),
        sa.Column("attribution", sa.Text(), nullable=True),
        sa.Column("sureness", sa.Text(), nullable=True),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=True),
        sa.Column("ruleset", sa.Text(), nullable=True),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("prompt", sa.Text(), nullable=True),
        sa.Column("agent_state", sa.Text(), nullable=True),
        sa.Column("job_action", sa.Text(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=True),
        sa.Column("circumstances", sa.JSON(), nullable=False),
        sa.Column("report", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("attempt_id", "key"),
    )
    op.create_index(("ix_diagnoses_rule"), "diagnoses", ["rule"], unique=False)
    op.create_table(
        "facts",
        sa.Column("id", _ROW, autoincrement=True, nullable=False),
        sa.Column("attempt_id", _ROW, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(("ix_facts_attempt_id"), "facts", ["attempt_id"], unique=False)
    op.create_table(
        "incidents",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("attempt_id", _ROW, nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("error_type", sa.Text(), nullable=True),
        sa.Column("attribution", sa.Text(), nullable=True),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("job_action", sa.Text(), nullable=True),
        sa.Column("recovered", sa.Boolean(), nullable=True),
        sa.Column("outcome_by", sa.Text(), nullable=False),
        sa.Column("confirmed", sa.Boolean(), nullable=False),
        sa.Column("decided_by", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=True),
        sa.Column("created", sa.Float(precision=53), nullable=False),
        sa.Column("number", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("user", sa.Text(), nullable=False),
        sa.Column("image", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("culprits", sa.JSON(), nullable=False),
        sa.Column("nodes", sa.JSON(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(("ix_incidents_attempt_id"), "incidents", ["attempt_id"], unique=False)
    op.create_index(("ix_incidents_confirmed"), "incidents", ["confirmed"], unique=False)
    op.create_index(("ix_incidents_created"), "incidents", ["created"], unique=False)
    op.create_index(("ix_incidents_error_type"), "incidents", ["error_type"], unique=False)
    op.create_index("ix_incidents_revision", "incidents", ["revision"], unique=False)
    op.create_index(("ix_incidents_user"), "incidents", ["user"], unique=False)
    op.create_table(
        "node_history",
        sa.Column("id", _ROW, autoincrement=True, nullable=False),
        sa.Column("attempt_id", _ROW, nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("gpu", sa.Text(), nullable=True),
        sa.Column("error_type", sa.Text(), nullable=True),
        sa.Column("action", sa.Text(), nullable=True),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.Column("asked", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_node_history_actions", "node_history", ["action", "asked"], unique=False)
    op.create_index(("ix_node_history_attempt_id"), "node_history", ["attempt_id"], unique=False)
    op.create_index("ix_node_history_host", "node_history", ["host", "error_type"], unique=False)
    op.create_table(
        "candidate_rules",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("incident_id", sa.Text(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("samples", sa.JSON(), nullable=False),
        sa.Column("hits", sa.BigInteger(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("created", sa.Float(precision=53), nullable=False),
        sa.Column("updated", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(["incident_id"], ["incidents.id"], ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(("ix_candidate_rules_incident_id"), "candidate_rules", ["incident_id"], unique=False)
    op.create_index(("ix_candidate_rules_kind"), "candidate_rules", ["kind"], unique=False)
    op.create_index(("ix_candidate_rules_scope"), "candidate_rules", ["scope"], unique=False)
    op.create_index(("ix_candidate_rules_status"), "candidate_rules", ["status"], unique=False)
    op.create_table(
        "evidence",
        sa.Column("id", _ROW, autoincrement=True, nullable=False),
        sa.Column("diagnosis_id", _ROW, nullable=False),
        sa.Column("finding", sa.Text(), nullable=True),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("line", sa.BigInteger(), nullable=True),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("time", sa.Text(), nullable=True),
        sa.Column("rank", sa.BigInteger(), nullable=True),
        sa.Column("host", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["diagnosis_id"], ["diagnoses.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(("ix_evidence_diagnosis_id"), "evidence", ["diagnosis_id"], unique=False)
    op.create_table(
        "feedback",
        sa.Column("id", _ROW, autoincrement=True, nullable=False),
        sa.Column("incident_id", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("before", sa.Text(), nullable=True),
        sa.Column("after", sa.Text(), nullable=True),
        sa.Column("rule", sa.Text(), nullable=True),
        sa.Column("recovered", sa.Boolean(), nullable=True),
        sa.Column("note", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["incident_id"], ["incidents.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(("ix_feedback_incident_id"), "feedback", ["incident_id"], unique=False)
    op.create_index(("ix_feedback_rule"), "feedback", ["rule"], unique=False)
    op.create_table(
        "findings",
        sa.Column("id", _ROW, autoincrement=True, nullable=False),
        sa.Column("diagnosis_id", _ROW, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=True),
        sa.Column("error_type", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("first", sa.Float(precision=53), nullable=True),
        sa.Column("last", sa.Float(precision=53), nullable=True),
        sa.Column("hosts", sa.JSON(), nullable=False),
        sa.Column("gpus", sa.JSON(), nullable=False),
        sa.Column("ranks", sa.JSON(), nullable=False),
        sa.Column("explained_by", sa.JSON(), nullable=False),
        sa.Column("excluded", sa.Text(), nullable=True),
        sa.Column("shadow", sa.Boolean(), nullable=False),
        sa.Column("decided", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["diagnosis_id"], ["diagnoses.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(("ix_findings_diagnosis_id"), "findings", ["diagnosis_id"], unique=False)
    op.create_index(("ix_findings_rule"), "findings", ["rule"], unique=False)
    op.create_table(
        "log_sources",
        sa.Column("id", _ROW, autoincrement=True, nullable=False),
        sa.Column("diagnosis_id", _ROW, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("lines", sa.BigInteger(), nullable=False),
        sa.Column("truncated", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["diagnosis_id"], ["diagnoses.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(("ix_log_sources_diagnosis_id"), "log_sources", ["diagnosis_id"], unique=False)
    op.execute("INSERT INTO counters (name, value) VALUES ('revision', 0)")


def downgrade() -> None:
    """Drop the tables."""
    for name in (
        "log_sources",
        "findings",
        "feedback",
        "evidence",
        "candidate_rules",
        "node_history",
        "incidents",
        "facts",
        "diagnoses",
        "attempts",
        "removals",
        "jobs",
        "counters",
    ):
        op.drop_table(name)
