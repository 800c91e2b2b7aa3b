"""YAML to dataclasses: what a scalar means, every problem at its line, hostile input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.models.rule import DiagnosisRule, Edge, FilterRule
from diagnose.rules.decode import decode, line_numbers


@dataclass(frozen=True, slots=True)
class Part:
    key: str
    size: int = 0


@dataclass(frozen=True, slots=True)
class Whole:
    name: str
    when: str | None = None
    count: int = 0
    share: float = 0.0
    sure: bool = False
    kind: Literal["a", "b"] = "a"
    words: tuple[str, ...] = ()
    edges: tuple[Edge, ...] = ()
    values: Mapping[str, int | float | str | bool] = field(default_factory=dict)
    parts: Mapping[str, Part] = field(default_factory=dict)


def good(text: str) -> Whole:
    value, problems = decode(text.encode(), "x.yml", Whole)
    assert problems == []
    assert value is not None
    return value


def bad(text: str | bytes, into=Whole) -> list[tuple[int | None, str]]:
    value, problems = decode(text if isinstance(text, bytes) else text.encode(), "x.yml", into)
    assert value is None
    assert problems
    return [(problem.line, problem.check) for problem in problems]


def test_types_decide_what_a_scalar_means():
    value = good(
        "name: 2026-03-02 was a Monday\nwhen: 2026-03-02\ncount: 12\nshare: 3\nsure: true\nkind: b\nwords: [a, 'yes']\n"
        "values: {rank: 3, gpu: 0000:10:00, half: 0.5, on: true, id: '17', code: 007, sum: 1e5}\n"
    )
    assert value.when == "2026-03-02"
    assert (value.count, value.share, value.sure, value.kind) == (12, 3.0, True, "b")
    assert isinstance(value.share, float)
    assert value.words == ("a", "yes")
    # YAML 1.1 would read 0000:10:00 as a number to the base of 60, and `on` as true.
    assert value.values == {
        "rank": 3,
        "gpu": "0000:10:00",
        "half": 0.5,
        "on": True,
        "id": "17",
        "code": "007",
        "sum": "1e5",
    }
    assert isinstance(value.values["rank"], int)


def test_an_edge_is_a_pattern_or_a_mapping():
    value = good("name: x\nedges: ['comm/*', {what: cuda/CUDAError, scope: host}]\n")
    assert value.edges == (Edge("comm/*"), Edge("cuda/CUDAError", "host"))


def test_a_key_field_is_filled_from_the_mapping():
    assert good("name: x\nparts:\n  79: {size: 2}\n").parts == {"79": Part("79", 2)}


def test_null_is_none_where_none_is_allowed():
    assert good("name: x\nwhen: null\n").when is None
    assert bad("name: ~\n") == [(1, "wrong-type")]


@pytest.mark.parametrize("word", ["yes", "no", "on", "off", "y", "N", "true", "12", "1.5", "1e3"])
def test_text_that_other_readers_take_for_something_else_must_be_quoted(word):
    assert bad(f"name: {word}\n") == [(1, "wrong-type")]
    assert good(f"name: '{word}'\n").name == word


def test_all_problems_are_reported_at_once_with_their_lines():
    text = "name: 3\ncount: many\nkind: c\nwords: one\nvalues: [1]\nnome: x\nname: again\nparts:\n  a: {siez: 1}\n"
    assert bad(text) == [
        (1, "wrong-type"),
        (2, "wrong-type"),
        (3, "not-allowed"),
        (4, "wrong-type"),
        (5, "wrong-type"),
        (6, "unknown-key"),
        (7, "duplicate-key"),
        (9, "unknown-key"),
    ]


def test_a_near_miss_is_suggested():
    _, problems = decode(b"name: x\nnmae: y\n", "x.yml", Whole)
    assert "did you mean 'name'?" in problems[0].message


def test_missing_keys_are_named():
    _, problems = decode(b"count: 1\n", "x.yml", Whole)
    assert [problem.message for problem in problems] == ["the key 'name' is missing"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"# only a comment\n",
        b"\xff\xfe",
        b"name: \xff",
        b"name: x\0",
        b"name: x\x07",
        b"[" * 100_000,
        b"{a: " * 100_000,
        b"- " * 100_000,
        b"? " * 100_000,
        b"name: [1\ncount: 2",
        b"name: x\n---\nname: y\n",
        b"name: *nobody",
        b"name: &a [*a]",
        b"<<: {name: x}",
        b"!!python/object/apply:os.system ['true']",
        b"name: !!python/name:os.system x",
        b"just text",
        b"- a\n- b\n",
        b"%YAML 9.9\n---\nname: x",
        b"name: \xed\xa0\x80",
    ],
)
def test_hostile_files_are_problems_not_crashes(data):
    bad(data)
    line_numbers(data)


def test_an_alias_bomb_costs_nothing():
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    text = "\n".join([*rows, "name: x", "words: *a29", "values: *a29", ""])
    assert (len(rows), "wrong-type") in bad(text)


def test_an_alias_of_a_collection_is_refused():
    assert (2, "alias") in bad("name: x\nwords: &w [a]\nedges: *w\n")


def test_a_byte_order_mark_is_no_matter():
    assert decode(b"\xef\xbb\xbfname: x\n", "x.yml", Whole)[0] == Whole("x")


def test_lines_are_known_by_dotted_name():
    lines = line_numbers(b"a: 1\nb:\n  c:\n    - x\n    - {d: 2}\n")
    assert lines == {"a": 1, "b": 2, "b.c": 3, "b.c[0]": 4, "b.c[1]": 5, "b.c[1].d": 5}


@given(st.binary(max_size=200))
def test_any_bytes_end_in_a_value_or_in_problems(data):
    for kind in (Whole, FilterRule, DiagnosisRule):
        value, problems = decode(data, "x.yml", kind)
        assert (value is None) == bool(problems)
        assert all(str(problem) for problem in problems)
