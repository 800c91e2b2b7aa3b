"""Checks of what a rule says: every value in it is known, and it reads well whatever is left out.

In: rules. Out: problems `placeholder`, `sentence`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from diagnose.errors import Problem
from diagnose.models.rule import CaptureType, DiagnosisRule
from diagnose.rules.lint.base import Check, Rule, signatures
from diagnose.rules.lint.engines import compiled
from diagnose.rules.lint.patterns import GIVEN
from diagnose.rules.prove import parse
from diagnose.rules.sentences import balanced, required, variants

Kind = Literal["cause", "hint", "check"]

_VALUE = "Value"  # stands for any value; like one, it may begin a sentence
_EMPTY_QUOTES = re.compile(r"(?:^|[\s(])(?:''|\"\"|``|\(\)|\[\])(?:[\s).,;:]|$)")
_BLANK_BEFORE = re.compile(r" [,;:!?)]|\( | \.(?:\s|$)")
# Of a whole (`3 of {expected} ranks`) there are several.
_COUNTED = re.compile(r"(?<!of )\{(\w+(?:\|\w+){0,7})\} ([a-z]{3,20}s)\b")
_SEVERAL_DO = re.compile(
    r"\b(?:rank|task|gpu|host|node|peer)s (\{[\w|]+)\}(?:(?:\|[^\[\]]*)?\])? (are|were|have|do)\b", re.IGNORECASE
)
_STOP_IN_STOP = re.compile(r"[.,;:]{2}(?!\.)")


class ValuesKnown(Check):
    """What stands outside brackets is captured by whatever can start the rule."""

    name = "placeholder"

    def validate(self, rule: Rule) -> Iterator[Problem]:
        if not isinstance(rule, DiagnosisRule):
            return
        found = [compiled(pattern) for _, _, pattern in signatures(rule)]
        if any(isinstance(pattern, str) for pattern in found):
            return  # what does not compile captures nothing; that is problem enough
        said = GIVEN | set(rule.collect)
        said |= {name for pattern in found if not isinstance(pattern, str) for name in pattern.groupindex}
        ways = list(always_known(rule))
        for where, _, text in _texts(rule):
            for names in required(text):
                if not set(names) <= said:
                    continue  # `captures` says so
                lacking = [way for way, known in ways if not known & set(names)]
                if lacking:
                    field = "{" + "|".join(names) + "}"
                    yield self.problem(
                        rule,
                        where,
                        f"{field} is not known whenever {lacking[0]} matches; put the words around it in brackets, "
                        f"as in `died[ on {field}]`",
                    )


class SentencesReadWell(Check):
    """A sentence is well-formed with every optional part and without."""

    name = "sentence"

    def validate(self, rule: Rule) -> Iterator[Problem]:
        if not isinstance(rule, DiagnosisRule):
            return
        for where, kind, text in _texts(rule):
            found = next(((said, fault) for said in variants(text, _VALUE) if (fault := faulty(said, kind))), None)
            if found:
                yield self.problem(rule, where, f"{found[1]}, in {found[0]!r}")
            for form, wanted in unagreed(text, rule.captures):
                yield self.problem(rule, where, f"{form!r} is wrong where it is one; write {wanted!r}")

    def finalize(self) -> Iterator[Problem]:
        for row in self.context.rule_set.policy:
            if row.hint and (fault := faulty(row.hint, "hint")):
                yield self.problem(f"policy/{row.id}", "rules", f"the hint of {row.id} {fault}, in {row.hint!r}")


def unagreed(text: str, kinds: Mapping[str, CaptureType]) -> Iterator[tuple[str, str]]:
    """Words that stand in the plural whatever the value beside them is, and how to write them."""
    for found in _COUNTED.finditer(text):
        if any(kinds.get(name) == "int" for name in found[1].split("|")):
            one = found[2][: -2 if found[2].endswith("sses") else -1]
            yield found[0], f"{{{found[1]}}} {{{found[1]}#{one}|{found[2]}}}"
    for found in _SEVERAL_DO.finditer(text):
        one = {"are": "is", "were": "was", "have": "has", "do": "does"}[found[2]]
        yield found[0], f"{found[1]}#{one}|{found[2]}}}"


def _texts(rule: DiagnosisRule) -> Iterator[tuple[str, Kind, str]]:
    yield "verdict.cause", "cause", rule.verdict.cause
    yield "verdict.hint", "hint", rule.verdict.hint
    for index, check in enumerate(rule.verdict.checks):
        yield f"verdict.checks[{index}]", "check", check


def faulty(text: str, kind: Kind) -> str | None:
    """What is wrong with a filled sentence, in words; None for a good one."""
    if kind == "check" and not text:
        return None  # a check of which nothing is known is not shown
    if not text.strip():
        return "says nothing when nothing is known"
    if text != text.strip():
        return "begins or ends with a blank"
    return _marks(text, kind) or _ends(text, kind)


def _marks(text: str, kind: Kind) -> str | None:
    if "  " in text:
        return "has two blanks in a row"
    if not balanced(text) or text.count('"') % 2 or text.count("`") % 2:
        return "has a bracket or quote without its other half"
    if _EMPTY_QUOTES.search(text):
        return "has empty quotes or brackets"
    if kind != "check" and _BLANK_BEFORE.search(text):
        return "has a blank on the wrong side of a mark"
    if kind != "check" and _STOP_IN_STOP.search(text):
        return "has two marks in a row"
    return None


def _ends(text: str, kind: Kind) -> str | None:
    if kind != "check" and text[0].islower():
        return "does not begin with a capital letter"
    if kind == "hint" and not text.endswith((".", "?")):
        return "does not end with a full stop"
    if text[-1] in (",;:" if kind == "check" else ".,;:") and kind != "hint":
        return f"ends with {text[-1]!r}"
    return None


def always_known(rule: DiagnosisRule) -> Iterator[tuple[str, frozenset[str]]]:
    """Each way in which the rule starts, in words, with the names that are then known."""
    match = rule.match
    captured = {name: always_captured(signature.pattern) for name, signature in rule.signatures.items()}
    if match.any:
        ways = [(f"`{name}`", captured[name]) for name in match.any if name in captured]
    else:
        names = [name for name in (*match.all, *match.sequence) if name in captured]
        ways = [("the rule", frozenset().union(*(captured[name] for name in names)))] if names else []
    for way, known in ways:
        yield way, known | {name for name, source in rule.collect.items() if source in known}


def always_captured(pattern: str) -> frozenset[str]:
    """The groups that take part in every match of a pattern, and take at least one character."""
    tree = parse(pattern)
    if tree is None:
        return frozenset()
    names = {number: name for name, number in tree.state.groupdict.items()}
    return frozenset(names[number] for number in _groups(list(tree)) if number in names)


def _groups(items: list[Any]) -> set[int]:
    found: set[int] = set()
    for item in items:
        kind, value = str(item[0]), item[1]
        if kind == "SUBPATTERN":
            found |= _groups(list(value[3]))
            if value[0] is not None and value[3].getwidth()[0] > 0:
                found.add(value[0])
        elif kind == "BRANCH":
            found |= set.intersection(*(_groups(list(branch)) for branch in value[1]))
        elif kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") and value[0] > 0:
            found |= _groups(list(value[2]))
        elif kind == "ATOMIC_GROUP":
            found |= _groups(list(value))
    return found
