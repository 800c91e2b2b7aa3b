"""Scores added up: rates with their 95 % intervals, per label, by sureness and by stage; confusions.

In: the results of all cases. Out: `Figures` of one method. Intervals are Wilson's: honest also for few cases and for
rates near 0 and 1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from diagnose.dataclass import dataclass
from diagnose.evaluation.model import Answer, Result, Said, Score
from diagnose.evaluation.score import unanswered

_Z: Final = 1.959963984540054  # of a normal distribution, 95 % lie within so many deviations
RATES: Final = ("status", "type", "attribution", "line", "culprit", "recovery")
COUNTS: Final = ("wrong", "innocent", "false_node", "blame_user", "blame_infra")
SURENESS: Final = ("confirmed", "likely", "possible")
STAGES: Final = ("rules", "retrieval", "failure_agent")
NEAREST: Final = 3
REMEMBERED: Final = ("remembered", "not_remembered", "nothing_to_name", "all")


@dataclass(frozen=True, slots=True)
class Rate:
    """So many of so many, with the interval in which the true rate lies, 95 times of 100."""

    right: int
    of: int

    @property
    def value(self) -> float | None:
        """The rate, None of nothing."""
        return self.right / self.of if self.of else None

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's score interval; of nothing, nothing is known."""
        if not self.of:
            return 0.0, 1.0
        share, n = self.right / self.of, self.of
        middle = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
        half = _Z * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2)) / (1 + _Z**2 / n)
        return (0.0 if not self.right else max(0.0, middle - half)), (
            1.0 if self.right == n else min(1.0, middle + half)
        )


@dataclass(frozen=True, slots=True)
class Label:
    """The cases of one label."""

    name: str
    cases: int
    type: Rate
    attribution: Rate
    line: Rate


@dataclass(frozen=True, slots=True)
class Level:
    """What is right if only answers that are so sure, or surer, count: `answered` of the failures, `right` of those."""

    sureness: str
    coverage: Rate
    accuracy: Rate


@dataclass(frozen=True, slots=True)
class Decided:
    """What one stage decided."""

    stage: str
    coverage: Rate
    accuracy: Rate


@dataclass(frozen=True, slots=True)
class ByPast:
    """What past incidents decided of the cases that rules left open, by what the memory could know of them.

    `cases` is one of `REMEMBERED`: of failures whose label is in memory or is not, of cases that nobody could name, of
    all. `right` counts accepted labels too, `label` only the label.
    """

    cases: str
    decided: Rate
    right: Rate
    label: Rate


@dataclass(frozen=True, slots=True)
class Confusion:
    """How often a label was answered so. A right answer counts at its own label, also where another was accepted."""

    want: str
    got: str
    count: int


@dataclass(frozen=True, slots=True)
class Figures:
    """All that the answers of one method come to."""

    cases: int
    rates: Mapping[str, Rate]
    macro: Mapping[str, float]
    counts: Mapping[str, int]
    labels: tuple[Label, ...]
    levels: tuple[Level, ...]
    stages: tuple[Decided, ...]
    states: Mapping[str, int]
    confusions: tuple[Confusion, ...]
    nearest: Rate
    nearest_label: Rate
    past: tuple[ByPast, ...]


def figures_of(results: Sequence[Result], method: str, stored: Iterable[str] = ()) -> Figures:
    """The figures of one method; `stored` are the labels of which there are past incidents."""
    said = [(result, result.said.get(method) or _nothing(result)) for result in results]
    scores = [one.score for _, one in said]
    known = frozenset(stored)
    asked = [(result, one) for result, one in said if one.answer.stage != "rules"]
    return Figures(
        cases=len(said),
        rates={name: _rate(getattr(one, name) for one in scores) for name in RATES},
        macro={name: value for name in ("type", "attribution") if (value := _macro(said, name)) is not None},
        counts={name: sum(int(getattr(one, name)) for one in scores) for name in COUNTS},
        labels=tuple(_labels(said)),
        levels=tuple(_levels(said)),
        stages=tuple(_decided(said, stage) for stage in STAGES),
        states=dict(sorted(Counter(one.answer.agent_state for _, one in said if one.answer.agent_state).items())),
        confusions=tuple(_confusions(said)),
        nearest=_rate(
            bool(set(one.answer.nearest[:NEAREST]) & set(result.case.error_types))
            for result, one in asked
            if known & set(result.case.error_types)
        ),
        nearest_label=_rate(
            result.case.label in one.answer.nearest[:NEAREST]
            for result, one in asked
            if result.case.error_types and result.case.label in known
        ),
        past=tuple(_by_past(asked, known)) if known else (),
    )


_Pairs = Sequence[tuple[Result, Said]]


def _nothing(result: Result) -> Said:
    """What stands for an answer that never came."""
    return Said(Answer("inconclusive"), unanswered(result.case))


def _rate(votes: Iterable[bool | None]) -> Rate:
    known = [vote for vote in votes if vote is not None]
    return Rate(sum(known), len(known))


def _macro(said: _Pairs, name: str) -> float | None:
    """The mean over labels: a label of one case weighs as much as one of thirty."""
    by_label: dict[str, list[bool]] = {}
    for result, one in said:
        vote = getattr(one.score, name)
        if vote is not None:
            by_label.setdefault(result.case.label, []).append(vote)
    if not by_label:
        return None
    return sum(sum(votes) / len(votes) for votes in by_label.values()) / len(by_label)


def _labels(said: _Pairs) -> Iterable[Label]:
    names = sorted({result.case.label for result, _ in said if result.case.error_types})
    for name in names:
        own = [one.score for result, one in said if result.case.error_types and result.case.label == name]
        yield Label(
            name,
            len(own),
            _rate(one.type for one in own),
            _rate(one.attribution for one in own),
            _rate(one.line for one in own),
        )


def _levels(said: _Pairs) -> Iterable[Level]:
    for last in range(len(SURENESS)):
        surest = SURENESS[: last + 1]

        def counts(one: Said, among: Sequence[str] = surest) -> bool:
            return one.answer.error_type is not None and one.answer.sureness in among

        yield Level(SURENESS[last], *_covered(said, counts))


def _decided(said: _Pairs, stage: str) -> Decided:
    return Decided(stage, *_covered(said, lambda one: one.answer.stage == stage and one.answer.error_type is not None))


def _by_past(asked: _Pairs, known: frozenset[str]) -> Iterable[ByPast]:
    groups: dict[str, list[tuple[Result, Said]]] = {name: [] for name in REMEMBERED}
    for result, one in asked:
        held = REMEMBERED[2] if not result.case.error_types else REMEMBERED[result.case.label not in known]
        for name in (held, REMEMBERED[3]):
            groups[name].append((result, one))
    for name, pairs in groups.items():
        decided = [(result, one) for result, one in pairs if one.answer.stage == "retrieval"]
        yield ByPast(
            name,
            Rate(len(decided), len(pairs)),
            _rate(bool(one.score.type) and bool(result.case.error_types) for result, one in decided),
            _rate(one.answer.label == result.case.label for result, one in decided),
        )


def _covered(said: _Pairs, counts: Callable[[Said], bool]) -> tuple[Rate, Rate]:
    """How many of the labelled failures have such an answer; how many of such answers, on any case, are right."""
    failures = [one for result, one in said if result.case.error_types]
    answers = [one for _, one in said if counts(one)]
    return _rate(counts(one) for one in failures), _rate(one.score.type is True for one in answers)


def _confusions(said: _Pairs) -> Iterable[Confusion]:
    cells: Counter[tuple[str, str]] = Counter()
    for result, one in said:
        right = one.score.type if result.case.error_types else one.score.status and not one.score.wrong
        cells[result.case.label, result.case.label if right else one.answer.label] += 1
    for (want, got), count in sorted(cells.items()):
        yield Confusion(want, got, count)


def wrong_parts(score: Score) -> tuple[str, ...]:
    """What a score has against an answer, by name."""
    parts = [name for name in RATES if getattr(score, name) is False]
    return (*parts, *(name for name in COUNTS if name != "wrong" and getattr(score, name)))
