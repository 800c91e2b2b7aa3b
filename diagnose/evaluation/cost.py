"""What the answers cost: seconds and tokens.

In: results. Out: `Cost`.
"""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.dataclass import dataclass
from diagnose.evaluation.model import Result


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of a case's diagnosis, baselines not counted; calls and tokens of all cases together."""

    median: float = 0.0
    p95: float = 0.0
    longest: float = 0.0
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0


def costs_of(results: Sequence[Result]) -> Cost:
    """The cost of the cases that were answered."""
    seconds = sorted(result.seconds for result in results if not result.problem)
    return Cost(
        median=_quantile(seconds, 0.5),
        p95=_quantile(seconds, 0.95),
        longest=_quantile(seconds, 1.0),
        calls=sum(result.calls for result in results),
        tokens_in=sum(result.tokens_in for result in results),
        tokens_out=sum(result.tokens_out for result in results),
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The value that this share of the ordered ones does not exceed."""
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1))]
