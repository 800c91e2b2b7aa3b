"""Groups of sightings become findings of the job: attempt, host and GPU resolved, equal ones merged.

In: the aggregator's groups, the attempts of the job with their time spans, the inventory. Out: findings, and those set
aside because they happened outside the job's time or on a host that is none of the job's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from time import gmtime

from diagnose.dataclass import dataclass
from diagnose.lines.inventory import Inventory
from diagnose.lines.jobs import JobNumbers
from diagnose.lines.kernel import is_kernel_line
from diagnose.lines.timeline import AttemptProgress
from diagnose.models import Evidence, ExcludedFinding, Finding, Line, Over, RuleSet, SourceKind, Telling, Unit
from diagnose.models.rule import Role
from diagnose.patterns import Lazy
from diagnose.rules.aggregate import BY_UNIT, OF_ONE_LINE, Group
from diagnose.rules.captures import Value
from diagnose.rules.othertimes import OtherTimes
from diagnose.rules.places import ControlGroups, KernelLogs
from diagnose.rules.sighting import EvidenceDraft
from diagnose.rules.telling import telling

_SKEW = 3600.0  # seconds by which a wrong clock may be off and still be about this job
BEFORE_JOB = 600.0  # seconds: a fault a little before the first line of a job may still be its cause
BEFORE_UNDATED = 3600.0  # and where steps were made before the first time, as long as an operation may wait
AFTER_JOB = 600.0  # and hosts' clocks may differ by minutes
_EVIDENCE = 6
_TEXT = 2000
_TIMED = frozenset({"kernel", "scheduler"})
_PCI = Lazy(r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}$")

_Key = tuple[
    int | None, str | None, str, Role, str | None, str | None, str, tuple[str, int] | None, str | None, bool, bool
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Resolved:
    """The findings of a job and those set aside at once."""

    findings: tuple[Finding, ...]
    excluded: tuple[ExcludedFinding, ...]


def resolve(
    groups: Iterable[Group],
    rule_set: RuleSet,
    attempts: Mapping[int, AttemptProgress],
    alignment: Mapping[tuple[str, int], int],
    inventory: Inventory,
    boots: Sequence[Line] = (),
    jobs: JobNumbers | None = None,
) -> Resolved:
    """Findings of all attempts, in a fixed order: by attempt, first time, place.

    `boots` are the lines by which kernels start, `jobs` the numbers under which the job is known.
    """
    last = max(attempts, default=0)
    merged: dict[_Key, list[tuple[Group, str | None, str | None]]] = {}
    groups = list(groups)
    times = OtherTimes(groups, attempts, boots, rule_set)
    whys: dict[_Key, str] = {}
    given = KernelLogs(groups, inventory)
    control_groups = ControlGroups(groups, jobs, inventory)
    for group in groups:
        sighting = group.sighting
        attempt, why = _attempt(group, attempts, alignment, last), "outside the job's time"
        if attempt is None and times.lasts(group):
            attempt = min(attempts, default=0)
        elif times.mended(group):
            attempt, why = None, "its host was started anew since"
        host = _host(group, inventory)
        elsewhere, stray = given.elsewhere(group, host)
        elsewhere = elsewhere or control_groups.of_another(group)
        gpu = _gpu(group, host, inventory)
        theirs = given.not_ours(group, host, gpu)
        rule = sighting.rule.id if sighting.rule else None
        entry = rule_set.taxonomy.get(sighting.error_type)
        if entry is None or entry.family not in BY_UNIT:
            host = gpu = None  # one thing that happened to many ranks, wherever they run
        over = (sighting.over.source.name, sighting.over.number) if sighting.over is not None else None
        place = (host, gpu, sighting.place, over, elsewhere, stray, theirs)
        key = (attempt, rule, sighting.error_type, sighting.role, *place)
        merged.setdefault(key, []).append((group, host, gpu))
        whys[key] = why
    findings: list[Finding] = []
    excluded: list[ExcludedFinding] = []
    ordered = sorted(merged.items(), key=lambda item: _position(item[0], [part[0] for part in item[1]]))
    numbers: dict[str, int] = {}
    for key, parts in ordered:
        attempt = key[0]
        name = str(key[1] or "python-traceback")
        numbers[name] = numbers.get(name, 0) + 1
        outside = attempt is None
        finding = _finding(
            f"{name}#{numbers[name]}",
            last if attempt is None else attempt,
            [part[0] for part in parts],
            parts[0][1],
            parts[0][2],
            rule_set,
            inventory,
            stray=key[9],
            not_ours=key[10],
            told=telling([part[0] for part in parts], attempts.get(last if attempt is None else attempt), inventory),
        )
        if outside:
            excluded.append(ExcludedFinding(finding, whys[key]))
        elif key[8] is not None:
            excluded.append(ExcludedFinding(finding, key[8]))
        else:
            findings.append(finding)
    return Resolved(tuple(findings), tuple(excluded))


def _attempt(
    group: Group, attempts: Mapping[int, AttemptProgress], alignment: Mapping[tuple[str, int], int], last: int
) -> int | None:
    """The attempt of a group; None where its time lies outside every attempt."""
    source = group.sighting.line.source
    if source.kind not in _TIMED:
        return alignment.get((source.name, group.sighting.attempt), last)
    spans = {index: (span.started, span.ended) for index, span in attempts.items() if span.started is not None}
    if group.first is None or not spans:
        return last
    for index in sorted(spans, reverse=True):
        started, ended = spans[index]
        if started is not None and group.first >= started and group.first <= (ended or started) + AFTER_JOB:
            return index
    first = min(spans, key=lambda index: spans[index][0] or 0.0)
    first_start = spans[first][0] or 0.0
    before = BEFORE_JOB + (BEFORE_UNDATED if attempts[first].began_undated else 0.0)
    if first_start - before <= group.first < first_start:
        return first
    if source.kind == "scheduler":  # its record is about this job, whenever it was written
        return last
    if group.sighting.error_type == "ClockSkewError" and _near_skewed(group.first, spans):
        return last  # the stamps of a wrong clock are as wrong
    return None if not _between(group.first, spans) else _next_attempt(group.first, spans)


def _near_skewed(time: float, spans: Mapping[int, tuple[float | None, float | None]]) -> bool:
    started, ended = spans[max(spans)]
    return started is not None and started - _SKEW <= time <= (ended or started) + _SKEW


def _between(time: float, spans: Mapping[int, tuple[float | None, float | None]]) -> bool:
    starts = [started for started, _ in spans.values() if started is not None]
    return min(starts) <= time <= max(starts)


def _next_attempt(time: float, spans: Mapping[int, tuple[float | None, float | None]]) -> int:
    return min(index for index, (started, _) in spans.items() if started is not None and started >= time)


def _host(group: Group, inventory: Inventory) -> str | None:
    sighting = group.sighting
    host = sighting.host or sighting.line.source.host
    if host is None and sighting.rank is not None and len(group.ranks) <= 1:
        host = inventory.host_of_rank(sighting.rank)
    if host is None and len(group.ranks) > 1:
        hosts = {inventory.host_of_rank(rank) for rank in group.ranks}
        host = hosts.pop() if len(hosts) == 1 else None
    return inventory.canonical_host(host) if host else None


def _gpu(group: Group, host: str | None, inventory: Inventory) -> str | None:
    sighting = group.sighting
    gpu = sighting.gpu
    if gpu and _PCI.match(gpu):
        return gpu
    rank = sighting.rank if len(group.ranks) <= 1 else None
    if rank is None and gpu and gpu.isdigit() and host:
        rank = inventory.rank_of(host, int(gpu))
    unit = inventory.for_rank(rank) if rank is not None else None
    return (unit.pci if unit else None) or gpu


def _position(key: tuple[object, ...], groups: Sequence[Group]) -> tuple[object, ...]:
    first = min((group.first for group in groups if group.first is not None), default=float("inf"))
    place = min((group.sighting.line.source.name, group.span[0]) for group in groups)
    return (key[0] is None, key[0] or 0, first, place, str(key))


def _finding(
    name: str,
    attempt: int,
    groups: Sequence[Group],
    host: str | None,
    gpu: str | None,
    rule_set: RuleSet,
    inventory: Inventory,
    *,
    stray: bool,
    not_ours: bool,
    told: Telling,
) -> Finding:
    # What a job can outlive speaks for a finding only where nothing worse does.
    groups = sorted(
        groups,
        key=lambda group: (
            group.sighting.survivable,
            group.first is None,
            group.first or 0.0,
            group.sighting.line.source.name,
            group.span[0],
        ),
    )
    sighting = groups[0].sighting
    ranks = frozenset(rank for group in groups for rank in group.ranks)
    hosts = {host} if host else {known for rank in ranks if (known := inventory.host_of_rank(rank))}
    by_rank = {rank: captures for group in groups for rank, captures in group.by_rank.items()}
    streams: dict[str, tuple[int, int]] = {}
    spans: dict[str, tuple[int, int]] = {}
    for group in groups:
        for stream, (low, high) in group.streams.items():
            known_span = streams.get(stream, (low, high))
            streams[stream] = (min(low, known_span[0]), max(high, known_span[1]))
        source = group.sighting.line.source.name
        known_span = spans.get(source, group.span)
        spans[source] = (min(group.span[0], known_span[0]), max(group.span[1], known_span[1]))
    captures = dict(groups[0].captures)
    for group in groups[1:]:
        for key, value in group.captures.items():
            if key not in OF_ONE_LINE:
                captures.setdefault(key, value)
    if host:
        captures["host"] = host
    if gpu:
        captures["gpu"] = gpu
    if len(ranks) == 1:
        captures.setdefault("rank", next(iter(ranks)))
    if ranks:
        captures["ranks"] = tuple(sorted(ranks))
    if sighting.rule:
        captures.update(_collected(sighting.rule.collect, by_rank, groups))
    entry = rule_set.taxonomy.get(sighting.error_type)
    return Finding(
        id=name,
        rule=sighting.rule.id if sighting.rule else None,
        error_type=sighting.error_type,
        family=entry.family if entry else "framework",
        role=sighting.role,
        attempt=attempt,
        evidence=tuple(evidence_of(draft, inventory, host, gpu) for draft in _chosen(groups)),
        count=sum(group.count for group in groups),
        first=min((group.first for group in groups if group.first is not None), default=None),
        last=max((group.last for group in groups if group.last is not None), default=None),
        streams=streams,
        spans=spans,
        ranks=ranks,
        hosts=frozenset(hosts),
        gpus=frozenset({gpu} if gpu else ()),
        pids=frozenset(pid for group in groups for pid in group.pids),
        sources=frozenset(_witness(group) for group in groups),
        captures=captures,
        by_rank=by_rank,
        place=sighting.place,
        traceback=any(group.traceback for group in groups),
        survivable=sighting.survivable,
        shadow=bool(sighting.rule and sighting.rule.status == "experimental"),
        presumed=_presumed(groups, inventory),
        over=Over(over.source.name, over.number, over.time) if (over := sighting.over) is not None else None,
        places=frozenset() if hosts else _places(groups, inventory),
        stray=stray,
        not_ours=not_ours,
        told=told,
    )


def _presumed(groups: Sequence[Group], inventory: Inventory) -> Unit:
    """Where it probably happened, by what its one log says of its processes and hosts."""
    logs = {(group.sighting.line.source.name, group.sighting.attempt) for group in groups}
    if len(logs) != 1 or groups[0].sighting.line.source.kind not in ("job", "launcher"):
        return Unit()
    source, attempt = logs.pop()
    failed = inventory.whereabouts.failed(source, attempt, groups[0].sighting.error_type)
    host = failed.host or inventory.whereabouts.host(source, attempt)
    return Unit(rank=failed.rank, pid=failed.pid, host=inventory.canonical_host(host) if host else None)


def _places(groups: Sequence[Group], inventory: Inventory) -> frozenset[str]:
    """Where launchers saw it happen, if all of the finding's logs tell."""
    found: set[str] = set()
    for group in groups:
        source = group.sighting.line.source
        hosts = inventory.whereabouts.failed_on(source.name, group.sighting.attempt, group.sighting.error_type)
        if not hosts:
            return frozenset()
        found.update(inventory.canonical_host(host) for host in hosts)
    return frozenset(found)


def _witness(group: Group) -> SourceKind:
    """Who says it: the kind of the source, or the kernel where its lines were pasted into a job's log."""
    line, rule = group.sighting.line, group.sighting.rule
    if line.source.kind == "job" and rule and "kernel" in rule.sources and is_kernel_line(line.text):
        return "kernel"
    return line.source.kind


def _collected(
    collect: Mapping[str, str], by_rank: Mapping[int, Mapping[str, Value]], groups: Sequence[Group]
) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for name, capture in collect.items():
        if capture == "rank":
            found[name] = tuple(sorted({rank for group in groups for rank in group.ranks}))
            continue
        values = {captures[capture] for captures in by_rank.values() if capture in captures}
        own = {group.sighting.captures[capture] for group in groups if capture in group.sighting.captures}
        flat = [value for value in values | own if not isinstance(value, tuple)]
        found[name] = tuple(sorted(flat, key=lambda value: (isinstance(value, str), value)))
    return found


def _chosen(groups: Sequence[Group]) -> list[EvidenceDraft]:
    """A few lines of evidence: the first of each group in turn, each line once."""
    chosen: list[EvidenceDraft] = []
    seen: set[tuple[str, int]] = set()
    for depth in range(_EVIDENCE):
        for group in groups:
            if depth >= len(group.evidence) or len(chosen) >= _EVIDENCE:
                continue
            draft = group.evidence[depth]
            place = (draft.line.source.name, draft.line.number)
            if place not in seen:
                seen.add(place)
                chosen.append(draft)
    return chosen


def evidence_of(
    draft: EvidenceDraft, inventory: Inventory, host: str | None = None, gpu: str | None = None
) -> Evidence:
    """The evidence that a report shows for a line."""
    line = draft.line
    known = (
        line.host or line.source.host or (inventory.host_of_rank(line.rank) if line.rank is not None else None) or host
    )
    return Evidence(
        source=line.source.name,
        line=line.number,
        text=line.text[:_TEXT],
        time=iso(line.time),
        rank=line.rank,
        host=inventory.canonical_host(known) if known else None,
        gpu=line.gpu or gpu,
        before=draft.before,
        after=tuple(draft.after),
        message=line.body[:_TEXT],
    )


def line_evidence(line: Line, inventory: Inventory) -> Evidence:
    """The evidence of a line without context."""
    return evidence_of(EvidenceDraft(line), inventory)


def iso(time: float | None) -> str | None:
    """Seconds since the epoch as ISO 8601 in UTC; whole seconds without a fraction."""
    if time is None:
        return None
    try:
        microseconds = round(time * 1_000_000)
        stamp = gmtime(microseconds // 1_000_000)  # `datetime` would be another module to load
    except (OverflowError, OSError, ValueError):
        return None
    if not 1 <= stamp.tm_year <= 9999:
        return None
    date = f"{stamp.tm_year:04d}-{stamp.tm_mon:02d}-{stamp.tm_mday:02d}"
    clock = f"{stamp.tm_hour:02d}:{stamp.tm_min:02d}:{stamp.tm_sec:02d}"
    fraction = microseconds % 1_000_000
    return f"{date}T{clock}" + (f".{fraction // 1000:03d}" if fraction else "") + "Z"
