"""One case judged: the pipeline's answer and the baselines', scored, in a process of its own.

In: a `Plan` (picklable: each process makes its own services of it) and a case. Out: a `Result`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Protocol

from diagnose.dataclass import dataclass
from diagnose.evaluation.answers import answer_of
from diagnose.evaluation.baselines import baseline_answers
from diagnose.evaluation.model import OURS, Case, Result, Said
from diagnose.evaluation.requests import request_of
from diagnose.evaluation.score import score
from diagnose.models import RuleSet, SecondOpinion
from diagnose.pipeline import Services, diagnose
from diagnose.rules.bundle import load_bundled
from diagnose.rules.without import without_rules
from diagnose.settings import Limits, Settings


@dataclass(frozen=True, slots=True)
class Spent:
    """What asking a model has cost."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0


class Asked(Protocol):
    """Who is asked about one case where no rule decides, and what that has cost when it is over."""

    @property
    def second_opinion(self) -> SecondOpinion | None:
        """Whom to ask."""
        ...

    def spent(self) -> Spent:
        """The cost so far."""
        ...


class Ask(Protocol):
    """Makes, in the process that judges, whom to ask about a case. Called once a process, then once a case."""

    def __call__(self) -> Callable[[Case], Asked]:
        """The maker of a process."""
        ...


@dataclass(frozen=True, slots=True)
class Nobody:
    """Rules alone."""

    second_opinion: SecondOpinion | None = None

    def __call__(self) -> Callable[[Case], Asked]:
        """Nobody, for every case."""
        return lambda _case: self

    def spent(self) -> Spent:
        """Nothing."""
        return Spent()


@dataclass(frozen=True, slots=True)
class Plan:
    """How the cases are judged: rules, which error types they may not name, whom to ask, whether baselines are."""

    rules: tuple[str, ...] = ()
    withheld: frozenset[str] = frozenset()
    ask: Ask = Nobody()
    baselines: bool = True
    seconds: float = 120.0

    def __call__(self) -> _Judge:
        """The judge of a process."""
        return _Judge(self)

    @property
    def settings(self) -> Settings:
        """The settings of each run."""
        limits = Limits(seconds=min(self.seconds, Limits().seconds))
        return Settings(rules=self.rules, withheld=self.withheld, limits=limits)


def rules_of(plan: Plan) -> tuple[RuleSet, RuleSet]:
    """All rules, and those that the plan leaves."""
    full = load_bundled(plan.rules)
    return full, without_rules(full, plan.withheld) if plan.withheld else full


class _Judge:
    def __init__(self, plan: Plan) -> None:
        self._full, self._rules = rules_of(plan)
        self._settings = plan.settings
        self._baselines = plan.baselines
        self._ask = plan.ask()

    def __call__(self, case: Case) -> Result:
        os.chdir(case.folder)  # labels name files as seen from there
        request = request_of(case.inputs)
        asked = self._ask(case)
        started = time.perf_counter()
        report = diagnose(request, Services(self._rules, second_opinion=asked.second_opinion), self._settings)
        seconds = time.perf_counter() - started
        answers = {OURS: answer_of(report)}
        if self._baselines:
            answers |= baseline_answers(request, self._full)
        spent = asked.spent()
        return Result(
            case,
            {name: Said(answer, score(case, answer)) for name, answer in answers.items()},
            seconds=seconds,
            calls=spent.calls,
            tokens_in=spent.tokens_in,
            tokens_out=spent.tokens_out,
        )
