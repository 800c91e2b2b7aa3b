"""Models that an evaluation may ask, behind a real server on loopback: a perfect one, and ones that harm.

The perfect one knows the label of each case and quotes the labelled lines where it is shown them. The others show that
the checks let no harm through: whatever they answer, the figures must not get worse than without them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from diagnose.agents.second_opinion import Advisers, advisers
from diagnose.agents.settings import ModelSettings
from diagnose.evaluation.judge import Spent
from diagnose.evaluation.model import Case
from diagnose.evaluation.score import same_file
from diagnose.models import RuleSet
from diagnose.rules.bundle import load_bundled
from tests.modelserver import Asked, ModelServer, Reply, completion

Kind = Literal["", "perfect", "malformed", "unquoted", "invented", "elsewhere", "contradicting", "away"]
HOSTILE: tuple[Kind, ...] = ("malformed", "unquoted", "invented", "elsewhere", "contradicting", "away")
_LINE = re.compile(r"^\[(\d+)\] (\S+):(\d+) .*?\| (.*)$", re.MULTILINE)
_ALARMING = re.compile(r"error|fail|fatal|kill|xid|exception|timed? ?out|cancel|denied|lost|nan\b|abort", re.IGNORECASE)
_ALIKE = re.compile(r" \(and \d+ more like it\)$")
_SOURCE = re.compile(r"s\d+")
_TOKENS_IN, _TOKENS_OUT = 100, 20


@dataclass(frozen=True)
class Modelled:
    """Asks a model of a kind, or of the one that the name of a case ends in; each process has a server of its own."""

    kind: Kind = ""
    withheld: frozenset[str] = frozenset()

    def __call__(self) -> Callable[[Case], Model]:
        model = Model(self.kind, withheld=self.withheld)
        return model.about


@dataclass
class Model:
    """A model and the server in front of it."""

    given: Kind
    kind: Kind = ""
    case: Case | None = None
    withheld: frozenset[str] = frozenset()
    rules: RuleSet = field(default_factory=load_bundled)

    def __post_init__(self) -> None:
        self.server = ModelServer(self._reply)
        self.before = 0
        settings = ModelSettings(self.server.url, "scripted", state=None, cache=False, attempts=1, tokens=10_000_000)
        self.second_opinion: Advisers = advisers(self.rules, settings, withheld=self.withheld)
        self.labels = [name for name, entry in self.rules.taxonomy.items() if not entry.symptom]

    def about(self, case: Case) -> Model:
        self.case = case
        self.kind = self.given or cast("Kind", case.name.rpartition("~")[2])
        self.before = len(self.server.asked)
        return self

    def spent(self) -> Spent:
        calls = len(self.server.asked) - self.before
        return Spent(calls, calls * _TOKENS_IN, calls * _TOKENS_OUT)

    def _reply(self, asked: Asked) -> Reply:
        assert self.case is not None
        chance = random.Random(f"{self.kind} {self.case.name} {len(asked.body['messages'])}")
        shown = [
            (int(number), source, int(line), _ALIKE.sub("", text))
            for number, source, line, text in _LINE.findall(asked.text)
            if len(text) > 3
        ]
        if self.kind == "perfect":
            return completion(self._perfect(asked, shown))
        if self.kind == "away":
            return Reply(b"no", 503)
        wrong = chance.choice([label for label in self.labels if label not in self.case.error_types])
        if self.kind == "malformed":
            torn = ["{", '{"label": "' + wrong + '"}', "It is a " + wrong, "[" * 5000, '{"label": 1e999}', "\x00", ""]
            return completion(chance.choice(torn))
        if self.kind == "unquoted":
            return completion(answer(wrong))
        if self.kind == "invented":
            number = chance.choice(shown)[0] if shown else 1
            return completion(answer(wrong, [{"line": number, "quote": f"{wrong}: fatal error on gpu 3, all is lost"}]))
        if self.kind == "elsewhere":  # what is quoted stands there, but in another line and in part
            texts = [text for *_, text in shown if len(text) > 3] or ["x"]
            return completion(answer(wrong, [{"line": 999, "quote": chance.choice(texts)[:7]}]))
        quotes = [{"line": number, "quote": text} for number, _, _, text in chance.sample(shown, min(3, len(shown)))]
        return completion(answer(wrong, quotes))

    def _perfect(self, asked: Asked, shown: list[tuple[int, str, int, str]]) -> Mapping[str, Any]:
        """The label, proved by the labelled lines; asked to mend it, by those around them, then by what alarms."""
        case = self.case
        assert case is not None
        if not case.error_types:
            return answer("cannot_tell")
        again = sum(message["role"] == "assistant" for message in asked.body["messages"])
        near = sorted(
            (min(abs(line - place.line) for place in case.lines if _fits(source, place.source)), number, text)
            for number, source, line, text in shown
            if any(_fits(source, place.source) for place in case.lines)
        )
        alarming = [(9999, number, text) for number, _, _, text in shown if _ALARMING.search(text)]
        chosen = [*near[:3], *alarming[-3:]] if again else [*near[:6], *alarming][:6]
        quotes = [{"line": number, "quote": text} for _, number, text in chosen]
        attribution = case.attributions[0] if case.attributions else "unknown"
        return answer(
            case.error_types[0],
            quotes,
            attribution=attribution,
            attribution_reason="The lines quoted show whose it is.",
        )


def _fits(source: str, labelled: str) -> bool:
    # Models are not told names of files, but `s1`, `s2`: which is which, only the line number says.
    return not labelled or _SOURCE.fullmatch(source) is not None or same_file(source, labelled)


def answer(label: str, evidence: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    """An answer in the form that is asked for."""
    return {
        "read_more": [],
        "evidence": evidence or [],
        "label": label,
        "attribution": "unknown",
        "attribution_reason": "",
        "root_cause": "Something failed, as the lines quoted say.",
        "would_settle": "",
        **more,
    }
