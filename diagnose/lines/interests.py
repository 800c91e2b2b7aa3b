"""Which readers have something to do with a line, found in one pass over its text.

In: the literals without which each reader passes over a line. Out: for a text, the readers to ask, as a set of bits; 0
for most lines. What a reader does with a line it still decides itself: this only spares it the lines on which its own
literals do not stand. `EveryReader` is the slow twin that always asks them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final

from diagnose.compress.guard import Guard
from diagnose.lines import assembler, attempts, jobs, progress, unit_facts, whereabouts
from diagnose.lines.steps import STEP_LITERALS

PROGRESS: Final = 1
ATTEMPTS: Final = 2
FACTS: Final = 4
PLACES: Final = 8
JOBS: Final = 16
RECORDS: Final = 32
RULES: Final = 64
LISTS: Final = 128
ALL: Final = 255


@cache
def _of_lines() -> tuple[tuple[int, tuple[str, ...]], ...]:
    return (
        (PROGRESS, progress.LITERALS),
        (ATTEMPTS, attempts.LITERALS),
        (FACTS, unit_facts.LITERALS),
        (PLACES, whereabouts.LITERALS),
        (JOBS, jobs.LITERALS),
        (RECORDS, assembler.OPENERS),
        (LISTS, assembler.LISTS),
    )


def line_literals() -> tuple[str, ...]:
    """The literals of all readers of lines."""
    return tuple(literal for _, literals in _of_lines() for literal in literals)


def spoken_literals() -> tuple[str, ...]:
    """The literals of lines in which any reader but that of steps takes an interest."""
    steps = frozenset(STEP_LITERALS)
    return tuple(literal for literal in line_literals() if literal not in steps)


class EveryReader:
    """Says of every text that all readers are to be asked."""

    def of(self, text: str) -> int:
        """The readers to ask about a line of this text."""
        return ALL

    def of_all(self, texts: Sequence[str]) -> list[int]:
        """The readers to ask about each of some lines."""
        return list(map(self.of, texts))


class Interests(EveryReader):
    """Finds whom a text may concern, given the keywords of the rules.

    It searches with the automaton of a guard that knows those keywords and `line_literals()`, or makes its own.
    """

    def __init__(self, keywords: Iterable[str], guard: Guard | None = None) -> None:
        bits: dict[bytes, int] = {}
        for bit, literals in ((RULES, keywords), *_of_lines()):
            for literal in filter(None, literals):
                known = literal.encode()
                bits[known] = bits.get(known, 0) | bit
        guard = guard or Guard((), others=[*keywords, *line_literals()])
        self._bits = [bits.get(pattern, 0) for pattern in guard.patterns]
        self._search = guard.automaton.find_matches_as_indexes

    def of(self, text: str) -> int:
        """The readers to ask about a line of this text."""
        asked = 0
        for found in self._search(text.encode("utf-8", "replace"), overlapping=True):
            asked |= self._bits[found[0]]
        return asked

    def of_all(self, texts: Sequence[str]) -> list[int]:
        """The readers to ask about each of some lines, found in one pass over all of them."""
        joined = "\n".join(texts).encode("utf-8", "replace")
        asked = [0] * len(texts)
        if joined.count(b"\n") >= len(texts):  # a text holds a line end
            return super().of_all(texts)
        bits = self._bits
        place, end = 0, joined.find(b"\n")
        for pattern, _, stop in self._search(joined, overlapping=True):
            while 0 <= end < stop:
                place += 1
                end = joined.find(b"\n", end + 1)
            asked[place] |= bits[pattern]
        return asked
