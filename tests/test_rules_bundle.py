"""The prebuilt rules are the rules, and a cache in any state costs time only."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from diagnose.errors import RuleError
from diagnose.models import RuleSet
from diagnose.rules.bundle import load_bundled, slim


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "gpu-job-diagnose"


def test_the_bundle_is_the_rules(cache: Path, rule_set: RuleSet) -> None:
    first, second = load_bundled(), load_bundled()
    assert first == second == slim(rule_set)
    assert len(list(cache.iterdir())) == 1


@pytest.mark.parametrize("text", ["", "{", "[]", "[1, 2]", "null", '{"a": 1}', "[" * 10_000])
def test_a_broken_bundle_is_built_again(cache: Path, text: str, rule_set: RuleSet) -> None:
    load_bundled()
    path = next(cache.iterdir())
    path.write_text(text)
    assert load_bundled() == slim(rule_set)
    assert load_bundled() == slim(rule_set)
    assert path.stat().st_size > 10_000


def test_a_changed_site_rule_is_seen(cache: Path, tmp_path: Path, rule_set: RuleSet) -> None:
    site = tmp_path / "site"
    (site / "diagnoses").mkdir(parents=True)
    (site / "silenced.yml").write_text("schema: silenced/v1\nids: []\n")
    (site / "diagnoses" / "x.yml").write_text("id: [")
    with pytest.raises(RuleError):
        load_bundled([str(site)])


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule_set: RuleSet) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert load_bundled() == slim(rule_set)
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    assert load_bundled() == slim(rule_set)
