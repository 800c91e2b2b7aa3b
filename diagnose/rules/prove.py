"""Proof that a pattern cannot match a text without one of its keywords, from the parsed pattern.

In: a pattern and keywords. Out: `proves` (every text that matches holds a keyword), `counter_example` (a text that
matches and holds none), `unsafe_constructs` (what RE2 would refuse, in words). A pattern is unfolded into the literal
runs of its alternatives; what is not literal is a gap. Where that does not prove it, the caller tests by example.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from re import _parser as sre  # type: ignore[attr-defined] # the parser of `re` has no public name, only a stable shape
from typing import Any, Final

import regex

from diagnose.dataclass import dataclass

# Marks a place where anything may stand; it occurs in no keyword, being a private-use character.
GAP: Final = "\ue000"
_MAX_REPEATS: Final = 1000
_MAX_ALTERNATIVES: Final = 256
_MAX_REPEAT: Final = 8
_MAX_CLASS: Final = 6
_LONG: Final = 300


@dataclass(frozen=True, slots=True)
class Shape:
    """One way through a pattern: its literal runs with gaps between, and a text that goes that way."""

    runs: str
    sample: str

    def __add__(self, other: Shape) -> Shape:
        return Shape(self.runs + other.runs, self.sample + other.sample)


_EMPTY: Final = Shape("", "")


@cache
def parse(pattern: str) -> Any:
    """The pattern's tree as `re` parses it, or None where it cannot."""
    try:
        return _parsed(pattern)
    except (ValueError, RecursionError, OverflowError, regex.error, sre.error):
        return None


def _parsed(pattern: str) -> Any:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a "possible nested set" is judged by the other engines
        return sre.parse(pattern)


def proves(pattern: str, keywords: Sequence[str]) -> bool:
    """Whether every text that the pattern matches holds one of the keywords."""
    tree = parse(pattern)
    return tree is not None and bool(keywords) and _proven(list(tree), tuple(keywords))


def counter_example(pattern: str, keywords: Sequence[str], *, whole: bool = False) -> str | None:
    """A text that the pattern matches and that holds none of the keywords; None where none was found."""
    tree = parse(pattern)
    if tree is None:
        return None
    compiled = regex.compile(pattern, regex.ASCII)
    test = compiled.fullmatch if whole else compiled.search
    for shape in _sequence(list(tree)):
        if any(keyword in shape.sample for keyword in keywords):
            continue
        try:
            if test(shape.sample, timeout=0.2):
                return shape.sample
        except TimeoutError:
            continue
    return None


def _proven(items: list[Any], keywords: tuple[str, ...]) -> bool:
    shapes = _sequence(items)
    if all(any(keyword in shape.runs for keyword in keywords) for shape in shapes):
        return True
    return any(_item_proven(item, keywords) for item in items)


def _item_proven(item: Any, keywords: tuple[str, ...]) -> bool:
    """Whether one part that must be there holds a keyword by itself, when unfolding the whole was too much."""
    kind, value = str(item[0]), item[1]
    if kind == "BRANCH":
        return all(_proven(list(branch), keywords) for branch in value[1])
    if kind == "SUBPATTERN":
        return _proven(list(value[3]), keywords)
    if kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return value[0] >= 1 and _proven(list(value[2]), keywords)
    return False


def _sequence(items: list[Any]) -> list[Shape]:
    """All ways through a sequence; a part that would make too many becomes a gap."""
    shapes = [_EMPTY]
    for item in items:
        ways = _ways(item)
        if len(shapes) * len(ways) > _MAX_ALTERNATIVES:
            ways = [Shape(GAP, ways[0].sample)]
        shapes = [shape + way for shape in shapes for way in ways]
    return list(dict.fromkeys(shapes))


def _ways(item: Any) -> list[Shape]:
    kind, value = str(item[0]), item[1]
    if kind == "LITERAL":
        return [Shape(chr(value), chr(value))]
    if kind == "NOT_LITERAL":
        return [Shape(GAP, "x" if value != ord("x") else "y")]
    if kind == "ANY":
        return [Shape(GAP, "x")]
    if kind == "AT":
        return [_EMPTY]
    if kind == "IN":
        return _class(value)
    if kind == "BRANCH":
        found = [way for branch in value[1] for way in _sequence(list(branch))]
        return found if len(found) <= _MAX_ALTERNATIVES else [Shape(GAP, found[0].sample)]
    if kind == "SUBPATTERN":
        return _sequence(list(value[3]))
    if kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return _repeat(*value)
    return [Shape(GAP, "")]


def _repeat(low: int, high: Any, body: Any) -> list[Shape]:
    ways = _sequence(list(body))
    least, most = int(low), int(high)
    times = min(least, _MAX_REPEAT)
    if len(ways) ** (times + (2 if most > least else 0)) > _MAX_ALTERNATIVES:
        # Too many ways to tell apart: one of them must be there, if any, and the rest is a gap.
        some = [Shape(GAP, "") + way + Shape(GAP, way.sample * (min(least, _LONG) - 1)) for way in ways]
        return some if least else [_EMPTY, *(Shape(GAP, "") + way + Shape(GAP, "") for way in ways)]
    exact = [_EMPTY]
    for _ in range(times):
        exact = [shape + way for shape in exact for way in ways]
    if least > times:
        return [shape + Shape(GAP, ways[0].sample * (min(least, _LONG) - times)) for shape in exact]
    if most == least:
        return exact
    # More of the same: once more, or several times, of which only the first and the last are known.
    once = [shape + way for shape in exact for way in ways]
    several = [shape + Shape(GAP, "") + way for shape in once for way in ways] if most > least + 1 else []
    return [*exact, *once, *several]


def _class(parts: Any) -> list[Shape]:
    """A character class: each character when there are few, else a gap that takes one of them."""
    characters: list[str] = []
    for kind, value in parts:
        name = str(kind)
        if name == "LITERAL":
            characters.append(chr(value))
        elif name == "RANGE" and value[1] - value[0] < _MAX_CLASS:
            characters += [chr(code) for code in range(value[0], value[1] + 1)]
        else:
            return [Shape(GAP, _member(parts))]
    if len(characters) > _MAX_CLASS:
        return [Shape(GAP, characters[0])]
    return [Shape(character, character) for character in characters]


def _member(parts: Any) -> str:
    """One character of a class, tried in an order that gives readable samples."""
    negated = any(str(kind) == "NEGATE" for kind, _ in parts)
    for character in "x0 A_-./:@#\t\"'\n~":
        if any(_holds(str(kind), value, character) for kind, value in parts) != negated:
            return character
    return next((chr(value[0]) for kind, value in parts if str(kind) == "RANGE"), "x")


def _holds(kind: str, value: Any, character: str) -> bool:
    if kind == "LITERAL":
        return bool(ord(character) == value)
    if kind == "RANGE":
        return bool(value[0] <= ord(character) <= value[1])
    if kind == "CATEGORY":
        name = str(value).removeprefix("CATEGORY_")
        word = character.isalnum() or character == "_"
        is_in = {"DIGIT": character.isdigit(), "SPACE": character.isspace(), "WORD": word}
        positive = name.removeprefix("NOT_")
        return is_in.get(positive, False) != name.startswith("NOT_")
    return False


_REFUSED: Final = {
    "ASSERT": "look-around",
    "ASSERT_NOT": "look-around",
    "GROUPREF": "a back-reference",
    "GROUPREF_EXISTS": "a conditional group",
    "ATOMIC_GROUP": "an atomic group",
    "POSSESSIVE_REPEAT": "a possessive quantifier",
}
# Escapes that `regex`, `re` and RE2 read differently, and fuzzy matching, which only `regex` knows.
_FOREIGN: Final = regex.compile(
    r"(?<!\\)(?:\\\\)*(?:\\([pPQECGLKXRhHmMzZN])|(\[\[:)|([)\]\w.]\{[eids]\s*(?:[<>=}]|\d))|(\(\?[aiLmsuxbefprwV10-]+[):]))"
)


def unsafe_constructs(pattern: str) -> list[str]:
    """What a pattern uses that RE2 refuses or that engines read differently, in words; empty when it is safe."""
    found: dict[str, None] = {}
    for match in _FOREIGN.finditer(pattern):
        escape, posix, fuzzy, flags = match.groups()
        if escape:
            found[f"\\{escape}, which engines read differently"] = None
        if posix:
            found["a POSIX class such as [[:alpha:]]"] = None
        if fuzzy:
            found["fuzzy matching"] = None
        if flags:
            found[f"the inline flag {flags}"] = None
    tree = parse(pattern)
    if tree is not None:
        found.update(dict.fromkeys(_refused(list(tree))))
    return list(found)


def _refused(items: list[Any]) -> Iterator[str]:
    for item in items:
        kind, value = str(item[0]), item[1]
        if kind in _REFUSED:
            yield _REFUSED[kind]
        if kind == "BRANCH":
            for branch in value[1]:
                yield from _refused(list(branch))
        elif kind == "SUBPATTERN":
            yield from _refused(list(value[3]))
        elif kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            yield from _refused(list(value[2]))
        elif kind == "ATOMIC_GROUP":
            yield from _refused(list(value))


def why_not_compiled(pattern: str) -> str | None:
    """Why the engine does not compile a pattern; None where it does. Ask `too_repetitive` first."""
    try:
        if parse(pattern) is None:
            # What `re` cannot read may repeat how often it likes: only its own word on it is asked for.
            _parsed(pattern)
        regex.compile(pattern, regex.ASCII)
    except (regex.error, RecursionError, OverflowError, ValueError, sre.error) as error:
        return str(error)
    return None


def too_repetitive(pattern: str) -> str | None:
    """Why RE2 refuses the repeats of a pattern; None where it does not, or where `re` cannot read it.

    Engines build a copy for each repeat, so a thousand times a thousand take all memory when they are compiled.
    """
    tree = parse(pattern)
    times = 1 if tree is None else _repeats(list(tree))
    return (
        f"RE2 refuses it: a part repeats {times} times in all, of {_MAX_REPEATS}; write fewer"
        if times > _MAX_REPEATS
        else None
    )


def _repeats(items: list[Any]) -> int:
    most = 1
    for item in items:
        kind, value = str(item[0]), item[1]
        if kind == "BRANCH":
            most = max(most, *(_repeats(list(branch)) for branch in value[1]))
        elif kind == "SUBPATTERN":
            most = max(most, _repeats(list(value[3])))
        elif kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            times = int(value[0]) if value[1] is sre.MAXREPEAT else int(value[1])
            most = max(most, max(1, times) * _repeats(list(value[2])))
        elif kind == "ATOMIC_GROUP":
            most = max(most, _repeats(list(value)))
        elif kind in ("ASSERT", "ASSERT_NOT"):
            most = max(most, _repeats(list(value[1])))
        elif kind == "GROUPREF_EXISTS":
            most = max(most, *(_repeats(list(branch)) for branch in value[1:] if branch is not None))
    return most


def nodes(pattern: str) -> Iterator[tuple[str, Any]]:
    """Every node of the parsed pattern as (kind, value), for checks that look for one kind of node."""
    tree = parse(pattern)
    if tree is not None:
        yield from _nodes(list(tree))


def _nodes(items: list[Any]) -> Iterator[tuple[str, Any]]:
    for item in items:
        kind, value = str(item[0]), item[1]
        yield kind, value
        if kind == "BRANCH":
            for branch in value[1]:
                yield from _nodes(list(branch))
        elif kind == "SUBPATTERN":
            yield from _nodes(list(value[3]))
        elif kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            yield from _nodes(list(value[2]))
