"""One attempt judged: what counts, what explains it, and whether failure or success is proven.

In: the findings of one attempt and its progress. Out: `Judgement`. Nothing here knows of reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from diagnose.clock import UNLIMITED, Clock
from diagnose.dataclass import dataclass, replace
from diagnose.lines.timeline import AttemptProgress
from diagnose.models import DiagnosisRule, ExcludedFinding, Finding, Line, RuleSet
from diagnose.models.report import ReportStatus
from diagnose.rules.aggregate import BY_UNIT
from diagnose.rules.collectives import mismatch_findings
from diagnose.rules.edges import Edges
from diagnose.rules.graph import AFTER_SYMPTOM, Graph, explain
from diagnose.rules.precedence import DATED, Clocks, estimate_clocks
from diagnose.rules.survival import UNWEIGHED, completion, failed_exits, set_aside
from diagnose.rules.toolate import too_late

# Symptom types that prove by themselves that a process ended badly; a closed connection alone does not.
_PROVES_FAILURE = frozenset({"ChildFailed", "Terminated", "Aborted", "RemoteTaskFailed"})
_AFTER_THE_END = frozenset({"comm", "teardown"})
_TEARDOWN_HANG = "teardown-hang"  # the rule that speaks for ranks that waited once the work was done
_CRASH_AT_EXIT = frozenset({"SegmentationFault", "ProcessKilled"})


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is known of one attempt. `root` is None where nothing could be named.

    `unweighed` counts the findings whose part in it there was no time to weigh.
    """

    attempt: int
    status: ReportStatus
    root: Finding | None
    same_kind: tuple[Finding, ...]
    rivals: tuple[Finding, ...]
    findings: tuple[Finding, ...]
    excluded: tuple[ExcludedFinding, ...]
    graph: Graph
    clocks: Clocks
    progress: AttemptProgress
    completed: bool
    notes: tuple[str, ...] = ()
    unweighed: int = 0


class Judge:
    """Judges attempts under one rule set, within the time limit of a run."""

    def __init__(self, rule_set: RuleSet, ranks_known: int = 0, limit: Clock = UNLIMITED) -> None:
        self._rule_set = rule_set
        self._ranks_known = ranks_known
        self._limit = limit
        self._edges = Edges(rule_set)
        self._by_id: Mapping[str, DiagnosisRule] = {rule.id: rule for rule in rule_set.diagnoses}

    def rule(self, finding: Finding | None) -> DiagnosisRule | None:
        """The rule behind a finding."""
        return self._by_id.get(finding.rule or "") if finding else None

    def judge(self, attempt: int, findings: Sequence[Finding], progress: AttemptProgress) -> Judgement:
        """Judges one attempt from its findings."""
        shadow = [finding for finding in findings if finding.shadow]
        findings = [finding for finding in findings if not finding.shadow]
        findings += mismatch_findings(findings, self._rule_set, self._ranks_known)
        clocks, notes = estimate_clocks(findings, progress, self._edges)
        counted, excluded = set_aside(findings, progress, self._edges, clocks, self._limit, self._ranks_known)
        counted, late = too_late(counted, progress, self._edges, clocks)
        excluded += late
        excluded += tuple(ExcludedFinding(finding, "experimental: it decides nothing") for finding in shadow)
        graph = explain(counted, self._edges, clocks, specificity(filter(None, map(self.rule, counted))), self._limit)
        roots = self._suspects(graph, clocks)
        end = completion(progress)
        exits = failed_exits(progress)
        proven = bool(exits and not end) or any(
            finding.error_type in _PROVES_FAILURE or (finding.traceback and finding.role != "teardown")
            for finding in counted
        )
        root = roots[0] if roots else None
        if root is not None and self._weak(root) and not proven:
            excluded = (*excluded, ExcludedFinding(root, "a warning, and nothing shows that the job stopped"))
            root = None
        status: ReportStatus = "failed" if root is not None or proven else "inconclusive"
        if end is not None:
            status, root = self._after_the_end(counted, root, exits_after=_exits_after(exits, end))
        root = _with_witness(root, roots, clocks, progress)
        same_kind = (
            tuple(f for f in roots if root and f.error_type == root.error_type and f.role == root.role) if root else ()
        )
        suspects = {finding.id for finding in roots}
        rivals = (
            tuple(
                rival
                for rival in graph.tied
                if rival.error_type != root.error_type
                and rival.id in suspects
                and not any(clocks.before(one, rival) for one in same_kind)
            )
            if root
            else ()
        )
        return Judgement(
            attempt,
            status,
            root,
            same_kind,
            rivals,
            counted,
            excluded,
            graph,
            clocks,
            progress,
            end is not None,
            (*notes, *graph.notes),
            graph.unweighed + sum(aside.why == UNWEIGHED for aside in excluded),
        )

    def _suspects(self, graph: Graph, clocks: Clocks) -> list[Finding]:
        """Unexplained causes and symptoms; a cause well after an unexplained symptom is its echo and stands behind.

        So does what happened to a device that is none of the job's.
        """
        roots = [finding for finding in graph.roots if finding.role != "teardown"]
        earliest: dict[bool, Finding] = {}  # of the symptoms with and without a known year
        for symptom in (finding for finding in roots if finding.role == "symptom"):
            if (time := clocks.first(symptom)) is not None:
                known = earliest.setdefault(time >= DATED, symptom)
                if time < (clocks.first(known) or 0.0):
                    earliest[time >= DATED] = symptom
        echoes = {
            finding.id: finding
            for finding in roots
            if finding.role == "cause"
            and finding.traceback
            and any((clocks.gap(symptom, finding) or 0.0) > AFTER_SYMPTOM for symptom in earliest.values())
        }
        ordered = [finding for finding in roots if finding.id not in echoes] + list(echoes.values())
        return sorted(ordered, key=lambda finding: finding.not_ours)

    def _weak(self, root: Finding) -> bool:
        rule = self.rule(root)
        return rule is not None and rule.level == "low"

    def _after_the_end(
        self, counted: Sequence[Finding], root: Finding | None, *, exits_after: bool
    ) -> tuple[ReportStatus, Finding | None]:
        """The work was done: only a failure that follows, and shows in the exit, is one."""
        causes = [
            finding
            for finding in counted
            if finding.role != "teardown"
            and finding.family not in _AFTER_THE_END
            and finding.error_type not in _CRASH_AT_EXIT
            # What only a kernel log says, and nothing puts before the end, did not stop this job.
            and not finding.sources <= {"kernel"}
        ]
        if root is not None and root in causes:
            return "failed", root
        bad_end = exits_after or any(f.error_type in ("Aborted", "ChildFailed") for f in counted)
        if not bad_end:
            return "no_failure", None
        if root is not None and root.family == "comm" and _TEARDOWN_HANG in self._by_id:
            rule = self._by_id[_TEARDOWN_HANG]
            family = self._rule_set.taxonomy[rule.error_type].family
            return "failed", replace(root, rule=rule.id, error_type=rule.error_type, family=family)
        shown = root or next((finding for finding in counted if finding.role == "teardown"), None)
        return "failed", shown


def _with_witness(
    root: Finding | None, roots: Sequence[Finding], clocks: Clocks, progress: AttemptProgress
) -> Finding | None:
    """The root as its physical witness tells it, where kernel or scheduler say the same of the same unit.

    What a dying rank prints and what its host's kernel logs are one event: the kernel names the device, and two
    independent sources agree.
    """
    if root is None or root.family not in BY_UNIT:
        return root
    same = [finding for finding in roots if finding.error_type == root.error_type and _one_unit(root, finding)]
    witness = next((finding for finding in same if finding.sources & {"kernel", "scheduler"}), root)
    agreeing = [witness, *(finding for finding in same if clocks.together(witness, finding, progress))]
    sources = frozenset(kind for finding in agreeing for kind in finding.sources)
    return replace(witness, sources=sources) if sources != witness.sources else witness


def _one_unit(one: Finding, other: Finding) -> bool:
    if one.hosts and other.hosts and not one.hosts & other.hosts:
        return False
    return not one.gpus or not other.gpus or bool(one.gpus & other.gpus)


def _exits_after(exits: Sequence[tuple[int, Line]], end: Line) -> bool:
    return any(line.number >= end.number for _, line in exits if line.source.name == end.source.name)


def specificity(rules: Iterable[DiagnosisRule]) -> dict[str, int]:
    """How specific each rule is: longer required literals and more signatures come first in a tie."""
    scores: dict[str, int] = {}
    for rule in rules:
        needed = rule.match.all or rule.match.sequence
        literal = max(
            (len(keyword) for signature in rule.signatures.values() for keyword in signature.keywords), default=0
        )
        scores[rule.id] = 1000 * len(needed) + literal
    return scores
