"""A diagnosis is deleted, with all that was kept for it.

In: an id, and who asks. Out: nothing of it is left: the row, its inputs, uploads that no other job names, streamed
logs, the incident and the run in the memory. Raises `Absent`.
"""

from __future__ import annotations

from collections.abc import Callable

from diagnose.service.jobs import Projects
from diagnose.service.spool import Spool
from diagnose.service.streams import JobKey
from diagnose.service.submissions import Submissions
from diagnose.store.database import Database
from diagnose.store.incidents import delete, forget_run


def remove_diagnosis(
    database: Database, spool: Spool, forget: Callable[[JobKey], None], id: str, projects: Projects
) -> str:
    """Deletes one diagnosis; returns of which project it was.

    `forget` comes first: the job's streamed logs, so that nobody hands it in meanwhile.
    """
    submissions = Submissions(database)
    row = submissions.get(id, projects)
    forget(JobKey(row.project, row.cluster, row.job_id, row.attempt))
    row, uploads = submissions.delete(id, projects)
    for upload in uploads:
        spool.remove(upload)
    if row.incident is not None:
        delete(database, [row.incident])
    if row.remembered is not None:
        forget_run(database, row.remembered)
    return str(row.project)
