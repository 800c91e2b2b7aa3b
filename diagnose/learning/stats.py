"""How rules fare in what was recorded: hits, confirmations, refutations, and rules that never speak.

In: the records of a store, a rule set. Out: rows to print, the rules that deserve a look first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from diagnose.dataclass import dataclass
from diagnose.models.learning import RuleRecord
from diagnose.models.rule import RuleSet

ENOUGH: Final = 3
"""So many verdicts of people on a rule, most of them against it, make it one to look at: a single one may be wrong."""
READY_CONFIRMED: Final = 3
"""So many confirmations without a refutation, and an experimental rule may leave the shadow."""


@dataclass(frozen=True, slots=True)
class RuleFigures:
    """One rule with what became of it; `remark` says what to do, where something is."""

    record: RuleRecord
    status: str
    error_type: str
    remark: str = ""

    @property
    def dead(self) -> bool:
        """Whether nothing recorded ever had a finding of it."""
        return self.record.hits == 0


def rule_figures(records: Iterable[RuleRecord], rule_set: RuleSet) -> tuple[RuleFigures, ...]:
    """Every diagnosis rule of the set, those to look at first; then what is recorded of rules that are gone."""
    known = {record.rule: record for record in records}
    found: list[RuleFigures] = []
    for rule in rule_set.diagnoses:
        record = known.pop(rule.id, RuleRecord(rule.id))
        found.append(RuleFigures(record, rule.status, rule.error_type, _remark(record, rule.status)))
    found += [RuleFigures(record, "gone", "-") for record in known.values()]
    return tuple(
        sorted(
            found,
            key=lambda each: (not each.remark, -each.record.refuted, -each.record.hits, each.record.rule),
        )
    )


def _remark(record: RuleRecord, status: str) -> str:
    if record.refuted > record.confirmed and record.refuted + record.confirmed >= ENOUGH:
        return "wrong more often than right: narrow or retire it"
    if status == "experimental" and record.confirmed >= READY_CONFIRMED and not record.refuted:
        return "right each time: it may leave the shadow (status: test)"
    return ""
