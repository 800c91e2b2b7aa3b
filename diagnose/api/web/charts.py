"""Failures over time as bars, by who was to blame.

In: a `Summary`. Out: `Chart`s, whose numbers are those of an SVG that is `WIDTH` by `HEIGHT`; days without jobs are
there too, so that the axis is one of time. `rows_of` is the table by type.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from diagnose.dataclass import dataclass
from diagnose.service.stats import Day, Group, Summary

WIDTH, HEIGHT = 360, 132
_TOP, _FLOOR, _LEFT = 16, 112, 4
_HOUR: Final = 3_600.0
BLAMED: Final = ("infrastructure", "user", "scheduler", "unknown")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a bar."""

    x: float
    y: float
    width: float
    height: float
    blamed: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars; `most` is the height of the highest, in words."""

    pieces: tuple[Piece, ...]
    most: str
    first: str
    last: str
    total: str


@dataclass(frozen=True, slots=True)
class TypeRow:
    """A row of the table by type: what the paper's Table 3 tells of a cause, of this cluster."""

    error_type: str | None
    attribution: str
    count: int
    count_share: float
    gpu_hours: float
    gpu_share: float
    gpus: str
    lasted: str
    away: str


def every_day(summary: Summary, days: int, clock: Callable[[], float] = time.time) -> list[Day]:
    """The last days, the oldest first, with those on which nothing was."""
    known = {day.day: day for day in summary.days}
    today = datetime.fromtimestamp(clock(), UTC).date()
    names = [(today - timedelta(days=back)).isoformat() for back in range(days - 1, -1, -1)]
    return [known.get(name) or Day(name) for name in names]


def chart_of(days: Sequence[Day], *, by_gpu: bool) -> Chart:
    """Failures of each day, counted or weighted by GPU time."""

    def value(day: Day, blamed: str) -> float:
        count, seconds = day.by.get(blamed, (0, 0.0))
        return seconds / _HOUR if by_gpu else float(count)

    most = max((sum(value(day, one) for one in BLAMED) for day in days), default=0.0)
    wide = (WIDTH - 2 * _LEFT) / max(1, len(days))
    pieces = []
    for number, day in enumerate(days):
        floor = float(_FLOOR)
        for blamed in BLAMED:
            height = value(day, blamed) / most * (_FLOOR - _TOP) if most else 0.0
            if height:
                floor -= height
                x = _LEFT + number * wide
                pieces.append(
                    Piece(round(x, 2), round(floor, 2), round(max(0.8, wide * 0.8), 2), round(height, 2), blamed)
                )
    total = sum(value(day, one) for day in days for one in BLAMED)
    unit = "GPU hours" if by_gpu else "failures"
    return Chart(
        tuple(pieces),
        f"{amount(most)} {unit} on the worst day" if most else f"no {unit}",
        days[0].day if days else "",
        days[-1].day if days else "",
        f"{amount(total)} {unit}",
    )


def rows_of(groups: Sequence[Group]) -> list[TypeRow]:
    """The table by type, by GPU time."""
    count = sum(group.count for group in groups) or 1
    cost = sum(group.gpu_seconds for group in groups) or 1.0
    return [
        TypeRow(
            group.error_type,
            group.attribution or "unknown",
            group.count,
            group.count / count,
            group.gpu_seconds / _HOUR,
            group.gpu_seconds / cost,
            _both(group.gpus, lambda number: f"{number:,.0f}"),
            _both(group.lasted, span),
            _both(group.away, span),
        )
        for group in groups
    ]


def _both(values: Sequence[float], shown: Callable[[float], str]) -> str:
    """Mean and median."""
    if not values:
        return "-"
    return f"{shown(statistics.fmean(values))} / {shown(statistics.median(values))}"


def amount(value: float) -> str:
    """A number of three figures or so."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}" if value >= 0.1 else f"{value:.2f}"


def span(seconds: float) -> str:
    """A time in the unit that fits."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6_000 else f"{seconds / _HOUR:.1f} h"
