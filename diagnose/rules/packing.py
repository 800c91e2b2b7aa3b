"""A rule set as bytes, and back: what the bundle holds.

In: a `RuleSet`. Out: bytes, of which `unpacked` makes an equal one in a few milliseconds. The bytes say themselves how
their types nest, because asking `typing` at every start takes as long as all the rest. Equal parts, such as the edges
of rules, are made once; a look-up table, of which most runs need no row, when somebody first asks for it.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from diagnose.dataclass import fields, is_dataclass, maker
from diagnose.models import rule as rule_types
from diagnose.models.rule import RuleSet, Table

_VERSION = 4  # of marshal's format: every Python that this runs on reads it

# How values of a type are made of plain data: as they are (None), or by a way that its first word names.
Shape = tuple[Any, ...] | None
Build = Callable[[Any], Any]


def packed(rule_set: RuleSet) -> bytes:
    """The rule set as bytes."""
    return _dumped(rule_set, RuleSet)


def unpacked(data: bytes) -> RuleSet:
    """The rule set of such bytes, which must be whole."""
    rule_set = _loaded(data)
    if not isinstance(rule_set, RuleSet):
        raise TypeError("no rule set")
    return rule_set


class _Later(Mapping[str, Any]):
    """A mapping whose values are made when they are first asked for."""

    def __init__(self, data: Mapping[str, bytes]) -> None:
        self._data = data
        self._made: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        if key not in self._made:
            self._made[key] = _loaded(self._data[key])
        return self._made[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)


def _loaded(data: bytes) -> Any:
    shape, plain = marshal.loads(data)  # noqa: S302 - of a file that is the user's own, as the bytecode of modules is
    return _builder(shape)(plain)


def _builder(shape: Shape) -> Build:
    """What makes values of the shape from plain data, which it takes apart."""
    match shape:
        case None:
            return lambda plain: plain
        case "optional", inner:
            given = _builder(inner)
            return lambda plain: None if plain is None else given(plain)
        case "tuple", inner:
            each = _builder(inner)
            return lambda plain: tuple([each(item) for item in plain])
        case "mapping", inner:
            value = _builder(inner)
            return lambda plain: {key: value(item) for key, item in plain.items()}
        case ("later",):
            return _Later
        case "shared", name, distinct:
            made = [*map(maker(getattr(rule_types, name)), distinct)]
            return made.__getitem__
        case _:
            _, name, parts = shape
            make = maker(getattr(rule_types, name))
            builders = [(place, _builder(part)) for place, part in parts]

            def build(plain: list[Any]) -> Any:
                for place, of_part in builders:
                    plain[place] = of_part(plain[place])
                return make(plain)

            return build


def _dumped(value: object, hint: Any) -> bytes:
    shape = _shape(hint)
    return marshal.dumps((shape, _plain(value, shape)), _VERSION)


def _shape(hint: Any, known: dict[Any, Shape] | None = None) -> Shape:
    """The shape of a type's values; one of a class without parts of their own will list them, each once."""
    import types
    import typing

    known = {} if known is None else known
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and is_dataclass(hint):
        if hint not in known:
            hints = typing.get_type_hints(hint)
            parts = [(place, _shape(hints[field.name], known)) for place, field in enumerate(fields(hint))]
            deep = [(place, part) for place, part in parts if part is not None]
            known[hint] = ("own", hint.__name__, deep) if deep else ("shared", hint.__name__, [])
        return known[hint]
    if origin is tuple:
        each = _shape(arguments[0], known)
        return each and ("tuple", each)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        value = ("later",) if arguments[1] is Table else _shape(arguments[1], known)
        return value if value == ("later",) else value and ("mapping", value)
    if origin in (typing.Union, types.UnionType):
        inner = next((shape for argument in arguments if (shape := _shape(argument, known))), None)
        return inner and ("optional", inner)
    return None


def _plain(value: Any, shape: Shape) -> Any:
    """The value as plain data."""
    match shape:
        case None:
            return dict(value) if isinstance(value, Mapping) else value
        case "optional", inner:
            return None if value is None else _plain(value, inner)
        case "tuple", inner:
            return [_plain(item, inner) for item in value]
        case "mapping", inner:
            return {key: _plain(item, inner) for key, item in value.items()}
        case ("later",):
            return {key: _dumped(item, type(item)) for key, item in value.items()}
        case _:
            kind, _, parts = shape
            of_part = dict(parts) if kind == "own" else {}
            given = [getattr(value, field.name) for field in fields(value)]
            plain = [_plain(item, of_part.get(place)) for place, item in enumerate(given)]
            if kind == "own":
                return plain
            if plain not in parts:
                parts.append(plain)
            return parts.index(plain)
