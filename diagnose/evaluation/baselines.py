"""What people do without `diagnose`: grep for errors, or believe the launcher. Three baselines, as fair as possible.

In: the inputs of a case. Out: an `Answer` each. `first hit` is the first line that a grep for errors finds, `last hit`
the last; `launcher` is the process that the launcher says failed first (torchrun's root cause, mpirun's, srun's ...):
its traceback where the launcher shows it, else the first hit in what that rank wrote, else the launcher's own words,
else the last hit above them. What a line means is told by an expert: the full rules on the line and its surroundings,
whatever rules the measured run goes without, and whom to blame is the rule's or the taxonomy's word. So what a baseline
gets wrong is where it looks and what it takes for the cause, not what it knows of messages.
"""

from __future__ import annotations

import io
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal

from diagnose.compress import PassThrough
from diagnose.dataclass import dataclass, field, replace
from diagnose.errors import DiagnoseError, SourceError
from diagnose.evaluation.model import Answer, Blamed, Cited
from diagnose.lines import LineReader, RecordAssembler
from diagnose.models import Explanation, Finding, LauncherFailure, Line, LogSource, Record, RuleSet
from diagnose.pipeline import Request, Services, diagnose
from diagnose.settings import Limits
from diagnose.sources import collect

FIRST_HIT: Final = "first grep hit"
LAST_HIT: Final = "last grep hit"
LAUNCHER: Final = "launcher's first failure"
BASELINES: Final = (FIRST_HIT, LAST_HIT, LAUNCHER)
GREP: Final = r"error|exception|fatal|fail|killed|panic|\bxid\b"
_GREP = re.compile(GREP, re.IGNORECASE)
_BEFORE, _AFTER = 20, 8  # lines that a reader sees around a hit
_MAX_BYTES = 256 << 20
_RANK_HITS = 4096  # ranks whose first hit is kept
_LATEST = 64  # hits among which the last above a launcher's summary is looked for
_SHOWN_CHARS = 300
_Writer = Literal["rank", "local_rank"]


@dataclass(slots=True)
class _Window:
    """A hit and the lines around it; only those of the same rank where `of` says so."""

    hit: Line
    lines: list[Line]
    open: int = _AFTER
    of: _Writer | None = None

    def take(self, line: Line) -> None:
        """Takes the next line of the source, if it belongs here."""
        if self.of is None or getattr(line, self.of) == getattr(self.hit, self.of):
            self.lines.append(line)
            self.open -= 1


@dataclass(slots=True)
class _Seen:
    """What one reading of the inputs finds."""

    first: _Window | None = None
    last: _Window | None = None
    by_rank: dict[int, _Window] = field(default_factory=dict)
    by_local: dict[int, _Window] = field(default_factory=dict)
    latest: deque[_Window] = field(default_factory=lambda: deque(maxlen=_LATEST))
    blamed: Record | None = None
    shown: list[Record] = field(default_factory=list)
    bytes: int = 0


def baseline_answers(request: Request, rules: RuleSet) -> dict[str, Answer]:
    """What each baseline says, by name. Raises `SourceError` where nothing can be read."""
    seen = _read(request)
    return {
        FIRST_HIT: _of_window(seen.first, rules),
        LAST_HIT: _of_window(seen.last, rules),
        LAUNCHER: _of_launcher(seen, rules),
    }


def _read(request: Request) -> _Seen:
    seen = _Seen()
    limits = Limits()
    sources = collect(
        request.paths,
        kernel_logs=request.kernel_logs,
        scheduler_records=request.scheduler_records,
        limits=limits,
    )
    for item in sources.inputs:
        reader = _Reader(seen, item.source, limits)
        try:
            for number, block in enumerate(item.blocks()):
                if number == 0:
                    reader.learn(block)
                seen.bytes += len(block)
                if seen.bytes > _MAX_BYTES:
                    break
                reader.feed(block)
        except SourceError:
            pass  # what was read is what a grep would have found until then
        reader.finish()
    return seen


class _Reader:
    """Reads one source for all three baselines."""

    def __init__(self, seen: _Seen, source: LogSource, limits: Limits) -> None:
        self._seen = seen
        self._pass = PassThrough(source, limits)
        self._lines = LineReader(source, limits)
        self._records = RecordAssembler(source, limits) if source.kind in ("job", "launcher") else None
        self._recent: list[Line] = []
        self._open: list[_Window] = []
        self.learn: Callable[[bytes], None] = self._lines.learn

    def feed(self, block: bytes) -> None:
        for kept in self._pass.feed(block):
            for line in self._lines.read(kept):
                self._line(line)

    def finish(self) -> None:
        for kept in self._pass.finish():
            for line in self._lines.read(kept):
                self._line(line)
        for line in self._lines.finish():
            self._line(line)
        if self._records is not None:
            self._take(self._records.finish())

    def _line(self, line: Line) -> None:
        if self._open:
            for window in self._open:
                window.take(line)
            self._open = [window for window in self._open if window.open > 0]
        if _GREP.search(line.text) is not None:
            self._hit(line)
        self._recent.append(line)
        if len(self._recent) > 4 * _BEFORE:
            del self._recent[: -2 * _BEFORE]
        if self._records is not None:
            self._take(self._records.feed(line))

    def _hit(self, line: Line) -> None:
        seen = self._seen
        window = _Window(line, [*self._recent[-_BEFORE:], line])
        seen.first = seen.first or window
        seen.last = window
        seen.latest.append(window)
        self._open.append(window)
        if line.rank is not None:
            self._of_writer(line, line.rank, seen.by_rank, "rank")
        elif line.local_rank is not None:
            self._of_writer(line, line.local_rank, seen.by_local, "local_rank")

    def _of_writer(self, line: Line, number: int, known: dict[int, _Window], of: _Writer) -> None:
        """Keeps the first hit of each rank."""
        if number not in known and len(known) < _RANK_HITS:
            own = [one for one in self._recent if getattr(one, of) == number]
            known[number] = _Window(line, [*own[-_BEFORE:], line], of=of)
            self._open.append(known[number])

    def _take(self, records: Sequence[Record]) -> None:
        """Keeps the last summary in which the launcher names a first failure, and what it shows of that process."""
        for record in records:
            if record.quoted:
                continue
            if record.kind == "launcher_summary" and record.failures:
                named = any(one.first for one in record.failures)
                known = self._seen.blamed
                if known is None or (named and record.fields.get("what") != "kill"):
                    self._seen.blamed = record
                    self._seen.shown = []
            elif record.kind == "traceback" and record.fields.get("shown_by") == "torchrun":
                self._seen.shown.append(record)


def _of_window(window: _Window | None, rules: RuleSet) -> Answer:
    """What an expert makes of a hit; none at all looks like a job without errors."""
    if window is None:
        return Answer("no_failure")
    return _judged(window.lines, window.hit, rules)


def _of_launcher(seen: _Seen, rules: RuleSet) -> Answer:
    record = seen.blamed
    if record is None:
        return Answer("inconclusive")  # no launcher spoke of a failure
    failure = next((one for one in record.failures if one.first), record.failures[0])
    culprits = tuple(_named(failure.rank, failure.host))
    for lines, hit in _places(seen, record, failure):
        answer = _judged(lines, hit, rules)
        if answer.error_type is not None:
            return replace(answer, culprits=culprits or answer.culprits)
    place = record.lines[min(failure.line_index, len(record.lines) - 1)]
    return Answer("failed", attribution="unknown", cited=(_cited(place),), culprits=culprits)


def _places(seen: _Seen, record: Record, failure: LauncherFailure) -> Iterator[tuple[Sequence[Line], Line]]:
    """Where somebody who believes the launcher looks, in turn: lines, and the one that is taken for the cause."""
    for shown in seen.shown:
        if shown.exceptions and shown.first.rank == failure.rank:
            yield shown.lines, shown.lines[min(shown.exceptions[-1].line_index, len(shown.lines) - 1)]
    if failure.rank is not None:
        window = seen.by_rank.get(failure.rank)
    else:  # on one host local ranks are ranks
        local = -1 if failure.local_rank is None else failure.local_rank
        window = seen.by_local.get(local) or seen.by_rank.get(local)
    if window is not None:
        yield window.lines, window.hit
    yield record.lines, record.lines[min(failure.line_index, len(record.lines) - 1)]
    first = record.first
    above = (one for one in reversed(seen.latest) if one.hit.source is first.source and one.hit.number < first.number)
    if window is None and (last := next(above, None)) is not None:
        yield last.lines, last.hit


def _named(rank: int | None, host: str | None) -> Iterator[Blamed]:
    if rank is not None:
        yield Blamed("rank", (str(rank),))
    if host:
        yield Blamed("host", (host,))


def _cited(line: Line) -> Cited:
    return Cited(line.source.name, line.number, line.text[:_SHOWN_CHARS])


def _judged(lines: Sequence[Line], hit: Line, rules: RuleSet) -> Answer:
    """The hit as the cause: what it says by itself, or the first that follows it within what is shown."""
    at = next((place for place, line in enumerate(lines, 1) if line is hit), len(lines))
    text = "\n".join(line.text for line in lines) + "\n"
    kind = hit.source.kind
    request = Request(
        () if kind in ("kernel", "scheduler") else ("-",),
        ("-",) if kind == "kernel" else (),
        ("-",) if kind == "scheduler" else (),
        stdin=io.BytesIO(text.encode("utf-8", "surrogateescape")),
    )
    try:
        told = diagnose(request, Services(rules)).explanation
    except DiagnoseError:
        told = Explanation()
    meant: dict[int, Finding] = {}
    for finding in (*told.findings, *(aside.finding for aside in told.excluded)):
        entry = rules.taxonomy.get(finding.error_type)
        if entry is not None and not entry.symptom:
            for evidence in finding.evidence:
                if evidence.line is not None and at <= evidence.line <= at + _AFTER:
                    meant.setdefault(evidence.line, finding)
    culprits = tuple(_named(hit.rank, hit.host))
    if not meant:
        return Answer("failed", attribution="unknown", cited=(_cited(hit),), culprits=culprits)
    finding = meant[min(meant)]
    entry = rules.taxonomy[finding.error_type]
    rule = next((rule for rule in rules.diagnoses if rule.id == finding.rule), None)
    attribution = (rule.verdict.attribution if rule else None) or entry.attribution or "unknown"
    return Answer("failed", entry.name, attribution, cited=(_cited(hit),), culprits=culprits)
