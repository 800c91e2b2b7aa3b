"""Regular expressions that are compiled when they are first used: a run meets few of the many forms of lines."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import AnyStr, Generic


class Lazy(Generic[AnyStr]):
    """Stands for `re.compile(pattern, flags)`; after its first use a call costs what it costs there."""

    __slots__ = ("findall", "flags", "match", "pattern", "search", "sub")

    pattern: AnyStr
    flags: int
    match: Callable[..., re.Match[AnyStr] | None]
    search: Callable[..., re.Match[AnyStr] | None]
    sub: Callable[[AnyStr, AnyStr], AnyStr]
    findall: Callable[..., list[tuple[AnyStr, ...]]]

    def __init__(self, pattern: AnyStr, flags: int = 0) -> None:
        self.pattern = pattern
        self.flags = flags
        self.match = self._match
        self.search = self._search
        self.sub = self._sub
        self.findall = self._findall

    def compiled(self) -> re.Pattern[AnyStr]:
        """The compiled pattern, whose methods take the place of these."""
        compiled = re.compile(self.pattern, self.flags)
        self.match = compiled.match
        self.search = compiled.search
        self.sub = compiled.sub
        self.findall = compiled.findall
        return compiled

    def _match(self, text: AnyStr, pos: int = 0, end: int = sys.maxsize) -> re.Match[AnyStr] | None:
        return self.compiled().match(text, pos, end)

    def _search(self, text: AnyStr, pos: int = 0, end: int = sys.maxsize) -> re.Match[AnyStr] | None:
        return self.compiled().search(text, pos, end)

    def _sub(self, new: AnyStr, text: AnyStr) -> AnyStr:
        return self.compiled().sub(new, text)

    def _findall(self, text: AnyStr, pos: int = 0, end: int = sys.maxsize) -> list[tuple[AnyStr, ...]]:
        return self.compiled().findall(text, pos, end)
