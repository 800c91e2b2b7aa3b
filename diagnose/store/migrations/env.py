"""What alembic runs: the migrations on the connection that it is given, in that connection's transaction."""

from __future__ import annotations

from alembic import context

from diagnose.store import service_tables  # noqa: F401 - its tables are of the same metadata
from diagnose.store.tables import Table

context.configure(connection=context.config.attributes["connection"], target_metadata=Table.metadata)
with context.begin_transaction():
    context.run_migrations()
