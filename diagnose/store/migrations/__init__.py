"""The history of the tables, as alembic migrations; each is kept as it was written.

In: a connection in a transaction. Out: the tables as this release has them. A new migration is a module in `versions`
with the next number, which `HEAD` in `store/database.py` then names.
"""

from __future__ import annotations

import os

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection


def config() -> Config:
    """Alembic's settings for these migrations."""
    made = Config()
    made.set_main_option("script_location", os.path.dirname(os.path.abspath(__file__)).replace("%", "%%"))
    made.set_main_option("path_separator", "os")
    return made


def upgrade(connection: Connection) -> None:
    """Brings tables up to date, within the connection's transaction."""
    made = config()
    made.attributes["connection"] = connection
    command.upgrade(made, "head")
