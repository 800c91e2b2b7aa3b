"""The lines of a failure that are worth a model's reading, within a budget of tokens.

In: what was held of a run, its report, a budget. Out: an `Excerpt`: lines in order, numbered, each with why it is
there. Chosen by salience: what findings rest on and their surroundings, the first error of each writer, what scheduler
and kernel say, what came once rather than often and never in a healthy run, the end. Nothing is redacted here.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Final

from diagnose.agents.allowance import tokens_of
from diagnose.agents.held import Held, Holder, cut, template_of
from diagnose.dataclass import dataclass
from diagnose.models import Evidence, Finding, Line, LogSource, Report

# What an incident is remembered by and looked up with: the same of both, or they would differ by their length.
REMEMBERED_TOKENS: Final = 2_000
_LINE_TOKENS = 14  # number, name and writer beside the text
_FINDINGS = 40
_AROUND = 4
_LAST = 15
_TEXT_LINES = 60
_TEXT_CHARS = 6_000
_ROLES: Final[Mapping[str, int]] = {"cause": 100, "symptom": 70, "teardown": 40}
_KINDS: Final[Mapping[str, int]] = {"scheduler": 45, "kernel": 12, "launcher": 20}


@dataclass(frozen=True, slots=True)
class ExcerptLine:
    """One line as a model sees it; `id` is what it cites, `alike` how many more of its kind were left out."""

    id: int
    line: Line
    why: str
    alike: int = 0
    order: int = 0
    alarming: bool = False

    @property
    def source(self) -> str:
        """The name of the source it stands in."""
        return self.line.source.name


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The lines shown, in order; how many lines were kept at hand and how many were read."""

    lines: tuple[ExcerptLine, ...] = ()
    held: int = 0
    seen: int = 0

    @property
    def text(self) -> str:
        """The lines' texts, one a line."""
        return "\n".join(each.line.text for each in self.lines)


class Gatherer:
    """Gathers what one run reads; cheap, since most runs are decided by rules and never ask."""

    def __init__(self, healthy: Container[str] = frozenset()) -> None:
        self._healthy = healthy
        self.holder = Holder()
        self.observe = self.holder.observe

    def excerpt(self, report: Report, tokens: int) -> Excerpt:
        """The most telling lines that fit the budget."""
        scored = _Scores(self.holder, self._healthy)
        scored.findings(report)
        scored.sources()
        return scored.chosen(tokens)


def deciding_text(report: Report, excerpt: Excerpt) -> str:
    """The lines on which a report rests, and the most telling ones beside them: what an incident is remembered by."""
    texts: list[str] = []
    for evidence in report.root_cause.evidence if report.root_cause else ():
        texts.extend((*evidence.before, evidence.text, *evidence.after))
    texts.extend(each.line.text for each in excerpt.lines if each.why != "the beginning")
    return "\n".join(dict.fromkeys(texts[:_TEXT_LINES]))[:_TEXT_CHARS]


class _Scores:
    def __init__(self, holder: Holder, healthy: Container[str]) -> None:
        self._holder = holder
        self._healthy = healthy
        self._by_source = {name: source.lines() for name, source in holder.sources.items()}
        self._places: dict[str, dict[int, int]] = {}
        self._scores: dict[tuple[str, int], float] = {}
        self._why: dict[tuple[str, int], str] = {}
        self._lines: dict[tuple[str, int], Held] = {}

    def findings(self, report: Report) -> None:
        """What the rules found, and around it."""
        set_aside = [each.finding for each in report.explanation.excluded]
        for finding in report.explanation.findings[:_FINDINGS]:
            self._finding(finding, _ROLES.get(finding.role, 40))
        for finding in set_aside[:_FINDINGS]:
            self._finding(finding, 45)
        for evidence in report.root_cause.evidence if report.root_cause else ():
            self._evidence(evidence, 90, "the report's cause")

    def _finding(self, finding: Finding, score: float) -> None:
        for number, evidence in enumerate(finding.evidence[:3]):
            self._evidence(evidence, score - 12 * number, f"finding {finding.id}")

    def _evidence(self, evidence: Evidence, score: float, why: str) -> None:
        lines = self._by_source.get(evidence.source, [])
        if evidence.source not in self._places:
            self._places[evidence.source] = {each.line.number: index for index, each in reversed([*enumerate(lines)])}
        at = self._places[evidence.source].get(evidence.line or 0)
        if at is None:
            self._add(_as_held(evidence), score, why)
            return
        for index in range(max(0, at - _AROUND), min(len(lines), at + _AROUND + 1)):
            distance = abs(index - at)
            self._add(lines[index], score - (10 + 4 * distance if distance else 0), why if not distance else "around")

    def sources(self) -> None:
        """What each source says for itself."""
        first = {name: self._first_alarm(lines) for name, lines in self._by_source.items()}
        times = [(alarm.line.time or 0.0, name) for name, alarm in first.items() if alarm]
        earliest = {name for _, name in sorted(times)[:8]}
        for name, lines in self._by_source.items():
            if not lines:
                continue
            base = _KINDS.get(lines[0].line.source.kind, 0)
            alarms: dict[str, int] = {}
            after = 0
            for index, each in enumerate(lines):
                score = float(base)
                why: str = lines[0].line.source.kind if base else ""
                if self._alarms(each):
                    stream = each.line.stream
                    alarms[stream] = before = alarms.get(stream, 0) + 1
                    score = 75.0 if base > 12 else 35.0
                    why = why or "sounds like an error"
                    if before == 1:
                        score, why = (80.0 if name in earliest else 60.0), "first error of its writer"
                    elif before <= 4:
                        score += 12
                    after = 6
                elif after:
                    after -= 1
                    score = max(score, 30.0)
                    why = why or "after an error"
                from_end = len(lines) - index
                if from_end <= _LAST and (tail := 48.0 - 2 * from_end) > score:
                    score, why = tail, "the end"
                if index < 3 and score < 10:
                    score, why = 10.0, "the beginning"
                self._add(each, score + self._novelty(each), why or "context")

    def _first_alarm(self, lines: Iterable[Held]) -> Held | None:
        return next((each for each in lines if self._alarms(each)), None)

    def _alarms(self, held: Held) -> bool:
        """Whether a line sounds like an error, and good runs do not print it."""
        return held.alarming and template_of(held.line.body) not in self._healthy

    def _novelty(self, held: Held) -> float:
        often = self._holder.alike(held.line)
        score = 8.0 if often == 1 else -15.0 if often > 20 else 0.0
        return score - 30.0 if template_of(held.line.body) in self._healthy else score

    def _add(self, held: Held, score: float, why: str) -> None:
        key = (held.line.source.name, held.order)
        if score > self._scores.get(key, float("-inf")):
            self._scores[key] = score
            self._why[key] = why
            self._lines[key] = held

    def chosen(self, tokens: int) -> Excerpt:
        """The best that fit; of lines that are alike only the first few."""
        given: dict[str, int] = {}
        taken: dict[tuple[str, int], Held] = {}
        left = tokens
        ranked = sorted(self._scores, key=lambda key: (-self._scores[key], key[1], key[0]))
        late: list[tuple[str, int]] = []
        for key in ranked:
            held = self._lines[key]
            template = template_of(held.line.body)
            given[template] = given.get(template, 0) + 1
            if given[template] > 2 and self._scores[key] < 90:
                late.append(key)
                continue
            left = self._take(taken, key, held, left)
        for key in late:  # where there is room after all
            left = self._take(taken, key, self._lines[key], left)
        sources = {name: index for index, name in enumerate(self._holder.sources)}
        order = sorted(taken, key=lambda key: (sources.get(key[0], len(sources)), key[1]))
        shown: dict[str, int] = {}
        for key in order:
            template = template_of(taken[key].line.body)
            shown[template] = shown.get(template, 0) + 1
        lines = []
        for number, key in enumerate(order, 1):
            held = taken[key]
            template = template_of(held.line.body)
            more = self._holder.templates.get(template, 0) - shown.pop(template, 10**9)
            lines.append(ExcerptLine(number, held.line, self._why[key], max(0, more), held.order, held.alarming))
        return Excerpt(tuple(lines), sum(map(len, self._by_source.values())), self._holder.seen)

    @staticmethod
    def _take(taken: dict[tuple[str, int], Held], key: tuple[str, int], held: Held, left: int) -> int:
        cost = tokens_of(held.line.text) + _LINE_TOKENS
        if cost > left:
            return left
        taken[key] = held
        return left - cost


def _as_held(evidence: Evidence) -> Held:
    """A line that is no longer at hand, as the finding has it."""
    line = Line(
        LogSource(evidence.source),
        evidence.line or 0,
        cut(evidence.text),
        cut(evidence.message or evidence.text),
        evidence.source,
        rank=evidence.rank,
        host=evidence.host,
        gpu=evidence.gpu,
    )
    return Held(line, (evidence.line or 0) - 10**9, alarming=True)
