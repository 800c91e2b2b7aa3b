"""Who may explain whom: the rules' own edges and the defaults.

In: a rule set. Out: for a pair of findings, the scope within which the first may explain the second, or None. Patterns
are `family/*`, `family/Type` or a rule id. The defaults: hardware, host and node causes explain device errors of the
same host; everything that kills a process explains what its peers and launchers then say, in the whole job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from diagnose.models import Edge, Finding, RuleSet
from diagnose.models.rule import Role, Scope

_KILLS = (
    "hardware/*", "cuda/*", "network/*", "node/*", "storage/*", "host/*", "scheduler/*", "framework/*", "data/*",
    "anomaly/*", "script/*",
)  # fmt: skip
_ENDS_PROCESSES = ("hardware/*", "host/*", "node/*", "scheduler/*")
_PHYSICAL = frozenset({"hardware", "node", "host"})
_KERNEL = frozenset({"kernel"})
_USER_CODE = ("framework/*", "data/*", "script/*", "anomaly/*")

# (what explains, what it explains, how far it reaches)
DEFAULTS: tuple[tuple[tuple[str, ...], tuple[str, ...], Scope], ...] = (
    (("hardware/*", "host/*", "node/*"), ("cuda/*",), "host"),
    (_KILLS, ("comm/*", "teardown/*"), "job"),
    (("comm/*",), ("teardown/*",), "job"),
    (_ENDS_PROCESSES, ("framework/ProcessKilled", "data/DataloaderKilled", "framework/SegmentationFault"), "host"),
    (("scheduler/*", "node/*"), ("framework/ProcessKilled", "data/DataloaderKilled"), "job"),
    (("hardware/*",), ("framework/SegmentationFault",), "host"),
    # A RuntimeError without anything more telling is often the next thing a dying process or its peers say.
    (("hardware/*", "cuda/*", "network/*", "node/*", "storage/*", "host/*"), ("python-traceback:RuntimeError",), "job"),
    (("comm/*",), ("python-traceback:RuntimeError",), "job"),
    # Contexts torn down after an exception leave traces in the kernel log that look like faults.
    (_USER_CODE, ("kernel:cuda/*",), "host"),
)


Kind = tuple[str | None, str, Role, bool]
_PAIRS = 65_536  # remembered


class Edges:
    """Answers whether one finding may explain another, by type and rule; cached per pair of kinds.

    A kind says all that decides, see `kind_of`: the answer for any two findings holds for all of their kinds.
    """

    def __init__(self, rule_set: RuleSet) -> None:
        self._explains: Mapping[str, Sequence[Edge]] = {rule.id: rule.explains for rule in rule_set.diagnoses}
        self._explained_by: Mapping[str, Sequence[Edge]] = {rule.id: rule.explained_by for rule in rule_set.diagnoses}
        self._names: dict[Kind, frozenset[str]] = {}
        self._cache: dict[tuple[Kind, Kind], Scope | None] = {}

    def scope(self, cause: Finding, effect: Finding) -> Scope | None:
        """How far `cause` reaches when it explains `effect`; None where it may not."""
        key = (kind_of(cause), kind_of(effect))
        try:
            return self._cache[key]
        except KeyError:
            scope = self._decide(cause, effect)
        if len(self._cache) < _PAIRS:
            self._cache[key] = scope
        return scope

    def _names_of(self, finding: Finding) -> frozenset[str]:
        kind = kind_of(finding)
        if kind not in self._names:
            self._names[kind] = names_of(finding)
        return self._names[kind]

    def _decide(self, cause: Finding, effect: Finding) -> Scope | None:
        if cause.rule and cause.rule == effect.rule and cause.error_type == effect.error_type:
            return None
        if _on_the_bus(effect) and cause.family not in _PHYSICAL:
            return None
        names_cause, names_effect = self._names_of(cause), self._names_of(effect)
        scopes: list[Scope] = []
        own = self._explains.get(cause.rule or "", ())
        scopes.extend(edge.scope or "job" for edge in own if edge.what in names_effect)
        named = self._explained_by.get(effect.rule or "", ())
        scopes.extend(edge.scope or _default_scope(cause, effect) for edge in named if edge.what in names_cause)
        if cause.role == "teardown":
            return _widest(scopes) if scopes else None
        for causes, effects, scope in DEFAULTS if cause.error_type != effect.error_type else ():
            if not names_cause.isdisjoint(causes) and not names_effect.isdisjoint(effects):
                scopes.append(scope)
        return _widest(scopes) if scopes else None


def _on_the_bus(finding: Finding) -> bool:
    """Whether a kernel log alone names a cause of communication trouble: a process that dies does not make it."""
    return finding.family == "comm" and finding.role == "cause" and finding.sources == _KERNEL


def _default_scope(cause: Finding, effect: Finding) -> Scope:
    return "host" if effect.family == "cuda" and cause.family in ("hardware", "host", "node") else "job"


def _widest(scopes: Iterable[Scope]) -> Scope:
    order: tuple[Scope, ...] = ("gpu", "host", "job")
    return max(scopes, key=order.index)


def kind_of(finding: Finding) -> Kind:
    """What decides a finding's edges: its rule, type, role and whether only the kernel log says it."""
    return finding.rule, finding.error_type, finding.role, finding.sources == _KERNEL


def names_of(finding: Finding) -> frozenset[str]:
    """All patterns that name this finding."""
    names = {f"{finding.family}/*", f"{finding.family}/{finding.error_type}"}
    if finding.rule:
        names.add(finding.rule)
    else:
        names.add(f"python-traceback:{finding.error_type}")
    if finding.sources == _KERNEL:
        names.add(f"kernel:{finding.family}/*")
    return frozenset(names)
