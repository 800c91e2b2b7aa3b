"""Which try of the job a line belongs to, within one source and over all of them.

In: lines in the order of their source, with the step each states. Out: attempt indexes from 0, the boundaries between
attempts, and the alignment of several sources' attempts.

A boundary stands where the new attempt starts, not where the old one failed: what a dying attempt still prints is its
own. A restart that is only announced becomes a boundary when something starts: a launcher, a banner seen before, a
step. Several announcements of one restart (every agent, every rank) are one boundary. Where several runs stand in one
file, one after another, what ended (done, interrupted, failed) is followed by the heading or the start of the next.
What filter rules take for routine begins nothing, unless a literal that is listened for stands in it: it may be gone.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from functools import cache

import ahocorasick_rs

from diagnose.dataclass import dataclass
from diagnose.models import Line, LogSource
from diagnose.patterns import Lazy

MAX_BOUNDARIES = 1000
MAX_SERIES = 4096
BANNER_LINES = 24
BANNER_HEAD = 3
BANNER_CHARS = 12
SEARCHED = 600

# Failures; those a launcher or a scheduler prints come first.
_FAILURES = (
    "srun: error", "CANCELLED", "ChildFailedError", "exit code", "exit status", "exitcode", "return code",
    "Exited with", "Traceback (most", "FAILED", "Aborted", "core dumped", "Segmentation", "Killed", "SIGTERM",
    "SIGABRT", "SIGKILL", "SIGSEGV", "terminate called", "Error:", "rror: ", "Interrupted", "preempted",
    "Terminated", "KeyboardInterrupt",
)  # fmt: skip
LAUNCHER_FAILURES = 8
_SIGNS = (
    "restart", "Restart", "RESTART", "REQUEUE", "requeu", "Requeu", "ttempt", "ATTEMPT", "retry", "Retry", "RETRY",
    "re-launch", "relaunch", "Relaunch", " try ", "try #", "Try ", "endezvous", "srun: job", "sbatch",
    "+ torchrun", "+ srun", "+ mpirun", "+ deepspeed", "+ accelerate", "+ python", "torch.distributed.launch",
    "esuming ", "ailureDecision", "salloc: Granted",
)  # fmt: skip

LITERALS = _FAILURES + _SIGNS

_ANY = re.IGNORECASE
_ELASTIC_RETRY = Lazy(r"(?P<left>\d{1,4})/(?P<most>\d{1,4}) attempts left;? will restart worker group")
_ELASTIC_MEMBERS = Lazy(r"will restart worker group|Rendezvous'ing worker group|Rendezvous complete for workers")
_ELASTIC_COUNT = Lazy(r"\b(?:TORCHELASTIC_RESTART_COUNT|restart_count)\s*[=:]\s*(\d{1,4})\b")
_SLURM_COUNT = Lazy(r"\bSLURM_RESTART_COUNT\s*[=:]\s*(\d{1,4})\b")
_NUMBERED = Lazy(
    r"^\s*(?:[#=*\-~>+]{2,}\s*[^\n]{0,120}?\b|\[?)(?:attempt|try|retry|restart|run attempt)\s*(?:#|no\.?|number"
    r"|nr\.?)?\s*[:=]?"
    r"\s*(?P<number>\d{1,3})\b(?P<after>[^\n]{0,200})",
    _ANY,
)
_NUMBERED_ALONE = Lazy(
    r"^(?:\[[\w .:\-]{1,40}\]:?\s*|[\w.\-]{1,30}:\s+){0,2}(?:starting|start|launching|beginning|begin|running"
    r"|this is)?\s*(?:job |training )?"
    r"(?:attempt|try|retry|restart)\s*(?:#|no\.?)?\s*[:=]?\s*(?P<number>\d{1,3})(?:\s*(?:/"
    r"|of)\s*\d{1,3})?[\s.:!)\]=#*\-]*$",
    _ANY,
)
_ENDED = Lazy(r"\b(?:fail\w*|exited|ended|finished|done|rc=|returned|crashed|after|gave up|exit)\b|\brc\b", _ANY)
_ANNOUNCED = Lazy(
    r"\b(?:restart|relaunch|re-launch|requeue?|resubmit|retry|rerun)(?:ing|ed)\b\s*(?:the |failed |whole )*"
    r"(?:training|job|run\b|worker group|workers|trainer|gang|script|command|pod|container|srun|torchrun|step)"
    r"|\b(?:restart|relaunch|requeu|resubmitt?|retry|rerunn)e?ing\s*(?:training\s*)?\(?\d{1,3}\s*(?:/|of)\s*\d{1,3}"
    r"|\bDUE TO JOB REQUEUE\b|\bscontrol requeue\b|\bFailureDecision\.RETRY\b"
    r"|\bAttempting to (?:restart|restore|recover)\b|\bwill (?:be )?(?:restart|relaunch|requeue)(?:ed|d)?\b",
    _ANY,
)
_JOB = Lazy(
    r"^srun: job (?P<srun>\d{1,12}) (?:queued|has been allocated)|^salloc: Granted job allocation (?P<salloc>\d{1,12})"
)
_COMMAND = Lazy(
    r"^\+{1,4} (?:exec |env |time |\w+=\S+ ){0,6}(?:torchrun|srun|mpirun|mpiexec|deepspeed|accelerate|python\S*|bash)\s"
)
# What a shell or a script echoes is no message of its own, but still tells that something starts.
_ECHOED = Lazy(r"(?:export |declare -x )?(?:TORCHELASTIC|SLURM)_RESTART_COUNT=|\+")
# `===== run 5e10 nodes a[1-4] =====`: a ruled line that gives a run its name.
_HEADING = Lazy(
    r"^[=#*~>+-]{2,80} ?(?:\w{1,20} ){0,2}?"
    r"(?P<what>run|job|attempt|try|trial|experiment|launch|submission|host|node|requeued?|resubmitted|restart(?:ed)?)\b",
    _ANY,
)
_RULED = frozenset("=#*~>+-")
_WORD = Lazy(r"[A-Za-z_]{2,24}")
_RANK = Lazy(r"\brank[ =:_]{0,2}(\d{1,6})", _ANY)
_DIGITS = Lazy(r"\d+")
_Key = tuple[str, str, str]  # stream, first words, rank


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where a new attempt starts: line number, seconds since the epoch, and which sign said so."""

    number: int
    time: float | None
    reason: str


@dataclass(slots=True)
class _Series:
    """Steps of one writer printed in one form."""

    last: int
    line: int


@cache
def _gate() -> ahocorasick_rs.AhoCorasick:
    """One for all sources, of which there may be many thousand: each has 200 kB."""
    return ahocorasick_rs.AhoCorasick(LITERALS)


class AttemptTracker:
    """Counts the attempts within one source; a source that is one attempt by its name stays one."""

    def __init__(self, source: LogSource) -> None:
        self.source = source
        self._one = source.attempt is not None or source.kind in {"kernel", "scheduler", "dump"}
        self._boundaries: list[Boundary] = []
        self._ends: list[float | None] = [None]
        self._gate = _gate()
        self._lived = False
        self._failed = 0
        self._pending: str | None = None
        self._elastic = 0
        self._slurm = 0
        self._numbered: int | None = None
        self._job: str | None = None
        self._commands: set[str] = set()
        self._banner: dict[str, int] = {}
        self._seen = 0
        self._launcher_failed = False
        self._ended = False
        self._headings: set[str] = set()
        self._repeated: list[Line] = []
        self._repeated_position = 0
        self._resumed = 0
        self._series: dict[_Key, _Series] = {}

    @property
    def boundaries(self) -> tuple[Boundary, ...]:
        """Where the attempts after the first start."""
        return tuple(self._boundaries)

    @property
    def ends(self) -> tuple[float | None, ...]:
        """The time of the last line of each attempt, where one is known."""
        return tuple(self._ends)

    def observe(self, line: Line, step: int | None, *, ended: bool = False, asked: bool = True) -> int:
        """The index of the attempt this line belongs to, from 0; lines come in the order of the source.

        `ended` says that the line tells the end of the work, done or not; `asked`, that it may hold one of `LITERALS`.
        """
        certain = line.certain
        if self._boundaries and line.number < self._boundaries[-1].number:
            # A step that was held back until something happened.
            return bisect_right([boundary.number for boundary in self._boundaries], line.number)
        if not self._one:
            body = line.body if len(line.body) <= SEARCHED else line.body[:SEARCHED]
            hits = self._gate.find_matches_as_indexes(body) if asked and certain else []
            if hits or step is not None or (certain and self._looks_at(body)):
                self._judge(line, body, step, hits)
            if ended:
                self._ended = self._lived = True
        if line.time is not None and (certain or line.progress is not None):
            self._ends[-1] = line.time
        return len(self._boundaries)

    def watches(self, line: Line) -> bool:
        """Whether a line may matter that holds none of `LITERALS` and tells no progress: it has a time, or may open."""
        return line.certain and (line.time is not None or (not self._one and self._looks_at(line.body)))

    def _looks_at(self, body: str) -> bool:
        """Whether a line without a sign of its own may be a heading, or one of a banner that is learnt or expected."""
        if not (self._failed or self._ended or self._seen < BANNER_LINES):
            return False
        expected = self._pending is not None or self._launcher_failed or self._ended
        return expected or not (self._lived or self._boundaries) or body[:1] in _RULED

    def _judge(self, line: Line, body: str, step: int | None, hits: list[tuple[int, int, int]]) -> None:
        sign = any(hit[0] >= len(_FAILURES) for hit in hits)
        if line.quoted:
            self._judge_quoted(line, body, sign=sign and _ECHOED.match(body) is not None)
            return
        reason = (self._sign(line, body) if sign else None) or self._headed(body) or self._again(line, body)
        key = None if step is None else self._key(line, body)
        if reason is None and key is not None and step is not None:
            reason = self._fall(key, step)
        if reason is not None:
            self._start(line, reason)
        if key is not None and step is not None:
            self._lived = True
            self._count(line, key, step)
        elif any(hit[0] < len(_FAILURES) for hit in hits):
            self._lived = True
            self._failed = line.number
            self._launcher_failed = self._launcher_failed or any(hit[0] < LAUNCHER_FAILURES for hit in hits)
        else:
            self._learn_banner(line, body)

    def _judge_quoted(self, line: Line, body: str, *, sign: bool) -> None:
        """A line that reports nothing of its own may be one of a banner: settings and commands are echoed there."""
        reason = (self._sign(line, body) if sign else None) or self._again(line, body)
        if reason is not None:
            self._start(line, reason)
        else:
            self._learn_banner(line, body)

    def _start(self, line: Line, reason: str) -> None:
        """A new attempt starts at this line."""
        if len(self._boundaries) < MAX_BOUNDARIES:
            # Where the start was recognised only by its third line, it began with the first of them.
            first = self._repeated[0] if len(self._repeated) >= BANNER_HEAD else line
            self._boundaries.append(Boundary(first.number, first.time, reason))
            self._ends.append(line.time)
        self._pending = None
        self._lived = False
        self._failed = 0
        self._launcher_failed = False
        self._ended = False
        self._repeated.clear()
        self._resumed = 0
        self._series.clear()

    def _sign(self, line: Line, body: str) -> str | None:
        """A launcher, a scheduler or a script that says it starts again."""
        if (match := _ELASTIC_RETRY.search(body)) is not None:
            if int(match["most"]) - int(match["left"]) + 1 > self._elastic:
                self._pending = "torchelastic restarts the worker group"
            return None
        if (match := _ELASTIC_COUNT.search(body)) is not None:
            return self._elastic_count(int(match[1]))
        if (match := _SLURM_COUNT.search(body)) is not None:
            number = int(match[1])
            moved, self._slurm = number > self._slurm, max(number, self._slurm)
            return self._if_lived("SLURM_RESTART_COUNT rises") if moved else None
        if "endezvous" in body or "restart worker group" in body:
            return self._elastic_start(body)
        if (match := _NUMBERED_ALONE.match(body)) is not None or (match := _NUMBERED.match(body)) is not None:
            return self._number(body, match)
        if (match := _JOB.match(body)) is not None:
            job = match["srun"] or match["salloc"]
            moved, self._job = self._job is not None and job != self._job, job
            return self._if_lived("another job id") if moved else None
        if _COMMAND.match(body) is not None:
            return self._command(line, body)
        if _ANNOUNCED.search(body) is not None:
            self._pending = "a restart was announced"
        elif "esuming " in body:
            self._resumed = line.number
            return self._pending
        return None

    def _elastic_count(self, number: int) -> str | None:
        if number > self._elastic:
            self._elastic = number
            return self._if_lived("torchelastic's restart count rises")
        if number == 0 and self._elastic and self._failed and self._pending:
            self._elastic = 0
            return self._if_lived("the launcher starts anew")
        return None

    def _elastic_start(self, body: str) -> str | None:
        """An agent that gathers its workers again; every agent says so, the first one counts."""
        if self._pending is None or "attempts left" in body:
            return None
        if "endezvous'ing" in body or "endezvous complete" in body:
            reason, self._elastic = self._pending, self._elastic + 1
            return self._if_lived(reason)
        return None

    def _number(self, body: str, match: re.Match[str]) -> str | None:
        """`##### try 2`, `[attempt 3] ...`: the number must rise, and the line must not report an end."""
        after = match.groupdict().get("after") or ""
        if _ENDED.search(after) is not None or _ENDED.search(body, 0, match.start("number")) is not None:
            return None
        number = int(match["number"])
        before, self._numbered = self._numbered, number
        if before is None:
            # The first number seen: a new attempt only if something has gone before it.
            return self._if_lived("a numbered attempt") if number > 0 and self._failed else None
        return self._if_lived("a numbered attempt") if number > before else None

    def _command(self, line: Line, body: str) -> str | None:
        """`set -x` echoes the launch; the same command again after a failure is another try."""
        command = _DIGITS.sub("0", body[:80])
        if command in self._commands and self._failed:
            return self._if_lived("the launch command is repeated")
        if len(self._commands) < MAX_SERIES:
            self._commands.add(command)
        return None

    def _if_lived(self, reason: str) -> str | None:
        """Signs that follow each other with no step or failure between them are one restart."""
        if self._lived or self._failed:
            return reason
        self._pending = None
        return None

    def _headed(self, body: str) -> str | None:
        """A heading like that of an earlier run, after something has come to its end."""
        heading = _HEADING.match(body) if body[:1] in _RULED else None
        if heading is None:
            return None
        what = heading["what"].lower()
        known = what in self._headings or what.startswith("re")  # "requeued" and "restart" speak of a run before
        self._headings.add(what)
        return self._if_lived("the heading of another run") if known and (self._ended or self._failed) else None

    def _again(self, line: Line, body: str) -> str | None:
        """The start is printed again: a line of it after an announcement, three in order after an end."""
        expected = self._pending is not None or self._launcher_failed or self._ended
        if not expected or not (self._failed or self._ended) or len(body) < BANNER_CHARS:
            return None
        position = self._banner.get(_DIGITS.sub("0", body[:100]))
        if position is None:
            return None
        if self._ends[-1] is not None and line.time is not None and line.time < self._ends[-1]:
            return None  # another rank's log put behind this one
        if self._pending is not None:
            return self._if_lived(self._pending)
        if self._repeated and line.number - self._repeated[0].number > BANNER_LINES:
            self._repeated.clear()
        if not self._repeated and position >= BANNER_HEAD:
            return None
        if self._repeated and position <= self._repeated_position:
            return None
        self._repeated.append(line)
        self._repeated_position = position
        if len(self._repeated) < BANNER_HEAD:
            return None
        return self._if_lived("the start is printed again after an end")

    def _learn_banner(self, line: Line, body: str) -> None:
        """Remember how the first attempt starts, until it lives."""
        if self._boundaries or self._lived or self._seen >= BANNER_LINES:
            return
        self._seen += 1
        if len(body) >= BANNER_CHARS and not body[:1].isspace() and any(char.isalpha() for char in body[:40]):
            self._banner.setdefault(_DIGITS.sub("0", body[:100]), len(self._banner))

    def _key(self, line: Line, body: str) -> _Key:
        """Steps are compared within one writer and one form: a rank's, a bar's, an evaluation's."""
        words = " ".join(_WORD.findall(body, 0, 80)[:3])
        rank = _RANK.search(body, 0, 200) if "rank" in body[:200].lower() else None
        return line.stream, words, rank[1] if rank is not None else ""

    def _fall(self, key: _Key, step: int) -> str | None:
        """The step falls after a failure, or after a resume: not by the one step that ranks lie apart."""
        series = self._series.get(key)
        if self._pending is not None and self._failed and (series is None or step <= series.last):
            return self._if_lived(self._pending)
        if series is None or step >= series.last:
            return None
        if series.last - step < 2 and step > 1:
            return None
        if max(self._failed, self._resumed) > series.line:
            return self._if_lived("the step falls")
        return None

    def _count(self, line: Line, key: _Key, step: int) -> None:
        series = self._series.get(key)
        if series is None:
            if len(self._series) >= MAX_SERIES:
                self._series.pop(next(iter(self._series)))
            self._series[key] = _Series(step, line.number)
        else:
            series.last, series.line = step, line.number


def align(trackers: Mapping[str, AttemptTracker]) -> dict[tuple[str, int], int]:
    """(source name, attempt within the source) to the attempt of the job, over all sources.

    A source named for an attempt is that attempt. Of the others, the one with the most boundaries counts the job's
    attempts; the rest fall into its spans of time by the time of their last lines, or else last to last. Kernel and
    scheduler sources, which span the job, are put to its last attempt.
    """
    free = {name: tracker for name, tracker in trackers.items() if not tracker._one}  # noqa: SLF001 - one module
    named = [tracker.source.attempt for tracker in trackers.values() if tracker.source.attempt is not None]
    reference = max(free.values(), key=lambda tracker: len(tracker.boundaries), default=None)
    counted = len(reference.boundaries) + 1 if reference is not None else 0
    total = max([counted, 1, *(attempt + 1 for attempt in named)])
    starts: list[float] = []
    if reference is not None and total == counted:
        times = [boundary.time for boundary in reference.boundaries]
        known = [time for time in times if time is not None]
        if len(known) == len(times) and known == sorted(known):
            starts = known
    aligned: dict[tuple[str, int], int] = {}
    for name, tracker in trackers.items():
        attempts = len(tracker.boundaries) + 1
        for local in range(attempts):
            if tracker.source.attempt is not None:
                aligned[name, local] = tracker.source.attempt
                continue
            index = total - attempts + local
            end = tracker.ends[local] if local < len(tracker.ends) else None
            if starts and tracker is not reference and end is not None and attempts < total:
                # Not past what the later attempts of this source need.
                index = min(index, max(local, bisect_right(starts, end)))
            aligned[name, local] = index
    return aligned


def attempt_literals() -> tuple[str, ...]:
    """Literals of attempt boundaries, for the guard."""
    return (
        "will restart worker group", "Rendezvous complete", "Rendezvous'ing", "restart_count=", "RESTART_COUNT",
        *(f"{mark} {what}" for mark in "=#*" for what in ("run", "job", "attempt", "try", "trial", "experiment")),
        "= requeue", "= restart", "JOB REQUEUE", "requeueing", "scontrol requeue", "srun: job ", "+ torchrun",
        "+ srun ", "+ deepspeed",
        "+ accelerate", "+ mpirun", "[attempt ", "(attempt ", " attempt ", "Attempt ", "### try", "Restarting ",
        "restarting ", "relaunching", "FailureDecision",
)  # fmt: skip
