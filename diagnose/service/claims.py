"""Work on submissions: who has taken one up, and what came of it.

In: a `Database`. Out: `Claims`; on Postgres also word of each new state to whoever listens. Whoever takes a job up
raises its `epoch`, and only the bearer of the latest may say what came of it: a worker that was thought dead changes
nothing, and each job ends once. What is to be told of a change goes into the outbox in the same transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlalchemy import and_, or_, select, text, update
from sqlalchemy.orm import Session

from diagnose.dataclass import dataclass
from diagnose.service.jobs import FINAL, OPEN, Claim, Notice, Outcome, digest
from diagnose.service.rows import job_of
from diagnose.store.database import Database
from diagnose.store.incidents import iso_time
from diagnose.store.recorder import Recorded
from diagnose.store.service_tables import Outgoing, Submission

CHANNEL: Final = "diagnose_state"  # of Postgres, by which API processes hear of states
_OUTCOME: Final = tuple(name for name in Outcome.__annotations__)

_FAR: Final = 2 * 3_600.0  # further ahead than anything is due: by a clock that was set back since


class Claims:
    """What is being done about the submissions of a database. Raises `StoreError` where it cannot be used."""

    def __init__(
        self, database: Database, notice: Notice | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._database = database
        self._notice = notice or Notice()
        self._clock = clock

    def unfinished(self, *, silent_since: float | None = None, overdue: bool = True) -> list[str]:
        """Those with work to do, the oldest first: all, or of those taken up only what nobody has spoken of since.

        Of those that wait for their last ranks only what is `overdue`, which a clock that was set just now cannot tell.
        """
        far = self._clock() + _FAR
        late = or_(Submission.due <= self._clock(), Submission.due > far)
        due = or_(Submission.due.is_(None), late) if overdue else Submission.due.is_(None)
        query = select(Submission.id).where(due).order_by(Submission.created, Submission.id).limit(100_000)
        if silent_since is None:
            query = query.where(Submission.state.in_(OPEN))
        else:
            query = query.where(
                or_(
                    and_(
                        Submission.state == "queued", or_(Submission.updated < silent_since, Submission.updated > far)
                    ),
                    and_(
                        Submission.state.in_(("running", "rules_done")),
                        or_(Submission.beat < silent_since, Submission.beat > far),
                    ),
                )
            )
        with self._database.reading() as session:
            return list(session.scalars(query))

    def claim(self, id: str, worker: str, most_tries: int) -> Claim | None:
        """Takes a job up, whoever had it before; None where nothing is to be done. Beyond so many tries it ends."""
        now = self._clock()
        with self._database.changing() as session:
            row = session.get(Submission, id, with_for_update=True)
            if row is None or row.state in FINAL or (row.due is not None and now < row.due <= now + _FAR):
                return None
            row.epoch += 1
            row.due = None
            if row.tries >= most_tries:
                row.error = (
                    f"given up after {row.tries} tries: each time the process that read its logs ended before it was "
                    "done. Diagnose it by `diagnose LOG...` where its logs are, and report what happens"
                )
                row.state, row.updated = "error", now
                self._tell(session, row, now)
                return None
            row.tries += 1
            row.state = "running"
            row.beat = row.updated = now
            row.worker = worker
            row.given = False
            return Claim(id, row.epoch, row.tries, job_of(row), row.remembered)

    def beat(self, ids: Sequence[str]) -> None:
        """Says that work on these goes on. Whoever has lost one meanwhile speaks for the other, which does no harm."""
        if not ids:
            return
        with self._database.changing() as session:
            working = Submission.state.in_(("running", "rules_done"))
            session.execute(update(Submission).where(Submission.id.in_(ids), working).values(beat=self._clock()))

    def rules_done(self, claim: Claim, outcome: Outcome) -> bool:
        """Publishes what the rules say; False where somebody else has taken the job up since."""
        return self._publish(claim, "rules_done", outcome)

    def finish(self, claim: Claim, outcome: Outcome, given: Callable[[], Outcome] | None = None) -> bool:
        """Publishes the final report. Where somebody was shown what the rules said, it is that of `given`."""
        return self._publish(claim, "done", outcome, given)

    def _publish(self, claim: Claim, state: str, outcome: Outcome, given: Callable[[], Outcome] | None = None) -> bool:
        now = self._clock()
        with self._database.changing() as session:
            row = session.scalar(select(Submission).where(_held(claim.id, claim.epoch)).with_for_update())
            if row is None:
                return False
            if row.given and given is not None:
                outcome = given()
            for name in _OUTCOME:
                setattr(row, name, getattr(outcome, name))
            row.state, row.updated, row.error = state, now, None
            row.given = bool(row.callback or self._notice.to) if state == "rules_done" else row.given
            self._tell(session, row, now)
            return True

    def fail(self, claim: Claim, error: str) -> bool:
        """Says that a job cannot be diagnosed, and why."""
        now = self._clock()
        with self._database.changing() as session:
            row = session.scalar(select(Submission).where(_held(claim.id, claim.epoch)).with_for_update())
            if row is None:
                return False
            row.state, row.error, row.updated = "error", error, now
            self._tell(session, row, now)
            return True

    def put_back(self, claim: Claim) -> bool:
        """Says that a job cannot be worked on at present, for no fault of its own: the try does not count."""
        with self._database.changing() as session:
            back = update(Submission).where(_held(claim.id, claim.epoch))
            values = {"state": "queued", "tries": claim.tries - 1, "updated": self._clock()}
            return bool(session.execute(back.values(**values).returning(Submission.id)).all())

    def shown(self, id: str) -> None:
        """Says that somebody was shown what the rules said, while others are still being asked."""
        with self._database.changing() as session:
            session.execute(
                update(Submission).where(Submission.id == id, Submission.state == "rules_done").values(given=True)
            )

    def _tell(self, session: Session, row: Submission, now: float) -> None:
        """Tells who waits, and puts what happened where it is sent from, in the same transaction."""
        if not self._database.is_file:
            session.execute(
                text("SELECT pg_notify(:channel, :said)"), {"channel": CHANNEL, "said": f"{row.id} {row.state}"}
            )
        targets = [one for one in (row.callback if self._notice.callbacks else None, self._notice.to) if one]
        for url in targets:
            event = f"diagnosis.{row.state}"
            session.merge(
                Outgoing(
                    id=f"msg_{digest(row.id, str(row.epoch), event, url)[:27]}",
                    project=row.project,
                    about=row.id,
                    url=url,
                    type=event,
                    body=_event(row),
                    created=now,
                    due=now,
                    tries=0,
                )
            )


@dataclass(frozen=True, slots=True)
class Recording:
    """Has a job that was taken up recorded in the memory, as long as it is held: once, and not after it was deleted."""

    claim: Claim

    @property
    def former(self) -> int | None:
        """What an earlier diagnosis of the job has become."""
        return self.claim.remembered

    def wants(self, session: Session) -> bool:
        """Whether nobody else has taken the job up since, and it was not deleted; nobody can until this is over."""
        query = select(Submission.id).where(_held(self.claim.id, self.claim.epoch)).with_for_update()
        return session.scalar(query) is not None

    def became(self, session: Session, recorded: Recorded) -> None:
        """Links the job with what is remembered of it."""
        query = update(Submission).where(Submission.id == self.claim.id)
        session.execute(query.values(incident=recorded.incident, remembered=recorded.attempt))


def _held(id: str, epoch: int) -> Any:
    return and_(Submission.id == id, Submission.epoch == epoch, Submission.state.in_(("running", "rules_done")))


def _event(row: Submission) -> dict[str, Any]:
    """What a webhook says: who the job is and the verdict in short; the report is fetched by whoever may."""
    return {
        "type": f"diagnosis.{row.state}",
        "timestamp": iso_time(row.updated),
        "data": {
            "id": row.id,
            "state": row.state,
            "revision": row.revision,
            "project": row.project,
            "cluster": row.cluster,
            "job_id": row.job_id,
            "attempt": row.attempt,
            "name": row.name,
            "user": row.user,
            "status": row.status,
            "error_type": row.error_type,
            "attribution": row.attribution,
            "sureness": row.sureness,
            "summary": row.summary,
            "job_action": row.job_action,
            "incident": row.incident,
            "error": row.error,
        },
    }
