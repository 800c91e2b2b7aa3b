"""Rules taken away on purpose: what a measurement of everything else needs, since rules answer first.

In: a rule set and error types. Out: the rule set without the diagnosis rules that name nothing else, and a sink that
also withholds what the rules left, a table's row or the class of an exception would still name so. Without all error
types no diagnosis rule is left, and none of their literals guards a line from the filters: an unknown failure is read
as unknown failures are.
"""

from __future__ import annotations

from collections.abc import Collection

from diagnose.dataclass import replace
from diagnose.models import DiagnosisRule, RuleSet
from diagnose.rules.matcher import Sink
from diagnose.rules.sighting import EvidenceDraft, Sighting


def without_rules(rule_set: RuleSet, error_types: Collection[str]) -> RuleSet:
    """The rule set without the diagnosis rules all of whose error types are among the given ones."""
    kept = tuple(rule for rule in rule_set.diagnoses if not _named(rule, rule_set) <= frozenset(error_types))
    return replace(rule_set, diagnoses=kept)


def _named(rule: DiagnosisRule, rule_set: RuleSet) -> frozenset[str]:
    """The error types that a rule can name, by itself and by the rows of its table."""
    table = rule_set.tables.get(rule.lookup.table) if rule.lookup else None
    rows = table.rows.values() if table else ()
    return frozenset({rule.error_type, *(row.error_type for row in rows if row.error_type)})


class Withheld:
    """A sink that lets sightings of all but some error types through to another one."""

    def __init__(self, sink: Sink, error_types: frozenset[str]) -> None:
        self._sink = sink
        self._error_types = error_types

    def add(self, sighting: Sighting, draft: EvidenceDraft, *, traceback: bool) -> None:
        """Takes one sighting."""
        if sighting.error_type not in self._error_types:
            self._sink.add(sighting, draft, traceback=traceback)
