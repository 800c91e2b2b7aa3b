"""Types of columns that take whatever a log may hold.

In: text of logs, of any length and with any character. Out: text that every database takes: bounded, without NUL and
lone surrogates, which Postgres refuses.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, Dialect, Text
from sqlalchemy.types import TypeDecorator

_LONGEST = 64 * 1024  # characters
_DEEPEST = 32
_LARGEST = 2**62


def storable(text: str, most: int = _LONGEST) -> str:
    """Text that every database takes, cut to a length."""
    text = text[:most]
    if "\x00" in text:
        text = text.replace("\x00", "\\x00")
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


class Words(TypeDecorator[str]):
    """Text of logs and people, bounded."""

    impl = Text
    cache_ok = True

    def __init__(self, most: int = _LONGEST) -> None:
        super().__init__()
        self.most = most

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Text on its way to the database."""
        return None if value is None else storable(value, self.most)


class Whole(TypeDecorator[int]):
    """Whole numbers; one beyond what databases hold becomes the largest."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Dialect) -> int | None:
        """A number on its way to the database."""
        return None if value is None else max(-_LARGEST, min(_LARGEST, value))


class Plain(TypeDecorator[Any]):
    """Lists and mappings of text and numbers, as JSON."""

    impl = JSON
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        """Values on their way to the database."""
        return _plain(value, 0)


def _plain(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return storable(value)
    if depth > _DEEPEST:
        return None
    if isinstance(value, dict):
        return {storable(str(key)): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, depth + 1) for item in value]
    return value
