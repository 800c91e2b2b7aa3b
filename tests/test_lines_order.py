"""Newest-first exports are put right; everything else passes through untouched."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.errors import LimitExceeded, SourceError
from diagnose.lines import restore
from diagnose.lines.order import newest_first
from diagnose.models import LogSource
from diagnose.settings import Limits

TRACE = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', "    g()", "KeyError: 1"]


def run(lines: list[str]) -> tuple[bool, list[str]]:
    data = ("\n".join(lines) + "\n").encode()
    restored = restore(LogSource("x"), iter([data[:4096], data[4096:]]), Limits())
    out = b"".join(restored.blocks).decode().split("\n")[:-1]
    assert [lines[restored.original(number, len(out)) - 1] for number in range(1, len(out) + 1)] == out
    return restored.reversed, out


def stamped(form: str, count: int = 12) -> list[str]:
    return [form.format(s=second, m=second // 60) + f" step {second}" for second in range(count)]


FORMS = [
    "2026-01-01 00:00:{s:02d}", "[2026-01-01T00:00:{s:02d}Z]", "Apr 14 13:18:{s:02d} gx-1 kernel:", "[   {s:02d}.123456]",
    "17672256{s:02d}", "17672256{s:02d}123", '{{"level": "info", "time": "2026-01-01T00:00:{s:02d}Z"}}',
    "[rank0]: 2026-01-01 00:00:{s:02d},5",
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_stamp(form):
    natural = stamped(form)
    assert run(natural) == (False, natural)
    assert run(natural[::-1]) == (True, natural)


def log() -> list[str]:
    lines = stamped("2026-01-01 00:00:{s:02d}")
    return [*lines[:9], lines[9] + " died", *TRACE, *lines[10:]]


def test_line_by_line():
    assert run(log()[::-1]) == (True, log())


def test_entry_by_entry():
    natural = log()
    entries: list[list[str]] = []
    for line in natural:
        if line.startswith("2026"):
            entries.append([])
        entries[-1].append(line)
    export = [line for entry in entries[::-1] for line in entry]
    assert run(export) == (True, natural)


def test_ties_in_natural_order():
    trace = [f"2026-01-01 00:00:09 {line}" for line in TRACE]
    before, after = stamped("2026-01-01 00:00:{s:02d}", 9), [f"2026-01-01 00:00:{s} x" for s in range(10, 15)]
    natural = [*before, *trace, *after]
    assert run([*after[::-1], *trace, *before[::-1]]) == (True, natural)
    assert run(natural[::-1]) == (True, natural)


def test_headers_stay_on_top():
    rows = [f"2026-01-01T00:00:{s:02d}Z,message {s}" for s in range(9)]
    assert run(["timestamp,message", *rows[::-1]]) == (True, ["timestamp,message", *rows])


@pytest.mark.parametrize(
    "lines",
    [
        ["no stamps", "at all"] * 20,
        ["2026-01-01 00:00:05 a", "2026-01-01 00:00:01 b"] * 20,
        ["2026-01-01 00:00:05 a"] * 20,
        [*stamped("2026-01-01 00:00:{s:02d}"), *stamped("2026-01-01 00:00:{s:02d}")],
        ["2026-01-01 00:00:03 a", "2026-01-01 00:00:02 b", "2026-01-01 00:00:01 c"],
    ],
)
def test_other_orders_are_left_alone(lines):
    assert run(lines) == (False, lines)


def test_nothing_is_delayed_by_more_than_a_block():
    asked = []

    def blocks():
        for number in range(3):
            asked.append(number)
            yield b"2026-01-01 00:00:0%d x\n" % number

    restored = restore(LogSource("x"), blocks(), Limits())
    assert asked == []
    next(restored.blocks)
    assert asked == [0]


def test_too_large_is_left_as_it_is_and_said():
    export = stamped("2026-01-01 00:00:{s:02d}", 40)[::-1]
    data = [("\n".join(export[at : at + 10]) + "\n").encode() for at in range(0, 40, 10)]
    restored = restore(LogSource("x"), iter(data), Limits(structured_bytes=500))
    out = []
    with pytest.raises(LimitExceeded, match="oldest first"):
        out.extend(restored.blocks)
    assert b"".join(data) == b"".join([*out])
    assert restored.too_large
    assert not restored.reversed
    assert restored.original(3, 40) == 3


def test_a_break_in_the_input_is_passed_on_after_what_was_good():
    natural = stamped("2026-01-01 00:00:{s:02d}")

    def blocks():
        yield ("\n".join(natural[::-1]) + "\n").encode()
        raise SourceError("cut")

    restored = restore(LogSource("x"), blocks(), Limits())
    out = []
    with pytest.raises(SourceError, match="cut"):
        out.extend(restored.blocks)
    assert b"".join(out).decode().split("\n")[:-1] == natural


def test_empty():
    assert list(restore(LogSource("x"), iter(()), Limits()).blocks) == []
    assert not newest_first(b"")


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from([b"2026-01-01 00:00:%02d x" % s for s in range(9, 0, -1)]) | st.binary(max_size=20), max_size=40
    )
)
def test_lines_are_only_moved(parts):
    data = b"\n".join(parts)
    restored = restore(LogSource("x"), iter([data] if data else []), Limits())
    out = b"".join(restored.blocks)
    assert sorted(out.rstrip(b"\n").split(b"\n")) == sorted(data.rstrip(b"\n").split(b"\n")) or not restored.reversed
    if not restored.reversed:
        assert out == data
