"""Inputs in another order, and inputs that are missing or end early: the verdict is the same, or less is said.

What is not read adds nobody to blame: no machine, no rank, no action on a node, no cause that is more than possible.
"""

from __future__ import annotations

import os
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from diagnose.errors import DiagnoseError
from diagnose.models import Report, RuleSet
from tests.incidents import Incident, run
from tests.test_metamorphic import ALL, MACHINES, files_of, named, report_on, write

MANY = [incident for incident in ALL if len(files_of(incident)) > 1]
ENDED = "no failure"
_STRUCTURED = (".csv", ".json", ".yaml", ".yml")  # half of one is no listing that ends early
_PARTS = (0.15, 0.5, 0.85)
_SUBSETS, _SUBSETS_SLOW = 3, 60


KNOWN = {
    "elastic-two-attempts": "of so few directories it is not known that they are ranks', so one rank seems to be the only one",
    "kernel-logs-of-the-whole-rack": "a kernel log alone names memory that ran out as possible, which is the user's",
}
ALIKE = {("cuda-oom-first-step", 0.6): "of one rank the line names the GPU as well; later others say the same"}


def without(words: Sequence[str], dropped: Collection[str], left: Collection[str]) -> list[str]:
    """The arguments without those of which nothing is left, and their options."""
    kept: list[str] = []
    for word in words:
        if word in dropped or not (word.startswith("--") or _holds(word, left)):
            if kept and kept[-1].startswith("--"):
                kept.pop()
        else:
            kept.append(word)
    return kept


def _holds(word: str, names: Collection[str]) -> bool:
    return word in names or word == "." or any(name.startswith(f"{word}{os.sep}") or "*" in word for name in names)


def diagnosed(words: Sequence[str], files: Mapping[str, str], rule_set: RuleSet, folder: Path) -> Report | None:
    """The report on what is left; None where nothing is."""
    folder.mkdir(parents=True)
    write(str(folder), files)
    try:
        return run(str(folder), words, rule_set) if words else None
    except DiagnoseError:
        return None


def new_blame(before: Report, after: Report, incident: Incident) -> list[str]:
    """In what a report on less says more than the report on all."""
    found: list[str] = []
    possible = after.sureness == "possible"
    if after.status == "no_failure" != before.status:
        found.append(ENDED)
    if len(after.attempts) < len(before.attempts):
        return found  # an earlier attempt is the last one that was read, and ended of something else
    # A symptom may stand where its cause is not read any more, but then nobody is to blame for it; and what is told as
    # possible names its rivals, blames no user and has nothing done to a machine.
    types = (before.error_type, None, *incident.expected.get("accept", []))
    if after.error_type not in types and after.attribution not in ("unknown", None) and not possible:
        found.append(f"type {after.error_type}")
    blames = [before.attribution, None, "unknown", *incident.expected.get("accept_attribution", [])]
    if after.attribution not in [*blames, *(["scheduler", "infrastructure"] if possible else [])]:
        found.append(f"attribution {after.attribution}")
    kinds = (*MACHINES, "rank")
    strangers = {
        (culprit.kind, culprit.id)
        for culprit in (() if possible else after.culprits)
        if culprit.kind in kinds
        and not {(culprit.kind, name) for name in (culprit.id, *culprit.names)} & named(before, *kinds)
    }
    found += [f"culprit {kind} {name}" for kind, name in sorted(strangers)]
    known = {(node.host, node.action) for node in before.recovery.nodes}
    acted = {(node.host, node.action) for node in after.recovery.nodes if node.action != "inspect"}
    found += [f"node {host} {action}" for host, action in sorted(acted - known)]
    return found


def check_subsets(incident: Incident, subsets: Iterator[Collection[str]], rule_set: RuleSet, folder: Path) -> None:
    before = report_on(incident, rule_set)
    files = files_of(incident)
    for number, dropped in enumerate(subsets):
        left = {name: text for name, text in files.items() if name not in dropped}
        words = without(incident.expected["inputs"], dropped, left)
        after = diagnosed(words, left, rule_set, folder / str(number))
        assert after is None or not new_blame(before, after, incident), (
            sorted(left),
            new_blame(before, after, incident),
        )


def subsets(incident: Incident, count: int, seed: str) -> Iterator[Collection[str]]:
    """What to take away: sets of files of any size but all."""
    names = sorted(files_of(incident))
    chance = random.Random(f"{seed} {incident.name}")
    for _ in range(count if len(names) > 2 else min(count, 2 * len(names))):
        yield frozenset(chance.sample(names, chance.randint(1, len(names) - 1)))


def one_by_one(incident: Incident, most: int) -> Iterator[Collection[str]]:
    """Each file alone: those that the verdict rests on, then some of the others."""
    cited = {evidence["source"] for evidence in incident.expected.get("evidence", [])}
    names = sorted(files_of(incident))
    others = [name for name in names if name not in cited]
    yield from ({name} for name in names if name in cited)
    yield from ({name} for name in random.Random(incident.name).sample(others, min(most, len(others))))


@pytest.mark.parametrize("incident", MANY, ids=lambda incident: incident.name)
def test_an_input_taken_away_never_adds_a_blame(incident: Incident, rule_set: RuleSet, tmp_path: Path) -> None:
    check_subsets(incident, one_by_one(incident, 3), rule_set, tmp_path)


@pytest.mark.parametrize("incident", MANY, ids=lambda incident: incident.name)
def test_any_inputs_taken_away_never_add_a_blame(incident: Incident, rule_set: RuleSet, tmp_path: Path) -> None:
    check_subsets(incident, subsets(incident, _SUBSETS, "fast"), rule_set, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "incident",
    [
        pytest.param(
            one,
            id=one.name,
            marks=[pytest.mark.xfail(strict=True, reason=KNOWN[one.name])] if one.name in KNOWN else [],
        )
        for one in MANY
    ],
)
def test_many_sets_of_inputs_taken_away_never_add_a_blame(
    incident: Incident, rule_set: RuleSet, tmp_path: Path
) -> None:
    check_subsets(incident, one_by_one(incident, 1000), rule_set, tmp_path / "one")
    check_subsets(incident, subsets(incident, _SUBSETS_SLOW, "slow"), rule_set, tmp_path / "many")


def tails(incident: Incident) -> list[tuple[str, float]]:
    """Files to cut, and how much of them is left."""
    names = [name for name in sorted(files_of(incident)) if not name.endswith(_STRUCTURED)]
    return [(name, part) for name in names for part in _PARTS]


def check_tail(incident: Incident, name: str, part: float, rule_set: RuleSet, folder: Path) -> None:
    files = files_of(incident)
    lines = files[name].splitlines(keepends=True)
    cut = {**files, name: "".join(lines[: max(1, int(len(lines) * part))])}
    after = diagnosed(incident.expected["inputs"], cut, rule_set, folder / f"{part}-{name.replace(os.sep, '-')}")
    before = report_on(incident, rule_set)
    new = [] if after is None else [what for what in new_blame(before, after, incident) if what != ENDED]
    assert not new, (name, part, new)  # a log that is cut behind the end of its work is one of a job that was well


@pytest.mark.parametrize("incident", MANY, ids=lambda incident: incident.name)
def test_one_of_several_inputs_cut_short_never_adds_a_blame(
    incident: Incident, rule_set: RuleSet, tmp_path: Path
) -> None:
    for name, part in random.Random(incident.name).sample(tails(incident), min(3, len(tails(incident)))):
        check_tail(incident, name, part, rule_set, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("incident", MANY, ids=lambda incident: incident.name)
def test_any_of_several_inputs_cut_short_never_adds_a_blame(
    incident: Incident, rule_set: RuleSet, tmp_path: Path
) -> None:
    for name, part in tails(incident):
        check_tail(incident, name, part, rule_set, tmp_path)


ONE = [
    incident
    for incident in ALL
    if len(incident.expected["inputs"]) == 1 and incident.expected["inputs"][0] in files_of(incident)
]


@pytest.mark.parametrize(
    ("incident", "part"),
    [
        pytest.param(
            one,
            part,
            id=f"{one.name}-{part}",
            marks=[pytest.mark.xfail(strict=True, reason=ALIKE[one.name, part])] if (one.name, part) in ALIKE else [],
        )
        for one in ONE
        for part in (0.3, 0.6, 0.8, 0.9, 0.97)
    ],
)
def test_a_lost_tail_never_adds_a_blame(incident: Incident, part: float, rule_set: RuleSet, tmp_path: Path) -> None:
    check_tail(incident, incident.expected["inputs"][0], part, rule_set, tmp_path)


def shuffled(incident: Incident, seed: int) -> list[str]:
    """The arguments in another order, options among them, and directories as their files."""
    words = list(incident.expected["inputs"])
    names = sorted(files_of(incident))
    groups: list[tuple[str, ...]] = []
    while words:
        word = words.pop(0)
        if word.startswith("--"):
            groups.append((word, words.pop(0)))
        elif word in names:
            groups.append((word,))
        else:
            groups += [(name,) for name in names if name.startswith(f"{word}{os.sep}")]
    random.Random(f"{seed} {incident.name}").shuffle(groups)
    return [word for group in groups for word in group]


def answer(report: Report) -> tuple[object, ...]:
    """All that a report says of a job, whatever the order in which it is said."""
    cause = report.root_cause
    return (
        report.status, report.error_type, report.attribution, report.sureness,
        sorted((culprit.kind, culprit.id, culprit.names) for culprit in report.culprits),
        report.recovery.job, report.recovery.from_checkpoint,
        sorted((node.host, node.action, node.gpu or "") for node in report.recovery.nodes),
        cause.summary if cause else None,
        [(item.source, item.line) for item in cause.evidence] if cause else None,
        [(link.error_type, link.count, link.ranks) for link in report.chain],
        sorted(rival.error_type for rival in report.alternatives), report.progress, report.attempts,
    )  # fmt: skip


@pytest.mark.parametrize("incident", MANY, ids=lambda incident: incident.name)
def test_the_order_of_inputs_does_not_matter(incident: Incident, rule_set: RuleSet) -> None:
    before = answer(report_on(incident, rule_set))
    for seed in range(2):
        assert answer(run(incident.folder, shuffled(incident, seed), rule_set)) == before, shuffled(incident, seed)
