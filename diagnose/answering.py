"""From what was decided to the report: a verdict, what reading has come to, and a second opinion where one was asked.

In: a `Verdict` and `Gathered`. Out: a `Report`, and what a memory keeps of the run beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from diagnose.dataclass import replace
from diagnose.gathered import Gathered
from diagnose.lines.stamps import is_dated
from diagnose.lines.timeline import AttemptProgress
from diagnose.models import (
    Coverage,
    DecidedBy,
    Drained,
    Evidence,
    Explanation,
    Finding,
    Opinion,
    Particulars,
    Report,
    RuleSet,
    Stats,
)
from diagnose.rules.circumstances import place_of
from diagnose.rules.findings import iso
from diagnose.rules.policy import circumstances
from diagnose.rules.verdict import Verdict

_MISSING_SHOWN = 8
_HOSTS_KEPT = 4096  # by a memory, of one job
_WANTS_KERNEL_LOG = frozenset({"hardware", "cuda", "comm", "network", "host", "node"})


def report_of(
    verdict: Verdict, gathered: Gathered, rules: RuleSet, notes: Sequence[str], seconds: float, *, asks: bool
) -> Report:
    """The report on a verdict of the rules; `asks` where somebody else will be asked if they left it open."""
    explanation, cost = verdict.explanation, gathered.cost
    decided = verdict.rule is not None or verdict.status == "no_failure"
    return Report(
        status=verdict.status,
        error_type=verdict.error_type,
        category=verdict.category,
        attribution=verdict.attribution,
        sureness=verdict.sureness,
        root_cause=verdict.root_cause,
        alternatives=verdict.alternatives,
        chain=verdict.chain,
        culprits=verdict.culprits,
        recovery=verdict.recovery,
        progress=verdict.progress,
        attempts=verdict.attempts,
        coverage=_coverage(verdict, gathered, rules),
        decided_by=DecidedBy(
            stage="rules" if decided else "none",
            rule=verdict.rule,
            ruleset=rules.version,
            agent_state="not_needed" if decided or asks else "not_configured",
        ),
        stats=Stats(cost.bytes, cost.lines, cost.kept, round(seconds, 3)),
        explanation=Explanation(
            explanation.findings,
            explanation.explained,
            explanation.excluded,
            explanation.attribution,
            (*explanation.notes, *notes),
        ),
    )


def with_opinion(report: Report, adopted: Verdict, opinion: Opinion, seconds: float, *, decides: bool) -> Report:
    """The report with a second opinion: what it decides where it decides, who was asked in any case."""
    return replace(
        report,
        status=adopted.status,
        error_type=adopted.error_type,
        category=adopted.category,
        attribution=adopted.attribution,
        sureness=adopted.sureness,
        root_cause=adopted.root_cause,
        recovery=adopted.recovery,
        attempts=adopted.attempts,
        decided_by=replace(
            report.decided_by,
            stage=opinion.stage if decides else "none",
            agent_state=opinion.state,
            model=opinion.model,
            prompt=opinion.prompt,
            similar_incidents=opinion.similar,
            asked=opinion.notes,
        ),
        stats=replace(report.stats, seconds=round(seconds, 3)),
    )


def particulars(verdict: Verdict, last: AttemptProgress, gathered: Gathered) -> Particulars:
    """What a memory keeps of this run beside its report."""
    alone = replace(verdict.situation, unit_repeats=0, workload_repeats=0, drained=Drained())
    inventory, timeline = gathered.inventory, gathered.timeline
    return Particulars(
        circumstances=circumstances(alone),
        job=gathered.jobs.slurm,
        place=place_of(verdict.situation.root),
        hosts=(inventory.job_hosts or inventory.hosts)[:_HOSTS_KEPT],
        gpus=inventory.world_size or len(inventory.ranks_seen | timeline.ranks.keys()) or None,
        started=dated(last.started),
        ended=dated(last.ended),
    )


def dated(time: float | None) -> float | None:
    """A time whose year an input stated."""
    stamp = iso(time)
    return time if stamp is not None and is_dated(stamp) else None


def _coverage(verdict: Verdict, gathered: Gathered, rules: RuleSet) -> Coverage:
    inventory, timeline, read = gathered.inventory, gathered.timeline, gathered.coverage
    seen = inventory.ranks_seen | timeline.ranks.keys()
    expected = inventory.world_size
    missing: list[str] = []
    own = sum(1 for known in timeline.ranks.values() if known.own)
    if own > 1 and expected and expected <= 65_536:
        absent = [rank for rank in range(expected) if rank not in seen]
        missing.extend(f"rank {rank}" for rank in absent[:_MISSING_SHOWN])
        if len(absent) > _MISSING_SHOWN:
            missing.append(f"{len(absent) - _MISSING_SHOWN} more ranks")
    missing.extend(_kernel_logs_missing(verdict, gathered, rules))
    return Coverage(
        sources=tuple(read.sources),
        not_read=(*_not_as_shipped(rules), *read.not_read, *missing),
        ranks_seen=len(seen) or None,
        ranks_expected=expected,
        dropped_lines=gathered.cost.dropped,
        evicted_templates=gathered.cost.evicted,
    )


def _kernel_logs_missing(verdict: Verdict, gathered: Gathered, rules: RuleSet) -> list[str]:
    """The kernel logs that would confirm or refute the verdict and were not given."""
    entry = rules.taxonomy.get(verdict.error_type or "")
    if verdict.status == "no_failure" or (entry and entry.family not in _WANTS_KERNEL_LOG):
        return []
    inventory = gathered.inventory
    given = {inventory.canonical_host(name) for name in gathered.coverage.kernel_hosts}
    hosts = [culprit.id for culprit in verdict.culprits if culprit.machine]
    pods = {culprit.id for culprit in verdict.culprits if culprit.pod}
    wanted = [host for host in hosts or inventory.hosts if host not in given and host not in pods]
    shown = [f"kernel log of {host}" for host in wanted[:_MISSING_SHOWN]]
    return (
        [*shown, f"kernel logs of {len(wanted) - _MISSING_SHOWN} more hosts"] if len(wanted) > _MISSING_SHOWN else shown
    )


def _not_as_shipped(rules: RuleSet) -> list[str]:
    """What a site's rules took away or put in another's place: a verdict that they changed must show it."""
    shown = [f"shipped rules: {note}" for note in rules.overridden[:_MISSING_SHOWN]]
    more = len(rules.overridden) - len(shown)
    return [*shown, f"shipped rules: {more} more overrides"] if more else shown


def with_numbers_as_given(report: Report, originals: Mapping[str, Callable[[int], int | None]]) -> Report:
    """The report with line numbers as they stand in files that were read from their end, and none where not known."""

    def mend(evidence: Evidence) -> Evidence:
        original = originals.get(evidence.source)
        return (
            evidence if original is None or evidence.line is None else replace(evidence, line=original(evidence.line))
        )

    def mend_finding(finding: Finding) -> Finding:
        return replace(finding, evidence=tuple(mend(evidence) for evidence in finding.evidence))

    cause, explanation = report.root_cause, report.explanation
    return replace(
        report,
        root_cause=replace(cause, evidence=tuple(mend(evidence) for evidence in cause.evidence)) if cause else None,
        chain=tuple(replace(link, first=mend(link.first)) for link in report.chain),
        explanation=replace(
            explanation,
            findings=tuple(mend_finding(finding) for finding in explanation.findings),
            excluded=tuple(replace(item, finding=mend_finding(item.finding)) for item in explanation.excluded),
        ),
    )
