"""Whose fault it is: the rule's word, else the shape of the evidence, else the taxonomy's default.

In: the root finding, what else is known of the job. Out: attribution and the tests that decided, in words.
"""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.dataclass import dataclass
from diagnose.lines.timeline import AttemptProgress
from diagnose.models import DiagnosisRule, ErrorType, Finding
from diagnose.models.rule import AttributionName
from diagnose.rules.collectives import describe_ranks

AT_ONCE = 60.0  # seconds within which ranks that run the same code meet the same bug
_SHAPE_DECIDES = frozenset({"CUDAError"})


@dataclass(frozen=True, slots=True)
class Attribution:
    """Who is at fault and why that is said. `same_unit` and `all_ranks` are tests that policy asks for again."""

    name: AttributionName
    reasons: tuple[str, ...]
    all_ranks: bool = False
    same_unit: bool = False


def attribute(
    root: Finding,
    rule: DiagnosisRule | None,
    entry: ErrorType,
    same_kind: Sequence[Finding],
    earlier: Sequence[Finding],
    progress: AttemptProgress,
    ranks_known: int,
) -> Attribution:
    """Decides the attribution of a root finding.

    `same_kind` are the findings of the diagnosed attempt with the same error type, `earlier` the root findings of
    earlier attempts, `ranks_known` how many ranks the job has as far as is known.
    """
    ranks = frozenset(rank for finding in same_kind for rank in finding.ranks)
    reasons: list[str] = []
    all_ranks = ranks_known > 1 and len(ranks) >= ranks_known and _at_once(same_kind)
    if len(ranks) > 1:
        spread = _spread(same_kind)
        within = f" within {spread:.0f} s" if spread is not None and spread <= AT_ONCE else ""
        of = f" of {ranks_known}" if ranks_known > len(ranks) else ""
        reasons.append(f"same {'line' if root.traceback else 'error'} on {len(ranks)}{of} ranks{within}")
    again = [finding for finding in earlier if finding.error_type == root.error_type]
    same_unit = any(_same_unit(root, finding) for finding in again)
    if again:
        attempts = ", ".join(str(finding.attempt + 1) for finding in again[:5])
        what = (
            "the same unit"
            if same_unit
            else "the same line"
            if any(f.place == root.place for f in again)
            else "the same error"
        )
        reasons.append(
            f"{what} in attempt {attempts} as well" if len(again) == 1 else f"{what} in attempts {attempts} as well"
        )
    if rule and rule.verdict.attribution:
        return Attribution(rule.verdict.attribution, tuple(reasons), all_ranks, same_unit)
    default = entry.attribution or "unknown"
    if root.error_type in _SHAPE_DECIDES:
        if same_unit:
            return Attribution(
                "infrastructure", (*reasons, "one device again and again is hardware"), all_ranks, same_unit
            )
        if all_ranks:
            return Attribution("user", (*reasons, "all ranks at one call is software"), all_ranks, same_unit)
        if progress.first_step is None and not progress.steps and len(ranks) != 1:
            return Attribution("user", (*reasons, "before the first step, on no single device"), all_ranks, same_unit)
        if len(ranks) == 1:
            reasons.append(f"only {describe_ranks(sorted(ranks))}: code or device, one line does not tell")
    return Attribution(default, tuple(reasons), all_ranks, same_unit)


def _spread(findings: Sequence[Finding]) -> float | None:
    times = [time for finding in findings for time in (finding.first, finding.last) if time is not None]
    return max(times) - min(times) if times else None


def _at_once(findings: Sequence[Finding]) -> bool:
    spread = _spread(findings)
    return spread is None or spread <= AT_ONCE


def _same_unit(one: Finding, other: Finding) -> bool:
    if one.gpus and other.gpus:
        return bool(one.gpus & other.gpus) and (not one.hosts or not other.hosts or bool(one.hosts & other.hosts))
    if len(one.ranks) == 1 and one.ranks == other.ranks:
        return not one.traceback or one.family == "cuda"
    return False
