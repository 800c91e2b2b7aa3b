"""The literal gate: which signatures are worth a regular expression on this text.

In: the diagnosis rules. Out: for a text, the signatures of which a keyword stands in it. One Aho-Corasick pass, so the
cost does not grow with the number of rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ahocorasick_rs import BytesAhoCorasick

from diagnose import regexes
from diagnose.dataclass import dataclass
from diagnose.models import DiagnosisRule, SourceKind

if TYPE_CHECKING:
    import regex


@dataclass(slots=True)
class CompiledSignature:
    """A signature ready to search; the pattern is compiled when it is first needed."""

    rule: DiagnosisRule
    name: str
    keywords: tuple[str, ...]
    source_pattern: str
    _compiled: regex.Pattern[str] | None = None

    @property
    def pattern(self) -> regex.Pattern[str]:
        """The compiled pattern, with ASCII classes as the rule format promises."""
        if self._compiled is None:
            self._compiled = regexes.compile(self.source_pattern, regexes.ASCII)
        return self._compiled


class Gate:
    """Finds the signatures that may match a text.

    A keyword of several signatures is searched once. `keywords` are all literals, for the guard that keeps filters
    from removing a line that a rule could match.
    """

    def __init__(self, rules: Iterable[DiagnosisRule]) -> None:
        self._signatures: list[CompiledSignature] = []
        by_keyword: dict[str, list[int]] = {}
        for rule in rules:
            for name, signature in rule.signatures.items():
                index = len(self._signatures)
                self._signatures.append(CompiledSignature(rule, name, signature.keywords, signature.pattern))
                for keyword in filter(None, signature.keywords):
                    by_keyword.setdefault(keyword, []).append(index)
        self.keywords: tuple[str, ...] = tuple(by_keyword)
        self._by_keyword = by_keyword
        self._owners: Sequence[Sequence[int]] = ()
        self._automaton: BytesAhoCorasick | None = None

    def share(self, automaton: BytesAhoCorasick, patterns: Iterable[bytes]) -> None:
        """Search with an automaton that others use too; all keywords are among its patterns."""
        self._automaton = automaton
        owners = {keyword.encode(): indexes for keyword, indexes in self._by_keyword.items()}
        self._owners = [owners.get(pattern, ()) for pattern in patterns]

    def candidates(self, text: str, kind: SourceKind) -> list[CompiledSignature]:
        """The signatures with a keyword in `text` whose rule reads sources of this kind, in rule order."""
        if self._automaton is None:
            if not self.keywords:
                return []
            patterns = [keyword.encode() for keyword in self.keywords]
            self.share(BytesAhoCorasick(patterns), patterns)
            return self.candidates(text, kind)
        matches = self._automaton.find_matches_as_indexes(text.encode("utf-8", "replace"), overlapping=True)
        indexes = {index for match in matches for index in self._owners[match[0]]}
        found = (self._signatures[index] for index in sorted(indexes))
        return [signature for signature in found if kind in signature.rule.sources]
