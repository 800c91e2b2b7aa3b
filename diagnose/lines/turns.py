"""Turns: indented lines that one writer wrote in a row and that concern no reader but that of records.

In: lines in order, and the readers that each concerns. Out: where the turn ends that begins at a line. When many ranks
die at once their tracebacks come in turns of a few lines each, and one look at a turn does for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.lines.interests import RECORDS
from diagnose.models import Line

_OTHERS = ~RECORDS


def turn(lines: Sequence[Line], asked: Sequence[int], place: int) -> int:
    """Behind the last line of the turn that begins at `place`; `place + 1` where the line there is none of a turn."""
    first = lines[place]
    end = place + 1
    # A host that is none of the source's own may be another one's on each line.
    if not _plain(first, asked[place]) or (first.host is not None and first.source.host is None):
        return end
    stream, rank, local_rank, host, pid = first.stream, first.rank, first.local_rank, first.host, first.pid
    count = len(lines)
    while end < count:
        line = lines[end]
        if line.stream != stream or not _plain(line, asked[end]):
            break
        if line.rank != rank or line.local_rank != local_rank or line.host != host or line.pid != pid:
            break
        end += 1
    return end


def turn_ends(lines: Sequence[Line], asked: Sequence[int]) -> list[int]:
    """For each line what `turn` says of it: within a turn that is the same for all of its lines."""
    ends: list[int] = []
    while len(ends) < len(lines):
        end = turn(lines, asked, len(ends))
        ends += [end] * (end - len(ends))
    return ends


def _plain(line: Line, asked: int) -> bool:
    return not asked & _OTHERS and line.time is None and line.progress is None and line.body[:1] == " "
