"""What a change of rules changes: the next version, verdicts, noise, overlap, and the page that shows it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from diagnose.cli.rules import judged
from diagnose.dataclass import replace
from diagnose.learning.corpus import Corpus
from diagnose.learning.diff import Change, compare, markdown, next_version, pace
from diagnose.learning.stats import rule_figures
from diagnose.models import RuleSet
from diagnose.models.learning import RuleRecord
from diagnose.models.rule import Signature

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures")
HEALTHY = (("healthy.log", ("step 1 of 9", "all is well", "disk-full in a question, not here")),)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    fixtures = tmp_path_factory.mktemp("corpus")
    for job in ("incidents/disk-full-ds-save", "healthy/healthy-eval-of-errors"):
        shutil.copytree(os.path.join(FIXTURES, job), fixtures / job)
    return Corpus(str(fixtures), judged)


def changed(rule_set: RuleSet, id: str, **how: object) -> RuleSet:
    rules = tuple(replace(rule, **how) if rule.id == id else rule for rule in rule_set.diagnoses)
    return replace(rule_set, diagnoses=rules)


def without(rule_set: RuleSet, id: str) -> RuleSet:
    return replace(rule_set, diagnoses=tuple(rule for rule in rule_set.diagnoses if rule.id != id))


def step(before: RuleSet, after: RuleSet, corpus: Corpus) -> Change:
    return compare(before, after, corpus, HEALTHY, speed=False)


def test_nothing_changed(rule_set, corpus):
    change = step(rule_set, rule_set, corpus)
    assert (change.step, change.version) == ("none", rule_set.version)
    assert "Nothing" in markdown(change)


def test_a_removed_rule_is_a_major_step_and_its_verdicts_are_shown(rule_set, corpus):
    change = step(rule_set, without(rule_set, "disk-full"), corpus)
    assert change.step == "major"
    assert change.version == f"{int(rule_set.version[0]) + 1}.0.0"
    [(name, old, new)] = change.verdicts
    assert (name, old.error_type, old.rule) == ("disk-full-ds-save", "DiskFull", "disk-full")
    assert new.rule != "disk-full"
    page = markdown(change)
    assert "`disk-full` is gone" in page
    assert "| disk-full-ds-save | failed DiskFull" in page


def test_a_new_rule_is_a_minor_step(rule_set, corpus):
    change = step(without(rule_set, "disk-full"), rule_set, corpus)
    assert change.step == "minor"
    assert "`disk-full` is new" in markdown(change)


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ({"title": "Another title"}, "patch"),
        ({"error_type": "NetworkError"}, "major"),
        ({"verdict": "attribution"}, "major"),
        ({"signatures": "more"}, "minor"),
    ],
)
def test_how_far_a_change_moves_the_version(rule_set, corpus, how, wanted):
    rule = next(rule for rule in rule_set.diagnoses if rule.id == "disk-full")
    if how.get("verdict"):
        how = {"verdict": replace(rule.verdict, attribution="scheduler")}
    elif how.get("signatures"):
        how = {"signatures": {**rule.signatures, "more": Signature(("words of more",), "words of more")}}
    assert step(rule_set, changed(rule_set, "disk-full", **how), corpus).step == wanted


def test_taxonomy_and_tables_count_too(rule_set, corpus):
    types = {name: entry for name, entry in rule_set.taxonomy.items() if name != "StragglerGPU"}
    gone = next(iter(set(rule_set.taxonomy) - set(types)), None) or next(iter(rule_set.taxonomy))
    fewer = replace(rule_set, taxonomy={name: entry for name, entry in rule_set.taxonomy.items() if name != gone})
    assert any(gone in why for _, why in step(rule_set, fewer, Corpus("/nowhere", judged)).reasons)
    name, table = next(iter(rule_set.tables.items()))
    key = next(iter(table.rows))
    rows = {other: row for other, row in table.rows.items() if other != key}
    change = step(rule_set, replace(rule_set, tables={**rule_set.tables, name: replace(table, rows=rows)}), corpus)
    assert change.step == "major"


@pytest.mark.parametrize(
    ("version", "by", "wanted"),
    [
        ("1.4.2", "major", "2.0.0"),
        ("1.4.2", "minor", "1.5.0"),
        ("1.4.2+abc", "patch", "1.4.3"),
        ("1.4.2-rc.1", "none", "1.4.2"),
        ("", "minor", "0.1.0"),
        ("x.y", "patch", "0.0.1"),
    ],
)
def test_versions(version, by, wanted):
    assert next_version(version, by) == wanted


def test_names_in_the_page_address_nobody(rule_set, corpus):
    change = step(rule_set, without(rule_set, "disk-full"), corpus)
    hostile = replace(change, overlaps=("@team <script> ![x](http://y) a|b\nnew line",))
    page = markdown(hostile)
    assert "@team" not in page
    assert "<script>" not in page
    assert "![" not in page
    assert "\nnew line" not in page


def test_the_pace_is_a_ratio(rule_set):
    ratio = pace(rule_set, rule_set, (("a.log", ("some line",) * 50),))
    assert ratio is not None
    assert ratio > 0
    assert pace(rule_set, rule_set, ()) is None


def test_figures_of_rules(rule_set):
    records = (
        RuleRecord("disk-full", hits=4, decided=3, confirmed=1, refuted=2, last="2026-01-02T00:00:00"),
        RuleRecord("gone-rule", hits=1),
        RuleRecord("process-killed", hits=2, decided=2, refuted=2),
    )
    shadow = changed(rule_set, "address-in-use", status="experimental")
    figures = rule_figures((*records, RuleRecord("address-in-use", hits=5, confirmed=5)), shadow)
    assert [each.record.rule for each in figures[:2]] == ["disk-full", "address-in-use"]
    assert "wrong more often" in figures[0].remark
    assert "may leave the shadow" in figures[1].remark
    assert not next(each for each in figures if each.record.rule == "process-killed").remark  # too few to tell
    assert next(each for each in figures if each.record.rule == "gone-rule").status == "gone"
    assert sum(each.dead for each in figures) == len(rule_set.diagnoses) - 3


def test_a_corpus_that_is_not_there_is_empty(rule_set, tmp_path: Path):
    corpus = Corpus(str(tmp_path / "no"), judged)
    assert corpus.incidents == ()
    assert list(corpus.changes(rule_set, rule_set, ["word"])) == []
