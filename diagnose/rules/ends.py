"""What processes died of, to be asked what lies behind a finding without a look at all of it.

In: the findings that end a process, in their order. Out: the first of them that another finding does not explain.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from diagnose.models import Finding
from diagnose.rules.edges import Edges, Kind, kind_of


class Ends:
    """What processes died of, by stream, or by source, and kind."""

    def __init__(self, fatal: Sequence[Finding], *, by_source: bool = False) -> None:
        self._fatal = fatal
        self._by_source = by_source
        self._first: dict[Kind, Finding] = {}
        starts: dict[str, dict[Kind, list[tuple[int, int]]]] = {}
        for place, finding in enumerate(fatal):
            self._first.setdefault(kind_of(finding), finding)
            for stream, (start, _) in self._places(finding).items():
                starts.setdefault(stream, {}).setdefault(kind_of(finding), []).append((start, place))
        self._starts: Mapping[str, Mapping[Kind, tuple[list[int], list[int]]]] = {
            stream: {kind: _from_behind(pairs) for kind, pairs in kinds.items()} for stream, kinds in starts.items()
        }

    def _places(self, finding: Finding) -> Mapping[str, tuple[int, int]]:
        return finding.spans if self._by_source else finding.streams

    def unexplained(self, finding: Finding, edges: Edges) -> Finding | None:
        """The first that a finding does not explain, wherever it stands."""
        return next((one for one in self._first.values() if edges.scope(finding, one) is None), None)

    def unexplained_after(self, finding: Finding, edges: Edges) -> Finding | None:
        """The first that stands after a finding in a stream of it, and that it does not explain."""
        best: int | None = None
        for stream, (_, end) in self._places(finding).items():
            for lines, firsts in self._starts.get(stream, {}).values():
                after = bisect_right(lines, end)
                if after == len(lines) or (best is not None and firsts[after] >= best):
                    continue
                if edges.scope(finding, self._fatal[firsts[after]]) is None:
                    best = firsts[after]
        return None if best is None else self._fatal[best]


def _from_behind(pairs: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Line numbers in order, and for each the first of the findings that begin there or later."""
    pairs.sort()
    firsts = [place for _, place in pairs]
    for index in range(len(firsts) - 2, -1, -1):
        firsts[index] = min(firsts[index], firsts[index + 1])
    return [line for line, _ in pairs], firsts
