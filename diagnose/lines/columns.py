"""Lines as columns of plain values, to hand them from one process to another.

In: the lines of one source, and for each the readers that it concerns. Out: columns that `marshal` can write, and the
lines again, with their turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any

from diagnose.lines.turns import turn_ends
from diagnose.models import Line, LogSource

Columns = tuple[Sequence[Any], ...]
_PLAIN = (
    "stream",
    "time",
    "uptime",
    "rank",
    "local_rank",
    "host",
    "pid",
    "gpu",
    "level",
    "quoted",
    "progress",
    "guarded",
    "routine",
)
_plain_of = attrgetter(*_PLAIN)


def columns_of(lines: Sequence[Line], asked: Sequence[int]) -> Columns:
    """The lines without their source; of a body that ends its line only the place where it begins."""
    starts: list[int | str] = [
        len(line.text) - len(line.body) if line.text.endswith(line.body) else line.body for line in lines
    ]
    plain = zip(*map(_plain_of, lines), strict=True) if lines else ((),) * len(_PLAIN)
    ends = turn_ends(lines, asked)
    return (list(asked), ends, [line.number for line in lines], [line.text for line in lines], starts, *plain)


def lines_of(columns: Columns, source: LogSource) -> tuple[list[Line], Sequence[int], Sequence[int]]:
    """The lines, for each the readers that it concerns, and where its turn ends."""
    asked, ends, numbers, texts, starts, *plain = columns
    bodies = [
        (text[start:] if start else text) if isinstance(start, int) else start
        for text, start in zip(texts, starts, strict=True)
    ]
    return list(map(Line, repeat(source), numbers, texts, bodies, *plain)), asked, ends
