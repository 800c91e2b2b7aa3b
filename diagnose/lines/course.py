"""Which step a source had come to by any of its lines.

In: the lines of one source that tell of progress. Out: the step that was stated last before a line. It does not depend
on how many such lines the compressor leaves: before every line that may matter it lets the last of each writer pass.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter

_MARKS = 1024  # per source


class Course:
    """The step that stood last before any line of one source.

    Only the latest are held; of a line before those the first of them is told, so that rather too few steps are taken
    to have been made since.
    """

    __slots__ = ("_marks", "_sorted")

    def __init__(self) -> None:
        self._marks: list[tuple[int, int | None]] = []
        self._sorted = True

    def note(self, number: int, step: int | None) -> None:
        """Takes a line that tells of progress, with the step where it states one; a line held back comes late."""
        self._sorted = self._sorted and (not self._marks or number >= self._marks[-1][0])
        self._marks.append((number, step))
        if len(self._marks) >= 2 * _MARKS:
            self._trim()

    def before(self, number: int) -> int | None:
        """The step last stated up to a line, or the first one where it stands before all."""
        self._sort()
        place = bisect_right(self._marks, number, key=itemgetter(0))
        return self._marks[max(0, place - 1)][1] if self._marks else None

    def _sort(self) -> None:
        if not self._sorted:
            self._marks.sort(key=itemgetter(0))
            self._sorted = True

    def _trim(self) -> None:
        """What several writers state in turn is noted once; then the earliest go."""
        self._sort()
        marks = [
            mark
            for last, mark in zip([None, *self._marks], self._marks, strict=False)
            if not last or last[1] != mark[1]
        ]
        self._marks = marks[-_MARKS:] if len(marks) > _MARKS + _MARKS // 2 else marks
