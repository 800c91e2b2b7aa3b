"""Rules that are proposed, and what became of rules: what the learning loop reads from and writes to the memory.

In: a `Database`. Out: `StoredCandidates` (the protocol `FilterCandidates`) and `StoredRuleRecords` (`RuleRecords`).
What a person decided of a candidate stands, whoever proposes it again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import TypeVar, cast

from sqlalchemy import select, update

from diagnose.dataclass import dataclass, fields, is_dataclass
from diagnose.models.learning import CandidateState, FilterCandidate, Fingerprint, RuleRecord
from diagnose.models.rule import DiagnosisRule, FilterRule
from diagnose.rules.decode import decode
from diagnose.store.database import Database
from diagnose.store.incidents import iso_time, seconds_of
from diagnose.store.tables import Attempt, Candidate, Diagnosis, FindingRow, IncidentRow

FILTER = "filter"
_Rule = TypeVar("_Rule", FilterRule, DiagnosisRule)
_DECIDED = ("rejected", "promoted")
_SHADOW = "experimental"  # so `rules/judge.py` begins to say why it sets them aside
_MOST = 1_000  # candidates of one fingerprint


@dataclass(frozen=True, slots=True)
class StoredCandidates:
    """Candidates of filter rules in a database."""

    database: Database
    clock: Callable[[], float] = time.time

    def of(self, fingerprint: Fingerprint) -> Sequence[FilterCandidate]:
        """Those of jobs with this fingerprint, whatever their state, in order of id; what is unreadable is left out."""
        with self.database.reading() as session:
            rows = session.scalars(
                select(Candidate)
                .where(Candidate.kind == FILTER, Candidate.scope == _scope(fingerprint))
                .order_by(Candidate.id)
                .limit(_MOST)
            ).all()
        read = [(row, rule_of(row.body, FilterRule)) for row in rows]
        found = [
            FilterCandidate(
                rule, fingerprint, row.author, cast("CandidateState", row.status), row.hits, iso_time(row.created)
            )
            for row, rule in read
            if rule is not None
        ]
        return tuple(sorted(found, key=lambda candidate: candidate.rule.id))

    def add(self, candidate: FilterCandidate) -> None:
        """Keeps one; where its fingerprint has one with this id already, a person's decision on that one stands."""
        key = _key(candidate.fingerprint, candidate.rule.id)
        now = self.clock()
        with self.database.writing() as session:
            row = session.get(Candidate, key)
            if row is not None and row.status in _DECIDED:
                return
            if row is None:
                row = Candidate(id=key, kind=FILTER, created=seconds_of(candidate.created) or now, hits=0)
                session.add(row)
            row.scope = _scope(candidate.fingerprint)
            row.status = candidate.state
            row.body = json.dumps(plain(candidate.rule), ensure_ascii=False)
            row.author = candidate.author
            row.samples = list(candidate.rule.examples.noise)
            row.hits = max(row.hits, candidate.hits)
            row.updated = now

    def count(self, fingerprint: Fingerprint, id: str, hits: int) -> None:
        """Adds to the hits of one; one that is not there is passed over."""
        with self.database.writing() as session:
            session.execute(
                update(Candidate)
                .where(Candidate.id == _key(fingerprint, id))
                .values(hits=Candidate.hits + hits, updated=self.clock())
            )

    def decide(self, fingerprint: Fingerprint, id: str, state: CandidateState) -> bool:
        """Says what became of one; False where it is not there."""
        return decide(self.database, _key(fingerprint, id), state, self.clock())


def decide(database: Database, key: str, state: CandidateState, now: float) -> bool:
    """Says what became of the candidate of a key; False where it is not there."""
    with database.writing() as session:
        row = session.get(Candidate, key)
        if row is None:
            return False
        row.status, row.updated = state, now
        return True


def _in_shadow(excluded: str | None) -> bool:
    """Whether a finding of a rule in shadow was set aside for no other reason than that."""
    return excluded is None or excluded.startswith(_SHADOW)


def _scope(fingerprint: Fingerprint) -> str:
    return json.dumps([fingerprint.name, fingerprint.image, fingerprint.framework])[:500]


def _key(fingerprint: Fingerprint, rule: str) -> str:
    return sha256(f"{_scope(fingerprint)}\0{rule}".encode("utf-8", "backslashreplace")).hexdigest()[:32]


def plain(value: object) -> object:
    """A rule as mappings, lists and plain values, which decode to it."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def rule_of(body: str, kind: type[_Rule]) -> _Rule | None:
    """The rule that was kept as this text; None where it cannot be read."""
    rule, problems = decode(body.encode("utf-8", "backslashreplace"), "candidate", kind)
    return None if problems else rule


@dataclass(frozen=True, slots=True)
class StoredRuleRecords:
    """What is recorded of rules, in a database."""

    database: Database

    def rule_records(self) -> Iterator[RuleRecord]:
        """One for each rule that ever had a finding, in order of id."""
        hits: dict[str, int] = {}
        decided: dict[str, int] = {}
        last: dict[str, float] = {}
        right: dict[str, int] = {}
        wrong: dict[str, int] = {}
        query = (
            select(
                FindingRow.rule,
                FindingRow.error_type,
                FindingRow.decided,
                FindingRow.shadow,
                FindingRow.excluded,
                Diagnosis.id,
                Attempt.at,
                IncidentRow.confirmed,
                IncidentRow.recovered,
                IncidentRow.error_type.label("said"),
                IncidentRow.accepted,
            )
            .join(Diagnosis, Diagnosis.id == FindingRow.diagnosis_id)
            .join(Attempt, Attempt.id == Diagnosis.attempt_id)
            .outerjoin(IncidentRow, IncidentRow.attempt_id == Attempt.id)
            .where(FindingRow.rule.is_not(None))
            .order_by(FindingRow.rule, Diagnosis.id, FindingRow.decided.desc())
        )
        counted: set[tuple[str, int]] = set()
        with self.database.reading() as session:
            for row in session.execute(query):
                if (row.rule, row.id) in counted:
                    continue  # one diagnosis, however many findings
                counted.add((row.rule, row.id))
                hits[row.rule] = hits.get(row.rule, 0) + 1
                decided[row.rule] = decided.get(row.rule, 0) + row.decided
                last[row.rule] = max(last.get(row.rule, 0.0), row.at)
                told = row.confirmed or row.recovered
                if told and (row.decided or (row.shadow and _in_shadow(row.excluded))):
                    of = right if row.error_type == row.said or row.error_type in row.accepted else wrong
                    of[row.rule] = of.get(row.rule, 0) + 1
        for rule in sorted(hits):
            yield RuleRecord(
                rule, hits[rule], decided[rule], right.get(rule, 0), wrong.get(rule, 0), iso_time(last[rule])
            )
