"""Our dataclasses behave as the standard ones where the code relies on it."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from diagnose.dataclass import dataclass, field, fields, is_dataclass, replace


@dataclass(frozen=True, slots=True)
class Point:
    """A frozen one, with every kind of default."""

    x: int
    name: str = "origin"
    tags: list[str] = field(default_factory=list)

    @property
    def double(self) -> int:
        return 2 * self.x


@dataclass(slots=True)
class Tally:
    """A mutable one."""

    count: int = 0


def test_values_defaults_and_methods() -> None:
    points = [
        Point(1),
        Point(x=1),
        Point(1, "origin"),
        Point(1, tags=[]),
        Point(1, "origin", []),
    ]  # the last by `__init__`
    assert all(point == points[0] for point in points)
    assert points[0].tags is not points[1].tags
    assert points[0].double == 2
    assert repr(points[0]) == repr(points[-1]) == "Point(x=1, name='origin', tags=[])"
    assert Point(2) != points[0]
    assert points[0] != (1, "origin", [])
    assert Point.__doc__ == "A frozen one, with every kind of default."


def test_wrong_arguments_are_named() -> None:
    for arguments, named in (((), {}), ((1, "a", [], 4), {}), ((1,), {"x": 2}), ((1,), {"y": 2})):
        with pytest.raises(TypeError, match=r"__init__\(\)"):
            Point(*arguments, **named)  # type: ignore[arg-type]


def test_frozen_and_not() -> None:
    point, tally = Point(1), Tally()
    for change in (lambda: setattr(point, "x", 2), lambda: delattr(point, "x")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    tally.count += 1
    assert tally == Tally(1)
    with pytest.raises(AttributeError):
        tally.other = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        hash(tally)
    assert len({replace(Point(1), tags=()), Point(1, tags=())}) == 1  # type: ignore[arg-type]


def test_the_standard_functions_take_them() -> None:
    point = Point(1, tags=["a"])
    assert dataclasses.replace(point, x=2) == replace(point, x=2) == Point(2, tags=["a"])
    assert dataclasses.asdict(point) == {"x": 1, "name": "origin", "tags": ["a"]}
    assert [each.name for each in dataclasses.fields(Point)] == [each.name for each in fields(point)]
    assert dataclasses.fields(Point)[2].default_factory is list
    assert is_dataclass(point)
    assert dataclasses.is_dataclass(Point)
    assert not is_dataclass(1)
    assert copy.deepcopy(point) == pickle.loads(pickle.dumps(point)) == point
