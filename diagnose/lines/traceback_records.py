"""Traceback records: which lines of a stream make one, and whose traceback it is.

In: the lines of one stream from an opener on. Out: `traceback` records; `launcher_summary` records where the traceback
is a launcher's own (`ChildFailedError` with its block, a failed `CalledProcessError` of the launcher's command), so
that nobody takes it for the user's. Tracebacks that Python reports and swallows (`Exception ignored in`, logging's own
errors) come out with `quoted` and the field `ignored`: they ended nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.lines.faults import open_fault
from diagnose.lines.grammar import Builder, Lines, Step, plain
from diagnose.lines.launcher_blocks import LauncherBlock
from diagnose.lines.launchers import failures_of_exceptions, is_launcher_traceback
from diagnose.lines.traceback_lines import HEADER, read_bare_exception
from diagnose.lines.tracebacks import TracebackParser, parse_traceback
from diagnose.models import Line, Record
from diagnose.patterns import Lazy
from diagnose.settings import Limits

_IGNORED = ("Exception ignored in", "--- Logging error ---", "Exception ignored on")
_ANNOUNCED = Lazy(
    r"(?:Exception in thread |Process [\w.:-]{1,128}:\s{0,8}\Z|-- Process \d{1,9} terminated with the following error)"
)
_ESCAPED = HEADER + ":\\n"
_INNER = HEADER + ":\n"
_ERROR_LEVELS = frozenset({"error", "critical", "fatal", "exception", "severe", "alert", "emergency"})

OPENERS = (
    HEADER,
    'File "',
    "RayTaskError(",
    "Exception in thread ",
    "terminated with the following error",
    "Exception ignored in",
    "--- Logging error ---",
)


def open_traceback(line: Line, limits: Limits) -> Builder | None:
    """The record that `line` opens, if it opens a traceback."""
    body = line.body
    if HEADER in body:
        if _ESCAPED in body or _INNER in body:
            return _Inline(line)
        builder = TracebackBuilder(line, limits)
        return builder if builder.opened else None
    stripped = body.lstrip()
    if stripped.startswith(_IGNORED) or _ANNOUNCED.match(stripped):
        return TracebackBuilder(line, limits, announced=True)
    if stripped.startswith('File "') or "RayTaskError(" in body[:64]:
        builder = TracebackBuilder(line, limits)
        return builder if builder.opened else None
    return None


def open_bare_exception(line: Line, limits: Limits, *, after_launcher: bool) -> Builder | None:
    """A record of one exception without frames, where only its line is left of it."""
    if not after_launcher and not _is_error(line):
        return None
    exception = read_bare_exception(line.body)
    return TracebackBuilder(line, limits, bare=exception) if exception else None


def _is_error(line: Line) -> bool:
    return line.level is not None and line.level.lower() in _ERROR_LEVELS


class TracebackBuilder:
    """One traceback of one stream, open until its message ends."""

    def __init__(
        self, line: Line, limits: Limits, *, announced: bool = False, bare: tuple[str, str] | None = None
    ) -> None:
        self._limits = limits
        self._lines = Lines(limits.record_lines)
        self._parser = TracebackParser()
        self._announced = announced
        self._ignored = announced and line.body.lstrip().startswith(_IGNORED)
        self._tag: str | None = None
        self._block: LauncherBlock | None = None
        self._headless = False
        if bare is not None:
            self._parser.start_bare(*bare)
            self.opened = True
        elif announced:
            self._parser.await_header()
            self.opened = True
        else:
            self.opened = self._parser.start(line.body)
            self._headless = HEADER not in line.body and "RayTaskError(" not in line.body
        self._lines.add(line, keep=True)
        self._first = line
        if self._parser.raised_now:
            self._tag = _tag(line)

    def add(self, line: Line) -> Step:
        """Judge the next line of the stream."""
        if self._block is not None:
            return self._block.add(line)
        parser = self._parser
        if parser.in_message and parser.current_type is not None:
            block = LauncherBlock.after(parser.current_type, line, self._lines, parser, self._limits)
            if block is not None:
                self._block = block
                return Step.TAKEN
        step = parser.push(line.body, self._lines.next, free=self._tag is not None and self._continues(line))
        if step is Step.TAKEN:
            raised = parser.raised_now
            self._lines.add(line, keep=raised)
            if raised:
                self._tag = _tag(line)
        return step

    def take(self, lines: Sequence[Line], place: int) -> int:
        """Takes the frames and their code that stand from `place` on in a turn of the stream; how many lines."""
        taken = 0 if self._block is not None else self._parser.take(lines, place)
        if taken:
            self._lines.extend(lines[place : place + taken])
        return taken

    def close(self) -> list[Record]:
        """The traceback, or its lines alone where it turned out to be none."""
        if self._block is not None:
            return self._block.close()
        tail = [plain(line) for line in self._lines.pop_blank_tail()]
        lines, index = self._lines.finish()
        exceptions = self._parser.exceptions(index.get)
        empty = not exceptions and not self._parser.frames_seen
        if (self._announced and empty) or (self._headless and not exceptions and self._parser.frames_seen < 2):
            return [*map(plain, lines), *tail]
        launcher = is_launcher_traceback(exceptions)
        record = Record(
            kind="launcher_summary" if launcher else "traceback",
            lines=lines,
            text="\n".join([line.text for line in lines]),
            exceptions=exceptions,
            failures=failures_of_exceptions(exceptions),
            fields={"ignored": "true"} if self._ignored else {},
            quoted=self._first.quoted or self._ignored,
        )
        return [record, *tail]

    def _continues(self, line: Line) -> bool:
        return line.level is None and _tag(line) == self._tag


def _tag(line: Line) -> str | None:
    """The rank tag that a line carries when torch's exception hook, or a launcher's tee, wrote it."""
    if not line.text.endswith(line.body) or len(line.text) == len(line.body):
        return None
    tag = line.text[: len(line.text) - len(line.body)]
    return tag if "[rank" in tag else None


class _Inline:
    """A whole traceback inside one line, its line breaks escaped or unwrapped from JSON."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def add(self, line: Line) -> Step:
        return Step.REFUSED

    def close(self) -> list[Record]:
        line = self._line
        text = line.body[line.body.index(HEADER) :]
        if _ESCAPED in text:
            text = text.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"')
        text = text.rstrip("\"'}] \n")
        exceptions = tuple(
            # All of them stand in the one line there is.
            type(item)(item.type, item.message, item.frames, 0)
            for item in parse_traceback(text)
        )
        launcher = is_launcher_traceback(exceptions)
        record = Record(
            kind="launcher_summary" if launcher else "traceback",
            lines=(line,),
            text=line.text,
            exceptions=exceptions,
            failures=failures_of_exceptions(exceptions),
            # Escaped text is a logger's or an error's own words only at an error's level; else it is somebody's data.
            quoted=line.quoted or (_ESCAPED in line.body and not _is_error(line)),
        )
        return [record]


__all__ = ["OPENERS", "TracebackBuilder", "open_bare_exception", "open_fault", "open_traceback"]
