"""A failure anywhere in a large log: what is found does not depend on how much routine stands around it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from diagnose.models import Report, RuleSet
from diagnose.settings import Limits, Settings
from tests.incidents import Incident, incidents, run

MEGABYTES = 5
FIRST_STEP = 800_000  # beyond the incidents' own: a step that falls would begin another attempt
PLACES = {"begin": 0.0, "early": 0.2, "middle": 0.5, "late": 0.9, "end": 1.0}
LINE = (
    " [2015-05-04 03:{minute:02}:{second:02}] iteration {step:8}/  900000 | consumed samples: {samples:12} | elapsed time"
    " per iteration (ms): 912.4 | learning rate: 1.2E-04 | global batch size:   512 | lm loss: 2.31E+00 | loss scale: 1.0"
    " | grad norm: 0.412 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
)


def one_log(incident: Incident) -> str | None:
    words = incident.expected["inputs"]
    plain = words[0].endswith((".log", ".out", ".txt", ".err"))
    return words[0] if len(words) == 1 and plain and os.path.isfile(os.path.join(incident.folder, words[0])) else None


# A log that runs backwards within one that runs forwards has no order.
SINGLE = [incident for incident in incidents() if one_log(incident) and "newest-first" not in incident.name]
assert len(SINGLE) > 40


@pytest.fixture(scope="module")
def routine() -> list[str]:
    lines: list[str] = []
    size = 0
    while size < MEGABYTES << 20:
        number = len(lines)
        step = FIRST_STEP + number
        lines.append(LINE.format(minute=number // 60 % 60, second=number % 60, step=step, samples=step * 512))
        size += len(lines[-1])
    return lines


def embedded(incident: Incident, place: str, routine: list[str], folder: Path) -> int:
    """Writes the incident's log within the routine; returns how many lines stand before it."""
    name = one_log(incident)
    assert name
    with open(os.path.join(incident.folder, name), encoding="utf-8", errors="surrogateescape", newline="") as file:
        text = file.read()
    before = int(len(routine) * PLACES[place])
    with open(folder / name, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        file.writelines(routine[:before])
        file.write(text if text.endswith("\n") else text + "\n")
        file.writelines(routine[before:])
    return before


def seen(report: Report, before: int = 0) -> set[tuple[object, ...]]:
    """What was seen and where, whether it was set aside or not."""
    return set(_seen(report, before))


def _seen(report: Report, before: int) -> Iterator[tuple[object, ...]]:
    explanation = report.explanation
    for finding in (*explanation.findings, *(excluded.finding for excluded in explanation.excluded)):
        first = finding.evidence[0]
        yield finding.rule, finding.error_type, finding.count, finding.ranks, first.line and first.line - before


def _but_ranks(entries: set[tuple[object, ...]]) -> set[tuple[object, ...]]:
    return {(*entry[:3], entry[4]) for entry in entries}


# Its labels stand in a dozen lines only: deep in another log they are known for ones after the first few of them.
FEW_LABELS = {"argparse-unrecognized"}


@pytest.mark.parametrize("number", range(len(SINGLE)), ids=[incident.name for incident in SINGLE])
def test_found_wherever_it_stands(number: int, routine: list[str], rule_set: RuleSet, tmp_path: Path) -> None:
    incident = SINGLE[number]
    alone = run(incident.folder, incident.expected["inputs"], rule_set)
    # Steps after the end of a job that completed are another attempt, which is then the one to diagnose.
    place = "end" if alone.progress.completed else list(PLACES)[number % len(PLACES)]
    before = embedded(incident, place, routine, tmp_path)
    large = run(str(tmp_path), incident.expected["inputs"], rule_set)
    assert large.stats.bytes > MEGABYTES << 20
    assert _but_ranks(seen(large, before)) == _but_ranks(seen(alone)), place
    # A label that is too short-lived to be taken for a rank may be known for one among thousands of lines.
    known = {entry: entry[3] for entry in seen(alone) if entry[3]}
    if incident.name in FEW_LABELS:
        ranks = {entry[:3] + entry[4:]: entry[3] for entry in seen(large, before)}
        assert all(ranks[entry[:3] + entry[4:]] < known[entry] for entry in known)
    else:
        assert known.keys() <= seen(large, before), place
    if place == "end":
        assert (large.status, large.error_type, large.attribution) == (
            alone.status,
            alone.error_type,
            alone.attribution,
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("incident", "place"),
    [
        pytest.param(incident, place, id=f"{incident.name}-{place}")
        for incident in SINGLE
        for place in ("begin", "middle", "end")
    ],
)
def test_the_compressor_changes_nothing(
    incident: Incident, place: str, routine: list[str], rule_set: RuleSet, tmp_path: Path
) -> None:
    embedded(incident, place, routine, tmp_path)
    packed, small, whole = (
        run(str(tmp_path), incident.expected["inputs"], rule_set, settings)
        for settings in (Settings(), Settings(limits=Limits(block_bytes=4096)), Settings(compress=False))
    )
    for report in (packed, small):
        assert seen(report) == seen(whole)
        assert (report.status, report.error_type, report.culprits) == (whole.status, whole.error_type, whole.culprits)


@pytest.fixture(scope="module")
def blind(rule_set: RuleSet) -> RuleSet:
    """The shipped rules, and a filter that takes every line with a blank for routine."""
    wrong = replace(
        next(rule for rule in rule_set.filters if rule.action == "drop"),
        id="all-is-routine",
        sources=("job", "kernel", "scheduler", "launcher", "dump"),
        keywords=(" ",),
        pattern=".*",
        yields=None,
        keep_first=0,
    )
    return replace(rule_set, filters=(wrong,))


@pytest.mark.parametrize("incident", SINGLE, ids=lambda incident: incident.name)
def test_no_filter_hides_a_failure(incident: Incident, rule_set: RuleSet, blind: RuleSet) -> None:
    """What any diagnosis rule could match passes whatever filters say: a wrong one costs context, never a finding."""
    inputs = incident.expected["inputs"]
    filtered, whole = (
        run(incident.folder, inputs, blind),
        run(incident.folder, inputs, rule_set, Settings(compress=False)),
    )
    assert seen(filtered) >= seen(whole)


def test_the_blind_filter_does_drop(blind: RuleSet, routine: list[str], tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("".join(routine[:500]))
    report = run(str(tmp_path), ["job.log"], blind)
    assert report.coverage.dropped_lines > 400
