"""Checks of filter rules: they judge templates, match their noise from end to end, and hide nothing that matters.

In: rules. Out: problems `filter-digits`, `filter-prefix`, `filter-continuation`, `filter-noise`, `filter-signal`,
`filter-action`, `filter-hides`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final

from diagnose.compress.filters import CompiledFilter
from diagnose.errors import Problem
from diagnose.models.rule import FilterRule
from diagnose.rules.lint.base import Check, Rule
from diagnose.rules.lint.texts import split_sources
from diagnose.rules.prove import nodes

# Lines that belong to an open record; `{}` is where a keyword may come in.
_CONTINUATIONS: Final = (
    '  File "/x/{}.py", line 3, in forward',
    "    {}",
    '    raise ValueError("{}")',
    "    {}(x)",
    "frame #3: {} + 0x1f (0x7f in /x/lib.so)",
    "    ^^^^{}^^^^",
    "\t{}",
)
_UNMISTAKABLE: Final = 12


class FilterCheck(Check):
    """A check of filter rules whose patterns compile."""

    def validate(self, rule: Rule) -> Iterator[Problem]:
        if isinstance(rule, FilterRule):
            judge = compiled_filter(rule)
            if judge is not None:
                yield from self.judge(rule, judge)

    def judge(self, rule: FilterRule, judge: CompiledFilter) -> Iterator[Problem]:
        """Yield what is wrong with one filter."""
        raise NotImplementedError


class NoParticularDigits(FilterCheck):
    """A filter judges the template, in which every digit is 0: it must not tell digits apart."""

    name = "filter-digits"

    def judge(self, rule: FilterRule, judge: CompiledFilter) -> Iterator[Problem]:
        for kind, value in nodes(rule.pattern.removeprefix("{prefix}")):
            if wanted := _particular(kind, value):
                yield self.problem(
                    rule, "pattern", f"asks for {wanted}; write `\\d`, every digit of a line is read as 0"
                )
                return


def _particular(kind: str, value: Any) -> str | None:
    """Which particular digit a node of a pattern asks for, in words."""
    digits = range(ord("0"), ord("9") + 1)
    if kind in ("LITERAL", "NOT_LITERAL") and value in digits:
        return f"the digit {chr(value)}"
    if kind != "IN":
        return None
    held: set[int] = set()
    for part, content in value:
        name = str(part)
        if name == "LITERAL" and content in digits:
            held.add(content)
        elif name == "RANGE":
            held.update(digit for digit in digits if content[0] <= digit <= content[1])
        elif name == "CATEGORY" and str(content) in ("CATEGORY_DIGIT", "CATEGORY_WORD", "CATEGORY_NOT_SPACE"):
            held.update(digits)
        elif name == "CATEGORY" and str(content) == "CATEGORY_NOT_WORD":
            continue
    return "some digits but not others" if 0 < len(held) < len(digits) else None


class PrefixFirst(FilterCheck):
    """`{prefix}` stands at the start of a pattern or nowhere."""

    name = "filter-prefix"

    def judge(self, rule: FilterRule, judge: CompiledFilter) -> Iterator[Problem]:
        if "{prefix}" in rule.pattern.removeprefix("{prefix}"):
            yield self.problem(rule, "pattern", "{prefix} may stand at the start only")


class NoContinuations(FilterCheck):
    """A filter does not match lines that continue a record, unless its keyword is unmistakable."""

    name = "filter-continuation"

    def judge(self, rule: FilterRule, judge: CompiledFilter) -> Iterator[Problem]:
        for index, keyword in enumerate(rule.keywords):
            if len(keyword) >= _UNMISTAKABLE:
                continue
            for shape in _CONTINUATIONS:
                line = shape.replace("{}", keyword)
                if judge.matches(line.encode()):
                    message = f"with this keyword it matches {line!r}, which may continue a traceback or stack"
                    yield self.problem(rule, f"keywords[{index}]", message)
                    break


class NoiseMatches(FilterCheck):
    """Each noise example holds a keyword and is matched from end to end; there is at least one."""

    name = "filter-noise"

    def judge(self, rule: FilterRule, judge: CompiledFilter) -> Iterator[Problem]:
        if not rule.examples.noise:
            yield self.problem(rule, "examples.noise", "needs at least one line that it must match")
        for index, line in enumerate(rule.examples.noise):
            where = f"examples.noise[{index}]"
            if not any(keyword in line for keyword in rule.keywords):
                yield self.problem(rule, where, "holds none of the keywords")
            elif not judge.matches(line.encode()):
                yield self.problem(rule, where, "the pattern does not match this line from end to end")


class SignalPasses(FilterCheck):
    """No signal example is matched; there is at least one."""

    name = "filter-signal"

    def judge(self, rule: FilterRule, judge: CompiledFilter) -> Iterator[Problem]:
        if not rule.examples.signal:
            yield self.problem(rule, "examples.signal", "needs at least one line that looks alike and must stay")
        for index, line in enumerate(rule.examples.signal):
            if judge.matches(line.encode()):
                yield self.problem(rule, f"examples.signal[{index}]", "the pattern matches this line, which must stay")


class ActionFits(FilterCheck):
    """`keep_first` and `per` belong to `collapse`."""

    name = "filter-action"

    def judge(self, rule: FilterRule, judge: CompiledFilter) -> Iterator[Problem]:
        if rule.action == "drop" and (rule.keep_first is not None or rule.per is not None):
            where = "keep_first" if rule.keep_first is not None else "per"
            yield self.problem(rule, where, "means something with `action: collapse` only")
        if rule.keep_first is not None and not 0 <= rule.keep_first <= 1000:
            yield self.problem(rule, "keep_first", "must be between 0 and 1000")


class HidesNothing(FilterCheck):
    """No filter matches a line that a diagnosis rule finds in its examples, or that proves an incident."""

    name = "filter-hides"

    def judge(self, rule: FilterRule, judge: CompiledFilter) -> Iterator[Problem]:
        for owner, _, kind, line in self._evidence:
            if (kind is None or kind in rule.sources) and judge.matches(line):
                yield self.problem(rule, "pattern", f"matches {_shown(line)}, evidence of {owner}")
                return

    def finalize(self) -> Iterator[Problem]:
        # Filters that nobody asks about are not judged, but they may hide what those asked about must find.
        asked = {rule.id for rule in self.context.rule_set.diagnoses if self.context.asked(rule)}
        for rule in self.context.rule_set.filters:
            judge = None if self.context.asked(rule) else compiled_filter(rule)
            for owner, where, kind, line in self._evidence if judge else ():
                if owner in asked and kind in rule.sources and judge and judge.matches(line):
                    yield self.problem(owner, where, f"holds {_shown(line)}, which the filter {rule.id} removes")
                    break

    @cached_property
    def _evidence(self) -> list[tuple[str, str, str | None, bytes]]:
        """Lines that prove something, as (of what, dotted place, kind of source or None for any, line)."""
        found: list[tuple[str, str, str | None, bytes]] = []
        for rule in self.context.rule_set.diagnoses:
            for index, example in enumerate(rule.examples.positive):
                where = f"examples.positive[{index}].log"
                lines = split_sources(example.log, example.source)
                found += [(rule.id, where, kind, text.encode()) for kind, text in lines]
        found += [(where, "", None, text.encode()) for where, text in self.context.evidence]
        return found


def _shown(line: bytes) -> str:
    return repr(line.decode("utf-8", "replace")[:120])


def compiled_filter(rule: FilterRule) -> CompiledFilter | None:
    """The filter as the compressor uses it; None when its pattern does not compile there."""
    try:
        judge = CompiledFilter(0, rule)
        judge.matches(b"".join(keyword.encode() for keyword in rule.keywords))
    except (re.error, UnicodeEncodeError, OverflowError, RecursionError):
        return None
    return judge


__all__ = [
    "ActionFits",
    "HidesNothing",
    "NoContinuations",
    "NoParticularDigits",
    "NoiseMatches",
    "PrefixFirst",
    "SignalPasses",
    "compiled_filter",
]
