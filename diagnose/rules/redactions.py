"""Finds what the redaction rules hide in a text: keys, passwords, addresses, names, paths, people's texts.

In: redaction rules, and a text of any size. Out: `Hidden` parts, in order and apart from each other. Parts that touch
or overlap become one, so that nothing of any of them stays; a search that takes too long hides its whole line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, Final

import ahocorasick_rs

from diagnose import precompiled, regexes
from diagnose.dataclass import dataclass, replace
from diagnose.models.rule import RedactionKind, RedactionRule
from diagnose.patterns import Lazy

_Match = Any  # of `re` or of `regex`
_Search = Callable[[str, int, int], Iterator[_Match]]

# What a part is called that several rules hide, the first of these that fits: what matters most comes first.
KINDS: Final[tuple[RedactionKind, ...]] = (
    "key",
    "password",
    "email",
    "text",
    "path",
    "host",
    "ip",
    "mac",
    "user",
)

_PATIENCE: Final = 0.25  # seconds for one rule in one piece of text; a safe pattern takes a thousandth of it
_PIECE: Final = 64 * 1024  # characters searched at once; longer lines are searched in pieces ...
_OVERLAP: Final = 8 * 1024  # ... that share this much, so that what lies across a seam is seen whole in one of them
# What looks like part of a word and is none: colours, other control characters, and line ends written as escapes. A
# secret that follows one directly must not be missed; each is searched as blanks of the same length.
_NO_TEXT = Lazy(r"\x1b\[[0-9;?]{0,32}[ -/]{0,4}[@-~]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\\(?:[nrtbfv]|u00[01][0-9a-f])")
_MANGLED = Lazy(r"(?:^|[/+-])_{1,3}Z[A-Z]")  # a C++ symbol: what a linker misses says which versions do not fit
_LOWER: Final = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")


@dataclass(frozen=True, slots=True)
class Hidden:
    """A part of a text that must not be seen, from `start` up to `end`; `what` is the title of its rule."""

    start: int
    end: int
    kind: RedactionKind
    what: str = ""


class Finder:
    """Searches texts for what a set of redaction rules hides.

    `timed` says whether no search may take long, whatever the pattern; without it the patterns must be known to be
    quick, and are kept compiled from run to run.
    """

    def __init__(self, rules: Iterable[RedactionRule], *, timed: bool = True) -> None:
        self._rules = tuple(rules)
        self._timed = timed
        by_keyword: dict[str, list[int]] = {}
        for index, rule in enumerate(self._rules):
            for keyword in filter(None, rule.keywords):
                by_keyword.setdefault(keyword.translate(_LOWER), []).append(index)
        self._owners = list(by_keyword.values())
        self._everywhere = [index for index, rule in enumerate(self._rules) if not any(rule.keywords)]
        self._keywords = list(by_keyword)
        self._automaton: ahocorasick_rs.AhoCorasick | None = None
        self._searches: dict[int, tuple[_Search, tuple[str, ...]]] = {}

    def find(self, text: str) -> list[Hidden]:
        """What each rule hides of a text, by itself: in no order, and parts may overlap. See `merged`."""
        text = _NO_TEXT.sub(_blanks, text)
        return [part for index, start, end in self._places(text) for part in self._search(index, text, start, end)]

    def _places(self, text: str) -> Iterator[tuple[int, int, int]]:
        """Where each rule is worth a search, as (rule, start, end)."""
        ends = len(text)
        for index in self._everywhere:
            yield index, 0, ends
        if not self._keywords:
            return
        if self._automaton is None:
            kind = None if self._timed else ahocorasick_rs.Implementation.NoncontiguousNFA  # soonest made
            self._automaton = ahocorasick_rs.AhoCorasick(self._keywords, implementation=kind)
        done: dict[int, int] = {}
        # Lowered one to one: places in the lowered text are places in the text.
        for keyword, at, _ in self._automaton.find_matches_as_indexes(text.translate(_LOWER), overlapping=True):
            start = end = -1
            for index in self._owners[keyword]:
                if done.get(index, -1) >= at:
                    continue  # in what was searched already
                if start < 0:
                    start = text.rfind("\n", 0, at) + 1
                    end = _line_end(text, at)
                reach = end
                for _ in range(self._rules[index].lines):
                    if reach >= ends:
                        break
                    reach = _line_end(text, reach + 1)
                yield index, max(start, done.get(index, 0)), reach
                done[index] = reach

    def _search(self, index: int, text: str, start: int, end: int) -> Iterator[Hidden]:
        rule = self._rules[index]
        known = self._searches.get(index)
        if known is None:
            known = self._searches[index] = _patient(rule) if self._timed else _quick(rule)
        finditer, groups = known
        at = start
        while True:
            piece = min(end, at + _PIECE)
            try:
                for match in finditer(text, at, piece):
                    spans = [span for group in groups if (span := match.span(group))[0] >= 0]
                    for first, last in spans or [match.span()]:
                        if first < last and _passes(rule, text[first:last]):
                            yield Hidden(first, last, rule.kind, rule.title)
            except TimeoutError:
                yield Hidden(text.rfind("\n", 0, at) + 1, _line_end(text, piece), rule.kind, rule.title)
            if piece >= end:
                return
            at = piece - _OVERLAP


def _patient(rule: RedactionRule) -> tuple[_Search, tuple[str, ...]]:
    """A search that raises `TimeoutError` rather than take long."""
    pattern = regexes.compile(rule.pattern, flags_of(rule))
    return lambda text, start, end: pattern.finditer(text, start, end, timeout=_PATIENCE), _groups(pattern.groupindex)


def _quick(rule: RedactionRule) -> tuple[_Search, tuple[str, ...]]:
    """A search by `re`, whose compiled patterns outlive a run."""
    flags = re.ASCII | re.MULTILINE | (re.IGNORECASE if rule.ignore_case else 0)
    pattern = precompiled.compile(rule.pattern, flags)
    return pattern.finditer, _groups(pattern.groupindex)


def _groups(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name.startswith("hidden"))


def _blanks(found: re.Match[str]) -> str:
    return " " * len(found[0])


def flags_of(rule: RedactionRule) -> int:
    """How the engine compiles the pattern: ASCII classes, as in all rules, and `^` and `$` at every line."""
    return regexes.ASCII | regexes.MULTILINE | (regexes.IGNORECASE if rule.ignore_case else 0)


def merged(parts: Iterable[Hidden]) -> list[Hidden]:
    """Parts in order, with those that overlap made one, called after what matters most in it."""
    found: list[Hidden] = []
    for part in sorted(parts, key=_place):
        if found and part.start < found[-1].end:
            last = found[-1]
            kind = min(last.kind, part.kind, key=KINDS.index)
            found[-1] = replace(last, end=max(last.end, part.end), kind=kind)
        else:
            found.append(part)
    return found


def _place(part: Hidden) -> tuple[int, int, int]:
    return part.start, part.end, KINDS.index(part.kind)


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _passes(rule: RedactionRule, found: str) -> bool:
    lowered = found.lower()
    for spared in rule.spares:
        if lowered == spared or (spared.startswith(".") and (lowered.endswith(spared) or lowered == spared[1:])):
            return False
    return rule.must is None or _TESTS[rule.must](found)


def _ipv4(found: str) -> bool:
    import ipaddress

    try:
        address = ipaddress.IPv4Address(found)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified or found == "255.255.255.255")


def _ipv6(found: str) -> bool:
    """Whether this is an address, and none that programs write as names: `c10::` and `ab::cd` are C++."""
    import ipaddress

    try:
        address = ipaddress.IPv6Address(found.partition("%")[0])
    except ValueError:
        return False
    groups = [group for group in found.partition("%")[0].split(":") if group]
    return not (address.is_loopback or address.is_unspecified) and (
        len(groups) >= 3 or found[:4].lower() in ("fe80", "2001", "fd00")
    )


def _random(found: str) -> bool:
    """Whether small letters, capitals and figures change places more often than they do in names and paths."""
    kinds = [
        "a" if letter.islower() else "A" if letter.isupper() else "0" if letter.isdigit() else "-" for letter in found
    ]
    if {"a", "A", "0"} - set(kinds) or _MANGLED.search(found):
        return False
    changes = sum(1 for one, other in pairwise(kinds) if one != other)
    return changes * 3 >= len(found) and kinds.count("-") * 8 <= len(found)


def _figures(found: str) -> bool:
    """Whether there are both letters and figures."""
    return any(letter.isdigit() for letter in found) and any(letter.isalpha() for letter in found)


_TESTS: Final = {"ipv4": _ipv4, "ipv6": _ipv6, "random": _random, "figures": _figures}
