"""What the rules have read and passed over decides nothing, whoever else knows such lines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from diagnose.agents.retrieval import opinion_of
from diagnose.agents.second_opinion import advisers
from diagnose.evaluation.cases import find_cases
from diagnose.evaluation.model import Case
from diagnose.evaluation.requests import request_of
from diagnose.models import Opinion, Report, RuleSet, SimilarIncident
from diagnose.pipeline import Services, diagnose
from tests.asking import answer, run, settings, shown
from tests.modelserver import Asked, completion, model_server

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])
UNDECIDED = os.path.join(os.path.dirname(__file__), "fixtures", "inconclusive")
CASES = find_cases([UNDECIDED]).cases
LABELS = ["NameError", "AssertionError", "KeyError", "HostOutOfMemory", "NodeFailure", "OutOfMemoryError", "ECCError"]


class AllAlike:
    """A memory in which all that was ever seen was one type, and reads just like this."""

    def __init__(self, error_type: str) -> None:
        self._similar = tuple(SimilarIncident(f"i{n}", error_type, 0.95, recovered=True) for n in range(5))

    def opinion(self, text: str) -> Opinion:
        return opinion_of(self._similar)


def asked(case: Case, rules: RuleSet, monkeypatch: pytest.MonkeyPatch, **whom: Any) -> Report:
    monkeypatch.chdir(case.folder)
    opinion = advisers(rules, whom.get("model"), whom.get("past"))
    return diagnose(request_of(case.inputs), Services(rules, second_opinion=opinion))


@pytest.mark.parametrize("case", [case for case in CASES if case.status == "inconclusive"], ids=lambda case: case.name)
def test_past_incidents_do_not_blame_where_nothing_proves_a_failure(
    case: Case, rule_set: RuleSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many incidents read like it: none of these jobs is known to have failed."""
    for label in LABELS:
        report = asked(case, rule_set, monkeypatch, past=AllAlike(label))
        assert (report.status, report.error_type, report.culprits) == ("inconclusive", None, ()), label


@pytest.mark.parametrize("case", [case for case in CASES if case.status == "inconclusive"], ids=lambda case: case.name)
def test_a_model_does_not_blame_there_either(case: Case, rule_set: RuleSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that names the type of an exception in the log, and quotes all lines it is shown."""
    for label in LABELS:

        def script(asked: Asked, label: str = label) -> Any:
            quotes = [{"line": number, "quote": text} for number, text in shown(asked).items()]
            told = [each for each in quotes if label[:6].lower() in each["quote"].lower()]
            return completion(answer(label, (told or quotes)[:6]))

        with model_server(script) as server:
            report = asked(case, rule_set, monkeypatch, model=settings(server.url))
        assert (report.status, report.error_type) == ("inconclusive", None), label


def test_what_a_program_lists_as_possible_is_not_what_it_was(
    rule_set: RuleSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = next(case for case in CASES if case.name == "ray-actor-died-no-cause")
    for label in LABELS:
        report = asked(case, rule_set, monkeypatch, past=AllAlike(label))
        assert (report.status, report.error_type) == ("failed", None), label


def test_words_that_no_rule_knows_may_be_known_by_others(tmp_path: Path, rule_set: RuleSet) -> None:
    log = "2027-03-01 10:00:04 [rank 3] bridge watcher: nvlink lane 4 of gpu 5 failed its handshake, giving up\n"
    report = run(tmp_path, rule_set, None, log, AllAlike("NVLinkError"))
    assert (report.status, report.error_type, report.decided_by.stage) == ("failed", "NVLinkError", "retrieval")
