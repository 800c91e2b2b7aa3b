"""Checks of rules against each other: two rules that match the same text know of each other.

In: rules. Out: problems `cross-match`.
"""

from __future__ import annotations

from collections.abc import Iterator

from diagnose.errors import Problem
from diagnose.models.rule import DiagnosisRule
from diagnose.rules.lint.base import Check, Rule
from diagnose.rules.taxonomy import speaks_of


class NoUnknownOverlap(Check):
    """A's positive examples are matched by B only where one explains the other or `related` says so."""

    name = "cross-match"

    def validate(self, rule: Rule) -> Iterator[Problem]:
        if isinstance(rule, DiagnosisRule):
            for index, other, line in self._strangers(rule):
                message = (
                    f"{other.id} matches it too (line {line}); narrow one of them, let one explain the other, or name "
                    "it in `related`"
                )
                yield self.problem(rule, f"examples.positive[{index}].log", message)

    def finalize(self) -> Iterator[Problem]:
        # Rules that nobody asks about are not validated, but those asked about may match their examples.
        for rule in self.context.rule_set.diagnoses:
            if self.context.asked(rule):
                continue
            for index, other, line in self._strangers(rule):
                if self.context.asked(other):
                    message = (
                        f"matches examples.positive[{index}] of {rule.id} (line {line}); narrow it, let one explain "
                        "the other, or name it in `related`"
                    )
                    yield self.problem(other, "signatures", message)

    def _strangers(self, rule: DiagnosisRule) -> Iterator[tuple[int, DiagnosisRule, int]]:
        """Rules that match an example of a rule and do not know it, each once: example, other rule, line."""
        by_id = {other.id: other for other in self.context.rule_set.diagnoses}
        told = {rule.id}
        for index, example in enumerate(rule.examples.positive):
            found = self.context.runs.run(example.log, example.source)
            for other in (by_id[name] for name in sorted(found) if name not in told):
                shared = set(found[other.id].lines) & set(example.expect.lines)
                if shared and not self._acquainted(rule, other):
                    told.add(other.id)
                    yield index, other, min(shared)

    def _acquainted(self, one: DiagnosisRule, other: DiagnosisRule) -> bool:
        if other.id in one.related or one.id in other.related:
            return True
        rule_set = self.context.rule_set
        return any(
            speaks_of(edge.what, there, rule_set)
            for here, there in ((one, other), (other, one))
            for edge in (*here.explains, *here.explained_by)
        )
