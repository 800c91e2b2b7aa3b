"""Whom an evaluation may ask: one who knows the label of the case, as an upper bound of what any model could bring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from diagnose.evaluation.judge import Spent
from diagnose.evaluation.model import Case
from diagnose.models import Line, Opinion, Report


@dataclass(frozen=True)
class Knowing:
    """Asks somebody who knows the answer."""

    def __call__(self) -> Callable[[Case], Knows]:
        return Knows


@dataclass(frozen=True)
class Knows:
    """Knows the label of one case, and nothing else."""

    case: Case

    @property
    def second_opinion(self) -> Knows:
        return self

    def spent(self) -> Spent:
        return Spent(1, 1000, 50)

    def begin(self) -> Knows:
        return self

    def observe(self, line: Line) -> None:
        pass

    def opinion(self, report: Report) -> Opinion:
        if not self.case.error_types:
            return Opinion(state="abstained")
        return Opinion("failure_agent", self.case.error_types[0], state="answered")
