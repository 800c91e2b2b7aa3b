"""Which lines of a source's head can still teach which doubtful prefixes are ones.

In: the raw lines of a head and what reading each of them asked. Out: whether the next need be read at all. A head of
64 kB is hundreds of lines of few templates: where one taught nothing, others of its template that name the same
writers teach nothing either. `EveryLine` is the slow twin that reads them all.
"""

from __future__ import annotations

from diagnose.compress import template
from diagnose.lines.heads import MAX_ASKED, Prefixes

Span = tuple[int, int]
# What makes a name out of the words that stand in the line.
_MARKS = "@ :|"
# What is asked about a form, whatever it names.
_FORMS = frozenset({"[]", "rank:"})


class EveryLine:
    """Takes every line for one that may teach something."""

    def __init__(self, known: Prefixes) -> None:
        self._known = known

    def lines(self, head: bytes) -> list[tuple[bytes, bytes]]:
        """The whole lines of a head, each with its template."""
        return list(zip(head.split(b"\n")[:-1], template(head).split(b"\n")[:-1], strict=True))

    def settled(self, raw: bytes, line_template: bytes) -> bool:
        """Whether the line cannot teach anything new."""
        return False

    def read(self, raw: bytes, line_template: bytes, taught: int) -> None:
        """Note that the line was read, when `taught` lessons had been learnt before it."""


class Lessons(EveryLine):
    """Passes over lines that teach nothing new."""

    def __init__(self, known: Prefixes) -> None:
        super().__init__(known)
        self._names: dict[bytes, tuple[Span, ...]] = {}
        self._settled: set[tuple[bytes, ...]] = set()  # a template and its names

    def settled(self, raw: bytes, line_template: bytes) -> bool:
        """Whether the line cannot teach anything new; counts it as one without a label, which the reader would do."""
        names = self._names.get(line_template)
        if names is None:
            return False
        if names and (line_template, *[raw[start:end] for start, end in names]) not in self._settled:
            return False
        if self._known.labelled is None and raw:
            self._known.unlabelled()
        return True

    def read(self, raw: bytes, line_template: bytes, taught: int) -> None:
        """Note that the line was read; one that taught nothing and whose names stand in it settles its kind."""
        known = self._known
        asked, known.asked = known.asked, []
        if known.taught != taught or len(asked) >= MAX_ASKED:
            return
        spans = [_span(raw, name) for name in dict.fromkeys(asked) if name not in _FORMS]
        names = tuple([span for span in spans if span is not None])
        if len(names) < len(spans):
            return
        if self._names.setdefault(line_template, names) == names:
            self._settled.add((line_template, *[raw[start:end] for start, end in names]))


def _span(raw: bytes, name: str) -> Span | None:
    """Where the writer that was asked about stands in the raw line, if it does so as it is."""
    word = name.strip(_MARKS).encode("utf-8", "replace")
    start = raw.find(word) if word else -1
    return None if start < 0 else (start, start + len(word))
