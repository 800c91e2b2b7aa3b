"""What the ranks' own reports of a stuck collective say together: who issued another one, and who never came.

In: findings with `op`, `seq` and counts per rank; what is known of ranks and process groups. Out: a CollectiveMismatch
finding where ranks issued different collectives under one sequence number, and the ranks absent from a time-out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from diagnose.dataclass import dataclass, replace
from diagnose.lines.inventory import Inventory
from diagnose.lines.timeline import Timeline
from diagnose.models import Evidence, Finding, RuleSet
from diagnose.rules.captures import Value, ranges

_WAITED = frozenset({"NCCLTimeoutError", "CollectiveHang"})
_GLOBAL_GROUPS = frozenset({"", "0", "default_pg", "default"})
_NUMBERS = ("numel", "numel_in", "numel_out")


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Ranks that issued something else than most under one sequence number of one process group."""

    group: str
    seq: int
    usual: str
    others: Mapping[int, str]


def find_mismatches(findings: Sequence[Finding]) -> list[Mismatch]:
    """Mismatches among the reports of time-outs; needs two ranks that name the same group and sequence number."""
    calls: dict[tuple[str, int], dict[int, str]] = {}
    for finding in findings:
        if finding.error_type not in _WAITED:
            continue
        for rank, captures in finding.by_rank.items():
            seq, op = captures.get("seq"), captures.get("op")
            if isinstance(seq, int) and isinstance(op, str):
                calls.setdefault((_group(captures), seq), {})[rank] = _call(op, captures)
    found: list[Mismatch] = []
    for (group, seq), by_rank in sorted(calls.items()):
        counts = Counter(by_rank.values())
        if len(counts) < 2:
            continue
        usual = counts.most_common(1)[0][0]
        # One against one: nobody is the odd one out, both are shown.
        tie = list(counts.values()).count(counts[usual]) > 1
        others = {rank: call for rank, call in by_rank.items() if tie or call != usual}
        found.append(Mismatch(group, seq, usual, dict(sorted(others.items()))))
    return found


def _group(captures: Mapping[str, Value]) -> str:
    group = str(captures.get("pg_name") or captures.get("pg") or "")
    return "" if group in _GLOBAL_GROUPS else group


def _call(op: str, captures: Mapping[str, Value]) -> str:
    sizes = [str(captures[name]) for name in _NUMBERS if name in captures]
    return op + (f" of {'/'.join(sizes)} elements" if sizes else "")


def mismatch_findings(findings: Sequence[Finding], rule_set: RuleSet) -> list[Finding]:
    """A cause finding for each mismatch, with one line of each side as evidence."""
    entry = rule_set.taxonomy.get("CollectiveMismatch")
    if entry is None:
        return []
    made: list[Finding] = []
    for number, mismatch in enumerate(find_mismatches(findings), 1):
        sources = [f for f in findings if f.error_type in _WAITED and mismatch.others.keys() & f.by_rank.keys()]
        waiting = [f for f in findings if f.error_type in _WAITED and f.by_rank]
        odd = min(mismatch.others)
        text = "; ".join(f"rank {rank}: {call}" for rank, call in list(mismatch.others.items())[:4])
        base = sources[0]
        made.append(
            replace(
                base,
                id=f"collective-mismatch#{number}",
                rule=None,
                error_type="CollectiveMismatch",
                family=entry.family,
                role="cause",
                evidence=_evidence(waiting, mismatch),
                ranks=frozenset(mismatch.others),
                survivable=False,
                traceback=False,
                place="collective-mismatch",
                captures={
                    "rank": odd,
                    "ranks": tuple(mismatch.others),
                    "seq": mismatch.seq,
                    "message": f"at sequence number {mismatch.seq} most ranks issued {mismatch.usual}, but {text}",
                },
            )
        )
    return made


def _evidence(waiting: Sequence[Finding], mismatch: Mismatch) -> tuple[Evidence, ...]:
    lines = [evidence for finding in waiting for evidence in finding.evidence]
    odd = [evidence for evidence in lines if evidence.rank in mismatch.others]
    usual = [evidence for evidence in lines if evidence.rank not in mismatch.others]
    return tuple((odd[:2] + usual[:1]) or lines[:2])


def absent_ranks(finding: Finding, timeline: Timeline, inventory: Inventory, group: str | None) -> tuple[int, ...]:
    """The members of the stuck group that were heard of, whose log was read past the time-out, and who did not report.

    Nobody is absent whose log was not read: taking inputs away can only shorten the answer.
    """
    reported = set(finding.ranks)
    if not reported:
        return ()
    members = _members(finding, inventory, group)
    if members is None:
        return ()
    absent: list[int] = []
    for rank in sorted(members - reported):
        seen = timeline.ranks.get(rank)
        if seen is None:
            continue
        if seen.own or seen.mark.source in finding.spans:
            absent.append(rank)
    # More silent than speaking, read or not: the group is not understood, so nothing is said of anyone.
    silent = len(members - reported)
    return tuple(absent) if silent < len(reported) or silent == 1 else ()


def _members(finding: Finding, inventory: Inventory, group: str | None) -> set[int] | None:
    name = "" if group is None or group in _GLOBAL_GROUPS else group
    if name:
        known = inventory.process_groups.get(name)
        return set(known.values()) if known else None
    world = inventory.world_size
    if world is not None and world <= 1_000_000 and max(finding.ranks) < world:
        return set(range(world))
    return set(inventory.ranks_seen) or None


def describe_ranks(ranks: Sequence[int]) -> str:
    """`rank 3` or `ranks 0-7, 12`."""
    shown = ", ".join(ranges(ranks)[:6])
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"
