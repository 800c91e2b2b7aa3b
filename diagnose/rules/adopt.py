"""A second opinion becomes the verdict, where the rules had none.

In: a verdict that names nothing, an opinion, the taxonomy and the policy. Out: the verdict with the opinion's words.
What to do about it the policy says, never the opinion; nobody is drained for it, since no kernel's or scheduler's line
was found.
"""

from __future__ import annotations

from diagnose.dataclass import replace
from diagnose.models import History, NoHistory, Opinion, RootCause, RuleSet
from diagnose.rules.circumstances import repeats_of
from diagnose.rules.policy import recover
from diagnose.rules.verdict import Verdict

_NOTHING_KNOWN = NoHistory()


def undecided(verdict: Verdict) -> bool:
    """Whether the rules leave it open what failed."""
    return verdict.status != "no_failure" and verdict.error_type is None


def adopt(verdict: Verdict, opinion: Opinion, rule_set: RuleSet, history: History = _NOTHING_KNOWN) -> Verdict:
    """The verdict as the opinion has it; unchanged where the rules decided, or the opinion decides nothing known."""
    entry = rule_set.taxonomy.get(opinion.error_type or "")
    if not undecided(verdict) or opinion.stage == "none" or entry is None or entry.symptom:
        return verdict
    attribution = opinion.attribution or entry.attribution or "unknown"
    reasons = opinion.reasons
    if attribution != entry.attribution and not reasons:
        attribution = entry.attribution or "unknown"  # another one wants a reason
    situation = replace(
        verdict.situation,
        status="failed",
        error_type=entry.name,
        attribution=attribution,
        workload_repeats=repeats_of(history, entry.name, verdict.situation.progress, ""),
    )
    known = verdict.root_cause.evidence if verdict.root_cause else ()
    attempts = tuple(
        replace(attempt, error_type=entry.name) if attempt.diagnosed else attempt for attempt in verdict.attempts
    )
    return replace(
        verdict,
        status="failed",
        error_type=entry.name,
        category=entry.category,
        attribution=attribution,
        sureness=opinion.sureness,
        root_cause=RootCause(opinion.summary or entry.meaning, opinion.evidence or known, reasons),
        recovery=recover(rule_set.policy, situation, opinion.settle, (), rule_set.budgets),
        attempts=attempts,
        situation=situation,
    )
