"""How well past incidents answer, and how fast: cross-validated on labelled jobs, and timed on many incidents.

    python benchmarks/retrieval.py tests/fixtures/incidents CASES_DIR [--splits 10] [--embeddings minilm]
    python benchmarks/retrieval.py tests/fixtures/incidents --incidents 10000

The first directory fills the memory. Of each further directory a random half fills it too and the other half is asked
about, as often as --splits says; what is asked about is read with all diagnosis rules off. A case is left out where the
memory holds no incident of its error type. `right` counts the label; `accepted` also those labels that the case says a
careful expert would take. The threshold of agreement is the least at which 90 % of the decisions are accepted.
"""

from __future__ import annotations

import argparse
import glob
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from diagnose.agents.excerpt import Gatherer, deciding_text
from diagnose.agents.retrieval import AGREEMENT, NEIGHBOURS, agreement
from diagnose.models import Incident, Opinion, Report, RuleSet
from diagnose.pipeline import Request, Services, diagnose
from diagnose.redaction import Redactor
from diagnose.rules.load import load_rules
from diagnose.store.embeddings import HashedWords, MiniLM
from diagnose.store.index import IncidentIndex, Place

_TOKENS = 2_000


@dataclass(frozen=True)
class Case:
    """A labelled job: its label, labels that count as right too, its text as remembered and as asked about."""

    id: str
    label: str
    accepted: frozenset[str]
    remembered: str
    asked: str


class Listening:
    """Gathers the lines of one run."""

    def __init__(self) -> None:
        self.gatherer = Gatherer()

    def begin(self) -> Listening:
        """A new run."""
        self.gatherer = Gatherer()
        return self

    def observe(self, line: Any) -> None:
        """Takes a line."""
        self.gatherer.observe(line)

    def opinion(self, report: Report) -> Opinion:
        """Says nothing itself."""
        return Opinion()


class Kept:
    """Incidents in memory."""

    def __init__(self, incidents: Sequence[Incident]) -> None:
        self._incidents = {each.id: replace(each, revision=place) for place, each in enumerate(incidents, 1)}

    def __iter__(self) -> Iterator[Incident]:
        return iter(self._incidents.values())

    def __len__(self) -> int:
        return len(self._incidents)

    def get(self, id: str) -> Incident | None:
        """One of them."""
        return self._incidents.get(id)

    def many(self, ids: Sequence[str]) -> tuple[Incident, ...]:
        """Some of them."""
        return tuple(self._incidents[each] for each in ids if each in self._incidents)

    def changed_since(self, revision: int) -> Iterator[Incident]:
        """What came after a revision."""
        return (each for each in self._incidents.values() if each.revision > revision)

    def removed_since(self, revision: int) -> Iterator[tuple[int, str]]:
        """Nothing is removed."""
        return iter(())

    def revision(self) -> int:
        """The latest revision."""
        return len(self._incidents)


def text_of(folder: str, inputs: Sequence[str], rules: RuleSet) -> str:
    """The redacted deciding lines of a job, as the memory takes them."""
    listening = Listening()
    paths, kernel, scheduler = [], [], []
    words = iter(inputs)
    for word in words:
        if word in ("--kernel-log", "--scheduler-record", "--inventory"):
            {"--kernel-log": kernel, "--scheduler-record": scheduler}.get(word, []).append(
                os.path.join(folder, next(words))
            )
        else:
            paths.append(os.path.join(folder, word))
    report = diagnose(Request(paths, kernel, scheduler), Services(rules, second_opinion=listening))
    redactor = Redactor(rules.redactions, hosts=sorted(listening.gatherer.holder.hosts))
    return redactor.redact(deciding_text(report, listening.gatherer.excerpt(report, _TOKENS)))


def cases(directory: str, rules: RuleSet) -> list[Case]:
    """The labelled failures below a directory: NAME.yaml beside NAME.log, or a directory with its inputs."""
    off = replace(rules, diagnoses=())
    found = []
    for path in sorted(glob.glob(os.path.join(directory, "*.yaml")) + glob.glob(os.path.join(directory, "*/*.yaml"))):
        with open(path, encoding="utf-8") as file:
            label = yaml.safe_load(file)
        if not label.get("error_type") or label.get("status") == "inconclusive":
            continue
        folder = os.path.dirname(path)
        inputs = label.get("inputs") or [os.path.basename(path).removesuffix(".yaml") + ".log"]
        accepted = frozenset((label["error_type"], *(label.get("accept") or ())))
        texts = [text_of(folder, inputs, which) for which in (rules, off)]
        found.append(Case(f"{os.path.basename(directory)}/{label['id']}", label["error_type"], accepted, *texts))
    return found


def incident(case: Case, number: int) -> Incident:
    """A case as a confirmed incident; its name says nothing."""
    return Incident(f"i{number}", case.label, text=case.remembered, confirmed=True)


def accuracy(known: list[Case], halved: list[Case], splits: int, embedder: Any) -> None:
    """Prints the figures of section 8."""
    rows: list[tuple[bool, bool, bool, bool]] = []
    decisions: list[tuple[float, bool]] = []
    per_split: list[tuple[float, float]] = []
    for split in range(splits):
        shuffled = list(halved)
        random.Random(split).shuffle(shuffled)
        stored = known + shuffled[: len(shuffled) // 2]
        labels = {case.label for case in stored}
        asked = [case for case in shuffled[len(shuffled) // 2 :] if case.label in labels]
        first = len(rows)
        with tempfile.TemporaryDirectory() as folder:
            kept = Kept([incident(case, number) for number, case in enumerate(stored)])
            index = IncidentIndex(Place(folder, "numpy"), kept, embedder, lambda text: text)
            index.sync()
            for case in asked:
                near = index.similar(case.asked, NEIGHBOURS)
                types = [each.error_type for each in near[:3]]
                rows.append(
                    (
                        case.label in types[:1],
                        case.label in types,
                        bool(case.accepted & set(types[:1])),
                        bool(case.accepted & set(types)),
                    )
                )
                name, strength = agreement(near)
                decisions.append((strength, name in case.accepted))
            index.close()
        part = rows[first:]
        per_split.append((sum(row[1] for row in part) / len(part), sum(row[3] for row in part) / len(part)))
    count = len(rows)
    share = [sum(row[place] for row in rows) / count for place in range(4)]
    print(
        f"{embedder.name}: {len(known)} + {len(halved) // 2} incidents, {count // splits} asked about, {splits} splits"
    )
    print(f"  nearest        right {share[0]:.1%}  accepted {share[2]:.1%}")
    low, high = min(each[1] for each in per_split), max(each[1] for each in per_split)
    print(f"  among 3        right {share[1]:.1%}  accepted {share[3]:.1%} ({low:.1%} to {high:.1%})")
    ranked = sorted(decisions, reverse=True)
    right, least = 0, 1.0
    for place, (strength, good) in enumerate(ranked, 1):
        right += good
        if right / place >= 0.9:
            least = strength
    print(f"  threshold for 90 % right: {least:.3f} (set: {AGREEMENT})")
    for threshold in sorted({round(least, 3), AGREEMENT}):
        decided = [good for strength, good in decisions if strength >= threshold]
        right_of = sum(decided) / max(len(decided), 1)
        print(f"  at {threshold:.3f}: decides {len(decided) / count:.1%}, right in {right_of:.1%}")


def speed(known: list[Case], count: int, backend: str, embedder: Any) -> None:
    """Prints how long a retrieval takes among many incidents, and how long they take to be read."""
    chance = random.Random(0)
    words = sorted({word for case in known for word in case.remembered.split()})
    made = []
    for number in range(count):
        case = chance.choice(known)
        extra = " ".join(chance.choices(words, k=40))
        made.append(replace(incident(case, number), text=f"{case.remembered}\nerror: {extra}"))
    with tempfile.TemporaryDirectory() as folder:
        index = IncidentIndex(Place(folder, backend), Kept(made), embedder, lambda text: text)
        start = time.perf_counter()
        index.sync()
        filled = time.perf_counter() - start
        start = time.perf_counter()
        index.similar(known[0].asked)
        first = time.perf_counter() - start
        took = []
        for case in (known * 3)[:200]:
            start = time.perf_counter()
            index.similar(case.asked)
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
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--embeddings", choices=("hashed", "minilm"), default="minilm")
    parser.add_argument("--incidents", type=int, default=0, help="time among so many instead")
    parser.add_argument("--vectors", choices=("chroma", "numpy"), default="chroma")
    options = parser.parse_args()
    rules = load_rules()
    embedder = MiniLM() if options.embeddings == "minilm" else HashedWords()
    known = cases(options.directories[0], rules)
    if options.incidents:
        speed(known, options.incidents, options.vectors, embedder)
        return
    halved = [case for directory in options.directories[1:] for case in cases(directory, rules)]
    accuracy(known, halved, options.splits, embedder)


if __name__ == "__main__":
    main()
