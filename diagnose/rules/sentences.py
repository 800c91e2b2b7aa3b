"""The sentences of rules: templates with values and optional parts, filled from what was captured.

In: a template and captures. Out: a sentence. The syntax:

- `{name}` is a value; `{name|other}` is the first of them that is known.
- `[ on {host}]` is an optional part: it is left out as a whole when a value in it is not known.
- `[ on {host}| somewhere]` is the first of its alternatives whose values are all known.
- `[[` and `]]` are brackets to print.

A plural before a list of one (`ranks {ranks}`) becomes singular. Values are cut to one line, since a log may say
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
from diagnose.rules.captures import FIELD, Value, field_value, shown

_PART = Lazy(r"\[\[|\]\]|\[([^\[\]]*)\]")
_ALTERNATIVE = Lazy(r"\|(?![^{}]*\})")
_PLURAL = Lazy(r"(?i:\b(?:rank|task|gpu|host|node|peer))s $")
_PLAIN = Lazy(r"[\w@%+=:,./-]+", re.ASCII)
_UNKNOWN = "(unknown)"
_LONGEST = 300

# A text with values: literal pieces, and the names of a field, as `failed|host`.
Piece = str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a template: alternatives to choose from, or one text that is always there."""

    alternatives: tuple[tuple[Piece, ...], ...]
    optional: bool = True


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
    """`text` as literals and fields by turns."""
    split = FIELD.split(text)
    return tuple(
        tuple(piece.split("|")) if index % 2 else piece for index, piece in enumerate(split) if index % 2 or piece
    )


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
            if not part.optional or all(isinstance(piece, str) or _known(piece, captures) for piece in pieces):
                text = _add(text, pieces, captures, kinds or {}, command=command)
                break
    return text.strip()


def _known(names: Sequence[str], captures: Mapping[str, Value]) -> bool:
    return field_value("|".join(names), captures) is not None


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
        name = next((name for name in piece if field_value(name, captures) is not None), None)
        if name is None:
            text += _UNKNOWN
            continue
        value = captures[name]
        if _is_one(value) and (plural := _PLURAL.search(text)):
            text = text[: plural.end() - 2] + " "
        text += _quoted(value) if command else one_line(shown(value, kind=kinds.get(name)))
    return text


def _is_one(value: Value) -> bool:
    return len(value) == 1 if isinstance(value, tuple) else str(value).isdigit()


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
    return tuple(piece for pieces in texts for piece in pieces if not isinstance(piece, str))


def variants(template: str, value: str, limit: int = 256) -> Iterator[str]:
    """The sentence in each way its optional parts may turn out, every field as `value`; everything known first."""
    choices: list[list[str]] = []
    for part in parse(template):
        texts = ["".join(piece if isinstance(piece, str) else value for piece in way) for way in part.alternatives]
        # The last alternative is always there where it has no field; else the part may be missing.
        always = not part.optional or all(isinstance(piece, str) for piece in part.alternatives[-1])
        choices.append(texts if always else [*texts, ""])
    yield "".join(ways[0] for ways in choices)
    yield "".join(ways[-1] for ways in choices)
    yield from ("".join(ways) for ways in islice(product(*choices), limit))
