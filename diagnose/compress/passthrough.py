"""The compressor's slow twin: the same lines, cut alike, and none taken out.

In: bytes of one source. Out: a `KeptLine` for every line. It shows that compression hides nothing (`--no-compress`).
"""

from __future__ import annotations

from collections.abc import Iterable

from diagnose.compress.guard import Guard
from diagnose.compress.splitter import Plain, Segment, Splitter
from diagnose.models import CompressionCounts, KeptLine, LogSource
from diagnose.settings import Limits


class PassThrough:
    """Passes one source on; `feed` until it ends, then `finish`. The guard says what to keep of lines that are cut."""

    def __init__(self, source: LogSource, limits: Limits, guard: Guard | None = None) -> None:
        self.source = source
        self._guard = guard or Guard(())
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
                hits = self._guard.hits
                out += [KeptLine(number, raw, hits(raw)) for number, raw in enumerate(piece.lines, piece.first)]
            else:
                guarded = piece.guarded or self._guard.hits(piece.raw)
                out.append(KeptLine(piece.number, piece.raw, guarded, piece.truncated))
                self._truncated += piece.truncated
        self._kept += len(out)
        return out
