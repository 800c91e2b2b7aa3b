"""The evaluation as a whole.

In: cases and a plan. Out: an `Evaluation`: every case's result in the order of the cases, and the figures.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from diagnose.dataclass import dataclass, field
from diagnose.evaluation.baselines import BASELINES
from diagnose.evaluation.figures import Figures, figures_of
from diagnose.evaluation.judge import Plan
from diagnose.evaluation.model import OURS, Case, Result, Unread
from diagnose.evaluation.pool import each

# A diagnosis keeps its time limit by itself; this is for one that does not, and leaves time for the baselines.
_LATE, _LATER = 2, 30
OnCase = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Setup:
    """How an evaluation was made, for whoever reads it."""

    roots: tuple[str, ...] = ()
    ruleset: str = ""
    without: tuple[str, ...] = ()
    model: str = ""
    split: str = ""
    stored: int = 0


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What came of it. `unread` are cases that could not even be begun; they are counted, in no figure."""

    setup: Setup
    results: tuple[Result, ...]
    unread: tuple[Unread, ...]
    figures: Mapping[str, Figures] = field(default_factory=dict)

    @property
    def broken(self) -> tuple[Result, ...]:
        """The cases that gave no answer."""
        return tuple(result for result in self.results if result.problem)


def evaluate(
    cases: Sequence[Case],
    plan: Plan,
    *,
    jobs: int = 1,
    unread: Sequence[Unread] = (),
    setup: Setup | None = None,
    stored: Iterable[str] = (),
    on_case: OnCase | None = None,
) -> Evaluation:
    """Judges all cases, `jobs` at once. `stored` are the labels of which the memory holds incidents.

    `on_case(done, total)` is told of progress. A case that fails in any way is a `Result` with a problem.
    """
    results: list[Result | None] = [None] * len(cases)
    if on_case:
        on_case(0, len(cases))
    for done, (place, result, why) in enumerate(each(plan, cases, jobs, _LATE * plan.seconds + _LATER), 1):
        results[place] = result or Result(cases[place], problem=why)
        if on_case:
            on_case(done, len(cases))
    judged = tuple(result for result in results if result is not None)
    known = tuple(stored)
    methods = (OURS, *(BASELINES if plan.baselines else ()))
    return Evaluation(
        setup or Setup(),
        judged,
        tuple(unread),
        {method: figures_of(judged, method, known if method == OURS else ()) for method in methods},
    )


def halves(cases: Sequence[Case], seed: str) -> tuple[tuple[Case, ...], tuple[Case, ...]]:
    """The cases to remember and the cases to test: failures with a label by halves, drawn by the seed.

    What did not fail is tested only: there is nothing to remember, and a memory must not name what is not there.
    """
    failures = [case for case in cases if case.error_types]
    drawn = sorted(failures, key=lambda case: hashlib.sha256(f"{seed}\0{case.name}".encode()).digest())
    remembered = {case.name for case in drawn[: len(drawn) // 2]}
    return (
        tuple(case for case in cases if case.name in remembered),
        tuple(case for case in cases if case.name not in remembered),
    )
