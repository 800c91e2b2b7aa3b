"""The compressor's slow twin: the same lines, cut alike, and none taken out.

In: bytes of one source. Out: a `KeptLine` for every line, with what filter rules say of it. It shows that compression
hides nothing (`--no-compress`).
"""

from __future__ import annotations

from collections.abc import Iterable

from diagnose.compress.filters import Filters, Judgement
from diagnose.compress.guard import Guard
from diagnose.compress.relax import template
from diagnose.compress.splitter import Plain, Segment, Splitter
from diagnose.models import CompressionCounts, KeptLine, LogSource
from diagnose.settings import Limits


class PassThrough:
    """Passes one source on; `feed` until it ends, then `finish`. The guard says what to keep of lines that are cut."""

    def __init__(
        self, source: LogSource, limits: Limits, guard: Guard | None = None, filters: Filters | None = None
    ) -> None:
        self.source = source
        self._guard = guard or Guard(())
        self._filters = filters or Filters(())
        self._judged: dict[bytes, Judgement] = {}
        self._most = max(1, limits.templates)
        self._splitter = Splitter(limits, self._guard)
        self._bytes = self._kept = self._truncated = 0

    @property
    def counts(self) -> CompressionCounts:
        """What has been read so far."""
        return CompressionCounts(
            bytes=self._bytes, lines=self._splitter.lines, kept=self._kept, truncated=self._truncated
        )

    def feed(self, data: bytes) -> list[KeptLine]:
        """Take the next bytes, give the lines in them."""
        self._bytes += len(data)
        return self._lines(self._splitter.feed(data))

    def finish(self) -> list[KeptLine]:
        """End the source and give the rest."""
        return self._lines(self._splitter.finish())

    def _lines(self, pieces: Iterable[Plain | Segment]) -> list[KeptLine]:
        out: list[KeptLine] = []
        for piece in pieces:
            if isinstance(piece, Plain):
                out += [self._line(number, raw) for number, raw in enumerate(piece.lines, piece.first)]
            elif piece.truncated:
                out.append(
                    KeptLine(piece.number, piece.raw, piece.guarded or self._guard.hits(piece.raw), truncated=True)
                )
                self._truncated += 1
            else:
                out.append(self._line(piece.number, piece.raw, bar=piece.bar))
        self._kept += len(out)
        return out

    def _line(self, number: int, raw: bytes, *, bar: bool = False) -> KeptLine:
        judged = self._judge(template(raw)) if self._filters.rules else None
        rule = None
        if judged is not None:
            maybe = (hit for hit in judged.maybe if hit.rule.matches(raw))
            hit = next(maybe, judged.sure)
            rule = hit.rule if hit is not None else None
        if rule is None:
            return KeptLine(number, raw, self._guard.hits(raw), progress="" if bar else None)
        progress = rule.id if rule.progress else None
        return KeptLine(number, raw, self._guard.hits(raw), progress=progress, routine=not rule.progress)

    def _judge(self, line_template: bytes) -> Judgement:
        judged = self._judged.get(line_template)
        if judged is None:
            if len(self._judged) >= self._most:
                self._judged.clear()
            judged = self._judged[line_template] = self._filters.judge(line_template, self.source.kind)
        return judged
