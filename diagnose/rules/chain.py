"""From cause to last symptom: what a root explains, directly or through others, one link per kind of finding.

In: a judged attempt and its root. Out: links in the order of time, the root and what died of it first.
"""

from __future__ import annotations

from diagnose.models import ChainLink, Finding
from diagnose.rules.judge import Judgement

_CHAIN = 32
_OF_MACHINE = frozenset({"hardware", "node", "host", "cuda"})
_DEATHS = frozenset({"DataloaderKilled", "ProcessKilled", "SegmentationFault"})


def chain(judgement: Judgement, root: Finding | None, without_rule: str) -> tuple[ChainLink, ...]:
    """The root, then everything it explains directly or through others, one link per kind of finding, by time."""
    graph = judgement.graph
    by_id = {finding.id: finding for finding in judgement.findings}
    if root is not None:
        reached = {root.id}
        grew = True
        while grew:
            more = {name for name, causes in graph.explained.items() if name not in reached and reached & set(causes)}
            reached |= more
            grew = bool(more)
        members = [by_id.get(name, root) for name in graph.explained if name in reached]
    else:
        members = list(judgement.findings)
    same = {f.id for f in judgement.same_kind}
    known = {f.id for f in members}
    members += [f for f in judgement.same_kind if f.id not in known]
    groups: dict[tuple[str | None, str, str], list[Finding]] = {}
    direct = {name for name, causes in graph.explained.items() if root is not None and root.id in causes}
    for finding in members:
        groups.setdefault((finding.rule, finding.error_type, finding.role), []).append(finding)
    links: list[tuple[tuple[object, ...], ChainLink]] = []
    for (rule, error_type, _role), group in groups.items():
        group.sort(key=lambda f: (f.first is None, f.first or 0.0, f.id))
        first = group[0]
        is_root = root is not None and any(f.id == root.id or f.id in same for f in group)
        causes = [by_id[name] for f in group for name in graph.explained.get(f.id, ()) if name in by_id]
        why = (
            None
            if is_root or not causes
            else (
                root.rule or without_rule
                if root and any(c.id == root.id for c in causes)
                else causes[0].rule or without_rule
            )
        )
        ranks = tuple(sorted({rank for f in group for rank in f.ranks}))[:4096]
        start = judgement.clocks.first(first)
        evidence = first.evidence[0] if first.evidence else None
        if evidence is None:
            continue
        # What died of it comes before those who waited for the dead, whose clocks may be others or none.
        died = root is not None and root.family in _OF_MACHINE and _died(first) and any(f.id in direct for f in group)
        order = (
            not is_root,
            not died,
            start is None,
            start or 0.0,
            min(first.spans.values(), default=(0, 0))[0],
        )
        links.append(
            (order, ChainLink(error_type, first.role, sum(f.count for f in group), evidence, rule, why, ranks))
        )
    links.sort(key=lambda item: item[0])
    return tuple(link for _, link in links[:_CHAIN])


def _died(finding: Finding) -> bool:
    """Whether it tells what happened to a device or a process, and not what others saw of it."""
    return finding.role == "cause" and (finding.family in ("hardware", "cuda") or finding.error_type in _DEATHS)
