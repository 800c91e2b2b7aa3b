"""The error types that are right for an incident beside the one it goes by."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the column."""
    op.add_column("incidents", sa.Column("accepted", sa.JSON(), nullable=False, server_default="[]"))
