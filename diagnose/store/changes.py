"""What is different from a workload's last good attempt, in at most five lines.

In: the facts of this run and of a good one. Out: sentences, one for each kind of fact, and the first line of a kind
never seen in a good run. Good is an attempt that nothing stopped, that the scheduler ended after progress, or that came
further than this one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from diagnose.dataclass import dataclass
from diagnose.models import JobContext
from diagnose.store.facts import KINDS, Facts, Seen, unpacked
from diagnose.store.incidents import iso_time
from diagnose.store.tables import Attempt, Fact, Job

_MOST = 5
_NAMED = 3  # of each kind
_GOOD = 5  # attempts whose templates count as seen
_LOOKED_AT = 100
_ENOUGH = 5  # templates: of a run that said less it is not known what it did not say
_SHOWN = 60
_STOPPED_BY_SCHEDULER = frozenset({"Preempted", "TimeLimitExceeded", "JobCancelled"})


@dataclass(frozen=True, slots=True)
class Good:
    """The last good attempt of a workload: when and as which job, its facts, the templates of the last few."""

    when: float
    number: str
    facts: Mapping[str, Mapping[str, tuple[str, ...]]]
    templates: frozenset[bytes]


def last_good(
    session: Session,
    context: JobContext,
    log: str,
    at: float | None,
    last_step: int | None,
    former: int | None = None,
) -> Good | None:
    """The last good attempt before this one of the same name, user and project, whatever its image: it may change.

    `former` is the row as which this one was recorded before.
    """
    if not context.name:
        return None
    query = (
        select(Attempt, Job.number)
        .join(Job)
        .where(Job.name == context.name, Job.user == context.user, Job.project == context.project)
        .order_by(Attempt.at.desc(), Attempt.id.desc())
        .limit(_LOOKED_AT)
    )
    if at is not None:
        query = query.where(Attempt.at < at)
    good = [
        (attempt, number)
        for attempt, number in session.execute(query)
        if not attempt.key.startswith(log) and attempt.id != former and is_good(attempt, last_step)
    ][:_GOOD]
    if not good:
        return None
    latest, number = good[0]
    facts: dict[str, dict[str, tuple[str, ...]]] = {}
    values: dict[tuple[str, str], list[str]] = {}
    for fact in session.scalars(select(Fact).where(Fact.attempt_id == latest.id)):
        values.setdefault((fact.kind, fact.name), []).append(fact.value)
    for (kind, name), told in values.items():
        facts.setdefault(kind, {})[name] = tuple(sorted(told))
    seen = frozenset(digest for attempt, _ in good for digest in unpacked(attempt.templates))
    return Good(latest.at, number, facts, seen)


def is_good(attempt: Attempt, last_step: int | None) -> bool:
    """Whether an attempt went well enough to compare a failed one with."""
    if attempt.status == "no_failure" or attempt.completed:
        return True
    if attempt.last_step is None:
        return False
    return attempt.error_type in _STOPPED_BY_SCHEDULER or (last_step is not None and attempt.last_step > last_step)


def changes(now: Facts, good: Good) -> tuple[str, ...]:
    """What is different, in words; empty where nothing is, or nothing is known of it."""
    told = []
    for kind in KINDS:
        before, after = good.facts.get(kind, {}), now.by_kind.get(kind, {})
        if before and after:  # where only one of them says anything, other logs were read
            told.extend(_nodes(before, after) if kind == "nodes" else _differences(kind, before, after))
    new = _first_new(now, good)
    if new is not None:
        told = [*told[: _MOST - 1], f"first line of a kind not seen before: {new.text[:_SHOWN].strip()} ({_at(new)})"]
    if told:
        which = f"job {good.number}, " if good.number else ""
        told[0] += f" (since {which}{iso_time(good.when)[:16].replace('T', ' ')})"
    return tuple(told[:_MOST])


def _at(seen: Seen) -> str:
    return f"{seen.source}:{seen.number}"


def _differences(kind: str, before: Mapping[str, Sequence[str]], after: Mapping[str, Sequence[str]]) -> list[str]:
    parts = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        label = "" if name == kind or (kind, name) == ("driver", "driver") else f"{name} "
        if old is None:
            parts.append(f"{label}{_value(new or ())} is new".strip())
        elif new is None:
            parts.append(f"{label}{_value(old)} is gone".strip())
        else:
            parts.append(f"{label}{_value(old)} -> {_value(new)}")
    return [f"{kind}: {_listed(parts)}"] if parts else []


def _nodes(before: Mapping[str, Sequence[str]], after: Mapping[str, Sequence[str]]) -> list[str]:
    new, gone = sorted(after.keys() - before.keys()), sorted(before.keys() - after.keys())
    if not new:
        return []
    if len(new) == len(after):
        return [f"nodes: all {len(new)} are others" if len(new) > 1 else f"nodes: {new[0]} instead of {_listed(gone)}"]
    return [f"nodes: {_listed(new)} new" + (f"; {_listed(gone)} gone" if gone else "")]


def _value(values: Sequence[str]) -> str:
    shown = "|".join(value for value in values if value)
    return shown if len(shown) <= _SHOWN else shown[: _SHOWN - 3] + "..."


def _listed(parts: Sequence[str]) -> str:
    more = f" and {len(parts) - _NAMED} more" if len(parts) > _NAMED else ""
    return ", ".join(parts[:_NAMED]) + more


def _first_new(now: Facts, good: Good) -> Seen | None:
    """The first line whose template no good attempt showed; by time where lines have one."""
    if len(good.templates) < _ENOUGH:
        return None
    new = [seen for digest, seen in now.templates.items() if digest not in good.templates]
    if not new:
        return None
    timed = [seen for seen in new if seen.time is not None]
    if len(timed) * 2 > len(new):
        return min(timed, key=lambda seen: (seen.time or 0.0, seen.order))
    return min(new, key=lambda seen: seen.order)
