"""What is learnt while jobs fail: candidate filter rules, what became of rules, and by whom both are kept.

In: nothing. Out: `Fingerprint`, `FilterCandidate`, `Proposed`, `RuleRecord`, and the protocols by which the pipeline is
advised of new filter rules and by which the learning loop reads and writes what a store keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

from diagnose.dataclass import dataclass
from diagnose.models.flow import LogSource
from diagnose.models.memory import JobContext
from diagnose.models.rule import DiagnosisRule, FilterRule

CandidateState = Literal["proposed", "applied", "rejected", "promoted"]


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Which jobs print alike: the same name without its numbers, the same image, the same framework."""

    name: str = ""
    image: str = ""
    framework: str = ""

    @property
    def known(self) -> bool:
        """Whether it tells jobs apart at all."""
        return bool(self.name or self.image)


@dataclass(frozen=True, slots=True)
class FilterCandidate:
    """A filter rule that nobody has reviewed. Its examples are the redacted lines that it was made for.

    `applied` ones are used in jobs of the fingerprint, `proposed` ones in none; a person makes `rejected` or `promoted`
    of either. `author` is `agent:<model>`, or `agent:frequency` where no model was asked. `hits` counts lines in all
    jobs so far. `created` is ISO 8601 in UTC.
    """

    rule: FilterRule
    fingerprint: Fingerprint
    author: str
    state: CandidateState = "proposed"
    hits: int = 0
    created: str = ""


@dataclass(frozen=True, slots=True)
class Proposed:
    """A candidate of either kind, as people review it.

    `id` is what it goes by, whatever other candidates share its rule's name. A filter rule is for jobs of its
    `fingerprint`; a diagnosis rule was written for the incident or the logs that `origin` names, and its `hits` are the
    recorded diagnoses in which it had a finding. `origin` may hold names and paths of the site.
    """

    id: str
    rule: FilterRule | DiagnosisRule
    state: CandidateState
    author: str
    hits: int
    created: str
    fingerprint: Fingerprint | None = None
    origin: str = ""

    @property
    def kind(self) -> str:
        """`filter` or `diagnosis`."""
        return "filter" if isinstance(self.rule, FilterRule) else "diagnosis"


class FilterCandidates(Protocol):
    """Where candidates are kept; asked by one thread at a time."""

    def of(self, fingerprint: Fingerprint) -> Sequence[FilterCandidate]:
        """Those of jobs with this fingerprint, whatever their state, in order of id."""
        ...

    def add(self, candidate: FilterCandidate) -> None:
        """Keeps one; where its fingerprint has one with this id already, a person's decision on that one stands."""
        ...

    def count(self, fingerprint: Fingerprint, id: str, hits: int) -> None:
        """Adds to the hits of one; one that is not there is passed over."""
        ...


@dataclass(frozen=True, slots=True)
class RuleRecord:
    """What became of one rule in what was recorded.

    `hits` are diagnoses in which it had a finding, `decided` those whose verdict it was. A person's word, or the
    outcome of the recovery, made the error type right (`confirmed`) or another one (`refuted`) where it decided, or,
    for one in shadow, where it had a finding. `last` is the ISO 8601 time of the last hit.
    """

    rule: str
    hits: int = 0
    decided: int = 0
    confirmed: int = 0
    refuted: int = 0
    last: str | None = None


class RuleRecords(Protocol):
    """What is recorded of rules."""

    def rule_records(self) -> Iterable[RuleRecord]:
        """One for each rule that ever had a finding."""
        ...


class LineWatch(Protocol):
    """Sees the lines of one source while they are compressed."""

    def lines(self, lines: Sequence[bytes], templates: Sequence[bytes]) -> None:
        """Takes whole lines and their templates, in order; must be quick, bounded, and keep neither sequence."""
        ...


class FilterAdvice(Protocol):
    """What one run is advised of. All calls come from one thread, and none of them waits."""

    def watch(self, source: LogSource) -> LineWatch:
        """Who is to see the lines of a source."""
        ...

    def news(self) -> Sequence[FilterRule]:
        """The filter rules accepted since the last call; mostly none."""
        ...


class FilterAdviser(Protocol):
    """Who proposes filter rules while logs stream."""

    def begin(self, context: JobContext) -> FilterAdvice:
        """The advice of one run of a job."""
        ...
