"""Filter rules, compiled: which rules say that a template is routine.

In: `FilterRule`s. Out: for a template and a kind of source, the rules that match it, each for sure or as a maybe that
the raw line must settle. Candidates come from one Aho-Corasick pass over all keywords, so that the price of a new
template does not grow with the number of rules; patterns are compiled when a line first asks for them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Final, Literal

from ahocorasick_rs import BytesAhoCorasick

from diagnose.compress.prefix import LinePattern, Span, split, writer_span
from diagnose.compress.relax import has_digits, relax, template
from diagnose.dataclass import dataclass
from diagnose.models import FilterRule, SourceKind

_DEFAULT_KEEP_FIRST: Final = 1
ROUTINE_BYTES: Final = 4096
"""Longer lines are never routine: it costs little context, and bounds the time of every pattern."""
_STEP_DIGITS: Final = 18


class CompiledFilter:
    """A filter rule ready to match; equal rules in the same place give the same verdicts."""

    def __init__(self, index: int, rule: FilterRule) -> None:
        self.index = index
        self.id = rule.id
        self.sources = frozenset(rule.sources)
        self.action: Literal["drop", "collapse"] = rule.action
        self.keep_first = _DEFAULT_KEEP_FIRST if rule.keep_first is None else rule.keep_first
        self.per: Literal["rank", "host", "job"] = rule.per or "rank"
        self.progress = rule.yields is not None and bool(rule.yields.progress)
        self.keywords = tuple(keyword.encode("utf-8") for keyword in rule.keywords if keyword)
        self._prefixed, self._own = split(rule.pattern)
        self._step = rule.yields.progress.get("step") if rule.yields is not None else None

    def matches(self, line: bytes) -> bool:
        """Whether the raw line is one of this rule's: a keyword in it, and the pattern from end to end."""
        return (
            len(line) <= ROUTINE_BYTES
            and any(keyword in line for keyword in self.keywords)
            and self._real.matches(line)
        )

    def may_match(self, line_template: bytes) -> bool:
        """Whether lines of the template can be of this rule."""
        return self._relaxed.matches(line_template)

    def step_span(self, line_template: bytes) -> Span | None:
        """Where lines of the template hold their step number, when the rule reads one."""
        found = self._step_pattern.search(line_template) if self._step_pattern is not None else None
        if found is None:
            return None
        start, end = found.span("step")
        # Untrusted digits may go on for kilobytes; no step does.
        readable = 0 < end - start <= _STEP_DIGITS and line_template[start:end].count(b"0") == end - start
        return (start, end) if readable else None

    @cached_property
    def exact(self) -> bool:
        """Whether the pattern tells no digits apart, so that a template's verdict is its lines' verdict."""
        return not relax(self._own)[1]  # the prefix tells none apart

    @cached_property
    def _real(self) -> LinePattern:
        return LinePattern(self._own, prefixed=self._prefixed)

    @cached_property
    def _relaxed(self) -> LinePattern:
        return self._real if self.exact else LinePattern(relax(self._own)[0], prefixed=self._prefixed)

    @cached_property
    def _step_pattern(self) -> re.Pattern[bytes] | None:
        return re.compile(relax(self._step.encode("ascii"))[0]) if self._step else None


@dataclass(frozen=True, slots=True)
class Hit:
    """A rule that matches a template; where its lines name their writer and their step."""

    rule: CompiledFilter
    writer: Span
    step: Span | None


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the rules say of a template: `maybe`s to be settled on the raw line, in order, then the sure one or none."""

    sure: Hit | None
    maybe: tuple[Hit, ...]


NOTHING: Final = Judgement(None, ())


class Filters:
    """All filter rules of a run. Where several match, the one with the longest keyword decides, then the first id."""

    def __init__(self, rules: Sequence[FilterRule]) -> None:
        ranked = sorted(rules, key=lambda rule: (-max(map(len, rule.keywords), default=0), rule.id))
        self.rules = tuple(CompiledFilter(index, rule) for index, rule in enumerate(ranked))
        # Which rules a masked keyword speaks for, and whether it does so for sure.
        owners: dict[bytes, list[tuple[int, bool]]] = {}
        for compiled in self.rules:
            for keyword in compiled.keywords:
                owners.setdefault(template(keyword), []).append((compiled.index, not has_digits(keyword)))
        self._owners = tuple(tuple(owner) for owner in owners.values())
        self.searched = tuple(owners)  # in templates
        self._keywords = BytesAhoCorasick(self.searched)

    def judge(self, line_template: bytes, kind: SourceKind) -> Judgement:
        """Find the rules that speak for lines of the template in a source of that kind."""
        if len(line_template) > ROUTINE_BYTES:
            return NOTHING
        candidates: dict[int, bool] = {}
        for keyword, _, _ in self._keywords.find_matches_as_indexes(line_template, overlapping=True):
            for index, sure in self._owners[keyword]:
                candidates[index] = candidates.get(index, False) or sure
        maybe: list[Hit] = []
        for index in sorted(candidates):
            rule = self.rules[index]
            if kind not in rule.sources or not rule.may_match(line_template):
                continue
            hit = Hit(rule, writer_span(line_template, rule.per), rule.step_span(line_template))
            if candidates[index] and rule.exact:
                return Judgement(hit, tuple(maybe))
            maybe.append(hit)
        return Judgement(None, tuple(maybe)) if maybe else NOTHING
