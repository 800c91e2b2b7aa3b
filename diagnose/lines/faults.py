"""Dumps of where Python threads stood: faulthandler's (fatal or on a timer) and py-spy's.

In: the lines of one stream from an opener on. Out: `traceback` records. A fatal one has one exception, of the class
`Fatal Python error`, with the frames of the thread that died. Others have no exception; the field `innermost` says
where each thread stood (`file:line function`, one a line).
"""

from __future__ import annotations

from diagnose.lines.frames import add_frame, make_frame, read_file_line
from diagnose.lines.grammar import Builder, Lines, Step, plain
from diagnose.models import Frame, Line, RaisedException, Record
from diagnose.patterns import Lazy
from diagnose.settings import Limits

FATAL = "Fatal Python error: "
_FATAL_TYPE = "Fatal Python error"
_THREAD = Lazy(
    r"(?:Current thread|Thread) (?:0x[0-9a-fA-F]{1,16}|\d{1,20})(?: \[[^\]]{0,64}\])? \(most recent call first\):"
)
_SPY_THREAD = Lazy(
    r"Thread (?:0x[0-9A-Fa-f]{1,16}|\d{1,20}) \((?:active|idle)[^)]{0,32}\)(?:: \"[^\"]{0,200}\")?\s{0,8}\Z"
)
_SPY_FRAME = Lazy(r"\s{1,16}(.{1,200}?) \(([^()]{1,512}?)(?::(\d{1,9}))?\)\s{0,8}\Z")
_MAX_NOISE = 8
_MAX_THREADS = 256

OPENERS = (FATAL, "(most recent call first):", ' (active): "', ' (idle): "', "(active+gil)")


def open_fault(line: Line, limits: Limits) -> Builder | None:
    """The dump that `line` opens, if it opens one."""
    body = line.body.lstrip()
    if body.startswith(FATAL) or _THREAD.match(body) or _SPY_THREAD.match(body):
        return _Fault(line, limits)
    return None


class _Fault:
    def __init__(self, line: Line, limits: Limits) -> None:
        self._lines = Lines(limits.record_lines)
        self._message: str | None = None
        self._threads: list[list[Frame]] = []
        self._current: list[Frame] | None = None
        self._spy = False
        self._noise = 0
        self._blank = 0
        body = line.body.lstrip()
        if body.startswith(FATAL):
            self._message = body[len(FATAL) :].strip()
        else:
            self._thread(body)
        self._lines.add(line, keep=True)

    def add(self, line: Line) -> Step:
        """Judge the next line of the stream."""
        step = self._judge(line.body)
        if step is Step.TAKEN:
            self._lines.add(line)
        return step

    def _judge(self, body: str) -> Step:
        stripped = body.strip()
        if not stripped:
            self._blank += 1
            return Step.TAKEN if self._blank <= 2 else Step.REFUSED
        if self._thread(stripped):
            self._blank = 0
            return Step.TAKEN
        if stripped.startswith('File "'):
            frame = read_file_line(stripped)
            if frame is not None and self._threads:
                add_frame(self._threads[-1], frame)
                self._blank = 0
                return Step.TAKEN
        if self._spy and (match := _SPY_FRAME.match(body)):
            add_frame(self._threads[-1], make_frame(match[2], match[3], match[1]))
            self._blank = 0
            return Step.TAKEN
        if stripped.startswith(
            (
                "Extension modules:",
                "<no Python frame>",
                "Python runtime state:",
                "...",
                "<truncated",
                "Garbage-collecting",
            )
        ):
            return Step.TAKEN
        if stripped.startswith(FATAL):
            return Step.REFUSED
        self._noise += 1
        return Step.PASSED if self._noise <= _MAX_NOISE else Step.REFUSED

    def _thread(self, body: str) -> bool:
        if len(self._threads) >= _MAX_THREADS:
            return False
        spy = _SPY_THREAD.match(body) is not None
        if not spy and not _THREAD.match(body):
            return False
        self._spy = spy
        frames: list[Frame] = []
        self._threads.append(frames)
        if self._current is None or body.startswith("Current thread"):
            self._current = frames
        return True

    def close(self) -> list[Record]:
        """The dump as one record."""
        tail = [plain(line) for line in self._lines.pop_blank_tail()]
        lines, _ = self._lines.finish()
        exceptions: tuple[RaisedException, ...] = ()
        if self._message is not None:
            # Dumps print the innermost frame first; tracebacks, and so `frames`, the outermost.
            frames = tuple(reversed(self._current or []))
            exceptions = (RaisedException(_FATAL_TYPE, self._message, frames, 0),)
        places = [f"{thread[0].file}:{thread[0].line} {thread[0].function}" for thread in self._threads if thread]
        record = Record(
            kind="traceback",
            lines=lines,
            text="\n".join(line.text for line in lines),
            exceptions=exceptions,
            fields={"innermost": "\n".join(places)} if places else {},
            quoted=lines[0].quoted,
        )
        return [record, *tail]
