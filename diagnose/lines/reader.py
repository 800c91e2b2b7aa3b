"""Kept lines of one source in; decoded `Line`s with what their prefixes say out."""

from __future__ import annotations

from diagnose.lines.ansi import decode
from diagnose.lines.heads import Head, Prefixes
from diagnose.lines.prefixes import read_prefixes
from diagnose.lines.stamps import Calendar, Clock
from diagnose.models import KeptLine, Line, LogSource
from diagnose.settings import Limits


class LineReader:
    """Reads the kept lines of one source, in order."""

    def __init__(self, source: LogSource, limits: Limits, calendar: Calendar | None = None) -> None:
        self._source = source
        self._limits = limits
        self._known = Prefixes(Clock(calendar))

    def learn(self, block: bytes) -> None:
        """Look over a block before its lines are read."""

    def read(self, kept: KeptLine) -> list[Line]:
        """The lines that `kept` holds: one as a rule, more where a wrapper holds several, none for a part of one."""
        text = decode(kept.raw)
        head = Head()
        body = text[read_prefixes(text, head, self._known) :]
        source = self._source
        return [
            Line(source, kept.number, text, body, source.name, head.time, head.uptime, head.rank, head.local_rank,
                 head.host, head.pid, head.gpu, head.level, False, kept.progress, kept.guarded)
        ]

    def finish(self) -> list[Line]:
        """What was held back at the end of the source."""
        return []
