"""Launchers' summaries of several lines: torchrun's ChildFailedError block, Open MPI's, MPICH's and Horovod's boxes.

In: the lines of one stream from an opener on. Out: one `launcher_summary` record with the failures it lists. A
traceback that torchrun shows inside its block is the failed rank's own: it becomes a `traceback` record of that rank.
"""

from __future__ import annotations

import re

from diagnose.dataclass import dataclass, replace
from diagnose.lines.grammar import Builder, Lines, Step, plain
from diagnose.lines.launchers import failure, signal_of
from diagnose.lines.times import read_time
from diagnose.lines.traceback_lines import HEADER
from diagnose.lines.tracebacks import TracebackParser
from diagnose.models import LauncherFailure, Line, Record
from diagnose.patterns import Lazy
from diagnose.settings import Limits

_MAX_FAILURES = 4096
_MAX_NOISE = 16

_RULE = Lazy(r"\s{0,64}([=*-])[=*-]{11,400}\s{0,64}\Z")
_ENTRY = Lazy(r"\s{0,16}\[(\d{1,6})\]:\s{0,16}\Z")
_FIELD = Lazy(r"\s{0,16}(time|host|rank|exitcode|error_file|traceback|msg)\s{0,8}: ?(.*)\Z", re.DOTALL)
_NUMBERS = Lazy(r"(-?\d{1,9})(?: \((?:local_rank|pid): (\d{1,9})\))?")
_SIGNAL = Lazy(r"Signal (\d{1,3}) \((SIG\w{1,16})\)")
_SECTIONS = ("Failures:", "Other Failures:", "Root Cause", "<NO_OTHER_FAILURES>")

ROOT_CAUSE = "Root Cause (first observed failure):"
_BOXES = (
    "detected that one or more processes exited with non-zero status",
    "MPI_ABORT was invoked on rank",
    "BAD TERMINATION OF ONE OF",
)
_BOX_PARTS = (
    ("rank", Lazy(r"Process name:\s{0,8}(?:\[\[\d{1,9},\d{1,9}\],)?(\d{1,9})\]?")),
    ("rank", Lazy(r"MPI_ABORT was invoked on rank (\d{1,9})")),
    ("rank", Lazy(r"=\s{1,8}RANK (\d{1,9})\b")),
    ("pid", Lazy(r"=\s{1,8}(?:RANK \d{1,9} )?PID (\d{1,9})\b")),
    ("exit", Lazy(r"(?:[Ee]xit code|EXIT CODE|[Ee]rrorcode):?\s{0,8}(-?\d{1,9})")),
    ("signal", Lazy(r"KILLED BY SIGNAL: (\d{1,3})")),
)
_BOX_HOST = Lazy(r"(?:RUNNING AT|on node) (\S{1,255})")

OPENERS = ("Failures:", "Root Cause (first observed failure)", *_BOXES)


@dataclass(slots=True)
class _Entry:
    serial: int
    first: bool
    rank: int | None = None
    local_rank: int | None = None
    host: str | None = None
    pid: int | None = None
    exit_code: int | None = None
    signal: str | None = None
    time: float | None = None


def open_block(line: Line, limits: Limits) -> Builder | None:
    """The block that `line` opens, if it opens one."""
    stripped = line.body.strip()
    if stripped in ("Failures:", "Other Failures:", ROOT_CAUSE):
        return LauncherBlock(Lines(limits.record_lines), None, limits, line, rules=1)
    if any(box in stripped for box in _BOXES):
        return _Box(line, limits)
    return None


class LauncherBlock:
    """torchrun's block: rules of `=`, entries of `key : value`, with or without the traceback that leads to it."""

    def __init__(
        self, lines: Lines, parser: TracebackParser | None, limits: Limits, line: Line, *, rules: int = 0
    ) -> None:
        self._lines = lines
        self._parser = parser
        self._limits = limits
        self._rules = rules
        self._rule = line.body.strip()[:1] if parser is not None else "="
        self._entries: list[_Entry] = []
        self._in_root = False
        self._noise = 0
        self._nested: tuple[Lines, TracebackParser] | None = None
        self._inner: list[Record] = []
        self.add(line)

    @staticmethod
    def after(name: str, line: Line, lines: Lines, parser: TracebackParser, limits: Limits) -> LauncherBlock | None:
        """The block that `line` opens after the traceback of exception `name`, if it does."""
        if not name.endswith("ChildFailedError"):
            return None
        match = _RULE.match(line.body)
        return LauncherBlock(lines, parser, limits, line) if match and match[1] in "=*" else None

    def add(self, line: Line) -> Step:
        """Judge the next line of the stream."""
        body = line.body
        stripped = body.strip()
        match = _RULE.match(body)
        if match is not None and not (match[1] == "-" and self._nested is not None and body[:1] == " "):
            self._end_nested()
            self._take(line)
            if match[1] == self._rule:
                self._rules += 1
            return Step.FINAL if self._rules >= 2 and self._entries else Step.TAKEN
        entry = _ENTRY.match(body)
        if entry is not None:
            self._end_nested()
            serial = self._take(line)
            if len(self._entries) < _MAX_FAILURES:
                self._entries.append(_Entry(serial, self._in_root))
            return Step.TAKEN
        if stripped.startswith(_SECTIONS):
            self._end_nested()
            self._in_root = stripped.startswith("Root Cause") or (self._in_root and not stripped.endswith("Failures:"))
            self._take(line)
            return Step.TAKEN
        if self._nested is not None:
            lines, parser = self._nested
            if parser.push(body, len(lines), free=True) in (Step.TAKEN, Step.PASSED):
                lines.add(line, keep=parser.raised_now)
                return Step.TAKEN
            self._end_nested()
        found = _FIELD.match(body)
        if found is not None and self._entries:
            self._field(found[1], found[2].strip(), line)
            return Step.TAKEN
        if not stripped or stripped.endswith(" FAILED") or stripped.startswith("traceback"):
            self._take(line)
            return Step.TAKEN
        self._noise += 1
        return Step.PASSED if self._noise <= _MAX_NOISE else Step.REFUSED

    def close(self) -> list[Record]:
        """The summary, then the tracebacks that it shows."""
        self._end_nested()
        tail = [plain(line) for line in self._lines.pop_blank_tail()]
        lines, index = self._lines.finish()
        exceptions = self._parser.exceptions(index.get) if self._parser else ()
        record = Record(
            kind="launcher_summary",
            lines=lines,
            text="\n".join(line.text for line in lines),
            exceptions=tuple(item for item in exceptions if item.name == "ChildFailedError"),
            failures=tuple(_failure(entry, index.get(entry.serial, 0)) for entry in self._entries),
            fields={"what": "summary"},
            quoted=lines[0].quoted,
        )
        return [record, *self._inner, *tail]

    def _take(self, line: Line, *, keep: bool = False) -> int:
        self._noise = 0
        return self._lines.add(line, keep=keep)

    def _field(self, key: str, value: str, line: Line) -> None:
        entry = self._entries[-1]
        if key == "traceback" and HEADER in value:
            indent = len(line.body) - len(line.body.lstrip())
            lines, parser = Lines(self._limits.record_lines), TracebackParser()
            parser.start(" " * indent + HEADER + ":")
            lines.add(_of_entry(line, entry), keep=True)
            self._nested = lines, parser
            return
        serial = self._take(line, keep=key == "exitcode")
        numbers = _NUMBERS.match(value)
        if key == "time":
            entry.time = read_time(value)
        elif key == "host" and value:
            entry.host = value[:255]
        elif key == "rank" and numbers:
            entry.rank = int(numbers[1])
            entry.local_rank = int(numbers[2]) if numbers[2] else None
        elif key == "exitcode" and numbers:
            entry.serial = serial
            entry.exit_code = int(numbers[1])
            entry.pid = int(numbers[2]) if numbers[2] else None
        elif key in ("traceback", "msg") and (found := _SIGNAL.search(value)):
            entry.signal = found[2]

    def _end_nested(self) -> None:
        if self._nested is None:
            return
        collected, parser = self._nested
        self._nested = None
        blank = [plain(line) for line in collected.pop_blank_tail()]
        lines, index = collected.finish()
        entry = self._entries[-1]
        lines = tuple(_of_entry(line, entry) for line in lines)
        record = Record(
            kind="traceback",
            lines=lines,
            text="\n".join(line.text for line in lines),
            exceptions=parser.exceptions(index.get),
            fields={"shown_by": "torchrun"},
            quoted=lines[0].quoted,
        )
        self._inner += [record, *blank]


def _of_entry(line: Line, entry: _Entry) -> Line:
    """The line as said by the failed rank, when it failed."""
    return replace(
        line,
        rank=entry.rank if entry.rank is not None else line.rank,
        local_rank=entry.local_rank if entry.local_rank is not None else line.local_rank,
        host=entry.host or line.host,
        pid=entry.pid or line.pid,
        time=entry.time if entry.time is not None else line.time,
    )


def _failure(entry: _Entry, index: int) -> LauncherFailure:
    return failure(
        rank=entry.rank,
        local_rank=entry.local_rank,
        host=entry.host,
        pid=entry.pid,
        exit_code=entry.exit_code,
        signal=entry.signal,
        time=entry.time,
        first=entry.first,
        line_index=index,
    )


class _Box:
    """A message of an MPI launcher that names the first process to fail, over a few lines."""

    def __init__(self, line: Line, limits: Limits) -> None:
        self._lines = Lines(limits.record_lines)
        self._limit = 14
        self._rank: int | None = None
        self._pid: int | None = None
        self._exit: int | None = None
        self._signal: str | None = None
        self._host: str | None = None
        self._serial = 0
        self._mpich = "BAD TERMINATION" in line.body
        self._read(line.body, self._lines.add(line))

    def add(self, line: Line) -> Step:
        """Judge the next line of the stream."""
        if len(self._lines) >= self._limit or line.level is not None:
            return Step.REFUSED
        stripped = line.body.strip()
        rule = _RULE.match(line.body)
        if stripped and self._mpich and not stripped.startswith("="):
            return Step.REFUSED
        self._read(line.body, self._lines.add(line))
        if rule is not None:
            return Step.FINAL
        # What Open MPI and Horovod print ends with the exit code.
        return Step.FINAL if self._exit is not None and not self._mpich else Step.TAKEN

    def close(self) -> list[Record]:
        """The summary with its one failure."""
        tail = [plain(line) for line in self._lines.pop_blank_tail()]
        lines, index = self._lines.finish()
        item = failure(
            rank=self._rank,
            host=self._host,
            pid=self._pid,
            exit_code=self._exit,
            signal=self._signal,
            time=lines[0].time,
            first=True,
            line_index=index.get(self._serial, 0),
        )
        record = Record(
            kind="launcher_summary",
            lines=lines,
            text="\n".join(line.text for line in lines),
            failures=(item,),
            fields={"what": "abort" if "MPI_ABORT" in lines[0].body else "exit"},
            quoted=lines[0].quoted,
        )
        return [record, *tail]

    def _read(self, body: str, serial: int) -> None:
        body = body[:1024]
        for what, pattern in _BOX_PARTS:
            match = pattern.search(body)
            if match is None:
                continue
            value = int(match[1])
            if what == "rank":
                self._rank = value
            elif what == "pid":
                self._pid = value
            elif what == "exit":
                self._exit, self._serial = value, serial
            else:
                self._signal = signal_of(-value)
        if host := _BOX_HOST.search(body):
            self._host = host[1]
