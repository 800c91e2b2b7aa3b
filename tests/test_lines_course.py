"""The step before any line of a source, however many lines tell of steps and in whichever order they come."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.lines.course import Course


def course(*marks: tuple[int, int | None]) -> Course:
    made = Course()
    for number, step in marks:
        made.note(number, step)
    return made


def test_the_step_that_stood_last_before_a_line() -> None:
    told = course((10, 1), (20, 2), (30, 7))
    assert [told.before(number) for number in (5, 10, 19, 20, 29, 30, 99)] == [1, 1, 1, 2, 2, 7, 7]
    assert course().before(5) is None
    assert course((3, None)).before(5) is None


@settings(max_examples=100, deadline=None)
@given(st.permutations(range(12)))
def test_lines_held_back_are_put_where_they_stood(order: list[int]) -> None:
    told = course(*((number, number * 10) for number in order))
    assert [told.before(number) for number in range(12)] == [number * 10 for number in range(12)]


def test_of_very_many_the_latest_are_exact_and_the_others_bounded() -> None:
    told = course(*((number, number // 3) for number in range(30_000)))
    assert all(told.before(number) == number // 3 for number in range(29_000, 30_000))
    assert (told.before(5) or 0) > 5 // 3, "rather too few steps since"
    assert len(told._marks) <= 2 * 1024


def test_a_step_that_many_writers_state_in_turn_takes_one_place() -> None:
    told = course(*((number, number // 900) for number in range(90_000)))
    assert told.before(10 * 900 + 5) == 10
