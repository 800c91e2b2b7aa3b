"""Checks of what explains what.

In: rules. Out: problems `edge` (speaks of nothing that exists), `explained-by` (a symptom with no cause in reach),
`self-explaining`, `cycle`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from diagnose.errors import Problem
from diagnose.models.rule import DiagnosisRule
from diagnose.rules.lint.base import Check, Rule
from diagnose.rules.taxonomy import is_known, speaks_of


class EdgesKnown(Check):
    """Each edge names a family, a type or a rule that exists."""

    name = "edge"

    def validate(self, rule: Rule) -> Iterator[Problem]:
        if isinstance(rule, DiagnosisRule):
            for part, edges in (("explains", rule.explains), ("explained_by", rule.explained_by)):
                for index, edge in enumerate(edges):
                    if not is_known(edge.what, self.context.rule_set):
                        message = f"{edge.what!r} is no family/*, family/Type or rule id that exists"
                        yield self.problem(rule, f"{part}[{index}]", message)


class SymptomsExplained(Check):
    """A symptom says what explains it, or it would be reported as a cause."""

    name = "explained-by"

    def validate(self, rule: Rule) -> Iterator[Problem]:
        if isinstance(rule, DiagnosisRule) and rule.role == "symptom" and not rule.explained_by:
            yield self.problem(rule, "role", "a symptom needs explained_by: what may have caused it")


class NothingExplainsItself(Check):
    """No rule explains its own error type by naming it; a whole family (`comm/*`) means the others in it."""

    name = "self-explaining"

    def validate(self, rule: Rule) -> Iterator[Problem]:
        if not isinstance(rule, DiagnosisRule):
            return
        entry = self.context.rule_set.taxonomy.get(rule.error_type)
        own = {rule.id} | ({f"{entry.family}/{entry.name}"} if entry else set())
        for part, edges in (("explains", rule.explains), ("explained_by", rule.explained_by)):
            for index, edge in enumerate(edges):
                if edge.what in own:
                    yield self.problem(rule, f"{part}[{index}]", f"{edge.what!r} is the rule itself or its own type")


class CyclesDirected(Check):
    """Types may explain each other only over edges with a scope, so that place and time can decide between them."""

    name = "cycle"

    def finalize(self) -> Iterator[Problem]:
        arrows = self._arrows()
        effects: dict[str, set[str]] = {}
        for cause, effect in arrows:
            effects.setdefault(cause, set()).add(effect)
        told: set[tuple[str, str]] = set()
        while circle := _shortest_circle(effects):
            # The arrow that the fewest edges speak for is the odd one; with a scope there the circle is no longer one.
            steps = list(pairwise(circle))
            cause, effect = min(steps, key=lambda step: (len(arrows[step]), step))
            effects[cause].discard(effect)
            for rule, where in arrows[cause, effect]:
                if (rule.id, where) not in told:
                    told.add((rule.id, where))
                    message = (
                        f"closes a circle of types ({' -> '.join(circle)}); give this edge a scope (gpu, host, job)"
                    )
                    yield self.problem(rule, where, message)

    def _arrows(self) -> dict[tuple[str, str], list[tuple[DiagnosisRule, str]]]:
        """Cause and effect among types, over edges that name no scope, with the edges that say so."""
        rule_set = self.context.rule_set
        found: dict[tuple[str, str], list[tuple[DiagnosisRule, str]]] = {}
        for rule in rule_set.diagnoses:
            for part, edges in (("explains", rule.explains), ("explained_by", rule.explained_by)):
                for index, edge in enumerate(edges):
                    if edge.scope is not None:
                        continue
                    others = {other.error_type for other in rule_set.diagnoses if speaks_of(edge.what, other, rule_set)}
                    for other in sorted(others - {rule.error_type}):
                        ends = (rule.error_type, other) if part == "explains" else (other, rule.error_type)
                        found.setdefault(ends, []).append((rule, f"{part}[{index}]"))
        return found


def _shortest_circle(effects: dict[str, set[str]]) -> list[str] | None:
    """A shortest circle of causes and effects, its first type again at the end; None when there is none."""
    best: list[str] | None = None
    for start in sorted(effects):
        for effect in sorted(effects[start]):
            way = _way(effects, effect, start)
            if way is not None and (best is None or len(way) + 1 < len(best)):
                best = [start, *way]
                if len(best) == 3:  # two types that explain each other: none is shorter
                    return best
    return best


def _way(effects: dict[str, set[str]], start: str, goal: str) -> list[str] | None:
    """The shortest way from one type to another along causes and effects."""
    before: dict[str, str | None] = {start: None}
    level = [start]
    while level:
        below: list[str] = []
        for node in level:
            if node == goal:
                way: list[str] = []
                at: str | None = node
                while at is not None:
                    way.append(at)
                    at = before[at]
                return way[::-1]
            for effect in sorted(effects.get(node, ())):
                if effect not in before:
                    before[effect] = node
                    below.append(effect)
        level = below
    return None
