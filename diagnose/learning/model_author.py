"""A diagnosis rule written by a model, filled up with what follows from the label.

In: a `Case`, a model to ask, what stood against its last answer. Out: a draft; nothing of the answer is believed: the
pattern, the sentences and the examples go through the same trial as every other rule.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import regex

from diagnose.agents.prompts import Prompts
from diagnose.dataclass import replace
from diagnose.learning.case import Case, CaseLine
from diagnose.learning.draft import WORDINGS, draft, meant
from diagnose.lines.ansi import clean
from diagnose.models.rule import (
    CaptureType,
    DiagnosisExamples,
    DiagnosisRule,
    Expect,
    Match,
    NegativeExample,
    PositiveExample,
    RuleSet,
    Signature,
)
from diagnose.rules.abstract import invented
from diagnose.rules.captures import typed
from diagnose.rules.lint.engines import compiled, re2_refuses
from diagnose.rules.lint.secrets import private
from diagnose.rules.prove import unsafe_constructs
from diagnose.rules.secrets import Secrets

if TYPE_CHECKING:
    from diagnose.agents.model import ChatModel

_PROMPT: Final = "rule_author"
_SHOWN: Final = 40
_ROUNDS: Final = 3
_PATIENCE: Final = 0.25
_TOLD: Final = 6


class ModelAuthor:
    """Asks a model for the rule of one case, a few rounds at most."""

    def __init__(
        self,
        model: ChatModel,
        rule_set: RuleSet,
        redact: Callable[[str], str],
        negatives: Callable[[CaseLine, str, str], Sequence[NegativeExample]],
        taken: Collection[str],
    ) -> None:
        self._model = model
        self._rule_set = rule_set
        self._secrets = Secrets(rule_set)
        self._redact = redact
        self._negatives = negatives
        self._taken = taken
        self._rounds = 0
        self.state = ""

    def drafts(self, case: Case, told: Sequence[str]) -> Iterator[DiagnosisRule]:
        """The model's rule, if it writes one that can be tried."""
        from diagnose.agents.model import Message

        if self._rounds >= _ROUNDS:
            return
        self._rounds += 1
        lines = _shown(case)
        entry = self._rule_set.taxonomy[case.error_type]
        prompts = Prompts(_PROMPT)
        system = prompts.render("system", error_type=entry.name, meaning=meant(entry))
        user = prompts.render(
            "user",
            summary=self._redact(case.summary),
            lines=[self._redact(line.text) for line in lines],
            told=[self._redact(clean(text))[:300] for text in told[:_TOLD]],
        )
        messages = [Message("system", system), Message("user", user)]
        allowance = self._model.allowance()  # of this round: a trial in between takes seconds of its own
        answer = self._model.ask(messages, prompts.schema, allowance, sample=self._rounds)
        self.state = answer.reason or answer.state
        if answer.data is not None:
            rule = self._rule(case, lines, cast("dict[str, Any]", answer.data))
            if rule is not None:
                yield rule

    def _rule(self, case: Case, lines: Sequence[CaseLine], data: dict[str, Any]) -> DiagnosisRule | None:
        """The answer as a rule; None where its pattern cannot even be tried, or is not of the line it names."""
        if data["line"] > len(lines):
            return None
        line = lines[data["line"] - 1]
        found = _matched(data["pattern"], invented(self._redact(line.text)))
        if found is None or _matched(data["pattern"], line.text) is None:
            return None
        base = next(
            (
                rule
                for wording in WORDINGS
                if (
                    rule := draft(
                        case, line, wording, self._rule_set, redact=self._redact, negatives=lambda _: (),
                        taken=self._taken,
                    )
                )
            ),
            None,
        )  # fmt: skip
        if base is None:
            return None
        kinds: dict[str, CaptureType] = {each["name"]: each["type"] for each in data["captures"]}
        values = {
            name: value
            for name, text in found.groupdict().items()
            if text is not None and (value := typed(name, text, kinds.get(name))) is not None
        }
        example = PositiveExample(base.examples.positive[0].log, Expect((1,), values), line.kind)
        return replace(
            base,
            title=_text(data["title"]),
            description=_text(f"{base.description} A model wrote the pattern."),
            author=(f"agent:{_text(self._model.name)[:80]}",),
            signatures={"main": Signature(tuple(data["keywords"]), data["pattern"])},
            match=Match(any=("main",)),
            captures=kinds,
            verdict=replace(base.verdict, cause=_text(data["cause"]).rstrip("."), hint=_text(data["hint"])),
            examples=DiagnosisExamples((example,), self._negative(line, data)),
        )

    def _negative(self, line: CaseLine, data: dict[str, Any]) -> tuple[NegativeExample, ...]:
        own = [
            NegativeExample(_text(each["why"]), f"{text}\n", line.kind)
            for each in data["negatives"]
            if (text := _text(each["line"]))
            and not private(text, self._secrets)
            and _matched(data["pattern"], text) is None
        ]
        return (*own, *self._negatives(line, data["pattern"], data["keywords"][0]))


def _shown(case: Case) -> list[CaseLine]:
    """The lines to show: those that may decide, with their neighbours, in order."""
    wanted: dict[int, None] = {}
    for index in case.deciding:
        near, place = case.around(index)
        wanted |= dict.fromkeys(range(index - place, index - place + len(near)))
    return [case.lines[index] for index in sorted(wanted)][:_SHOWN]


def _matched(pattern: str, text: str) -> regex.Match[str] | None:
    """Where a pattern is found; None also for one that is not safe to try."""
    found = compiled(pattern)
    if isinstance(found, str) or unsafe_constructs(pattern) or re2_refuses(pattern):
        return None
    try:
        return found.search(text, timeout=_PATIENCE)
    except TimeoutError:
        return None


def _text(text: str) -> str:
    """A sentence of a model's on one line, without control characters."""
    return " ".join(clean(text).split())
