"""Jobs that make no more progress: told of, never ended.

In: what the logs of a running job show (`SignReader` makes `Sign`s of their newest lines), and the time. Out: at most
one `StallNotice` for each standstill, and one more when it is over. A pure state machine: it knows no clock but the
seconds it is given (`time.monotonic`).

What is long depends on the job: `factor` times its own median step, twice the longest pause that it has already made
and come back from, and in any case a floor, by what it was seen doing last. While it trains only steps are progress;
while it starts, compiles, evaluates or saves a checkpoint, whatever it prints is a sign of life, within a bound.
Senders that say every now and then that they are there (`heartbeat`) are believed: time in which they could not be
heard is nobody's standstill.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from functools import lru_cache
from statistics import median
from typing import Final, Literal

from diagnose.compress import CompiledFilter, Filters, template
from diagnose.dataclass import dataclass
from diagnose.errors import UsageError
from diagnose.lines import LineReader
from diagnose.lines.progress import ProgressReader
from diagnose.models import KeptLine, LogSource, RuleSet
from diagnose.settings import Limits

Phase = Literal["start-up", "training", "compilation", "evaluation", "checkpoint"]
_SAMPLES: Final = 32
_AWAY: Final = 90.0  # a sender that says it is there, and was not heard for so long, cannot be heard
_READ_LINES: Final = 64
_LINE_BYTES: Final = 2048
_SEARCHED: Final = 400
_PHASES: Final[tuple[tuple[Phase, re.Pattern[str]], ...]] = (
    ("checkpoint", re.compile(r"checkpoint|ckpt|\bsav(?:e|ing|ed)\b|snapshot|state.?dict|upload", re.IGNORECASE)),
    (
        "evaluation",
        re.compile(r"evaluat|validat|\b(?:val|eval|test|predict|inference|generat)\w*\b|_val\b|\beval_", re.IGNORECASE),
    ),
    (
        "compilation",
        re.compile(
            r"compil|inductor|dynamo|autotun|\bxla\b|\btracing\b|warm.?up|warming|cuda.?graph|lowering|triton|\bjit\b",
            re.IGNORECASE,
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class StallSettings:
    """What is long: see above. Seconds; `factor` is a number of median steps, `steps` how many must be known."""

    factor: float = 20.0
    training: float = 1200.0  # watchdogs of collectives, at 10 minutes as a rule, are to speak first
    pause: float = 3600.0
    start: float = 7200.0
    steps: int = 5

    def checked(self) -> StallSettings:
        """The same, where it can be meant."""
        if not (self.factor >= 2 and 0 < self.training <= self.pause <= self.start and self.steps >= 2):
            raise UsageError("stall notices need factor >= 2, steps >= 2 and 0 < training <= pause <= start")
        return self


@dataclass(frozen=True, slots=True)
class Sign:
    """What one line shows: a step (`moved` where its number is not told), that the job is done, or what it is doing."""

    step: int | None = None
    moved: bool = False
    done: bool = False
    phase: Phase | None = None
    began: bool = False  # a checkpoint was loaded: steps may count from there


@dataclass(frozen=True, slots=True)
class StallNotice:
    """A job stands still since `seconds`, or, `over`, goes on after so many. `step` is the last seen."""

    phase: Phase
    step: int | None
    seconds: float
    limit: float
    usual: float | None
    over: bool = False

    @property
    def sentence(self) -> str:
        """What to tell."""
        where = f"after step {self.step}" if self.step is not None else "and no step yet"
        if self.over:
            return f"The job goes on {where}, after {_minutes(self.seconds)} without progress."
        usual = f"; a step usually takes {self.usual:.3g} s" if self.usual is not None else ""
        return f"No progress for {_minutes(self.seconds)} {where}, last seen in {self.phase}{usual}. Nothing was ended."


class StallWatch:
    """Watches one job; `now` never runs backwards."""

    def __init__(self, now: float, settings: StallSettings | None = None) -> None:
        self._settings = settings or StallSettings()
        self._intervals: deque[float] = deque(maxlen=_SAMPLES)
        self._step: int | None = None
        self._phase: Phase = "start-up"
        self._moved = self._alive = self._heard = now  # last step, last sign of life, last word of the sender
        self._began = self._elsewhere = now
        self._longest = 0.0
        self._beats = self._done = False
        self._told: float | None = None

    def heartbeat(self, now: float) -> None:
        """The sender says that it is there and has nothing new."""
        self._hear(now)
        self._beats = True

    def observe(self, signs: Iterable[Sign], now: float) -> StallNotice | None:
        """The logs have grown; returns that a standstill is over, if it is."""
        self._hear(now)
        over: StallNotice | None = None
        for sign in signs:
            if sign.step is not None:
                over = self._stepped(sign.step, now) or over
            elif sign.moved:
                over = self._went_on(now) or over
            elif sign.done:
                self._done = True
            elif sign.began:
                self._phase, self._began = "start-up", now
            elif sign.phase is not None and self._phase != "start-up":
                self._phase = sign.phase
        if self._phase != "training":
            self._alive = now
        return over

    def elsewhere(self, now: float, *, done: bool) -> StallNotice | None:
        """Somebody who hears other senders of the job saw it get on, or be done; returns that a standstill is over."""
        self._elsewhere = now
        self._done = self._done or done
        return self._over(now)

    @property
    def seen(self) -> tuple[float, bool]:
        """When the job got on, as far as is heard here, and whether it is done."""
        return self._moved, self._done

    def check(self, now: float) -> StallNotice | None:
        """A notice, if the job stands still and nobody was told yet."""
        if self._done or self._told is not None or (self._beats and now - self._heard > _AWAY):
            return None
        limit = self._limit()
        since = max(self._moved, self._elsewhere)
        if self._phase == "start-up":
            since = max(since, self._began)
        if self._phase != "training" and now - since < limit * 4:  # it may say much and do nothing, for a while
            since = max(since, self._alive)
        if now - since <= limit:
            return None
        self._told = max(self._moved, self._elsewhere)
        return StallNotice(self._phase, self._step, now - since, limit, self._usual())

    def _stepped(self, step: int, now: float) -> StallNotice | None:
        before, self._step = self._step, step
        if before is not None and step == before:
            return None  # another rank's
        if before is not None and step < before:
            if before - step <= self._settings.steps:
                self._step = before  # a rank that lags behind
                return None
            self._phase, self._began = "start-up", now  # begun anew: it loads and compiles once more
        elif before is not None:
            gap = now - self._moved
            self._intervals.append(gap / (step - before))
            self._longest = max(self._longest, gap)
            if self._phase != "start-up" or len(self._intervals) >= self._settings.steps:
                self._phase = "training"
        return self._went_on(now)

    def _went_on(self, now: float) -> StallNotice | None:
        """There is progress; returns that a standstill is over, if somebody was told of one."""
        over = self._over(now)
        self._done = False
        self._moved = now
        return over

    def _over(self, now: float) -> StallNotice | None:
        """That a standstill is over, if somebody was told of one."""
        if self._told is None:
            return None
        over = StallNotice(self._phase, self._step, now - self._told, self._limit(), self._usual(), over=True)
        self._longest = max(self._longest, now - self._told)
        self._told = None
        return over

    def _usual(self) -> float | None:
        return median(self._intervals) if len(self._intervals) >= self._settings.steps else None

    def _limit(self) -> float:
        settings = self._settings
        floor = {"start-up": settings.start, "training": settings.training}.get(self._phase, settings.pause)
        return max(floor, settings.factor * (self._usual() or 0.0), 2 * self._longest)

    def _hear(self, now: float) -> None:
        """Where the sender could not be heard for a while, the job is not to blame for it."""
        if self._beats and (away := now - self._heard) > _AWAY:
            self._moved += away
            self._alive += away
            self._began += away
            self._told = self._told + away if self._told is not None else None
        self._heard = now


class SignReader:
    """Makes signs of the newest lines of logs; one for all jobs of a process."""

    def __init__(self, rules: RuleSet) -> None:
        self._progress = ProgressReader(rules.filters)
        filters = Filters(rules.filters)

        @lru_cache(maxsize=20_000)
        def progress_rules(line_template: bytes) -> tuple[CompiledFilter, ...]:
            judged = filters.judge(line_template, "job")
            hits = (*judged.maybe, *((judged.sure,) if judged.sure is not None else ()))
            return tuple(hit.rule for hit in hits if hit.rule.progress)

        self._rules = progress_rules
        self._limits = Limits()

    def read(self, name: str, data: bytes, most: int = _READ_LINES) -> list[Sign]:
        """The signs in the last whole lines of `data`, at most `most`, of a log that `name` tells from all others."""
        source = LogSource(name)
        lines = LineReader(source, self._limits)
        signs: list[Sign] = []
        whole = data[: max(data.rfind(b"\n"), data.rfind(b"\r")) + 1]
        for raw in whole.replace(b"\0", b"").replace(b"\r", b"\n").split(b"\n")[-most - 1 : -1]:
            kept = KeptLine(1, raw[:_LINE_BYTES], progress=self._rule(raw[:_LINE_BYTES]))
            for line in lines.read(kept):
                event = self._progress.read(line, 0)
                if event is not None and event.kind == "step":
                    signs.append(Sign(step=event.step, moved=event.step is None))
                elif event is not None and event.kind in ("completed", "exit"):
                    signs.append(Sign(done=True))
                elif event is not None and event.kind == "checkpoint_loaded":
                    signs.append(Sign(began=True))
                else:
                    phase = phase_of(line.body)
                    if phase is not None:
                        signs.append(Sign(phase=phase))
        return signs

    def _rule(self, raw: bytes) -> str | None:
        for rule in self._rules(template(raw)):
            if rule.matches(raw):
                return rule.id
        return None


def phase_of(body: str) -> Phase | None:
    """What a line that shows no step says its job is doing; None where it does not say."""
    return next((phase for phase, words in _PHASES if words.search(body, 0, _SEARCHED)), None)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
