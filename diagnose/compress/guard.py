"""The guard: which lines a diagnosis rule, or the reading of records and attempts, could need.

In: the literals of all diagnosis rules and of `lines`. Out: a sure answer for a raw line, a quick one for a template,
and positions in text too long to keep. A guarded line is never dropped, whatever the filters say.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from functools import cached_property

from ahocorasick_rs import BytesAhoCorasick

from diagnose.compress.relax import has_digits, template


class Answer(IntEnum):
    """What a template says of its lines: none, all, or that each must be asked."""

    NO = 0
    SURE = 1
    MAYBE = 2


class Guard:
    """Looks for any of the keywords. Empty keywords are ignored.

    To build an automaton takes long: `automaton` is there for others too, who find all their `others` among its
    `patterns`, beside the keywords.
    """

    def __init__(self, keywords: Iterable[str], others: Iterable[str] = ()) -> None:
        literals = sorted({keyword.encode("utf-8") for keyword in keywords if keyword})
        plain: list[bytes] = []
        masked: dict[bytes, None] = {}
        for literal in literals:
            if has_digits(literal):
                masked[template(literal)] = None
            else:
                plain.append(literal)
        self.longest = max(map(len, literals), default=0)
        self._literals = literals
        self._sure = len(plain)  # so many of the patterns speak for all lines of a template
        self.searched = (*plain, *masked)  # in templates
        self._own = len(self.searched)
        further = [other.encode("utf-8") for other in others if other]
        self.patterns = tuple(dict.fromkeys((*self.searched, *further, *(literals if further else ()))))
        self.automaton = BytesAhoCorasick(self.patterns)

    @cached_property
    def _exact(self) -> BytesAhoCorasick:
        """All literals; needed only where a template leaves the answer open."""
        return BytesAhoCorasick(self._literals)

    @property
    def literals(self) -> list[bytes]:
        """All keywords, in order."""
        return self._literals

    def hits(self, line: bytes) -> bool:
        """Whether the raw line holds a keyword."""
        return bool(self._exact.find_matches_as_indexes(line))

    def judge(self, line_template: bytes) -> Answer:
        """Answer for all lines of a template; a keyword with digits gives but a maybe."""
        found = self.automaton.find_matches_as_indexes(line_template, overlapping=True)
        if not found:
            return Answer.NO
        first = min(found)[0]
        return Answer.SURE if first < self._sure else Answer.MAYBE if first < self._own else Answer.NO

    def find(self, text: bytes) -> list[tuple[int, int]]:
        """All places (start, end) of keywords in raw text, overlapping ones too, by start."""
        found = self._exact.find_matches_as_indexes(text, overlapping=True)
        return sorted((start, end) for _, start, end in found)
