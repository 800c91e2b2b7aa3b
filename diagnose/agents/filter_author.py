"""Filter rules for families of lines: by a model, or by what the lines have in common.

In: families, whom to ask. Out: drafts of `FilterRule`s, each with the family it is for; nothing of them is believed
until `rules.admission` has said so.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from diagnose.agents.families import Family
from diagnose.agents.prompts import Prompts
from diagnose.agents.rendering import answer_schema
from diagnose.compress.prefix import expand
from diagnose.dataclass import dataclass, replace
from diagnose.lines.ansi import clean
from diagnose.models.rule import FilterExamples, FilterRule
from diagnose.rules.abstract import invented, literals_of, pattern_of
from diagnose.rules.lint.engines import re2_whole

if TYPE_CHECKING:
    from diagnose.agents.allowance import Allowance
    from diagnose.agents.model import ChatModel, ModelAnswer

FREQUENCY: Final = "agent:frequency"
_PROMPT: Final = "log_agent"
_SHOWN: Final = 4
_LINE: Final = 300
_WARMTH: Final = 0.7  # samples that are all the same would vote for themselves
_SIGNAL: Final = "RuntimeError: this line must stay"


@dataclass(frozen=True, slots=True)
class Draft:
    """A rule that nobody has judged, and what it is for."""

    rule: FilterRule
    family: Family


@dataclass(frozen=True, slots=True)
class _Kind:
    """A family as a prompt shows it."""

    count: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Shown:
    """A rule as the ballot shows it."""

    pattern: str
    lines: tuple[str, ...]


def by_frequency(family: Family, redact: Callable[[str], str]) -> Draft | None:
    """The rule that the lines' own words make; None where they have too few."""
    pieces = family.pieces
    literals = [text for text in literals_of(pieces) if text.isascii() and not re.search(r"\d", text)]
    if not literals:
        return None
    pattern = "{prefix}" + pattern_of(pieces)
    title = " ".join(re.sub(r"[^\w .,:/-]", " ", literals[0]).split())[:60] or "repeated lines"
    rule = filter_rule(family, pattern, literals[:1], "collapse", title, FREQUENCY, redact)
    return Draft(rule, family)


class FilterAuthor:
    """Asks a model for filter rules, and for its vote on them."""

    def __init__(self, model: ChatModel, redact: Callable[[str], str]) -> None:
        self._model = model
        self._redact = redact
        self._prompts = Prompts(_PROMPT)
        self.author = f"agent:{clean(model.name)[:80]}"

    def ask(self, families: Sequence[Family], sample: int, allowance: Allowance) -> tuple[Draft, ...]:
        """One sample of rules for some families; none where the model does not answer."""
        kinds = [_Kind(family.count, self._lines(family)) for family in families]
        data = self._answer("user", "answer", allowance, sample=sample, warmth=_WARMTH, kinds=kinds)
        drafts: list[Draft] = []
        for each in data["rules"] if data else ():
            if each["kind"] <= len(families):
                family = families[each["kind"] - 1]
                title = " ".join(clean(each["title"]).split())
                action, words = each["action"], each["keywords"]
                rule = filter_rule(family, each["pattern"], words, action, title, self.author, self._redact)
                drafts.append(Draft(rule, family))
        return tuple(drafts)

    def vote(self, drafts: Sequence[Draft], allowance: Allowance) -> tuple[Draft, ...]:
        """Those of some admitted rules that a second call chooses; none where it is not answered."""
        rules = [_Shown(draft.rule.pattern, self._lines(draft.family)) for draft in drafts]
        data = self._answer("vote", "vote", allowance, sample=0, warmth=0.0, rules=rules)
        chosen = dict.fromkeys(data["chosen"]) if data else {}
        return tuple(drafts[number - 1] for number in chosen if number <= len(drafts))

    def _answer(
        self, part: str, schema: str, allowance: Allowance, *, sample: int, warmth: float, **values: object
    ) -> dict[str, Any] | None:
        from diagnose.agents.model import Message

        messages = [
            Message("system", self._prompts.render("system")),
            Message("user", self._prompts.render(part, **values)),
        ]
        answer: ModelAnswer = self._model.ask(
            messages, answer_schema(_PROMPT, schema), allowance, sample=sample, temperature=warmth
        )
        return cast("dict[str, Any] | None", answer.data)

    def _lines(self, family: Family) -> tuple[str, ...]:
        return tuple(self._redact(text_of(line)) for line in family.samples[:_SHOWN])


def text_of(line: bytes) -> str:
    """A raw line as text to show."""
    return clean(line.decode("utf-8", "replace"))[:_LINE]


def filter_rule(
    family: Family,
    pattern: str,
    keywords: Sequence[str],
    action: Literal["drop", "collapse"],
    title: str,
    author: str,
    redact: Callable[[str], str],
) -> FilterRule:
    """A rule with a name of its own pattern: the same pattern is the same rule, whoever wrote it."""
    digest = hashlib.sha256(f"{family.kind} {pattern}".encode("utf-8", "surrogatepass")).hexdigest()[:10]
    slug = re.sub(r"[^a-z]+", "-", title.lower())[:40].strip("-") or "lines"
    noise = tuple(dict.fromkeys(invented(redact(text_of(line))) for line in family.samples[:_SHOWN]))
    rule = FilterRule(
        schema="filter-rule/v1",
        id=f"agent-{slug}-{digest}",
        title=title[:100],
        status="experimental",
        description=f"Lines that came {family.count} times in one job and that no filter covered.",
        author=(author,),
        created=dt.datetime.now(dt.UTC).date().isoformat(),
        tags=("startup",),
        sources=(family.kind,),
        keywords=tuple(keywords),
        pattern=pattern,
        action=action,
        examples=FilterExamples(noise=noise, signal=(_SIGNAL,)),
        keep_first=1 if action == "collapse" else None,
        per="rank" if action == "collapse" else None,
    )
    # Where a value was hidden the pattern may want another form: then the example says nothing. Nobody has looked at
    # the pattern yet, so only an engine that cannot hang is asked.
    whole = expand(pattern) if pattern.isascii() else b""
    kept = tuple(line for line in noise if re2_whole(whole, line.encode()))
    return replace(rule, examples=FilterExamples(kept or noise[:1], (_SIGNAL,)))
