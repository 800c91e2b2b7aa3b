"""The Failure Agent: asks a model what failed where no rule knows, and believes only what it can check.

In: an excerpt, the rules' report, similar incidents, a redactor. Out: a `Judgement`: a label of the closed list with
the lines that prove it, or the state that says why there is none. What to do about it is not asked of the model.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from diagnose.agents import tools
from diagnose.agents.allowance import Allowance
from diagnose.agents.answers import Schema
from diagnose.agents.checks import CANNOT_TELL, Checked, Claim, Shown, attribution_stands, check, set_aside, unharmful
from diagnose.agents.display import shown, without_numbers
from diagnose.agents.excerpt import Excerpt, ExcerptLine
from diagnose.agents.held import Holder
from diagnose.agents.model import ChatModel, Message, ModelAnswer
from diagnose.agents.prompts import Prompts
from diagnose.dataclass import dataclass, replace
from diagnose.models import Finding, Report, SimilarIncident
from diagnose.models.report import AgentState
from diagnose.models.rule import AttributionName, ErrorType

_READINGS = 2  # times that more may be read
_FINDINGS = 12
_SIMILAR = 5
_SOURCES = 12
_WARM = 0.7  # for votes: asked coldly, a model repeats itself


class Redacts(Protocol):
    """Hides what must not leave, and puts it back."""

    def redact(self, text: str) -> str:
        """The text with placeholders."""
        ...

    def restore(self, text: str) -> str:
        """The text as it was."""
        ...


@dataclass(frozen=True, slots=True)
class Case:
    """One failure to judge. `declined` says which lines the rules have read and passed over."""

    report: Report
    excerpt: Excerpt
    holder: Holder
    similar: tuple[SimilarIncident, ...]
    redactor: Redacts
    declined: Callable[[Report, Sequence[ExcerptLine]], Mapping[tuple[str, int], str]] = lambda _report, _lines: {}


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the agent comes to. `label` is None unless `state` is `answered`; `notes` say in words what went wrong."""

    state: AgentState
    label: str | None = None
    attribution: AttributionName | None = None
    reason: str = ""
    summary: str = ""
    settle: str = ""
    lines: tuple[ExcerptLine, ...] = ()
    votes: str = ""
    notes: tuple[str, ...] = ()


class FailureAgent:
    """Judges failures by one model. Holds nothing of any of them."""

    def __init__(self, model: ChatModel, taxonomy: Mapping[str, ErrorType], prompts: Prompts | None = None) -> None:
        self._model = model
        self._labels = {name: entry for name, entry in taxonomy.items() if not entry.symptom}
        self._prompts = prompts or Prompts("failure_agent")

    @property
    def model(self) -> str:
        """What the model is called."""
        return self._model.name

    @property
    def prompt(self) -> str:
        """Which prompts are used."""
        return self._prompts.version

    def judge(self, case: Case) -> Judgement:
        """Asks once, or several times over for a vote."""
        allowance = self._model.allowance()
        samples = self._model.settings.samples
        outcomes: list[Judgement] = []
        votes: Counter[str] = Counter()
        talk = _Talk(self._model, self._prompts, self._labels, case)
        for sample in range(samples):
            outcome = talk.outcome(allowance, sample, None if samples == 1 else _WARM)
            outcomes.append(outcome)
            if outcome.state in ("answered", "abstained"):
                votes[outcome.label or CANNOT_TELL] += 1
            if votes and max(votes.values()) > samples / 2:
                break
            if outcome.state in ("unavailable", "over_budget"):
                break
        return _voted(outcomes, votes, samples)


def _voted(outcomes: Sequence[Judgement], votes: Counter[str], samples: int) -> Judgement:
    """What most of the samples say; without a majority nothing."""
    label, most = votes.most_common(1)[0] if votes else ("", 0)
    if most > samples / 2:
        chosen = next(each for each in outcomes if (each.label or CANNOT_TELL) == label and each.state in _GIVEN)
        if samples == 1 or chosen.state != "answered":
            return chosen
        return replace(chosen, votes=f"{most} of {len(outcomes)} answers agree")
    failed = next((each for each in reversed(outcomes) if each.state not in _GIVEN), None)
    if failed is not None:
        return failed
    return Judgement("abstained", notes=(f"{len(outcomes)} answers disagree: {', '.join(sorted(votes))}",))


_GIVEN: Final = ("answered", "abstained")


class _Talk:
    """The conversation on one failure."""

    def __init__(self, model: ChatModel, prompts: Prompts, labels: Mapping[str, ErrorType], case: Case) -> None:
        self._model = model
        self._prompts = prompts
        self._labels = labels
        self._case = case
        redact = case.redactor.redact
        lines = case.excerpt.lines
        for each in lines:  # names that a later line gives away are hidden in the earlier ones, too
            redact(each.line.text)
        self._set_aside = dict(set_aside(case.report)) | dict(case.declined(case.report, lines))
        names = dict.fromkeys((*(each.source for each in case.report.coverage.sources), *case.holder.sources))
        self._names = {name: f"s{number}" for number, name in enumerate(names, 1)}
        self._first = tuple(self._shown(each) for each in lines)
        text = "\n".join(each.text for each in self._first)
        # A mark that no writer of a log can foresee, since it follows from all of it.
        self._fence = f"log-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        self._schema = _with_labels(prompts.schema, labels)
        self._system = prompts.render("system", labels=list(labels.values()), fence=self._fence)
        self._user = prompts.render(
            "user",
            status=case.report.status,
            progress=_progress(case.report),
            findings=[self._safe(each) for each in _findings(case.report, self._named)],
            similar=[self._safe(without_numbers(_past(each))) for each in case.similar[:_SIMILAR]],
            sources=_sources(case.report, self._named),
            seen=case.excerpt.seen,
            lines=[_line(each) for each in self._first],
            more=tools.more(case.excerpt),
            fence=self._fence,
        )

    def outcome(self, allowance: Allowance, sample: int, temperature: float | None) -> Judgement:
        """One answer, after what reading and mending it takes."""
        messages = [Message("system", self._system), Message("user", self._user)]
        lines = list(self._first)
        readings, repaired = _READINGS, False
        while True:
            answer = self._model.ask(messages, self._schema, allowance, sample=sample, temperature=temperature)
            if answer.state == "rejected" and not repaired:
                problems: tuple[str, ...] = (answer.reason,)
            elif answer.state != "answered" or answer.data is None:
                return Judgement(answer.state, notes=(answer.reason,) if answer.reason else ())
            else:
                claim = Claim.of(answer.data)
                if claim.requests and readings and not repaired:
                    readings -= 1
                    messages += self._read(answer, claim, lines, last=not readings)
                    continue
                checked = check(claim, lines, self._labels, self._system, went_on=self._case.holder.went_on)
                problems = (*checked.problems, *checked.flaws)
                if not problems or (repaired and not checked.problems):
                    return self._judged(claim, checked)
                if repaired or checked.leak:
                    return Judgement("rejected", notes=tuple(self._plain(each) for each in checked.problems))
            repaired = True
            messages += [Message("assistant", _short(answer)), Message("user", self._repair(problems))]

    def _read(self, answer: ModelAnswer, claim: Claim, lines: list[Shown], *, last: bool) -> list[Message]:
        """What the tools bring, as the next turns."""
        found = tools.read(claim.requests, [each.of for each in lines], self._case.holder)
        declined = self._case.declined(self._case.report, [*(each.of for each in lines), *found])
        self._set_aside |= declined
        new = [self._shown(each) for each in found]
        lines += new
        more = self._prompts.render("more", lines=[_line(each) for each in new], last=last, fence=self._fence)
        return [Message("assistant", _short(answer)), Message("user", more)]

    def _repair(self, problems: Sequence[str]) -> str:
        return self._prompts.render("repair", problems=[self._safe(each) for each in problems])

    def _judged(self, claim: Claim, checked: Checked) -> Judgement:
        if claim.label == CANNOT_TELL:
            return Judgement("abstained", settle=self._plain(claim.settle) if unharmful(claim.settle) else "")
        entry = self._labels[claim.label]
        argued = attribution_stands(claim, entry)
        return Judgement(
            "answered",
            claim.label,
            claim.attribution if argued else entry.attribution or "unknown",
            self._plain(claim.reason) if argued and unharmful(claim.reason) else "",
            self._plain(claim.summary) if unharmful(claim.summary) else "",
            self._plain(claim.settle) if unharmful(claim.settle) else "",
            tuple(each.of for each in checked.lines),
        )

    def _shown(self, line: ExcerptLine) -> Shown:
        return Shown(
            line.id,
            self._safe(line.line.text),
            line,
            self._set_aside.get((line.source, line.line.number), ""),
            self._safe(_writer(line, self._named(line.source))),
        )

    def _named(self, source: str) -> str:
        """A source without the path, which tells much and proves nothing."""
        return self._names.get(source, "s0")

    def _safe(self, text: str) -> str:
        """Text of a log as it may leave."""
        return shown(self._case.redactor.redact(text))

    def _plain(self, text: str) -> str:
        """A model's words as people read them."""
        return shown(self._case.redactor.restore(text))


def _with_labels(schema: Schema, labels: Mapping[str, ErrorType]) -> Schema:
    """The schema with the closed list in it."""
    label = {"type": "string", "enum": [*labels, CANNOT_TELL]}
    made = {key: value for key, value in schema.items() if key != "$comment"}
    return {**made, "properties": {**schema["properties"], "label": label}}


def _line(line: Shown) -> str:
    """A line as it stands between the fences."""
    more = f" (and {line.of.alike} more like it)" if line.of.alike else ""
    return f"[{line.id}] {line.writer} {line.text}{more}"


def _writer(line: ExcerptLine, source: str) -> str:
    """Which source a line stands in, its rank and host."""
    parts = [f"{source}:{line.line.number}"]
    if line.line.rank is not None:
        parts.append(f"rank {line.line.rank}")
    if line.line.host:
        parts.append(line.line.host)
    return f"{' '.join(parts)} |"


def _short(answer: ModelAnswer) -> str:
    """What the model said, as far as it is worth repeating to it."""
    return answer.text[:4_000]


def _findings(report: Report, named: Callable[[str], str]) -> list[str]:
    """Each finding in a line, with why it did not decide."""
    explanation = report.explanation
    by_id = {finding.id: finding for finding in explanation.findings}
    told = []
    for finding in explanation.findings[:_FINDINGS]:
        causes = [by_id[each].error_type for each in explanation.explained.get(finding.id, ()) if each in by_id]
        why = f"follows from {', '.join(causes)}" if causes else f"a {finding.role}, not a proven cause"
        told.append(f"{_finding(finding, named)}: {why}")
    told.extend(f"{_finding(each.finding, named)}: set aside, {each.why}" for each in explanation.excluded[:_FINDINGS])
    return told


def _finding(finding: Finding, named: Callable[[str], str]) -> str:
    first = finding.evidence[0] if finding.evidence else None
    often = f" {finding.count} times" if finding.count > 1 else ""
    return f"{finding.error_type}{often}" + (
        f' ("{first.text[:160]}", {named(first.source)}:{first.line})' if first else ""
    )


def _past(incident: SimilarIncident) -> str:
    outcome = {True: "; what was done about it worked", False: "; what was done about it did not work"}
    known = outcome.get(incident.recovered, "") if incident.recovered is not None else ""
    return f"{incident.error_type} (similarity {incident.similarity:.2f}{known}): {incident.summary[:300]}"


def _progress(report: Report) -> str:
    progress = report.progress
    if progress.last_step is None:
        return "no step was seen"
    return f"steps {progress.first_step} to {progress.last_step}" + (
        "; it says that it completed" * bool(progress.completed)
    )


def _sources(report: Report, named: Callable[[str], str]) -> list[str]:
    covered = [f"{named(each.source)} ({each.kind})" for each in report.coverage.sources]
    more = len(covered) - _SOURCES
    return [*covered[:_SOURCES], f"{more} more"] if more > 0 else covered
