"""A candidate that a person has read becomes a rule file: linted among the rules it joins, then written whole.

In: a candidate's rule, the rule set and the directory it joins. Out: the path of its file, or what lint says against
it. A file that holds the very same rule already is left as it is, so that a promotion that was killed can be repeated.
"""

from __future__ import annotations

import re
from typing import Final

from diagnose.dataclass import replace
from diagnose.errors import Problem, UsageError
from diagnose.learning.trial import with_rule
from diagnose.learning.writing import rule_text, write_whole
from diagnose.models.learning import Fingerprint
from diagnose.models.rule import DiagnosisRule, FilterRule, RuleSet
from diagnose.rules.lint.base import Check
from diagnose.rules.lint.history import ModifiedIsKept
from diagnose.rules.lint.incidents import VerdictsKept
from diagnose.rules.lint.run import CHECKS, context_of, lint_rules

_AREA: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_LEARNT: Final = "learnt"
_ELSEWHERE: Final[tuple[type[Check], ...]] = (ModifiedIsKept, VerdictsKept)


def path_of(rule: FilterRule | DiagnosisRule, rule_set: RuleSet, fingerprint: Fingerprint | None, area: str) -> str:
    """Where a rule's file goes, below a rules directory; `area` is a filter's folder, its framework's if empty."""
    if isinstance(rule, DiagnosisRule):
        entry = rule_set.taxonomy.get(rule.error_type)
        if entry is None:
            raise UsageError(f"{rule.error_type} is no error type of the taxonomy any more; reject the rule {rule.id}")
        return f"diagnoses/{entry.family}/{_plain(rule.id)}.yml"
    if area and not _AREA.fullmatch(area):
        raise UsageError(f"{area[:80]!r} is no area: it is the name of one folder, such as torch")
    framework = fingerprint.framework.lower() if fingerprint else ""
    return f"filters/{area or (framework if _AREA.fullmatch(framework) else _LEARNT)}/{_plain(rule.id)}.yml"


def _plain(name: str) -> str:
    if not _AREA.fullmatch(name):
        raise UsageError(f"{name[:80]!r} is no rule id: reject this candidate")
    return name


def problems_of(rule: FilterRule | DiagnosisRule, path: str, rule_set: RuleSet, root: str) -> tuple[Problem, ...]:
    """What `rules lint` says of the rule among all others."""
    if isinstance(rule, DiagnosisRule):
        joined = with_rule(rule_set, rule, path)
    else:
        others = tuple(other for other in rule_set.filters if other.id != rule.id)
        filters = tuple(sorted((*others, rule), key=lambda each: each.id))
        joined = replace(rule_set, filters=filters, paths={**rule_set.paths, rule.id: path})
    context = context_of(joined, (root,))
    context.chosen = frozenset({rule.id})
    return tuple(lint_rules(context, [check for check in CHECKS if check not in _ELSEWHERE]))


def write(rule: FilterRule | DiagnosisRule, path: str) -> None:
    """Write the file, whole or not at all. Raises `UsageError` where there is one already."""
    write_whole(path, rule_text(rule), new=True)
