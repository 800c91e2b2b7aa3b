"""Templates that nothing speaks of, many at once: most of those that are new, and all that a log of novel lines has.

In: the literals of filters, guard and record openers; new templates. Out: those that hold one of the literals and
have to be judged one by one. One pass over all of them together takes the place of three over each. The automaton is
made when enough templates have come to repay it: it is built for speed, in some 40 ms.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ahocorasick_rs import BytesAhoCorasick, Implementation

REPAID: Final = 20_000
"""So many new templates repay the automaton."""


class Silence:
    """Knows which templates hold none of some literals; never changes what is found."""

    def __init__(self, literals: Collection[bytes]) -> None:
        self._literals = literals
        self._left = REPAID
        self._automaton: BytesAhoCorasick | None = None

    def spoken(self, templates: Collection[bytes]) -> set[bytes] | None:
        """Those of the templates that hold a literal; None as long as it is not worth while to know."""
        if self._automaton is None:
            self._left -= len(templates)
            if self._left > 0:
                return None
            self._automaton = BytesAhoCorasick(sorted(set(self._literals)), implementation=Implementation.DFA)
        text = b"\n".join(templates)
        found: set[bytes] = set()
        end = -1
        for _, start, stop in self._automaton.find_matches_as_indexes(text):
            if start > end:  # not in the line of the last one
                first = text.rfind(b"\n", 0, start) + 1
                end = text.find(b"\n", stop)
                end = len(text) if end < 0 else end
                found.add(text[first:end])
        return found
