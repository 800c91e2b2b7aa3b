"""Checks of a diagnosis rule's examples, run through the engine.

In: rules. Out: problems `signature-example`, `signature-captures`, `positive-example`, `negative-example`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from diagnose.errors import Problem
from diagnose.models.flow import SourceKind
from diagnose.models.report import Scalar
from diagnose.models.rule import DiagnosisRule, NegativeExample, PositiveExample
from diagnose.rules.captures import typed
from diagnose.rules.lint.base import Check, Rule
from diagnose.rules.lint.engines import compiled
from diagnose.rules.lint.runner import NOTHING, keywords_of, runnable
from diagnose.rules.lint.texts import split_sources, whole_texts


class SignaturesShown(Check):
    """Every signature is matched by a positive example that says which lines it finds.

    A signature of `unless` speaks against the rule: a negative example shows it.
    """

    name = "signature-example"

    def validate(self, rule: Rule) -> Iterator[Problem]:
        if isinstance(rule, DiagnosisRule):
            for name in rule.signatures:
                if _only_against(rule, name):
                    if not any(_matches(rule, name, example) for example in rule.examples.negative):
                        message = "no negative example shows this signature, which speaks against the rule"
                        yield self.problem(rule, f"signatures.{name}", message)
                    continue
                shown = [example for example in rule.examples.positive if _matches(rule, name, example)]
                if not any(example.expect.lines for example in shown):
                    message = "no positive example shows this signature with its lines"
                    yield self.problem(rule, f"signatures.{name}", message)


class CapturesShown(Check):
    """A signature that captures something has an example that says what."""

    name = "signature-captures"

    def validate(self, rule: Rule) -> Iterator[Problem]:
        if not isinstance(rule, DiagnosisRule):
            return
        for name, signature in rule.signatures.items():
            found = compiled(signature.pattern)
            if isinstance(found, str) or not found.groupindex:
                continue
            shown = [example for example in rule.examples.positive if _matches(rule, name, example)]
            if shown and not any(set(found.groupindex) & set(example.expect.captures) for example in shown):
                message = f"no example states what it captures ({', '.join(found.groupindex)})"
                yield self.problem(rule, f"signatures.{name}", message)


class PositivesMatch(Check):
    """Each positive example is found at exactly its lines, with at least its captures."""

    name = "positive-example"

    def validate(self, rule: Rule) -> Iterator[Problem]:
        if not isinstance(rule, DiagnosisRule) or not runnable(rule, self.context.rule_set):
            return
        if not rule.examples.positive:
            yield self.problem(rule, "examples.positive", "needs at least one positive example")
        for index, example in enumerate(rule.examples.positive):
            where = f"examples.positive[{index}]"
            result = self.context.runs.run(example.log, example.source).get(rule.id, NOTHING)
            if not result.matched:
                yield self.problem(rule, f"{where}.log", _why_not(rule, example.log, example.source))
                continue
            if tuple(sorted(result.lines)) != tuple(sorted(example.expect.lines)):
                message = f"matches at lines {list(result.lines)}, not {list(example.expect.lines)}"
                yield self.problem(rule, f"{where}.expect.lines", message)
            for name, wanted in example.expect.captures.items():
                got = result.captures.get(name)
                if not same_value(name, got, wanted, rule):
                    message = f"is {got!r}, not {wanted!r}" if name in result.captures else "is not captured"
                    yield self.problem(rule, f"{where}.expect.captures.{name}", message)


class NegativesDoNotMatch(Check):
    """There is a negative example with its reason, and none of them matches."""

    name = "negative-example"

    def validate(self, rule: Rule) -> Iterator[Problem]:
        if not isinstance(rule, DiagnosisRule) or not runnable(rule, self.context.rule_set):
            return
        if not rule.examples.negative:
            yield self.problem(
                rule, "examples.negative", "needs at least one negative example: what looks like it and is not"
            )
        for index, example in enumerate(rule.examples.negative):
            where = f"examples.negative[{index}]"
            if not example.why.strip():
                yield self.problem(rule, f"{where}.why", "says nothing; say why one might take it for a match")
            result = self.context.runs.run(example.log, example.source).get(rule.id, NOTHING)
            if result.matched:
                yield self.problem(rule, f"{where}.log", f"the rule matches it at lines {list(result.lines)}")


def _why_not(rule: DiagnosisRule, log: str, source: SourceKind | None) -> str:
    """That a rule does not match an example, and the likeliest reason."""
    kinds = list(dict.fromkeys(kind for kind, _ in split_sources(log, source)))
    if not set(kinds) & set(rule.sources):
        return (
            f"the rule does not match this example: its lines are of {' and '.join(kinds)}, and the rule has sources:"
            f" [{', '.join(rule.sources)}]; add {kinds[0]} to sources, or correct the example's source"
        )
    if not any(word in log for word in keywords_of(rule)):
        return "the rule does not match this example: it holds none of the keywords; mend keywords or the example"
    return "the rule does not match this example: compare pattern, match and captures with its lines"


def same_value(name: str, got: object, wanted: Scalar, rule: DiagnosisRule) -> bool:
    """Whether a captured value is the expected one, once both are read as the capture's type."""
    if isinstance(got, tuple):
        return any(same_value(name, part, wanted, rule) for part in got)
    if got == wanted and type(got) is type(wanted):
        return True
    if got is None:
        return False
    kind = rule.captures.get(name)
    return typed(name, str(got), kind) == typed(name, str(wanted), kind) or str(got) == str(wanted)


def _only_against(rule: DiagnosisRule, name: str) -> bool:
    """Whether a signature stands in `unless` and nowhere else."""
    return name in rule.match.unless and name not in (*rule.match.any, *rule.match.all, *rule.match.sequence)


def _matches(rule: DiagnosisRule, name: str, example: PositiveExample | NegativeExample) -> bool:
    """Whether a signature is found in an example: in a line, or in all that one source says."""
    signature = rule.signatures[name]
    pattern = compiled(signature.pattern)
    if isinstance(pattern, str):
        return True
    texts: list[str] = [line for _, line in split_sources(example.log, example.source)]
    whole: Mapping[object, str] = whole_texts(example.log, example.source)  # type: ignore[assignment]
    texts += whole.values()
    return any(any(word in text for word in signature.keywords) and pattern.search(text, timeout=1) for text in texts)
