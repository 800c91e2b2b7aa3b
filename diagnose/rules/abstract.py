"""From a line to a pattern: what of it are words of the program, and what are values that another run prints otherwise.

In: the text of one line. Out: `Token`s, the RE2-safe pattern that matches lines alike, and the literals in it. Both
rules that code writes and the families of lines that agents look at are made of this.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from diagnose.dataclass import dataclass
from diagnose.patterns import Lazy

Kind = Literal["words", "mark", "url", "quoted", "path", "hex", "address", "number"]
LONGEST: Final = 1000
"""Of longer texts only so many characters are looked at."""
_TOKEN: Final = Lazy(
    r"(?P<mark><[a-z]{1,16}-\d{1,9}>)"
    r"|(?P<url>\b[a-z][a-z0-9+.-]{1,15}://[^\s'\"<>]{1,300})"
    r"|(?P<quoted>(?<!\w)'[^'\n]{0,200}'(?!\w)|(?<!\w)\"[^\"\n]{0,200}\"(?!\w))"
    r"|(?P<path>(?<![\w./-])(?:~|\.{1,2})?(?:/[\w.@+~=-]{1,100}){2,30})"
    r"|(?P<hex>\b0[xX][0-9a-fA-F]{1,32}\b|\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"
    r"|\b(?=[0-9a-f]{0,64}[0-9])(?=[0-9a-f]{0,64}[a-f])[0-9a-f]{7,64}\b|\b[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){1,7}\b"
    r"|\b(?:[0-9a-f]{1,4}:{1,2}){3,8}[0-9a-f]{1,4}\b)"
    r"|(?P<address>\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b)"
    r"|(?P<number>\d{1,19}(?:\.\d{1,19})?(?:[eE][+-]?\d{1,3})?)"
)
# None of them asks for particular digits, so that filters may use them as they are.
PATTERNS: Final[Mapping[Kind, str]] = {
    "mark": r"\S{1,200}",
    "url": r"\S{1,300}",
    "path": r"\S{1,300}",
    "hex": r"[0-9A-Fa-f:xX-]{1,64}",
    "address": r"\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?",
    "number": r"\d{1,19}",
}
_MARK: Final = re.compile(r"<([a-z]{1,16})-(\d{1,9})>")
_INVENTED: Final[Mapping[str, str]] = {
    "host": "gx-{:03d}", "ip": "10.0.0.{}", "user": "user{}", "path": "/data/path{}", "email": "user{}@example.com",
    "mail": "user{}@example.com", "mac": "02:00:00:00:00:{:02x}", "url": "https://host{}.example.com/",
    "home": "/home/user{}", "project": "project{}",
}  # fmt: skip
_SPECIAL: Final = frozenset("\\.^$*+?{}[]|()")


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a line: `words` are the program's own, anything else is a value."""

    kind: Kind
    text: str

    @property
    def pattern(self) -> str:
        """What matches this piece in other lines."""
        if self.kind == "words":
            return literal(self.text)
        if self.kind == "quoted":
            mark = self.text[0]
            return f"{mark}[^{mark}]{{0,200}}{mark}"
        if self.kind == "number" and not self.text.isdigit():
            return r"\d[\d.eE+-]{0,30}"
        return PATTERNS[self.kind]


def literal(text: str) -> str:
    """The pattern of a literal; blanks stay readable, tabs are written out."""
    return "".join(f"\\{char}" if char in _SPECIAL else "\\t" if char == "\t" else char for char in text)


def tokens(text: str) -> tuple[Token, ...]:
    """The pieces of a text, in order; joined they give it back, as far as it was looked at."""
    text = text[:LONGEST]
    found: list[Token] = []
    place = 0
    for match in _TOKEN.finditer(text):
        if match.start() > place:
            found.append(Token("words", text[place : match.start()]))
        found.append(Token(match.lastgroup, match.group()))  # type: ignore[arg-type] # its groups are the kinds
        place = match.end()
    if place < len(text):
        found.append(Token("words", text[place:]))
    return tuple(found)


def pattern_of(pieces: Sequence[Token]) -> str:
    """The pattern that matches lines alike."""
    return "".join(piece.pattern for piece in pieces)


def literals_of(pieces: Sequence[Token], shortest: int = 5) -> tuple[str, ...]:
    """The literals in all such lines, the longest first; blanks at their ends are left out."""
    found = (piece.text.strip() for piece in pieces if piece.kind == "words")
    return tuple(sorted(dict.fromkeys(text for text in found if len(text) >= shortest), key=len, reverse=True))


def likeness(one: Sequence[Token], other: Sequence[Token]) -> float:
    """How much of the words of two lines is the same, between 0 and 1."""
    mine, theirs = words_of(one), words_of(other)
    return len(mine & theirs) / len(mine | theirs) if mine and theirs else 0.0


def words_of(pieces: Sequence[Token]) -> frozenset[str]:
    """The single words in the literals of a line."""
    return frozenset(
        word.strip(".,;:()[]{}'\"").lower()
        for piece in pieces
        if piece.kind == "words"
        for word in piece.text.split()
        if len(word) > 1
    )


def invented(text: str) -> str:
    """A redacted text with made-up values in place of what was taken out, the same for the same."""

    def one(found: re.Match[str]) -> str:
        number = int(found[2]) % 250
        form = _INVENTED.get(found[1])
        return form.format(number) if form else f"{found[1]}{number}"

    return _MARK.sub(one, text)
