"""Whether what was done about a failure helped, told by the workload's next attempts: nobody needs to say so.

In: the attempts of one workload in the order of time. Out: for each failed one, whether the work has passed the step
where it failed (it recovered), has died alike without passing it (it did not), or neither yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from diagnose.dataclass import dataclass
from diagnose.store.incidents import NEXT_ATTEMPT, next_revision
from diagnose.store.tables import Attempt, IncidentRow, Job

_LOOKED_AT = 200  # latest attempts of a workload


@dataclass(frozen=True, slots=True)
class Try:
    """What is needed of an attempt to compare it with another. `key` and `job` tell attempts and jobs apart."""

    id: int
    key: str
    job: int
    status: str
    error_type: str | None
    place: str
    last_step: int | None
    completed: bool
    at: float
    started: float | None = None

    @property
    def well(self) -> bool:
        """Whether nothing stopped the work."""
        return self.completed or self.status == "no_failure"


def passed(later: Try, earlier: Try) -> bool:
    """Whether a later attempt came beyond the step at which an earlier one failed."""
    if later.well:
        return True
    if later.last_step is None:
        return False
    return earlier.last_step is None or later.last_step > earlier.last_step


def alike(one: Try, other: Try) -> bool:
    """Whether two attempts failed for the same root: the same error type, in code at the same place."""
    if one.well or other.well or one.error_type != other.error_type:
        return False
    return one.place == other.place or not (one.place and other.place)


def outcome(failed: Try, later: Iterable[Try]) -> tuple[bool, Try] | None:
    """Whether the failure was overcome, and by which attempt that is known; None where none has told yet."""
    for one in later:
        if passed(one, failed):
            return True, one
        if alike(one, failed):
            return False, one
    return None


def repeats(earlier: Sequence[Try], now: Try) -> int:
    """How many of the earlier attempts, in order of time, failed like this one with none since having passed them."""
    count, best = 0, now.last_step
    for one in reversed(earlier):
        if one.well:
            break
        if alike(one, now):
            if best is not None and (one.last_step is None or best > one.last_step):
                break
            count += 1
        if one.last_step is not None and (best is None or one.last_step > best):
            best = one.last_step
    return count


def tries(session: Session, workload: str, *, most: int = _LOOKED_AT) -> list[Try]:
    """The latest attempts of a workload, in order of time."""
    rows = session.execute(
        select(Attempt, Attempt.job_id)
        .join(Job)
        .where(Job.workload == workload)
        .order_by(Attempt.at.desc(), Attempt.id.desc())
        .limit(most)
    )
    return [of_attempt(row[0]) for row in reversed(rows.all())]


def of_attempt(row: Attempt) -> Try:
    """What is needed of an attempt to compare it with another."""
    return Try(row.id, row.key, row.job_id, row.status, row.error_type, row.place, row.last_step, row.completed, row.at)


def label(session: Session, workload: str) -> int:
    """Labels the incidents of a workload by what came after them; returns how many labels changed.

    What a person said of an outcome stands.
    """
    known = tries(session, workload)
    incidents = {
        row.attempt_id: row
        for row in session.scalars(
            select(IncidentRow).where(IncidentRow.attempt_id.in_([one.id for one in known])) if known else _NONE
        )
    }
    changed = 0
    for index, one in enumerate(known):
        row = incidents.get(one.id)
        if row is None or row.outcome_by not in ("", NEXT_ATTEMPT):
            continue
        found = outcome(one, known[index + 1 :])
        recovered = None if found is None else found[0]
        if recovered != row.recovered:
            row.recovered, row.outcome_by = recovered, "" if recovered is None else NEXT_ATTEMPT
            row.revision = next_revision(session)
            changed += 1
    return changed


_NONE = select(IncidentRow).where(IncidentRow.id.is_(None))
