"""The texts of a rule's examples, as signatures see them.

In: rules. Out: lines and whole logs without the `job| ` marks of many-source examples.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from diagnose.models.flow import SourceKind
from diagnose.models.rule import DiagnosisRule
from diagnose.rules.lint.base import Rule

_MARK = re.compile(r"(job|kernel|scheduler|launcher|dump)\| ?")


def split_sources(log: str, source: SourceKind | None) -> list[tuple[SourceKind, str]]:
    """An example's lines, each with the kind of its source; a trailing line end adds no line."""
    found: list[tuple[SourceKind, str]] = []
    for line in log.removesuffix("\n").split("\n"):
        mark = None if source else _MARK.match(line)
        if mark:
            found.append((mark[1], line[mark.end() :]))  # type: ignore[arg-type] # the pattern lists the kinds
        else:
            found.append((source or "job", line))
    return found


def whole_texts(log: str, source: SourceKind | None) -> dict[SourceKind, str]:
    """An example's text by kind of source."""
    texts: dict[SourceKind, list[str]] = {}
    for kind, line in split_sources(log, source):
        texts.setdefault(kind, []).append(line)
    return {kind: "\n".join(lines) for kind, lines in texts.items()}


def example_texts(rule: Rule) -> Iterator[str]:
    """Every text that a rule must match: lines and whole logs of positive examples, or noise lines."""
    if not isinstance(rule, DiagnosisRule):
        yield from rule.examples.noise
        return
    for example in rule.examples.positive:
        lines = split_sources(example.log, example.source)
        yield from (line for _, line in lines)
        if len(lines) > 1:
            yield from whole_texts(example.log, example.source).values()
