"""The causes near an effect in place and time, without a look at all of them.

In: the findings of one kind. Out: for an effect, those of them that place and time do not rule out at once, the
earliest first. What is not known rules nothing out. A job of thousands of nodes has thousands of findings of a kind:
to compare each with each would take minutes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from heapq import merge

from diagnose.models import Finding
from diagnose.models.rule import Scope
from diagnose.rules.precedence import DATED, Clocks

_SLACK = 1.0  # seconds: whoever asks compares exactly

Places = dict[tuple[str | None, str | None], list[int]]


class Causes:
    """The findings of one kind; `first` is the earliest.

    They are held in the order of their times on the common clock: those of no known year, the dated ones, those
    without a time.
    """

    def __init__(self, findings: Sequence[Finding], clocks: Clocks) -> None:
        timed = [(clocks.first(finding), finding) for finding in findings]
        timed.sort(key=lambda item: (item[0] is None, item[0] or 0.0, item[1].id))
        self._findings = [finding for _, finding in timed]
        self._times = [time for time, _ in timed if time is not None]
        self._dated = bisect_left(self._times, DATED)
        self._places: dict[tuple[bool, bool], Places] = {}

    @property
    def first(self) -> Finding:
        """The earliest."""
        return self._findings[0]

    def near(self, effect: Finding, scope: Scope, time: float | None, before: float, after: float) -> Iterator[Finding]:
        """Those that may explain `effect`, at `time`, by their place within `scope`.

        Where times can be compared, they lie at most `before` seconds before it and `after` seconds after it.
        """
        buckets = self._buckets(effect, scope)
        for low, high in self._intervals(time, before, after):
            if buckets is None:
                yield from self._findings[low:high] if high - low < len(self._findings) else self._findings
                continue
            parts = [_between(bucket, low, high) for bucket in buckets]
            last = -1
            for place in parts[0] if len(parts) == 1 else merge(*parts):
                if place != last:  # one of several hosts stands in several buckets
                    yield self._findings[place]
                last = place

    def _intervals(self, time: float | None, before: float, after: float) -> list[tuple[int, int]]:
        """Which places in the order come into question."""
        total, timed = len(self._findings), len(self._times)
        if time is None:
            return [(0, total)]
        low = bisect_left(self._times, time - before - _SLACK)
        high = bisect_right(self._times, time + after + _SLACK)
        if time < DATED:
            return [(low, min(high, self._dated)), (self._dated, total)]
        return [(0, self._dated), (max(low, self._dated), high), (timed, total)]

    def _buckets(self, effect: Finding, scope: Scope) -> list[list[int]] | None:
        """Those of the effect's place and of none that is known; None where the place rules nothing out."""
        hosts = hosts_of(effect) if scope != "job" else frozenset[str]()
        gpus = effect.gpus if scope == "gpu" else frozenset[str]()
        if not hosts and not gpus:
            return None
        places = self._indexed(bool(hosts), bool(gpus))
        keys = [(host, gpu) for host in (*hosts, None) for gpu in ((*gpus, None) if gpus else (None,))]
        return [places[key] for key in (keys if hosts else [(None, gpu) for gpu in (*gpus, None)]) if key in places]

    def _indexed(self, by_host: bool, by_gpu: bool) -> Places:
        places = self._places.get((by_host, by_gpu))
        if places is None:
            places = self._places[by_host, by_gpu] = {}
            for place, finding in enumerate(self._findings):
                hosts = (hosts_of(finding) if by_host else None) or (None,)
                gpus = (finding.gpus if by_gpu else None) or (None,)
                for host in hosts:
                    for gpu in gpus:
                        places.setdefault((host, gpu), []).append(place)
        return places


def hosts_of(finding: Finding) -> frozenset[str]:
    """The hosts that it happened on."""
    return finding.hosts or finding.places


def _between(bucket: Sequence[int], low: int, high: int) -> Iterator[int]:
    return (bucket[index] for index in range(bisect_left(bucket, low), bisect_left(bucket, high)))
