"""Incidents as lines of JSON, to move them between memories.

In: a database, or lines that `export` wrote. Out: the other. What is imported is checked field by field; a line that is
not as `export` writes it is refused with its number. Each batch is there whole or not at all, and importing again adds
nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from diagnose.dataclass import dataclass, fields
from diagnose.errors import UsageError
from diagnose.models import Incident, JobContext
from diagnose.store.database import Database
from diagnose.store.incidents import announce, seconds_of
from diagnose.store.tables import IncidentRow

FORMAT: Final = "diagnose.incident/v1"
_BATCH: Final = 200
_LONGEST: Final = 1024 * 1024
_LISTS: Final = ("culprits", "nodes", "accepted")
_WORDS: Final = ("id", "status", "summary", "text", "decided_by", "created", "origin")
_MAYBE: Final = ("error_type", "attribution", "job", "rule")
_STATUSES: Final = frozenset({"failed", "no_failure", "inconclusive"})
_STAGES: Final = frozenset({"rules", "retrieval", "failure_agent", "person", "none"})
_ATTRIBUTIONS: Final = frozenset({None, "user", "infrastructure", "scheduler", "unknown"})


@dataclass(frozen=True, slots=True)
class Exchanged:
    """How many were added, changed, and there already."""

    added: int = 0
    changed: int = 0
    known: int = 0


def as_json(incident: Incident) -> str:
    """One incident as a line."""
    plain: dict[str, object] = {"schema": FORMAT}
    for each in fields(incident):
        value = getattr(incident, each.name)
        if each.name == "context":
            value = {own.name: getattr(value, own.name) for own in fields(value)}
        plain[each.name] = list(value) if isinstance(value, tuple) else value
    return json.dumps(plain, ensure_ascii=False)


def from_lines(database: Database, lines: Iterable[str]) -> Exchanged:
    """Adds incidents. One that is there stays, unless the line's is confirmed and it is not. Raises `UsageError`."""
    added = changed = known = 0
    for batch in _batches(lines):
        with database.writing() as session:
            for incident in batch:
                row = session.get(IncidentRow, incident.id)
                if row is not None and (row.confirmed or not incident.confirmed):
                    known += 1
                    continue
                added, changed = (added + 1, changed) if row is None else (added, changed + 1)
                made = row or IncidentRow(id=incident.id, outcome_by="")
                _fill(made, incident)
                announce(session, made)
                session.add(made)
    return Exchanged(added, changed, known)


def _batches(lines: Iterable[str]) -> Iterator[list[Incident]]:
    batch: list[Incident] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        batch.append(_incident(line, number))
        if len(batch) >= _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _incident(line: str, number: int) -> Incident:
    def refuse(why: str) -> UsageError:
        return UsageError(f"line {number}: {why}; give a file made by `diagnose incidents export`")

    try:
        given = json.loads(line) if len(line) <= _LONGEST else None
    except (ValueError, RecursionError) as error:
        raise refuse("no JSON") from error
    if not isinstance(given, dict) or given.get("schema") != FORMAT:
        raise refuse(f"no incident of the form {FORMAT}")
    context = given.get("context", {})
    lists = [given.get(name, []) for name in _LISTS]
    if not (
        all(isinstance(given.get(name, ""), str) for name in _WORDS)
        and all(isinstance(given.get(name), (str, type(None))) for name in _MAYBE)
        and isinstance(given.get("confirmed", False), bool)
        and isinstance(given.get("recovered"), (bool, type(None)))
        and isinstance(context, dict)
        and all(isinstance(value, str) for value in context.values())
        and all(isinstance(one, list) and all(isinstance(name, str) for name in one) for one in lists)
    ):
        raise refuse("a field of another kind than it should be")
    if not (
        0 < len(given.get("id", "")) <= 100
        and given.get("status") in _STATUSES
        and given.get("decided_by") in _STAGES
        and given.get("attribution") in _ATTRIBUTIONS
    ):
        raise refuse("a value that is none of those there are")
    return _made(given, context)


def _made(given: Mapping[str, object], context: Mapping[str, str]) -> Incident:
    known = {each.name for each in fields(JobContext())}
    named = {each.name for each in fields(Incident("", None))} - {"context", "revision"}
    plain = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items() if name in named}
    return Incident(
        **plain,  # type: ignore[arg-type] # checked above
        context=JobContext(**{name: value for name, value in context.items() if name in known}),
    )


def _fill(row: IncidentRow, incident: Incident) -> None:
    row.status, row.error_type, row.attribution = incident.status, incident.error_type, incident.attribution
    row.summary, row.text, row.job_action = incident.summary, incident.text, incident.job
    row.recovered, row.confirmed = incident.recovered, incident.confirmed
    row.outcome_by = "import" if incident.recovered is not None else row.outcome_by
    row.decided_by, row.rule = incident.decided_by, incident.rule
    row.created = seconds_of(incident.created)
    context = incident.context
    row.number, row.name, row.user, row.image = context.id, context.name, context.user, context.image
    row.cluster, row.project = context.cluster, context.project
    row.culprits, row.nodes = list(incident.culprits), list(incident.nodes)
    row.accepted = list(incident.accepted)
    row.origin = incident.origin
