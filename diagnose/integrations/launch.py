"""A command with someone beside it who says why it failed.

In: a command and `Launch`. Out: the code a shell would give, after its output went where it would have gone without
us, and after a diagnosis if it failed. The command is never slower, and never ends otherwise, for being watched: its
output is passed on as it comes, signals are passed on but for those that the terminal gave to both, and whatever goes
wrong with keeping or diagnosing is told in a line.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from diagnose.dataclass import dataclass, field, replace
from diagnose.integrations.copying import Copier, Ends, open_ends, resize, same
from diagnose.integrations.local import Answer, Diagnosing, Inputs
from diagnose.integrations.summary import Effect, cut_bytes
from diagnose.integrations.teelog import TeeLog

NOT_FOUND, NOT_EXECUTABLE = 127, 126
TERMINATION_BYTES: Final = 4096  # what Kubernetes keeps of one
_GRACE: Final = 2.0  # seconds for what others still write after the command's end
_POLL: Final = 0.05
_KERNEL: Final = 0  # above it a signal comes from the kernel, such as Ctrl-C from the terminal
# Never passed on: they are about ourselves, or stop and continue us together with the command.
_OURS: Final = frozenset(
    {
        signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCONT,
        signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGSYS,
        signal.SIGPIPE, signal.SIGPROF, signal.SIGXFSZ,
    }
)  # fmt: skip
_ENDING: Final = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM})
_SIGNALS: Final = {signal.SIGSEGV: "Segmentation fault", signal.SIGKILL: "Killed", signal.SIGABRT: "Aborted",
                   signal.SIGBUS: "Bus error", signal.SIGTERM: "Terminated", signal.SIGFPE: "Floating point exception",
                   signal.SIGILL: "Illegal instruction"}  # fmt: skip

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Launch:
    """How a command is launched.

    `log` keeps what it prints, of at most `log_bytes`, standard error in a file beside it; without one it is kept only
    until it is diagnosed. `inputs` are what else there is to read, and how to tell it; `termination_log` gets the
    verdict's beginning. `exits` are the codes to return instead of the command's, by what should be done. `seconds` is
    for the diagnosis.
    """

    log: str | None = None
    log_bytes: int = 256 * 1024 * 1024
    inputs: Inputs = field(default_factory=lambda: Inputs(logs=()))
    output: Callable[[str], None] | None = None
    termination_log: str | None = None
    exits: Mapping[Effect, int] = field(default_factory=dict)
    seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended. `asked` is the signal by which somebody had asked it to, before it did."""

    pid: int
    status: int
    asked: int | None = None
    out_of_memory: bool = False

    @property
    def code(self) -> int:
        """The code a shell would give."""
        return 128 + -self.status if self.status < 0 else self.status


def launch(command: Sequence[str], how: Launch, tell: Tell) -> int:
    """Runs a command and returns the code to exit with."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored, nobody learns how children ended
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _listened())
    try:
        return _launched(command, how, tell, before)
    finally:
        while signal.sigtimedwait(_ENDING, 0) is not None:  # what came too late for the command is not for us either
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _launched(command: Sequence[str], how: Launch, tell: Tell, mask: set[signal.Signals | int]) -> int:
    kills = oom_kills()
    with contextlib.ExitStack() as stack:
        folder = _folder(stack, tell)
        streams = _Streams(how.log or (os.path.join(folder, "output.out") if folder else None), how.log_bytes)
        try:
            pid = streams.start(command, mask)
        except OSError as error:
            streams.close()
            tell(f"{command[0]}: {error.strerror or error}")
            return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        except ValueError as error:  # a null character
            streams.close()
            tell(f"{command[0]!r}: {error}")
            return NOT_EXECUTABLE
        ended = _await(pid, streams)
        streams.finish()
        for problem in streams.problems():
            tell(problem)
        if ended.status == 0 or ended.asked == signal.SIGINT:
            return ended.code
        now = oom_kills()
        ended = replace(ended, out_of_memory=kills is not None and now is not None and now > kills)
        return _diagnose(command, ended, streams.kept(), how, folder, tell)


def _folder(stack: contextlib.ExitStack, tell: Tell) -> str:
    """A directory of our own, gone at the end."""
    try:
        return stack.enter_context(tempfile.TemporaryDirectory(prefix="diagnose-run-", ignore_cleanup_errors=True))
    except OSError as error:
        tell(f"no temporary directory, so a failure will not be diagnosed: {error.strerror}; set TMPDIR")
        return ""


class _Streams:
    """Standard output and error of the command, on their way to ours and into a log each.

    Where both lead to one place they are one stream, so that their order stays as it is.
    """

    def __init__(self, log: str | None, most: int) -> None:
        one = same(1, 2)
        self._targets = (1,) if one else (1, 2)
        names = {1: log, 2: _beside(log)} if log is not None else {}
        self._logs = {target: TeeLog(names[target], most // len(self._targets)) for target in self._targets if names}
        self._copiers: list[Copier] = []
        self._ends: dict[int, Ends] = {}

    def start(self, command: Sequence[str], mask: set[signal.Signals | int]) -> int:
        """Starts the command; raises `OSError` where it cannot be."""
        for target in self._targets:
            self._ends[target] = open_ends(target)
        given = {target: self._ends.get(target, self._ends[1]).given for target in (1, 2)}
        pid = os.posix_spawnp(
            command[0],
            list(command),
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, number, target) for target, number in given.items()],
            setsigmask=mask,
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores them; a command should not
        )
        for target, ends in self._ends.items():
            log = self._logs.get(target)
            self._copiers.append(Copier(ends.ours, target, log.add if log is not None else lambda _: None))
            if not ends.terminal:
                os.close(ends.given)
        return pid

    def resize(self) -> None:
        """Tells the command's terminals how large the real one has become."""
        for target, ends in self._ends.items():
            if ends.terminal:
                resize(ends.given, target)

    def finish(self) -> None:
        """Waits for the last output; what others go on to write is passed on when we are gone."""
        for ends in self._ends.values():
            if ends.terminal:
                os.close(ends.given)
        until = time.monotonic() + _GRACE
        for copier in self._copiers:
            if not copier.join(max(0.0, until - time.monotonic())):
                copier.hand_over()
        for log in self._logs.values():
            log.close()

    def close(self) -> None:
        """Closes all ends of a command that never was, and forgets its logs."""
        for ends in self._ends.values():
            os.close(ends.given)
            os.close(ends.ours)
        for log in self._logs.values():
            log.discard()

    def kept(self) -> list[str]:
        """The logs there are to read; an empty one of standard error is none."""
        return [log.path for target, log in self._logs.items() if log.written or target == 1]

    def problems(self) -> list[str]:
        """What did not go as it should."""
        told = [copier.problem for copier in self._copiers] + [log.problem for log in self._logs.values()]
        return list(filter(None, told))


def _beside(log: str) -> str:
    """Where standard error is kept, if standard output is kept there."""
    root, extension = os.path.splitext(log)
    return root + ".err" if extension and extension != ".err" else log + ".err"


def _listened() -> set[signal.Signals]:
    """The signals to wait for: all that may be for the command, and its end. What is ignored stays ignored."""
    wanted = {number for number in signal.valid_signals() if number not in _OURS}
    heard = {number for number in wanted if signal.getsignal(number) is not signal.SIG_IGN}
    return {*heard, signal.SIGCHLD}


def _await(pid: int, streams: _Streams) -> Ended:
    """Passes signals on until the command has ended."""
    asked: int | None = None
    waited = _listened()
    while True:
        while (done := os.waitpid(-1, os.WNOHANG))[0]:  # as process 1 of a container we inherit everybody's orphans
            if done[0] == pid:
                # It may have been quicker than we were: what asked both of us to end is still to be heard then.
                late = signal.sigtimedwait(_ENDING, 0) if asked is None else None
                return Ended(pid, os.waitstatus_to_exitcode(done[1]), late.si_signo if late is not None else asked)
        came = signal.sigwaitinfo(waited)
        number = came.si_signo
        if number == signal.SIGCHLD:
            continue
        if number == signal.SIGWINCH:
            streams.resize()
        if number in _ENDING:
            asked = number
        if came.si_code <= _KERNEL:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)  # not reaped yet, so the number is its own


def _diagnose(command: Sequence[str], ended: Ended, logs: Sequence[str], how: Launch, folder: str, tell: Tell) -> int:
    """Says why the command failed; returns the code to exit with."""
    if not folder or not logs:
        return ended.code
    for problem in _told_end(command, ended, folder):
        tell(problem)
    records = [os.path.join(folder, name) for name in ("end.sacct",) if os.path.exists(os.path.join(folder, name))]
    words = [os.path.join(folder, name) for name in ("end",) if os.path.exists(os.path.join(folder, name))]
    inputs = replace(
        how.inputs,
        logs=[*logs, *words, *how.inputs.logs],
        scheduler_records=[*records, *how.inputs.scheduler_records],
    )
    answer = _awaited(Diagnosing(inputs, seconds=how.seconds))
    if answer is None:
        return ended.code
    if isinstance(answer, str):
        tell(f"not diagnosed: {answer}")
        return ended.code
    for line in answer.told:
        tell(line)
    if how.output is not None:
        how.output(answer.rendered)
    if how.termination_log is not None:
        try:
            write_termination(how.termination_log, answer, ended.code)
        except OSError as error:
            tell(f"{how.termination_log}: {error.strerror}; no termination message was written")
    if ended.asked is not None:  # somebody has ended it, and knows what to do next
        return ended.code
    return how.exits.get(answer.summary.effect, ended.code)


def _awaited(diagnosing: Diagnosing) -> Answer | str | None:
    """The answer; None where somebody asked us to end before it came."""
    while not diagnosing.over():
        came = signal.sigtimedwait(_ENDING | {signal.SIGCHLD}, _POLL)
        if came is not None and came.si_signo != signal.SIGCHLD:
            diagnosing.abandon()
            return None
    return diagnosing.result()


def _told_end(command: Sequence[str], ended: Ended, folder: str) -> list[str]:
    """Writes down how the command ended, in the words of those who usually say it: Slurm's accounting and a shell.

    Of a command that somebody asked to end nothing is written: that it did proves nothing.
    """
    if ended.asked is not None:
        return []
    number = -ended.status if ended.status < 0 else 0
    state = "OUT_OF_MEMORY" if ended.out_of_memory else "FAILED"
    job = os.environ.get("SLURM_JOB_ID", "")
    job = job if job.isdigit() else str(ended.pid)
    exit_code = f"0:{number}" if number else f"{ended.status}:0"
    program = os.path.basename(command[0])[:64]
    name = "".join(char if char.isalnum() or char in "._-" else "_" for char in program)
    words = ""
    if number in _SIGNALS:
        words = f"{name}: line 1: {ended.pid:>5} {_SIGNALS[signal.Signals(number)]}\n"
    elif ended.status in (128 + signal.SIGKILL, 128 + signal.SIGSEGV):
        words = f"{name} exited with exit code {ended.status}\n"
    try:
        with open(os.path.join(folder, "end.sacct"), "w", encoding="ascii", errors="replace") as file:
            file.write(f"JobID|JobName|State|ExitCode\n{job}|{name}|{state}|{exit_code}\n")
        if words:
            with open(os.path.join(folder, "end"), "w", encoding="ascii", errors="replace") as file:
                file.write(words)
    except OSError as error:
        return [f"the exit code could not be written down: {error.strerror}"]
    return []


def write_termination(path: str, answer: Answer, code: int) -> None:
    """Writes the verdict's beginning into a file that may be mounted, and so cannot be replaced; links are refused."""
    text = f"exit code {code}\n{answer.text}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    number = os.open(path, flags, 0o644)
    try:
        data = cut_bytes(text, TERMINATION_BYTES).encode()
        while data:
            data = data[os.write(number, data) :]
    finally:
        os.close(number)


def oom_kills() -> int | None:
    """How often the kernel has killed for lack of memory within our control group; None where it does not say."""
    try:
        with open("/proc/self/cgroup", encoding="ascii", errors="replace") as file:
            groups = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return None
    for _, controllers, path in (group for group in groups if len(group) == 3):
        if controllers and "memory" not in controllers.split(","):
            continue
        base, name = (
            ("/sys/fs/cgroup/memory", "memory.oom_control") if controllers else ("/sys/fs/cgroup", "memory.events")
        )
        for folder in (base + path, base):  # within a container the group is the root of what is mounted
            with contextlib.suppress(OSError, ValueError), open(os.path.join(folder, name), encoding="ascii") as file:
                for line in file:
                    key, _, value = line.partition(" ")
                    if key == "oom_kill":
                        return int(value)
    return None


def supported() -> bool:
    """Whether this system has what it takes: signals that say where they come from."""
    return hasattr(signal, "sigwaitinfo") and hasattr(os, "posix_spawnp") and sys.platform == "linux"
