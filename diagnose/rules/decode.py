"""From YAML text to frozen dataclasses, with every problem found at its line.

In: the bytes of one file and the dataclass it must become. Out: the object, or problems (all of them, not the first).
The YAML is composed into nodes by libyaml and decoded straight from the nodes: types decide what a scalar means, so a
date or a `0000:10:00` stays the text that was written, and each node knows its line at no extra cost.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Final, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import yaml

from diagnose.dataclass import dataclass, field
from diagnose.errors import Problem
from diagnose.models.rule import Edge

T = TypeVar("T")
Decoder = Callable[["_Reading", yaml.Node, str], Any]

MAX_DEPTH: Final = 30  # of places that get a line of their own; types bound the decoding itself
MAX_PLACES: Final = 100_000
# Types that may be written as a plain string, and the field that string fills.
SHORT_FORMS: Final[Mapping[type, str]] = {Edge: "what"}
# A mapping of these fills this field from the key.
KEY_FIELD: Final = "key"

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS: Mapping[str, bool] = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
# What YAML 1.1 reads as something other than text: to be quoted, so that every reader sees the same.
_NOT_TEXT = frozenset(
    {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "~", ".nan", ".inf", "-.inf", "+.inf", "<<", "="}
)
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,18})\Z")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?\Z")


class _Bad:
    """Stands for a value that could not be decoded; its problem is recorded."""

    __slots__ = ()


_BAD: Final = _Bad()


class _NodeLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # chosen at run time
    """Composes nodes only; says how a scalar was written instead of guessing what it means."""

    def resolve(self, kind: type[yaml.Node], value: str | None, implicit: Any) -> str:
        if kind is yaml.ScalarNode:
            return "plain" if implicit[0] else "quoted"
        return "map" if kind is yaml.MappingNode else "seq"

    def descend_resolver(self, *_: object) -> None:
        pass

    def ascend_resolver(self) -> None:
        pass


@dataclass(slots=True)
class _Reading:
    """One file while it is decoded."""

    path: str
    problems: list[Problem] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    def bad(self, node: yaml.Node, where: str, check: str, message: str) -> _Bad:
        """Record a problem at a node; `where` is the dotted place in the file."""
        text = f"{where}: {message}" if where else message
        self.problems.append(Problem(self.path, node.start_mark.line + 1, check, text))
        return _BAD

    def enter(self, node: yaml.Node, where: str) -> bool:
        """Whether a collection may be decoded: once only, since aliases could make a small file huge."""
        if id(node) in self.seen:
            self.bad(node, where, "alias", "an alias repeats this value; write it out, rule files hold no aliases")
            return False
        self.seen.add(id(node))
        return True


def decode(data: bytes, path: str, into: type[T]) -> tuple[T | None, list[Problem]]:
    """Decode one YAML document into a dataclass; None when there is any problem."""
    node, problem = compose(data, path)
    if problem is not None:
        return None, [problem]
    assert node is not None
    return decode_node(node, path, into)


def decode_node(node: yaml.Node, path: str, into: type[T]) -> tuple[T | None, list[Problem]]:
    """Decode a composed document into a dataclass; None when there is any problem."""
    reading = _Reading(path)
    value = decoder_for(cast("Any", into))(reading, node, "")
    return (None if reading.problems else value), reading.problems


def compose(data: bytes, path: str) -> tuple[yaml.Node | None, Problem | None]:
    """The node tree of one YAML document, or the problem that prevents it."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return None, Problem(path, line, "file", "not UTF-8 text; save the file as UTF-8")
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        return None, Problem(path, line, "file", "holds NUL bytes: a binary file, not YAML")
    loader = _NodeLoader(text)
    try:
        node = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(part for part in (error.context, error.problem) if part)
        return None, Problem(path, None if mark is None else mark.line + 1, "yaml", f"not valid YAML: {what}")
    except yaml.YAMLError as error:
        first = str(error).partition("\n")[0]
        position = getattr(error, "position", None)
        line_ = None if position is None else text.count("\n", 0, position) + 1
        return None, Problem(path, line_, "yaml", f"not valid YAML: {first}")
    except RecursionError:
        return None, Problem(path, None, "yaml", "nested too deeply for a rule file")
    finally:
        loader.dispose()
    if node is None:
        return None, Problem(path, 1, "yaml", "the file is empty")
    return node, None


def line_numbers(data: bytes, path: str = "") -> Mapping[str, int]:
    """The 1-based line of every place of a file, by dotted name (`signatures.lost.pattern`, `examples.noise[0]`)."""
    node, _ = compose(data, path)
    return {} if node is None else dict(_lines(node, "", set()))


def _lines(node: yaml.Node, where: str, seen: set[int]) -> Iterator[tuple[str, int]]:
    if id(node) in seen or len(seen) > MAX_PLACES or where.count(".") + where.count("[") > MAX_DEPTH:
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                name = f"{where}.{key.value}" if where else key.value
                yield name, key.start_mark.line + 1
                yield from _lines(value, name, seen)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield f"{where}[{index}]", value.start_mark.line + 1
            yield from _lines(value, f"{where}[{index}]", seen)


@cache
def decoder_for(kind: Any) -> Decoder:
    """The decoder of a type: a dataclass, Literal, tuple[X, ...], Mapping, Optional, scalar, or a union of scalars."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        return _literal(args)
    if origin in (Union, types.UnionType):
        return _union(args)
    if origin is tuple:
        return _sequence(decoder_for(args[0]))
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(args[0], args[1])
    if isinstance(kind, type) and is_dataclass(kind):
        return _dataclass(kind)
    scalar = {str: _text, int: _integer, float: _number, bool: _boolean}.get(kind)
    if scalar is None:
        raise TypeError(f"rule files cannot hold {kind!r}")
    return scalar


def _is_null(node: yaml.Node) -> bool:
    return node.tag == "plain" and node.value in _NULLS


def _describe(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if _is_null(node):
        return "nothing"
    shown = node.value if len(node.value) <= 40 else node.value[:37] + "..."
    return repr(shown)


def _scalar(reading: _Reading, node: yaml.Node, where: str, wanted: str) -> str | _Bad:
    """The text of a scalar that is not null."""
    if node.tag == "quoted" or (node.tag == "plain" and node.value not in _NULLS):
        value: str = node.value
        return value
    if isinstance(node, yaml.ScalarNode) and node.tag not in ("plain", "quoted"):
        return reading.bad(node, where, "wrong-type", f"YAML tags such as {node.tag[:60]!r} are not allowed")
    return reading.bad(node, where, "wrong-type", f"must be {wanted}, not {_describe(node)}")


def _text(reading: _Reading, node: yaml.Node, where: str) -> Any:
    if node.tag == "quoted":
        return node.value
    value = _scalar(reading, node, where, "text")
    if isinstance(value, str) and (value.lower() in _NOT_TEXT or _FLOAT.match(value)):
        return reading.bad(node, where, "wrong-type", f"must be text; put {value!r} in quotes")
    return value


def _integer(reading: _Reading, node: yaml.Node, where: str) -> Any:
    value = _scalar(reading, node, where, "a whole number")
    if isinstance(value, str):
        if node.tag == "plain" and _INT.match(value):
            return int(value)
        return reading.bad(node, where, "wrong-type", f"must be a whole number, not {_describe(node)}")
    return value


def _number(reading: _Reading, node: yaml.Node, where: str) -> Any:
    value = _scalar(reading, node, where, "a number")
    if isinstance(value, str):
        if node.tag == "plain" and _FLOAT.match(value):
            return float(value)
        return reading.bad(node, where, "wrong-type", f"must be a number, not {_describe(node)}")
    return value


def _boolean(reading: _Reading, node: yaml.Node, where: str) -> Any:
    value = _scalar(reading, node, where, "true or false")
    if isinstance(value, str):
        if node.tag == "plain" and value in _BOOLS:
            return _BOOLS[value]
        return reading.bad(node, where, "wrong-type", f"must be true or false, not {_describe(node)}")
    return value


def _any_scalar(reading: _Reading, node: yaml.Node, where: str) -> Any:
    value = _scalar(reading, node, where, "a number, text, true or false")
    if not isinstance(value, str) or node.tag == "quoted":
        return value
    if _INT.match(value):
        return int(value)
    # `007` and `1e5` without a dot are left as written: identifiers, not quantities.
    if "." in value and _FLOAT.match(value) and not re.match(r"[-+]?0[0-9]", value):
        return float(value)
    return _BOOLS.get(value, value)


def _union(args: tuple[Any, ...]) -> Decoder:
    rest = tuple(arg for arg in args if arg is not types.NoneType)
    if all(get_origin(arg) is Literal for arg in rest):
        inner = _literal(tuple(value for arg in rest for value in get_args(arg)))
    elif len(rest) == 1:
        inner = decoder_for(rest[0])
    elif set(rest) <= {int, float, str, bool}:
        inner = _any_scalar
    else:
        raise TypeError(f"rule files cannot hold a union of {rest!r}")
    if len(rest) == len(args):
        return inner

    def optional(reading: _Reading, node: yaml.Node, where: str) -> Any:
        return None if _is_null(node) else inner(reading, node, where)

    return optional


def _literal(values: tuple[Any, ...]) -> Decoder:
    allowed = frozenset(values)

    def literal(reading: _Reading, node: yaml.Node, where: str) -> Any:
        if isinstance(node, yaml.ScalarNode) and node.value in allowed:
            return node.value
        choices = ", ".join(str(value) for value in values)
        return reading.bad(node, where, "not-allowed", f"must be one of {choices}; not {_describe(node)}")

    return literal


def _sequence(item: Decoder) -> Decoder:
    def sequence(reading: _Reading, node: yaml.Node, where: str) -> Any:
        if not isinstance(node, yaml.SequenceNode) or node.tag != "seq":
            return reading.bad(node, where, "wrong-type", f"must be a list, not {_describe(node)}")
        if not reading.enter(node, where):
            return _BAD
        return tuple([item(reading, part, f"{where}[{index}]") for index, part in enumerate(node.value)])

    return sequence


def _pairs(reading: _Reading, node: yaml.Node, where: str) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
    """Keys and values of a mapping node; keys that are no scalars or come twice are problems and left out."""
    seen: dict[str, int] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            reading.bad(key, where, "wrong-type", f"a key must be text, not {_describe(key)}")
        elif key.value in seen:
            first = seen[key.value]
            reading.bad(key, where, "duplicate-key", f"the key {key.value!r} stands here and in line {first}")
        else:
            seen[key.value] = key.start_mark.line + 1
            yield key.value, key, value


def _mapping(keys: Any, values: Any) -> Decoder:
    value_decoder: Callable[..., Any] = decoder_for(values)
    key_decoder = None if keys is str else decoder_for(keys)
    keyed = isinstance(values, type) and is_dataclass(values) and KEY_FIELD in {part.name for part in fields(values)}

    def mapping(reading: _Reading, node: yaml.Node, where: str) -> Any:
        if not isinstance(node, yaml.MappingNode) or node.tag != "map":
            return reading.bad(node, where, "wrong-type", f"must be a mapping, not {_describe(node)}")
        if not reading.enter(node, where):
            return _BAD
        found: dict[str, Any] = {}
        for name, key, value in _pairs(reading, node, where):
            if key_decoder is not None and key_decoder(reading, key, where) is _BAD:
                continue
            place = f"{where}.{name}" if where else name
            given = ({KEY_FIELD: name},) if keyed else ()
            found[name] = value_decoder(reading, value, place, *given)
        return found

    return mapping


def _dataclass(cls: type) -> Decoder:
    hints = get_type_hints(cls)
    parts = {part.name: decoder_for(hints[part.name]) for part in fields(cls)}
    required = tuple(part.name for part in fields(cls) if part.default is MISSING and part.default_factory is MISSING)
    short = SHORT_FORMS.get(cls)

    def build(reading: _Reading, node: yaml.Node, where: str, given: Mapping[str, str] = {}) -> Any:  # only read
        if short is not None and isinstance(node, yaml.ScalarNode):
            value = parts[short](reading, node, where)
            return value if value is _BAD else cls(**{short: value})
        if not isinstance(node, yaml.MappingNode) or node.tag != "map":
            return reading.bad(node, where, "wrong-type", f"must be a mapping, not {_describe(node)}")
        if not reading.enter(node, where):
            return _BAD
        before = len(reading.problems)
        found: dict[str, Any] = dict(given)
        for name, key, value in _pairs(reading, node, where):
            part = parts.get(name)
            if part is None:
                reading.bad(key, where, "unknown-key", _unknown(name, parts))
            else:
                found[name] = part(reading, value, f"{where}.{name}" if where else name)
        for name in required:
            if name not in found:
                reading.bad(node, where, "missing-key", f"the key {name!r} is missing")
        return cls(**found) if len(reading.problems) == before else _BAD

    return build


def _unknown(name: str, known: Mapping[str, object]) -> str:
    from difflib import get_close_matches

    shown = name if len(name) <= 40 else name[:37] + "..."
    near = get_close_matches(shown, known, n=1)
    return f"unknown key {shown!r}" + (f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}")
