"""The verdict on a job: its last attempt, seen beside the earlier ones.

In: findings of all attempts, progress, inventory, history. Out: `Verdict`: every field of a report that knowledge
decides. `pipeline` adds what reading cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from diagnose.clock import UNLIMITED, Clock
from diagnose.dataclass import dataclass, replace
from diagnose.lines.inventory import Inventory
from diagnose.lines.timeline import AttemptProgress, Timeline
from diagnose.models import (
    Alternative,
    AttemptSummary,
    ChainLink,
    Culprit,
    DiagnosisRule,
    Evidence,
    ExcludedFinding,
    Explanation,
    Finding,
    History,
    Progress,
    Recovery,
    RootCause,
    RuleSet,
)
from diagnose.models.report import ReportStatus, Sureness
from diagnose.models.rule import AttributionName
from diagnose.rules.alternatives import alternatives
from diagnose.rules.attribution import Shape, attribute
from diagnose.rules.captures import Value
from diagnose.rules.chain import chain
from diagnose.rules.circumstances import Circumstances
from diagnose.rules.collectives import busy_elsewhere, describe_ranks
from diagnose.rules.findings import iso
from diagnose.rules.judge import Judge, Judgement
from diagnose.rules.others import cancelled_by_administrator, cancelled_by_owner, foreign_memory
from diagnose.rules.places import job_places
from diagnose.rules.policy import Situation, recover
from diagnose.rules.proof import Proof
from diagnose.rules.repeats import Earlier, Repeats, look_back
from diagnose.rules.survival import failed_exits
from diagnose.rules.suspects import Suspects
from diagnose.rules.words import words_of

_DIED = frozenset({"ChildFailed", "Terminated", "Aborted", "RemoteTaskFailed", "ProcessKilled", "SegmentationFault"})
_MACHINES = frozenset({"host", "gpu", "nic", "switch"})  # not to blame for code and settings
_WITHOUT_RULE = "python-traceback"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was decided, and on what grounds.

    `unweighed` counts the findings that there was no time to weigh; `situation` is what the policy was asked about.
    """

    status: ReportStatus
    error_type: str | None
    category: str | None
    attribution: AttributionName | None
    sureness: Sureness | None
    root_cause: RootCause | None
    alternatives: tuple[Alternative, ...]
    chain: tuple[ChainLink, ...]
    culprits: tuple[Culprit, ...]
    recovery: Recovery
    progress: Progress
    attempts: tuple[AttemptSummary, ...]
    rule: str | None
    explanation: Explanation
    situation: Situation
    unweighed: int = 0


def decide(
    findings: Sequence[Finding],
    excluded: Sequence[ExcludedFinding],
    rule_set: RuleSet,
    attempts: Mapping[int, AttemptProgress],
    timeline: Timeline,
    inventory: Inventory,
    history: History,
    job: str | None = None,
    limit: Clock = UNLIMITED,
) -> Verdict:
    """Judges every attempt and builds the verdict on the last.

    Also where the last has only begun: whether it fails again, and of what, its missing end would tell (what is missing
    makes no culprit). The failures before it are listed with the attempts. `job` is the number by which Slurm knows it.
    Beyond the time `limit` what is left is not weighed.
    """
    ranks_known = max(inventory.world_size or 0, len(inventory.ranks_seen), len(timeline.ranks))
    judge = Judge(rule_set, ranks_known, limit)
    by_attempt: dict[int, list[Finding]] = {}
    for finding in findings:
        by_attempt.setdefault(finding.attempt, []).append(finding)
    # One that failed before it told of a step or a time is an attempt as well.
    indexes = sorted({*attempts, *by_attempt}) or [0]
    # The last one first: it is the one that the time must suffice for.
    judged = {
        index: judge.judge(index, by_attempt.get(index, ()), attempts.get(index, AttemptProgress()))
        for index in reversed(indexes)
    }
    last = judged[indexes[-1]]
    judged = dict(sorted(judged.items()))
    builder = _Builder(judge, rule_set, judged, last, excluded, timeline, inventory, history, ranks_known, job)
    return replace(builder.build(), unweighed=sum(one.unweighed for one in judged.values()))


class _Builder:
    def __init__(
        self,
        judge: Judge,
        rule_set: RuleSet,
        judged: Mapping[int, Judgement],
        last: Judgement,
        excluded: Sequence[ExcludedFinding],
        timeline: Timeline,
        inventory: Inventory,
        history: History,
        ranks_known: int,
        job: str | None,
    ) -> None:
        self._judge = judge
        self._rule_set = rule_set
        self._judged = judged
        self._last = last
        self._earlier = [one.root for one in judged.values() if one is not last and one.root is not None]
        self._excluded = excluded
        self._timeline = timeline
        self._inventory = inventory
        self._history = history
        self._ranks_known = ranks_known
        self._job = job
        self._suspects = Suspects(judge, timeline, inventory, ranks_known)
        self._circumstances = Circumstances(judge, last, self._suspects, inventory, history)
        self._proof = Proof(last, self._earlier, inventory)

    def build(self) -> Verdict:
        root = self._last.root
        return self._named(root) if self._last.status == "failed" and root is not None else self._unnamed()

    def _named(self, root: Finding) -> Verdict:
        last = self._last
        rule = self._judge.rule(root)
        error_type = root.error_type
        if last.completed and root.family in ("comm", "teardown", "framework") and root.role != "cause":
            error_type = "TeardownHang"
        entry = self._rule_set.taxonomy.get(error_type)
        if entry is None or entry.symptom:
            return self._unnamed()
        absent, silent = self._suspects.absent(last, root)
        captures: dict[str, Value] = {**root.captures}
        if absent:
            captures["absent"] = absent
            root = replace(root, captures=captures)
        culprits = self._suspects.culprits(last, root, absent)
        repeats = self._look_back(root, culprits, rule)
        foreign = foreign_memory(root, rule, self._suspects.own_pid)
        busy = busy_elsewhere(root, self._suspects.missed(absent, culprits), last.progress, self._timeline)
        died = bool(failed_exits(last.progress)) or any(f.error_type in _DIED for f in last.findings)
        struck = last.findings if error_type == "CUDAError" else ()
        shape = Shape(
            last.same_kind, self._earlier, repeats, last.progress, self._ranks_known, foreign, busy, died, struck
        )
        blame = attribute(root, rule, entry, shape)
        if blame.name == "user" and root.family in ("cuda", "network"):
            culprits = tuple(culprit for culprit in culprits if culprit.kind not in _MACHINES)
        situation = self._circumstances.situation(root, error_type, blame.name, culprits)
        situation = replace(
            situation,
            repeats=repeats,
            all_ranks=blame.all_ranks,
            foreign=foreign is not None,
            by_owner=error_type == "JobCancelled" and (situation.tagged("by-hand") or cancelled_by_owner(root)),
            by_administrator=error_type == "JobCancelled" and cancelled_by_administrator(root),
            driver_asks=self._circumstances.driver_asks(situation.hosts),
        )
        place = self._suspects.place(root, culprits)
        words = words_of(root, rule, captures, place, self._job)
        cause = words.cause
        if silent:
            # That they never came is not known: what they wrote last is.
            known = {name: value for name, value in captures.items() if name != "absent"}
            cause = f"{words_of(root, rule, known, place, self._job).cause}; {self._suspects.last_heard(absent)}"
        settled = situation.by_owner  # whoever cancelled a job of their own is the cause of its end
        rivals = alternatives(last, root, rule, absent, self._inventory, self._ranks_known, settled=settled)
        reasons = [*blame.reasons, *self._circumstances.told(situation)]
        if silent:
            logs = "its log goes" if len(absent) == 1 else "their logs go"
            reasons.append(
                f"{describe_ranks(absent)} did not report the time-out: {logs} as far as the others had come and no "
                "further, unless cut off there"
            )
        elif absent:
            read = "its log was" if len(absent) == 1 else "their logs were"
            reasons.append(f"{describe_ranks(absent)} did not report the time-out, though {read} read")
        if root.stray:
            places = job_places(self._inventory)
            reasons.extend(places.none_of_them(host) for host in sorted(root.hosts))
        if root.not_ours:
            reasons.extend(f"none of the job's ranks runs on GPU {gpu}" for gpu in sorted(root.gpus))
        reasons.extend(note for note in last.notes if note not in last.graph.notes)
        return Verdict(
            status="failed",
            error_type=error_type,
            category=entry.category,
            attribution=blame.name,
            sureness=self._proof.sureness(root, bool(rivals), settled=settled),
            root_cause=RootCause(cause, self._proof.of_root(root), tuple(reasons)),
            alternatives=rivals,
            chain=chain(last, root, _WITHOUT_RULE),
            culprits=culprits,
            recovery=recover(self._rule_set.policy, situation, words.hint, words.checks, self._rule_set.budgets),
            progress=self._progress(),
            attempts=self._attempts(error_type),
            rule=root.rule or _WITHOUT_RULE,
            explanation=self._explanation(blame.reasons),
            situation=situation,
        )

    def _unnamed(self) -> Verdict:
        last = self._last
        situation = self._circumstances.situation(None, None, "unknown" if last.status == "failed" else None, ())
        root_cause = None
        hint = ""
        if last.status == "failed":
            evidence = self._proof.of_failure()
            root_cause = RootCause("The job failed; nothing read says why", evidence, last.notes)
            hint = self._read_next(evidence)
        elif last.status == "inconclusive":
            hint = self._what_decides()
        return Verdict(
            status=last.status,
            error_type=None,
            category=None,
            attribution="unknown" if last.status == "failed" else None,
            sureness="possible" if last.status == "failed" else None,
            root_cause=root_cause,
            alternatives=(),
            chain=chain(last, None, _WITHOUT_RULE) if last.status != "no_failure" else (),
            culprits=(),
            recovery=recover(self._rule_set.policy, situation, hint, (), self._rule_set.budgets),
            progress=self._progress(),
            attempts=self._attempts(None),
            rule=None,
            explanation=self._explanation(()),
            situation=situation,
        )

    def _look_back(self, root: Finding, culprits: Sequence[Culprit], rule: DiagnosisRule | None) -> Repeats:
        suspects, last = self._suspects, self._last
        earlier = [
            Earlier(
                one.root,
                suspects.unit(one.root, suspects.culprits(one, one.root, suspects.absent(one, one.root)[0])),
                one.progress,
            )
            for one in self._judged.values()
            if one is not last and one.root is not None
        ]
        excluded = (*last.excluded, *self._excluded)
        unit, witnesses = suspects.unit(root, culprits), suspects.witnesses(last, root)
        canonical = self._inventory.canonical_host
        return look_back(root, unit, last.progress, earlier, excluded, witnesses, last.same_kind, rule, canonical)

    def _progress(self) -> Progress:
        progress = self._last.progress
        started, complete = progress.checkpoint_started, progress.checkpoint_complete
        checkpoint = complete or started
        return Progress(
            first_step=progress.first_step,
            last_step=progress.last_step,
            last_step_time=iso(progress.last_step_time),
            last_checkpoint=checkpoint,
            last_checkpoint_complete=None if checkpoint is None else complete is not None,
            completed=self._last.completed or None if self._last.status == "inconclusive" else self._last.completed,
        )

    def _attempts(self, error_type: str | None) -> tuple[AttemptSummary, ...]:
        made: list[AttemptSummary] = []
        for index, judgement in sorted(self._judged.items()):
            diagnosed = index == self._last.attempt
            named = error_type if diagnosed else (judgement.root.error_type if judgement.root else None)
            entry = self._rule_set.taxonomy.get(named or "")
            progress = judgement.progress
            made.append(
                AttemptSummary(
                    index,
                    diagnosed,
                    None if entry is None or entry.symptom else named,
                    progress.last_step,
                    iso(progress.started),
                    iso(progress.ended),
                )
            )
        return tuple(made)

    def _explanation(self, attribution: Sequence[str]) -> Explanation:
        return Explanation(
            findings=self._last.findings,
            explained=self._last.graph.explained,
            excluded=(*self._last.excluded, *self._excluded),
            attribution=tuple(attribution),
            notes=self._last.notes,
        )

    def _read_next(self, evidence: Sequence[Evidence]) -> str:
        named = next((item for item in evidence if item.rank is not None or item.host), None)
        if named is None:
            process = self._ended_first() or "the process that ended first"
            record = f" (sacct -j {self._job})" if self._job else ""
            return f"Read the standard error of {process}, and the scheduler's record of the job{record}."
        who = f"rank {named.rank}" if named.rank is not None else f"host {named.host}"
        return f"Read the log of {who}, which ended first ({named.source}:{named.line})."

    def _ended_first(self) -> str | None:
        """The task that a launcher saw end badly, by its own number, which need not be a rank."""
        told = next((f.captures for f in self._last.findings if "task" in f.captures and "node" in f.captures), None)
        if told is None:
            return None
        task = str(told["task"])
        return f"task{'' if task.isdigit() else 's'} {task} on {told['node']}, which ended first"

    def _what_decides(self) -> str:
        progress = self._last.progress
        ask = f" (sacct -j {self._job} -o JobID,State,ExitCode,NodeList)" if self._job else ""
        if not progress.steps and not self._last.findings:
            return f"Neither a failure nor an end was read: how the job ended would decide{ask}."
        if progress.steps:
            at = f" at step {progress.last_step}" if progress.last_step is not None else ""
            return f"The log ends{at} with the job at work: its state now, or the end of the log, would decide{ask}."
        return f"The exit status of the job or the scheduler's record would decide{ask}."
