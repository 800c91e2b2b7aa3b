"""The chain from cause to last symptom as a picture: time goes down, ranks go across.

In: a report, the anchors of its evidence. Out: `Picture`, whose numbers are those of an SVG that is `WIDTH` wide; steps
have no distance in time, for a second and half an hour would not fit on one scale, so each says how long it came after
the first.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from itertools import groupby
from typing import Final

from diagnose.api.web.excerpts import Evidence
from diagnose.api.web.reading import Kept, Link
from diagnose.dataclass import dataclass
from diagnose.rules.captures import shown_numbers

WIDTH: Final = 360
LEFT: Final = 34
_ROOM: Final = WIDTH - LEFT - 6
_STEP: Final = 64
_MOST_STEPS: Final = 12
_MOST_BARS: Final = 200
_LONGEST: Final = 36  # characters of a name
_NARROWEST: Final = 2.0


@dataclass(frozen=True, slots=True)
class Bar:
    """Ranks that stand together."""

    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Step:
    """What happened: `when` and `who` in words; `up` is where the step stands that explains it."""

    y: int
    name: str
    role: str
    when: str
    later: str
    who: str
    count: int
    bars: tuple[Bar, ...]
    anchor: str
    up: int | None


@dataclass(frozen=True, slots=True)
class Picture:
    """The steps, the number of ranks, how many steps are left out."""

    steps: tuple[Step, ...]
    ranks: int
    more: int
    height: int
    told: str


def picture_of(report: Kept, evidence: Evidence) -> Picture | None:
    """The picture of a chain; None where it would show no more than the name of the cause."""
    grouped = [list(group) for _, group in groupby(report.chain, key=lambda link: (link.error_type, link.role))]
    if not grouped:
        return None
    shown = grouped[:_MOST_STEPS]
    ranks = max(
        [report.coverage.ranks_expected or 0, *(rank + 1 for group in shown for link in group for rank in _ranks(link))]
    )
    began = next((moment for group in shown if (moment := _moment(group)) is not None), None)
    steps: list[Step] = []
    for number, group in enumerate(shown):
        first = group[0].first
        moment = _moment(group)
        blamed = sorted({rank for link in group for rank in _ranks(link)})
        later = (moment - began).total_seconds() if moment is not None and began is not None else None
        steps.append(
            Step(
                y=number * _STEP,
                name=_short(group[0].error_type),
                role=group[0].role,
                when=moment.strftime("%H:%M:%S") if moment is not None else "",
                later=_later(later) if number and later is not None else "",
                who=_short(_who(blamed, group)),
                count=sum(link.count for link in group),
                bars=tuple(_bars(blamed, ranks)),
                anchor=evidence.anchors.get((first.source, first.line), ""),
                up=_up(shown, number),
            )
        )
    if len(steps) == 1 and not steps[0].bars:
        return None
    axis = 22 if ranks else 0
    return Picture(tuple(steps), ranks, len(grouped) - len(shown), len(steps) * _STEP + axis, _told(steps))


def _ranks(link: Link) -> tuple[int, ...]:
    return link.ranks or (() if link.first.rank is None else (link.first.rank,))


def _moment(group: Iterable[Link]) -> datetime | None:
    for link in group:
        if link.first.time:
            try:
                moment = datetime.fromisoformat(link.first.time)
            except ValueError:
                continue
            if moment.tzinfo is not None:
                return moment
    return None


def _who(ranks: list[int], group: list[Link]) -> str:
    if ranks:
        return f"rank{'s' if len(ranks) > 1 else ''} {shown_numbers(ranks, 4)}"
    return group[0].first.host or ""


def _bars(ranks: list[int], of: int) -> Iterable[Bar]:
    """Bars for ranks in ascending order, one for each that stand together."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][1] == rank - 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    for first, last in runs[:_MOST_BARS]:
        width = max(_NARROWEST, _ROOM * (last - first + 1) / of)
        yield Bar(round(min(LEFT + _ROOM * first / of, LEFT + _ROOM - width), 2), round(width, 2))


def _up(groups: list[list[Link]], number: int) -> int | None:
    """Where the step stands by which another is explained, as far as one says so."""
    why = {link.explained_by for link in groups[number] if link.explained_by}
    for earlier in range(number):
        if any(link.rule in why or link.error_type in why for link in groups[earlier]):
            return earlier * _STEP
    return None


def _later(seconds: float) -> str:
    sign, seconds = ("+" if seconds >= 0 else "-"), abs(seconds)
    if seconds < 100:
        return f"{sign}{seconds:.0f} s"
    return f"{sign}{seconds / 60:.0f} min" if seconds < 6_000 else f"{sign}{seconds / 3600:.1f} h"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _told(steps: list[Step]) -> str:
    """The picture in words."""
    parts = []
    for step in steps:
        where = f" on {step.who}" if step.who else ""
        at = f" at {step.when}" if step.when else ""
        parts.append(f"{step.role} {step.name}{where}{at}")
    return "; then ".join(parts)
