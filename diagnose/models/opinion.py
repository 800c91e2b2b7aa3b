"""What is asked where no rule decides, and what comes back: a second opinion, from past incidents or from a model.

In: nothing. Out: `Opinion`, and the protocols by which the pipeline asks without knowing whom.
"""

from __future__ import annotations

from typing import Literal, Protocol

from diagnose.dataclass import dataclass
from diagnose.models.flow import Line
from diagnose.models.report import AgentState, Evidence, Report, SimilarIncident, Sureness
from diagnose.models.rule import AttributionName

OpinionStage = Literal["retrieval", "failure_agent", "none"]


@dataclass(frozen=True, slots=True)
class Opinion:
    """What a second opinion comes to. `error_type` is None where it decides nothing; then `stage` is `none`.

    `evidence` are lines that were read, never a model's own words. `reasons` say in words on what it rests, `settle`
    what would settle the case. `state` is how the model fared, `model` and `prompt` which ones were asked. `similar`
    comes best first, whoever decided. `notes` say in words why somebody who was asked did not answer.
    """

    stage: OpinionStage = "none"
    error_type: str | None = None
    attribution: AttributionName | None = None
    summary: str = ""
    evidence: tuple[Evidence, ...] = ()
    reasons: tuple[str, ...] = ()
    settle: str = ""
    sureness: Sureness = "possible"
    similar: tuple[SimilarIncident, ...] = ()
    state: AgentState = "not_configured"
    model: str | None = None
    prompt: str | None = None
    notes: tuple[str, ...] = ()


class Witness(Protocol):
    """Gathers what one run reads, within bounds, and is asked about it once, if the rules did not decide."""

    def observe(self, line: Line) -> None:
        """Takes a line that compression let through, in the order of reading."""
        ...

    def opinion(self, report: Report) -> Opinion:
        """What to think of a failure that the rules' report leaves undecided. Never raises for want of a service."""
        ...


class SecondOpinion(Protocol):
    """Who is asked where no rule decides."""

    def begin(self) -> Witness:
        """A witness for one run."""
        ...
