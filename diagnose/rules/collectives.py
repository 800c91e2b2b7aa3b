"""What the ranks' own reports of a stuck collective say together: who issued another one, and who never came.

In: findings with `op`, `seq` and counts per rank; what is known of ranks and process groups. Out: a CollectiveMismatch
finding where ranks issued different collectives under one sequence number, and the ranks absent from a time-out, or
silent before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from diagnose.dataclass import dataclass, replace
from diagnose.lines.inventory import Inventory
from diagnose.lines.timeline import AttemptProgress, Timeline
from diagnose.models import Evidence, Finding, RuleSet
from diagnose.patterns import Lazy
from diagnose.rules.captures import Value, shown_numbers
from diagnose.rules.precedence import SAME_TIME

_WAITED = frozenset({"NCCLTimeoutError", "CollectiveHang"})
_GLOBAL_GROUPS = frozenset({"", "0", "default_pg", "default"})
_AT_WORK = Lazy(r"\b[A-Za-z][a-z]{2,20}ing\b")
_NOT_WORK = Lazy(
    r"NCCL|c10d|rror|ailed|ime[d -]*out|Traceback|SIG|signal|[Ss]av|[Uu]pload|[Dd]ownload|[Ll]oading|[Cc]heckpoint"
    r"|[Ww]ait|[Ss]tarting|[Ww]arning|[Uu]sing|[Ss]etting|[Tt]raining|[Cc]onnecting|[Ii]nitializ"
)
_CALLS_TOLD = 4
_NOTHING = AttemptProgress()
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


def odd_ranks(finding: Finding) -> tuple[int, ...]:
    """The ranks that, by the reports of a mismatch, called something else than most; all of them in a tie.

    Each report tells of its own rank and of another one, so one that is silent may be known by the others' words.
    """
    calls: dict[int, str] = {}
    for captures in finding.by_rank.values():
        for whose, op, shape in (("one_rank", "op", "shape"), ("other_rank", "other_op", "other_shape")):
            rank = captures.get(whose)
            if isinstance(rank, int) and op in captures:
                calls.setdefault(rank, f"{captures[op]} {captures.get(shape, '')}")
    counts = Counter(calls.values())
    if len(counts) < 2:
        return ()
    usual, most = counts.most_common(1)[0]
    tie = list(counts.values()).count(most) > 1
    return tuple(sorted(rank for rank, call in calls.items() if tie or call != usual))


def _group(captures: Mapping[str, Value]) -> str:
    group = str(captures.get("pg_name") or captures.get("pg") or "")
    return "" if group in _GLOBAL_GROUPS else group


def _call(op: str, captures: Mapping[str, Value]) -> str:
    sizes = [str(captures[name]) for name in _NUMBERS if name in captures]
    return op + (f" of {'/'.join(sizes)} elements" if sizes else "")


def mismatch_findings(findings: Sequence[Finding], rule_set: RuleSet, ranks_known: int = 0) -> list[Finding]:
    """A cause finding for each mismatch, with one line of each side as evidence.

    `ranks_known` is how many ranks the job has; 0 where that is not known.
    """
    entry = rule_set.taxonomy.get("CollectiveMismatch")
    if entry is None:
        return []
    made: list[Finding] = []
    for number, mismatch in enumerate(find_mismatches(findings), 1):
        sources = [f for f in findings if f.error_type in _WAITED and mismatch.others.keys() & f.by_rank.keys()]
        waiting = [f for f in findings if f.error_type in _WAITED and f.by_rank]
        odd = min(mismatch.others)
        text = "; ".join(f"rank {rank}: {call}" for rank, call in list(mismatch.others.items())[:_CALLS_TOLD])
        if len(mismatch.others) > _CALLS_TOLD:
            text += f"; and {len(mismatch.others) - _CALLS_TOLD} more ranks"
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
    if not made and (parted := _parted(findings, ranks_known)) is not None:
        waiting = [finding for finding in findings if _waits_in_code(finding)]
        usual, others = parted
        told = "; ".join(f"{describe_ranks(ranks)} at {place}" for place, ranks in others.items())
        strays = sorted(rank for ranks in others.values() for rank in ranks)
        made.append(
            replace(
                min(waiting, key=lambda finding: finding.id),
                id="collective-mismatch#1",
                rule=None,
                error_type="CollectiveMismatch",
                family=entry.family,
                role="cause",
                evidence=_evidence(waiting, Mismatch("", 0, usual, dict.fromkeys(strays, ""))),
                ranks=frozenset(strays),
                survivable=False,
                traceback=False,
                place="collective-mismatch",
                captures={
                    "ranks": tuple(strays),
                    "seq": 0,
                    "message": f"nobody is missing, but most ranks wait at {usual} and {told}",
                },
            )
        )
    return made


def _waits_in_code(finding: Finding) -> bool:
    return finding.error_type in _WAITED and finding.traceback and bool(finding.by_rank)


def _parted(findings: Sequence[Finding], ranks_known: int) -> tuple[str, Mapping[str, Sequence[int]]] | None:
    """Where all ranks of a job waited in vain, and not at one line of one file: the usual line, and who was elsewhere.

    As long as a rank is missing, the others may just have come to it one after another.
    """
    places: dict[int, str] = {}
    for finding in findings:
        if _waits_in_code(finding):
            for rank, captures in finding.by_rank.items():
                if isinstance(where := captures.get("file"), str):
                    places.setdefault(rank, where)
    counts = Counter(places.values())
    files = {place.rpartition(":")[0] for place in counts}
    if ranks_known < 2 or len(places) < ranks_known or len(counts) < 2 or len(files) != 1:
        return None
    usual = counts.most_common(1)[0][0]
    others = {place: sorted(r for r, at in places.items() if at == place) for place in sorted(counts) if place != usual}
    return usual, others


def busy_elsewhere(
    finding: Finding, missed: Sequence[int], progress: AttemptProgress, timeline: Timeline
) -> dict[int, str]:
    """What the ranks that the others waited for were last heard to do; empty unless each of them says so.

    Words about files and services are left out: who is stuck there may be a victim, too.
    """
    if finding.error_type not in _WAITED or not 0 < len(missed) <= len(finding.ranks):
        return {}
    told: dict[int, str] = {}
    for rank in missed:
        seen, step = timeline.ranks.get(rank), progress.by_rank.get(rank)
        if seen is None or (step is not None and step.source == seen.mark.source and step.number >= seen.mark.number):
            return {}
        if seen.mark.time is not None and finding.first is not None and seen.mark.time > finding.first:
            return {}
        words = _AT_WORK.search(seen.words)
        if words is None or _NOT_WORK.search(seen.words):
            return {}
        told[rank] = seen.words[-100:].strip()
    return told


def _evidence(waiting: Sequence[Finding], mismatch: Mismatch) -> tuple[Evidence, ...]:
    lines = [evidence for finding in waiting for evidence in finding.evidence]
    odd = [evidence for evidence in lines if evidence.rank in mismatch.others]
    usual = [evidence for evidence in lines if evidence.rank not in mismatch.others]
    return tuple((odd[:2] + usual[:1]) or lines[:2])


def absent_ranks(
    finding: Finding, timeline: Timeline, inventory: Inventory, group: str | None, ends: Collection[str] = ()
) -> tuple[int, ...]:
    """The members of the stuck group that were heard of, whose log was read past the time-out, and who did not report.

    `ends` names the sources that tell of their process's end: these were read past it, whatever their clocks say.
    Nobody is absent whose log was not read that far: taking inputs away, or their ends, can only shorten the answer.
    """
    reported = set(finding.ranks)
    if not reported:
        return ()
    members = _members(finding, inventory, group)
    if members is None:
        return ()
    absent: list[int] = []
    shared = _shared_source(finding, timeline)
    for rank in sorted(members - reported):
        seen = timeline.ranks.get(rank)
        if seen is None:
            # Heard of in the one file that all ranks write to, if only in others' words or before it had a number.
            if shared and rank in inventory.ranks_seen:
                absent.append(rank)
            continue
        source = seen.mark.source
        if source in finding.spans or (seen.own and (source in ends or _past(finding, timeline.ended(source)))):
            absent.append(rank)
    # More silent than speaking, read or not: the group is not understood, so nothing is said of anyone.
    silent = len(members - reported)
    return tuple(absent) if silent < len(reported) or silent == 1 else ()


def silent_ranks(finding: Finding, timeline: Timeline, inventory: Inventory, group: str | None) -> tuple[int, ...]:
    """The members of the stuck group whose own logs end before the time-out that all the others reported.

    A process that hangs or is lost writes nothing more, so this is the main case; but so ends a log that was copied too
    early or cut. Nobody is named unless every member without a report had a log of its own, read whole, that goes as
    far as the others had come: then either they fell silent, or they were cut just there.
    """
    reported = set(finding.ranks)
    members = _members(finding, inventory, group) if reported else None
    if members is None or ((group is None or group in _GLOBAL_GROUPS) and members != set(range(len(members)))):
        return ()
    silent = sorted(members - reported)
    if not silent or (len(silent) > 1 and len(silent) >= len(reported)):
        return ()
    parts = timeline.latest()
    own = {rank: seen.mark.source for rank, seen in timeline.ranks.items() if seen.own}
    others = {own[rank]: parts.get(own[rank], _NOTHING) for rank in reported if rank in own}
    for rank in silent:
        source = own.get(rank)
        if source is None or source in timeline.truncated:
            return ()
        if not _as_far(parts.get(source, _NOTHING), timeline.ranks[rank].mark.number, others, finding):
            return ()
    return tuple(silent)


def _as_far(mine: AttemptProgress, lines: int, others: Mapping[str, AttemptProgress], finding: Finding) -> bool:
    """Whether a rank's log goes on until the others began to wait: by its steps, by its own pace, or by its lines."""
    steps = [progress.last_step for progress in others.values() if progress.last_step is not None]
    if mine.last_step is not None and steps and mine.last_step >= min(steps):
        return True
    began = wait_began(finding)
    if began is not None and mine.started is not None and mine.ended is not None and mine.steps > 1:
        pace = (mine.ended - mine.started) / (mine.steps - 1)
        if mine.ended >= began - max(2 * pace, SAME_TIME):
            return True
    # Most ranks of many programs print no steps: all of them say the same until the time-out.
    before = [
        finding.spans[source][0] - 1
        for source, progress in others.items()
        if progress.last_step is None and source in finding.spans
    ]
    return mine.last_step is None and bool(before) and lines >= min(before)


def wait_began(finding: Finding) -> float | None:
    """When the wait began that a time-out ended, in seconds since the epoch, as far as the reports tell."""
    waited = finding.captures.get("ran_ms") or finding.captures.get("timeout_ms")
    if finding.first is None or not isinstance(waited, int):
        return None
    return finding.first - waited / 1000


def _past(finding: Finding, ended: float | None) -> bool:
    return ended is not None and finding.first is not None and ended >= finding.first - SAME_TIME


def _shared_source(finding: Finding, timeline: Timeline) -> str | None:
    """The one source that every rank heard of wrote to, where there is one."""
    sources = {seen.mark.source for seen in timeline.ranks.values()} | finding.spans.keys()
    return next(iter(sources)) if len(sources) == 1 and len(timeline.ranks) > 1 else None


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
    """`rank 3`, `ranks 0-7, 12`, or of many `ranks 0, 2, 4, 6, 8, 10 and 3 more`."""
    shown = shown_numbers(ranks, 6)
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"
