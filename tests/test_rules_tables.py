"""The shipped tables: complete, with a source for every row, and read by rules."""

from __future__ import annotations

import os
import re

import pytest

from diagnose.models import RuleSet
from diagnose.models.rule import Table
from diagnose.rules.decode import decode
from diagnose.rules.files import TableFile
from diagnose.rules.tree import shipped_rules

TABLES = os.path.join(shipped_rules(), "tables")
NAMES = sorted(name.removesuffix(".yml") for name in os.listdir(TABLES))


def written(name: str) -> TableFile:
    path = os.path.join(TABLES, f"{name}.yml")
    with open(path, "rb") as file:
        value, problems = decode(file.read(), path, TableFile)
    assert value is not None, problems
    return value


@pytest.mark.parametrize("name", NAMES)
def test_every_row_says_what_it_means_and_has_a_source(name: str) -> None:
    table = written(name)
    assert table.references
    for key, row in table.rows.items():
        assert row.title, key
        assert (row.source or table.references[0]).startswith("https://"), key
        assert all(action.source for action in row.actions), key


@pytest.mark.parametrize("name", NAMES)
def test_a_rule_looks_it_up(name: str, rule_set: RuleSet) -> None:
    assert [rule.id for rule in rule_set.diagnoses if rule.lookup is not None and rule.lookup.table == name]


def codes(table: Table) -> set[int]:
    return {int(key) for key in table.rows if key.isdecimal()}


def test_every_xid_of_the_driver_has_a_row(rule_set: RuleSet) -> None:
    assert codes(rule_set.tables["nvidia_xid"]) == set(range(1, 177))


def test_a_corrected_error_of_a_switch_is_survivable(rule_set: RuleSet) -> None:
    rows = rule_set.tables["nvidia_sxid"].rows
    assert rows["12021"].survivable
    assert not rows["20034"].survivable
    assert not any(rows[key].survivable for key in ("11004", "12028", "19084"))  # printed as non-fatal, and yet


def test_a_cuda_error_means_the_same_by_number_and_by_either_name(rule_set: RuleSet) -> None:
    rows = rule_set.tables["cuda_errors"].rows
    named = {key: row for key, row in rows.items() if not key.isdecimal()}
    assert all(re.fullmatch(r"cudaError\w+|CUDA_ERROR_\w+", key) for key in named)
    for key, row in named.items():
        same = rows[row.columns["number"]]
        assert (row.title, row.error_type, row.role) == (same.title, same.error_type, same.role), key
    assert rows["802"].error_type == "FabricManagerError"


def test_death_by_a_signal_means_the_same_in_every_form(rule_set: RuleSet) -> None:
    rows = rule_set.tables["exit_codes"].rows
    for key, row in rows.items():
        if key.startswith("-"):
            same = rows[str(128 - int(key))]
            assert (row.title, row.error_type, row.role) == (same.title, same.error_type, same.role), key


def test_a_syndrome_means_what_the_status_means_that_it_becomes(rule_set: RuleSet) -> None:
    rows = rule_set.tables["nccl_status"].rows
    for syndrome, status in (("0x4", "4"), ("0x5", "5"), ("0x13", "10"), ("0x15", "12"), ("0x16", "13")):
        assert rows[syndrome].title == rows[status].title
        assert rows[syndrome].error_type == rows[status].error_type
