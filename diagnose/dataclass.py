"""`dataclass`, `field`, `fields`, `is_dataclass` and `replace` as in the standard library, at a tenth of the cost.

The standard ones write six methods per class as source text and compile them at every start, which took a third of a
small run. Here a class gets small functions, and its `__init__` is compiled once there are several instances. In:
classes with annotated fields. Out: slotted classes, which the standard `fields`, `replace` and `asdict` take as well.
Type checkers are shown the standard functions; of their options only those that are used here exist at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass", "field", "fields", "is_dataclass", "maker", "replace"]

_MISSING: Any = object()
_FIELDS = "__light_fields__"
_UNCOMPILED = 12  # instances; most classes have no more in a run


class _Field:
    """A field's name and where its value comes from when none is given."""

    __slots__ = ("default", "default_factory", "name")

    def __init__(self, default: Any = _MISSING, default_factory: Callable[[], Any] = _MISSING) -> None:
        self.name = ""
        self.default = default
        self.default_factory = default_factory


def _field(*, default: Any = _MISSING, default_factory: Callable[[], Any] = _MISSING) -> Any:
    """A default that is not written as a plain value."""
    return _Field(default, default_factory)


def _fields(of: Any) -> tuple[_Field, ...]:
    """The fields of a class or an instance, in order."""
    found: tuple[_Field, ...] = getattr(of, _FIELDS)
    return found


def _is_dataclass(of: object) -> bool:
    """Whether this is a dataclass or an instance of one."""
    return hasattr(of, _FIELDS)


def _replace(instance: Any, /, **changes: Any) -> Any:
    """A copy of the instance with other values in some fields."""
    for each in _fields(instance):
        if each.name not in changes:
            changes[each.name] = getattr(instance, each.name)
    return type(instance)(**changes)


def maker(of: Any) -> Callable[[Sequence[Any]], Any]:
    """What makes instances of a class from the values of all its fields, in order; it compiles nothing."""
    new: Callable[[Any], Any] = object.__new__
    setters = [getattr(of, each.name).__set__ for each in _fields(of)]

    def make(values: Sequence[Any]) -> Any:
        instance = new(of)
        for put, value in zip(setters, values, strict=True):
            put(instance, value)
        return instance

    return make


def _dataclass(*, slots: bool, frozen: bool = False) -> Callable[[type], type]:
    """Makes fields of a class's annotations; always with slots, and those of base classes are not read."""
    if not slots:
        raise TypeError("a dataclass has slots: say slots=True")
    return _frozen if frozen else _built


def _frozen(given: type) -> type:
    return _built(given, __setattr__=_refuse, __delattr__=_refuse)


def _built(given: type, **methods: Any) -> type:
    """The class over again, with slots and with the methods that it does not define itself."""
    body = dict(given.__dict__)
    described: list[_Field] = []
    for name in body.get("__annotations__", ()):
        default = body.pop(name, _MISSING)
        each = default if isinstance(default, _Field) else _Field(default)
        each.name = name
        described.append(each)
    for name in ("__dict__", "__weakref__"):
        body.pop(name, None)
    names = tuple(each.name for each in described)
    values: Callable[[Any], Any] = attrgetter(*names)

    left = _UNCOMPILED

    def first(self: Any, *given_values: Any, **named: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0 or not _fill(self, described, given_values, named):
            init = made.__init__ = _init(made, described)  # type: ignore[misc]  # takes the place of this one
            init(self, *given_values, **named)

    def same(self: Any, other: object) -> bool:
        return values(self) == values(other) if type(self) is type(other) else NotImplemented

    def shown(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def reduced(self: Any) -> tuple[type, tuple[Any, ...]]:
        return type(self), tuple([getattr(self, name) for name in names])

    methods |= {
        "__slots__": names,
        "__match_args__": names,
        "__init__": first,
        "__eq__": same,
        "__hash__": (lambda self: hash(values(self))) if "__setattr__" in methods else None,
        "__repr__": shown,
        "__reduce__": reduced,
        "__dataclass_fields__": _AsStandard(),
        _FIELDS: tuple(described),
    }
    made = type(given.__name__, given.__bases__, methods | body)
    return made


def _fill(instance: Any, described: list[_Field], given: tuple[Any, ...], named: dict[str, Any]) -> bool:
    """Sets the fields one by one; says no where the arguments do not fit, and leaves it to `__init__` to say why."""
    left = dict(named)
    for number, each in enumerate(described):
        if number < len(given):
            value = given[number]
        elif each.name in left:
            value = left.pop(each.name)
        elif each.default_factory is not _MISSING:
            value = each.default_factory()
        elif each.default is not _MISSING:
            value = each.default
        else:
            return False
        object.__setattr__(instance, each.name, value)
    return not left and len(given) <= len(described)


def _init(made: Any, described: list[_Field]) -> Callable[..., None]:
    """`__init__` of a class. Of a frozen one it sets slots by their descriptors: quicker than `object.__setattr__`."""
    frozen = made.__setattr__ is _refuse
    scope: dict[str, Any] = {"missing": _MISSING}
    head, lines = "self", [""]
    for number, each in enumerate(described):
        scope[f"set{number}"] = getattr(made, each.name).__set__
        value = each.name
        if each.default_factory is not _MISSING:
            scope[f"make{number}"] = each.default_factory
            head += f", {each.name}=missing"
            value = f"make{number}() if {each.name} is missing else {each.name}"
        elif each.default is not _MISSING:
            scope[f"default{number}"] = each.default
            head += f", {each.name}=default{number}"
        else:
            head += f", {each.name}"
        lines.append(f"set{number}(self, {value})" if frozen else f"self.{each.name} = {value}")
    exec(f"def __init__({head}):" + "\n ".join(lines), scope)  # noqa: S102 - names of fields alone, no data
    init: Callable[..., None] = scope["__init__"]
    return init


def _refuse(_self: object, name: str, _value: object = None) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot change field {name!r}")


class _AsStandard:
    """The standard library's own description of the fields, made for those of its functions that ask for it."""

    def __get__(self, instance: object, owner: type) -> dict[str, Any]:
        import dataclasses

        described = []
        for each in _fields(owner):
            given = {
                key: getattr(each, key) for key in ("default", "default_factory") if getattr(each, key) is not _MISSING
            }
            described.append((each.name, owner.__annotations__[each.name], dataclasses.field(**given)))
        made: Any = dataclasses.make_dataclass(owner.__name__, described)
        standard: dict[str, Any] = made.__dataclass_fields__
        owner.__dataclass_fields__ = standard  # type: ignore[attr-defined]  # in place of this descriptor
        return standard


if TYPE_CHECKING:
    from dataclasses import dataclass, field, fields, is_dataclass, replace
else:
    dataclass, field, fields, is_dataclass, replace = _dataclass, _field, _fields, _is_dataclass, _replace
