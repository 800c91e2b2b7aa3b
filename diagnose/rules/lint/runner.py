"""Runs one example of a rule.

In: a rule and a log. Out: which lines it matches and what it captures.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from diagnose.models.rule import DiagnosisRule, RuleSet
from diagnose.rules.captures import typed
from diagnose.rules.lint.patterns import compiled
from diagnose.rules.lint.texts import split_sources

@dataclass(frozen=True, slots=True)
class ExampleResult:
    """What a rule says of an example. Lines are 1-based within the example."""

    lines: tuple[int, ...]
    captures: Mapping[str, Any] = field(default_factory=dict)
    matched: bool = False


def run_example(rule_set: RuleSet, rule: DiagnosisRule, log: str, source: str | None) -> ExampleResult:
    """Search the signatures over all lines; windows and records are not looked at."""
    found: dict[str, set[int]] = {}
    captures: dict[str, Any] = {}
    lines = split_sources(log, source)  # type: ignore[arg-type]
    runs: list[list[int]] = []
    for index, (kind, _) in enumerate(lines):
        if runs and lines[runs[-1][-1]][0] == kind:
            runs[-1].append(index)
        else:
            runs.append([index])
    for run in runs:
        if lines[run[0]][0] not in rule.sources:
            continue
        text = "\n".join(lines[index][1] for index in run)
        starts = [0]
        for index in run:
            starts.append(starts[-1] + len(lines[index][1]) + 1)
        for name, signature in rule.signatures.items():
            pattern = compiled(signature.pattern)
            if isinstance(pattern, str):
                continue
            pieces = [(0, text)] if "\\n" in signature.pattern else [(starts[i], lines[index][1]) for i, index in enumerate(run)]
            for base, piece in pieces:
                if not any(word in piece for word in signature.keywords):
                    continue
                for match in pattern.finditer(piece, timeout=1):
                    lead = len(match.group()) - len(match.group().lstrip())
                    found.setdefault(name, set()).add(run[bisect_right(starts, base + match.start() + lead) - 1] + 1)
                    for key, value in match.groupdict().items():
                        if value is not None and key not in captures:
                            captures[key] = typed(key, value, rule.captures.get(key))
    import re
    for _, line in lines:
        rank = re.match(r"\[rank(\d+)\]|(\d+): ", line)
        if rank:
            captures.setdefault("rank", int(rank[1] or rank[2]))
    need = rule.match.all or rule.match.sequence
    matched = set(need) <= set(found) if need else any(name in found for name in rule.match.any)
    matched = matched and not any(name in found for name in rule.match.unless)
    used = set(need or rule.match.any)
    numbers = sorted(set().union(*(found[name] for name in found if name in used)) if found else ())
    return ExampleResult(tuple(numbers) if matched else (), captures, matched)
