"""Rules that need more than one signature: `all`, `sequence`, `unless`, `min_count`, `within`, `join`.

In: the hits that the matcher stored, from all sources. Out: sightings for the matcher's sink. What is not known (a
time, a host, a rank) satisfies `within` and `same`; such sightings carry the capture `assumed`, which lowers the
sureness. What `unless` found to be over again is a sighting too, which says so: whether the job had outlived it by
then, `survival` decides.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from diagnose.dataclass import replace
from diagnose.lines.inventory import Inventory
from diagnose.models import DiagnosisRule, Line, RuleSet
from diagnose.models.rule import Match, Within
from diagnose.rules.captures import Value
from diagnose.rules.matcher import Hit, HitStore, Matcher, Sink, sighting_of

_TRIES = 200_000  # pairs looked at per rule: a bound on time, not on what normal jobs need
_SOURCE_WITHOUT_ATTEMPT = frozenset({"kernel", "scheduler", "dump"})


def combine(matcher: Matcher, inventory: Inventory) -> tuple[str, ...]:
    """Decides every rule over several signatures and hands its sightings to the matcher's sink.

    Returns in words what was given up for want of time.
    """
    notes: list[str] = []
    for rule in matcher.rule_set.diagnoses:
        stores = matcher.hits.get(rule.id)
        if not stores:
            continue
        budget = _Budget()
        for hits, over in _solutions(rule, stores, inventory, budget):
            _add(rule, hits, over, matcher.sink, matcher.rule_set)
        if budget.left <= 0:
            notes.append(f"rule {rule.id}: too many hits to pair them all")
    return tuple(notes)


class _Budget:
    def __init__(self) -> None:
        self.left = _TRIES

    def spend(self) -> bool:
        self.left -= 1
        return self.left > 0


def _solutions(
    rule: DiagnosisRule, stores: Mapping[str, HitStore], inventory: Inventory, budget: _Budget
) -> Iterator[tuple[Sequence[Hit], Hit | None]]:
    match = rule.match
    groups: list[Sequence[Hit]]
    if match.any:
        hits = sorted((hit for name in match.any if name in stores for hit in stores[name].all()), key=_position)
        groups = [(hit,) for hit in hits]
    else:
        names = match.sequence or match.all
        if any(name not in stores for name in names):
            return
        groups = list(_tuples(match, [stores[name].all() for name in names], inventory, budget))
    cancelling = sorted((hit for name in match.unless if name in stores for hit in stores[name].all()), key=_position)
    ended = [(group, _over(match, group, cancelling, inventory, budget)) for group in groups]
    lasting = sum(over is None for _, over in ended)
    yield from ((group, over) for group, over in ended if over is not None or lasting >= match.min_count)


def _tuples(
    match: Match, columns: Sequence[Sequence[Hit]], inventory: Inventory, budget: _Budget
) -> Iterator[Sequence[Hit]]:
    """For each hit of the first signature, the nearest fitting hit of each other one."""
    for start in columns[0]:
        chosen = [start]
        for column in columns[1:]:
            best: Hit | None = None
            for hit in column:
                if not budget.spend():
                    return
                if match.sequence and not _follows(chosen[-1], hit):
                    continue
                if all(_fits(match, other, hit, inventory) for other in chosen) and (
                    best is None or _distance(start, hit) < _distance(start, best)
                ):
                    best = hit
            if best is None:
                break
            chosen.append(best)
        else:
            yield chosen


def _over(
    match: Match, group: Sequence[Hit], cancelling: Sequence[Hit], inventory: Inventory, budget: _Budget
) -> Hit | None:
    """The hit of an `unless` signature that comes first at or after one of the group, at the same unit.

    `cancelling` are in the order of `_position`: those of the hit's own log are looked at first, from its line on.
    """
    for hit in group:
        start = bisect_left(cancelling, _position(hit), key=_position)
        end = bisect_right(cancelling, hit.line.source.name, key=lambda other: other.line.source.name)
        for other in cancelling[start:end]:
            if not budget.spend():
                return None
            if _fits(match, hit, other, inventory, unit=True):
                return other
        elsewhere = [*cancelling[:start], *cancelling[end:]] if hit.line.time is not None else []
        for other in elsewhere:
            if not budget.spend():
                return None
            later = other.line.time is not None and other.line.time >= (hit.line.time or 0.0)
            if (
                later
                and other.line.source.name != hit.line.source.name
                and _fits(match, hit, other, inventory, unit=True)
            ):
                return other
    return None


def _fits(match: Match, one: Hit, other: Hit, inventory: Inventory, *, unit: bool = False) -> bool:
    if one.line.source.name == other.line.source.name and one.attempt != other.attempt:
        return False
    for name in match.join:
        if name in one.captures and name in other.captures and one.captures[name] != other.captures[name]:
            return False
    within = match.within or Within()
    if (
        within.lines is not None
        and one.line.source.name == other.line.source.name
        and abs(one.line.number - other.line.number) > within.lines
    ):
        return False
    times = (one.line.time, other.line.time)
    if within.seconds is not None and None not in times and abs((times[0] or 0) - (times[1] or 0)) > within.seconds:
        return False
    same = set(within.same) | ({"host", "rank"} if unit else set())
    if "rank" in same and _differ(_rank(one), _rank(other)):
        return False
    return not ("host" in same and _differ(_host(one, inventory), _host(other, inventory)))


def _follows(one: Hit, other: Hit) -> bool:
    if _same_stream(one.line, other.line) or one.line.source.name == other.line.source.name:
        return other.line.number >= one.line.number
    if one.line.time is not None and other.line.time is not None:
        return other.line.time >= one.line.time
    return True


def _same_stream(one: Line, other: Line) -> bool:
    return one.stream == other.stream


def _distance(one: Hit, other: Hit) -> tuple[float, int]:
    if one.line.time is not None and other.line.time is not None:
        return abs(one.line.time - other.line.time), abs(one.line.number - other.line.number)
    return 0.0, abs(one.line.number - other.line.number)


def _position(hit: Hit) -> tuple[str, int]:
    return hit.line.source.name, hit.line.number


def _differ(one: object, other: object) -> bool:
    return one is not None and other is not None and one != other


def _rank(hit: Hit) -> int | None:
    value = hit.captures.get("rank")
    return value if isinstance(value, int) else None


def _host(hit: Hit, inventory: Inventory) -> str | None:
    value = hit.captures.get("host")
    rank = _rank(hit)
    host = value if isinstance(value, str) else (inventory.host_of_rank(rank) if rank is not None else None)
    return inventory.canonical_host(host) if host else None


def _add(rule: DiagnosisRule, hits: Sequence[Hit], over: Hit | None, sink: Sink, rule_set: RuleSet) -> None:
    merged: dict[str, Value] = {}
    for hit in hits:
        for name, value in hit.captures.items():
            merged.setdefault(name, value)
    for earlier, later in pairwise(hits):
        if earlier.line.time is None or later.line.time is None:
            merged["assumed"] = True
    first = min(hits, key=lambda hit: (hit.line.source.kind in _SOURCE_WITHOUT_ATTEMPT, hits.index(hit)))
    for hit in (first, *[hit for hit in hits if hit is not first]):
        sighting = sighting_of(rule, hit.signature, hit.line, hit.attempt, merged, rule_set)
        if over is not None:
            sighting = replace(sighting, also=(over.line,), over=over.line)
        sink.add(sighting, hit.draft, traceback=False)
