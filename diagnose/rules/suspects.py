"""Whom a root is about: the ranks that others missed, the machine at fault, the unit that history is asked of.

In: the judgement of an attempt and its root, with what is known of ranks, hosts and processes. Out: culprits, units and
hosts. `culprits` reads one finding; here it is seen beside the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.lines.inventory import Inventory
from diagnose.lines.timeline import Timeline
from diagnose.models import Culprit, Finding
from diagnose.rules.collectives import absent_ranks, describe_ranks, silent_ranks
from diagnose.rules.culprits import find_culprits
from diagnose.rules.findings import iso
from diagnose.rules.judge import Judge, Judgement
from diagnose.rules.repeats import Unit, unit_of

_KILLED = frozenset({"DataloaderKilled", "ProcessKilled"})


class Suspects:
    """Answers for every attempt of a job; `ranks_known` is how many ranks it is known to have."""

    def __init__(self, judge: Judge, timeline: Timeline, inventory: Inventory, ranks_known: int) -> None:
        self._judge = judge
        self._timeline = timeline
        self._inventory = inventory
        self._ranks_known = ranks_known

    def absent(self, judgement: Judgement, root: Finding) -> tuple[tuple[int, ...], bool]:
        """The ranks that did not report a time-out, and whether that is only presumed of logs that end before it."""
        rule = self._judge.rule(root)
        if rule is None or rule.absent is None:
            return (), False
        ends = {source for finding in judgement.findings if finding.role == "teardown" for source in finding.spans}
        group = self._group(root)
        if absent := absent_ranks(root, self._timeline, self._inventory, group, ends):
            return absent, False
        silent = silent_ranks(root, self._timeline, self._inventory, group)
        return silent, bool(silent)

    def last_heard(self, ranks: Sequence[int]) -> str:
        """What is known of ranks that fell silent."""
        seen = [self._timeline.ranks[rank].mark.source for rank in ranks]
        ended = max((time for source in seen if (time := self._timeline.ended(source)) is not None), default=None)
        shown = iso(ended)
        return f"{describe_ranks(ranks)} wrote nothing" + (f" after {shown[11:19]}" if shown else " more")

    def own_pid(self, pid: int) -> bool:
        """Whether a process is one of the job's."""
        return self._inventory.for_pid(None, pid) is not None

    def unit(self, root: Finding, culprits: Sequence[Culprit]) -> Unit:
        """What a root is about; of ranks that were missed, their hosts."""
        unit = unit_of(root, culprits)
        if not _of_others(root):
            return unit
        ranks = (int(culprit.id) for culprit in culprits if culprit.kind == "rank" and culprit.id.isdigit())
        hosts = {host for rank in ranks if (host := self._inventory.host_of_rank(rank))}
        return Unit(hosts=frozenset(hosts) or frozenset(c.id for c in culprits if c.kind == "host"))

    def culprits(self, judgement: Judgement, root: Finding, absent: Sequence[int]) -> tuple[Culprit, ...]:
        """Who is to blame for a root, of all that was seen of its kind; `absent` are the ranks that others missed."""
        rule = self._judge.rule(root)
        heard = self._heard(judgement, root)
        found: dict[tuple[str, str], Culprit] = {}
        same = [root, *[f for f in judgement.same_kind if f.id != root.id and f.rule == root.rule]]
        if len(same) > 8 or any(f.role == "symptom" for f in same):
            same = [root]
        for finding in same:
            for culprit in find_culprits(
                finding,
                self._judge.rule(finding) if finding is not root else rule,
                self._inventory,
                absent,
                self._ranks_known,
                heard,
            ):
                found.setdefault((culprit.kind, culprit.id), culprit)
        if not found and root.role == "cause":
            # A record that names nobody (a job's state) is about what another rule saw of the same kind.
            others = [f for f in judgement.same_kind if f.rule != root.rule and f.hosts]
            for finding in others if len({f.hosts for f in others}) == 1 else ():
                witness = find_culprits(
                    finding, self._judge.rule(finding), self._inventory, (), self._ranks_known, heard
                )
                found.update({(culprit.kind, culprit.id): culprit for culprit in witness})
        if all(kind != "rank" for kind, _ in found) and (struck := self._struck(judgement, root)) is not None:
            known = {name for culprit in found.values() for name in culprit.names}
            if f"rank {struck.id}" not in known:
                found["rank", struck.id] = struck
        return tuple(found.values())

    def place(self, root: Finding, culprits: Sequence[Culprit]) -> str | None:
        """The host to look at, where it is one: the culprit's, or the one that the failed process ran on."""
        hosts = {culprit.id for culprit in culprits if culprit.machine}
        if not hosts and root.family != "comm":  # who waited ran elsewhere than who was missed
            hosts = set(root.hosts) or {host for rank in root.ranks if (host := self._inventory.host_of_rank(rank))}
        return next(iter(hosts)) if len(hosts) == 1 else None

    def hosts(self, judgement: Judgement, root: Finding | None, culprits: Sequence[Culprit]) -> list[str]:
        """The hosts that an action may be about; where some waited for others, those that were missed."""
        if root is None:
            return []
        if _of_others(root):
            return sorted(self.unit(root, culprits).hosts)
        hosts = [culprit.id for culprit in culprits if culprit.machine]
        return (
            hosts or sorted(root.hosts) or sorted({host for f in self.witnesses(judgement, root) for host in f.hosts})
        )

    def witnesses(self, judgement: Judgement, root: Finding) -> list[Finding]:
        """What tells of the same event on a device: explained by the root, and of its very type."""
        explained = judgement.graph.explained
        return [
            finding
            for finding in judgement.findings
            if finding.error_type == root.error_type and finding.gpus and root.id in explained.get(finding.id, ())
        ]

    def missed(self, absent: Sequence[int], culprits: Sequence[Culprit]) -> tuple[int, ...]:
        """The ranks that the others waited for: found absent, or named by those who waited."""
        return tuple(absent) or tuple(int(c.id) for c in culprits if c.kind == "rank" and c.id.isdigit())

    def _group(self, root: Finding) -> str | None:
        rule = self._judge.rule(root)
        if rule is None or rule.absent is None:
            return None
        value = root.captures.get(rule.absent.group)
        return str(value) if value is not None else None

    def _heard(self, judgement: Judgement, root: Finding) -> int | None:
        """Of how many ranks it is known how they fared; None where one log holds the words of several.

        Of a rank that has logs of its own nothing is known until it tells of an end, or was heard of after the failure
        as far as times tell.
        """
        progress = judgement.progress
        if not progress.apart or not progress.wrote:
            return None
        ended = {rank for finding in judgement.findings for rank in finding.ranks}
        times = {rank: seen.mark.time for rank, seen in self._timeline.ranks.items()}
        after = {
            rank
            for rank in progress.wrote
            if (time := times.get(rank)) is None or (root.first is not None and time >= root.first)
        }
        return len(progress.wrote & (ended | after))

    def _struck(self, judgement: Judgement, root: Finding) -> Culprit | None:
        """The rank that a fault of a machine struck, by what it explains: a device's error, a kill, a lost task."""
        if root.family not in ("hardware", "node", "host") or not root.sources & {"kernel", "scheduler"}:
            return None
        same_kind = {finding.id for finding in judgement.same_kind}
        for finding in judgement.findings:
            ranks = _struck_ranks(finding, root)
            explained = root.id in judgement.graph.explained.get(finding.id, ()) or finding.id in same_kind
            apart = root.gpus and finding.gpus and not root.gpus & finding.gpus
            if explained and len(ranks) == 1 and not apart:
                rank, why = str(ranks[0]), f"{finding.error_type} followed there"
                return Culprit("rank", rank, why, self._inventory.names("rank", rank))
        return None


def _of_others(root: Finding) -> bool:
    """Whether what was seen is about others than those who say it: they wait for them, or lost touch with them."""
    return root.family == "comm" or (root.error_type == "ConnectionError" and root.role == "symptom")


def _struck_ranks(finding: Finding, root: Finding) -> Sequence[int]:
    """Whose end a finding tells, if it is one that a fault of a machine brings about."""
    if finding.family == "cuda" or (finding.error_type == root.error_type and finding.id != root.id):
        return sorted(finding.ranks)
    if finding.error_type in _KILLED and finding.pids & root.pids:
        return sorted(finding.ranks)
    missing = finding.captures.get("missing")
    return [missing] if root.family == "node" and isinstance(missing, int) else []
