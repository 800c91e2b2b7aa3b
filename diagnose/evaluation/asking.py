"""Whom to ask about the cases where no rule decides: past incidents and a model, as a run would ask them.

In: rules, the settings of a model, past incidents and where their index lies. Out: for each case whom to ask, and what
that has cost.
"""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.agents.allowance import Allowance
from diagnose.agents.answers import Schema
from diagnose.agents.failure_agent import FailureAgent
from diagnose.agents.model import ChatModel, Message, ModelAnswer
from diagnose.agents.second_opinion import Neighbours, advisers
from diagnose.agents.settings import ModelSettings
from diagnose.dataclass import dataclass, replace
from diagnose.evaluation.judge import Spent
from diagnose.evaluation.model import Case
from diagnose.models import RuleSet, SecondOpinion


class CountingModel(ChatModel):
    """A model that adds up what it costs."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__(settings)
        self.spent = Spent()

    def ask(
        self,
        messages: Sequence[Message],
        schema: Schema,
        allowance: Allowance,
        *,
        sample: int = 0,
        temperature: float | None = None,
    ) -> ModelAnswer:
        """The answer, counted in."""
        answer = super().ask(messages, schema, allowance, sample=sample, temperature=temperature)
        before = self.spent
        self.spent = Spent(
            before.calls + (not answer.cached),
            before.tokens_in + answer.tokens_in,
            before.tokens_out + answer.tokens_out,
        )
        return answer


@dataclass(frozen=True, slots=True)
class Consulted:
    """Whom one case may ask."""

    second_opinion: SecondOpinion
    model: CountingModel | None = None

    def spent(self) -> Spent:
        """What the model has cost."""
        return self.model.spent if self.model else Spent()


class Consulting:
    """Makes whom to ask, case by case: each has a model of its own to count what it costs."""

    def __init__(
        self,
        rules: RuleSet,
        settings: ModelSettings | None,
        past: Neighbours | None,
        withheld: frozenset[str] = frozenset(),
    ) -> None:
        self._rules = rules
        self._settings = settings
        self._past = past
        self._withheld = withheld

    def __call__(self, _case: Case) -> Consulted:
        """Whom to ask about a case."""
        asked = advisers(self._rules, self._settings, self._past, withheld=self._withheld)
        if self._settings is None:
            return Consulted(asked)
        model = CountingModel(self._settings)
        return Consulted(replace(asked, agent=lambda: FailureAgent(model, self._rules.taxonomy)), model)
