"""How well a root is proven: the lines that are cited for it, and how sure they make us.

In: the judgement of the last attempt, the roots of the earlier ones. Out: evidence and sureness.
"""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.lines.inventory import Inventory
from diagnose.models import Evidence, Finding
from diagnose.models.report import Sureness
from diagnose.rules.findings import line_evidence
from diagnose.rules.judge import Judgement
from diagnose.rules.survival import failed_exits

_EVIDENCE = 8


class Proof:
    """What proves the root of the attempt that is diagnosed (the `last`), or that it failed at all."""

    def __init__(self, last: Judgement, earlier: Sequence[Finding], inventory: Inventory) -> None:
        self._last = last
        self._earlier = earlier
        self._inventory = inventory

    def sureness(self, root: Finding, rivals: bool, *, settled: bool) -> Sureness:
        """How sure a root is, where `rivals` may be the cause as well; a `settled` one needs no witness."""
        if rivals or root.stray or root.not_ours or (root.role == "symptom" and not settled):
            return "possible"
        explained = [f for f in self._last.findings if root.id in self._last.graph.explained.get(f.id, ())]
        kinds = set(root.sources)
        for finding in explained:
            if finding.family == "cuda" or finding.error_type in (
                "ProcessKilled",
                "DataloaderKilled",
                "Terminated",
                "PeerClosed",
            ):
                tied = self._last.clocks.together(root, finding, self._last.progress)
                kinds |= finding.sources if tied else frozenset()
        # The same failure again is a second witness only where it is the same line or the same unit.
        again = any(_again(f, root) for f in self._earlier)
        agree = len(kinds) > 1 and not self._in_one_log(root, explained)
        sure: Sureness = "confirmed" if agree or again else "likely"
        if root.captures.get("assumed"):
            return "likely" if sure == "confirmed" else "possible"
        return sure

    def _in_one_log(self, root: Finding, explained: Sequence[Finding]) -> bool:
        """Whether all who agree stand in one log of the job's own: a kernel's line there is no other source."""
        same = (f for f in self._last.same_kind if f.error_type == root.error_type)
        return root.told.printed and len({name for f in (root, *same, *explained) for name in f.spans}) == 1

    def of_root(self, root: Finding) -> tuple[Evidence, ...]:
        """The deciding lines: the root's own, the same failure of an earlier attempt, a witness, what it led to."""
        same = [root, *[f for f in self._last.same_kind if f.id != root.id]]
        explained = [
            f for f in self._last.findings if f.evidence and root.id in self._last.graph.explained.get(f.id, ())
        ]
        again = [f.evidence[0] for f in self._earlier if f.evidence and (_again(f, root) or _alike(f, root))]
        witnesses = [f for f in same if f.evidence and f.sources - {"kernel", "scheduler"}]
        witnesses += [f for f in explained if f.family == "cuda"]
        own = [(item.source, item.line) for item in root.evidence]
        confirming = [f.evidence[0] for f in witnesses if (f.evidence[0].source, f.evidence[0].line) not in own]
        led_to = [f.evidence[0] for f in explained if f.role != "teardown" and f.error_type != root.error_type]
        led_to.sort(key=lambda item: (item.time is None, item.time or "", item.source, item.line))
        rest = [*root.evidence[1:], *[f.evidence[0] for f in same[1:] if f.evidence]]
        chosen: list[Evidence] = []
        ranked = [*root.evidence[:1], *again[:1], *root.evidence[1 : 1 + (not again)], *(confirming or led_to)[:1]]
        for evidence in [*ranked, *rest[: 4 * _EVIDENCE]]:
            if all((evidence.source, evidence.line) != (known.source, known.line) for known in chosen):
                chosen.append(evidence)
        return tuple(chosen[:_EVIDENCE])

    def of_failure(self) -> tuple[Evidence, ...]:
        """Lines that say that the attempt failed, where none says why."""
        teardown = [f for f in self._last.findings if f.evidence]
        lines = [line_evidence(line, self._inventory) for _, line in failed_exits(self._last.progress)[:2]]
        return tuple([*[f.evidence[0] for f in teardown[:3]], *lines][:_EVIDENCE])


def _again(earlier: Finding, root: Finding) -> bool:
    """Whether an earlier attempt's root is the same failure: the same line of code, or the same unit."""
    if earlier.error_type != root.error_type:
        return False
    return (
        earlier.place == root.place if root.traceback else bool(earlier.gpus & root.gpus or earlier.hosts & root.hosts)
    )


def _alike(earlier: Finding, root: Finding) -> bool:
    """Whether an earlier attempt's root is told by the same rule and neither names a unit: worth citing, no witness."""
    return earlier.rule == root.rule and not any((earlier.gpus, earlier.hosts, root.gpus, root.hosts, root.traceback))
