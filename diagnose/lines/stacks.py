"""Stacks of native code: c10 and glog, libstdc++'s terminate, Open MPI, UCX, gdb, TensorFlow and JAX.

In: the lines of one stream from an opener on. Out: `stack` records that hold the message and the frames; `fields` has
`type` (the C++ class of `terminate called ...`), `what`, and `signal` where they are known.
"""

from __future__ import annotations

from diagnose.lines.grammar import Builder, Lines, Step, plain
from diagnose.models import Line, Record
from diagnose.patterns import Lazy
from diagnose.settings import Limits

_MAX_NOISE = 4
_TERMINATE = "terminate called "
_TERMINATE_TYPE = Lazy(
    r"terminate called (?:after throwing an instance of '([^']{1,300})'|without an active exception|recursively)"
)
_WHAT = "  what():"
_RAISED = "Exception raised from "
# c10 prints these before the stack of the same error.
_BEFORE_STACK = (
    "terminated with exception: ",
    "detected by watchdog at work",
    "caught exception: ",
    "Caught exception: ",
    "c10::Error",
    "c10d::",
)

_FRAME_STARTS = (
    "frame #", "#", "@ ", "[0x", "/lib/", "/usr/", "/opt/", "BFD: ", "*** End of", "C++ CapturedTraceback",
    "*** Check failure", "*** SIG",
    "*** Aborted at", "PC: @", "(unknown)", "====", "Fatal error:", "stack trace:", "Stack trace", "Backtrace:",
    "backtrace:",
)  # fmt: skip
_MPI_BLOCK = Lazy(r"\[[^\]\s:]{1,255}:\d{1,9}\] (?:\*\*\* |\[ ?\d{1,3}\] |Signal|Failing|Associated)")
_MPI_OPEN = Lazy(r"\[[^\]\s:]{1,255}:\d{1,9}\] \*\*\* Process received signal \*\*\*")
_UCX_FRAME = Lazy(r"\s{0,8}\d{1,3}\s{1,8}(?:0x[0-9a-fA-F]{1,16}|\S{1,512}\()")
_UCX_OPEN = Lazy(r"={4,20} ?(?:backtrace|Backtrace)")
_GDB_FRAME = Lazy(r"#\d{1,3}\s{1,4}(?:0x[0-9a-fA-F]{1,16}|\S)")
_GLOG_AT = Lazy(r"\s{0,8}@\s{1,20}(?:0x[0-9a-fA-F]{1,16}|\(nil\))")
_SIGNAL = Lazy(r"\b(SIG[A-Z]{3,6})\b|Signal: ([A-Z][A-Za-z ]{3,24}?) \(\d{1,2}\)|signal: ([A-Z]\w{3,24})")
_MESSAGE_STARTS = (
    "CUDA kernel errors might be", "For debugging consider", "Compile with `", "Last error:", "nccl",
    "Device-side assertion", "HIP kernel",
    "Search for `cuda", "Expected", "ncclSystemError", "This may be", "Possible", "[PG ", "[Rank ", "what():",
    "NCCL version",
)  # fmt: skip

OPENERS = (
    _RAISED, _TERMINATE, "*** Aborted at", "*** Check failure stack trace", "*** SIG", "PC: @",
    "*** Process received signal ***",
    "==== backtrace", "= backtrace ", 'Thread 1 "', "frame #0", "#0  0x", "terminated with exception: ",
    "detected by watchdog at work",
    "C++ Traceback (most recent call last)", "Stack trace below", "*** Begin stack trace ***",
)  # fmt: skip


def open_stack(line: Line, limits: Limits) -> Builder | None:
    """The stack that `line` opens, if it opens one."""
    body = line.body
    stripped = body.lstrip()
    if (
        _RAISED in body
        or _TERMINATE in body
        or stripped.startswith(
            ("*** Aborted at", "*** SIG", "PC: @", "frame #0", "C++ Traceback (most", "*** Begin stack")
        )
        or "*** Check failure stack trace" in body
        or _MPI_OPEN.search(line.text[:1024])
        or _UCX_OPEN.match(stripped)
        or (stripped.startswith("#0 ") and _GDB_FRAME.match(stripped))
    ):
        return _Stack(line, limits)
    if any(sign in body for sign in _BEFORE_STACK):
        return _Stack(line, limits, tentative=True)
    return None


class _Stack:
    """A native stack; `tentative` while only the message that comes before one has been seen."""

    def __init__(self, line: Line, limits: Limits, *, tentative: bool = False) -> None:
        self._lines = Lines(limits.record_lines)
        self._tentative = tentative
        self._fields: dict[str, str] = {}
        self._in_message = tentative or _TERMINATE in line.body
        self._noise = 0
        self._blank = 0
        self._take(line, keep=True)

    def add(self, line: Line) -> Step:
        """Judge the next line of the stream."""
        body = line.body
        stripped = body.strip()
        if not stripped:
            self._blank += 1
            if self._blank > 2:
                return Step.REFUSED
            self._lines.add(line)
            return Step.TAKEN
        frame = self._is_frame(line, body, stripped)
        if frame or _RAISED in body or stripped.startswith("what():"):
            self._tentative = False
            self._in_message = not frame
            self._take(line, keep=stripped.startswith("what():"))
            return Step.FINAL if "*** End of" in body or "End of error message ***" in body else Step.TAKEN
        if _TERMINATE in body or line.level is not None:
            return Step.REFUSED
        if self._in_message and self._blank == 0 and (body[0] in " \t" or stripped.startswith(_MESSAGE_STARTS)):
            self._take(line)
            return Step.TAKEN
        if self._tentative:
            return Step.REFUSED
        self._noise += 1
        return Step.PASSED if self._noise <= _MAX_NOISE else Step.REFUSED

    def close(self) -> list[Record]:
        """The stack, or its lines alone where no frame followed."""
        tail = [plain(line) for line in self._lines.pop_blank_tail()]
        lines, _ = self._lines.finish()
        if self._tentative:
            return [*map(plain, lines), *tail]
        record = Record(
            kind="stack",
            lines=lines,
            text="\n".join(line.text for line in lines),
            fields=self._fields,
            quoted=lines[0].quoted,
        )
        return [record, *tail]

    def _is_frame(self, line: Line, body: str, stripped: str) -> bool:
        if stripped.startswith(_FRAME_STARTS):
            return not stripped.startswith("#") or _GDB_FRAME.match(stripped) is not None
        return bool(
            _GLOG_AT.match(body)
            or _UCX_FRAME.match(body)
            or ("] " in line.text and _MPI_BLOCK.search(line.text[:1024]))
        )

    def _take(self, line: Line, *, keep: bool = False) -> None:
        self._blank = self._noise = 0
        self._lines.add(line, keep=keep)
        body = line.body[:4096]
        if (match := _TERMINATE_TYPE.search(body)) and match[1]:
            self._fields.setdefault("type", match[1])
        if body.lstrip().startswith("what():"):
            self._fields.setdefault("what", body.lstrip()[7:].strip())
        if ("ignal" in body or "SIG" in body) and "signal" not in self._fields and (match := _SIGNAL.search(body)):
            self._fields["signal"] = match[1] or match[2] or match[3]
