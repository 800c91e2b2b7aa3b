"""The lines of one failure, to find those that bear on a cause that past incidents had.

In: the redacted lines of a failing log, texts of past incidents. Out: the lines that read most like what decided those
incidents, best first. Words and hashed vectors, since a log is new each time and a model would take seconds for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from diagnose.store.embeddings import HashedWords
from diagnose.store.lexical import LexicalIndex, Posting
from diagnose.store.terms import masked, terms_of, weighed_lines

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MOST_LINES: Final = 2_000
_TELLING: Final = 1.0  # what a line must weigh to decide anything
_ALIKE: Final = 0.3


class LineStore:
    """Lines of one failure."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = list(dict.fromkeys(line for line in lines if line.strip()))[:_MOST_LINES]
        self._index = LexicalIndex([_posting(str(place), line) for place, line in enumerate(self._lines)])
        self._embedder = HashedWords()
        self._rows = self._embedder.embed([masked(line) for line in self._lines])

    def bearing(self, texts: Sequence[str], count: int) -> tuple[str, ...]:
        """The lines most like the telling lines of these texts, in the order in which they stand."""
        import numpy as np

        telling = [line for text in texts for line, weight in weighed_lines(text) if weight >= _TELLING]
        if not telling or not self._lines:
            return ()
        best = np.zeros(len(self._lines), np.float32)
        cosines = self._rows @ self._embedder.embed([masked(line) for line in telling]).T
        for column, line in enumerate(telling):
            asked = _posting("", line)
            best = np.maximum(best, (self._index.similarities(asked.numbers, asked.weights) + cosines[:, column]) / 2)
        chosen = [int(place) for place in np.argsort(-best, kind="stable")[:count] if best[place] >= _ALIKE]
        return tuple(self._lines[place] for place in sorted(chosen))


def _posting(name: str, line: str) -> Posting:
    import numpy as np

    terms = terms_of(line)
    numbers: NDArray[np.uint32] = np.array(terms.numbers, np.uint32)
    return Posting(name, name, numbers, np.array(terms.weights, np.float32))
