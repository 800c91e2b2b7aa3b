"""Past incidents that read like a diagnosed failure, as whoever asks may see them.

In: a submission, the projects that may be seen. Out: plain values; of other projects there is type and outcome alone.
Raises `StoreError` where the index cannot be asked.
"""

from __future__ import annotations

import contextlib
from typing import Any

from diagnose.errors import StoreError, UsageError
from diagnose.rules.bundle import load_bundled
from diagnose.service.jobs import Projects
from diagnose.service.settings import ServiceConfig
from diagnose.store.database import Database
from diagnose.store.incidents import StoredIncidents
from diagnose.store.service_tables import Submission

_SYNC_SECONDS = 2.0


def similar_to(
    row: Submission, database: Database, config: ServiceConfig, projects: Projects, count: int
) -> list[dict[str, Any]]:
    """The incidents that read most like this one, best first, without itself."""
    from diagnose.store.opening import open_index

    incidents = StoredIncidents(database)
    own = incidents.get(row.incident) if row.incident is not None else None
    if own is None or not own.text or config.memory.index is None:
        return []
    try:
        rules = load_bundled(config.rules)
        with contextlib.closing(open_index(config.memory.index, incidents, rules.redactions)) as index:
            index.sync(seconds=_SYNC_SECONDS)
            found = [one for one in index.similar(own.text, count + 1) if one.id != own.id][:count]
    except UsageError as error:  # its server is away: that is nothing whoever asks could mend
        raise StoreError(str(error)) from error
    whose = {one.id: one.context.project for one in incidents.many([each.id for each in found])}
    shown = []
    for each in found:
        project = whose.get(each.id)
        visible = project is not None and (projects is None or project in projects)
        shown.append(
            {
                "id": each.id if visible else None,
                "error_type": each.error_type,
                "similarity": round(each.similarity, 4),
                "recovered": each.recovered,
                "summary": each.summary if visible else None,
                "project": project if visible else None,
            }
        )
    return shown
