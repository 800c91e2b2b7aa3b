"""Checks against logs of healthy runs: rules stay silent there, and keywords are rare.

In: rules and healthy logs. Out: problems `noise`, `keyword-frequent`; and the figures of `diagnose rules noise`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from diagnose.errors import Problem
from diagnose.models.rule import RuleSet
from diagnose.rules.lint.base import Check
from diagnose.rules.lint.filters import compiled_filter
from diagnose.rules.lint.runner import ExampleRuns, keywords_of
from diagnose.sources.sniff import content_of

FREQUENT: Final = 0.001
_HEAD: Final = 64 * 1024  # what tells the kind of a log
Logs = Sequence[tuple[str, tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class Noise:
    """What a rule set says of logs that hold no failure.

    `findings` are (rule, log, line number, line); `keywords` are (rule, keyword, lines hit), the most frequent first;
    `filters` are (rule, lines matched); `lines` is how many there are, `left` how many no filter matches.
    """

    lines: int
    left: int
    findings: tuple[tuple[str, str, int, str], ...]
    keywords: tuple[tuple[str, str, int], ...]
    filters: tuple[tuple[str, int], ...]


def findings_in(rule_set: RuleSet, logs: Logs) -> tuple[tuple[str, str, int, str], ...]:
    """Every line of the logs that a diagnosis rule finds, as (rule, log, line number, line)."""
    runs = ExampleRuns(rule_set)
    found: list[tuple[str, str, int, str]] = []
    for name, lines in logs:
        text = "\n".join(lines)
        kind = content_of(text[:_HEAD].encode("utf-8", "replace")).kind or "job"
        for rule, result in runs.run(text, kind).items():
            found += [(rule, name, number, lines[number - 1]) for number in result.lines if number <= len(lines)]
    return tuple(sorted(found))


def keyword_hits(rule_set: RuleSet, logs: Logs) -> tuple[tuple[str, str, int], ...]:
    """How many lines hold each keyword of a diagnosis rule; those that hold none are left out.

    The first hit in each log is not counted: what a program says once per run, such as that it is done, is not frequent
    however short the logs.
    """
    owners = {word: rule.id for rule in rule_set.diagnoses for word in keywords_of(rule) if word}
    counts: dict[str, int] = {}
    for _, lines in logs:
        whole = "\n".join(lines)
        for word in owners:
            if word in whole:
                counts[word] = counts.get(word, 0) + sum(word in line for line in lines) - 1
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple((owners[word], word, count) for word, count in ordered if count)


def measure(rule_set: RuleSet, logs: Logs) -> Noise:
    """All figures at once."""
    filters = [(rule.id, judge) for rule in rule_set.filters if (judge := compiled_filter(rule)) is not None]
    matched = {name: 0 for name, _ in filters}
    total = left = 0
    for _, lines in logs:
        # As the compressor splits them: `\r\n` ends a line, and behind the last end there is none.
        for line in lines[:-1] if lines and not lines[-1] else lines:
            total += 1
            raw = line.removesuffix("\r").encode("utf-8", "replace")
            hit = next((name for name, judge in filters if judge.matches(raw)), None)
            if hit is None:
                left += 1
            else:
                matched[hit] += 1
    return Noise(
        lines=total,
        left=left,
        findings=findings_in(rule_set, logs),
        keywords=keyword_hits(rule_set, logs),
        filters=tuple(sorted(matched.items(), key=lambda item: (-item[1], item[0]))),
    )


class SilentOnHealthyLogs(Check):
    """A rule finds no more in healthy logs than it is known to find."""

    name = "noise"

    def finalize(self) -> Iterator[Problem]:
        found: dict[str, list[tuple[str, int, str]]] = {}
        for rule, name, number, line in findings_in(self.context.asked_rules, self.context.healthy_lines):
            found.setdefault(rule, []).append((name, number, line))
        for rule, places in found.items():
            known = self.context.noise.get(rule, 0)
            if len(places) > known:
                name, number, line = places[0]
                count = f"{len(places)} line{'s' if len(places) > 1 else ''}"
                message = (
                    f"finds {count} in healthy logs (known: {known}), first {name}:{number}: {line[:99]!r};"
                    " narrow it, or `diagnose rules noise --accept` what the engine sets aside"
                )
                yield self.problem(rule, "signatures", message)


class KeywordsRare(Check):
    """No keyword of a diagnosis rule stands in more than 0.1 % of healthy lines."""

    name = "keyword-frequent"

    def finalize(self) -> Iterator[Problem]:
        logs = self.context.healthy_lines
        total = sum(len(lines) for _, lines in logs)
        places = {
            (rule.id, word): f"signatures.{name}.keywords[{index}]"
            for rule in self.context.asked_rules.diagnoses
            for name, signature in rule.signatures.items()
            for index, word in enumerate(signature.keywords)
        }
        for rule, word, count in keyword_hits(self.context.asked_rules, logs):
            if count > total * FREQUENT:
                message = f"{word!r} stands in {count} of {total} healthy lines, more than {FREQUENT:.1%}"
                yield self.problem(rule, places[rule, word], message)
