"""Lines that prove something, among those around them.

In: a report. Out: `Excerpt`s, one for each stretch of a source; each line of evidence bears an anchor, so that the
first screen and the chain can lead to it. Only evidence has numbers: of the lines around it some may have been left out
as routine, so theirs are not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from diagnose.api.web.reading import Kept, Line
from diagnose.dataclass import dataclass, field
from diagnose.report.text import printable

_MOST: Final = 60  # lines of evidence


@dataclass(frozen=True, slots=True)
class Shown:
    """One line. `anchor` is of evidence only, and says where to find it; `before` and `after` are its neighbours'."""

    text: str
    number: int | None = None
    anchor: str = ""
    says: str = ""
    before: str = ""
    after: str = ""


@dataclass(slots=True)
class Excerpt:
    """A stretch of one source."""

    source: str
    lines: list[Shown] = field(default_factory=list)

    @property
    def first(self) -> str:
        """The anchor of its first evidence."""
        return next(one.anchor for one in self.lines if one.anchor)


@dataclass(frozen=True, slots=True)
class Evidence:
    """All of it: the excerpts, and the anchors by source and line."""

    excerpts: tuple[Excerpt, ...]
    anchors: dict[tuple[str, int | None], str]

    def of(self, where: str) -> str:
        """The anchor of a place as the first screen writes it, which leaves out folders that all sources share."""
        for (source, line), anchor in self.anchors.items():
            name = printable(source if line is None else f"{source}:{line}")
            if name == where or name.endswith(f"/{where}"):
                return anchor
        return ""


def evidence_of(report: Kept) -> Evidence:
    """The evidence of the cause and the first line of each step."""
    said: dict[tuple[str, int | None], tuple[Line, str]] = {}
    for line in report.root_cause.evidence if report.root_cause else ():
        said.setdefault((line.source, line.line), (line, "cause"))
    for link in report.chain:
        said.setdefault((link.first.source, link.first.line), (link.first, link.error_type))
    chosen = dict(list(said.items())[:_MOST])
    sources = list(dict.fromkeys(source for source, _ in chosen))
    ordered = sorted(chosen, key=lambda key: (sources.index(key[0]), key[1] or 0))
    anchors = {key: f"e{number}" for number, key in enumerate(ordered, 1)}
    excerpts: list[Excerpt] = []
    for number, key in enumerate(ordered, 1):
        line, says = chosen[key]
        marked = Shown(
            line.text,
            line.line,
            anchors[key],
            says,
            before=f"e{number - 1}" if number > 1 else "",
            after=f"e{number + 1}" if number < len(ordered) else "",
        )
        _put(excerpts, line, marked)
    return Evidence(tuple(excerpts), anchors)


def _put(excerpts: list[Excerpt], line: Line, marked: Shown) -> None:
    """Adds a line of evidence, to the last excerpt where that goes over into it."""
    around = [Shown(text) for text in (*line.before, line.text, *line.after)]
    last = excerpts[-1] if excerpts and excerpts[-1].source == line.source else None
    start = _overlap([one.text for one in last.lines], [one.text for one in around]) if last else None
    if last is not None and start is not None:
        index = start + len(line.before)
        if index >= len(last.lines) or not last.lines[index].anchor:  # which may say the same words twice
            last.lines.extend(around[len(last.lines) - start :])
            last.lines[index] = marked
            return
    around[len(line.before)] = marked
    excerpts.append(Excerpt(line.source, around))


def _overlap(there: Sequence[str], new: Sequence[str]) -> int | None:
    """Where in what is there the new lines begin; None where they do not touch."""
    for start in range(len(there)):
        if there[start : start + len(new)] == new[: len(there) - start]:
            return start
    return None
