"""Who is asked where no rule decides: past incidents first, then the Failure Agent.

In: the lines of one run, the rules' report. Out: an `Opinion`. What is asked is redacted, what is answered is restored;
past incidents decide where they agree strongly, and are shown to the model where they do not. Nothing that goes wrong
here costs more than the opinion.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from importlib.util import find_spec
from typing import Protocol

from diagnose.agents.checks import set_aside, speaking_of
from diagnose.agents.declined import Declined
from diagnose.agents.excerpt import REMEMBERED_TOKENS, Excerpt, ExcerptLine, Gatherer, deciding_text
from diagnose.agents.failure_agent import Case, FailureAgent, Judgement, Redacts
from diagnose.agents.ledger import Ledger
from diagnose.agents.model import ChatModel
from diagnose.agents.settings import ModelSettings
from diagnose.dataclass import dataclass, field, replace
from diagnose.errors import DiagnoseError, installing
from diagnose.models import Evidence, Line, Opinion, Report, RuleSet
from diagnose.models.report import Sureness
from diagnose.models.rule import ErrorType
from diagnose.redaction import Redactor
from diagnose.rules.without import without_rules

_EXCERPT_TOKENS = 6_000  # where no model says how much it may be shown
_CHARS = 300
_PROOF = 4  # lines that show what past incidents decide
_NEEDED = ("openai", "httpx", "jinja2", "jsonschema", "stamina")


class Neighbours(Protocol):
    """Past incidents that read alike, and what they decide."""

    def opinion(self, text: str) -> Opinion:
        """The similar ones, and where they agree strongly enough, their verdict. `text` is redacted."""
        ...


class Hides(Redacts, Protocol):
    """A redactor that can be told names beforehand."""

    def learn(self, *, hosts: tuple[str, ...], users: tuple[str, ...] = ()) -> None:
        """Hides these names from now on."""
        ...


@dataclass(frozen=True, slots=True)
class Advisers:
    """Whom one run may ask. `redactor` and `agent` make one for each diagnosis that asks, since most do not.

    `healthy` are templates of lines that good runs print. Past incidents decide only what is in the `taxonomy`.
    `declined` knows which lines the rules have read and passed over.
    """

    redactor: Callable[[], Hides]
    agent: Callable[[], FailureAgent] | None = None
    neighbours: Neighbours | None = None
    excerpt_tokens: int = _EXCERPT_TOKENS
    healthy: Container[str] = frozenset()
    taxonomy: Mapping[str, ErrorType] = field(default_factory=dict)
    declined: Declined | None = None

    def begin(self) -> Asker:
        """A witness for one run."""
        return Asker(self)


def advisers(
    rules: RuleSet,
    settings: ModelSettings | None,
    neighbours: Neighbours | None = None,
    healthy: Container[str] = (),
    ledger: Ledger | None = None,
    withheld: Collection[str] = (),
) -> Advisers:
    """Whom to ask by these settings. Nothing heavy is loaded before somebody is asked.

    All diagnoses share one account of the model, also where no file keeps it. `withheld` are error types that the rules
    may not name.
    """
    account = ledger or (Ledger(settings.state) if settings else None)

    def agent() -> FailureAgent:
        assert settings is not None
        missing = next((name for name in _NEEDED if find_spec(name) is None), None)
        if missing:
            raise DiagnoseError(f"a model needs {missing}, which is not installed: {installing('llm')}")
        return FailureAgent(ChatModel(settings, account), rules.taxonomy)

    return Advisers(
        lambda: Redactor(rules.redactions),
        agent if settings else None,
        neighbours,
        settings.excerpt_tokens if settings else _EXCERPT_TOKENS,
        healthy,
        rules.taxonomy,
        Declined(without_rules(rules, withheld) if withheld else rules, withheld),
    )


class Asker:
    """Gathers the lines of one run, and asks about them if it must."""

    def __init__(self, advisers: Advisers) -> None:
        self._advisers = advisers
        self._gatherer = Gatherer(advisers.healthy)
        self.observe: Callable[[Line], None] = self._gatherer.observe

    def opinion(self, report: Report) -> Opinion:
        """What to think of a failure that the rules leave undecided."""
        advisers = self._advisers
        redactor = advisers.redactor()
        hosts = sorted(self._gatherer.holder.hosts | {each.id for each in report.culprits if each.kind == "host"})
        redactor.learn(hosts=tuple(hosts))
        past, notes = self._past(report, redactor)
        if past.stage != "none" or advisers.agent is None:
            return replace(past, state="not_needed" if advisers.agent is not None else "not_configured", notes=notes)
        excerpt = self._gatherer.excerpt(report, advisers.excerpt_tokens)
        case = Case(report, excerpt, self._gatherer.holder, past.similar, redactor, self._declined)
        try:
            agent = advisers.agent()
            return _opinion(agent.judge(case), past, agent, notes)
        except DiagnoseError as error:
            return replace(past, state="unavailable", notes=(*notes, str(error)))
        except Exception as error:  # noqa: BLE001 - the rules' report stands, whatever happens here
            why = f"asking the model failed ({type(error).__name__})"
            return replace(past, state="unavailable", notes=(*notes, why))

    def _declined(self, report: Report, lines: Sequence[ExcerptLine]) -> Mapping[tuple[str, int], str]:
        """Lines that the rules have read and passed over."""
        declined = self._advisers.declined
        return declined.among(report, lines) if declined else {}

    def _past(self, report: Report, redactor: Redacts) -> tuple[Opinion, tuple[str, ...]]:
        """What past incidents say; nothing where there are none, or they cannot be had."""
        if self._advisers.neighbours is None:
            return Opinion(), ()
        excerpt = self._gatherer.excerpt(report, REMEMBERED_TOKENS)
        text = deciding_text(report, excerpt)
        redactor.redact(text)  # learns the names that only later lines give away
        try:
            past = self._advisers.neighbours.opinion(redactor.redact(text))
            entry = self._advisers.taxonomy.get(past.error_type or "")
            if entry is None:
                return Opinion(similar=past.similar), ()
            no_proof = {**set_aside(report), **self._declined(report, excerpt.lines)}
            spoken = speaking_of(entry, excerpt.lines, report, no_proof, went_on=self._gatherer.holder.went_on)
            if not spoken:
                return Opinion(similar=past.similar), ()  # alike, but this log does not say so itself
            alike = [each for each in _placed(past.evidence, excerpt, redactor) if each.alarming and each not in spoken]
            return replace(past, evidence=tuple(map(_evidence, (*spoken, *alike)[:_PROOF]))), ()
        except DiagnoseError as error:
            return Opinion(), (f"past incidents: {error}",)
        except Exception as error:  # noqa: BLE001 - as above
            return Opinion(), (f"past incidents could not be searched ({type(error).__name__})",)


def _placed(evidence: tuple[Evidence, ...], excerpt: Excerpt, redactor: Redacts) -> list[ExcerptLine]:
    """Lines that past incidents point at, as they stand in the log."""
    lines = {redactor.redact(each.line.text): each for each in reversed(excerpt.lines)} if evidence else {}
    return [lines[each.text] for each in evidence if each.text in lines]


def _opinion(judgement: Judgement, past: Opinion, agent: FailureAgent, notes: tuple[str, ...]) -> Opinion:
    notes = (*notes, *(f"{agent.model}: {judgement.state}: {note}" for note in judgement.notes))
    asked = Opinion(similar=past.similar, state=judgement.state, model=agent.model, prompt=agent.prompt, notes=notes)
    if judgement.state != "answered":
        return replace(asked, settle=judgement.settle)
    reasons = [judgement.reason] if judgement.reason else []
    if judgement.votes:
        reasons.append(judgement.votes)
    return replace(
        asked,
        stage="failure_agent",
        error_type=judgement.label,
        attribution=judgement.attribution,
        summary=judgement.summary,
        evidence=tuple(_evidence(each) for each in judgement.lines),
        reasons=tuple(reasons),
        settle=judgement.settle,
        sureness=_sureness(judgement, past),
    )


def _sureness(judgement: Judgement, past: Opinion) -> Sureness:
    """A model's word alone is possible; that a past incident with this name worked out alike makes it likely."""
    alike = any(each.error_type == judgement.label and each.recovered for each in past.similar[:3])
    return "likely" if alike else "possible"


def _evidence(each: ExcerptLine) -> Evidence:
    line = each.line
    return Evidence(
        each.source,
        line.number or None,
        line.text[:_CHARS],
        rank=line.rank,
        host=line.host,
        gpu=line.gpu,
        message=line.body[:_CHARS],
    )
