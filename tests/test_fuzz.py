"""The fuzzer itself runs with `.ci/run --full` alone; here, that it can begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.run import TARGETS, import_all, target_of


def test_all_that_targets_come_to_can_be_imported() -> None:
    assert import_all() > 200


@pytest.mark.parametrize("target", TARGETS)
def test_each_target_takes_an_input(target: str, tmp_path: Path) -> None:
    target_of(target, str(tmp_path))(b"\x00KeyError: 3\n")
