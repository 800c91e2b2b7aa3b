"""Whether a filter rule that nobody has reviewed may be used: it is held against everything that must not be lost.

In: a rule set, lines that prove incidents, a candidate with the lines it is for and lines of other kinds. Out: why it
is refused, nothing where it is admitted. Stricter than lint, which a person's rule has to pass: a candidate
may neither match a word that anybody listens for nor leave room for one, and RE2 must be there to judge it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final

from diagnose.compress import CompiledFilter, Guard, Listeners
from diagnose.compress.prefix import PREFIX
from diagnose.compress.relax import template
from diagnose.dataclass import replace
from diagnose.lines import guard_keywords
from diagnose.lines.interests import spoken_literals
from diagnose.lines.steps import STEP_LITERALS
from diagnose.models.flow import SourceKind
from diagnose.models.rule import FilterRule, RuleSet
from diagnose.patterns import Lazy
from diagnose.rules.lint.base import Check, Context
from diagnose.rules.lint.engines import re2_module
from diagnose.rules.lint.filters import (
    ActionFits,
    HidesNothing,
    NoContinuations,
    NoiseMatches,
    NoParticularDigits,
    PrefixFirst,
    SignalPasses,
    compiled_filter,
)
from diagnose.rules.lint.keywords import KeywordsLongEnough, KeywordsNeeded
from diagnose.rules.lint.patterns import NamesExist, PatternCompiles, PatternIsSafe, PatternMatchesSomething
from diagnose.rules.lint.run import lint_rules
from diagnose.rules.lint.runner import keywords_of
from diagnose.rules.lint.secrets import NothingPrivate
from diagnose.rules.lint.timing import FastOnHostileLines
from diagnose.rules.prove import nodes

PATTERN_CHARS: Final = 600
# Before these have passed, no engine without a time limit sees the pattern.
_SAFETY: Final[tuple[type[Check], ...]] = (PatternCompiles, PatternIsSafe, PatternMatchesSomething)
_CHECKS: Final[tuple[type[Check], ...]] = (
    FastOnHostileLines,
    NamesExist,
    KeywordsLongEnough,
    KeywordsNeeded,
    NoParticularDigits,
    PrefixFirst,
    NoContinuations,
    ActionFits,
    NoiseMatches,
    SignalPasses,
    NothingPrivate,
    HidesNothing,
)
# What no routine line says: whoever wrote the pattern must have meant something else.
TROUBLE: Final = (
    "error", "fail", "fatal", "exception", "abort", "panic", "critical", "traceback", "killed", "timeout", "timed out",
    "cannot", "unable", "refused", "denied", "corrupt", "lost", "mismatch", "nan", "inf ", "oom", "out of memory",
    "signal", "unexpected", "invalid", "retry", "warn",
)  # fmt: skip
_PLANTED: Final = (
    "CUDA error: an illegal memory access was encountered",
    "Traceback (most recent call last):",
    "RuntimeError: NCCL error",
    "Killed",
    "srun: error: gx-01: task 3: Exited with exit code 1",
    "loss: nan",
)
_TOKENS: Final = 10
_GROUP_REPEATS: Final = 4
_VARIABLE: Final = 16
_DIGITS: Final = 5  # so long may be what a repeated group holds, as in an address
_PREFIX: Final = Lazy(PREFIX)

Evidence = Callable[[], Iterable[tuple[str, str]]]


class Admission:
    """Judges candidates against one rule set; may be asked by any one thread."""

    def __init__(self, rule_set: RuleSet, evidence: Evidence = tuple) -> None:
        """`evidence` gives lines that prove incidents, as (where, line); it is asked when the first rule is judged."""
        self._rule_set = replace(rule_set, filters=())
        self._gather = evidence
        words = {word for rule in rule_set.diagnoses for word in keywords_of(rule)}
        self._words = tuple(sorted({*words, *guard_keywords()}))
        self.guard = Guard(self._words)
        self._listeners = Listeners(spoken_literals(), STEP_LITERALS)

    @cached_property
    def _evidence(self) -> tuple[tuple[str, str], ...]:
        return tuple(self._gather())

    @property
    def able(self) -> bool:
        """Whether candidates can be judged here at all."""
        return re2_module() is not None

    def may_be_routine(self, line_template: bytes) -> bool:
        """Whether lines of a template may ever be filtered by a candidate: nobody listens, nothing sounds wrong."""
        if self.guard.judge(line_template) or self._listeners.interest(line_template):
            return False
        if line_template[:1] in (b" ", b"\t", b"^"):
            return False
        lowered = line_template.lower()
        return not any(word in lowered for word in self._trouble)

    @cached_property
    def _trouble(self) -> tuple[bytes, ...]:
        return tuple(word.encode() for word in TROUBLE)

    def refuses(
        self, rule: FilterRule, lines: Sequence[bytes], others: Iterable[bytes], kind: SourceKind = "job"
    ) -> str | None:
        """Why a candidate for these lines may not be used; None where it may. `others` are lines of other families."""
        return next(self._reasons(rule, lines, others, kind), None)

    def _reasons(
        self, rule: FilterRule, lines: Sequence[bytes], others: Iterable[bytes], kind: SourceKind
    ) -> Iterator[str]:
        if re2_module() is None:
            yield "RE2 is not installed: pip install 'gpu-job-diagnose[llm]'"
            return
        if len(rule.pattern) > PATTERN_CHARS:
            yield f"the pattern is longer than {PATTERN_CHARS} characters"
            return
        if rule.yields is not None or kind not in rule.sources or not lines:
            yield "it is not a plain filter of these lines"
            return
        context = Context(
            replace(self._rule_set, filters=(rule,), paths={**self._rule_set.paths, rule.id: f"{rule.id}.yml"}),
            evidence=self._evidence,
            chosen=frozenset({rule.id}),
        )
        for check in _SAFETY:
            yield from (f"{problem.message} [{problem.check}]" for problem in lint_rules(context, [check]))
        if unruly := _unruly(rule.pattern.removeprefix("{prefix}")):
            yield unruly
            return
        for check in _CHECKS:
            yield from (f"{problem.message} [{problem.check}]" for problem in lint_rules(context, [check]))
        judge = compiled_filter(rule)
        if judge is None:
            yield "the pattern does not compile"
            return
        yield from self._on_lines(judge, lines, others, prefixed=rule.pattern.startswith("{prefix}"))

    def _on_lines(
        self, judge: CompiledFilter, lines: Sequence[bytes], others: Iterable[bytes], *, prefixed: bool
    ) -> Iterator[str]:
        for line in lines:
            if not judge.matches(line):
                yield f"it does not match {_shown(line)}, for which it was made"
            if self.guard.hits(line) or not self.may_be_routine(template(line)):
                yield f"{_shown(line)} is no line to leave out: somebody listens for it, or it speaks of trouble"
        for other in others:
            if judge.matches(other):
                yield f"it also matches {_shown(other)}, a line of another kind"
        for word in (*_PLANTED, *self._words):
            if any(judge.matches(changed) for changed in _with(lines[0], word, prefixed=prefixed)):
                yield f"it would also match such a line that says {word!r}"
                return


def _with(line: bytes, word: str, *, prefixed: bool) -> Iterator[bytes]:
    """A line that says something more: behind, in front, and, for several words, in the place of any one word.

    What stands in front of a line with prefixes may be read as one of them, as in every filter.
    """
    said = word.encode()
    yield line + b" " + said
    yield line + said
    found = _PREFIX.match(line) if prefixed else None
    start = found.end() if found else 0
    if not prefixed:
        yield said + b" " + line
    if " " in word.strip():
        parts = line[start:].split(b" ")
        for index in range(min(len(parts), _TOKENS)):
            yield line[:start] + b" ".join((*parts[:index], said, *parts[index + 1 :]))


def _unruly(pattern: str) -> str | None:
    """Why a pattern could take long on some line; None for plain sequences of bounded pieces."""
    variable = 0
    for kind, value in nodes(pattern):
        if kind not in ("MAX_REPEAT", "MIN_REPEAT"):
            continue
        least, most, inside = value
        variable += least != most
        inner = [str(item[0]) for item in inside]
        plain = inner in (["IN"], ["LITERAL"], ["NOT_LITERAL"], ["ANY"], ["CATEGORY"])
        if not plain and (int(most) > _GROUP_REPEATS or (int(most) > 1 and _repeats_in(inside))):
            return "it repeats a group; write the pieces one after another"
    return f"it has more than {_VARIABLE} pieces of open length; write fewer" if variable > _VARIABLE else None


def _repeats_in(items: Any) -> bool:
    """Whether something of open length stands inside of a group."""
    for item in items:
        kind, value = str(item[0]), item[1]
        if kind in ("MAX_REPEAT", "MIN_REPEAT"):
            if int(value[1]) > _DIGITS:
                return True
        elif kind == "SUBPATTERN":
            if _repeats_in(value[3]):
                return True
        elif kind == "BRANCH" and any(_repeats_in(branch) for branch in value[1]):
            return True
    return False


def _shown(line: bytes) -> str:
    return repr(line.decode("utf-8", "replace")[:120])
