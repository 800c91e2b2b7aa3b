"""What flows from the inputs to the findings: sources, lines, records, progress, attempts, inventory.

In: nothing. Out: frozen types that `sources`, `compress`, `lines` and `rules` hand to each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from diagnose.dataclass import dataclass, field

SourceKind = Literal["job", "kernel", "scheduler", "launcher", "dump"]
RecordKind = Literal["line", "traceback", "stack", "launcher_summary", "kernel_oops", "json_error", "scheduler"]
ProgressKind = Literal["step", "checkpoint_started", "checkpoint_complete", "checkpoint_loaded", "completed", "exit"]


@dataclass(frozen=True, slots=True)
class LogSource:
    """One input under the name people know it by, and what that name says."""

    name: str
    kind: SourceKind = "job"
    host: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    attempt: int | None = None
    stream: Literal["stdout", "stderr"] | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """The records of an input that is a kept log: lines that were chosen by `guard`, of a log taken to be of `kind`."""

    guard: str
    kind: SourceKind
    records: Callable[[], Iterator[bytes]]


@dataclass(frozen=True, slots=True)
class Told:
    """What whoever gives a file says of it, where its name does not."""

    host: str | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Input:
    """A source and its bytes: decompressed, UTF-16 turned into UTF-8, opened only when asked.

    `blocks()` yields chunks of about 256 kB and raises `SourceError` where the bytes end before the file does;
    what was yielded until then is good. `size` is what lies on disk, in bytes, for progress displays. `left_out()` is
    how many bytes before the last ones given were passed over because time was short: a gap, at an end of line.
    `window`, where the bytes lie on disk as they are, yields those from a byte on; several may do so at once.
    `grown()` is how many bytes were appended to a file since it was found: none of them are read. Of what is `kept`,
    `blocks` are the log's own first bytes, and its lines are in the records.
    """

    source: LogSource
    blocks: Callable[[], Iterator[bytes]]
    size: int | None = None
    left_out: Callable[[], int] = lambda: 0
    window: Callable[[int], Iterator[bytes]] | None = None
    grown: Callable[[], int] = lambda: 0
    kept: Kept | None = None


@dataclass(frozen=True, slots=True)
class SourceSet:
    """Everything that will be read for one job, and in words what will not be and why."""

    inputs: tuple[Input, ...]
    not_read: tuple[str, ...] = ()


@dataclass(slots=True)  # not frozen: there is one for each line, and to freeze it takes thrice as long
class KeptLine:
    """A raw line that compression let through.

    `number` is 1-based and counts `\\n` only; a physical line that holds `\\r` gives several kept lines of one number.
    `raw` has no line ending; a line beyond the length limit is cut to head, guarded windows and tail (`truncated`).
    `progress` is the id of the filter rule whose `yields` the line carries, empty where it is a progress bar's last
    painting and no rule speaks of it. `routine` says that another filter rule does: the line is there for what stands
    around it, and elsewhere would be gone.
    """

    number: int
    raw: bytes
    guarded: bool = False
    truncated: bool = False
    progress: str | None = None
    routine: bool = False


@dataclass(frozen=True, slots=True)
class CompressionCounts:
    """How much a compressor saw, kept and removed. `lines` counts `\\n`-ended lines (and a last one without)."""

    bytes: int = 0
    lines: int = 0
    kept: int = 0
    dropped: int = 0
    collapsed: int = 0
    truncated: int = 0
    evicted_templates: int = 0


@dataclass(slots=True)  # not frozen, as `KeptLine` is not
class Line:
    """A decoded line with what its prefixes say.

    `text` is the whole line, unwrapped (docker JSON, CRI, JSON logger), without ANSI codes: signatures search it.
    `body` is `text` without the prefixes. `time` is seconds since the epoch, stamps without a zone read as UTC;
    `uptime` is seconds since boot where only those are known (dmesg). `stream` names the flow of lines of one
    writer (source, rank, host ...): order within it is known, and records are put together within it. Of a `routine`
    line that is not `guarded` nothing may be learnt but its `progress`: others like it are not there.
    """

    source: LogSource
    number: int
    text: str
    body: str
    stream: str
    time: float | None = None
    uptime: float | None = None
    rank: int | None = None
    local_rank: int | None = None
    host: str | None = None
    pid: int | None = None
    gpu: str | None = None
    level: str | None = None
    quoted: bool = False
    progress: str | None = None
    guarded: bool = False
    routine: bool = False

    @property
    def certain(self) -> bool:
        """Whether lines like it are always there, whatever filters say."""
        return self.guarded or not (self.routine or self.progress is not None)


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a Python traceback. `user` is False inside site-packages, the standard library and <frozen ...>."""

    file: str
    line: int | None
    function: str | None
    user: bool


@dataclass(frozen=True, slots=True)
class RaisedException:
    """One exception of a chain: its class as printed (dotted), message, frames, and which line states it."""

    type: str
    message: str
    frames: tuple[Frame, ...]
    line_index: int

    @property
    def name(self) -> str:
        """The class without its module."""
        return self.type.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class LauncherFailure:
    """One process in a launcher's summary. `first` marks what the launcher calls the root cause: reaping order."""

    rank: int | None
    local_rank: int | None
    host: str | None
    pid: int | None
    exit_code: int | None
    signal: str | None
    time: float | None
    first: bool
    line_index: int


@dataclass(frozen=True, slots=True)
class Record:
    """Lines that belong together: a traceback, a C++ stack, a launcher summary ... or one line alone.

    `lines` is bounded (head and tail of longer ones). `exceptions` is the chain in the order raised: the first is the
    deepest cause, the last is what was seen at the top. `failures` are a launcher summary's processes. `fields` are a
    parsed scheduler record's or JSON error's values by lower-case name. `text` is what signatures search: the lines'
    texts joined by `\\n`, or for `scheduler` records one canonical line.
    """

    kind: RecordKind
    lines: tuple[Line, ...]
    text: str
    exceptions: tuple[RaisedException, ...] = ()
    failures: tuple[LauncherFailure, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)
    quoted: bool = False

    @property
    def first(self) -> Line:
        """The line that opens the record."""
        return self.lines[0]


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """One sign of progress: a step done, a checkpoint's start, end or load, a completion marker, an exit code.

    `step` is the step number, or the exit code for `exit`. `checkpoint` is a path or step in the log's own words.
    `blocking` marks a checkpoint's start by a program that trains no further before the checkpoint is whole.
    """

    kind: ProgressKind
    line: Line
    attempt: int
    step: int | None = None
    total: int | None = None
    checkpoint: str | None = None
    blocking: bool = False


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of the job. Indexes count from 0 over the whole job; times are seconds since the epoch."""

    index: int
    started: float | None = None
    ended: float | None = None
    first_step: int | None = None
    last_step: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Unit:
    """What the inputs know of one rank or one GPU: every field may be missing."""

    rank: int | None = None
    local_rank: int | None = None
    host: str | None = None
    gpu: str | None = None
    pci: str | None = None
    uuid: str | None = None
    serial: str | None = None
    nic: str | None = None
    pid: int | None = None
    ip: str | None = None
