"""What a candidate would change in the rules, as a diff.

In: a candidate and the rules. Out: `Change`: the lines of a unified diff, against the rule of the same name where there
is one. A rule that cannot be written to a file says why.
"""

from __future__ import annotations

import difflib

from diagnose.dataclass import dataclass
from diagnose.errors import UsageError
from diagnose.learning.promote import path_of
from diagnose.learning.writing import rule_text
from diagnose.models import RuleSet
from diagnose.models.learning import Proposed
from diagnose.models.rule import DiagnosisRule, FilterRule

_KINDS = {"+": "added", "-": "removed", "@": "place"}


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line and its kind: `added`, `removed`, `place` or `same`."""

    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class Change:
    """A diff, or why there is none."""

    path: str
    lines: tuple[DiffLine, ...]
    why_not: str = ""
    new: bool = True


def change_of(proposed: Proposed, rules: RuleSet) -> Change:
    """What promoting a candidate would do."""
    rule = proposed.rule
    there: tuple[FilterRule | DiagnosisRule, ...] = rules.filters if isinstance(rule, FilterRule) else rules.diagnoses
    before = next((one for one in there if one.id == rule.id), None)
    try:
        path = path_of(rule, rules, proposed.fingerprint, "")
        new, old = rule_text(rule), rule_text(before) if before is not None else ""
    except UsageError as error:
        return Change("", (), str(error))
    made = list(difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=5))[2:]
    lines = tuple(DiffLine(line, _KINDS.get(line[:1], "same")) for line in made)
    return Change(f"rules/{path}", lines, new=before is None)
