"""What flows through an evaluation: cases with their labels, answers of any method, scores, results.

In: nothing. Out: frozen types. An `Answer` is what a method says of a job, whether it is the pipeline or a grep: all
are scored by the same code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from diagnose.dataclass import dataclass, field
from diagnose.models.report import ReportStatus, Sureness
from diagnose.models.rule import AttributionName

Stage = Literal["rules", "retrieval", "failure_agent", "none"]
# The pipeline under its own name; the others are the baselines.
OURS = "diagnose"


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a source; a source without a name is any (the case has one)."""

    source: str
    line: int


@dataclass(frozen=True, slots=True)
class Blamed:
    """Whom an answer or a label names: its kind, and all names known of it."""

    kind: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One labelled job. `name` is unique within an evaluation, `folder` is where the `inputs` (arguments) are.

    `error_types` and `attributions` are the right answers, the label first; none where nothing failed or nothing is
    proven. `node` says whether acting on a node is right: `none`, `act`, `any`, or nothing where it is not labelled.
    `innocent` are kinds of culprits that nobody could name from the inputs. `counted` kinds are those of which every
    culprit that is not labelled is an innocent one.
    """

    name: str
    folder: str
    inputs: tuple[str, ...]
    status: ReportStatus
    error_types: tuple[str, ...] = ()
    attributions: tuple[AttributionName, ...] = ()
    lines: tuple[Place, ...] = ()
    culprits: tuple[Blamed, ...] = ()
    job: tuple[str, ...] = ()
    node: str = ""
    innocent: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The error type, or for want of one the status."""
        return self.error_types[0] if self.error_types else self.status


@dataclass(frozen=True, slots=True)
class Unread:
    """A labelled case that cannot be used, and why, in words."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Cited:
    """A line that an answer rests on."""

    source: str
    line: int | None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a method says of a job. `job` is None where it never says what to do."""

    status: ReportStatus
    error_type: str | None = None
    attribution: AttributionName | None = None
    sureness: Sureness | None = None
    stage: Stage = "none"
    agent_state: str | None = None
    cited: tuple[Cited, ...] = ()
    culprits: tuple[Blamed, ...] = ()
    job: str | None = None
    nodes: tuple[str, ...] = ()
    nearest: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The error type it names, or its status."""
        return self.error_type if self.status == "failed" and self.error_type else self.status


@dataclass(frozen=True, slots=True)
class Score:
    """What an answer is worth. None is what the case's labels do not ask, or the method does not say."""

    status: bool
    type: bool | None = None
    attribution: bool | None = None
    line: bool | None = None
    culprit: bool | None = None
    recovery: bool | None = None
    wrong: bool = False
    innocent: int = 0
    false_node: bool = False
    blame_user: bool = False
    blame_infra: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """One method's answer and its score."""

    answer: Answer
    score: Score


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one case. `problem` says why there is no answer, which counts as a wrong one."""

    case: Case
    said: Mapping[str, Said] = field(default_factory=dict)
    problem: str = ""
    seconds: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    calls: int = 0
