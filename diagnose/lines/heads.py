"""What the prefixes of one line have said so far, and what the lines of one source have taught about its prefixes."""

from __future__ import annotations

import re

from diagnose.lines.stamps import Clock
from diagnose.patterns import Lazy

_LEVELS = {
    "trace": "debug",
    "debug": "debug",
    "info": "info",
    "success": "info",
    "notice": "info",
    "warn": "warning",
    "warning": "warning",
    "err": "error",
    "error": "error",
    "exception": "error",
    "severe": "error",
    "fatal": "critical",
    "crit": "critical",
    "critical": "critical",
    "alert": "critical",
    "emerg": "critical",
    "panic": "critical",
    "d": "debug",
    "v": "debug",
    "i": "info",
    "n": "info",
    "w": "warning",
    "e": "error",
    "c": "critical",
    "f": "critical",
}
_SYSLOG_LEVELS = ("critical", "critical", "critical", "error", "warning", "info", "info", "debug")
_MAX_NAMES = 4096
_MAX_RESTS = 64
_MAX_PID = 1 << 22
# A name seen so often is a prefix by any form that counts at all; more teaches nothing.
MOST_NEEDED = 6
MAX_ASKED = 8

# What only a program's own output begins with: the text after a doubtful prefix (`12: `, `host: `) is one.
_OUTPUT = Lazy(
    r"\s{0,4}(?:Traceback \(most|[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9][0-9] [0-9]{1,2}:[0-9]"
    r"|File \"/|\[?20[0-9]{2}[-/][0-9]{2}[-/][0-9]{2}|:::MLLOG|\[[EWIF] [\w.]+:[0-9]"
    r"|\[[EWIF][0-9]{3,4} |[EWIF][0-9]{4} |\[rank|\[default|\[NeMo |\[(?:INFO|WARN|ERROR|CRITICAL|DEBUG)"
    r"|(?:INFO|WARNING|ERROR|DEBUG|CRITICAL)[: ]|[\w.-]{1,64}:[0-9]+:[0-9]+ \[[0-9]+\] |terminate called|Fatal Python"
    r"|frame #[0-9]+: |\[pod/|\[(?:[0-9]+,)?[0-9]+\]<std|\([A-Za-z_][\w.:<>-]{0,80} (?:rank=[0-9]+ )?pid=[0-9])"
)


# The stamp of the kernel: seconds since boot, with the caller where it is asked for.
UPTIME = Lazy(r"\[ {0,8}([0-9]{1,9}\.[0-9]{6})\](?:\[ {0,6}[TC][0-9]{1,8}\]| \[ {0,6}[TC][0-9]{1,8}\])?:? ?")


def level_of(word: str) -> str | None:
    """`WARN`, `W`, `err` ... as one of debug, info, warning, error, critical; None for any other word."""
    return _LEVELS.get(word.strip().lower())


def level_of_number(number: int) -> str | None:
    """The level of a syslog severity (0-7), or of Python's numbers (10-50)."""
    if 0 <= number < 8:
        return _SYSLOG_LEVELS[number]
    return {10: "debug", 20: "info", 30: "warning", 40: "error", 50: "critical", 60: "critical"}.get(number)


def pid_of(digits: str) -> int | None:
    """A process id; None for a thread's handle of the same form."""
    return int(digits) if len(digits) <= 7 and int(digits) < _MAX_PID else None


class Head:
    """The fields of one line as its prefixes are read from the left; class attributes are the defaults."""

    time: float | None = None
    uptime: float | None = None
    rank: int | None = None
    local_rank: int | None = None
    host: str | None = None
    pid: int | None = None
    gpu: str | None = None
    level: str | None = None
    # Who wrote the line as the multiplexer tells: these make the stream.
    place: str = ""
    writer_rank: int | None = None
    writer_local: int | None = None
    flow: str = ""
    # The srun task, where that is all the line says; whether a rank tag names the writer; whether `place` is a process.
    task: int | None = None
    tagged: bool = False
    process: bool = False
    # 0: nothing but writers yet; 1: a stamp was read; 2: a level or logger was read; 3: the message begins.
    stage: int = 0

    # Whether `time` is from a stamp with its date whole: the first such stamp counts, further ones may be other clocks.
    dated: bool = False

    def copy(self) -> Head:
        """A head that starts with the same fields: further lines of one message."""
        other = Head()
        other.__dict__.update(self.__dict__)
        return other

    def at(self, place: str) -> None:
        """Note a host, pod or actor the line came from; several (pod, then actor) add up."""
        self.place = f"{self.place}/{place}" if self.place else place


def past_separator(text: str, end: int) -> int:
    """Past the one separator behind a stamp."""
    return end + 1 if end < len(text) and text[end] in " \t" else end


def stamped(head: Head, time: float | None, *, dated: bool = True) -> None:
    """Note a stamp's time. Where a line has several, the first with its date whole counts: all lines have that one."""
    if time is not None and not head.dated:
        head.time = time
        head.dated = dated
    head.stage = max(head.stage, 1)


def clock_groups(found: re.Match[str], first: int) -> tuple[str, str, str, str | None]:
    """Hour, minute, second and fraction of a match, from group `first` on."""
    return found.group(first), found.group(first + 1), found.group(first + 2), found.group(first + 3)


class Prefixes:
    """What is remembered between the lines of one source: the clock and which doubtful prefixes proved to be ones.

    Only the head of a source and its guarded lines teach (`learning`): these are read whatever the filters drop, so
    what a prefix means does not depend on them.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._counts: dict[str, int] = {}
        self._proven: set[str] = set()
        self._labels: dict[str, int] = {}
        self._label_rests: dict[str, str] = {}
        self.labelled: bool | None = None
        # One torchrun per task: the labels count nodes, and its ranks tell so.
        self.tasks_are_nodes = False
        self._label_lines = 0
        self._other_lines = 0
        self.learning = True
        # How often a line changed what is remembered here, and which names were asked about: see `learning`.
        self.taught = 0
        self.asked: list[str] = []
        self.doubted = 0  # how often it depended on what stands behind a name whether that is a prefix

    def proven(self, name: str, rest: str, needed: int) -> bool:
        """Whether `name` before `rest` is a prefix: known, before a program's output, or seen `needed` times."""
        if len(self.asked) < MAX_ASKED:
            self.asked.append(name)
        if name in self._proven:
            return True
        self.doubted += 1
        if not self.learning:
            return _OUTPUT.match(rest) is not None
        if len(self._counts) >= _MAX_NAMES:
            self._counts.clear()
        count = self._counts.get(name, 0) + 1
        self._counts[name] = count
        self.taught += count <= MOST_NEEDED
        if count >= needed or _OUTPUT.match(rest):
            if len(self._proven) < _MAX_NAMES:
                self._proven.add(name)
            return True
        return False

    def label(self, digits: str, rest: str) -> bool:
        """Whether `12: ` before `rest` is the label of a task: decided over the lines of the source.

        A numbered list counts up and says each time something else; tasks come again, or say the same as another.
        """
        if self.labelled is not None:
            return self.labelled
        self.doubted += 1
        if not self.learning:
            return False
        self.taught += 1
        self._label_lines += 1
        output = _OUTPUT.match(rest) is not None
        if rest.startswith("[") and not output:
            # A list of ranks and what each waits for comes again and says the same twice, in brackets.
            return False
        again = self._labels.get(digits, 0) + 1
        if len(self._labels) < _MAX_NAMES:
            self._labels[digits] = again
        same = self._label_rests.get(rest, digits) != digits
        if len(self._label_rests) < _MAX_RESTS:
            self._label_rests[rest] = digits
        often = (again > 2 or (same and self._label_lines > 2)) and self._label_lines * 2 >= self._other_lines
        if often or output:
            self.labelled = True
        elif self._label_lines + self._other_lines > 4096 and self._label_lines * 8 < self._other_lines:
            self.labelled = False
        return self.labelled is True

    def label_behind(self, rest: str) -> bool:
        """Whether `12: ` behind a stamp and before `rest` is the label of a task: only a program's output proves it."""
        if (
            self.labelled is None
            and self.learning
            and (_OUTPUT.match(rest) or _OUTPUT.match(rest[:64].partition(": ")[2]))
        ):
            self.labelled = True
            self.taught += 1
        return self.labelled is True

    def unlabelled(self) -> None:
        """Note a line without a label, once labels are in question."""
        if self._label_lines and self.learning:
            self._other_lines += 1
