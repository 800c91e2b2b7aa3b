"""All rules that were proposed, as people review them: the Log Agent's filter rules, and what `rules propose` wrote.

In: a `Database`. Out: `Proposed` candidates; what a person decided of them. A diagnosis rule is one candidate as long
as its name and what it looks for are the same, so that a rejected one is known again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import cast

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from diagnose.dataclass import dataclass
from diagnose.models.learning import CandidateState, Fingerprint, Proposed
from diagnose.models.rule import DiagnosisRule, FilterRule
from diagnose.store.candidates import FILTER, decide, plain, rule_of
from diagnose.store.database import Database
from diagnose.store.incidents import iso_time
from diagnose.store.tables import Candidate, FindingRow, IncidentRow

DIAGNOSIS = "diagnosis"
_MOST = 5_000  # candidates listed, the latest first
_SHORTEST = 6  # of a beginning by which one may be called


@dataclass(frozen=True, slots=True)
class Review:
    """The candidates of a database."""

    database: Database
    clock: Callable[[], float] = time.time

    def all(self, *, kind: str | None = None, state: str | None = None) -> tuple[Proposed, ...]:
        """The candidates, those with the most hits first; what is unreadable is left out."""
        query = select(Candidate).order_by(Candidate.updated.desc(), Candidate.id).limit(_MOST)
        if kind is not None:
            query = query.where(Candidate.kind == kind)
        if state is not None:
            query = query.where(Candidate.status == state)
        with self.database.reading() as session:
            found = _read(session, session.scalars(query).all())
        return tuple(sorted(found, key=lambda each: (-each.hits, each.rule.id, each.id)))

    def called(self, name: str) -> tuple[Proposed, ...]:
        """The candidates of this id or of one that begins so, or with a rule of this name."""
        begins = name if len(name) >= _SHORTEST and name.isalnum() else None
        with self.database.reading() as session:
            if begins is not None:
                named = Candidate.id.startswith(begins, autoescape=True)
                if by_id := _read(session, session.scalars(select(Candidate).where(named).limit(_MOST)).all()):
                    return by_id
            if not name:
                return ()
            # The name stands in the body; which field it is in, the decoded rule says.
            written = json.dumps(name, ensure_ascii=False)
            query = select(Candidate).where(Candidate.body.contains(written, autoescape=True)).limit(_MOST)
            return tuple(each for each in _read(session, session.scalars(query).all()) if each.rule.id == name)

    def propose(self, rule: DiagnosisRule, author: str, origin: str) -> CandidateState:
        """Keeps a proposed diagnosis rule; what is said of it already stands, and is returned.

        `origin` is the incident that it was written for, or where its logs lie.
        """
        key, now = key_of(rule), self.clock()
        with self.database.writing() as session:
            incident = session.get(IncidentRow, origin)
            row = session.get(Candidate, key)
            if row is None:
                row = Candidate(id=key, kind=DIAGNOSIS, status="proposed", created=now, hits=0, samples=[], scope="")
                session.add(row)
            if row.status == "proposed":
                row.body = json.dumps(plain(rule), ensure_ascii=False)
                row.author = author
                row.samples = [each.log for each in rule.examples.positive]
                row.incident_id = None if incident is None else incident.id
                row.note = origin
                row.updated = now
            return cast("CandidateState", row.status)

    def state(self, rule: DiagnosisRule) -> CandidateState | None:
        """What became of a diagnosis rule that was proposed before; None where it never was."""
        with self.database.reading() as session:
            row = session.get(Candidate, key_of(rule))
            return None if row is None else cast("CandidateState", row.status)

    def decide(self, id: str, state: CandidateState) -> bool:
        """Says what became of one; False where it is not there any more."""
        return decide(self.database, id, state, self.clock())


def key_of(rule: DiagnosisRule) -> str:
    """The id of a diagnosis rule's candidate: its name and what it looks for."""
    looks_for = json.dumps([rule.id, plain(rule.signatures), plain(rule.match)], sort_keys=True)
    return sha256(f"{DIAGNOSIS}\0{looks_for}".encode("utf-8", "backslashreplace")).hexdigest()[:32]


def _read(session: Session, rows: Sequence[Candidate]) -> tuple[Proposed, ...]:
    kept = [(row, rule) for row in rows if (rule := _rule(row)) is not None]
    names = [rule.id for _, rule in kept if isinstance(rule, DiagnosisRule)]
    hits = _hits(session, names)
    return tuple(
        Proposed(
            row.id,
            rule,
            cast("CandidateState", row.status),
            row.author,
            row.hits if row.kind == FILTER else hits.get(rule.id, 0),
            iso_time(row.created),
            _fingerprint(row.scope) if row.kind == FILTER else None,
            row.note,
        )
        for row, rule in kept
    )


def _rule(row: Candidate) -> FilterRule | DiagnosisRule | None:
    return rule_of(row.body, FilterRule) if row.kind == FILTER else rule_of(row.body, DiagnosisRule)


def _hits(session: Session, names: list[str]) -> dict[str, int]:
    """In how many recorded diagnoses rules of these names had a finding."""
    found: dict[str, int] = {}
    for start in range(0, len(names), 500):
        query = (
            select(FindingRow.rule, func.count(FindingRow.diagnosis_id.distinct()))
            .where(FindingRow.rule.in_(names[start : start + 500]))
            .group_by(FindingRow.rule)
        )
        found.update({rule: count for rule, count in session.execute(query) if rule is not None})
    return found


def _fingerprint(scope: str) -> Fingerprint:
    try:
        name, image, framework = json.loads(scope)
    except ValueError:
        return Fingerprint()  # cut, or not ours
    return Fingerprint(str(name), str(image), str(framework))
