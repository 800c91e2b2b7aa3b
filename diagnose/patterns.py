"""Regular expressions that are compiled when they are first used: a run meets few of the many forms of lines.

`holds_any` is the quick look for literals that spares most lines any of them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, AnyStr, Generic

from diagnose import precompiled


def holds_any(text: str, literals: tuple[str, ...]) -> bool:
    """Whether one of a few literals stands in the text; `any` over a generator takes twice as long."""
    for literal in literals:  # noqa: SIM110 - see above
        if literal in text:
            return True
    return False


class Lazy(Generic[AnyStr]):
    """Stands for `re.compile(pattern, flags)`; after its first use a call costs what it costs there."""

    __slots__ = ("findall", "finditer", "flags", "fullmatch", "match", "pattern", "search", "split", "sub")

    pattern: AnyStr
    flags: int
    match: Callable[..., re.Match[AnyStr] | None]
    search: Callable[..., re.Match[AnyStr] | None]
    sub: Callable[..., AnyStr]
    fullmatch: Callable[..., re.Match[AnyStr] | None]
    finditer: Callable[..., Iterator[re.Match[AnyStr]]]
    findall: Callable[..., list[Any]]
    split: Callable[..., list[AnyStr | Any]]

    def __init__(self, pattern: AnyStr, flags: int = 0) -> None:
        self.pattern = pattern
        self.flags = flags
        self.match = self._match
        self.search = self._search
        self.sub = self._sub
        self.fullmatch = self._fullmatch
        self.finditer = self._finditer
        self.findall = self._findall
        self.split = self._split

    def compiled(self) -> re.Pattern[AnyStr]:
        """The compiled pattern, whose methods take the place of these."""
        compiled = precompiled.compile(self.pattern, self.flags)
        self.match = compiled.match
        self.search = compiled.search
        self.sub = compiled.sub
        self.fullmatch = compiled.fullmatch
        self.finditer = compiled.finditer
        self.findall = compiled.findall
        self.split = compiled.split
        return compiled

    def _match(self, text: AnyStr, pos: int = 0, end: int = sys.maxsize) -> re.Match[AnyStr] | None:
        return self.compiled().match(text, pos, end)

    def _search(self, text: AnyStr, pos: int = 0, end: int = sys.maxsize) -> re.Match[AnyStr] | None:
        return self.compiled().search(text, pos, end)

    def _sub(self, new: AnyStr | Callable[[re.Match[AnyStr]], AnyStr], text: AnyStr, count: int = 0) -> AnyStr:
        return self.compiled().sub(new, text, count)

    def _fullmatch(self, text: AnyStr, pos: int = 0, end: int = sys.maxsize) -> re.Match[AnyStr] | None:
        return self.compiled().fullmatch(text, pos, end)

    def _finditer(self, text: AnyStr, pos: int = 0, end: int = sys.maxsize) -> Iterator[re.Match[AnyStr]]:
        return self.compiled().finditer(text, pos, end)

    def _findall(self, text: AnyStr, pos: int = 0, end: int = sys.maxsize) -> list[Any]:
        return self.compiled().findall(text, pos, end)

    def _split(self, text: AnyStr, maxsplit: int = 0) -> list[AnyStr | Any]:
        return self.compiled().split(text, maxsplit)
