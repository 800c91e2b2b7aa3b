"""Which lines come over and over without any filter: templates by family, with a few lines of each.

In: whole lines with their templates, a block at a time. Out: `Family`s that are worth a filter. Lines that differ only
in their values are one family. Cheap while lines stream: a template is looked at once, after that it is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from diagnose.compress import Filters, template
from diagnose.compress.filters import NOTHING, ROUTINE_BYTES
from diagnose.compress.prefix import PREFIX
from diagnose.models import LogSource
from diagnose.models.flow import SourceKind
from diagnose.patterns import Lazy
from diagnose.rules.abstract import Token, tokens
from diagnose.rules.admission import Admission

SAMPLES: Final = 6
_TEMPLATES: Final = 50_000
_FAMILIES: Final = 4_096
_LINE_BYTES: Final = 400
_PREFIX: Final = Lazy(PREFIX)
_Key = tuple[SourceKind, tuple[str, ...]]


class Family:
    """Lines that are alike. `count` is of all of them; `samples` are the first ones that differ."""

    __slots__ = ("asked", "count", "kind", "pieces", "samples")

    def __init__(self, kind: SourceKind, pieces: tuple[Token, ...]) -> None:
        self.kind: SourceKind = kind
        self.pieces = pieces
        self.count = 0
        self.samples: list[bytes] = []
        self.asked = False


class Families:
    """All families of a run. Memory is bounded: beyond it new ones are not followed."""

    def __init__(self, filters: Filters, admission: Admission) -> None:
        self._filters = filters
        self._admission = admission
        self._known: dict[tuple[SourceKind, bytes], Family | None] = {}
        self._families: dict[_Key, Family] = {}
        self._strangers: dict[_Key, bytes] = {}  # one line each of those that must stay
        self.bytes = 0

    def watch(self, source: LogSource) -> Watch:
        """Who sees the lines of a source."""
        return Watch(self, source.kind)

    def take(self, kind: SourceKind, lines: Sequence[bytes], templates: Sequence[bytes]) -> None:
        """Count the lines of a block, and keep a few of them."""
        self.bytes += sum(map(len, lines)) + len(lines)
        for each, count in Counter(templates).items():
            key = (kind, each)
            try:
                family = self._known[key]
            except KeyError:
                family = self._learn(kind, each, lines[templates.index(each)])
            if family is None:
                continue
            family.count += count
            if len(family.samples) < SAMPLES:
                line = lines[templates.index(each)]
                if line not in family.samples:
                    family.samples.append(line)

    def _learn(self, kind: SourceKind, line_template: bytes, line: bytes) -> Family | None:
        if len(self._known) >= _TEMPLATES:
            self._known.clear()
        family: Family | None = None
        if (
            0 < len(line_template) <= min(_LINE_BYTES, ROUTINE_BYTES)
            and self._filters.judge(line_template, kind) is NOTHING
        ):
            pieces = pieces_of(line)
            key = (kind, tuple(piece.text if piece.kind == "words" else piece.kind for piece in pieces))
            if not line_template.isascii() or not self._admission.may_be_routine(line_template):
                if len(self._strangers) < _FAMILIES:
                    self._strangers.setdefault(key, line)
            elif (family := self._families.get(key)) is None and len(self._families) < _FAMILIES:
                family = self._families[key] = Family(kind, pieces)
        self._known[kind, line_template] = family
        return family

    def frequent(self, least: int) -> list[Family]:
        """Families of at least so many lines that nobody was asked about, the most frequent first."""
        found = [family for family in self._families.values() if family.count >= least and not family.asked]
        return sorted(found, key=lambda family: -family.count)

    def others(self, but: Family) -> Iterable[bytes]:
        """A line of each other family, and of those that must stay."""
        for family in tuple(self._families.values()):
            if family is not but and family.samples:
                yield family.samples[0]
        yield from tuple(self._strangers.values())

    def all(self) -> tuple[Family, ...]:
        """All families."""
        return tuple(self._families.values())


class Watch:
    """Sees the lines of one source."""

    __slots__ = ("_families", "_kind")

    def __init__(self, families: Families, kind: SourceKind) -> None:
        self._families = families
        self._kind: SourceKind = kind

    def lines(self, lines: Sequence[bytes], templates: Sequence[bytes]) -> None:
        """Take whole lines and their templates."""
        self._families.take(self._kind, lines, templates)


def pieces_of(line: bytes) -> tuple[Token, ...]:
    """The pieces of a line behind its prefixes."""
    found = _PREFIX.match(template(line))
    return tokens(line[found.end() if found else 0 :].decode("latin-1"))
