"""What the learning loop keeps in the memory: candidates of filter rules, and what became of rules."""

from __future__ import annotations

from diagnose.dataclass import replace
from diagnose.models.learning import FilterCandidate, Fingerprint
from diagnose.store.candidates import StoredCandidates, StoredRuleRecords
from diagnose.store.incidents import StoredIncidents, confirm, correct
from tests.stores import KEY_ERROR, Lab

TRAIN = Fingerprint("pretrain", "train:1", "torch")


def test_a_candidate_comes_back_as_it_was(lab: Lab) -> None:
    store = StoredCandidates(lab.database)
    for rule in lab.rules.filters[:20]:
        store.add(FilterCandidate(rule, TRAIN, "agent:frequency", "proposed", 3, "2026-10-01T00:00:00+00:00"))
    found = store.of(TRAIN)
    assert [one.rule for one in found] == sorted(lab.rules.filters[:20], key=lambda rule: rule.id)
    assert {(one.author, one.state, one.hits, one.created) for one in found} == {
        ("agent:frequency", "proposed", 3, "2026-10-01T00:00:00+00:00")
    }
    assert not store.of(Fingerprint("other"))


def test_hits_add_up_and_a_persons_decision_stands(lab: Lab) -> None:
    store = StoredCandidates(lab.database)
    rule = lab.rules.filters[0]
    candidate = FilterCandidate(rule, TRAIN, "agent:m", "applied")
    store.add(candidate)
    store.count(TRAIN, rule.id, 5)
    store.count(TRAIN, rule.id, 2)
    store.count(TRAIN, "none-such", 2)
    assert store.decide(TRAIN, rule.id, "rejected")
    assert not store.decide(TRAIN, "none-such", "rejected")
    store.add(replace(candidate, author="agent:other"))
    (found,) = store.of(TRAIN)
    assert (found.state, found.hits, found.author) == ("rejected", 7, "agent:m")


def test_rules_are_counted_by_what_people_said(lab: Lab) -> None:
    text = KEY_ERROR.replace(
        "KeyError: 'role'",
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
        "port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
    )
    for day in (1, 2, 3):
        lab.run(lab.log(range(3), text, day=day))
    records = {record.rule: record for record in StoredRuleRecords(lab.database).rule_records()}
    (rule,) = [one for one in records.values() if one.decided]
    assert (rule.hits, rule.decided, rule.confirmed, rule.refuted) == (3, 3, 0, 0)
    first, second, _ = StoredIncidents(lab.database)
    confirm(lab.database, first.id)
    correct(lab.database, second.id, error_type="DiskFull")
    records = {record.rule: record for record in StoredRuleRecords(lab.database).rule_records()}
    found = records[rule.rule]
    assert (found.hits, found.decided, found.confirmed, found.refuted) == (3, 3, 1, 1)
    assert found.last is not None
    assert found.last.startswith("2026-10-03")
