"""Names people can read, retype and sort.

In: paths as the system gives them (any bytes, surrogate-escaped). Out: printable text on one line, and sort keys.
"""

from __future__ import annotations

from diagnose.patterns import Lazy

_DIGITS = Lazy(r"([0-9]+)")


def printable(name: str) -> str:
    """Return `name` with control characters, undecodable bytes and other invisible characters as escapes."""
    if name.isprintable():
        return name
    return "".join(char if char.isprintable() else _escape(char) for char in name)


def _escape(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8, as os.fsdecode keeps it
        return f"\\x{code - 0xDC00:02x}"
    return char.encode("unicode_escape").decode("ascii")


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a key that sorts `rank2` before `rank10`, whatever the length of the numbers."""
    key: list[tuple[int, int, str]] = []
    for part in _DIGITS.split(name):
        if part and part[0] in "0123456789":
            digits = part.lstrip("0")
            key.append((0, len(digits), digits))
        elif part:
            key.append((1, 0, part))
    # `rank1` and `rank01` are different files: the text itself decides last.
    key.append((2, 0, name))
    return tuple(key)
