"""Checks of time: no pattern is slow on a hostile line.

In: rules. Out: problems `time`. Hostile are a rule's own examples repeated and cut short to 64 KiB, so that matches
begin again and again and fail late, and long runs of one character.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

import regex

from diagnose.compress.prefix import expand
from diagnose.errors import Problem
from diagnose.models.rule import DiagnosisRule
from diagnose.rules.lint.base import Check, Rule, place, signatures
from diagnose.rules.lint.engines import compiled
from diagnose.rules.lint.texts import example_texts

LINE: Final = 64 * 1024
SECONDS: Final = 0.005
_PATIENCE: Final = 0.25
_TRIES: Final = 7
_MOST_TRIES: Final = 56
_PAUSE: Final = 0.1
# What `_pace` measures on 2 cores of an AMD EPYC, in seconds: limits hold for that machine, and scale with others.
_REFERENCE: Final = 0.00045
_YARDSTICK: Final = regex.compile(r"begin (?P<n>\d+) .{0,200}end (?P<m>\d+)", regex.ASCII)
_RUNS: Final = ("x", "0", " ", "[", "a.b/", "\t", "0000:")
_EXAMPLES: Final = 4


class FastOnHostileLines(Check):
    """Each pattern ends within 5 ms of CPU time on each hostile line; the best of several tries counts."""

    name = "time"

    def validate(self, rule: Rule) -> Iterator[Problem]:
        texts = list(dict.fromkeys(example_texts(rule)))[:12]
        for where, keywords, pattern in signatures(rule):
            found = compiled(pattern)
            if isinstance(found, str):
                continue
            for kind, text in hostile_lines(found, keywords, texts, whole=not isinstance(rule, DiagnosisRule)):
                seconds = self._seconds(rule, found, text)
                if seconds > SECONDS:
                    took = f"{seconds * 1000:.0f} ms" if seconds < _PATIENCE else f"over {_PATIENCE * 1000:.0f} ms"
                    message = (
                        f"takes {took} on a 64 KiB line of {kind}, more than {SECONDS * 1000:.0f}; "
                        "bound the gaps (`.{0,200}` or `[^]]{0,99}` in place of `.*`) or anchor the start"
                    )
                    yield self.problem(rule, place(where, "pattern"), message)
                    break

    def _seconds(self, rule: Rule, pattern: regex.Pattern[str], text: str) -> float:
        if isinstance(rule, DiagnosisRule):
            return best(pattern, text, whole=False)
        try:
            raw = regex.compile(expand(rule.pattern))
        except (regex.error, UnicodeEncodeError):
            return 0.0
        return best(raw, text.encode(), whole=True)


def best(
    pattern: regex.Pattern[str] | regex.Pattern[bytes],
    text: str | bytes,
    *,
    whole: bool,
    every: bool = False,
    limit: float = SECONDS,
) -> float:
    """The shortest of several runs, in seconds of CPU at the reference pace; a run over the time-out counts as that.

    `every` looks for all matches, not the first one. What is below the limit is not measured again.

    The pace is measured anew beside each run that seems too slow, for a shared machine's pace changes within a second.
    """
    shortest = _PATIENCE
    search: Callable[..., object] = pattern.fullmatch if whole else _all_of(pattern) if every else pattern.search
    for attempt in range(_MOST_TRIES):
        if attempt >= 2 * _TRIES and shortest > 2 * limit:
            break  # no neighbour's doing
        if attempt and attempt % _TRIES == 0:
            time.sleep(_PAUSE)  # a neighbour's burst passes
        before = _pace() if attempt else 1.0
        start = time.thread_time()
        try:
            search(text, timeout=_PATIENCE)
        except TimeoutError:
            return _PATIENCE
        seconds = time.thread_time() - start
        shortest = min(shortest, seconds / (min(before, _pace()) if attempt and seconds > limit else 1.0))
        if shortest <= limit:
            break
    return shortest


def _all_of(pattern: regex.Pattern[str] | regex.Pattern[bytes]) -> Callable[..., object]:
    return lambda text, timeout: sum(1 for _ in pattern.finditer(text, timeout=timeout))


def _pace() -> float:
    """How much slower this machine is at this moment than the one that the limit was set on; never below 1."""
    start = time.thread_time()
    _YARDSTICK.search(_YARDSTICK_LINE)
    return max(1.0, (time.thread_time() - start) / _REFERENCE)


def hostile_lines(
    pattern: regex.Pattern[str], keywords: tuple[str, ...], texts: list[str], *, whole: bool
) -> Iterator[tuple[str, str]]:
    """Hostile lines of one pattern as (what it is made of, line)."""
    for run in _RUNS:
        yield f"{run!r}", _fill(run)
    for keyword in keywords[:_EXAMPLES]:
        yield f"{keyword!r}", _fill(keyword + " ")
    used = 0
    for text in texts:
        match = pattern.fullmatch(text, timeout=1) if whole else pattern.search(text, timeout=1)
        if not match or not match.group() or used >= _EXAMPLES:
            continue
        used += 1
        body = match.group().replace("\n", " ")
        cut = body[: max(1, len(body) - 3)]
        yield "its example, cut short and repeated", _fill(cut + " ")
        yield "its example, cut in half and repeated", _fill(body[: max(1, len(body) // 2)] + " ")
        yield "its example, begun and then endless", body[: max(1, len(body) // 2)] + _fill("x 0")
        if whole:
            yield "its example, repeated", _fill(body)


def _fill(piece: str) -> str:
    return (piece * (LINE // len(piece) + 1))[:LINE]


_YARDSTICK_LINE: Final = _fill("begin 12 and so on without what it looks for ")
