"""Puts lines together into records, per stream.

In: the lines of one source in file order. Out: records, each as soon as it closes. A line that opens nothing costs one
dictionary look-up and one pass of an automaton over its text. An open record closes at the last line of its grammar,
at a line of its stream that cannot continue it, after a gap in the raw line numbers, or at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from ahocorasick_rs import AhoCorasick

from diagnose.compress.hold import RECORD_HOLD_LINES
from diagnose.dataclass import replace
from diagnose.lines import (
    faults,
    json_errors,
    kernel,
    launcher_blocks,
    launchers,
    scheduler_text,
    stacks,
    traceback_records,
)
from diagnose.lines.evaluated import Evaluations
from diagnose.lines.grammar import Builder, Step, plain
from diagnose.lines.scheduler_documents import DocumentReader
from diagnose.models import Line, LogSource, Record
from diagnose.patterns import Lazy
from diagnose.settings import Limits

_TAG = Lazy(r".\[rank(\d{1,9})\]: ?(.*)\Z", re.DOTALL)
_BAR = Lazy(r"\s{0,4}\d{1,3}%\|")
_TORN_CHARS = 4096
_MAX_OPEN = 4096
# So many writers that die at once may take turns, line by line.
_MAX_TURNS = 64
_OPENERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("json", json_errors.OPENERS),
    ("fault", faults.OPENERS),
    ("traceback", traceback_records.OPENERS),
    ("kernel", kernel.OPENERS),
    ("block", launcher_blocks.OPENERS),
    ("stack", stacks.OPENERS),
    ("launcher", launchers.OPENERS),
)
_BARE = len(_OPENERS)
# An exception line that stands alone opens a record only at an error's level or after a launcher's words.
_BARE_OPENERS = ("Error: ", "Exception: ", "Interrupt: ", "Exit: ", "Timeout: ", "Failure: ")
OPENERS = (*(literal for _, openers in _OPENERS for literal in openers), *_BARE_OPENERS)
LISTS = scheduler_text.OPENERS


@lru_cache(maxsize=1)
def _gates() -> tuple[AhoCorasick, tuple[int, ...], AhoCorasick]:
    """Finds what opens a record, and of which kind each opener is; finds what a scheduler's listing begins with."""
    kinds: list[int] = []
    for number, (_, openers) in enumerate(_OPENERS):
        kinds += [number] * len(openers)
    kinds += [_BARE] * len(_BARE_OPENERS)
    return AhoCorasick(OPENERS), tuple(kinds), AhoCorasick(LISTS)


class _Open:
    """An open record of one stream and where its last line stood."""

    __slots__ = ("builder", "number", "rank")

    def __init__(self, builder: Builder, line: Line) -> None:
        self.builder = builder
        self.number = line.number
        self.rank = line.rank


class RecordAssembler:
    """Holds the open record of every stream of one source and emits each as soon as it closes."""

    def __init__(self, source: LogSource, limits: Limits) -> None:
        self._limits = limits
        openers, self._kinds, self._lists = _gates()
        self._search = openers.find_matches_as_indexes
        self._open: dict[str, _Open] = {}
        self._writers: set[str] = set()
        self._after_launcher: set[str] = set()
        self._adoptable: set[str] = set()
        self._swept = 0
        self._hold_lines = self._sweep_lines = RECORD_HOLD_LINES
        self._documents = DocumentReader(source, limits)
        self._tables = scheduler_text.TableReader(source)
        self._evaluations = Evaluations()

    @property
    def busy(self) -> bool:
        """Whether any next line may matter, not only one that opens something."""
        return bool(
            self._open
            or self._after_launcher
            or not self._documents.over
            or self._tables.busy
            or self._evaluations.busy
        )

    def feed(self, line: Line, *, opens: bool = True, lists: bool = True) -> list[Record]:
        """Take the next line, give the records complete with it.

        `opens`: one of `OPENERS` may stand in it; `lists`: one of `LISTS` may.
        """
        if not self._documents.over:
            return [
                record
                for released in self._documents.take(line)
                for record in self._evaluations.sift(self._feed(released, opens=True, lists=True))
            ]
        # Common cases: nothing is open, and the line opens nothing.
        if not opens and not lists and not self.busy:
            return [plain(line)]
        records = self._feed(line, opens=opens, lists=lists)
        return self._evaluations.sift(records) if records else records

    def feed_turn(self, lines: Sequence[Line], opens: Sequence[int]) -> Iterator[tuple[int, list[Record]]]:
        """Take lines that one stream wrote in a row and none of which holds one of `LISTS`.

        Gives the records that are complete with a line, with the line's place; `opens` is as for `feed`, by line.
        """
        open_: _Open | None = None
        place, end = 0, len(lines)
        while place < end:
            line = lines[place]
            records: list[Record] = []
            if open_ is not None and abs(line.number - self._swept) < self._sweep_lines:
                # More lines of the record that took the line before them, which is the common case.
                near = abs(lines[-1].number - self._swept) < self._sweep_lines
                if near and isinstance(open_.builder, traceback_records.TracebackBuilder):
                    taken = open_.builder.take(lines, place)
                    if taken:
                        place += taken
                        open_.number = lines[place - 1].number
                        continue
                step = open_.builder.add(line)
                if step is Step.TAKEN:
                    open_.number = line.number
                else:
                    records = self._evaluations.sift(self._stepped(line, step, opens=opens[place] != 0))
            else:
                records = self.feed(line, opens=opens[place] != 0, lists=False)
            if records:
                yield place, records
            plainly = self._documents.over and not self._tables.busy
            open_ = self._open.get(line.stream) if plainly else None
            place += 1

    def finish(self) -> list[Record]:
        """Close what is open."""
        released, records = self._documents.finish()
        for line in released:
            records += self._feed(line, opens=True, lists=True)
        for stream in list(self._open):
            records += self._close(stream)
        records += self._tables.finish()
        return [*self._evaluations.sift(records), *self._evaluations.finish()]

    def _feed(self, line: Line, *, opens: bool, lists: bool) -> list[Record]:
        records = self._go_on(line, opens=opens) if self._open else None
        if records is None:
            records = self._begin(line, opens=opens)
        if self._tables.busy or (lists and self._lists.find_matches_as_indexes(line.text)):
            listed = self._tables.feed(line)
            if listed and line.time is None:
                records = [replace(record, fields=LISTED) if record.kind == "line" else record for record in records]
            records += listed
        return records

    def _go_on(self, line: Line, *, opens: bool) -> list[Record] | None:
        """Give the line to the open record of its stream; None where it goes into none and closes none."""
        number = line.number
        records: list[Record] = []
        if abs(number - self._swept) >= self._sweep_lines:
            records = self._sweep(number)
        stream = line.stream
        open_ = self._open.get(stream)
        if open_ is None and self._adoptable and line.rank is not None:
            open_ = self._adopt(line)
        if open_ is None:
            return records + self._begin(line, opens=opens) if records else None
        if abs(number - open_.number) > self._hold_lines:
            return records + self._close(stream) + self._begin(line, opens=opens)
        step = open_.builder.add(line)
        if step is Step.TAKEN:
            open_.number = number
            return records
        return records + self._stepped(line, step, opens=opens)

    def _stepped(self, line: Line, step: Step, *, opens: bool) -> list[Record]:
        """What comes of a line that the open record of its stream was given and did not simply take."""
        if step is Step.FINAL:
            return self._close(line.stream)
        if step is Step.PASSED and not (opens and self._search(line.text)):
            return [plain(line)]
        return self._close(line.stream) + self._begin(line, opens=opens)

    def _begin(self, line: Line, *, opens: bool) -> list[Record]:
        """The line by itself, or the first of a record."""
        if opens and (hits := self._search(line.text, overlapping=True)):
            torn = self._torn(line) if "[rank" in line.body else None
            return self._open_record(line, hits) if torn is None else torn
        if self._after_launcher:
            self._after_launcher.discard(line.stream)
        return [plain(line)]

    def _torn(self, line: Line) -> list[Record] | None:
        """A rank's line that was written behind another writer's text, without a line break before it."""
        match = _TAG.search(line.body[-_TORN_CHARS:])
        if match is None:
            return None
        rank = int(match[1])
        body = _BAR.split(match[2], maxsplit=1)[0]
        stream = next((name for name, open_ in self._open.items() if open_.rank == rank), f"{line.stream}|torn {rank}")
        torn = replace(line, body=body, rank=rank, stream=stream)
        open_ = self._open.get(stream)
        if open_ is None:
            builder = traceback_records.open_traceback(torn, self._limits)
            if builder is None:
                return None
            self._adoptable.add(stream)
            return self._keep(torn, builder)
        step = open_.builder.add(torn)
        if step is Step.TAKEN:
            open_.number = line.number
            return []
        return self._close(stream) if step is Step.FINAL else None

    def _adopt(self, line: Line) -> _Open | None:
        """The record that a torn line of this rank has opened, now under the rank's own stream."""
        name = next(
            (name for name in self._adoptable if name in self._open and self._open[name].rank == line.rank), None
        )
        if name is None:
            return None
        self._adoptable.discard(name)
        self._open[line.stream] = self._open.pop(name)
        return self._open[line.stream]

    def _open_record(self, line: Line, hits: list[tuple[int, int, int]]) -> list[Record]:
        for kind in sorted({self._kinds[hit[0]] for hit in hits}):
            name = _OPENERS[kind][0] if kind < _BARE else "bare"
            if name == "json":
                record = json_errors.read_json_error((line,))
                if record is not None:
                    return [record]
                continue
            if name == "launcher":
                record = launchers.read_launcher_line(line)
                if record is not None:
                    self._after_launcher.add(line.stream)
                    return [record]
                continue
            builder = self._builder(name, line)
            if builder is not None:
                self._after_launcher.discard(line.stream)
                return self._keep(line, builder)
        self._after_launcher.discard(line.stream)
        return [plain(line)]

    def _builder(self, name: str, line: Line) -> Builder | None:
        if name == "fault":
            return faults.open_fault(line, self._limits)
        if name == "traceback":
            return traceback_records.open_traceback(line, self._limits)
        if name == "kernel":
            return kernel.open_kernel(line, self._limits)
        if name == "block":
            return launcher_blocks.open_block(line, self._limits)
        if name == "stack":
            return stacks.open_stack(line, self._limits)
        after = line.stream in self._after_launcher
        return traceback_records.open_bare_exception(line, self._limits, after_launcher=after)

    def _keep(self, line: Line, builder: Builder) -> list[Record]:
        records: list[Record] = []
        if len(self._open) >= _MAX_OPEN:
            oldest = min(self._open, key=lambda stream: self._open[stream].number)
            records = self._close(oldest)
        if not self._open:
            self._swept = line.number
        self._open[line.stream] = _Open(builder, line)
        if len(self._writers) < _MAX_TURNS:
            self._writers.add(line.stream)
            # So many raw lines may pass: writers that die together take turns.
            self._hold_lines = RECORD_HOLD_LINES * len(self._writers)
            self._sweep_lines = max(RECORD_HOLD_LINES, self._hold_lines // 4)
        return records

    def _sweep(self, number: int) -> list[Record]:
        self._swept = number
        hold = self._hold_lines
        stale = [stream for stream, open_ in self._open.items() if abs(number - open_.number) > hold]
        return [record for stream in stale for record in self._close(stream)]

    def _close(self, stream: str) -> list[Record]:
        records = self._open.pop(stream).builder.close()
        self._adoptable.discard(stream)
        if records and records[0].kind == "launcher_summary":
            self._after_launcher.add(stream)
        return records


# The fields of a line that is a row of a scheduler's listing: its place in the file is no place in time.
LISTED = {"listed": "true"}

# Too short or too common to guard by: a line that matters holds another of the literals beside them.
_COMMON = frozenset({": line ", "Failures:", "Reason  ", "kubectl ", "Oops:", "frame #0"})


def guard_openers() -> tuple[str, ...]:
    """Literals that no filter may remove: lines that open records, and what launchers say of their processes."""
    literals: dict[str, None] = {}
    for _, openers in _OPENERS:
        literals.update(dict.fromkeys(openers))
    literals.update(dict.fromkeys(scheduler_text.OPENERS))
    return tuple(literal for literal in literals if literal not in _COMMON)
