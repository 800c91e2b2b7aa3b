"""The sentences of rules: templates with values and optional parts, filled from what was captured.

In: a template and captures. Out: a sentence. The syntax:

- `{name}` is a value; `{name|other}` is the first of them that is known.
- `[ on {host}]` is an optional part: it is left out as a whole when a value in it is not known.
- `[ on {host}| somewhere]` is the first of its alternatives whose values are all known.
- `{name#was|were}` are words that agree with `name`: the first where it is one, a count of 1 or a list of one name.
- `[[` and `]]` are brackets to print.

A plural before one name (`ranks {ranks}`) becomes singular by itself. Values are cut to one line, since a log may say
anything; in commands they are quoted, so that pasting one runs nothing that a log made up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice, product

from diagnose.dataclass import dataclass
from diagnose.models.rule import CaptureType
from diagnose.patterns import Lazy
from diagnose.rules.captures import AGREEMENT, FIELD, Value, field_value, shown

_PART = Lazy(r"\[\[|\]\]|\[([^\[\]]*)\]")
_ALTERNATIVE = Lazy(r"\|(?![^{}]*\})")
_PLURAL = Lazy(r"(?i:\b(?:rank|task|gpu|host|node|peer))s $")
_PLAIN = Lazy(r"[\w@%+=:,./-]+", re.ASCII)
_UNKNOWN = "(unknown)"
_LONGEST = 300

_SEVERAL = Lazy(r"[,\[\s]|\A\d+-\d+\Z")


@dataclass(frozen=True, slots=True)
class Agreement:
    """Words that agree with a field."""

    names: tuple[str, ...]
    one: str
    many: str


# A text with values: literal pieces, the names of a field, as `failed|host`, and words that agree with one.
Piece = str | tuple[str, ...] | Agreement


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a template: alternatives to choose from, or one text that is always there."""

    alternatives: tuple[tuple[Piece, ...], ...]
    optional: bool = True


_PAIRS = {")": "(", "]": "[", "}": "{"}


def balanced(text: str) -> bool:
    """Whether each bracket of a text has its other half."""
    opened: list[str] = []
    for character in text:
        if character in _PAIRS.values():
            opened.append(character)
        elif character in _PAIRS and (not opened or opened.pop() != _PAIRS[character]):
            return False
    return not opened


@lru_cache(maxsize=2048)
def parse(template: str) -> tuple[Part, ...]:
    """The parts of a template in order."""
    parts: list[Part] = []
    end = 0
    plain = ""
    for found in _PART.finditer(template):
        plain += template[end : found.start()]
        end = found.end()
        if found[1] is None:
            plain += found[0][0]
            continue
        if plain:
            parts.append(Part((_pieces(plain),), optional=False))
            plain = ""
        parts.append(Part(tuple(_pieces(text) for text in _ALTERNATIVE.split(found[1]))))
    plain += template[end:]
    if plain:
        parts.append(Part((_pieces(plain),), optional=False))
    return tuple(parts)


def _pieces(text: str) -> tuple[Piece, ...]:
    """`text` as literals, fields and words that agree."""
    pieces: list[Piece] = []
    literal, *agreeing = AGREEMENT.split(text)
    agreements = [agreeing[index : index + 4] for index in range(0, len(agreeing), 4)]
    for before in (None, *agreements):
        if before is not None:
            names, one, many, literal = before
            pieces.append(Agreement(tuple(names.split("|")), one, many))
        split = FIELD.split(literal)
        pieces += [
            tuple(piece.split("|")) if index % 2 else piece for index, piece in enumerate(split) if index % 2 or piece
        ]
    return tuple(pieces)


def fill(
    template: str,
    captures: Mapping[str, Value],
    kinds: Mapping[str, CaptureType] | None = None,
    *,
    command: bool = False,
) -> str:
    """The sentence for these captures; `kinds` are the captures' types, `command` quotes values for a shell."""
    text = ""
    for part in parse(template):
        for pieces in part.alternatives:
            if not part.optional or all(_known(piece, captures) for piece in pieces):
                text = _add(text, pieces, captures, kinds or {}, command=command)
                break
    return text.strip()


def _known(piece: Piece, captures: Mapping[str, Value]) -> bool:
    return isinstance(piece, str) or field_value("|".join(_names(piece)), captures) is not None


def _names(piece: tuple[str, ...] | Agreement) -> tuple[str, ...]:
    return piece.names if isinstance(piece, Agreement) else piece


def _add(
    text: str,
    pieces: Sequence[Piece],
    captures: Mapping[str, Value],
    kinds: Mapping[str, CaptureType],
    *,
    command: bool,
) -> str:
    for piece in pieces:
        if isinstance(piece, str):
            text += piece
            continue
        name = next((name for name in _names(piece) if field_value(name, captures) is not None), None)
        if isinstance(piece, Agreement):
            text += piece.one if name is not None and _is_one(captures[name], kinds.get(name)) else piece.many
            continue
        if name is None:
            text += _UNKNOWN
            continue
        value = captures[name]
        if (plural := _PLURAL.search(text)) and _is_one(value):
            text = text[: plural.end() - 2] + " "
        text += _quoted(value) if command else one_line(shown(value, kind=kinds.get(name)))
    return text


def _is_one(value: Value, kind: CaptureType | None = None) -> bool:
    """Whether a value says or names one: a number is a count where its type says so, else a name."""
    if isinstance(value, tuple):
        return len(value) == 1
    return value == 1 if kind == "int" else not _SEVERAL.search(str(value))


def one_line(text: str) -> str:
    """The first line of a value, without the full stop that would end the sentence around it."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    first = " ".join(first.split())
    if len(first) > _LONGEST:
        first = first[: _LONGEST - 3].rstrip() + "..."
    first = first if first.endswith("...") else first.rstrip(".,;: ") or first
    return first + ")" * (first.count("(") - first.count(")"))  # a message that was cut inside brackets


def _quoted(value: Value) -> str:
    if not isinstance(value, tuple):
        return _shell(value)
    return shown(tuple(item if isinstance(item, int) else _shell(item) for item in value))


def _shell(value: object) -> str:
    """A value as one word of a shell command."""
    text = " ".join(str(value).split())[:_LONGEST]
    text = text.rstrip(".,;:") or text
    return text if _PLAIN.fullmatch(text) else "'" + text.replace("'", "'\"'\"'") + "'"


def required(template: str) -> tuple[tuple[str, ...], ...]:
    """The fields that stand outside optional parts, each as its names."""
    texts = (part.alternatives[0] for part in parse(template) if not part.optional)
    return tuple(_names(piece) for pieces in texts for piece in pieces if not isinstance(piece, str))


def variants(template: str, value: str, limit: int = 256) -> Iterator[str]:
    """The sentence in each way its optional parts may turn out, every field as `value`; everything known first."""
    choices: list[list[str]] = []
    for part in parse(template):
        texts = [
            "".join(_with(piece, value, one=one) for piece in way)
            for way in part.alternatives
            for one in ((False, True) if any(isinstance(piece, Agreement) for piece in way) else (False,))
        ]
        # The last alternative is always there where it has no field; else the part may be missing.
        always = not part.optional or all(isinstance(piece, str) for piece in part.alternatives[-1])
        choices.append(texts if always else [*texts, ""])
    yield "".join(ways[0] for ways in choices)
    yield "".join(ways[-1] for ways in choices)
    yield from ("".join(ways) for ways in islice(product(*choices), limit))


def _with(piece: Piece, value: str, *, one: bool) -> str:
    if isinstance(piece, Agreement):
        return piece.one if one else piece.many
    return piece if isinstance(piece, str) else value
