"""How far each attempt came, and until when each rank was heard of.

In: lines and progress events, source by source. Out: `AttemptProgress` per attempt of the job, and what is needed to
say who was silent: the last line of each rank and whether its own log was read to its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TypeVar

from diagnose.dataclass import dataclass, field, replace
from diagnose.lines.course import Course
from diagnose.lines.kernel import is_kernel_line, uptime_of
from diagnose.models import Line, ProgressEvent

T = TypeVar("T", int, float)

_RANKS = 65_536
_STREAMS = 65_536
_EXITS = 64
_WORDS = 200  # characters
_LONG = 1000  # characters of a line of which no more is held than that
_TAILS = 256  # streams
_TAIL = 16  # lines
_RECENT = 8  # marks of progress per source
_JUMP = 3600.0  # seconds: a line so far from those before it may be another log's
_NO_ATTEMPT = frozenset({"kernel", "scheduler", "dump"})
_BOOTS = 1024
BOOT = "Linux version "  # the first thing that a kernel says


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the inputs: where something was last seen; of progress, with the step."""

    source: str
    stream: str
    number: int
    time: float | None
    step: int | None = None


@dataclass(frozen=True, slots=True)
class LastLine:
    """One of the last lines of a stream, cut; `headed` where a time or a writer stood before `body`."""

    number: int
    level: str | None
    headed: bool
    body: str


@dataclass(slots=True)
class AttemptProgress:
    """The progress of one attempt.

    `last` holds the latest sign of progress by stream, `by_rank` by rank, and `recent` the latest few by source: two
    steps after an error are more than an echo. Which these are depends on how many the compressor has left; `course`
    tells the step before any line, which it leaves. `began` is the number of the first line by source that told of
    progress. `began_undated` says that steps were made before the first line with a time, so that the start lies before
    `started`. `kernel_ends` tells how far each kernel log of the job reaches: the last time and the last seconds since
    boot. `wrote` are the ranks that
    wrote in it, `apart` whether no source holds the words of several.
    """

    started: float | None = None
    ended: float | None = None
    began_undated: bool = False
    first_step: int | None = None
    last_step: int | None = None
    last_step_time: float | None = None
    last_step_mark: Mark | None = None
    total: int | None = None
    steps: int = 0
    last: dict[str, Mark] = field(default_factory=dict)
    by_rank: dict[int, Mark] = field(default_factory=dict)
    completed: list[Line] = field(default_factory=list)
    exits: list[tuple[int, Line]] = field(default_factory=list)
    recorded: Line | None = None  # where the scheduler's record says that the whole job completed
    checkpoint_started: str | None = None
    checkpoint_complete: str | None = None
    checkpoint_loaded: str | None = None
    # A checkpoint that is whole as soon as the work goes on, and the step until which it does not.
    blocking: tuple[str, int] | None = None
    step_times: dict[str, tuple[int, float]] = field(default_factory=dict)
    recent: dict[str, deque[Mark]] = field(default_factory=dict)
    course: dict[str, Course] = field(default_factory=dict)
    began: dict[str, int] = field(default_factory=dict)
    # The step that each writer stated last.
    shown: dict[tuple[str, int | None], int] = field(default_factory=dict)
    kernel_ends: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    tails: dict[str, tuple[LastLine, ...]] = field(default_factory=dict)
    wrote: set[int] = field(default_factory=set)
    apart: bool = True

    def merge(self, other: AttemptProgress) -> None:
        """Takes in what another source says of the same attempt."""
        if other.started is not None and (self.started is None or other.started < self.started):
            self.began_undated = other.began_undated
        self.started = _least(self.started, other.started)
        self.ended = _most(self.ended, other.ended)
        self.first_step = _least(self.first_step, other.first_step)
        newer = (other.last_step_time or 0.0, other.last_step or 0) > (self.last_step_time or 0.0, self.last_step or 0)
        if other.last_step is not None and (self.last_step is None or newer):
            self.last_step, self.last_step_time = other.last_step, other.last_step_time
            self.last_step_mark = other.last_step_mark
        self.total = _most(self.total, other.total)
        self.steps += other.steps
        self.last.update(other.last)
        for rank, mark in other.by_rank.items():
            known = self.by_rank.get(rank)
            if known is None or (mark.time or 0.0) >= (known.time or 0.0):
                self.by_rank[rank] = mark
        self.completed.extend(other.completed)
        self.exits.extend(other.exits)
        self.recorded = other.recorded or self.recorded
        self.checkpoint_started = other.checkpoint_started or self.checkpoint_started
        self.checkpoint_complete = other.checkpoint_complete or self.checkpoint_complete
        self.checkpoint_loaded = other.checkpoint_loaded or self.checkpoint_loaded
        self.step_times.update(other.step_times)
        self.recent.update(other.recent)
        self.course.update(other.course)
        self.began.update(other.began)


@dataclass(slots=True)
class RankSeen:
    """The last line of a rank; `own` where a source of its own was read."""

    line: Line
    own: bool

    @property
    def mark(self) -> Mark:
        """Until where the rank was heard of."""
        line = self.line
        return Mark(line.source.name, line.stream, line.number, line.time)

    @property
    def words(self) -> str:
        """Its last words."""
        return self.line.text[:_WORDS]


class _Tail:
    """The last lines of one stream of an attempt; `rank` is the one that wrote the latest, and `seen` what it is."""

    __slots__ = ("lines", "rank", "seen")

    def __init__(self) -> None:
        self.lines: deque[Line] = deque(maxlen=_TAIL)
        self.rank: int | None = None
        self.seen: RankSeen | None = None


class _Part:
    """What one source says of one attempt, besides its progress: who wrote, and the last lines of each stream."""

    __slots__ = ("rest", "tails", "wrote")

    def __init__(self) -> None:
        self.wrote: set[int] = set()
        self.tails: dict[str, _Tail] = {}
        self.rest = _Tail()  # of all further streams: their lines are not held

    def tail(self, stream: str) -> _Tail:
        """The tail of a stream, made where there is none."""
        if len(self.tails) >= _TAILS:
            return self.rest
        made = self.tails[stream] = _Tail()
        return made


class Timeline:
    """Gathers progress over all sources of a job."""

    def __init__(self) -> None:
        self._by_source: dict[tuple[str, int], AttemptProgress] = {}
        self._parts: dict[tuple[str, int], _Part] = {}
        self._last: tuple[str, int] | None = None  # whose part `_part` is: lines come source by source
        self._part = _Part()
        self.ranks: dict[int, RankSeen] = {}
        self._kernel_ends: dict[str, tuple[float | None, float | None]] = {}
        self.boots: list[Line] = []
        self.truncated: set[str] = set()  # sources of which something was not read

    def observe(self, line: Line, attempt: int) -> None:
        """Notes that a line was written: time span of the attempt, last word of its rank, start of its host."""
        if line.source.kind in _NO_ATTEMPT:
            if line.source.kind == "kernel":
                time, uptime = self._kernel_ends.get(line.source.name, (None, None))
                self._kernel_ends[line.source.name] = (_most(time, line.time), _most(uptime, uptime_of(line)))
                if BOOT in line.text[:400] and len(self.boots) < _BOOTS:
                    self.boots.append(line)
            return
        part = self._part_of(line.source.name, attempt)
        time = line.time
        if time is not None:
            progress = self._progress(line.source.name, attempt)
            if not _jumps(progress, time) or not is_kernel_line(line.text[:_WORDS]):
                progress.started = _least(progress.started, time)
                progress.ended = _most(progress.ended, time)
        kept = line if len(line.text) <= _LONG else _cut(line)
        tail = part.tails.get(line.stream) or part.tail(line.stream)
        tail.lines.append(kept)
        rank = line.rank
        if rank is None:
            return
        if tail.rank != rank or tail.seen is None:
            part.wrote.add(rank)
            seen = self.ranks.get(rank)
            if seen is None:
                if len(self.ranks) >= _RANKS:
                    return
                seen = self.ranks[rank] = RankSeen(kept, own=False)
            seen.own = seen.own or line.source.rank == rank
            tail.rank, tail.seen = rank, seen
        tail.seen.line = kept

    def observe_turn(self, lines: Sequence[Line], attempt: int) -> None:
        """Notes lines without a time that one writer of a job wrote in a row: of all but the last, only the words."""
        last = lines[-1]
        part = self._part_of(last.source.name, attempt)
        tail = part.tails.get(last.stream) or part.tail(last.stream)
        tail.lines.extend([line if len(line.text) <= _LONG else _cut(line) for line in lines[-_TAIL:-1]])
        self.observe(last, attempt)

    def _part_of(self, source: str, attempt: int) -> _Part:
        if self._last != (source, attempt):
            self._last = (source, attempt)
            self._part = self._parts.setdefault(self._last, _Part())
        return self._part

    def ended(self, source: str) -> float | None:
        """The latest time that a source's lines bear, in seconds since the epoch."""
        times = (part.ended for (name, _), part in self._by_source.items() if name == source)
        return max((time for time in times if time is not None), default=None)

    def latest(self) -> dict[str, AttemptProgress]:
        """How far the latest attempt of each source came."""
        # In order, so that of each source the last stays.
        return {source: self._by_source[source, attempt] for source, attempt in sorted(self._by_source)}

    def add(self, event: ProgressEvent) -> None:
        """Takes a sign of progress."""
        line = event.line
        progress = self._progress(line.source.name, event.attempt)
        if event.kind == "step":
            self._step(progress, event)
        elif event.kind == "completed":
            if len(progress.completed) < _EXITS:
                progress.completed.append(line)
            else:
                progress.completed[-1] = line
        elif event.kind == "exit":
            if len(progress.exits) < _EXITS:
                progress.exits.append((event.step or 0, line))
        elif event.kind == "checkpoint_started":
            progress.checkpoint_started = event.checkpoint or _shown(event.step) or _shown(progress.last_step)
            if event.blocking and progress.checkpoint_started is not None:
                progress.blocking = (progress.checkpoint_started, event.step or progress.last_step or 0)
        elif event.kind == "checkpoint_complete":
            begun = progress.checkpoint_started or _shown(progress.last_step)
            progress.checkpoint_complete = event.checkpoint or _shown(event.step) or begun
            progress.blocking = None
        elif event.kind == "checkpoint_loaded":
            progress.checkpoint_loaded = event.checkpoint or _shown(event.step)

    def completed_by_record(self, line: Line) -> None:
        """Takes a scheduler's word that the job as a whole completed."""
        self._progress(line.source.name, 0).recorded = line

    def _step(self, progress: AttemptProgress, event: ProgressEvent) -> None:
        line = event.line
        mark = Mark(line.source.name, line.stream, line.number, line.time, event.step)
        progress.steps += 1
        if progress.started is None and line.time is None:
            progress.began_undated = True
        if event.step is not None:
            if progress.blocking is not None and event.step > progress.blocking[1]:
                progress.checkpoint_complete, progress.blocking = progress.blocking[0], None
            if progress.first_step is None:
                progress.first_step = event.step
            if progress.last_step is None or event.step >= progress.last_step:
                progress.last_step, progress.last_step_time = event.step, line.time
                if line.time is not None:
                    progress.step_times[line.source.name] = (event.step, line.time)
        progress.total = event.total or progress.total
        # A bar that is painted again at the same step is no progress.
        writer = (line.stream, line.rank)
        painted_again = event.step is not None and progress.shown.get(writer) == event.step
        if event.step is not None and (writer in progress.shown or len(progress.shown) < _STREAMS):
            progress.shown[writer] = event.step
        if painted_again:
            return
        progress.last_step_mark = mark
        progress.began.setdefault(line.source.name, line.number)
        progress.recent.setdefault(line.source.name, deque(maxlen=_RECENT)).append(mark)
        progress.course.setdefault(line.source.name, Course()).note(line.number, event.step)
        if line.stream in progress.last or len(progress.last) < _STREAMS:
            progress.last[line.stream] = mark
        if line.rank is not None and (line.rank in progress.by_rank or len(progress.by_rank) < _RANKS):
            progress.by_rank[line.rank] = mark

    def attempts(self, alignment: Mapping[tuple[str, int], int]) -> dict[int, AttemptProgress]:
        """The progress of each attempt of the job, by index."""
        merged: dict[int, AttemptProgress] = {}
        for key, progress in self._by_source.items():
            merged.setdefault(alignment.get(key, key[1]), AttemptProgress()).merge(progress)
        for progress in merged.values():
            progress.kernel_ends = self._kernel_ends
        for key in self._parts:  # one that told of no step and no time is an attempt as well
            merged.setdefault(alignment.get(key, key[1]), AttemptProgress())
        wrote = {key: part for key, part in self._parts.items() if part.wrote}
        sources = {name for name, _ in self._by_source.keys() | wrote.keys()}
        alone = len(sources) == 1 and not any(seen.own for seen in self.ranks.values())
        for key, part in self._parts.items():
            if (of := merged.get(alignment.get(key, key[1]))) is not None:
                of.tails.update({stream: tuple(map(_last_line, tail.lines)) for stream, tail in part.tails.items()})
                if part.wrote:
                    of.wrote |= part.wrote
                    of.apart = of.apart and len(part.wrote) == 1 and not alone
        return merged

    def _progress(self, source: str, attempt: int) -> AttemptProgress:
        key = (source, attempt)
        progress = self._by_source.get(key)
        if progress is None:
            progress = self._by_source[key] = AttemptProgress()
        return progress


def _cut(line: Line) -> Line:
    """The head of a long line, which is all that is asked of it."""
    headed = len(line.body) < len(line.text)
    return replace(line, text=line.text[:_LONG], body=line.body[: _LONG - headed])


def _last_line(line: Line) -> LastLine:
    return LastLine(line.number, line.level, len(line.body) < len(line.text), line.body[:_WORDS])


def _jumps(progress: AttemptProgress, time: float) -> bool:
    """Whether a time lies where no line of the attempt was: its log may hold a piece of a kernel's."""
    if progress.started is None or progress.ended is None:
        return True
    return time < progress.started or time > progress.ended + _JUMP


def _shown(step: int | None) -> str | None:
    return None if step is None else f"step {step}"


def _least(one: T | None, other: T | None) -> T | None:
    return other if one is None else one if other is None else min(one, other)


def _most(one: T | None, other: T | None) -> T | None:
    return other if one is None else one if other is None else max(one, other)
