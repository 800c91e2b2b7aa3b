"""Jobs and their inputs as rows of the database, and rows as jobs.

In: `NewJob`, `InputRef`. Out: `Submission`, `SubmissionInput`; and the other way round. What has one name in both is
carried over by it.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

from diagnose.service.jobs import InputRef, NewJob
from diagnose.store.service_tables import Submission, SubmissionInput

_EPOCHS: Final = 1 << 40
_SAME: Final = (
    *("project", "cluster", "job_id", "attempt", "scheduler", "name", "user", "image", "gpus"),
    *("started", "ended", "callback", "key_id"),
)
_EXIT: Final = ("code", "signal", "state")
_INPUT: Final = tuple(InputRef.__annotations__)


def row_of(job: NewJob, now: float) -> Submission:
    """A job that waits, as its row, with its inputs."""
    return Submission(
        id=job.id,
        **{name: getattr(job, name) for name in _SAME},
        nodes=list(job.nodes),
        ended_as={name: getattr(job, name) for name in _EXIT},
        created=now,
        updated=now,
        state="queued",
        tries=0,
        epoch=secrets.randbelow(_EPOCHS),  # no worker's that still has a deleted row of the same name in hand
        revision=1,
        due=job.due,
        inputs=[input_row(one, now) for one in job.inputs],
    )


def job_of(row: Submission) -> NewJob:
    """The job that was handed in, with what was added to it since; whoever has it in hand, it is due."""
    same: dict[str, Any] = {name: getattr(row, name) for name in _SAME}
    ended: dict[str, Any] = {name: row.ended_as.get(name) for name in _EXIT}
    return NewJob(
        **same,
        **ended,
        nodes=tuple(row.nodes),
        inputs=tuple(input_of(one) for one in row.inputs),
    )


def input_row(one: InputRef, now: float) -> SubmissionInput:
    """An input, as its row."""
    return SubmissionInput(**{name: getattr(one, name) for name in _INPUT}, added=now)


def input_of(row: SubmissionInput) -> InputRef:
    """A row, as the input that it is."""
    return InputRef(*(getattr(row, name) for name in _INPUT))
