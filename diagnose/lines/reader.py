"""Kept lines of one source in; decoded `Line`s with what their wrappers and prefixes say out."""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.lines.ansi import decode_all
from diagnose.lines.heads import Head, Prefixes
from diagnose.lines.learning import Lessons
from diagnose.lines.prefixes import read_prefixes
from diagnose.lines.quoted import Quotes
from diagnose.lines.seats import NoSeats, Seat, Seats
from diagnose.lines.stamps import Calendar, Clock
from diagnose.lines.tables import Export
from diagnose.lines.units import is_pci, normalise_pci
from diagnose.lines.wrappers import Part, Unwrapper
from diagnose.lines.writers import without_repeats
from diagnose.models import KeptLine, Line, LogSource
from diagnose.patterns import Lazy
from diagnose.settings import Limits

_DIGITS = frozenset("0123456789")
# A collector's record in a collector's record in a logger's; more is no log.
_MAX_DEPTH = 4
_MAX_STREAMS = 100_000
_LEARN_BYTES = 64 * 1024
LESSONS = Lessons
SEATS = Seats
# Lines of a native stack, printed together with the tagged line before them.
_NATIVE = ("frame #", "Exception raised from ")
# The heading of a GPU's part of `nvidia-smi -q`.
_DEVICE_HEAD = "GPU 0000"
# A bar that waits for its next update has no line end: what another process writes then stands right behind it.
_BAR = Lazy(r"[^\r|{\[]{0,120}?\d{1,3}%\|[^|\r]{0,400}\| {0,4}[\d.]{1,16}\w?/[\d.]{1,16}\w? \[[^\]\r]{0,300}\]")
_INTO_BAR = Lazy(
    r" ?(?:\[?(?:rank|RANK|Rank) ?\d{1,6}\]?:|Traceback \(most recent call last\)|\[[EWF]\d{3,4} \d\d:"
    r"|(?:[A-Za-z_]\w{0,60}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception|Interrupt): "
    r"|terminate called after|Fatal Python error: |Aborted\b|Segmentation fault\b|Killed\b)"
)
_RTC = "setting system clock to "


class LineReader:
    """Reads the kept lines of one source, in order.

    `read` gives a list: one line as a rule, several where a wrapper or a JSON logger holds several, none where a part
    of a longer line waits for the rest; `finish` gives what still waits at the end. `learn`, called with the first
    block, lets doubtful prefixes (`12: `, `host: `) be known from the first line on. `calendar`, shared by the readers
    of a job, lets stamps without a year take it from another source.
    """

    def __init__(self, source: LogSource, limits: Limits, calendar: Calendar | None = None) -> None:
        self._source = source
        self._clock = Clock(calendar)
        self._known = Prefixes(self._clock)
        self._unwrapper = Unwrapper(self._clock, limits.line_bytes)
        self._export = Export(self._clock)
        self._quotes = Quotes()
        self._streams: dict[tuple[int | None, int | None, str, str], str] = {}
        self._shown: dict[tuple[str, int | None, int | None], tuple[int, ...]] = {}
        self._booted: float | None = None
        self._last = KeptLine(0, b"")
        self._device: str | None = None
        self._seats: NoSeats = SEATS()
        # Kernel logs and records of schedulers do not quote samples or settings.
        self._quotable = source.kind in {"job", "launcher"}

    def learn(self, block: bytes) -> None:
        """Look over the first block of the source before any of its lines is read."""
        self._clock.calendar.learn(block[:_LEARN_BYTES])
        self._unwrapper.ends_lines = b'\\n","' in block[:_LEARN_BYTES]
        scratch = LineReader(self._source, Limits(), Calendar(self._clock.calendar.year))
        scratch._known = self._known
        scratch._seats = NoSeats()  # what a prefix asks is to be seen of every line
        known = self._known
        known.clock = scratch._clock
        lessons = LESSONS(known)
        for raw, line_template in lessons.lines(block[:_LEARN_BYTES]):
            if not lessons.settled(raw, line_template):
                taught = known.taught
                scratch.read(KeptLine(1, raw, guarded=True))
                lessons.read(raw, line_template, taught)
        known.clock = self._clock

    def read(self, kept: KeptLine) -> list[Line]:
        """The lines that `kept` holds."""
        return self.read_all((kept,))

    def read_all(self, kept_lines: Sequence[KeptLine]) -> list[Line]:
        """The lines that these hold, in order."""
        out: list[Line] = []
        add, known, seat_of = out.append, self._known, self._seats.of
        for kept, text in zip(kept_lines, decode_all([kept.raw for kept in kept_lines]), strict=True):
            self._last = kept
            known.learning = kept.guarded
            if self._device is None and not self._export.may_be:
                seat = seat_of(text)
                if seat is not None:
                    add(self._seated(text, seat, kept))
                    continue
            out += self._unseated(text, kept)
        return out

    def _unseated(self, text: str, kept: KeptLine) -> list[Line]:
        """The lines in the text of one that has no seat."""
        if "%|" in text and (bar := _BAR.match(text)) is not None and _INTO_BAR.match(text, bar.end()) is not None:
            rest = text[bar.end() :]
            return [*self._lines(bar[0], Head(), kept, 0), *self._lines(rest, Head(), kept, 0)]
        head = Head()
        if self._export.may_be:
            rows = self._export.read(text)
            if rows is not None:
                return [line for row, known in rows for line in self._lines(row, known, kept, 1)]
        return self._lines(text, head, kept, 0)

    def finish(self) -> list[Line]:
        """The lines whose rest never came."""
        return [line for text, head in self._unwrapper.flush() for line in self._lines(text, head, self._last, 1)]

    def _lines(self, text: str, head: Head, kept: KeptLine, depth: int) -> list[Line]:
        """The lines in `text`, at `depth` wrappers."""
        c = text[:1]
        if c == "{" or (c in _DIGITS and text.find(" std", 18, 40) > 0):
            inner = self._unwrapped(text, c, head, kept, depth)
            if inner is not None:
                return [line for item, known in inner for line in self._lines(item, known, kept, depth + 1)]
        doubted = self._known.doubted
        start = read_prefixes(text, head, self._known)
        if start and text[start : start + 1] == "{" and text[-1] == "}":
            inner = self._unwrapped(text[start:], "{", head, kept, depth)
            if inner is not None:
                tag = text[:start]
                return [self._line(tag + item, known, start, kept) for item, known in inner]
        line = self._line(text, head, start, kept)
        if text.startswith("  ", start) and not depth and self._device is None and self._known.doubted == doubted:
            self._seats.note(line, start, head)
        return [line]

    def _unwrapped(self, text: str, c: str, head: Head, kept: KeptLine, depth: int) -> list[Part] | None:
        if depth >= _MAX_DEPTH:
            return None
        if c == "{":
            return self._unwrapper.json(text, head, kept.number)
        return self._unwrapper.cri(text, head, kept.number)

    def _line(self, text: str, head: Head, start: int, kept: KeptLine) -> Line:
        body = text[start:] if start else text
        if head.place and "[repeated " in body:
            body = without_repeats(body)
        source = self._source
        stream = self._stream(head, body)
        if head.uptime is not None:
            self._boot_time(head, body)
        if self._device is not None or body.startswith(_DEVICE_HEAD):
            self._of_device(head, body)
        return Line(
            source,
            kept.number,
            text,
            body,
            stream,
            head.time,
            head.uptime,
            source.rank if head.rank is None else head.rank,
            source.local_rank if head.local_rank is None else head.local_rank,
            source.host if head.host is None else head.host,
            head.pid,
            head.gpu,
            head.level,
            self._quotable and self._quotes.read(body, stream, bare=head.stage == 0),
            kept.progress,
            kept.guarded,
            kept.routine,
        )

    def _seated(self, text: str, seat: Seat, kept: KeptLine) -> Line:
        """A further line of a seat: an indented one, of a writer whose name was read before."""
        body = text[seat.start :] if seat.start else text
        if seat.tagged and self._shown.get(seat.place) != seat.shown:
            self._show(seat.head)
        if self._known.labelled is None:
            self._known.unlabelled()
        return Line(
            self._source,
            kept.number,
            text,
            body,
            seat.stream,
            None,
            None,
            seat.rank,
            seat.local_rank,
            seat.host,
            seat.pid,
            seat.gpu,
            seat.level,
            self._quotable and self._quotes.read_indented(body, seat.stream),
            kept.progress,
            kept.guarded,
            kept.routine,
        )

    def _stream(self, head: Head, body: str) -> str:
        """The name of the flow of lines that this line's writer makes.

        torch's hook tags the lines of Python's tracebacks, c10d the first line of a native stack. The other lines of
        the same process belong to the rank that it showed last.
        """
        if head.tagged:
            self._show(head)
        elif self._shown and (head.writer_local is not None or head.process or body.startswith(_NATIVE)):
            shown = self._shown.get((head.place, head.writer_local, head.task))
            if shown is not None:
                head.writer_rank = shown[0]
                # A seat that showed two ranks is two processes: only the stream can be told, by what stands next.
                if head.rank is None and (len(shown) == 1 or body.startswith(_NATIVE)):
                    head.rank = shown[0]
        key = (head.writer_rank, head.writer_local, head.place, head.flow)
        stream = self._streams.get(key)
        if stream is None:
            if len(self._streams) >= _MAX_STREAMS:
                self._streams.clear()
            stream = self._streams[key] = self._name(head)
        return stream

    def _show(self, head: Head) -> None:
        """Notes the rank that a process shows."""
        assert head.writer_rank is not None
        seat = (head.place, head.writer_local, head.task)
        shown = self._shown.get(seat)
        if shown is None or shown != (head.writer_rank,):
            if len(self._shown) >= _MAX_STREAMS:
                self._shown.clear()
            self._shown[seat] = (head.writer_rank,) if shown is None else (head.writer_rank, *shown[:1])

    def _name(self, head: Head) -> str:
        source = self._source
        parts = [source.name]
        place = "" if head.place == source.host else head.place
        if head.writer_rank is not None:
            if head.writer_rank != source.rank or place:
                parts.append(f"rank {head.writer_rank}")
        else:
            if place:
                parts.append(place)
            if head.writer_local is not None and head.writer_local != source.local_rank:
                parts.append(f"local rank {head.writer_local}")
        if head.flow and head.flow != source.stream:
            parts.append(head.flow)
        return "|".join(parts)

    def _of_device(self, head: Head, body: str) -> None:
        """Gives the indented lines of `nvidia-smi -q` the GPU under whose heading they stand."""
        heading = body.startswith(_DEVICE_HEAD)
        if heading:
            address = normalise_pci(body.removeprefix("GPU ").strip())
            self._device = address if is_pci(address) else None
        elif body.strip() and not body.startswith("    "):
            self._device = None
        if head.gpu is None and not heading:
            head.gpu = self._device

    def _boot_time(self, head: Head, body: str) -> None:
        """Gives kernel lines a time where the log tells when the clock was set."""
        assert head.uptime is not None
        if _RTC in body:
            scratch = Head()
            at = body.find(_RTC) + len(_RTC)
            read_prefixes(body[at : at + 32].replace(" UTC", "Z") + " ", scratch, self._known)
            if scratch.time is not None:
                self._booted = scratch.time - head.uptime
        if head.time is None and self._booted is not None:
            head.time = self._booted + head.uptime
