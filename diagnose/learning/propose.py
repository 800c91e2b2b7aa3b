"""From a confirmed failure to a rule that could be reviewed, or to the reasons why none can be written.

In: a `Case`, a `Trial`, whom to ask for a rule beside the code that writes one. Out: a `Proposal`. Drafts are made from
the deciding lines, in wordings from loose to exact, and mended by what stands against them: rules that match the same
text become `related`, findings that stood beside in the incident become what the rule explains. The first draft against
which nothing is left is proposed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, Protocol

import regex

from diagnose.dataclass import dataclass, replace
from diagnose.errors import Problem, UsageError
from diagnose.learning.case import Case, CaseLine
from diagnose.learning.corpus import known_of
from diagnose.learning.draft import WORDINGS, Shape, draft
from diagnose.learning.trial import Trial, edges, strangers
from diagnose.learning.writing import rule_text
from diagnose.models.report import Report
from diagnose.models.rule import DiagnosisRule, NegativeExample
from diagnose.rules.abstract import invented

_MENDINGS: Final = 4
_RELATED: Final = 4
_PATIENCE: Final = 0.25  # seconds that a pattern may take on a line of the corpus


@dataclass(frozen=True, slots=True)
class Proposal:
    """A rule for one case, or why there is none. `path` is relative to a rules directory; `notes` are for reviewers."""

    case: Case
    rule: DiagnosisRule | None = None
    text: str = ""
    path: str = ""
    notes: tuple[str, ...] = ()
    why_not: tuple[str, ...] = ()


class Author(Protocol):
    """Who writes drafts: the code itself, or a model."""

    def drafts(self, case: Case, told: Sequence[str]) -> Iterator[DiagnosisRule]:
        """Drafts to try, the best first; `told` is what stood against the last one."""
        ...


def propose(
    case: Case,
    trial: Trial,
    *,
    redact: Callable[[str], str],
    author: Author | None = None,
    taken: Sequence[str] = (),
) -> Proposal:
    """The rule to propose. A model's rule is preferred; what it cannot do, code may."""
    rule_set = trial.rule_set
    report = trial.report(case, None)
    known = known_of(report)
    if known.error_type == case.error_type and known.rule:
        return Proposal(case, why_not=(f"the rule {known.rule} decides it already as {case.error_type}",))
    if shadow := trial.shadows(case):
        return Proposal(case, why_not=(f"{shadow} finds it already, in shadow; review and promote that rule",))
    case = replace(case, deciding=_unspoken(case, report))
    against: list[str] = []
    if author is not None:
        told: list[str] = []
        for _ in range(_MENDINGS):
            proposed = None
            for rule in author.drafts(case, told):
                proposed, told = _mended(case, rule, trial)
                if proposed is not None:
                    return proposed
            if proposed is None and not told:
                break
        against += [f"the model's rule: {text}" for text in told[:3]]
    names = {*(rule.id for rule in rule_set.rules), *taken}
    for index in case.deciding:
        line = case.lines[index]
        for wording in WORDINGS:
            rule_ = draft(
                case,
                line,
                wording,
                rule_set,
                redact=redact,
                negatives=partial(_negatives, case, line, trial, redact),
                taken=names,
            )
            if rule_ is None:
                against.append(f"{line.source}:{line.number} holds no words that a rule could look for")
                break
            proposed, told = _mended(case, rule_, trial)
            if proposed is not None:
                return proposed
            against += [f"{line.source}:{line.number}: {text}" for text in told[:2]]
    return Proposal(case, why_not=tuple(dict.fromkeys(against)))


def _unspoken(case: Case, report: Report) -> tuple[int, ...]:
    """The deciding lines, those that other findings rest on last: what they say is known, and it is not the cause."""
    if case.named:
        return case.deciding
    known = {evidence.text.strip() for finding in report.explanation.findings for evidence in finding.evidence}
    return tuple(sorted(case.deciding, key=lambda index: case.lines[index].text.strip() in known))


def _mended(case: Case, rule: DiagnosisRule, trial: Trial) -> tuple[Proposal | None, list[str]]:
    """A draft brought to where nothing stands against it; else what does."""
    family = trial.rule_set.taxonomy[rule.error_type].family
    path = f"diagnoses/{family}/{rule.id}.yml"
    notes: list[str] = []
    problems: tuple[Problem, ...] = ()
    for _ in range(_MENDINGS):
        try:
            text = rule_text(rule)
        except UsageError as error:
            return None, [str(error)]
        problems = trial.problems(rule, path)
        if not problems:
            break
        others = [name for name in strangers(problems) if name not in rule.related]
        if not others or len(rule.related) + len(others) > _RELATED or len(others) < len(problems):
            return None, [f"{problem.message} [{problem.check}]" for problem in problems]
        rule = replace(rule, related=tuple(sorted((*rule.related, *others))))
        notes.append(f"shares text with {', '.join(others)}")
    if problems:
        return None, [f"{problem.message} [{problem.check}]" for problem in problems]
    known, beside = trial.own_verdict(case, rule)
    if known.error_type != case.error_type:
        more = edges(beside, rule, family)
        if more:
            rule = replace(rule, explains=tuple({edge.what: edge for edge in (*rule.explains, *more)}.values()))
            known, _ = trial.own_verdict(case, rule)
            notes.append("explains what stood beside it: " + ", ".join(edge.what for edge in more))
    if known.error_type != case.error_type:
        got = known.error_type or "nothing"
        return None, [f"with this rule at work the incident's verdict is {got}, not {case.error_type}"]
    problems = (
        (*trial.problems(rule, path), *trial.verdict_changes(rule, path))
        if notes
        else trial.verdict_changes(rule, path)
    )
    if problems:
        return None, [f"{problem.message} [{problem.check}]" for problem in problems]
    text = rule_text(rule)
    return Proposal(case, rule, text, path, tuple(notes)), []


def _negatives(
    case: Case, line: CaseLine, trial: Trial, redact: Callable[[str], str], shape: Shape
) -> tuple[NegativeExample, ...]:
    return negatives_of(case, line, shape.pattern, shape.keywords[0], trial, redact)


def negatives_of(
    case: Case, line: CaseLine, wording: str, keyword: str, trial: Trial, redact: Callable[[str], str]
) -> tuple[NegativeExample, ...]:
    """What reads like the line and is not it: lines of other jobs, and the line without the words that matter."""
    pattern = regex.compile(wording, regex.ASCII)

    def matches(text: str) -> bool:
        try:
            return pattern.search(text, timeout=_PATIENCE) is not None
        except TimeoutError:
            return True

    found = list(trial.corpus.negatives(line.body, matches, trial.secrets, but=case.folder))
    return (*found, *near_misses(invented(redact(line.body)), keyword, matches))


def near_misses(body: str, keyword: str, matches: Callable[[str], bool]) -> Iterator[NegativeExample]:
    """The line itself, broken off within the words that the rule looks for."""
    start = body.find(keyword)
    half = keyword[: len(keyword) // 2].rpartition(" ")[0] or keyword[: len(keyword) // 2]
    text = f"{body[: max(0, start)]}{half}".strip()
    if text and not matches(text):
        yield NegativeExample("It breaks off before it says what failed", f"{text}\n", "job")
