"""What a model may do beside answering: look for words, and read around a line. It reads what is held, nothing else.

In: requests as the model wrote them, the lines held of the run. Out: lines, few of them. No pattern of a model's is
ever compiled: `grep` looks for plain words, any of several between `|`, in upper or lower case.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from diagnose.agents.excerpt import Excerpt, ExcerptLine
from diagnose.agents.held import Held, Holder
from diagnose.dataclass import dataclass

_MATCHES = 12
_WORDS, _WORD_CHARS = 8, 100
_RADIUS = 8
_REQUESTS = 4


@dataclass(frozen=True, slots=True)
class Request:
    """One wish to read more: lines that hold some words, or those around the shown line of a number."""

    tool: Literal["grep", "window"]
    words: str = ""
    line: int = 0


def read(requests: Sequence[Request], lines: Sequence[ExcerptLine], holder: Holder) -> tuple[ExcerptLine, ...]:
    """The lines asked for that were not shown yet, each once; their numbers go on where those shown end."""
    known = {(each.source, each.order) for each in lines}
    found: list[ExcerptLine] = []
    for request in requests[:_REQUESTS]:
        why = f"grep {request.words[:60]}" if request.tool == "grep" else f"around line {request.line}"
        held = _grep(request.words, holder) if request.tool == "grep" else _window(request.line, lines, holder)
        new = (each for each in held if (each.line.source.name, each.order) not in known)
        for _, each in zip(range(_MATCHES if request.tool == "grep" else 2 * _RADIUS), new, strict=False):
            known.add((each.line.source.name, each.order))
            found.append(
                ExcerptLine(len(lines) + len(found) + 1, each.line, why, order=each.order, alarming=each.alarming)
            )
    return tuple(found)


def _grep(pattern: str, holder: Holder) -> Iterator[Held]:
    words = [word.strip().casefold()[:_WORD_CHARS] for word in pattern.split("|")[:_WORDS]]
    words = [word for word in words if len(word) > 1]
    return (each for each in holder if any(word in each.line.text.casefold() for word in words))


def _window(number: int, lines: Sequence[ExcerptLine], holder: Holder) -> Iterator[Held]:
    at = next((each for each in lines if each.id == number), None)
    source = holder.sources.get(at.source) if at else None
    if at is None or source is None:
        return iter(())
    return (each for each in source.lines() if abs(each.order - at.order) <= _RADIUS)


def more(excerpt: Excerpt) -> bool:
    """Whether anything is left to read."""
    return excerpt.held > len(excerpt.lines)
