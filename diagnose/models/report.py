"""The answer: findings as the engine sees them, and the report (`diagnose.report/v1`) that all renderings show.

In: nothing. Out: `Evidence`, `Finding`, `Report` and its parts. `Report` has exactly the fields of the JSON contract,
plus `explanation` (for `--explain` and people; not part of the JSON).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from diagnose.dataclass import dataclass, field
from diagnose.models.flow import SourceKind, Unit
from diagnose.models.rule import AttributionName, CulpritKind, Role

ReportStatus = Literal["failed", "no_failure", "inconclusive"]
Sureness = Literal["confirmed", "likely", "possible"]
JobAction = Literal["restart", "restart_elsewhere", "fix_and_resubmit", "wait_and_retry", "none", "unknown"]
NodeActionName = Literal["inspect", "drain", "reset_gpu", "reboot", "replace"]
AgentState = Literal["not_needed", "not_configured", "unavailable", "over_budget", "rejected", "abstained", "answered"]
Scalar = int | float | str | bool


@dataclass(frozen=True, slots=True)
class Evidence:
    """A line that proves something. `time` is ISO 8601; `line` is 1-based in the decompressed file.

    `message` is `text` without the prefixes of loggers and launchers, whose content the other fields carry.
    """

    source: str
    line: int | None
    text: str
    time: str | None = None
    rank: int | None = None
    host: str | None = None
    gpu: str | None = None
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    message: str = ""


@dataclass(frozen=True, slots=True)
class Over:
    """Where and when a log says that something was over again. `time` is seconds since the epoch."""

    source: str
    line: int
    time: float | None = None


@dataclass(frozen=True, slots=True)
class Telling:
    """How a finding was told, which decides how far it is believed.

    `printed`: only in what the job itself wrote, where anything may be cited, and in no traceback. `kernel`: in words
    that only a kernel says; `stamped`: with the stamp of its log; `pasted`: more of a kernel's log stands around it, or
    the command that prints one. `dated`: its times can be compared with the job's, or the job's own words say the same.
    `goes_on`: for how many seconds its kernel log goes on after it. `bystander`: what was killed need not be the job's.
    `foreign`: printed of a host that the job's own logs do not name, though they name others.
    """

    printed: bool = False
    kernel: bool = False
    stamped: bool = False
    pasted: bool = False
    dated: bool = True
    goes_on: float | None = None
    bystander: bool = False
    foreign: bool = False

    @property
    def of_this_job(self) -> bool:
        """Whether its time and place are known to be the job's."""
        return self.dated and not self.foreign


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that happened to one unit in one attempt, however many lines say so.

    `id` is unique within a run. `rule` is None where a record speaks for itself (a plain Python exception).
    `first` and `last` are seconds since the epoch; `streams` gives the first and last line number within each stream
    that said it, `spans` the same by source name. `sources` are the kinds of source that said it: two kinds are
    independent witnesses. `by_rank` keeps what each rank's first line captured. `place` tells apart what one rule saw
    at different places. `traceback` marks what ended in a Python traceback: a process's last words. `presumed` is where
    it probably happened, when no line of it says so and its log speaks of one process or host only. `over` is where
    its rule saw that it was over again: what failed until then may still be its doing. `places` are the hosts on which
    a launcher saw processes end so, where the finding is not kept apart by host; `stray` marks what happened on a host
    that the job's own logs do not name, though they name others; `not_ours` what happened to a GPU on which none of the
    job's ranks runs, where it is known of all of them. `told` is how it was told.
    """

    id: str
    rule: str | None
    error_type: str
    family: str
    role: Role
    attempt: int
    evidence: tuple[Evidence, ...]
    count: int = 1
    first: float | None = None
    last: float | None = None
    streams: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    spans: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    ranks: frozenset[int] = frozenset()
    hosts: frozenset[str] = frozenset()
    gpus: frozenset[str] = frozenset()
    pids: frozenset[int] = frozenset()
    sources: frozenset[SourceKind] = frozenset()
    captures: Mapping[str, Scalar | tuple[Scalar, ...]] = field(default_factory=dict)
    by_rank: Mapping[int, Mapping[str, Scalar | tuple[Scalar, ...]]] = field(default_factory=dict)
    place: str = ""
    traceback: bool = False
    survivable: bool = False
    shadow: bool = False
    presumed: Unit = Unit()
    over: Over | None = None
    places: frozenset[str] = frozenset()
    stray: bool = False
    not_ours: bool = False
    told: Telling = Telling()


@dataclass(frozen=True, slots=True)
class ExcludedFinding:
    """A finding that was set aside, and why: survived, retried, outside the job's time, quoted, overridden."""

    finding: Finding
    why: str


@dataclass(frozen=True, slots=True)
class RootCause:
    """The cause in one sentence, the lines that prove it, and which tests decided, in words."""

    summary: str
    evidence: tuple[Evidence, ...]
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChainLink:
    """One step from cause to last symptom."""

    error_type: str
    role: Role
    count: int
    first: Evidence
    rule: str | None = None
    explained_by: str | None = None
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Culprit:
    """What to blame, under the name the inputs use, with every other name they give it.

    `presumed` marks a host that no line of the finding names: it is worth a look, and no more. `pod` marks one that is
    only known as a pod: which machine it ran on, no input says.
    """

    kind: CulpritKind
    id: str
    why: str
    names: tuple[str, ...] = ()
    presumed: bool = False
    pod: bool = False

    @property
    def machine(self) -> bool:
        """Whether it is a host that something could be done with."""
        return self.kind == "host" and not self.pod


@dataclass(frozen=True, slots=True)
class Alternative:
    """A rival that is left. `for_` is `for` in JSON."""

    error_type: str
    for_: str
    against: str
    test: str


@dataclass(frozen=True, slots=True)
class NodeRecovery:
    """What to do with a node."""

    host: str
    action: NodeActionName
    why: str
    gpu: str | None = None


@dataclass(frozen=True, slots=True)
class Recovery:
    """What to do next. `policy` is the id of the row applied."""

    job: JobAction
    hint: str
    nodes: tuple[NodeRecovery, ...] = ()
    checks: tuple[str, ...] = ()
    from_checkpoint: str | None = None
    policy: str | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the diagnosed attempt came. Times are ISO 8601."""

    first_step: int | None = None
    last_step: int | None = None
    last_step_time: str | None = None
    last_checkpoint: str | None = None
    last_checkpoint_complete: bool | None = None
    completed: bool | None = None


@dataclass(frozen=True, slots=True)
class AttemptSummary:
    """One try of the job; exactly one is `diagnosed`, the last."""

    index: int
    diagnosed: bool
    error_type: str | None = None
    last_step: int | None = None
    started: str | None = None
    ended: str | None = None


@dataclass(frozen=True, slots=True)
class SourceCoverage:
    """One source and how much of it was read."""

    source: str
    kind: SourceKind
    lines: int
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was read, and in words what would have helped and was not."""

    sources: tuple[SourceCoverage, ...] = ()
    not_read: tuple[str, ...] = ()
    ranks_seen: int | None = None
    ranks_expected: int | None = None
    dropped_lines: int = 0
    evicted_templates: int = 0


@dataclass(frozen=True, slots=True)
class SimilarIncident:
    """A past incident that reads like this failure.

    `similarity` is between 0 and 1. `recovered` says whether what was done about it worked, None where not known.
    `attribution` and `job` (the recovery of the job that was tried) help whoever decides by it.
    """

    id: str
    error_type: str
    similarity: float
    recovered: bool | None = None
    summary: str = ""
    attribution: AttributionName | None = None
    job: str | None = None


@dataclass(frozen=True, slots=True)
class DecidedBy:
    """Which stage decided, with what.

    `model` and `prompt` are what was asked, `similar_incidents` what the memory found, best first. `asked` says in
    words why somebody who was asked did not answer; for people, not part of the JSON.
    """

    stage: Literal["rules", "retrieval", "failure_agent", "none"]
    rule: str | None = None
    ruleset: str | None = None
    agent_state: AgentState | None = None
    model: str | None = None
    prompt: str | None = None
    similar_incidents: tuple[SimilarIncident, ...] = ()
    asked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stats:
    """Cost of the run."""

    bytes: int = 0
    lines: int = 0
    kept_lines: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Explanation:
    """How the verdict came about: findings, what explained each, what was set aside, which test moved attribution."""

    findings: tuple[Finding, ...] = ()
    explained: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    excluded: tuple[ExcludedFinding, ...] = ()
    attribution: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """One explained verdict on one job: the object behind every rendering.

    `changes` are what is different from this workload's last good attempt, in words, where a memory knows of one.
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
    coverage: Coverage
    decided_by: DecidedBy
    stats: Stats
    changes: tuple[str, ...] = ()
    explanation: Explanation = field(default_factory=Explanation)
