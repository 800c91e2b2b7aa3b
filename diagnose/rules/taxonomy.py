"""What the patterns of edges speak of: `family/*`, `family/Type`, or a rule's id.

In: a pattern and a rule or error type. Out: whether they fit; families and types by name.
"""

from __future__ import annotations

from diagnose.models.rule import DiagnosisRule, RuleSet


def family_of(error_type: str, rule_set: RuleSet) -> str | None:
    """The family of an error type, None for a type that is not in the taxonomy."""
    entry = rule_set.taxonomy.get(error_type)
    return entry.family if entry else None


def fits(what: str, *, family: str, error_type: str, rule: str | None = None) -> bool:
    """Whether an edge's pattern speaks of this family, type or rule."""
    if what.endswith("/*"):
        return what[:-2] == family
    return what in (f"{family}/{error_type}", rule)


def speaks_of(what: str, rule: DiagnosisRule, rule_set: RuleSet) -> bool:
    """Whether an edge's pattern speaks of what a rule finds."""
    family = family_of(rule.error_type, rule_set)
    return family is not None and fits(what, family=family, error_type=rule.error_type, rule=rule.id)


def is_known(what: str, rule_set: RuleSet) -> bool:
    """Whether an edge's pattern names a family, type or rule that exists."""
    family, slash, name = what.partition("/")
    if not slash:
        return any(rule.id == what for rule in rule_set.diagnoses)
    if name == "*":
        return any(entry.family == family for entry in rule_set.taxonomy.values())
    return name in rule_set.taxonomy and rule_set.taxonomy[name].family == family
