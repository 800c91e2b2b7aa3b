"""The lines of one run that are kept at hand, within bounds: what an excerpt is chosen from and what tools read.

In: lines in the order of reading. Out: of each source its beginning, what sounds like an error with its surroundings,
and its end; how often each template came. Where there are more sources than fit, less is held of each.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import Final

import ahocorasick_rs

from diagnose.dataclass import dataclass, replace
from diagnose.models import Line

LINE_CHARS: Final = 1_000
_MOST_LINES = 40_000
_TEMPLATES = 50_000
_BEFORE, _AFTER = 3, 10
# (beginning, marked, end) of each source; the next level is gone to when all together are too many.
_LEVELS = ((150, 800, 400), (50, 240, 120), (12, 60, 30), (3, 16, 10), (0, 6, 3), (0, 3, 0))
_DIGITS = str.maketrans("123456789", "000000000")
# What failures sound like in the words of most programs. A hint for what to show, never a verdict.
_WORDS = (
    "error fail fatal exception traceback abort kill timeout time-out timedout cannot can't unable denied refused "
    "invalid illegal corrupt mismatch panic segfault segmentation signal unreachable overflow uncorrect exceed evict "
    "preempt cancel terminat exited broken disconnect stuck stale drain assert unexpected missing expired errno retry "
    "retries sigterm sigkill notready 失败 错误 异常 未找到 ошибк fehler erreur"
)
_SURE = [
    *_WORDS.split(),
    "timed out",
    "time out",
    "could not",
    "not found",
    "no such",
    "no space",
    "out of memory",
    "exit code",
]
_SURE += ["reset by", "core dumped", "bug:", "nccl warn", "no route", "not ready", "command not"]
# Only where they are words of their own, or in a phrase.
_HINTS = ("lost", "nan", "oom", "xid", "ecc", "hang", "hung", "down", "err", "found")
_PHRASES = re.compile(r"lost|\bnan\b(?! iter)|oom|xid|ecc\b|\bh[au]ng|\bdown\b|\berr\b|no \w+ \w+ found", re.IGNORECASE)
_NO_FIGURE = re.compile(r"[:=]\s*-?(?:nan|inf)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Held:
    """One line at hand: where it came in its source, and whether it sounds like a failure."""

    line: Line
    order: int
    alarming: bool


def template_of(text: str) -> str:
    """A line's text with its figures masked."""
    return text.translate(_DIGITS)


class HeldSource:
    """What is held of one source."""

    def __init__(self, name: str, level: int) -> None:
        self.name = name
        self.count = 0
        self.last_alarm = -1
        self.steps: list[int] = []  # where progress was, the latest few
        self._level = level
        self._open = 0
        self._first: list[Held] = []
        self._marked: list[Held] = []
        self._last: deque[Held] = deque(maxlen=_LEVELS[level][2])

    def take(self, line: Line, *, alarming: bool) -> int:
        """Holds a line; says by how many lines it holds more."""
        before = len(self)
        held = Held(line, self.count, alarming)
        self.count += 1
        if alarming:
            self.last_alarm = held.order
        most_first, most_marked, _ = _LEVELS[self._level]
        if len(self._first) < most_first:
            self._first.append(held)
        elif alarming or self._open:
            if len(self._marked) < most_marked:
                if alarming and not self._open:
                    self._marked.extend(
                        each
                        for each in list(self._last)[-_BEFORE:]
                        if not self._marked or each.order > self._marked[-1].order
                    )
                self._marked.append(held)
            self._open = _AFTER if alarming else self._open - 1
        self._last.append(held)
        return len(self) - before

    def shrink(self, level: int) -> None:
        """Lets go of what the level does not allow."""
        self._level = level
        first, marked, last = _LEVELS[level]
        self._first = self._first[:first]
        self._marked = [*(each for each in self._marked if each.alarming), *self._marked][:marked]
        self._marked.sort(key=lambda each: each.order)
        self._last = deque(self._last, maxlen=last)

    def lines(self) -> list[Held]:
        """The lines held, in order, each once."""
        found = {each.order: each for each in (*self._first, *self._marked, *self._last)}
        return [found[order] for order in sorted(found)]

    def __len__(self) -> int:
        return len(self._first) + len(self._marked) + len(self._last)


class Holder:
    """Takes what one run reads."""

    def __init__(self) -> None:
        self.sources: dict[str, HeldSource] = {}
        self.seen = 0
        self.templates: dict[str, int] = {}
        self.hosts: set[str] = set()
        self._held = 0
        self._level = 0
        self._words = ahocorasick_rs.AhoCorasick([*_SURE, *_HINTS])

    def observe(self, line: Line) -> None:
        """Takes one line."""
        self.seen += 1
        name = line.source.name
        source = self.sources.get(name)
        if source is None:
            source = self.sources[name] = HeldSource(name, self._level)
            if line.source.host:
                self.hosts.add(line.source.host)
        if len(line.text) > LINE_CHARS:
            line = replace(line, text=cut(line.text), body=cut(line.body))
        template = template_of(line.body)
        if template in self.templates:
            self.templates[template] += 1
        elif len(self.templates) < _TEMPLATES:
            self.templates[template] = 1
        if line.progress is not None:
            source.steps = [*source.steps[-4:], source.count]
        if line.host and len(self.hosts) < _MOST_LINES:
            self.hosts.add(line.host)
        # Lines of progress name losses and skipped steps all the time: only a figure that is none alarms.
        progress = line.progress is not None
        alarming = _NO_FIGURE.search(line.text) is not None if progress else self._sounds_alarming(line.text)
        self._held += source.take(line, alarming=alarming)
        while self._held > _MOST_LINES and self._level < len(_LEVELS) - 1:
            self._level += 1
            for each in self.sources.values():
                each.shrink(self._level)
            self._held = sum(map(len, self.sources.values()))

    def _sounds_alarming(self, text: str) -> bool:
        hinted = False
        for index, _, _ in self._words.find_matches_as_indexes(text.lower(), overlapping=True):
            if index < len(_SURE):
                return True
            hinted = True
        return hinted and _PHRASES.search(text) is not None

    @property
    def went_on(self) -> bool:
        """Whether the last that was seen of the work is progress: no source ends in anything alarming after it."""
        return any(source.steps for source in self.sources.values()) and all(
            source.last_alarm < (source.steps[-1] if source.steps else 0) for source in self.sources.values()
        )

    def alike(self, line: Line) -> int:
        """How many lines of the run read like this one but for figures."""
        return self.templates.get(template_of(line.body), 1)

    def __iter__(self) -> Iterator[Held]:
        for source in self.sources.values():
            yield from source.lines()


def cut(text: str) -> str:
    """A long line without its middle."""
    if len(text) <= LINE_CHARS:
        return text
    return f"{text[: LINE_CHARS * 3 // 4]} ... {text[-LINE_CHARS // 5 :]}"
