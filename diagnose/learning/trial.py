"""Whether a proposed rule may join the others: what `rules lint` and `rules test` say, and what the corpus says.

In: a rule, the rule set it joins, a corpus, its own case. Out: problems, none for a rule that can be proposed.
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import replace as changed
from typing import Final

from diagnose.dataclass import replace
from diagnose.errors import Problem
from diagnose.learning.case import Case
from diagnose.learning.corpus import Corpus, Known, known_of
from diagnose.models.report import Report
from diagnose.models.rule import DiagnosisRule, Edge, RuleSet
from diagnose.rules.abstract import invented
from diagnose.rules.lint.base import Check, Context
from diagnose.rules.lint.cross import NoUnknownOverlap
from diagnose.rules.lint.examples import NegativesDoNotMatch, PositivesMatch
from diagnose.rules.lint.history import ModifiedIsKept
from diagnose.rules.lint.incidents import Judge, VerdictsKept
from diagnose.rules.lint.run import CHECKS, context_of, lint_rules
from diagnose.rules.lint.runner import ExampleRuns, keywords_of
from diagnose.rules.secrets import Secrets

_ELSEWHERE: Final[tuple[type[Check], ...]] = (ModifiedIsKept, VerdictsKept, NoUnknownOverlap)

_PHYSICAL: Final = frozenset({"hardware", "node", "host", "scheduler"})
_EDGES: Final = 6


class Trial:
    """Tries rules against one rule set and one corpus."""

    def __init__(self, rule_set: RuleSet, root: str, corpus: Corpus, judge: Judge) -> None:
        self.rule_set = rule_set
        self.corpus = corpus
        self.secrets = Secrets(rule_set)
        self._judge = judge
        self._context = context_of(rule_set, (root,), fixtures=corpus.fixtures)
        self._context.healthy_lines  # noqa: B018 - read once for all trials

    def problems(self, rule: DiagnosisRule, path: str) -> tuple[Problem, ...]:
        """What lint and the rule's own examples say."""
        joined = with_rule(self.rule_set, rule, path)
        context = self._with(joined, rule)
        found = lint_rules(context, [check for check in CHECKS if check not in _ELSEWHERE])
        if not found:
            found = lint_rules(self._with(near_rules(joined, rule), rule), [NoUnknownOverlap])
        return tuple(found)

    def examples(self, rule: DiagnosisRule, path: str) -> tuple[Problem, ...]:
        """What the rule's own examples say: quicker, and enough to turn a draft down."""
        alone = replace(self.rule_set, diagnoses=(rule,), paths={**self.rule_set.paths, rule.id: path})
        return tuple(lint_rules(self._with(alone, rule), [PositivesMatch, NegativesDoNotMatch]))

    def verdict_changes(self, rule: DiagnosisRule, path: str) -> tuple[Problem, ...]:
        """Jobs of the corpus that would be judged otherwise, were the rule no longer in shadow."""
        live = replace(rule, status="test")
        after = with_rule(self.rule_set, live, path)
        return tuple(
            Problem(path, None, VerdictsKept.name, f"the verdict on {os.path.basename(folder)} changes: {old} -> {new}")
            for folder, old, new in self.corpus.changes(self.rule_set, after, keywords_of(rule))
        )

    def own_verdict(self, case: Case, rule: DiagnosisRule | None) -> tuple[Known, tuple[str, ...]]:
        """What is said of the case itself with the rule at work, and which types stand beside it."""
        report = self.report(case, rule)
        beside = [
            f"{finding.family}/{finding.error_type}"
            for finding in report.explanation.findings
            if rule is None or finding.rule != rule.id
        ]
        return known_of(report), tuple(dict.fromkeys(beside))

    def report(self, case: Case, rule: DiagnosisRule | None) -> Report:
        """The report on the case itself, with the rule at work if there is one."""
        live = self.rule_set if rule is None else with_rule(self.rule_set, replace(rule, status="test"), rule.id)
        if case.folder is not None:
            return self._judge(live, case.folder, case.inputs)
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "incident.log"), "w", encoding="utf-8") as file:
                file.writelines(f"{invented(line.text)}\n" for line in case.lines)
            return self._judge(live, folder, ("incident.log",))

    def shadows(self, case: Case) -> str | None:
        """An experimental rule of the right type that finds one of the deciding lines already."""
        own = tuple(
            rule
            for rule in self.rule_set.diagnoses
            if rule.status == "experimental" and rule.error_type == case.error_type
        )
        runs = ExampleRuns(replace(self.rule_set, diagnoses=own)) if own else None
        for index in case.deciding if runs else ():
            line = case.lines[index]
            if runs and (found := runs.run(f"{line.text}\n", line.kind)):
                return next(iter(found))
        return None

    def _with(self, rule_set: RuleSet, rule: DiagnosisRule) -> Context:
        context = changed(self._context, rule_set=rule_set, chosen=frozenset({rule.id}), _places={})
        context.__dict__["healthy_lines"] = self._context.healthy_lines
        return context


def with_rule(rule_set: RuleSet, rule: DiagnosisRule, path: str) -> RuleSet:
    """The rule set with one rule more, or in place of the one of that id."""
    others = tuple(other for other in rule_set.diagnoses if other.id != rule.id)
    diagnoses = tuple(sorted((*others, rule), key=lambda each: each.id))
    return replace(rule_set, diagnoses=diagnoses, paths={**rule_set.paths, rule.id: path})


def near_rules(rule_set: RuleSet, rule: DiagnosisRule) -> RuleSet:
    """The rule and those that could match its examples, or whose examples it could match."""
    mine, own = keywords_of(rule), "\n".join(example.log for example in rule.examples.positive)

    def near(other: DiagnosisRule) -> bool:
        theirs = "\n".join(example.log for example in other.examples.positive)
        return any(word in theirs for word in mine) or any(word in own for word in keywords_of(other))

    return replace(rule_set, diagnoses=tuple(other for other in rule_set.diagnoses if other is rule or near(other)))


def strangers(problems: tuple[Problem, ...]) -> tuple[str, ...]:
    """The rules that match the same text and do not know it, by the words of `cross-match`."""
    found: list[str] = []
    for problem in problems:
        if problem.check == "cross-match":
            match = re.search(r"log: (\S+) matches it too|of (\S+) \(line", problem.message)
            if match:
                found.append(match[1] or match[2])
    return tuple(dict.fromkeys(found))


def edges(beside: tuple[str, ...], rule: DiagnosisRule, family: str) -> tuple[Edge, ...]:
    """Edges to what stood beside the rule in its own case: that is what it brought about.

    One incident is not enough to say that something explains a fault of hardware, of a host or of the scheduler.
    """
    own = f"{family}/{rule.error_type}"
    fit = (what for what in beside if what != own and what.partition("/")[0] not in _PHYSICAL)
    return tuple(Edge(what, "job") for what in list(fit)[:_EDGES])
