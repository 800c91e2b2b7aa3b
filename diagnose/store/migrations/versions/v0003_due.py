"""When a job that waits for its last ranks is due."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the column."""
    op.add_column("submissions", sa.Column("due", sa.Float(precision=53), nullable=True))
