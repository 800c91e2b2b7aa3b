"""Runs examples through the engine, each log once for all rules that could match it.

In: a rule set. Out: per log, what each rule makes of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from diagnose.models.rule import DiagnosisRule, RuleSet
from diagnose.rules.consistency import faults
from diagnose.rules.examples import ExampleResult, run_log
from diagnose.rules.lint.engines import compiled

NOTHING = ExampleResult()


class ExampleRuns:
    """Remembers what was run; rules that cannot run are left out."""

    def __init__(self, rule_set: RuleSet) -> None:
        self._rule_set = rule_set
        self._rules = tuple(rule for rule in rule_set.diagnoses if runnable(rule, rule_set))
        self._done: dict[tuple[str, str | None], Mapping[str, ExampleResult]] = {}

    def run(self, log: str, source: str | None) -> Mapping[str, ExampleResult]:
        """What each rule makes of a log, by id; rules that do not match are left out."""
        key = (log, source)
        if key not in self._done:
            near = tuple(rule for rule in self._rules if any(word in log for word in keywords_of(rule)))
            self._done[key] = run_log(replace(self._rule_set, diagnoses=near), log, source) if near else {}
        return self._done[key]


def runnable(rule: DiagnosisRule, rule_set: RuleSet) -> bool:
    """Whether the engine can run a rule: its patterns compile, and what it names exists."""
    compiles = all(not isinstance(compiled(signature.pattern), str) for signature in rule.signatures.values())
    return compiles and next(faults(rule, rule_set), None) is None


def keywords_of(rule: DiagnosisRule) -> tuple[str, ...]:
    """All keywords of a rule."""
    return tuple(word for signature in rule.signatures.values() for word in signature.keywords)
