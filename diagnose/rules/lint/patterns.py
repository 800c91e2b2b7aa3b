"""Checks of patterns: they compile everywhere, mean the same everywhere, match something, and have names that fit.

In: rules. Out: problems `pattern`, `re2`, `empty-match`, `captures`.
"""

from __future__ import annotations

from collections.abc import Iterator

from diagnose.errors import Problem
from diagnose.models.rule import DiagnosisRule
from diagnose.rules.captures import AGREEMENT, FIELD, RESERVED
from diagnose.rules.lint.base import Check, Rule, place, signatures
from diagnose.rules.lint.engines import compiled, re2_refuses
from diagnose.rules.prove import too_repetitive, unsafe_constructs

# What the engine adds to the captures of a rule by itself.
GIVEN = frozenset({*RESERVED, "absent", "ranks", "exception", "message", "file", "title", "table_action", "pod", "job"})


def patterns(rule: Rule) -> Iterator[tuple[str, str]]:
    """Every pattern of a rule as (dotted place, pattern): signatures, a filter's own, what it yields."""
    for where, _, pattern in signatures(rule):
        yield place(where, "pattern"), pattern
    if not isinstance(rule, DiagnosisRule) and rule.yields is not None:
        for name, pattern in rule.yields.progress.items():
            yield f"yields.progress.{name}", pattern


class PatternCompiles(Check):
    """Every pattern compiles in `regex`."""

    name = "pattern"

    def validate(self, rule: Rule) -> Iterator[Problem]:
        for where, pattern in patterns(rule):
            found = compiled(pattern)
            if isinstance(found, str) and not too_repetitive(pattern):
                yield self.problem(rule, where, f"does not compile: {found}")


class PatternIsSafe(Check):
    """Every pattern is one that RE2 takes, so that none can hang, and that all engines read alike."""

    name = "re2"

    def validate(self, rule: Rule) -> Iterator[Problem]:
        for where, pattern in patterns(rule):
            if reason := too_repetitive(pattern):
                yield self.problem(rule, where, reason)
            if isinstance(compiled(pattern), str):
                continue
            if found := unsafe_constructs(pattern):
                yield self.problem(rule, where, f"uses {', '.join(found)}; not allowed, write it without")
            elif reason := re2_refuses(pattern):
                yield self.problem(rule, where, f"RE2 refuses it: {reason}")
            elif not isinstance(rule, DiagnosisRule) and not pattern.isascii():
                yield self.problem(rule, where, "a filter judges bytes: write ASCII only, `.` for the rest")


class PatternMatchesSomething(Check):
    """No pattern matches the empty text."""

    name = "empty-match"

    def validate(self, rule: Rule) -> Iterator[Problem]:
        for where, pattern in patterns(rule):
            found = compiled(pattern)
            if not isinstance(found, str) and found.search(""):
                yield self.problem(rule, where, "matches the empty text, and so everything")


class NamesExist(Check):
    """Declared captures are groups, and whatever refers to a capture refers to one that exists."""

    name = "captures"

    def validate(self, rule: Rule) -> Iterator[Problem]:
        if not isinstance(rule, DiagnosisRule):
            if rule.yields is not None:
                for name, pattern in rule.yields.progress.items():
                    step = compiled(pattern)
                    if not isinstance(step, str) and name not in step.groupindex:
                        yield self.problem(rule, f"yields.progress.{name}", f"has no group (?P<{name}>...)")
            return
        found = [compiled(pattern) for _, _, pattern in signatures(rule)]
        if any(isinstance(pattern, str) for pattern in found):
            return  # what does not compile has no groups; that is problem enough
        groups = {name for pattern in found if not isinstance(pattern, str) for name in pattern.groupindex}
        for name in rule.captures:
            if name not in groups and name not in RESERVED:
                yield self.problem(rule, f"captures.{name}", f"no signature has a group (?P<{name}>...)")
        known = groups | GIVEN | set(rule.collect)
        if rule.lookup is not None:
            table = self.context.rule_set.tables.get(rule.lookup.table)
            for row in table.rows.values() if table else ():
                known |= set(row.columns)
        for where, name in _references(rule):
            if name not in known:
                yield self.problem(rule, where, f"{name!r} is no capture; known are {', '.join(sorted(known))}")


def _references(rule: DiagnosisRule) -> Iterator[tuple[str, str]]:
    """Every mention of a capture's name as (dotted place, name)."""
    for name, source in rule.collect.items():
        yield f"collect.{name}", source
    for index, name in enumerate(rule.match.join):
        yield f"match.join[{index}]", name
    if rule.absent is not None:
        yield "absent.group", rule.absent.group
    if rule.lookup is not None:
        yield "lookup.key", rule.lookup.key
    texts = [("verdict.cause", rule.verdict.cause), ("verdict.hint", rule.verdict.hint)]
    texts += [(f"verdict.culprit.{kind}", text) for kind, text in rule.verdict.culprit.items()]
    texts += [(f"verdict.checks[{index}]", text) for index, text in enumerate(rule.verdict.checks)]
    for where, text in texts:
        for names in (*FIELD.findall(text), *(names for names, _, _ in AGREEMENT.findall(text))):
            yield from ((where, name) for name in names.split("|"))
