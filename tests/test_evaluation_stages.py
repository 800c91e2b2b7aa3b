"""What comes after the rules, measured without them."""

from __future__ import annotations

import os

from diagnose.evaluation.cases import find_cases
from diagnose.evaluation.judge import Plan
from diagnose.evaluation.model import OURS
from diagnose.evaluation.run import evaluate
from diagnose.models import RuleSet
from tests.incidents import FIXTURES
from tests.opinions import Knowing

INCIDENTS = os.path.join(FIXTURES, "incidents")


def test_somebody_who_knows_is_heard_where_no_rule_decides(rule_set: RuleSet) -> None:
    """Nothing between an opinion and the report throws right answers away, though no rule proves that the job failed."""
    cases = find_cases([INCIDENTS]).cases
    plan = Plan(withheld=frozenset(rule_set.taxonomy), ask=Knowing(), baselines=False)
    evaluation = evaluate(cases, plan, jobs=2)
    figures = evaluation.figures[OURS]
    kind = figures.rates["type"]
    assert kind.value is not None
    assert kind.value >= 0.95
    assert figures.counts["false_node"] == 0
    assert {one.stage: one.accuracy.of for one in figures.stages}["rules"] == 0
    assert sum(result.tokens_in for result in evaluation.results) == 1000 * len(cases)
