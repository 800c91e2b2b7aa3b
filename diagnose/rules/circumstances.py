"""What surrounds a root when the policy is asked what to do: whom it struck, and what happened before.

In: the judgement of the last attempt, the history. Out: `Situation`, and what history says, in words.
"""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.lines.inventory import Inventory
from diagnose.lines.timeline import AttemptProgress
from diagnose.models import Culprit, Drained, Finding, History
from diagnose.models.rule import AttributionName
from diagnose.rules.judge import Judge, Judgement
from diagnose.rules.policy import Situation
from diagnose.rules.repeats import days_remembered
from diagnose.rules.suspects import Suspects

_SPANS = (1, 7)  # days in which what happened before may be told more closely than by how long it is remembered


class Circumstances:
    """Those of the attempt that is diagnosed, the `last`."""

    def __init__(
        self, judge: Judge, last: Judgement, suspects: Suspects, inventory: Inventory, history: History
    ) -> None:
        self._judge = judge
        self._last = last
        self._suspects = suspects
        self._inventory = inventory
        self._history = history

    def situation(
        self,
        root: Finding | None,
        error_type: str | None,
        attribution: AttributionName | None,
        culprits: Sequence[Culprit],
    ) -> Situation:
        """What the policy is asked about, of a root or (None) of a job whose failure has no name."""
        hosts = self._suspects.hosts(self._last, root, culprits)
        unit = hosts[0] if len(hosts) == 1 else None
        gpu = next((culprit.id for culprit in culprits if culprit.kind == "gpu"), None)
        repeats = (
            self._history.unit_failures(host=unit, gpu=gpu, error_type=error_type, days=days_remembered(error_type))
            if unit and error_type
            else 0
        )
        again = 0
        if self._last.status != "no_failure":
            again = repeats_of(self._history, error_type, self._last.progress, place_of(root))
        return Situation(
            status=self._last.status,
            error_type=error_type,
            attribution=attribution,
            root=root,
            rule=self._judge.rule(root),
            progress=self._last.progress,
            culprits=culprits,
            hosts=hosts,
            struck=frozenset(host for finding in self._last.same_kind for host in finding.hosts),
            job_hosts=len(self._inventory.hosts),
            unit_repeats=repeats,
            workload_repeats=again,
            drained=self._history.drained(besides=hosts) if hosts else Drained(),
        )

    def told(self, situation: Situation) -> list[str]:
        """What other jobs say of the unit, and earlier runs of this workload, in words."""
        said = []
        error_type, jobs = situation.error_type or "", situation.unit_repeats
        if jobs:
            host = situation.hosts[0]
            gpu = next((culprit.id for culprit in situation.culprits if culprit.kind == "gpu"), None)
            longest = days_remembered(error_type)
            days = next(
                (
                    days
                    for days in (*_SPANS, longest)
                    if days >= longest
                    or self._history.unit_failures(host=host, gpu=gpu, error_type=error_type, days=days) == jobs
                ),
                longest,
            )
            unit = f"{host} GPU {gpu}" if gpu else host
            jobs_said = "1 other job" if jobs == 1 else f"{jobs} other jobs"
            span = "a day" if days == 1 else f"{days} days"
            said.append(f"{unit} was the culprit of {jobs_said} in {span}, same error type")
        if situation.workload_repeats:
            times = "once" if situation.workload_repeats == 1 else f"{situation.workload_repeats} times"
            said.append(f"this workload failed alike {times} before and has come no further since")
        return said

    def driver_asks(self, hosts: Sequence[str]) -> dict[str, str]:
        """What the kernels of the hosts at fault say their GPUs need, the latest word of each."""
        said = [
            finding
            for finding in (*self._last.findings, *(aside.finding for aside in self._last.excluded))
            if isinstance(finding.captures.get("recovery"), str) and finding.sources & {"kernel"}
        ]
        said.sort(key=lambda finding: finding.last or 0.0)
        return {host: str(f.captures["recovery"]) for f in said for host in hosts if host in f.hosts}


def place_of(root: Finding | None) -> str:
    """Where in the code a failure arose, as far as that tells it from others of its type; empty for all else."""
    return root.place if root is not None and root.traceback else ""


def repeats_of(history: History, error_type: str | None, progress: AttemptProgress, place: str) -> int:
    """How often this workload failed alike before, and came no further; of a failure without a name, without one."""
    return history.workload_repeats(error_type=error_type or "", step=progress.last_step, place=place)
