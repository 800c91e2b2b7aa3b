"""The fuzzer's targets reach what they are for: their seeds are read, loaded and diagnosed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fuzz.run import LONGEST_SEED, ROOT, RULE_NAMES, TARGETS, seeds_of, target_of


@pytest.mark.parametrize("target", TARGETS)
def test_seeds_pass(target: str, tmp_path: Path) -> None:
    seeds = list(seeds_of(target))
    assert len(seeds) >= 5
    run = target_of(target, str(tmp_path))
    for seed in seeds[:: max(1, len(seeds) // 8)]:
        run(seed)


def test_rule_seeds_are_the_shipped_rules_and_load(tmp_path: Path) -> None:
    seeds = list(seeds_of("rules"))
    rules = [seed for seed in seeds if RULE_NAMES[seed[0]].startswith(("diagnoses/", "filters/"))]
    shipped = [
        path
        for kind in ("diagnoses", "filters")
        for path in Path(ROOT, "rules", kind).rglob("*.yml")
        if os.path.getsize(path) <= LONGEST_SEED
    ]
    assert len(rules) == len(shipped)
    run = target_of("rules", str(tmp_path))
    chosen = rules[::9]
    assert sum(bool(run(seed)) for seed in chosen) == len(chosen)


def test_a_broken_rule_does_not_load(tmp_path: Path) -> None:
    run = target_of("rules", str(tmp_path))
    assert run(bytes([0]) + b"schema: diagnosis-rule/v1\nid: x\n") is False
