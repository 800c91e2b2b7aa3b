"""Which past incidents use the words of this failure: a weighted cosine over terms, in numpy.

In: the terms and labels of all incidents, and those of a query. Out: a similarity from 0 to 1 for each incident. A term
counts by how rare it is, and by how well it tells error types apart: the lines that follow every failure (time-outs,
SIGTERM, the launcher's summary) stand in incidents of all types and so weigh next to nothing, without a list of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from diagnose.dataclass import dataclass

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.uint32]
    Weights = NDArray[np.float32]

_PURITY = 0.9  # how much of a term's weight depends on its telling error types apart
_MOST_ASKED = 128  # terms of a query that are looked up
_UNKNOWN_PURITY = 0.5  # of a term that one incident has


@dataclass(frozen=True, slots=True)
class Posting:
    """The terms of one incident, and its error type."""

    id: str
    label: str
    numbers: Numbers
    weights: Weights


class LexicalIndex:
    """All incidents by their terms; made once for a set of incidents, then only read."""

    def __init__(self, postings: Sequence[Posting]) -> None:
        import numpy as np

        self.ids = [posting.id for posting in postings]
        self.labels = [posting.label for posting in postings]
        self._count = count = len(postings)
        if not count or not any(len(posting.numbers) for posting in postings):
            self._terms = np.empty(0, np.uint32)
            return
        numbers = np.concatenate([posting.numbers for posting in postings])
        weights = np.concatenate([posting.weights for posting in postings]).astype(np.float32)
        owners = np.repeat(np.arange(count, dtype=np.int32), [len(posting.numbers) for posting in postings])
        order = np.argsort(numbers, kind="stable")
        numbers, weights, owners = numbers[order], weights[order], owners[order]
        self._terms, starts = np.unique(numbers, return_index=True)
        self._starts = np.append(starts, len(numbers))
        frequency = np.diff(self._starts)
        self._value = self._told(owners, frequency)
        weights *= np.repeat(self._value, frequency)
        lengths = np.sqrt(np.bincount(owners, weights.astype(np.float64) ** 2, minlength=count))
        weights /= np.maximum(lengths, 1e-9)[owners].astype(np.float32)
        self._owners, self._weights = owners, weights

    def _told(self, owners: NDArray[np.int32], frequency: NDArray[np.intp]) -> Weights:
        """How much each term tells: its rarity, times the square of how much it belongs to one error type."""
        import numpy as np

        known = {label: number for number, label in enumerate(dict.fromkeys(self.labels))}
        labels = np.array([known[label] for label in self.labels], np.int64)
        pairs = np.repeat(np.arange(len(frequency), dtype=np.int64), frequency) * len(known) + labels[owners]
        found, counts = np.unique(pairs, return_counts=True)
        terms = found // len(known)
        first = np.searchsorted(terms, np.arange(len(frequency)))
        most = np.maximum.reduceat(counts, first)
        purity = np.where(frequency > 1, most / frequency, _UNKNOWN_PURITY)
        rarity = np.log1p((self._count - frequency + 0.5) / (frequency + 0.5))
        told: Weights = (rarity * ((1 - _PURITY) + _PURITY * 2 * purity) ** 2).astype(np.float32)
        return told

    def similarities(self, numbers: Numbers, weights: Weights) -> Weights:
        """How similar each incident is to these terms, in the order of `ids`."""
        import numpy as np

        nothing = np.zeros(self._count, np.float32)
        if not len(self._terms) or not len(numbers):
            return nothing
        places = np.searchsorted(self._terms, numbers)
        places[places == len(self._terms)] = 0
        known = self._terms[places] == numbers
        places, weights = places[known], weights[known] * self._value[places[known]]
        length = float(np.sqrt((weights.astype(np.float64) ** 2).sum()))
        if length <= 0:
            return nothing
        if len(places) > _MOST_ASKED:  # the rest adds next to nothing, and costs as much
            told = np.argpartition(-weights, _MOST_ASKED)[:_MOST_ASKED]
            places, weights = places[told], weights[told]
        starts, ends = self._starts[places], self._starts[places + 1]
        lengths = ends - starts
        # All postings of all terms in one go: the places from each start to its end.
        skipped = np.repeat(starts - np.append(0, np.cumsum(lengths)[:-1]), lengths)
        at = np.arange(int(lengths.sum())) + skipped
        summed = np.bincount(
            self._owners[at], self._weights[at] * np.repeat(weights / length, lengths), minlength=self._count
        )
        return summed.astype(np.float32)
