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
    Drained,
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
from diagnose.rules.collectives import absent_ranks, busy_elsewhere, describe_ranks, silent_ranks
from diagnose.rules.culprits import find_culprits
from diagnose.rules.findings import iso, line_evidence
from diagnose.rules.judge import Judge, Judgement
from diagnose.rules.others import cancelled_by_administrator, cancelled_by_owner, foreign_memory
from diagnose.rules.places import job_places
from diagnose.rules.policy import Situation, recover
from diagnose.rules.repeats import Earlier, Repeats, Unit, days_remembered, look_back, unit_of
from diagnose.rules.survival import failed_exits
from diagnose.rules.words import words_of

_EVIDENCE = 8
_DIED = frozenset({"ChildFailed", "Terminated", "Aborted", "RemoteTaskFailed", "ProcessKilled", "SegmentationFault"})
_KILLED = frozenset({"DataloaderKilled", "ProcessKilled"})
_MACHINES = frozenset({"host", "gpu", "nic", "switch"})  # not to blame for code and settings
_WITHOUT_RULE = "python-traceback"
_SPANS = (1, 7)  # days in which what happened before may be told more closely than by how long it is remembered


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
        absent, silent = self._absent(last, root)
        captures: dict[str, Value] = {**root.captures}
        if absent:
            captures["absent"] = absent
            root = replace(root, captures=captures)
        culprits = self._culprits(last, root, absent)
        repeats = self._look_back(root, culprits, rule)
        foreign = foreign_memory(root, rule, self._own_pid)
        busy = busy_elsewhere(root, self._missed(absent, culprits), last.progress, self._timeline)
        died = bool(failed_exits(last.progress)) or any(f.error_type in _DIED for f in last.findings)
        struck = last.findings if error_type == "CUDAError" else ()
        shape = Shape(
            last.same_kind, self._earlier, repeats, last.progress, self._ranks_known, foreign, busy, died, struck
        )
        blame = attribute(root, rule, entry, shape)
        if blame.name == "user" and root.family in ("cuda", "network"):
            culprits = tuple(culprit for culprit in culprits if culprit.kind not in _MACHINES)
        situation = self._situation(root, error_type, blame.name, culprits)
        situation = replace(
            situation,
            repeats=repeats,
            all_ranks=blame.all_ranks,
            foreign=foreign is not None,
            by_owner=error_type == "JobCancelled" and (situation.tagged("by-hand") or cancelled_by_owner(root)),
            by_administrator=error_type == "JobCancelled" and cancelled_by_administrator(root),
            driver_asks=self._driver_asks(situation.hosts),
        )
        place = self._place(root, culprits)
        words = words_of(root, rule, captures, place, self._job)
        cause = words.cause
        if silent:
            # That they never came is not known: what they wrote last is.
            known = {name: value for name, value in captures.items() if name != "absent"}
            cause = f"{words_of(root, rule, known, place, self._job).cause}; {self._last_heard(absent)}"
        settled = situation.by_owner  # whoever cancelled a job of their own is the cause of its end
        rivals = alternatives(last, root, rule, absent, self._inventory, self._ranks_known, settled=settled)
        reasons = [*blame.reasons, *self._told_by_history(situation)]
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
            sureness=self._sureness(root, bool(rivals), settled=settled),
            root_cause=RootCause(cause, self._evidence(root), tuple(reasons)),
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
        situation = self._situation(None, None, "unknown" if last.status == "failed" else None, ())
        root_cause = None
        hint = ""
        if last.status == "failed":
            evidence = self._proof()
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

    def _group(self, root: Finding) -> str | None:
        rule = self._judge.rule(root)
        if rule is None or rule.absent is None:
            return None
        value = root.captures.get(rule.absent.group)
        return str(value) if value is not None else None

    def _absent(self, judgement: Judgement, root: Finding) -> tuple[tuple[int, ...], bool]:
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

    def _last_heard(self, ranks: Sequence[int]) -> str:
        """What is known of ranks that fell silent."""
        seen = [self._timeline.ranks[rank].mark.source for rank in ranks]
        ended = max((time for source in seen if (time := self._timeline.ended(source)) is not None), default=None)
        shown = iso(ended)
        return f"{describe_ranks(ranks)} wrote nothing" + (f" after {shown[11:19]}" if shown else " more")

    def _missed(self, absent: Sequence[int], culprits: Sequence[Culprit]) -> tuple[int, ...]:
        """The ranks that the others waited for: found absent, or named by those who waited."""
        return tuple(absent) or tuple(int(c.id) for c in culprits if c.kind == "rank" and c.id.isdigit())

    def _own_pid(self, pid: int) -> bool:
        return self._inventory.for_pid(None, pid) is not None

    def _unit(self, root: Finding, culprits: Sequence[Culprit]) -> Unit:
        """What a root is about; of ranks that were missed, their hosts."""
        unit = unit_of(root, culprits)
        if not _of_others(root):
            return unit
        ranks = (int(culprit.id) for culprit in culprits if culprit.kind == "rank" and culprit.id.isdigit())
        hosts = {host for rank in ranks if (host := self._inventory.host_of_rank(rank))}
        return Unit(hosts=frozenset(hosts) or frozenset(c.id for c in culprits if c.kind == "host"))

    def _look_back(self, root: Finding, culprits: Sequence[Culprit], rule: DiagnosisRule | None) -> Repeats:
        earlier = [
            Earlier(
                one.root,
                self._unit(one.root, self._culprits(one, one.root, self._absent(one, one.root)[0])),
                one.progress,
            )
            for one in self._judged.values()
            if one is not self._last and one.root is not None
        ]
        excluded = (*self._last.excluded, *self._excluded)
        unit, progress = self._unit(root, culprits), self._last.progress
        same_kind = self._last.same_kind
        canonical = self._inventory.canonical_host
        return look_back(root, unit, progress, earlier, excluded, self._witnesses(root), same_kind, rule, canonical)

    def _witnesses(self, root: Finding) -> list[Finding]:
        """What tells of the same event on a device: explained by the root, and of its very type."""
        explained = self._last.graph.explained
        return [
            finding
            for finding in self._last.findings
            if finding.error_type == root.error_type and finding.gpus and root.id in explained.get(finding.id, ())
        ]

    def _culprits(self, judgement: Judgement, root: Finding, absent: Sequence[int]) -> tuple[Culprit, ...]:
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

    def _hosts_at_fault(self, root: Finding | None, culprits: Sequence[Culprit]) -> list[str]:
        """The hosts that an action may be about; where some waited for others, those that were missed."""
        if root is None:
            return []
        if _of_others(root):
            return sorted(self._unit(root, culprits).hosts)
        hosts = [culprit.id for culprit in culprits if culprit.machine]
        return hosts or sorted(root.hosts) or sorted({host for f in self._witnesses(root) for host in f.hosts})

    def _place(self, root: Finding, culprits: Sequence[Culprit]) -> str | None:
        """The host to look at, where it is one: the culprit's, or the one that the failed process ran on."""
        hosts = {culprit.id for culprit in culprits if culprit.machine}
        if not hosts and root.family != "comm":  # who waited ran elsewhere than who was missed
            hosts = set(root.hosts) or {host for rank in root.ranks if (host := self._inventory.host_of_rank(rank))}
        return next(iter(hosts)) if len(hosts) == 1 else None

    def _situation(
        self,
        root: Finding | None,
        error_type: str | None,
        attribution: AttributionName | None,
        culprits: Sequence[Culprit],
    ) -> Situation:
        hosts = self._hosts_at_fault(root, culprits)
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

    def _told_by_history(self, situation: Situation) -> list[str]:
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

    def _driver_asks(self, hosts: Sequence[str]) -> dict[str, str]:
        """What the kernels of the hosts at fault say their GPUs need, the latest word of each."""
        said = [
            finding
            for finding in (*self._last.findings, *(aside.finding for aside in self._last.excluded))
            if isinstance(finding.captures.get("recovery"), str) and finding.sources & {"kernel"}
        ]
        said.sort(key=lambda finding: finding.last or 0.0)
        return {host: str(f.captures["recovery"]) for f in said for host in hosts if host in f.hosts}

    def _sureness(self, root: Finding, rivals: bool, *, settled: bool) -> Sureness:
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

    def _evidence(self, root: Finding) -> tuple[Evidence, ...]:
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

    def _proof(self) -> tuple[Evidence, ...]:
        teardown = [f for f in self._last.findings if f.evidence]
        lines = [line_evidence(line, self._inventory) for _, line in failed_exits(self._last.progress)[:2]]
        return tuple([*[f.evidence[0] for f in teardown[:3]], *lines][:_EVIDENCE])

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


def place_of(root: Finding | None) -> str:
    """Where in the code a failure arose, as far as that tells it from others of its type; empty for all else."""
    return root.place if root is not None and root.traceback else ""


def repeats_of(history: History, error_type: str | None, progress: AttemptProgress, place: str) -> int:
    """How often this workload failed alike before, and came no further; of a failure without a name, without one."""
    return history.workload_repeats(error_type=error_type or "", step=progress.last_step, place=place)


def _struck_ranks(finding: Finding, root: Finding) -> Sequence[int]:
    """Whose end a finding tells, if it is one that a fault of a machine brings about."""
    if finding.family == "cuda" or (finding.error_type == root.error_type and finding.id != root.id):
        return sorted(finding.ranks)
    if finding.error_type in _KILLED and finding.pids & root.pids:
        return sorted(finding.ranks)
    missing = finding.captures.get("missing")
    return [missing] if root.family == "node" and isinstance(missing, int) else []


def _of_others(root: Finding) -> bool:
    """Whether what was seen is about others than those who say it: they wait for them, or lost touch with them."""
    return root.family == "comm" or (root.error_type == "ConnectionError" and root.role == "symptom")


def _alike(earlier: Finding, root: Finding) -> bool:
    """Whether an earlier attempt's root is told by the same rule and neither names a unit: worth citing, no witness."""
    return earlier.rule == root.rule and not any((earlier.gpus, earlier.hosts, root.gpus, root.hosts, root.traceback))


def _again(earlier: Finding, root: Finding) -> bool:
    """Whether an earlier attempt's root is the same failure: the same line of code, or the same unit."""
    if earlier.error_type != root.error_type:
        return False
    return (
        earlier.place == root.place if root.traceback else bool(earlier.gpus & root.gpus or earlier.hosts & root.hosts)
    )
