"""The coverage table: what is known in whose words, what is not, and that docs/coverage.md says so."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from diagnose.models import RuleSet
from diagnose.models.rule import ErrorType, Lookup, Program, Signature, Table, TableRow
from diagnose.rules.coverage import Coverage, coverage_markdown, coverage_of
from diagnose.rules.tree import shipped_rules

COMMITTED = os.path.join(os.path.dirname(shipped_rules()), "docs", "coverage.md")


@pytest.fixture(scope="module")
def coverage(rule_set: RuleSet) -> Coverage:
    return coverage_of(rule_set)


def test_the_committed_table_is_that_of_the_rules(rule_set: RuleSet) -> None:
    with open(COMMITTED, encoding="utf-8") as file:
        assert file.read() == coverage_markdown(rule_set), "run: python -m diagnose rules coverage > docs/coverage.md"


def test_every_signature_and_filter_names_a_program(coverage: Coverage) -> None:
    assert coverage.unnamed == ()


def test_every_error_type_is_known_in_some_form(rule_set: RuleSet, coverage: Coverage) -> None:
    assert {name for name, _ in coverage.forms} == set(rule_set.taxonomy)


def test_a_program_prints_what_a_rule_knows_of_it(rule_set: RuleSet, coverage: Coverage) -> None:
    printed = {(name, program.key) for program in rule_set.programs.values() for name in program.prints}
    assert set(coverage.forms) - printed == set(), "add the error type to the program's `prints` in rules/programs.yml"


def test_every_program_has_a_rule(rule_set: RuleSet, coverage: Coverage) -> None:
    assert set(rule_set.programs) == {program for _, program in coverage.forms} | set(coverage.filters)


def test_every_form_has_a_source(coverage: Coverage) -> None:
    assert {form.name for forms in coverage.forms.values() for form in forms if not form.source} == set()


def small(rule_set: RuleSet, pattern: str = "device lost", **signature: Any) -> RuleSet:
    """A rule set of one rule with one signature, one program and two error types."""
    rule = next(rule for rule in rule_set.diagnoses if rule.lookup is None and len(rule.signatures) == 1)
    (name,) = rule.signatures
    told = Signature(keywords=("device lost",), pattern=pattern, **signature)
    rule = replace(rule, id="lost", error_type="Lost", references=("https://example.com/first",))
    rule = replace(
        rule, signatures={name: told}, match=replace(rule.match, any=(name,), all=(), sequence=(), unless=())
    )
    return RuleSet(
        version="",
        filters=(),
        diagnoses=(rule,),
        taxonomy={name: ErrorType(name, "hardware") for name in ("Lost", "Worn", "KeyError")},
        tags=(),
        tables={},
        policy=(),
        programs={
            "driver": Program("driver", "The driver", ("Lost", "Worn")),
            "library": Program("library", "A library", ("KeyError", "Lost"), python=True),
        },
    )


def test_what_no_signature_covers_is_a_gap(rule_set: RuleSet) -> None:
    found = coverage_of(small(rule_set, programs=("driver",)))
    assert found.gaps == (("Worn", "driver"), ("Lost", "library"))
    assert found.unnamed == ()


def test_a_signature_without_a_program_is_named_and_covers_nothing(rule_set: RuleSet) -> None:
    found = coverage_of(small(rule_set))
    assert [name.partition(".")[0] for name in found.unnamed] == ["lost"]
    assert ("Lost", "driver") in found.gaps


def test_a_form_has_its_signature_s_versions_and_the_nearest_source(rule_set: RuleSet) -> None:
    plain = coverage_of(small(rule_set, programs=("driver",))).forms["Lost", "driver"]
    assert [(form.versions, form.source) for form in plain] == [("", "https://example.com/first")]
    own = small(rule_set, programs=("driver",), versions="Driver 2 and later", reference="https://example.com/own")
    (form,) = coverage_of(own).forms["Lost", "driver"]
    assert (form.versions, form.source) == ("Driver 2 and later", "https://example.com/own")
    assert "(Driver 2 and later) | [1](https://example.com/own) |" in coverage_markdown(own)


def test_what_a_library_raises_needs_no_rule(rule_set: RuleSet) -> None:
    found = coverage_of(small(rule_set, programs=("driver",)))
    assert found.forms["KeyError", "library"][0].name.startswith("exceptions KeyError")
    assert ("KeyError", "driver") not in found.forms


def looking_up(rule_set: RuleSet, pattern: str, rows: dict[str, TableRow]) -> Coverage:
    plain = small(rule_set, pattern=pattern, programs=("driver",))
    rule = replace(plain.diagnoses[0], lookup=Lookup("codes", "code"))
    return coverage_of(replace(plain, diagnoses=(rule,), tables={"codes": Table("codes", rows)}))


def keys_of(found: Coverage, error_type: str) -> list[str]:
    return [form.name.partition(" ")[2] for form in found.forms.get((error_type, "driver"), ())]


def test_a_table_that_is_looked_up_gives_every_error_type_of_its_rows(rule_set: RuleSet) -> None:
    rows = {"1": TableRow("1"), "2": TableRow("2", error_type="Worn"), "3": TableRow("3", error_type="Worn")}
    found = looking_up(rule_set, r"device lost: (?P<code>\d)", rows)
    assert keys_of(found, "Worn") == ["(codes 2, 3)"]
    assert keys_of(found, "Lost") == ["(codes 1)"]


def test_only_the_keys_that_a_signature_can_take_count(rule_set: RuleSet) -> None:
    rows = {"1": TableRow("1"), "(2)": TableRow("(2)"), "0x3": TableRow("0x3", error_type="Worn")}
    found = looking_up(rule_set, r"device lost: [)(]?(?P<code>\(?(?:[12]|4)[)]?) again \(\d\)", rows)
    assert keys_of(found, "Lost") == ["(codes 1, (2))"]
    assert keys_of(found, "Worn") == []


def test_a_signature_without_the_key_says_the_rule_s_own_type(rule_set: RuleSet) -> None:
    found = looking_up(rule_set, "device lost", {"1": TableRow("1", error_type="Worn")})
    assert keys_of(found, "Lost") == [""]
    assert keys_of(found, "Worn") == []


def test_many_keys_of_a_table_are_counted(rule_set: RuleSet) -> None:
    rows = {str(key): TableRow(str(key)) for key in range(20)}
    found = looking_up(rule_set, r"device lost: (?P<code>\d+)", rows)
    assert keys_of(found, "Lost")[0].endswith("10, 11 and 8 more)")


def test_a_signature_that_speaks_against_the_rule_covers_nothing(rule_set: RuleSet) -> None:
    plain = small(rule_set, programs=("driver",))
    (rule,) = plain.diagnoses
    against = replace(rule, match=replace(rule.match, unless=tuple(rule.signatures)))
    assert ("Lost", "driver") not in coverage_of(replace(plain, diagnoses=(against,))).forms


def test_a_type_without_any_form_says_so(rule_set: RuleSet) -> None:
    text = coverage_markdown(small(rule_set, programs=("driver",)))
    assert "### Worn\n\nNo form is known.\n" in text
    assert "| The driver | Worn |" in text
