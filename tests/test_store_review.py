"""Candidates as people review them: both kinds, found by id and by name, decided once, their hits counted."""

from __future__ import annotations

from diagnose.dataclass import replace
from diagnose.models.learning import FilterCandidate, Fingerprint
from diagnose.store.candidates import StoredCandidates
from diagnose.store.incidents import StoredIncidents
from diagnose.store.review import Review, key_of
from diagnose.store.tables import Candidate
from tests.stores import KEY_ERROR, Lab

TRAIN = Fingerprint("pretrain", "train:1", "torch")


def test_both_kinds_are_listed_by_hits(lab: Lab) -> None:
    review = Review(lab.database, lambda: lab.now)
    rule, noise = lab.rules.diagnoses[0], lab.rules.filters[0]
    StoredCandidates(lab.database).add(FilterCandidate(noise, TRAIN, "agent:m", "applied", 7))
    assert review.propose(rule, "diagnose", "logs/job.log") == "proposed"
    first, second = review.all()
    assert (first.kind, first.rule, first.fingerprint, first.hits, first.state) == (
        "filter",
        noise,
        TRAIN,
        7,
        "applied",
    )
    assert (second.kind, second.rule, second.origin, second.author) == ("diagnosis", rule, "logs/job.log", "diagnose")
    assert second.created.startswith("2027-")
    assert review.all(kind="filter") == (first,)
    assert review.all(state="proposed") == (second,)
    assert review.called(first.id) == review.called(first.id[:12]) == review.called(noise.id) == (first,)
    assert review.called(rule.id) == (second,)
    for name in ("", "%", "_", "no-such", first.id[:3], "'; drop", "\x00", rule.title):
        assert review.called(name) == ()


def test_every_rule_comes_back_as_it_was(lab: Lab) -> None:
    review = Review(lab.database)
    some = lab.rules.diagnoses[:: max(1, len(lab.rules.diagnoses) // 40)]
    for rule in some:
        review.propose(rule, "diagnose", "")
    assert {each.rule.id: each.rule for each in review.all()} == {rule.id: rule for rule in some}


def test_what_a_person_decided_stands_until_the_rule_is_another(lab: Lab) -> None:
    review = Review(lab.database)
    rule = lab.rules.diagnoses[0]
    review.propose(rule, "diagnose", "")
    (kept,) = review.called(rule.id)
    assert review.decide(kept.id, "rejected")
    assert not review.decide("none-such", "rejected")
    assert review.propose(replace(rule, title="Said in other words"), "agent:m", "") == "rejected"
    assert review.state(rule) == "rejected"
    assert review.called(rule.id)[0].rule == rule
    name, signature = next(iter(rule.signatures.items()))
    other = replace(rule, signatures={**rule.signatures, name: replace(signature, pattern="something else entirely")})
    assert review.state(other) is None
    assert review.propose(other, "diagnose", "") == "proposed"
    assert len(review.called(rule.id)) == 2


def test_a_diagnosis_rules_hits_are_its_findings_and_its_incident_may_go(lab: Lab) -> None:
    for day in (1, 2):
        lab.run(lab.log(range(3), KEY_ERROR, day=day))
    incident = next(iter(StoredIncidents(lab.database)))
    review = Review(lab.database)
    with lab.database.reading() as session:
        from sqlalchemy import select

        from diagnose.store.tables import FindingRow

        name = session.scalars(select(FindingRow.rule).where(FindingRow.rule.is_not(None))).first()
    rule = next((rule for rule in lab.rules.diagnoses if rule.id == name), lab.rules.diagnoses[0])
    review.propose(rule, "diagnose", incident.id)
    assert review.all()[0].hits == (2 if name else 0)
    with lab.database.writing() as session:
        row = session.get(Candidate, key_of(rule))
        assert row is not None
        assert row.incident_id == incident.id
    from diagnose.store.incidents import delete

    delete(lab.database, [incident.id])
    assert review.all()[0].origin == incident.id


def test_what_cannot_be_read_is_left_out(lab: Lab) -> None:
    review = Review(lab.database)
    review.propose(lab.rules.diagnoses[0], "diagnose", "")
    with lab.database.writing() as session:
        row = session.get(Candidate, key_of(lab.rules.diagnoses[0]))
        assert row is not None
        row.body = '{"schema": "diagnosis-rule/v1", "id": [['
    assert review.all() == ()
    StoredCandidates(lab.database).add(FilterCandidate(lab.rules.filters[0], TRAIN, "agent:m"))
    with lab.database.writing() as session:
        for row in session.query(Candidate):
            row.scope = "cut off ["
    assert [each.fingerprint for each in review.all()] == [Fingerprint()]
