"""Checks of keywords: long enough to be worth a look, and in every text that the pattern matches.

In: rules. Out: problems `keyword-length`, `keyword-proof`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from diagnose.errors import Problem
from diagnose.models.rule import DiagnosisRule
from diagnose.rules.lint.base import Check, Rule, place, signatures
from diagnose.rules.lint.engines import compiled
from diagnose.rules.lint.texts import example_texts
from diagnose.rules.prove import counter_example, proves

SHORTEST: Final = 5


class KeywordsLongEnough(Check):
    """Keywords have 5 characters or more, and not digits alone; others stand in too many lines."""

    name = "keyword-length"

    def validate(self, rule: Rule) -> Iterator[Problem]:
        for where, keywords, _ in signatures(rule):
            if not keywords:
                yield self.problem(rule, place(where, "keywords"), "needs at least one keyword")
            for index, keyword in enumerate(keywords):
                if len(keyword) < SHORTEST:
                    message = f"{keyword!r} is shorter than {SHORTEST} characters"
                    yield self.problem(rule, f"{place(where, 'keywords')}[{index}]", message)
                elif keyword.isdigit():
                    message = f"{keyword!r} is nothing but digits, as any number is: add what stands beside it"
                    yield self.problem(rule, f"{place(where, 'keywords')}[{index}]", message)


class KeywordsNeeded(Check):
    """A pattern matches no text without a keyword: proven from the pattern, else tested on its examples."""

    name = "keyword-proof"

    def validate(self, rule: Rule) -> Iterator[Problem]:
        for where, keywords, pattern in signatures(rule):
            found = compiled(pattern)
            if isinstance(found, str) or not keywords or found.search("") or proves(pattern, keywords):
                continue
            whole = not isinstance(rule, DiagnosisRule)
            sample = counter_example(pattern, keywords, whole=whole)
            if sample is not None:
                message = f"also matches {sample[:120]!r}, which holds no keyword: it would never be looked at"
                yield self.problem(rule, place(where, "pattern"), message)
                continue
            for text in example_texts(rule):
                match = found.fullmatch(text, timeout=1) if whole else found.search(text, timeout=1)
                if match and not any(keyword in match.group() for keyword in keywords):
                    message = f"matches {match.group()[:120]!r} of its own examples, which holds no keyword"
                    yield self.problem(rule, place(where, "pattern"), message)
                    break
