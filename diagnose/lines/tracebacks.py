"""The grammar of Python tracebacks, on bare text.

In: lines of one writer, without prefixes, from the one that opens a traceback on. Out: which lines belong to it, and
the exceptions in the order raised. Knows CPython's own form (chains, groups, syntax errors, carets), rich's boxes,
IPython's arrows, and tracebacks that travel inside messages: DataLoader workers, process pools, spawned processes, Ray.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from functools import lru_cache
from itertools import islice
from typing import Final

from diagnose.dataclass import dataclass, field
from diagnose.lines.frames import add_frame, add_frames, make_frame, read_file_line
from diagnose.lines.grammar import Step
from diagnose.lines.traceback_lines import (
    CHAIN_SENTENCES,
    CONTINUATIONS,
    HEADER,
    RAY,
    Header,
    read_bare_exception,
    read_exception_line,
    read_header,
)
from diagnose.models import Frame, Line, RaisedException
from diagnose.patterns import Lazy

MESSAGE_CHARS = 4096
_MAX_NOISE = 32
_MAX_EXCEPTIONS = 64
_MAX_FREE_LINES = 8
_MAX_INDENTED = 400
_USUAL = 300  # characters of a line of a traceback
_REMOTE = "RemoteTraceback"
_BOX_FRAME = Lazy(r"(\S.{0,1023}?):(\d{1,9}) in (\S.{0,199})\Z")
_BOX_SIDES = "│┃|"
_IPY_FILE = Lazy(r"(?:File )?((?:[~/<]|\w:)[^\s:(]{1,512}>?)(?::(\d{1,9}))?(?:,)? in (\S.{0,300})\Z")
_IPY_CELL = Lazy(r"(?:Cell |Input )?In ?\[(\d{1,6})\](?:, (?:line (\d{1,9})|in (.{1,300})))?")
_IPY_ARROW = Lazy(r"-{1,40}> ?(\d{1,9})(?: |\Z)")
_GROUP_RULE = Lazy(r"\s{0,200}\+[-+]{3,}")
_GUTTER = Lazy(r"\s{0,200}\| ?")


class _State(Enum):
    FRAMES = 1
    MESSAGE = 2
    BETWEEN = 3
    BOX = 4
    IPYTHON = 5


@dataclass(slots=True)
class _Raised:
    type: str
    message: str
    frames: list[Frame]
    serial: int
    open_end: bool = False
    more: list[str] = field(default_factory=list)
    chars: int = 0

    def extend(self, text: str) -> None:
        if self.chars < MESSAGE_CHARS:
            self.more.append(text[: MESSAGE_CHARS - self.chars])
            self.chars += len(text) + 1

    def last(self) -> str:
        return next((text for text in reversed(self.more) if text.strip()), self.message).rstrip()


CODE: Final = Frame("", None, None, user=False)
"""Stands for a line of code below a frame."""


@lru_cache(maxsize=4096)  # ranks that die at once show the same lines
def _plain(body: str) -> Frame | None:
    """The frame that a line of the usual length names, or `CODE`; None where it needs a closer look."""
    if body[:1] not in {" ", "\t"} or HEADER in body:
        return None
    stripped = body.lstrip()
    if not stripped:
        return None
    frame = read_file_line(stripped) if stripped.startswith('File "') else None
    return CODE if frame is None else frame


class TracebackParser:
    """Reads one traceback line by line: `push` says whether a line belongs to it."""

    def __init__(self) -> None:
        self.state = _State.BETWEEN
        self.raised_now = False
        self.frames_seen = 0
        self._lead = ""
        self._base = 0
        self._gutter = False
        self._in_gutter = False
        self._frames: list[Frame] = []
        self._done: list[_Raised] = []
        self._wrappers: list[_Raised] = []
        self._groups: list[_Raised] = []
        self._current: _Raised | None = None
        self._noise = 0
        self._blank = 0
        self._free = 0
        self._indented = 0
        self._bare_frames = False
        self._expect_code = False
        self._box_path = ""
        self._ipython = ""

    @property
    def current_type(self) -> str | None:
        """The class of the exception whose message is being read."""
        return self._current.type if self._current else None

    @property
    def in_message(self) -> bool:
        """Whether the last exception's message is being read."""
        return self.state is _State.MESSAGE

    def start(self, text: str) -> bool:
        """Take the opening line; False when it opens nothing."""
        header = read_header(text)
        if header is not None:
            self._open(header)
            return True
        ray = RAY.match(text)
        if ray is not None:
            self.state = _State.FRAMES
            self._wrap(_Raised(ray[1], ray[2] or "", [], 0))
            self.raised_now = True
            return True
        frame = read_file_line(text)
        if frame is not None:
            self.state = _State.FRAMES
            self._take_frame(text, frame)
            return True
        return False

    def start_bare(self, name: str, message: str) -> None:
        """Take an exception line that no traceback precedes."""
        self._raise(name, message, 0)

    def await_header(self) -> None:
        """A line that announces a traceback was taken; its header must follow."""
        self.state = _State.BETWEEN

    def push(self, text: str, serial: int, *, free: bool = False) -> Step:
        """Judge the next line; `free` when the writer's own tag proves that it goes on without indentation."""
        self.raised_now = False
        if self._lead or self._gutter or self._base:
            text = self._undress(text)
        state = self.state
        if state is _State.FRAMES:
            return self._in_frames(text, serial)
        if state is _State.MESSAGE:
            return self._in_message(text, free=free)
        if state is _State.BETWEEN:
            return self._in_between(text)
        if state is _State.BOX:
            return self._in_box(text)
        return self._in_ipython(text, serial)

    def take(self, lines: Sequence[Line], place: int) -> int:
        """Takes lines from `place` on as long as they are frames and code; how many. What `push` would do, at once."""
        if self.state is not _State.FRAMES or self._lead or self._gutter or self._base:
            return 0
        taken = 0
        last = CODE
        frames: list[Frame] = []
        for line in islice(lines, place, None):
            body = line.body
            plain = _plain(body) if len(body) <= _USUAL else None
            if plain is None:
                break
            taken += 1
            if plain is not CODE:
                frames.append(plain)
            last = plain
        if taken:
            self.raised_now = False
            self._expect_code = last is not CODE
        if frames:
            self._noise = self._blank = 0
            self._bare_frames = False
            self.frames_seen += len(frames)
            add_frames(self._frames, frames)
        return taken

    def exceptions(self, index: Callable[[int], int | None]) -> tuple[RaisedException, ...]:
        """The exceptions in the order raised; `index` turns a serial number into an index of the record's lines."""
        self._settle()
        raised = [*self._done, *reversed(self._wrappers), *reversed(self._groups)][:_MAX_EXCEPTIONS]
        out = []
        for item in raised:
            at = index(item.serial)
            if item.type.endswith(_REMOTE) and len(raised) > 1:
                continue  # it only carries the text of another process's traceback
            message = "\n".join([item.message[:MESSAGE_CHARS], *item.more]).rstrip()[:MESSAGE_CHARS]
            out.append(RaisedException(item.type, message, tuple(item.frames), at if at is not None else 0))
        return tuple(out)

    # Opening

    def _open(self, header: Header) -> None:
        self._noise = self._blank = 0
        self._expect_code = False
        if header.form == "box":
            self.state = _State.BOX
            return
        if header.form == "ipython":
            self.state, self._ipython = _State.IPYTHON, header.name
            return
        self.state = _State.FRAMES
        if header.form == "plain" and not self._in_gutter:
            self._gutter = False
        if header.form == "group":
            self._gutter = True
        elif header.form == "plain" and not self._gutter:
            if header.lead.strip():
                self._lead = header.lead
            else:
                self._base = len(header.lead)

    def _undress(self, text: str) -> str:
        if self._lead:
            if text.startswith(self._lead):
                text = text[len(self._lead) :]
            elif text.rstrip() == self._lead.rstrip():
                text = ""
            else:
                self._lead = ""
        if self._gutter and self.state is not _State.BOX:
            match = _GUTTER.match(text)
            self._in_gutter = match is not None or _GROUP_RULE.match(text) is not None
            return text[match.end() :] if match else text
        if self._base and text[: self._base].isspace():
            return text[self._base :]
        return text

    # States

    def _in_frames(self, text: str, serial: int) -> Step:
        stripped = text.lstrip()
        if stripped.startswith('File "'):
            frame = read_file_line(stripped)
            if frame is not None:
                self._take_frame(text, frame)
                return Step.TAKEN
        if not stripped:
            self._blank += 1
            return Step.TAKEN if self._blank <= 3 else Step.REFUSED
        if HEADER in text:
            header = read_header(text)
            if header is None:
                return Step.TAKEN if text[0].isspace() else Step.PASSED
            if self._frames or (self._current is None and not self._wrappers and not self._done and not self._gutter):
                return Step.REFUSED
            self._open(header)
            return Step.TAKEN
        if self._gutter:
            if _GROUP_RULE.match(text):
                return Step.TAKEN
            if stripped.startswith(CHAIN_SENTENCES):
                self._settle_all()
                return Step.TAKEN
            if not self._in_gutter:
                return Step.REFUSED
        if text[0] in " \t":
            self._expect_code = False
            return Step.TAKEN
        ray = RAY.match(text) if "RayTaskError" in text[:64] else None
        if ray is not None:
            self._wrap(_Raised(ray[1], ray[2] or "", self._frames, serial))
            self._frames = []
            self.raised_now = True
            return Step.TAKEN
        exception = read_exception_line(text, sure=self._noise == 0 and not self._bare_code())
        if exception is not None:
            self._raise(exception[0], exception[1], serial)
            return Step.TAKEN
        if self._bare_code():
            self._expect_code = False
            return Step.TAKEN
        if text.startswith(("^", "~")) and not text.strip("^~ "):
            return Step.TAKEN
        return self._pass()

    def _in_message(self, text: str, *, free: bool) -> Step:
        current = self._current
        assert current is not None
        stripped = text.strip()
        if not stripped:
            self._blank += 1
            if self._blank > 2:
                return Step.REFUSED
            current.extend("")
            return Step.TAKEN
        if stripped.startswith(CHAIN_SENTENCES):
            self._settle_all()
            return Step.TAKEN
        if HEADER in text:
            return self._header_in_message(text, current)
        if self._gutter and _GROUP_RULE.match(text):
            if "ExceptionGroup" in current.type or stripped.startswith("+-+-"):
                self._groups.append(current)
                self._current = None
            self._settle()
            self.state = _State.FRAMES
            self._blank = self._noise = 0
            return Step.TAKEN
        if stripped in ('"""', "'''"):
            if current.type.endswith(_REMOTE):
                self._wrap(current)
                self._current = None
                self.state = _State.BETWEEN
            self._blank = 0
            return Step.TAKEN
        if text[0] in " \t":
            self._indented += 1
            if self._indented > _MAX_INDENTED:
                return Step.REFUSED
        elif stripped.startswith("-- Process ") and "terminated with the following error" in stripped:
            current.open_end = True
        elif current.open_end and self._blank <= 1 and self._free < 64:
            self._free += 1
        elif text.startswith(CONTINUATIONS) or stripped == "--------------------":
            pass
        elif free and self._free < _MAX_FREE_LINES and read_bare_exception(text) is None:
            self._free += 1
        else:
            return Step.REFUSED
        self._blank = 0
        current.extend(text)
        current.open_end = stripped.endswith((":", "(", "[", "{"))
        return Step.TAKEN

    def _header_in_message(self, text: str, current: _Raised) -> Step:
        header = read_header(text)
        if header is None:
            if text[0] in " \t" or current.open_end:
                current.extend(text)
                return Step.TAKEN
            return Step.REFUSED
        nested = (
            header.form == "original"
            or (header.form == "plain" and bool(header.lead) and not header.lead.strip())
            or (header.form in ("plain", "box") and current.open_end)
            or current.type.endswith(_REMOTE)
        )
        if self._gutter and header.form in ("plain", "gutter", "group"):
            self._settle()
        elif nested:
            self._wrap(current)
            self._current = None
            if header.form == "original":
                self._base += len(header.lead)
        else:
            return Step.REFUSED
        self._open(header)
        return Step.TAKEN

    def _in_between(self, text: str) -> Step:
        stripped = text.strip()
        if not stripped:
            self._blank += 1
            return Step.TAKEN if self._blank <= 3 else Step.REFUSED
        header = read_header(text)
        if header is not None:
            self._open(header)
            return Step.TAKEN
        if stripped in ('"""', "'''"):
            return Step.TAKEN
        if self._frames_waiting(stripped):
            return self._in_frames(text, 0)
        return self._pass()

    def _frames_waiting(self, stripped: str) -> bool:
        """A chain whose header line was lost still goes on with its frames."""
        if stripped.startswith('File "') and read_file_line(stripped) is not None:
            self.state = _State.FRAMES
            return True
        return False

    def _in_box(self, text: str) -> Step:
        stripped = text.strip()
        if stripped[:1] in ("╰", "└", "┗") or (stripped.startswith("+-") and not stripped.strip("+-")):
            self.state = _State.FRAMES
            self._bare_frames = False
            return Step.TAKEN
        if stripped[:1] not in _BOX_SIDES or not stripped:
            return Step.TAKEN if not stripped else self._pass()
        inner = stripped[1:-1] if stripped[-1] in _BOX_SIDES and len(stripped) > 1 else stripped[1:]
        content = inner.removeprefix(" ").rstrip()
        if content[:1] in ("/", "~", "<") or self._box_path or content[1:3] == ":\\":
            joined = self._box_path + content.strip()
            frame = _BOX_FRAME.match(joined)
            if frame is not None:
                self.frames_seen += 1
                add_frame(self._frames, make_frame(frame[1], frame[2], frame[3]))
                self._box_path = ""
            else:
                # rich breaks a long path over lines
                self._box_path = joined[:2048] if content and len(joined) < 2048 and not content[:1].isspace() else ""
        return Step.TAKEN

    def _in_ipython(self, text: str, serial: int) -> Step:
        if text.startswith(self._ipython):
            rest = text[len(self._ipython) :]
            if rest == "" or rest.startswith(":"):
                self._raise(self._ipython, rest[1:].strip(), serial)
                return Step.TAKEN
        match = _IPY_FILE.match(text)
        if match is not None:
            self.frames_seen += 1
            add_frame(self._frames, make_frame(match[1], match[2], match[3].partition("(")[0]))
            return Step.TAKEN
        cell = _IPY_CELL.match(text)
        if cell is not None:
            self.frames_seen += 1
            add_frame(self._frames, Frame(f"In [{cell[1]}]", int(cell[2]) if cell[2] else None, None, user=True))
            return Step.TAKEN
        arrow = _IPY_ARROW.match(text)
        if arrow is not None and self._frames and self._frames[-1].line is None:
            last = self._frames[-1]
            self._frames[-1] = Frame(last.file, int(arrow[1]), last.function, last.user)
        exception = read_exception_line(text, sure=False) if text[:1].isalpha() else None
        if exception is not None:
            self._raise(exception[0], exception[1], serial)
            return Step.TAKEN
        if not text.strip() or text[0] in " \t-.~/<(" or text[0].isdigit():
            return Step.TAKEN
        return self._pass()

    # Parts

    def _take_frame(self, text: str, frame: Frame) -> None:
        self._noise = self._blank = 0
        self.frames_seen += 1
        self._expect_code = True
        self._bare_frames = text[0] not in " \t" and not text[0].isspace()
        add_frame(self._frames, frame)

    def _bare_code(self) -> bool:
        """Whether a line without indentation may be source code, because some writer has stripped the indentation."""
        return self._bare_frames and self._expect_code

    def _raise(self, name: str, message: str, serial: int) -> None:
        self._settle()
        message = message[: 2 * MESSAGE_CHARS]
        self._current = _Raised(name, message, self._frames, serial, chars=len(message))
        self._current.open_end = message.rstrip().endswith((":", "(", "[", "{"))
        self._frames = []
        self.state = _State.MESSAGE
        self.raised_now = True
        self._blank = self._noise = self._free = self._indented = 0

    def _wrap(self, raised: _Raised) -> None:
        if len(self._wrappers) < _MAX_EXCEPTIONS:
            self._wrappers.append(raised)

    def _settle(self) -> None:
        if self._current is None:
            return
        if len(self._done) < _MAX_EXCEPTIONS:
            self._done.append(self._current)
        self._done.extend(reversed(self._wrappers))
        self._wrappers = []
        self._current = None

    def _settle_all(self) -> None:
        """Another exception of the chain follows."""
        self._settle()
        self._done.extend(reversed(self._groups))
        self._groups = []
        self.state = _State.BETWEEN
        self._blank = self._noise = 0

    def _pass(self) -> Step:
        self._noise += 1
        return Step.PASSED if self._noise <= _MAX_NOISE else Step.REFUSED


def parse_traceback(text: str) -> tuple[RaisedException, ...]:
    """The exceptions of a whole traceback given as one text; `line_index` counts the text's own lines."""
    parser = TracebackParser()
    started = False
    for number, line in enumerate(text[: 1 << 20].split("\n")):
        if not started:
            started = parser.start(line)
            continue
        if parser.push(line, number, free=True) is Step.REFUSED:
            break
    return parser.exceptions(lambda serial: serial)
