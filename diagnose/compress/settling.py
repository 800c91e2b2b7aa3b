"""Marked lines of a run, settled writer by writer: as the compressor would judge them one by one, but sooner.

In: marks and steps, see `routine`, of lines before which nothing else happens; the run in which they stand. Out: those
samples of progress that pass on, and the lines that must be looked at, because a step falls among them or their writer
still has some free. All others are counted, and of each writer's progress the last line is held back.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Set as AbstractSet

from diagnose.compress.filters import Filters
from diagnose.compress.routine import DROPPED, MARK, OTHER
from diagnose.compress.sampling import ProgressSampler, Quota
from diagnose.compress.splitter import Plain

_SIMPLE = frozenset({DROPPED, OTHER})


class Settling:
    """Settles the marked lines of one source; `dropped` and `collapsed` count those taken out."""

    def __init__(self, filters: Filters, progress: ProgressSampler, quota: Quota) -> None:
        self.dropped = 0
        self.collapsed = 0
        self._filters = filters
        self._progress = progress
        self._quota = quota
        self._full: dict[bytes, AbstractSet[bytes] | None] = {}  # by rule; None where it is one for progress

    def adopt(self, filters: Filters) -> None:
        """Go by other rules from here on."""
        self._filters = filters
        self._full.clear()

    def settle(
        self, run: Plain, marks: list[bytes], steps: list[bytes], start: int
    ) -> tuple[list[tuple[int, str]], list[int]]:
        """Settle the marked ones of the lines from place `start` of a run on.

        Return the places that pass on, each with the rule whose progress it is, and those that must be looked at.
        """
        if _SIMPLE.issuperset(marks):
            self.dropped += marks.count(DROPPED)
            return [], []
        places: defaultdict[bytes, list[int]] = defaultdict(list)
        # A loop over all lines in which no Python code runs.
        deque(map(list.append, map(places.__getitem__, marks), range(start, start + len(marks))), 0)
        self.dropped += len(places.pop(DROPPED, ()))
        places.pop(OTHER, None)
        passed: list[tuple[int, str]] = []
        left: list[int] = []
        for each, where in places.items():
            rule, _, name = each.partition(MARK)
            if rule not in self._full:
                self._look_up(rule)
            full = self._full[rule]
            if full is None:
                known = self._filters.rules[int(rule)].id
                stated = list(map(int, filter(None, map(steps.__getitem__, where))))
                passing = self._progress.take_many(known, name, stated, where, run)
                if passing is None:
                    left += where
                else:
                    passed += [(place, known) for place in passing]
            elif name in full:
                self.collapsed += len(where)
            else:
                left += where
        return passed, left

    def _look_up(self, rule: bytes) -> None:
        known = self._filters.rules[int(rule)]
        self._full[rule] = None if known.progress else self._quota.full(known.id)
