"""How well past incidents answer, and how fast: cross-validated on labelled jobs, and timed on many incidents.

    python benchmarks/retrieval.py tests/fixtures/incidents CASES_DIR [--splits 6] [--embeddings minilm]
    python benchmarks/retrieval.py tests/fixtures/incidents --incidents 10000

The first directory fills the memory. Of each further directory a random half of the failures fills it too, and all else
is asked about, as often as --splits says: the other half, and jobs of which nobody can say what failed, or nothing did.
Incidents are remembered with all rules, as `incidents import` does; what is asked about is read with all rules off. The
figures are those of `diagnose eval`. The threshold of agreement is also chosen on one half of the cases and reported on
the other, so that what is told is no figure of its own making. `not remembered` asks once more, with all incidents
forgotten that would be right: whatever is decided then is wrong.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import numpy as np

from diagnose.agents.retrieval import AGREEMENT, PastIncidents, agreement
from diagnose.agents.second_opinion import Asker, advisers
from diagnose.evaluation.cases import find_cases
from diagnose.evaluation.figures import figures_of
from diagnose.evaluation.judge import Plan, rules_of
from diagnose.evaluation.memory import Remembered, numbered, remember
from diagnose.evaluation.model import OURS, Answer, Case, Result, Said
from diagnose.evaluation.requests import request_of
from diagnose.evaluation.run import halves
from diagnose.evaluation.score import score
from diagnose.evaluation.text import PAST_HEAD, nearest_words, past_rows
from diagnose.models import Incident, Line, Opinion, Report, RuleSet
from diagnose.pipeline import Services, diagnose
from diagnose.store.embeddings import Embedder, HashedWords, MiniLM
from diagnose.store.index import IncidentIndex, Place

PAST_LEAST = 0.0  # decide whatever the agreement; thresholds are applied here


class Reusing:
    """An embedder that makes each vector once, since each split indexes much the same incidents."""

    def __init__(self, embedder: Embedder) -> None:
        self.name = embedder.name
        self._embedder = embedder
        self._known: dict[str, Any] = {}

    def embed(self, texts: Sequence[str]) -> Any:
        """The vectors of some texts."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            self._known.update(zip(new, self._embedder.embed(new), strict=True))
        return np.array([self._known[text] for text in texts], np.float32)


class Known:
    """The past incidents of the split at hand."""

    def __init__(self) -> None:
        self.past: PastIncidents | None = None

    def opinion(self, text: str) -> Opinion:
        """What they say."""
        return self.past.opinion(text) if self.past else Opinion()


@dataclass
class Question:
    """A job that rules leave open, read once and asked about in each split."""

    case: Case
    asker: Asker
    report: Report


@dataclass
class Told:
    """What past incidents said of a job: an error type where the log speaks of it, and how strongly they agree."""

    case: Case
    named: str | None
    strength: float
    nearest: tuple[str, ...]

    def result(self, least: float) -> Result:
        """The answer, if so much agreement is asked for."""
        named = self.named if self.strength >= least else None
        answer = Answer(
            "failed" if named else "inconclusive",
            named,
            stage="retrieval" if named else "none",
            nearest=self.nearest,
        )
        return Result(self.case, {OURS: Said(answer, score(self.case, answer))})


class Listening:
    """Keeps who was asked about the run, and what the rules report of it."""

    def __init__(self, rules: RuleSet, known: Known) -> None:
        self._advisers = advisers(rules, None, known)
        self._asker = self._advisers.begin()
        self.asked: tuple[Asker, Report] | None = None

    def begin(self) -> Listening:
        """A new run."""
        return self

    def observe(self, line: Line) -> None:
        """Takes a line."""
        self._asker.observe(line)

    def opinion(self, report: Report) -> Opinion:
        """Says nothing itself."""
        self.asked = (self._asker, report)
        return Opinion()


def questions(cases: Sequence[Case], known: Known) -> list[Question]:
    """The cases that are open with all rules off."""
    plan = Plan(withheld=frozenset(rules_of(Plan())[0].taxonomy))
    _, rules = rules_of(plan)
    found = []
    for case in cases:
        os.chdir(case.folder)
        listening = Listening(rules, known)
        diagnose(request_of(case.inputs), Services(rules, second_opinion=listening), plan.settings)
        if listening.asked:
            found.append(Question(case, *listening.asked))
    return found


def told(asked: Sequence[Question], incidents: Remembered, known: Known, embedder: Embedder) -> list[Told]:
    """What a memory says of each of them."""
    with tempfile.TemporaryDirectory() as folder:
        index = IncidentIndex(Place(folder, "numpy"), incidents, embedder, lambda text: text)
        index.sync()
        known.past = PastIncidents(index, least=PAST_LEAST)
        found = []
        for each in asked:
            opinion = each.asker.opinion(each.report)
            _, strength = agreement(opinion.similar)
            named = tuple(one.error_type for one in opinion.similar)
            found.append(Told(each.case, opinion.error_type, strength, named))
        index.close()
    return found


def least_for(said: Sequence[Told], share: float) -> float:
    """The least agreement from which on so many of the decisions are right."""
    ranked = sorted((one for one in said if one.named), key=lambda one: -one.strength)
    right, least = 0, 1.0
    for place, one in enumerate(ranked, 1):
        right += one.named in one.case.error_types
        if right / place >= share:
            least = one.strength
    return least


def accuracy(first: Sequence[Case], halved: Sequence[Case], splits: int, embedder: Embedder) -> None:
    """Prints the figures of section 8."""
    known = Known()
    failures = [case for case in halved if case.error_types]
    made, unread = remember([*(case for case in first if case.error_types), *failures], Plan())
    for one in unread:
        print(f"left out: {one.name}: {one.why}")
    incidents = {one.id: one for one in made}
    asked = {each.case.name: each for each in questions(halved, known)}
    always = [incidents[case.name] for case in first if case.name in incidents]
    said: list[Told] = []
    forgotten: list[Told] = []
    labels: set[str] = set()
    for split in range(splits):
        kept, rest = halves(halved, str(split))
        stored = [*always, *(incidents[case.name] for case in kept if case.name in incidents)]
        labels.update(one.error_type or "" for one in stored)
        open_ = [asked[case.name] for case in rest if case.name in asked]
        said += told(open_, numbered(stored), known, embedder)
        if split == 0:
            for each in open_:
                if each.case.error_types:
                    without = [one for one in stored if one.error_type not in each.case.error_types]
                    forgotten += told([each], numbered(without), known, embedder)
    print(f"{embedder.name}: {len(always)} + half of {len(failures)} incidents, {splits} splits")
    figures = figures_of([one.result(AGREEMENT) for one in said], OURS, labels)
    print(f"  among the 3 nearest: {nearest_words(figures)}")
    print(f"  at {AGREEMENT}: {'; '.join(PAST_HEAD[1:])}")
    for row in past_rows(figures):
        print(f"    {row[0]:<20} {'; '.join(row[1:])}")
    wrong = sum(one.named is not None and one.strength >= AGREEMENT for one in forgotten)
    print(f"    all that would be right forgotten: {wrong} of {len(forgotten)} named, wrongly")
    print(f"  threshold for 90 % right: {least_for(said, 0.9):.3f}")
    halfs = [[one for one in said if crc32(one.case.name.encode()) % 2 == half] for half in (0, 1)]
    for chosen, shown_on in (halfs, halfs[::-1]):
        least = least_for(chosen, 0.9)
        row = past_rows(figures_of([one.result(least) for one in shown_on], OURS, labels))[-1]
        print(f"    {least:.3f} chosen on one half of the cases; on the other: {'; '.join(row[1:])}")


def speed(known: Sequence[Incident], count: int, backend: str, embedder: Embedder) -> None:
    """Prints how long a retrieval takes among many incidents, and how long they take to be read."""
    chance = random.Random(0)
    words = sorted({word for case in known for word in case.text.split()})
    made = []
    for number in range(count):
        case = chance.choice(known)
        extra = " ".join(chance.choices(words, k=40))
        made.append(replace(case, id=f"i{number}", text=f"{case.text}\nerror: {extra}"))
    with tempfile.TemporaryDirectory() as folder:
        index = IncidentIndex(Place(folder, backend), numbered(made), embedder, lambda text: text)
        start = time.perf_counter()
        index.sync()
        filled = time.perf_counter() - start
        start = time.perf_counter()
        index.similar(known[0].text)
        first = time.perf_counter() - start
        took = []
        for case in ([*known] * 3)[:200]:
            start = time.perf_counter()
            index.similar(case.text)
            took.append(1000 * (time.perf_counter() - start))
        index.close()
    ranked = statistics.quantiles(took, n=20)
    print(
        f"{embedder.name}, {backend}, {count:,} incidents: filled in {filled:.0f} s, first {first:.2f} s, "
        f"then median {statistics.median(took):.1f} ms, 95th {ranked[18]:.1f} ms"
    )


def main() -> None:
    """Runs what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", nargs="+")
    parser.add_argument("--splits", type=int, default=6)
    parser.add_argument("--embeddings", choices=("hashed", "minilm"), default="minilm")
    parser.add_argument("--incidents", type=int, default=0, help="time among so many instead")
    parser.add_argument("--vectors", choices=("chroma", "numpy"), default="chroma")
    options = parser.parse_args()
    embedder = MiniLM() if options.embeddings == "minilm" else HashedWords()
    first = find_cases(options.directories[:1]).cases
    if options.incidents:
        failures = [case for case in first if case.error_types]
        speed(remember(failures, Plan())[0].incidents, options.incidents, options.vectors, embedder)
        return
    accuracy(first, find_cases(options.directories[1:]).cases, options.splits, Reusing(embedder))


if __name__ == "__main__":
    main()
