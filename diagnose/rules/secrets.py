"""Keys, tokens and passwords do not leave a log through the report: reports go into tickets, chats and models.

In: a rule set, texts or a `Report`. Out: the same, with `***` where a secret stood. What a secret looks like the
redaction rules say, those of the kinds that give access and that go by a keyword: its own form (`ghp_...`) or the word
before it (`password=`). A value alone is never taken for one, so that hashes, versions and figures stay.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import ahocorasick_rs

from diagnose.dataclass import fields, is_dataclass, replace
from diagnose.models import Report
from diagnose.models.rule import RedactionRule, RuleSet

if TYPE_CHECKING:
    from diagnose.rules.redactions import Finder, Hidden

_SECRET = ("key", "password")  # kinds that give access: even a report shown to its owner does without them
_HIDDEN = "***"
_PLAIN = frozenset({int, float, bool, type(None)})
_MOST_KNOWN = 10_000


class Secrets:
    """Hides what the rules of a rule set call a secret. Most texts hold no keyword: then nothing is compiled."""

    def __init__(self, rules: RuleSet) -> None:
        self._rules = tuple(rule for rule in rules.redactions if rule.kind in _SECRET and _called(rule))
        # Patterns of the shipped rules are known to be quick, so that they need no clock; those of a site may be slow.
        self._trusted = "+" not in rules.version
        self._automaton: ahocorasick_rs.AhoCorasick | None = None
        self._finder: Finder | None = None
        self._known: dict[str, str] = {}

    def cleaned(self, report: Report) -> Report:
        """The report with every secret in its texts hidden; the same object where there is none."""
        return cast("Report", _cleaned(report, self.hidden))

    def hidden(self, text: str) -> str:
        """The text with secrets hidden."""
        known = self._known.get(text)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[text] = self._hidden(text)
        return known

    def _hidden(self, text: str) -> str:
        pieces: list[str] = []
        at = 0
        for part in self.found(text):
            pieces += (text[at : part.start], _HIDDEN)
            at = part.end
        return "".join((*pieces, text[at:])) if pieces else text

    def found(self, text: str) -> list[Hidden]:
        """Where secrets stand in a text, in order and apart from each other."""
        if self._automaton is None:
            keywords = dict.fromkeys(keyword.lower() for rule in self._rules for keyword in rule.keywords)
            # The kind that is made soonest: a report has few texts.
            self._automaton = ahocorasick_rs.AhoCorasick(
                list(keywords), implementation=ahocorasick_rs.Implementation.NoncontiguousNFA
            )
        if not text.isascii():
            text = text.encode("utf-8", "replace").decode()  # lone surrogates, one by one: places stay the same
        if not self._automaton.find_matches_as_indexes(text.lower()):
            return []
        from diagnose.rules.redactions import Finder, merged  # few reports come to it

        if self._finder is None:
            self._finder = Finder(self._rules, timed=not self._trusted)
        return merged(self._finder.find(text))


def _called(rule: RedactionRule) -> bool:
    """Whether the rule goes by keywords."""
    return bool(rule.keywords) and all(rule.keywords)


def without_secrets(report: Report, rules: RuleSet) -> Report:
    """The report with every secret in its texts hidden; the same object where there is none."""
    return Secrets(rules).cleaned(report)


def _cleaned(value: Any, hidden: Callable[[str], str]) -> Any:
    kind = type(value)
    if kind is str:
        if not value:
            return value
        shown = hidden(value)
        return value if shown == value else shown
    if kind is tuple or kind is frozenset or kind is list:
        if not value:
            return value
        items = [item if type(item) in _PLAIN else _cleaned(item, hidden) for item in value]
        return kind(items) if any(new is not old for new, old in zip(items, value, strict=True)) else value
    if isinstance(value, Mapping):
        made = {_cleaned(key, hidden): _cleaned(item, hidden) for key, item in value.items()}
        return made if made != value else value
    if is_dataclass(value) and not isinstance(value, type):
        changes: dict[str, Any] = {}
        for name in _names(cast("Hashable", kind)):
            before = getattr(value, name)
            if type(before) not in _PLAIN and (after := _cleaned(before, hidden)) is not before:
                changes[name] = after
        return cast("Callable[..., Any]", replace)(value, **changes) if changes else value
    return value


@cache
def _names(kind: Hashable) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cast("Any", kind)))
