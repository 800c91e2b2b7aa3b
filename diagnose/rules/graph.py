"""The explanation graph of one attempt: which finding explains which, and what nothing explains.

In: findings, edges, clocks. Out: `Graph`: for each finding its explainers, the unexplained ones in order of suspicion,
and whether the first of them is ahead by proof or only by tie-break. No priority numbers: role, then time, then what
the job names before what it does not, specificity, id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from diagnose.clock import UNLIMITED, Clock
from diagnose.dataclass import dataclass
from diagnose.models import Finding
from diagnose.models.rule import Scope
from diagnose.rules.edges import Edges, Kind, kind_of
from diagnose.rules.nearby import Causes, hosts_of
from diagnose.rules.precedence import Clocks

AFTER_SYMPTOM = 30.0  # seconds: a cause may be logged a little after what it caused
LATE = 600.0  # seconds: a node that only stops answering is given up after minutes of silence
MARGIN = 120.0
DEFAULT_TIMEOUT = 3600.0  # how long an operation may wait where it does not say
_LONG_WAIT_MS = 60_000
# What a process dies of when others end it, as well as by itself: after the others gave up it says nothing of why.
_SIGNAL_DEATHS = frozenset({"ProcessKilled", "SegmentationFault"})
_EXPLAINERS = 8  # per pair of kinds: the earliest say all there is to say
_MOST_EXPLAINERS = 512  # of one finding


@dataclass(frozen=True, slots=True)
class Graph:
    """Explanations by finding id.

    `roots` are unexplained, most suspect first; `tied` are those that `roots[0]` is ahead of only by specificity or
    id. `notes` tell of cycles that time had to break. `unweighed` counts the latest findings, for which no time
    was left to ask what explains them: they are no roots.
    """

    explained: Mapping[str, tuple[str, ...]]
    roots: tuple[Finding, ...]
    tied: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    unweighed: int = 0


def explain(
    findings: Sequence[Finding], edges: Edges, clocks: Clocks, specificity: Mapping[str, int], limit: Clock = UNLIMITED
) -> Graph:
    """Builds the graph. Shadow findings are explained like others but explain nothing and are never roots."""
    explained, unweighed = _edges(findings, edges, clocks, limit)
    notes = _break_cycles(findings, explained, clocks, specificity)
    unexplained = [
        finding
        for finding in findings
        if not explained[finding.id] and not finding.shadow and finding.id not in unweighed
    ]
    roots = order(unexplained, clocks, specificity)
    candidates = [finding for finding in roots[1:] if finding.role == roots[0].role] if roots else []
    tied = tuple(finding for finding in candidates if clocks.before(roots[0], finding) is not True)
    told = {name: tuple(causes) for name, causes in explained.items()}
    return Graph(told, tuple(roots), tied, notes, len(unweighed))


def order(findings: Sequence[Finding], clocks: Clocks, specificity: Mapping[str, int]) -> list[Finding]:
    """Findings by role, then first in time as far as known, then the more specific, then id."""
    remaining = sorted(findings, key=lambda finding: _tie_break(finding, specificity))
    ordered: list[Finding] = []
    for role in ("cause", "symptom", "teardown"):
        group = [finding for finding in remaining if finding.role == role]
        while group:
            best = group[0]
            for finding in group[1:]:
                if clocks.before(finding, best):
                    best = finding
            ordered.append(best)
            group = [finding for finding in group if finding is not best]
            if len(ordered) > 64:  # nobody reads further; keep the rest as it is
                ordered.extend(group)
                break
    return ordered


def _tie_break(finding: Finding, specificity: Mapping[str, int]) -> tuple[bool, int, str]:
    return (finding.stray, -specificity.get(finding.rule or "", -1), finding.id)


def _edges(
    findings: Sequence[Finding], edges: Edges, clocks: Clocks, limit: Clock
) -> tuple[dict[str, list[str]], set[str]]:
    """Who explains whom, and of whom there was no time to ask: the latest."""
    explained: dict[str, list[str]] = {finding.id: [] for finding in findings}
    by_kind: dict[Kind, list[Finding]] = {}
    for finding in findings:
        by_kind.setdefault(kind_of(finding), []).append(finding)
    causes = [Causes(group, clocks) for group in by_kind.values() if not group[0].shadow]
    reaching: dict[Kind, list[tuple[Causes, Scope]]] = {}
    unweighed: set[str] = set()
    timed = [(clocks.first(finding), finding) for finding in findings]
    timed.sort(key=lambda item: (item[0] is None, item[0] or 0.0))
    for time, effect in timed:
        if limit.over:
            unweighed.add(effect.id)
            continue
        kind = kind_of(effect)
        if kind not in reaching:
            scopes = [(group, edges.scope(group.first, effect)) for group in causes]
            reaching[kind] = [(group, scope) for group, scope in scopes if scope is not None]
        names = explained[effect.id]
        for group, scope in reaching[kind]:
            names += _explainers(group, effect, scope, time, clocks)
            if len(names) >= _MOST_EXPLAINERS:
                break
    return explained, unweighed


def _explainers(group: Causes, effect: Finding, scope: Scope, time: float | None, clocks: Clocks) -> list[str]:
    """The earliest of one kind that explain an effect."""
    near = group.near(effect, scope, time, reach(effect), LATE)
    found = (cause.id for cause in near if cause.id != effect.id and plausible(cause, effect, scope, clocks))
    return list(islice(found, _EXPLAINERS))


def plausible(cause: Finding, effect: Finding, scope: Scope, clocks: Clocks) -> bool:
    """Whether place and time let `cause` explain `effect`. What is not known speaks for neither side."""
    if cause.not_ours or (scope in ("host", "gpu") and _apart(cause, effect)):
        return False
    if scope == "gpu" and cause.gpus and effect.gpus and not cause.gpus & effect.gpus:
        return False
    if cause.role == "teardown" and effect.role == "cause" and clocks.before(cause, effect) is not True:
        return False  # clean-up ends a process only once it has begun
    if cause.error_type in _SIGNAL_DEATHS and waited(effect) >= _LONG_WAIT_MS and clocks.before(effect, cause):
        return False  # what was waited for had gone wrong long before
    if cause.family == "scheduler" and effect.error_type == "CollectiveHang" and not clocks.before(cause, effect):
        return False  # a hang is noticed while there is still a job
    late = _found_late(cause)
    gap = clocks.gap(cause, effect)
    if gap is None:
        # Without times the order of lines in one file decides, with the slack of a few lines for buffering.
        return late or clocks.before(cause, effect) is not False or _close(cause, effect) or effect.role != "cause"
    return -(LATE if late else AFTER_SYMPTOM) <= gap <= reach(effect)


def _apart(cause: Finding, effect: Finding) -> bool:
    """Whether both have hosts, and none in common."""
    one, other = hosts_of(cause), hosts_of(effect)
    return bool(one and other and one.isdisjoint(other))


def _found_late(cause: Finding) -> bool:
    """Whether others give a node up, who miss it well after its peers did; its own kernel says it at once."""
    return cause.error_type == "NodeFailure" and not cause.sources <= {"kernel"}


def _close(cause: Finding, effect: Finding) -> bool:
    return any(
        abs(cause.spans[source][0] - effect.spans[source][0]) <= 60  # lines
        for source in cause.spans.keys() & effect.spans.keys()
    )


def reach(effect: Finding) -> float:
    """How long before its effect a cause may lie, in seconds: the operation's own time-out and a margin."""
    if effect.role == "teardown":
        return float("inf")  # clean-up comes when it comes
    return (waited(effect) / 1000 or DEFAULT_TIMEOUT) + MARGIN


def waited(effect: Finding) -> int:
    """Milliseconds that an operation waited, or its time-out; 0 where it does not say."""
    values = (effect.captures.get("timeout_ms"), effect.captures.get("ran_ms"))
    return max((value for value in values if isinstance(value, int)), default=0)


def _break_cycles(
    findings: Sequence[Finding], explained: dict[str, list[str]], clocks: Clocks, specificity: Mapping[str, int]
) -> tuple[str, ...]:
    """Removes explanations that run in a circle: within one, only the earlier explains the later."""
    by_id = {finding.id: finding for finding in findings}
    notes: list[str] = []
    for component in _components(explained):
        if len(component) < 2:
            continue
        ranked = order([by_id[name] for name in component], clocks, specificity)
        position = {finding.id: index for index, finding in enumerate(ranked)}
        for name in component:
            explained[name] = [
                cause for cause in explained[name] if cause not in position or position[cause] < position[name]
            ]
        notes.append("explanations ran in a circle and were ordered by time: " + ", ".join(f.id for f in ranked[:6]))
    return tuple(notes)


def _components(graph: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Strongly connected components (Tarjan), without recursion."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    on_stack: set[str] = set()
    stack: list[str] = []
    components: list[list[str]] = []
    for start in graph:
        if start in index:
            continue
        work: list[tuple[str, int]] = [(start, 0)]
        while work:
            node, child = work.pop()
            if child == 0:
                index[node] = low[node] = len(index)
                stack.append(node)
                on_stack.add(node)
            for position in range(child, len(graph[node])):
                following = graph[node][position]
                if following not in index:
                    work.append((node, position + 1))
                    work.append((following, 0))
                    break
                if following in on_stack:
                    low[node] = min(low[node], index[following])
            else:
                if low[node] == index[node]:
                    component: list[str] = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.append(member)
                        if member == node:
                            break
                    components.append(component)
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
    return components
