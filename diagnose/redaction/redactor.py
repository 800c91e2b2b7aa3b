"""What leaves the process is redacted, and what comes back is restored for people to read.

In: redaction rules, names that the inputs taught, texts. Out: texts with placeholders such as `<host-3>`, the same one
for the same name throughout a diagnosis, and the texts as they were. What only looks like a placeholder in a log gets
one of its own: `restore(redact(text)) == text`, whatever the text holds, and nothing else is ever put in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

import ahocorasick_rs

from diagnose.models.rule import RedactionKind, RedactionRule
from diagnose.patterns import Lazy
from diagnose.rules.bundle import load_bundled
from diagnose.rules.redactions import Finder, Hidden, merged

Learnt = Literal["host", "user"]

_MOST: Final = 100_000  # placeholders of one diagnosis; what comes after them cannot be taken back
_MOST_NAMES: Final = 20_000
_LONGEST_NAME: Final = 255
_PLANTED: Final = "literal"
_PLACEHOLDER: Final = Lazy(r"<[a-z]{1,16}-[0-9]{1,9}>")
_SHORTEST_TOLD: Final = 3
_TELLING: Final = Lazy(r"[0-9.-]")  # a word without any of these is no host's name for certain
# Names that say nothing about anybody, and would make a text unreadable where they were hidden.
_WORDS: Final = (
    "localhost root user users admin ubuntu centos ec2-user nobody none null unknown runner jovyan work "
    "data train test model python node host master worker main home tmp opt usr var shared public default "
    "system slurm job"
)
_COMMON: Final = frozenset(_WORDS.split())


def load_redactions(dirs: Sequence[str] = ()) -> tuple[RedactionRule, ...]:
    """The shipped redaction rules with those of site directories; raises `RuleError` where they are unusable."""
    return load_bundled(dirs).redactions


class Redactor:
    """The placeholders of one diagnosis. Not to be shared by several: `<host-1>` of another is another host."""

    def __init__(self, rules: Iterable[RedactionRule], *, hosts: Iterable[str] = (), users: Iterable[str] = ()) -> None:
        self._finder = Finder(rules)
        self._names: dict[str, RedactionKind] = {}
        self._automaton: ahocorasick_rs.AhoCorasick | None = None
        self._spoken: list[str] = []
        self._placeholders: dict[tuple[str, str], str] = {}
        self._originals: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self.learn(hosts=hosts, users=users)

    def learn(self, *, hosts: Iterable[str] = (), users: Iterable[str] = ()) -> None:
        """Hides these names wherever they stand from now on."""
        for kind, names in (("host", hosts), ("user", users)):
            for name in names:
                self._learn(name, kind)  # type: ignore[arg-type] # both are kinds

    def _learn(self, name: str, kind: Learnt) -> None:
        name = name.strip()
        told = 2 <= len(name) <= _LONGEST_NAME and not name.isdigit() and name.lower() not in _COMMON
        if told and name.lower() not in self._names and len(self._names) < _MOST_NAMES and "\n" not in name:
            self._names[name.lower()] = kind
            self._automaton = None
            short = name.partition(".")[0]
            if kind == "host" and short != name and not short.isdigit():
                self._learn(short, kind)

    def redact(self, text: str) -> str:
        """The text with a placeholder in the place of everything that the rules hide and of every learnt name."""
        hidden = self._finder.find(text)
        # A user or a host that is named once in a telling place is hidden in the others too.
        for part in hidden:
            if part.kind in ("host", "user"):
                name = text[part.start : part.end]
                if len(name) >= _SHORTEST_TOLD and (part.kind == "user" or _TELLING.search(name)):
                    self._learn(name, part.kind)
        if self._names:
            hidden += self._known(text)
        return self._replaced(text, merged(hidden))

    def restore(self, text: str) -> str:
        """The text with what this redactor hid in the place of its placeholders; all else stays as it is."""
        return _PLACEHOLDER.sub(lambda match: self._originals.get(match[0], match[0]), text)

    def _known(self, text: str) -> Iterator[Hidden]:
        """Where learnt names stand, as words of their own."""
        if self._automaton is None:
            self._spoken = list(self._names)
            self._automaton = ahocorasick_rs.AhoCorasick(self._spoken)
        lowered = text.lower()
        if len(lowered) != len(text):
            lowered = "".join(small if len(small := letter.lower()) == 1 else letter for letter in text)
        for index, start, end in self._automaton.find_matches_as_indexes(lowered, overlapping=True):
            if (start and _in_word(text[start - 1])) or (end < len(text) and _in_word(text[end])):
                continue
            yield Hidden(start, end, self._names[self._spoken[index]])

    def _replaced(self, text: str, hidden: Sequence[Hidden]) -> str:
        pieces: list[str] = []
        at = 0
        for part in hidden:
            pieces += (self._kept(text[at : part.start]), self._placeholder(part.kind, text[part.start : part.end]))
            at = part.end
        return "".join((*pieces, self._kept(text[at:])))

    def _kept(self, text: str) -> str:
        """A part that stays, with what looks like a placeholder marked as the log's own words."""
        if "<" not in text:
            return text
        return _PLACEHOLDER.sub(lambda match: self._placeholder(_PLANTED, match[0]), text)

    def _placeholder(self, kind: str, value: str) -> str:
        found = self._placeholders.get((kind, value))
        if found is None:
            if len(self._placeholders) >= _MOST:
                return f"<{kind}-0>"
            number = self._counts[kind] = self._counts.get(kind, 0) + 1
            found = self._placeholders[kind, value] = f"<{kind}-{number}>"
            self._originals[found] = value
        return found


def _in_word(letter: str) -> bool:
    return letter.isalnum() or letter == "_"
