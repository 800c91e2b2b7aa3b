"""What makes kept logs: the rules' guard and filters, made ready once for all logs of a process.

In: rules. Out: `KeptWriter`s, and compressors for a range of a log. Of a log that must be read as a whole (one that
stands newest first, or is no plain text) nobody makes a kept log: it is sent and stored as it is.
"""

from __future__ import annotations

from functools import partial

from diagnose.clock import UNLIMITED
from diagnose.compress import Ranges
from diagnose.compress.keptlog import KeptWriter, guard_version
from diagnose.feeding import Feeding
from diagnose.gathered import Gathered
from diagnose.lines.order import newest_first
from diagnose.models import LogSource, RuleSet, SourceKind
from diagnose.prepared import Prepared
from diagnose.settings import Settings
from diagnose.sources.collect import kind_of


class Keeping:
    """Compresses logs as a run would; not for several threads at once."""

    def __init__(self, rules: RuleSet, prepared: Prepared | None = None) -> None:
        gathered = Gathered(rules, Settings(), prepared=prepared)
        self._feeding = Feeding(gathered, rules, UNLIMITED)
        self.guard = guard_version(gathered.guard, rules.filters)

    def writer(self, path: str) -> KeptWriter:
        """What makes the kept log of a file."""
        return KeptWriter(path.rpartition("/")[2], self.guard, partial(self.kind, path), self.compressor)

    def kind(self, path: str, head: bytes) -> SourceKind | None:
        """Which kind of source the file is by its name and its first bytes; None where it must be read as a whole."""
        return None if newest_first(head) else kind_of(path, head)

    def compressor(self, kind: SourceKind, start: int = 0) -> Ranges:
        """What compresses the range of a log that begins at byte `start`."""
        return self._feeding.compressor(LogSource("", kind), start)
