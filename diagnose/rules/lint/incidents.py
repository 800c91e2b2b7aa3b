"""Rules decide the bundled incidents as before: each keeps the verdict that its `expected.yaml` states.

In: the labelled incidents of a checkout, and a `Judge` that runs the whole pipeline, which this package cannot import.
Out: problems at the rule that now decides. Without a judge nothing is said: it takes longer than all other checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from diagnose.errors import Problem
from diagnose.models.report import Report
from diagnose.models.rule import RuleSet
from diagnose.rules.lint.base import Check, Labelled
from diagnose.rules.tree import shown

# Diagnoses the inputs that an incident's folder holds, given as on the command line.
Judge = Callable[[RuleSet, str, Sequence[str]], Report]
_TAXONOMY: Final = "taxonomy"


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    got: str | None
    wanted: tuple[str | None, ...]

    def __str__(self) -> str:
        return f"{self.name} is {self.got}, not {' or '.join(str(value) for value in self.wanted)}"


class VerdictsKept(Check):
    """Every bundled incident, healthy job and undecided one keeps its status, error type and attribution."""

    name = "incident-verdict"

    def finalize(self) -> Iterator[Problem]:
        judge = self.context.judge
        if judge is None:
            return
        for incident in self.context.incidents:
            report = judge(self.context.rule_set, incident.folder, incident.inputs)
            changed = [field for field in _fields(incident, report) if field.got not in field.wanted]
            if changed:
                told = "; ".join(map(str, changed))
                decided = report.decided_by.rule
                key = decided if decided and decided in self.context.rule_set.paths else _TAXONOMY
                yield self.problem(
                    key,
                    "",
                    f"the verdict on {shown(incident.folder)} changes: {told}. Mend the rule; where the new verdict is"
                    " right, correct expected.yaml there",
                )


def _fields(incident: Labelled, report: Report) -> Iterator[_Field]:
    yield _Field("status", report.status, (incident.status,))
    if incident.status == report.status == "failed":
        yield _Field("error_type", report.error_type, incident.error_types)
        yield _Field("attribution", report.attribution, incident.attributions)
