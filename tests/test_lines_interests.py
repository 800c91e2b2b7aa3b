"""One pass over a line's text tells which readers to ask: those that are not asked would have done nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.lines import assembler, attempts, interests, jobs, progress, unit_facts, whereabouts
from diagnose.lines.interests import ALL, EveryReader, Interests
from diagnose.models import Report, RuleSet
from diagnose.report import to_json
from tests.incidents import Incident, incidents, run

EVERY = incidents()


def _told(report: Report) -> dict[str, object]:
    told = dict(to_json(report))
    told.pop("stats")
    return told


@pytest.mark.parametrize("incident", EVERY, ids=lambda incident: incident.name)
def test_who_is_not_asked_would_have_done_nothing(
    incident: Incident, rule_set: RuleSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = run(incident.folder, incident.expected["inputs"], rule_set)
    monkeypatch.setattr(Interests, "of", EveryReader.of)
    monkeypatch.setattr(Interests, "of_all", EveryReader.of_all)
    every = run(incident.folder, incident.expected["inputs"], rule_set)
    assert _told(asked) == _told(every)


@pytest.mark.parametrize(
    ("bit", "literals"),
    [
        (interests.PROGRESS, progress.LITERALS),
        (interests.ATTEMPTS, attempts.LITERALS),
        (interests.FACTS, unit_facts.LITERALS),
        (interests.PLACES, whereabouts.LITERALS),
        (interests.JOBS, jobs.LITERALS),
        (interests.RECORDS, assembler.OPENERS),
        (interests.LISTS, assembler.LISTS),
        (interests.RULES, ("Xid", "id 79 is")),
    ],
)
def test_a_literal_anywhere_asks_its_reader(bit: int, literals: tuple[str, ...]) -> None:
    found = Interests(("Xid", "id 79 is"))
    assert literals
    for literal in literals:
        for text in (literal, f"zq {literal}", f"zq{literal}zq", literal * 2):
            assert found.of(text) & bit


def test_most_lines_ask_nobody() -> None:
    assert Interests(()).of("zq 7 zq") == 0
    assert Interests(("",)).of("zq") == 0


def test_the_slow_twin_asks_all() -> None:
    assert EveryReader().of("zq") == ALL


WORDS = sorted({*progress.LITERALS, *assembler.OPENERS, *jobs.LITERALS, "Xid", "id 79 is"})


@given(
    st.lists(st.lists(st.sampled_from([*WORDS, "zq", " ", "é", "步", "\n", ""]), max_size=5).map("".join), max_size=9)
)
def test_lines_together_ask_whom_each_asks(texts: list[str]) -> None:
    found = Interests(("Xid", "id 79 is"))
    assert found.of_all(texts) == [found.of(text) for text in texts]
    assert EveryReader().of_all(texts) == [ALL] * len(texts)
