"""What a policy would have asked for over the recorded history, and how that would have gone.

In: a database, the rows and budgets of a policy. Out: `Backtest`: stops, restarts and drains, each right, false or not
known by what happened next, and GPU-hours saved and lost. Nothing is known of what would have happened had something
else been done: a stop is right where the next attempts died alike, false where one passed the failed step though
nothing about the workload had changed; a drain is right where the host was to blame again, false where it served well.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, cast

from sqlalchemy import select
from sqlalchemy.orm import Session

from diagnose.dataclass import dataclass, field, replace
from diagnose.models import Budgets, Circumstances, Drained, PolicyRow, Recovery, Target
from diagnose.models.report import ReportStatus
from diagnose.models.rule import AttributionName
from diagnose.rules.policy import recall, with_history
from diagnose.rules.repeats import days_remembered
from diagnose.store.database import Database
from diagnose.store.outcomes import Try, alike, of_attempt, outcome, repeats
from diagnose.store.tables import Attempt, Diagnosis, Fact, IncidentRow, Job, NodeEvent

Kind = Literal["stop", "restart", "drain"]
Fate = Literal["right", "false", "mended", "unknown"]

_DAY, _HOUR = 86_400.0, 3600.0
_MONTH = 30 * _DAY
_STOPS: Final = frozenset({"none", "fix_and_resubmit"})
_AGAIN: Final = frozenset({"restart", "restart_elsewhere", "wait_and_retry"})
_OUT_OF_SERVICE: Final = frozenset({"drain", "replace"})
_MADE_ANEW: Final = ("arguments", "environment", "packages", "image")  # facts that a person changes
_GPUS_OF_NODE = 8


@dataclass(frozen=True, slots=True)
class Costs:
    """What a false action costs: hours until a person starts the job again, hours that a drained node is away."""

    stop_hours: float = 2.0
    drain_hours: float = 24.0


@dataclass(frozen=True, slots=True)
class Action:
    """One action that the policy would have asked for. `saved` and `lost` are GPU-hours."""

    kind: Kind
    fate: Fate
    at: float
    job: str
    incident: str
    error_type: str
    row: str
    what: str
    saved: float = 0.0
    lost: float = 0.0


@dataclass(frozen=True, slots=True)
class Backtest:
    """All actions over the recorded history.

    `untimed` attempts count for no GPU-hours; `unasked` tests were not known when verdicts were recorded.
    """

    attempts: int = 0
    workloads: int = 0
    since: float | None = None
    until: float | None = None
    actions: tuple[Action, ...] = ()
    untimed: int = 0
    unasked: Mapping[str, int] = field(default_factory=dict)

    def of(self, kind: Kind, fate: Fate | None = None) -> list[Action]:
        """The actions of a kind, and of a fate."""
        return [one for one in self.actions if one.kind == kind and fate in (None, one.fate)]


@dataclass(slots=True)
class _Failure:
    """One judged attempt, with what is needed of it."""

    tried: Try
    workload: str
    number: str
    circumstances: Circumstances
    gpus: int
    hours: float
    incident: str
    hosts: tuple[str, ...]


def backtest(
    database: Database,
    rows: Sequence[PolicyRow],
    budgets: Budgets,
    costs: Costs = Costs(),  # noqa: B008 - frozen
) -> Backtest:
    """Replays a policy over all recorded attempts, in order of time."""
    with database.reading() as session:
        return _Replay(session, rows, budgets, costs).run()


class _Replay:
    def __init__(self, session: Session, rows: Sequence[PolicyRow], budgets: Budgets, costs: Costs) -> None:
        self._rows = rows
        self._budgets = budgets
        self._costs = costs
        self._asked_by_rows = {name for row in rows for name in row.when}
        self._workloads: dict[str, list[Try]] = {}
        self._failures: list[_Failure] = []
        self._facts: dict[int, frozenset[tuple[str, str, str]]] = {}
        self._events: dict[str, list[tuple[float, int, str | None, str | None]]] = {}
        self._hours: dict[int, float] = {}
        self._tries: dict[int, Try] = {}
        self._untimed = 0
        self._unasked: dict[str, int] = {}
        self._drained: list[tuple[float, str]] = []
        self._load(session)

    def _load(self, session: Session) -> None:
        named = select(IncidentRow.attempt_id, IncidentRow.id).where(IncidentRow.attempt_id.is_not(None))
        incidents: dict[int | None, str] = {row.attempt_id: row.id for row in session.execute(named)}
        latest = select(Diagnosis.attempt_id, Diagnosis.circumstances).order_by(Diagnosis.recorded, Diagnosis.id)
        judged: dict[int, dict[str, Any]] = {row.attempt_id: row.circumstances for row in session.execute(latest)}
        hosts: dict[int, list[str]] = {}
        for event in session.scalars(select(NodeEvent)):
            hosts.setdefault(event.attempt_id, []).append(event.host)
            self._events.setdefault(event.host, []).append((event.at, event.attempt_id, event.error_type, event.gpu))
        for events in self._events.values():
            events.sort(key=lambda event: event[:2])
        facts: dict[int, set[tuple[str, str, str]]] = {}
        for fact in session.scalars(select(Fact).where(Fact.kind.in_(_MADE_ANEW))):
            facts.setdefault(fact.attempt_id, set()).add((fact.kind, fact.name, fact.value))
        self._facts = {attempt: frozenset(known) for attempt, known in facts.items()}
        for attempt, workload, number in session.execute(
            select(Attempt, Job.workload, Job.number).join(Job).order_by(Attempt.at, Attempt.id)
        ):
            tried = of_attempt(attempt)
            self._workloads.setdefault(workload, []).append(tried)
            self._tries[tried.id] = tried
            gpus = attempt.gpus or 0
            hours = 0.0
            if attempt.started is not None and attempt.ended is not None and attempt.ended > attempt.started:
                hours = gpus * (attempt.ended - attempt.started) / _HOUR
            elif attempt.id in judged:
                self._untimed += 1
            self._hours[tried.id] = hours
            plain = judged.get(attempt.id)
            if plain is None or attempt.status == "no_failure":
                continue
            for name in self._asked_by_rows - set(plain.get("asked", ())):
                self._unasked[name] = self._unasked.get(name, 0) + 1
            self._failures.append(
                _Failure(
                    tried,
                    workload,
                    number,
                    circumstances_of(plain),
                    gpus,
                    hours,
                    incidents.get(attempt.id, ""),
                    tuple(hosts.get(attempt.id, ())),
                )
            )

    def run(self) -> Backtest:
        """All actions, in order of time."""
        actions: list[Action] = []
        for failure in self._failures:
            actions.extend(self._actions(failure))
        times = [failure.tried.at for failure in self._failures]
        return Backtest(
            attempts=len(self._failures),
            workloads=len({failure.workload for failure in self._failures}),
            since=min(times, default=None),
            until=max(times, default=None),
            actions=tuple(actions),
            untimed=self._untimed,
            unasked=self._unasked,
        )

    def _actions(self, failure: _Failure) -> Iterable[Action]:
        recovery = self._recovery(failure)
        later = self._later(failure)
        found = outcome(failure.tried, later)
        same = found is not None and found[0] and self._unchanged(failure.tried, found[1])
        if recovery.job in _STOPS:
            fate: Fate = "unknown"
            saved = lost = 0.0
            if found is not None and not found[0]:
                fate, saved = "right", self._wasted(failure.tried, later)
            elif found is not None:
                fate = "false" if same else "mended"
                lost = failure.gpus * self._costs.stop_hours if same else 0.0
            yield self._action("stop", fate, failure, recovery, recovery.job, saved, lost)
        elif recovery.job in _AGAIN:
            fate = "unknown" if found is None else "right" if found[0] else "false"
            lost = self._hours[found[1].id] if found is not None and not found[0] else 0.0
            yield self._action("restart", fate, failure, recovery, recovery.job, 0.0, lost)
        for host in sorted({node.host for node in recovery.nodes if node.action in _OUT_OF_SERVICE}):
            self._drained.append((failure.tried.at, host))
            yield self._drain(failure, recovery, host)

    def _recovery(self, failure: _Failure) -> Recovery:
        """What the policy asks for, with the history as it was then."""
        known, tried = failure.circumstances, failure.tried
        earlier = [one for one in self._before(failure) if not _same_logs(one, tried)]
        again = repeats(earlier, tried)
        hosts = {target.host for target in known.targets}
        unit = 0
        if len(hosts) == 1 and known.error_type:
            (host,) = hosts
            unit = self._unit_failures(host, known.targets[0].gpu, known.error_type, tried)
        recent = {host for at, host in self._drained if at >= tried.at - _HOUR and host not in hosts}
        nodes = len(self._events) or None
        return recall(self._rows, with_history(known, unit, again, Drained(len(recent), nodes)), "", (), self._budgets)

    def _before(self, failure: _Failure) -> list[Try]:
        tries = self._workloads[failure.workload]
        return tries[: bisect_left(tries, (failure.tried.at, failure.tried.id), key=_order)]

    def _later(self, failure: _Failure) -> list[Try]:
        tries = self._workloads[failure.workload]
        return tries[bisect_left(tries, (failure.tried.at, failure.tried.id), key=_order) + 1 :]

    def _unit_failures(self, host: str, gpu: str | None, error_type: str, tried: Try) -> int:
        since = tried.at - days_remembered(error_type) * _DAY
        return len(
            {
                self._tries[attempt].job
                for at, attempt, blamed, on_gpu in self._events.get(host, ())
                if since <= at <= tried.at and blamed == error_type and gpu in (None, on_gpu)
                if self._tries[attempt].job != tried.job
            }
        )

    def _wasted(self, failed: Try, later: Sequence[Try]) -> float:
        """GPU-hours of the attempts that died alike, until one passed."""
        hours = 0.0
        for one in later:
            if not alike(one, failed):
                break
            hours += self._hours[one.id]
        return hours

    def _unchanged(self, failed: Try, passed: Try) -> bool:
        """Whether the attempt that passed was made as the failed one; where nothing is known of it, it was."""
        before, after = self._facts.get(failed.id), self._facts.get(passed.id)
        return before is None or after is None or before == after

    def _drain(self, failure: _Failure, recovery: Recovery, host: str) -> Action:
        served = blamed = 0
        saved = 0.0
        for at, attempt, error_type, _gpu in self._events.get(host, ()):
            one = self._tries[attempt]
            if not failure.tried.at < at <= failure.tried.at + _MONTH or _same_logs(one, failure.tried):
                continue
            if error_type is not None:
                blamed += 1
                saved += self._hours[attempt]
            elif one.well or one.last_step is not None:
                served += 1
        fate: Fate = "right" if blamed else "false" if served else "unknown"
        on_node = failure.gpus / len(failure.hosts) if failure.gpus and failure.hosts else _GPUS_OF_NODE
        lost = on_node * self._costs.drain_hours if fate == "false" else 0.0
        return self._action("drain", fate, failure, recovery, host, saved, lost)

    @staticmethod
    def _action(
        kind: Kind, fate: Fate, failure: _Failure, recovery: Recovery, what: str, saved: float, lost: float
    ) -> Action:
        return Action(
            kind,
            fate,
            failure.tried.at,
            failure.number,
            failure.incident,
            failure.circumstances.error_type or "",
            recovery.policy or "",
            what,
            saved,
            lost,
        )


def _order(tried: Try) -> tuple[float, int]:
    return tried.at, tried.id


def _same_logs(one: Try, other: Try) -> bool:
    return one.job == other.job and one.key.partition(":")[0] == other.key.partition(":")[0]


def circumstances_of(plain: Mapping[str, Any]) -> Circumstances:
    """What the recorder made of circumstances, as such again; what is missing or of another kind counts as unknown."""
    made = Circumstances(status=cast("ReportStatus", str(plain.get("status", "failed"))))
    holds = set(plain.get("tests") or ())
    targets = [
        Target(str(one[0]), None if one[1] is None else str(one[1]), bool(one[2]), str(one[3]))
        for one in plain.get("targets") or ()
        if isinstance(one, list) and len(one) == 4
    ]
    return replace(
        made,
        error_type=plain.get("error_type"),
        attribution=cast("AttributionName | None", plain.get("attribution")),
        tests={str(name): name in holds for name in plain.get("asked") or ()},
        targets=tuple(targets),
        physical=bool(plain.get("physical")),
        checkpoint=plain.get("checkpoint"),
    )
