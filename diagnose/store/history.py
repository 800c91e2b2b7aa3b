"""What the memory says of a unit or a workload: the protocol `History`, answered from the database.

In: who the job at hand is. Out: counts, of other jobs and of earlier attempts, never of the job's own. Everything is
told as of the time of the failure, so that an old log read today is not blamed for what came later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlalchemy import distinct, func, or_, select
from sqlalchemy.orm import Session

from diagnose.dataclass import dataclass
from diagnose.errors import StoreError
from diagnose.models import Drained
from diagnose.store.database import Database
from diagnose.store.outcomes import Try, repeats, tries
from diagnose.store.tables import Attempt, NodeEvent

_DAY, _HOUR = 86_400.0, 3600.0
_REMEMBERED = 90  # days for which a node counts among those there are
OUT_OF_SERVICE = ("drain", "replace")
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Asking:
    """Who asks: the job by its row if it was recorded before, its workload, its attempt's key, and when it failed.

    `log` is what the keys of all attempts in the same logs begin with: none of them is another run, nor is one of the
    same job that began at the same second, nor `former`, as which the same run was recorded before.
    """

    job: int | None
    workload: str
    log: str
    cluster: str
    at: float | None
    started: float | None = None
    former: int | None = None

    def is_mine(self, one: Try) -> bool:
        """Whether an attempt was told by the same logs, or is the same one."""
        same_start = self.started is not None and one.started is not None and abs(one.started - self.started) < 1
        return one.key.startswith(self.log) or one.id == self.former or (one.job == self.job and same_start)


class StoredHistory:
    """A history that asks the database; where that fails it knows nothing, and says so once by `tell`."""

    def __init__(
        self, database: Database, myself: Asking, now: float, tell: Callable[[str], None], nodes: int | None = None
    ) -> None:
        self._database = database
        self._myself = myself
        self._now = now
        self._tell = tell
        self._nodes = nodes
        self._broken = False

    def unit_failures(self, *, host: str, gpu: str | None, error_type: str, days: int) -> int:
        """How many other jobs named this unit as the culprit of this error type in the `days` days before this one."""
        until = self._myself.at if self._myself.at is not None else self._now

        def ask(session: Session) -> int:
            query = (
                select(func.count(distinct(Attempt.job_id)))
                .select_from(NodeEvent)
                .join(Attempt, Attempt.id == NodeEvent.attempt_id)
                .where(NodeEvent.host == host, NodeEvent.error_type == error_type)
                .where(NodeEvent.cluster == self._myself.cluster)
                .where(NodeEvent.at >= until - days * _DAY, NodeEvent.at <= until)
            )
            if gpu is not None:
                query = query.where(NodeEvent.gpu == gpu)
            if self._myself.job is not None:
                query = query.where(Attempt.job_id != self._myself.job)
            return session.scalar(query) or 0

        return self._asked(ask, 0)

    def workload_repeats(self, *, error_type: str, step: int | None, place: str = "") -> int:
        """How many earlier attempts of this workload failed alike at the same place, with none since having passed."""
        myself = self._myself
        now = Try(0, "", myself.job or 0, "failed", error_type or None, place, step, completed=False, at=0.0)

        def ask(session: Session) -> int:
            known = tries(session, myself.workload)
            others = [one for one in known if not myself.is_mine(one)]
            return repeats([one for one in others if myself.at is None or one.at < myself.at], now)

        return self._asked(ask, 0) if myself.workload else 0

    def drained(self, *, besides: Sequence[str]) -> Drained:
        """For how many hosts beside these a drain or a replacement was asked within the last hour."""

        def ask(session: Session) -> Drained:
            here = NodeEvent.cluster == self._myself.cluster
            hosts = session.scalars(
                select(NodeEvent.host)
                .distinct()
                .where(
                    here,
                    NodeEvent.asked >= self._now - _HOUR,
                    or_(*(NodeEvent.action == action for action in OUT_OF_SERVICE)),
                )
            ).all()
            nodes = self._nodes or session.scalar(
                select(func.count(distinct(NodeEvent.host))).where(here, NodeEvent.at >= self._now - _REMEMBERED * _DAY)
            )
            return Drained(len(set(hosts) - set(besides)), nodes or 0)

        return self._asked(ask, Drained())

    def _asked(self, ask: Callable[[Session], _Answer], unknown: _Answer) -> _Answer:
        if self._broken:
            return unknown
        try:
            with self._database.reading() as session:
                return ask(session)
        except StoreError as error:
            self._broken = True
            self._tell(f"{error}; the report does without what it knows")
            return unknown
