"""Past incidents as an opinion: those that read like this failure, and what they say together.

In: similar incidents, best first. Out: an `Opinion`, which decides where the neighbours agree strongly enough. How
strongly, `benchmarks/retrieval.py` measures on labelled jobs; docs/retrieval.md has the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from diagnose.dataclass import replace
from diagnose.models import Evidence, Opinion, SimilarIncident

NEIGHBOURS: Final = 5
# Similarity of the nearest times the share of the votes that its error type gets: from here on they decide.
AGREEMENT: Final = 0.39
_STRONG: Final = 0.7  # from here on hardly one was wrong


class Retriever(Protocol):
    """Finds past incidents."""

    def similar(self, text: str, count: int = NEIGHBOURS) -> tuple[SimilarIncident, ...]:
        """The incidents that read most like this text, best first."""
        ...

    def bearing(self, text: str, ids: Sequence[str], count: int = 3) -> tuple[str, ...]:
        """The lines of a text that read most like what decided these incidents."""
        ...


class PastIncidents:
    """What past incidents say of a failure that no rule decides."""

    def __init__(self, retriever: Retriever, *, least: float = AGREEMENT) -> None:
        self._retriever = retriever
        self._least = least

    def opinion(self, text: str) -> Opinion:
        """The similar ones, and where they agree strongly enough, their verdict. `text` is redacted.

        The evidence are lines of the text without a place: whoever has the log knows where they stand.
        """
        opinion = opinion_of(self._retriever.similar(text, NEIGHBOURS), least=self._least)
        if opinion.error_type is None:
            return opinion
        alike = [each.id for each in opinion.similar if each.error_type == opinion.error_type]
        lines = self._retriever.bearing(text, alike)
        return replace(opinion, evidence=tuple(Evidence("", None, line) for line in lines))


def agreement(similar: Sequence[SimilarIncident]) -> tuple[str | None, float]:
    """The error type that the nearest incidents speak for, and how strongly, from 0 to 1."""
    nearest = similar[:NEIGHBOURS]
    votes: dict[str, float] = {}
    for each in nearest:
        votes[each.error_type] = votes.get(each.error_type, 0.0) + max(each.similarity, 0.0) ** 2
    total = sum(votes.values())
    if total <= 0:
        return None, 0.0
    best = max(votes, key=lambda name: votes[name])
    closest = max(each.similarity for each in nearest if each.error_type == best)
    return best, closest * votes[best] / total


def opinion_of(similar: Sequence[SimilarIncident], *, least: float = AGREEMENT) -> Opinion:
    """What the neighbours come to: an opinion that decides, or one that only lists them."""
    found = tuple(similar)
    name, strength = agreement(found)
    if name is None or strength < least:
        return Opinion(similar=found)
    alike = [each for each in found[:NEIGHBOURS] if each.error_type == name]
    attributions = {each.attribution for each in alike}
    shown = ", ".join(f"{each.id} ({each.similarity:.2f})" for each in alike)
    reasons = [f"{len(alike)} of the {len(found[:NEIGHBOURS])} most similar incidents were {name}: {shown}"]
    if recovered := [each for each in alike if each.recovered and each.job]:
        reasons.append(f"{recovered[0].id} recovered by: {recovered[0].job}")
    return Opinion(
        stage="retrieval",
        error_type=name,
        attribution=attributions.pop() if len(attributions) == 1 else None,
        summary=f"Reads like {alike[0].id}: {alike[0].summary}" if alike[0].summary else f"Reads like {alike[0].id}",
        reasons=tuple(reasons),
        sureness="likely" if len(alike) > 1 and strength >= _STRONG else "possible",
        similar=found,
    )
