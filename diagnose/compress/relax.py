"""Templates: lines without their digits; and what of a pattern or keyword survives that.

In: raw bytes, patterns, keywords. Out: the template (same length, every digit `0`), and for a pattern or keyword that
asks for particular digits a relaxed one, which matches every template of a line that the real one matches.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

_DIGITS = b"0123456789"
_MASK: Final = bytes.maketrans(_DIGITS, b"0" * 10)
_TOKEN: Final = re.compile(
    rb"\\x[0-9A-Fa-f]{2}|\\.|\{\d+(?:,\d*)?\}|\(\?P<\w+>|\[\^?\]?(?:\\.|[^\]\\])*\]|[^\\\[({\d]+|.", re.DOTALL
)
_CLASS_RANGE: Final = re.compile(rb"(\\x[0-9A-Fa-f]{2}|\\.|[^\\])(?:-(\\x[0-9A-Fa-f]{2}|\\.|[^\\]))?", re.DOTALL)


def template(line: bytes) -> bytes:
    """Replace every digit byte by `0`, one to one; also right for whole blocks, because `\\n` stays."""
    return line.translate(_MASK)


def has_digits(literal: bytes) -> bool:
    """Whether a literal asks for particular digits."""
    return literal.translate(None, _DIGITS) != literal


def relax(pattern: bytes) -> tuple[bytes, bool]:
    """Rewrite a pattern to judge templates; the flag says whether it had to change, so that a match is but a maybe.

    `\\d`, `[0-9]` and classes with all or none of the digits stay as they are: they do not tell digits apart.
    """
    parts: list[bytes] = []
    changed = False
    for found in _TOKEN.finditer(pattern):
        token = found.group()
        new = token
        if token.startswith(b"[") and len(token) > 1:
            new = _relax_class(token)
        elif len(token) == 1 and token.isdigit():
            new = b"0"
            changed = True  # a literal 0 tells digits apart too
        elif token.startswith(b"\\x") and bytes.fromhex(token[2:].decode()).isdigit():
            new = b"0"
            changed = True
        changed = changed or new != token
        parts.append(new)
    return b"".join(parts), changed


@cache  # the classes of patterns are few, and each has to be compiled to be asked
def _relax_class(token: bytes) -> bytes:
    """Relax `[...]`: a class with some of the digits gets all, a negated one that excludes some excludes none."""
    held = frozenset(digit for digit in _DIGITS if re.fullmatch(token, bytes([digit])))
    if len(held) in (0, 10):
        return token
    if not token.startswith(b"[^"):
        return token[:-1] + b"0-9]"
    kept = [item.group() for item in _CLASS_RANGE.finditer(token[2:-1]) if not _touches_digits(item.group())]
    return b"[^" + b"".join(kept) + b"]" if kept else b"[\\x00-\\xff]"


def _touches_digits(item: bytes) -> bool:
    """Whether one item of a character class holds a digit."""
    return any(re.fullmatch(b"[" + item + b"]", bytes([digit])) for digit in _DIGITS)
