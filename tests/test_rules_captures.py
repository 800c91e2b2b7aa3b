"""What patterns capture: typed values, and how they are shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.rules.captures import fill_whole, shown, shown_names, shown_numbers, typed


@pytest.mark.parametrize(
    ("name", "text", "kind", "wanted"),
    [
        ("count", "42", "int", 42),
        ("count", " -7 ", "int", -7),
        ("count", "4.2", "int", None),
        ("count", "9" * 19, "int", None),
        ("count", "", "int", None),
        ("rank", "3", None, 3),  # reserved names have a type of their own
        ("rank", "three", None, None),
        ("xid", "79", None, 79),
        ("word", "  text ", None, "text"),
        ("word", "   ", None, None),
        ("word", "x" * 1000, None, "x" * 400),
        ("gpu", "3", None, "3"),
        ("gpu", "0000:3B:00.0", None, "0000:3b:00"),
        ("device", "00000000:3B:00", "pci", "0000:3b:00"),
        ("host", "n1.example", "host", "n1.example"),
    ],
)
def test_a_text_becomes_a_value_of_its_type(name, text, kind, wanted):
    assert typed(name, text, kind) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1800000", 1_800_000),
        ("600 ms", 600),
        ("1.5s", 1500),
        ("30 sec", 30_000),
        ("10 min", 600_000),
        ("2m", 120_000),
        ("1h", 3_600_000),
        ("ten", None),
        ("1 day", None),
    ],
)
def test_durations_become_milliseconds(text, wanted):
    assert typed("waited", text, "duration_ms") == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("512", 512),
        ("2 KiB", 2048),
        ("1.50 GiB", 3 << 29),
        ("3G", 3 << 30),
        ("1 tb", 1 << 40),
        ("7B", 7),
        ("many", None),
        ("1 XB", None),
    ],
)
def test_sizes_become_bytes(text, wanted):
    assert typed("size", text, "bytes") == wanted


@given(st.text(max_size=60), st.sampled_from(["int", "str", "pci", "rank", "host", "duration_ms", "bytes", None]))
def test_no_text_breaks_a_type(text, kind):
    value = typed("value", text, kind)
    assert value is None or isinstance(value, (int, str))


def test_runs_of_numbers_are_ranges():
    assert shown_numbers([], 4) == ""
    assert shown_numbers([7, 0, 2, 1, 2, 9], 4) == "0-2, 7, 9"


@given(st.sets(st.integers(0, 200)))
def test_ranges_tell_the_same_numbers(numbers):
    told = set()
    for part in filter(None, shown_numbers(numbers, 201).split(", ")):
        low, _, high = part.partition("-")
        told |= set(range(int(low), int(high or low) + 1))
    assert told == numbers


def test_long_lists_are_cut_with_a_count():
    assert shown(3) == "3"
    assert shown((0, 1, 2, 5)) == "0-2, 5"
    assert shown(("b", "a")) == "b, a"
    assert shown(tuple(range(0, 40, 2)), limit=3) == "0, 2, 4 and 17 more"
    assert shown_numbers([0, 1, 3, 5, 6, 7], 2) == "0-1, 3 and 3 more"
    assert shown_names(["b", "a", "c"], 2) == "b, a and 1 more"
    assert shown_names(["b", "a"], 2) == "b, a"
    assert shown((True, False)) == "True, False"
    assert shown(()) == ""


@pytest.mark.parametrize(
    ("value", "kind", "wanted"),
    [
        (600_000, "duration_ms", "10 min"),
        (5_400_000, "duration_ms", "1.5 h"),
        (20_000, "duration_ms", "20 s"),
        (0, "duration_ms", "0 ms"),
        (64 << 20, "bytes", "64 MiB"),
        (1536, "bytes", "1.5 KiB"),
        (12, "bytes", "12 bytes"),
        (12, "int", "12"),
        ("much", "bytes", "much"),
    ],
)
def test_sizes_and_times_are_shown_in_units(value, kind, wanted):
    assert shown(value, kind=kind) == wanted


def test_a_culprit_is_named_whole_or_not_at_all():
    assert fill_whole("{host}:{gpu}", {"host": "n1", "gpu": "3"}) == "n1:3"
    assert fill_whole("{host}:{gpu}", {"host": "n1"}) is None
    assert fill_whole("{failed|host}", {"host": "n1", "failed": ()}) == "n1"
    assert fill_whole("{a}", {"a": "{b}", "b": "secret"}) == "{b}"
