"""Runs all checks over a rule set.

In: directories or a rule set. Out: problems in order of file and line.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from diagnose.errors import Problem
from diagnose.models.rule import RuleSet
from diagnose.rules.lint.base import Check, Context
from diagnose.rules.lint.checkout import read_fixtures, read_incidents
from diagnose.rules.lint.cross import NoUnknownOverlap
from diagnose.rules.lint.edges import CyclesDirected, EdgesKnown, NothingExplainsItself, SymptomsExplained
from diagnose.rules.lint.examples import CapturesShown, NegativesDoNotMatch, PositivesMatch, SignaturesShown
from diagnose.rules.lint.filters import (
    ActionFits,
    HidesNothing,
    NoContinuations,
    NoiseMatches,
    NoParticularDigits,
    PrefixFirst,
    SignalPasses,
)
from diagnose.rules.lint.history import ModifiedIsKept
from diagnose.rules.lint.identity import (
    DatesMakeSense,
    FolderFits,
    IdIsStem,
    IdNeverReused,
    NothingLeftToFillIn,
    ReferencesGiven,
    RelatedKnown,
    TagsKnown,
)
from diagnose.rules.lint.incidents import Judge, VerdictsKept
from diagnose.rules.lint.keywords import KeywordsLongEnough, KeywordsNeeded
from diagnose.rules.lint.noise import KeywordsRare, SilentOnHealthyLogs
from diagnose.rules.lint.patterns import NamesExist, PatternCompiles, PatternIsSafe, PatternMatchesSomething
from diagnose.rules.lint.redactions import (
    RedactionExamplesHold,
    RedactionIdIsStem,
    RedactionIsFast,
    RedactionPatternIsSafe,
)
from diagnose.rules.lint.secrets import NothingPrivate
from diagnose.rules.lint.sentences import SentencesReadWell, ValuesKnown
from diagnose.rules.lint.timing import FastOnHostileLines
from diagnose.rules.load import read_rules
from diagnose.rules.tree import shipped_rules, shown

CHECKS: Final[tuple[type[Check], ...]] = (
    IdIsStem,
    IdNeverReused,
    TagsKnown,
    FolderFits,
    ReferencesGiven,
    DatesMakeSense,
    RelatedKnown,
    NothingLeftToFillIn,
    PatternCompiles,
    PatternIsSafe,
    PatternMatchesSomething,
    NamesExist,
    ValuesKnown,
    SentencesReadWell,
    KeywordsLongEnough,
    KeywordsNeeded,
    SignaturesShown,
    CapturesShown,
    PositivesMatch,
    NegativesDoNotMatch,
    FastOnHostileLines,
    EdgesKnown,
    SymptomsExplained,
    NothingExplainsItself,
    CyclesDirected,
    NoUnknownOverlap,
    NoParticularDigits,
    PrefixFirst,
    NoContinuations,
    NoiseMatches,
    SignalPasses,
    ActionFits,
    HidesNothing,
    SilentOnHealthyLogs,
    KeywordsRare,
    NothingPrivate,
    RedactionIdIsStem,
    RedactionPatternIsSafe,
    RedactionExamplesHold,
    RedactionIsFast,
    ModifiedIsKept,
    VerdictsKept,
)

EXAMPLE_CHECKS: Final[tuple[type[Check], ...]] = (
    PositivesMatch,
    NegativesDoNotMatch,
    NoiseMatches,
    SignalPasses,
)


def lint_rules(context: Context, checks: Sequence[type[Check]] = CHECKS) -> list[Problem]:
    """Run checks over the rules asked about, in the company of all others."""
    found: list[Problem] = []
    for kind in checks:
        check = kind(context)
        for rule in context.rules:
            if context.asked(rule):
                found += check.validate(rule)
        found += check.finalize()
    return found


def lint(
    dirs: Sequence[str] = (), *, shipped: str | None = None, fixtures: str | None = None, judge: Judge | None = None
) -> list[Problem]:
    """Lint the shipped rules and site directories together; problems in order of file and line."""
    root = shipped or shipped_rules()
    rule_set, problems = read_rules(dirs, shipped=root)
    context = context_of(rule_set, (root, *dirs), fixtures=fixtures, judge=judge)
    return _ordered([*problems, *lint_rules(context)])


def lint_paths(paths: Sequence[str], *, judge: Judge | None = None) -> list[Problem]:
    """Lint files or directories: those below the shipped rules in place, others as site directories.

    Without paths all shipped rules are linted, and where there are fixtures `judge` diagnoses each incident. Only
    problems of the given files are returned.
    """
    root = os.path.realpath(shipped_rules())
    own = [os.path.realpath(path) for path in paths] or [root]
    outside = [path for path in own if not _below(path, root)]
    dirs = list(dict.fromkeys(path if os.path.isdir(path) else os.path.dirname(path) for path in outside))
    rule_set, problems = read_rules(dirs)
    chosen = frozenset(
        name for name, path in rule_set.paths.items() if any(_below(os.path.realpath(path), given) for given in own)
    )
    context = replace(context_of(rule_set, (root, *dirs), judge=None if paths else judge), chosen=chosen)
    found = _ordered([*problems, *lint_rules(context)])
    return [problem for problem in found if any(_below(place, given) for place in _places(problem) for given in own)]


def _places(problem: Problem) -> tuple[str, str]:
    """Where a file lies, and where it leads to: one that leads out of its directory is a problem there."""
    folder, name = os.path.split(problem.path)
    return os.path.realpath(problem.path), os.path.join(os.path.realpath(folder), name)


def _below(path: str, root: str) -> bool:
    """Whether a path is another or lies below it."""
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


def context_of(
    rule_set: RuleSet, roots: Sequence[str], *, fixtures: str | None = None, judge: Judge | None = None
) -> Context:
    """A rule set with what lies beside it: retired ids, and in a checkout the fixtures (`tests/fixtures`)."""
    deprecated: dict[str, str] = {}
    for root in roots:
        for path in log_names(os.path.join(root, "deprecated")):
            deprecated[os.path.basename(path).removesuffix(".yml")] = shown(path)
    beside = fixtures or fixtures_beside(roots[0])
    found = read_fixtures(beside)
    return Context(
        rule_set,
        deprecated=deprecated,
        healthy=found.healthy,
        evidence=found.evidence,
        noise=found.noise or {},
        roots=tuple(roots),
        incidents=read_incidents(beside) if judge else (),
        judge=judge,
    )


def fixtures_beside(root: str) -> str:
    """Where the fixtures of the checkout are that holds this rules directory."""
    return os.path.join(os.path.dirname(os.path.abspath(root)), "tests", "fixtures")


def log_names(folder: str) -> list[str]:
    """The rule files below a directory."""
    return [
        os.path.join(where, name)
        for where, _, names in os.walk(folder)
        for name in sorted(names)
        if name.endswith(".yml")
    ]


def _ordered(problems: Sequence[Problem]) -> list[Problem]:
    return sorted(dict.fromkeys(problems), key=lambda problem: (problem.path, problem.line or 0, problem.check))
