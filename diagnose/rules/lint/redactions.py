"""Checks of redaction rules: what they hide in their examples, and that no pattern can hang.

In: a rule set. Out: problems `redaction`, `redaction-id`, `redaction-pattern`, `redaction-time`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Final

import regex

from diagnose.errors import Problem
from diagnose.models.rule import RedactionRule
from diagnose.rules.lint.base import Check
from diagnose.rules.lint.engines import compiled, re2_refuses
from diagnose.rules.lint.timing import best, hostile_lines
from diagnose.rules.prove import too_repetitive, unsafe_constructs
from diagnose.rules.redactions import Finder, flags_of, merged

# Joins the halves of an invented secret in an example, so that scanners of repositories do not take it for a real one.
JOINT: Final = "{+}"
_KEBAB = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*\Z")
_MOST_LINES: Final = 200
_SECONDS: Final = 0.05  # to find all matches: ten times what is allowed for a first one


class _RedactionCheck(Check):
    """Looks at each redaction rule that is asked about."""

    def finalize(self) -> Iterator[Problem]:
        chosen = self.context.chosen
        for rule in self.context.rule_set.redactions:
            if chosen is None or rule.id in chosen:
                yield from self.redaction(rule)

    def redaction(self, rule: RedactionRule) -> Iterator[Problem]:
        """Yield what is wrong with one of them."""
        yield from ()


class RedactionIdIsStem(_RedactionCheck):
    """The id is kebab case and the file's name without `.yml`, in the folder `redactions`."""

    name = "redaction-id"

    def redaction(self, rule: RedactionRule) -> Iterator[Problem]:
        folder, name = os.path.split(self.context.rule_set.paths.get(rule.id, f"redactions/{rule.id}.yml"))
        stem = name.removesuffix(".yml")
        if not _KEBAB.match(rule.id) or rule.id != stem:
            yield self.problem(rule.id, "id", f"{rule.id!r} is not the file's name {stem!r} in kebab case; rename one")
        if os.path.basename(folder) != "redactions":
            yield self.problem(rule.id, "schema", "a redaction rule belongs into the folder redactions/")


class RedactionPatternIsSafe(_RedactionCheck):
    """Every pattern compiles, is one that RE2 takes, and does not match the empty text."""

    name = "redaction-pattern"

    def redaction(self, rule: RedactionRule) -> Iterator[Problem]:
        if not 0 <= rule.lines <= _MOST_LINES:
            yield self.problem(rule.id, "lines", f"must be from 0 to {_MOST_LINES}")
        if reason := too_repetitive(rule.pattern):
            yield self.problem(rule.id, "pattern", reason)
            return
        found = compiled(rule.pattern)
        if isinstance(found, str):
            yield self.problem(rule.id, "pattern", f"does not compile: {found}")
        elif used := unsafe_constructs(rule.pattern):
            yield self.problem(rule.id, "pattern", f"uses {', '.join(used)}; not allowed, write it without")
        elif refused := re2_refuses(rule.pattern):
            yield self.problem(rule.id, "pattern", f"RE2 refuses it: {refused}")
        elif found.search(""):
            yield self.problem(rule.id, "pattern", "matches the empty text, and so everything")


class RedactionExamplesHold(_RedactionCheck):
    """Every positive example hides all that it names, and nothing is hidden in a negative one."""

    name = "redaction"

    def redaction(self, rule: RedactionRule) -> Iterator[Problem]:
        if isinstance(compiled(rule.pattern), str):
            return
        finder = Finder([rule])
        if not rule.examples.positive or not rule.examples.negative:
            yield self.problem(rule.id, "examples", "needs at least one positive and one negative example")
        for index, example in enumerate(rule.examples.positive):
            text, place = example.text.replace(JOINT, ""), f"examples.positive[{index}]"
            parts = [text[part.start : part.end] for part in merged(finder.find(text))]
            if not example.hidden:
                yield self.problem(rule.id, place, "names nothing that is to be hidden")
            for wanted in example.hidden:
                wanted = wanted.replace(JOINT, "")  # noqa: PLW2901
                if wanted not in text:
                    yield self.problem(rule.id, place, f"{wanted!r} does not stand in its text")
                elif not any(wanted in part for part in parts):
                    yield self.problem(rule.id, place, f"leaves {wanted!r} to be read; hides {parts or 'nothing'}")
        for index, other in enumerate(rule.examples.negative):
            text = other.text.replace(JOINT, "")
            if parts := [text[part.start : part.end] for part in merged(finder.find(text))]:
                yield self.problem(rule.id, f"examples.negative[{index}]", f"hides {parts[0]!r}, but {other.why}")


class RedactionIsFast(_RedactionCheck):
    """Each pattern finds all it hides on each hostile line within 50 ms of CPU time."""

    name = "redaction-time"

    def redaction(self, rule: RedactionRule) -> Iterator[Problem]:
        if isinstance(compiled(rule.pattern), str) or too_repetitive(rule.pattern):
            return
        pattern = regex.compile(rule.pattern, flags_of(rule))
        texts = [example.text.replace(JOINT, "") for example in rule.examples.positive]
        for kind, text in hostile_lines(pattern, rule.keywords, texts, whole=False):
            seconds = best(pattern, text, whole=False, every=True, limit=_SECONDS)
            if seconds > _SECONDS:
                message = (
                    f"takes {seconds * 1000:.0f} ms on a 64 KiB line of {kind}, more than {_SECONDS * 1000:.0f}; "
                    "bound the gaps (`[^\\n]{0,99}` in place of `.*`)"
                )
                yield self.problem(rule.id, "pattern", message)
                break
