"""What launchers say of the processes they started, in one line: srun, mpirun, torchelastic, DeepSpeed, pdsh, shells.

In: a line that holds one of the literals in `OPENERS`. Out: a `launcher_summary` record with one failure for each
process it names (rank lists spread, at most `MAX_RANKS`). A launcher sees the order in which it reaps, not the order
in which things broke: `first` says what it called first, no more. The field `what` says in a word what happened:
`exit`, `signal`, `cancelled`, `kill` (the launcher's own doing) or `abort`.
"""

from __future__ import annotations

import re
import signal as _signal
from collections.abc import Callable, Iterable

from diagnose.lines.times import read_time
from diagnose.models import LauncherFailure, Line, RaisedException, Record
from diagnose.patterns import Lazy

MAX_RANKS = 4096
_TEXT_CHARS = 4096

_SIGNAL_WORDS = {
    "Killed": "SIGKILL", "Aborted": "SIGABRT", "Segmentation fault": "SIGSEGV", "Bus error": "SIGBUS",
    "Terminated": "SIGTERM",
    "Floating point exception": "SIGFPE", "Illegal instruction": "SIGILL", "Hangup": "SIGHUP", "Interrupt": "SIGINT",
    "User defined signal 1": "SIGUSR1", "User defined signal 2": "SIGUSR2", "Trace/breakpoint trap": "SIGTRAP",
    "Abort trap": "SIGABRT",
    "Quit": "SIGQUIT", "Broken pipe": "SIGPIPE", "Bus error: nonexistent physical address": "SIGBUS",
    "CPU time limit exceeded": "SIGXCPU", "Out Of Memory": "SIGKILL",
}  # fmt: skip
_WORDS = "|".join(sorted(map(re.escape, _SIGNAL_WORDS), key=len, reverse=True))

_SRUN = Lazy(
    rf"srun: error: ([^\s:]{{1,255}}): tasks? ([\d,\-]{{1,4096}}): "
    rf"(?:Exited with exit code (-?\d{{1,5}})|({_WORDS})(?: \(core dumped\))?)"
)
_STEPD = Lazy(
    r"\*\*\* (STEP|JOB) (\S{1,64}) ON (\S{1,255}) (CANCELLED|FAILED|PREEMPTED|TERMINATED|KILLED)"
    r"(?: AT (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d))?(?: (?:DUE TO|due to) ([A-Za-z ,_-]{1,80}?))?"
    r"(?:,? see SlurmctldLog\S{0,40}|,? with [^*]{0,80})?\s{0,4}\*\*\*"
)
_NOTICED = Lazy(
    r"noticed that process rank (\d{1,9}) with PID (\d{1,9}) on node (\S{1,255}) exited on signal (\d{1,3})"
)
_NOTICED_EXIT = Lazy(
    r"process rank (\d{1,9}) with PID (\d{1,9}) on node (\S{1,255}) exited (?:with|improperly)[^\d]{0,40}(-?\d{0,5})"
)
_MPI_ABORT = Lazy(
    r"MPI_A(?:BORT|bort)(?: was invoked|\w{0,8}) on rank (\d{1,9}) in communicator .{1,200} ?with errorcode (-?\d{1,9})"
)
_MPI_ABORT_APP = Lazy(r"application called MPI_Abort\([^,]{1,64}, (-?\d{1,9})\) - process (\d{1,9})")
_PRIMARY = Lazy(r"Primary job\s{1,4}terminated normally, but \d{1,6} process")
_ELASTIC = Lazy(r"failed \(exitcode: (-?\d{1,6})\) local_rank: (\d{1,6}) \(pid: (\d{1,9})\) of binary")
_DEEPSPEED = Lazy(r"exits with return code = (-?\d{1,6})")
_LOCAL_RANK = Lazy(r"--local[_-]rank[= ](\d{1,6})|subprocess on (?:local )?rank (\d{1,6})")
_KILLING = Lazy(r"Killing subprocess (\d{1,9})")
_PDSH = Lazy(r"pdsh@[^:\s]{1,255}: ([^:\s]{1,255}): (?:\S{1,32} )?exited with exit code (\d{1,5})")
_SHELL = Lazy(rf": line \d{{1,7}}: {{1,4}}(\d{{1,9}}) ({_WORDS})(?:\s{{1,40}}|\s{{0,4}}\(core dumped\))(?:\S|\Z)")
_SHELL_BARE = Lazy(
    rf"\A(?:\[\d{{1,4}}\][+-]?\s{{1,8}})?(?:\d{{1,9}} )?({_WORDS})(?:\s{{1,4}}\(core dumped\))?"
    rf"(?:\s{{2,40}}\S.{{0,2000}})?\s{{0,8}}\Z"
)
_CHILD = Lazy(r"\[rank: (\d{1,9})\] Child process with PID (\d{1,9}) terminated with code (-?\d{1,5})")
_SPAWNED = Lazy(r"\bprocess (\d{1,9}) terminated with (?:signal (SIG\w{1,16})|exit code (-?\d{1,5}))")
_CALLED = Lazy(r"returned non-zero exit status (-?\d{1,6})|died with <Signals\.(SIG\w{1,16})")
_GOT_SIGNAL = Lazy(r"\bProcess (\d{1,9}) got signal: (\d{1,3})")
_COMMAND = Lazy(r"command terminated with (?:non-zero )?exit code:? ?(\d{1,5})")
_ENTRYPOINT = Lazy(
    r"[Jj]ob .{0,300}?failed with (?:non-zero )?exit code:? (-?\d{1,5})"
    r"|entrypoint command failed with exit code (-?\d{1,5})"
)
_EXIT_LINE = Lazy(
    r"\A\W{0,12}(?:\w{1,32}(?:\.py|\.sh)?\s){0,4}?"
    r"(?:[Ee]xit(?:ed)?(?:ing)?(?: with)? ?(?:code|status)|returncode|return code|rc|EXIT_CODE)"
    r"\s{0,4}[:=]?\s{0,4}(-?\d{1,5})\W{0,12}\Z"
)
_FAILED_RC = Lazy(
    r"\b[Pp]rocess (\d{1,9}) (?:failed|exited|exit) with "
    r"(?:return |status |exit )?(?:code|status)(?: code)?:? (-?\d{1,5})"
)

# The modules that only start and watch processes. A traceback that ends in them tells of a launcher.
_LAUNCHER_FILE = Lazy(
    r"accelerate/commands/|deepspeed/launcher/|torch/distributed/(?:launch|run|elastic|launcher)\b|torch/distributed/elastic/"
    r"|horovod/runner/|colossalai/cli/|nemo_run/|lightning_fabric/cli|llamafactory/(?:cli|launcher)|swift/cli/"
)
_DETECTED = "detected that one or more processes exited with non-zero status"
_FIRST = Lazy(r"Process name: (?:\[\[\d{1,9},\d{1,9}\],)?(\d{1,9})\]?\s{1,8}Exit code:\s{1,8}(-?\d{1,5})")
_LAUNCHER_TYPES = frozenset({"ChildFailedError", "SignalException", "ProcessExitedException"})

OPENERS = (
    "srun: error: ", "*** STEP ", "*** JOB ", "noticed that process rank", "MPI_ABORT was invoked",
    "application called MPI_Abort", "Primary job",
    "failed (exitcode: ", "exits with return code", "Killing subprocess", "pdsh@", ": line ",
    "] Child process with PID",
    "terminated with signal SIG", "terminated with exit code", "returned non-zero exit status", "died with <Signals",
    "got signal: ",
    "command terminated with", "failed with exit code", "failed with return code", "exited with code",
    "exit with status code",
    "(core dumped)", "Killed", "Segmentation fault", "Bus error", "Aborted  ", "Terminated  ", "xit code",
    "xit status", "returncode", "return code", "EXIT_CODE",
)  # fmt: skip


def signal_of(code: int | None) -> str | None:
    """The signal that an exit code speaks of: negative from Python, 128 + n from shells."""
    if code is None:
        return None
    number = -code if code < 0 else code - 128 if 128 < code < 128 + 65 else 0
    try:
        return _signal.Signals(number).name
    except ValueError:
        return None


def expand_ranks(text: str) -> list[int]:
    """`0,4-6` to its numbers, at most `MAX_RANKS`."""
    ranks: list[int] = []
    for piece in text.split(","):
        low, dash, high = piece.partition("-")
        if not low.isdigit() or len(low) > 9 or (dash and (not high.isdigit() or len(high) > 9)):
            continue
        stop = int(high) if dash else int(low)
        ranks.extend(range(int(low), min(stop, int(low) + MAX_RANKS) + 1))
        if len(ranks) >= MAX_RANKS:
            break
    return ranks[:MAX_RANKS]


def failure(
    *,
    rank: int | None = None,
    local_rank: int | None = None,
    host: str | None = None,
    pid: int | None = None,
    exit_code: int | None = None,
    signal: str | None = None,
    time: float | None = None,
    first: bool = False,
    line_index: int = 0,
) -> LauncherFailure:
    """A failure, its signal read from the exit code where only that is given."""
    return LauncherFailure(
        rank, local_rank, host, pid, exit_code, signal or signal_of(exit_code), time, first, line_index
    )


_Found = tuple[str, list[LauncherFailure], dict[str, str]]


def _signal_name(number: str) -> str | None:
    return signal_of(-int(number))


def _srun(line: Line, text: str) -> _Found | None:
    match = _SRUN.search(text)
    if match is None:
        return None
    code = int(match[3]) if match[3] is not None else None
    name = _SIGNAL_WORDS[match[4]] if match[4] else None
    fields = {"reason": match[4]} if match[4] else {}
    failures = [
        failure(rank=rank, host=match[1], exit_code=code, signal=name, time=line.time)
        for rank in expand_ranks(match[2])
    ]
    return "signal" if name else "exit", failures, fields


def _stepd(line: Line, text: str) -> _Found | None:
    match = _STEPD.search(text) if "***" in text else None
    if match is None:
        return None
    when = read_time(match[5]) if match[5] else line.time
    fields = {"unit": match[1].lower(), "job": match[2], "state": match[4]}
    if match[6]:
        fields["reason"] = match[6].strip()
    return "cancelled", [failure(host=match[3], time=when)], fields


def _mpirun(line: Line, text: str) -> _Found | None:
    if match := _NOTICED.search(text):
        name = _signal_name(match[4])
        return "signal", [_of_mpi(line, match, signal=name)], {}
    if match := _NOTICED_EXIT.search(text):
        return "exit", [_of_mpi(line, match, exit_code=int(match[4]) if match[4].strip("-") else None)], {}
    if match := _MPI_ABORT.search(text):
        return "abort", [failure(rank=int(match[1]), exit_code=int(match[2]), time=line.time, first=True)], {}
    if match := _MPI_ABORT_APP.search(text):
        return "abort", [failure(rank=int(match[2]), exit_code=int(match[1]), time=line.time, first=True)], {}
    if _PRIMARY.search(text):
        return "exit", [failure(time=line.time, first=True)], {}
    return None


def _of_mpi(
    line: Line, match: re.Match[str], *, exit_code: int | None = None, signal: str | None = None
) -> LauncherFailure:
    return failure(
        rank=int(match[1]),
        pid=int(match[2]) or None,
        host=match[3],
        exit_code=exit_code,
        signal=signal,
        time=line.time,
        first=True,
    )


def _elastic(line: Line, text: str) -> _Found | None:
    match = _ELASTIC.search(text)
    if match is None:
        return None
    item = failure(
        local_rank=int(match[2]),
        host=line.host,
        pid=int(match[3]),
        exit_code=int(match[1]),
        time=line.time,
        first=True,
    )
    return "exit", [item], {}


def _deepspeed(line: Line, text: str) -> _Found | None:
    if match := _DEEPSPEED.search(text):
        local = _LOCAL_RANK.search(text)
        number = int(local[1] or local[2]) if local else None
        code = int(match[1])
        return "exit", [failure(local_rank=number, host=line.host, exit_code=code, time=line.time, first=True)], {}
    if match := _KILLING.search(text):
        # The launcher's doing: no process failed by itself here.
        return "kill", [], {"pid": match[1]}
    return None


def _pdsh(line: Line, text: str) -> _Found | None:
    match = _PDSH.search(text)
    return ("exit", [failure(host=match[1], exit_code=int(match[2]), time=line.time)], {}) if match else None


def _shell(line: Line, text: str) -> _Found | None:
    match = _SHELL.search(text)
    if match:
        return "signal", [failure(pid=int(match[1]), signal=_SIGNAL_WORDS[match[2]], time=line.time)], {}
    bare = _SHELL_BARE.match(line.body) if line.level is None else None
    if bare and bare[1] in (
        "Killed",
        "Segmentation fault",
        "Aborted",
        "Bus error",
        "Floating point exception",
        "Illegal instruction",
    ):
        return "signal", [failure(rank=line.rank, signal=_SIGNAL_WORDS[bare[1]], time=line.time)], {}
    return None


def _spawned(line: Line, text: str) -> _Found | None:
    if match := _CHILD.search(text):
        item = failure(rank=int(match[1]), pid=int(match[2]), exit_code=int(match[3]), time=line.time, first=True)
        return "exit", [item], {}
    if match := _SPAWNED.search(text):
        code = int(match[3]) if match[3] else None
        return (
            ("signal" if match[2] else "exit"),
            [failure(local_rank=int(match[1]), exit_code=code, signal=match[2], time=line.time, first=True)],
            {},
        )
    if match := _GOT_SIGNAL.search(text):
        return "signal", [failure(pid=int(match[1]), signal=_signal_name(match[2]), time=line.time)], {}
    return None


def _codes(line: Line, text: str) -> _Found | None:
    if "Command " in text and (match := _CALLED.search(text)):
        code = int(match[1]) if match[1] else None
        local = _LOCAL_RANK.search(text)
        item = failure(
            local_rank=int(local[1] or local[2]) if local else None, exit_code=code, signal=match[2], time=line.time
        )
        return "exit", [item], {}
    if match := _FAILED_RC.search(text):
        return _unless_zero(match[2], failure(rank=int(match[1]), exit_code=int(match[2]), time=line.time))
    if match := _COMMAND.search(text) or _ENTRYPOINT.search(text):
        text_code = match[match.lastindex or 1]
        return _unless_zero(text_code, failure(exit_code=int(text_code), time=line.time))
    if match := _EXIT_LINE.match(line.body[:256]):
        return _unless_zero(match[1], failure(exit_code=int(match[1]), time=line.time))
    return None


def _unless_zero(code: str, item: LauncherFailure) -> _Found | None:
    return ("exit", [item], {}) if int(code) else None


_READERS: tuple[tuple[tuple[str, ...], Callable[[Line, str], _Found | None]], ...] = (
    (("srun: error: ",), _srun),
    (("*** STEP ", "*** JOB "), _stepd),
    (("noticed that process rank", "process rank", "MPI_A", "Primary job"), _mpirun),
    (("failed (exitcode: ",), _elastic),
    (("exits with return code", "Killing subprocess"), _deepspeed),
    (("pdsh@",), _pdsh),
    (("] Child process with PID", "terminated with", "got signal: "), _spawned),
    ((": line ", "(core dumped)", "Killed", "Segmentation fault", "Bus error", "Aborted"), _shell),
    (("returned non-zero exit status", "died with <Signals", "command terminated", "failed with",
      "exited with code", "exit with status",
      "xit code", "xit status", "returncode", "return code", "EXIT_CODE"), _codes),
)  # fmt: skip


def read_launcher_line(line: Line) -> Record | None:
    """The record of a line in which a launcher speaks of a process, if it is one."""
    text = line.text[:_TEXT_CHARS]
    for literals, reader in _READERS:
        if not any(literal in text for literal in literals):
            continue
        found = reader(line, text)
        if found is not None:
            what, failures, fields = found
            return Record(
                kind="launcher_summary",
                lines=(line,),
                text=line.text,
                failures=tuple(failures),
                fields={"what": what, **fields},
                quoted=line.quoted,
            )
    return None


def is_launcher_traceback(exceptions: Iterable[RaisedException]) -> bool:
    """Whether a traceback is a launcher's report on its children, and no exception of the user's own code."""
    items = tuple(exceptions)
    if not items:
        return False
    last = items[-1]
    if last.name in _LAUNCHER_TYPES:
        return len(items) == 1 or all(item.name in _LAUNCHER_TYPES for item in items)
    if _DETECTED in last.message:
        return True
    if last.name != "CalledProcessError" or len(items) > 1:
        return False
    return any(_LAUNCHER_FILE.search(frame.file) for frame in last.frames)


def failures_of_exceptions(exceptions: Iterable[RaisedException]) -> tuple[LauncherFailure, ...]:
    """The processes that a launcher's exceptions speak of."""
    out: list[LauncherFailure] = []
    for item in exceptions:
        message, at = item.message[:_TEXT_CHARS], item.line_index
        if item.name == "ProcessExitedException" and (match := _SPAWNED.search(message)):
            code = int(match[3]) if match[3] else None
            out.append(failure(local_rank=int(match[1]), exit_code=code, signal=match[2], first=True, line_index=at))
        elif item.name == "ProcessRaisedException" and (
            match := re.search(r"-- Process (\d{1,9}) terminated", message)
        ):
            out.append(failure(local_rank=int(match[1]), exit_code=1, first=True, line_index=at))
        elif _DETECTED in message and (match := _FIRST.search(message)):
            out.append(failure(rank=int(match[1]), exit_code=int(match[2]), first=True, line_index=at))
        elif item.name == "SignalException" and (match := _GOT_SIGNAL.search(message)):
            out.append(failure(pid=int(match[1]), signal=_signal_name(match[2]), line_index=at))
        elif item.name == "CalledProcessError" and (match := _CALLED.search(message.replace("\n", " "))):
            code = int(match[1]) if match[1] else None
            out.append(failure(exit_code=code, signal=match[2], line_index=at))
    return tuple(out)
