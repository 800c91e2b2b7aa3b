"""The compressor: raw blocks in, the lines worth reading out.

In: bytes of one source in chunks of any size. Out: `KeptLine`s, the same whatever the chunks' borders, and counts of
all that was taken out. A line goes out when a filter rule says that its template is routine, no guard keyword stands
in it, and no record is open. The verdict of a template is cached, so that a line costs one look-up whatever the number
of rules; runs of dropped lines never reach Python code at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from diagnose.compress.filters import Filters
from diagnose.compress.guard import Answer, Guard
from diagnose.compress.hold import RECORD_HOLD_LINES
from diagnose.compress.relax import template
from diagnose.compress.repeats import Listeners, Repeats, Shape
from diagnose.compress.routine import OTHER, Routine, mark
from diagnose.compress.sampling import ProgressSampler, Quota
from diagnose.compress.settling import Settling
from diagnose.compress.splitter import Plain, Segment, Splitter, lines_of
from diagnose.compress.verdicts import KEPT, NOVEL, ONCE, Verdict, Verdicts, openers
from diagnose.models import CompressionCounts, KeptLine, LogSource
from diagnose.settings import Limits

if TYPE_CHECKING:
    from diagnose.models.learning import LineWatch


_FEW: Final = 20  # one line in so many that is dropped by itself is not worth a thought
_PAUSE: Final = 15  # blocks are judged line by line after one of which most lines had to be looked at


class Compressor:
    """Compresses one source; `feed` until it ends, then `finish`."""

    def __init__(
        self,
        source: LogSource,
        filters: Filters,
        guard: Guard,
        limits: Limits,
        *,
        first: int = 1,
        inside: bool = False,
        listeners: Listeners | None = None,
        watch: LineWatch | None = None,
        routine: Routine | None = None,
    ) -> None:
        """`first` is the number of the first line; `inside` a source, a record may be open there.

        Without `listeners` no line is thinned out for being repeated. `watch` sees the lines of plain runs. `routine`
        is what other sources of this kind, with the same filters and guard, have taught; it changes only the pace.
        """
        self._first = first
        self._guard = guard
        self._openers = openers()
        self._routine = Routine() if routine is None else routine
        self._splitter = Splitter(limits, guard, first)
        self._hold = RECORD_HOLD_LINES if inside else 0  # so many more lines that a filter matched are kept
        self._bar: Segment | None = None  # the last of a run of bars, until the run ends
        self._painted = False  # whether the first of the run has passed
        self._painting = 0  # the line of the last piece
        self._progress = ProgressSampler()
        self._quota = Quota()
        self._settling = Settling(filters, self._progress, self._quota)
        self._repeats = None if listeners is None else Repeats(listeners)
        self._verdicts = Verdicts(
            source.kind, filters, guard, limits.templates, self._progress, self._quota, self._repeats
        )
        self._verdict_of = self._verdicts.of
        self._watch = watch
        self._passes: dict[str, Verdict] = {}  # by rule, see `_passing`
        self._pause = 0  # so many more blocks are judged line by line
        self._out: list[KeptLine] = []
        self._bytes = self._kept = self._dropped = self._collapsed = self._truncated = 0

    @property
    def counts(self) -> CompressionCounts:
        """What has been read, kept and taken out so far. A line held back counts as neither."""
        return CompressionCounts(
            bytes=self._bytes,
            lines=self._splitter.lines + 1 - self._first,
            kept=self._kept,
            dropped=self._dropped
            + self._settling.dropped
            + self._progress.dropped
            + (self._repeats.dropped if self._repeats else 0),
            collapsed=self._collapsed + self._settling.collapsed,
            truncated=self._truncated,
            evicted_templates=self._verdicts.evicted
            + self._progress.evicted
            + self._quota.evicted
            + (self._repeats.evicted if self._repeats else 0),
        )

    def feed(self, data: bytes) -> list[KeptLine]:
        """Take the next bytes, give the lines that are known to be kept."""
        self._bytes += len(data)
        for piece in self._splitter.feed(data):
            self._piece(piece)
        return self._flush()

    def adopt(self, filters: Filters) -> None:
        """Judge by other filter rules from here on."""
        self._routine = Routine()
        self._settling.adopt(filters)
        self._verdicts.adopt(filters)

    def finish(self) -> list[KeptLine]:
        """End the source and give the rest."""
        for piece in self._splitter.finish():
            self._piece(piece)
        self._end_bars()
        self._release()
        return self._flush()

    def _flush(self) -> list[KeptLine]:
        out = self._out
        self._out = []
        self._kept += len(out)
        return out

    def _piece(self, piece: Plain | Segment) -> None:
        if isinstance(piece, Plain):
            self._end_bars()
            self._plain(piece)
        else:
            self._segment(piece)

    def _plain(self, run: Plain) -> None:
        """Judge a run of whole lines."""
        if self._routine.ready and not self._hold and self._watch is None and not self._pause:
            marked = self._routine.marks(run.text)
            if marked is not None and self._roomy(run.text, len(marked[0])):
                self._marked(run, *marked)
                return
        self._pause -= self._pause > 0
        lines, templates = run.lines, lines_of(template(run.text))
        if self._watch is not None:
            self._watch.lines(lines, templates)
        self._lines(run.first, lines, templates)

    def _lines(self, first: int, lines: list[bytes], templates: list[bytes]) -> None:
        """Judge lines from number `first` on."""
        verdicts = self._verdicts.of_all(templates)
        if verdicts.count(KEPT) == len(verdicts):
            self._out += map(KeptLine, range(first, first + len(lines)), lines)
            self._hold = RECORD_HOLD_LINES if self._hold else 0
            return
        place = 0
        while place < len(verdicts):
            judge = self._in_record if self._hold else self._outside
            place = judge(first, lines, templates, verdicts, place)

    def _roomy(self, text: bytes, lines: int) -> bool:
        """Whether so many lines cannot make anything be forgotten, which matters for all lines behind."""
        return (
            self._verdicts.roomy(lines, len(text))
            and self._progress.room(lines)
            and self._quota.room(lines)
            and (self._repeats is None or self._repeats.room(lines))
        )

    def _marked(self, run: Plain, marks: list[bytes], steps: list[bytes]) -> None:
        """Judge a run of lines, most of which are told by their marks.

        Between lines that may change what is held back the marked ones are settled together; the others, and what must
        be looked at of the marked ones, are judged one by one.
        """
        count = run.count = len(marks)
        others: list[int] = []
        for _ in range(marks.count(OTHER)):
            others.append(marks.index(OTHER, others[-1] + 1 if others else 0))
        raws = [steps[place] for place in others]
        templates = lines_of(template(b"\n".join([*raws, b""])))
        verdicts = self._verdicts.of_all(templates)
        routine: list[bytes] = []
        start = done = 0
        looked = len(others)
        while start < count:
            upto = self._upto(templates, verdicts, done)
            end = others[upto] + 1 if upto < len(others) else count
            look: list[tuple[int, Verdict, bytes]] = []
            for at in range(done, min(upto + 1, len(others))):
                place, verdict, raw = others[at], verdicts[at], raws[at]
                if verdict is None:
                    self._dropped += 1
                    routine.append(templates[at])
                elif verdict.rule is not None:
                    marks[place] = mark(verdict.rule, raw[verdict.name])
                    steps[place] = raw[verdict.step] if verdict.step is not None else b""
                    routine.append(templates[at])
                else:
                    look.append((run.first + place, verdict, raw))
            passed, left = self._settling.settle(run, marks[start:end], steps, start)
            for place, rule in passed:
                look.append((run.first + place, self._passing(rule), run.lines[place]))
            for place in left:
                raw = run.lines[place]
                look.append((run.first + place, self._verdict_of(template(raw)) or KEPT, raw))
            looked += len(left)
            look.sort(key=itemgetter(0))
            self._each(look)
            start, done = end, upto + 1
            if self._hold and start < count:
                self._lines(run.first + start, run.lines[start:], lines_of(template(run.text))[start:])
                break
        if looked * 2 > count:
            self._pause = _PAUSE
        if len(routine) * _FEW > count and self._routine.learning:
            self._routine.note(routine, self._verdicts.fate)

    def _passing(self, rule: str) -> Verdict:
        """The verdict of a sample of progress that passes on."""
        verdict = self._passes.get(rule)
        if verdict is None:
            verdict = self._passes[rule] = Verdict(None, (), Answer.NO, Answer.NO)
            verdict.progress = rule
        return verdict

    def _upto(self, templates: list[bytes], verdicts: list[Verdict | None], start: int) -> int:
        """Which is the next of some lines that may change what has been held back; on the way, learn what is new."""
        for at in range(start, len(verdicts)):
            verdict = verdicts[at]
            if verdict is NOVEL:
                verdict = self._verdicts.cache.get(templates[at], NOVEL)
                if verdict is NOVEL:
                    verdict = self._verdicts.learn(templates[at])
                    verdicts[at] = KEPT if verdict is ONCE else verdict
                elif verdict is not ONCE:
                    verdicts[at] = verdict
            if verdict is not None and not verdict.kept and verdict.rule is None:
                return at
        return len(verdicts)

    def _in_record(
        self, first: int, lines: list[bytes], templates: list[bytes], verdicts: list[Verdict | None], place: int
    ) -> int:
        """Judge the lines from `place` on until no record is open; every line counts. Return where that was."""
        for index in range(place, len(verdicts)):
            verdict = verdicts[index]
            if verdict is KEPT:
                self._out.append(KeptLine(first + index, lines[index]))
                self._hold = RECORD_HOLD_LINES
                continue
            if verdict is NOVEL or verdict is ONCE:
                verdict = self._verdict_of(templates[index])
            # What `_line` does with most of them:
            if verdict is not None and verdict.loud is not None:
                self._release()
                self._out.append(KeptLine(first + index, lines[index], verdict.loud))
                self._hold = RECORD_HOLD_LINES
                continue
            if verdict is not None and verdict.kept and verdict.shape is not None and self._repeats is not None:
                worn = self._repeats.take(verdict.shape, first + index, lines[index], self._out, must=True)
                self._hold = self._hold - 1 if worn else RECORD_HOLD_LINES
                if not self._hold:
                    return index + 1
                continue
            if not self._line(first + index, lines[index], verdict):
                return index + 1
        return len(verdicts)

    def _outside(
        self, first: int, lines: list[bytes], templates: list[bytes], verdicts: list[Verdict | None], place: int
    ) -> int:
        """Judge the lines from `place` on until one opens a record; return where the next one stands.

        Lines that are simply dropped are not looked at.
        """
        before = self._taken
        end = len(verdicts)
        if place:
            verdicts, lines = verdicts[place:], lines[place:]
        numbers = compress(range(first + place, first + end), verdicts)
        opened = self._each(zip(numbers, filter(None, verdicts), compress(lines, verdicts), strict=True))
        if opened:
            end = opened - first + 1
            verdicts = verdicts[: end - place]
        self._dropped += verdicts.count(None)
        if (self._taken - before) * _FEW > len(verdicts) and self._routine.learning:
            judged = zip(templates[place:end], verdicts, strict=True)
            routine = [each for each, verdict in judged if verdict is None or verdict.rule is not None]
            self._routine.note(routine, self._verdicts.fate)
        return end

    @property
    def _taken(self) -> int:
        """How many lines were taken out one by one."""
        return self._dropped + self._collapsed + self._progress.dropped

    def _each(self, lines: Iterable[tuple[int, Verdict, bytes]]) -> int:
        """Judge lines outside records until one opens one; give its number, 0 if none did.

        Those of the common kinds are judged without a call for each.
        """
        sampled = opened = 0
        keep = self._out.append
        for number, verdict, raw in lines:
            if verdict is KEPT:
                keep(KeptLine(number, raw))
                continue
            find = verdict.writer
            if find is not None:
                writer = find(raw[verdict.name])
                if writer is not None and writer.left > 0 and writer.raw is not None:
                    span = verdict.step
                    step = writer.step if span is None else int(raw[span])
                    if step >= writer.step:  # what `take` does with most of them
                        writer.step = step
                        writer.left -= 1
                        writer.number = number
                        writer.raw = raw
                        sampled += 1
                        continue
            elif verdict.full is not None and raw[verdict.name] in verdict.full:
                self._collapsed += 1
                continue
            if verdict.progress is not None:
                keep(KeptLine(number, raw, progress=verdict.progress))
                continue
            if verdict.kept:
                shape = self._verdicts.again(template(raw)).shape if verdict is ONCE else verdict.shape
                self._unspoken(shape, number, raw)
                continue
            self._line(number, raw, self._verdict_of(template(raw)) if verdict is NOVEL else verdict)
            if self._hold:
                opened = number
                break
        self._progress.dropped += sampled
        return opened

    def _segment(self, segment: Segment) -> None:
        """Judge one piece of a line. Of a run of bars the first and the last one matter, unless a record is open.

        The first shows whether a bar began anew.
        """
        if segment.number != self._painting:
            self._end_bars()
            self._painting = segment.number
        if segment.truncated:
            self._end_bars()
            self._long(segment)
            return
        verdict = self._verdict_of(template(segment.raw))
        if segment.bar and not self._hold and not self._guarded(segment.raw, verdict):
            if not self._painted:
                self._painted = True
                self._line(segment.number, segment.raw, verdict, bar=True)
                return
            if self._bar is not None:
                self._collapsed += 1
            self._bar = segment
            return
        self._end_bars()
        self._line(segment.number, segment.raw, verdict, bar=segment.bar)

    def _end_bars(self) -> None:
        self._painted = False
        if self._bar is not None:
            bar = self._bar
            self._bar = None
            self._line(bar.number, bar.raw, self._verdict_of(template(bar.raw)), bar=True)

    def _long(self, segment: Segment) -> None:
        """Keep a cut line: filters do not see whole what they would have to match from end to end."""
        self._truncated += 1
        opens = self._openers.hits(segment.raw)
        if self._hold or opens:
            self._hold = RECORD_HOLD_LINES
        self._keep(segment.number, segment.raw, guarded=segment.guarded, opens=opens, truncated=True)

    def _line(self, number: int, raw: bytes, verdict: Verdict | None, *, bar: bool = False) -> bool:
        """Decide on one line of a known template, None of those that are dropped; say if a record is open after it."""
        if verdict is None:
            if self._hold:
                self._hold -= 1
                self._out.append(KeptLine(number, raw, routine=True))
            else:
                self._dropped += 1
            return self._hold > 0
        hit = verdict.sure
        if verdict.maybe:
            hit = next((maybe for maybe in verdict.maybe if maybe.rule.matches(raw)), hit)
        opens = verdict.opener is Answer.SURE or (verdict.opener is Answer.MAYBE and self._openers.hits(raw))
        guarded = self._guarded(raw, verdict)
        held = bool(self._hold)
        if opens:
            self._hold = RECORD_HOLD_LINES
        elif held:
            routine = hit is not None or bar or (self._repeats is not None and self._repeats.worn(verdict.shape, raw))
            self._hold = self._hold - 1 if routine else RECORD_HOLD_LINES
        if hit is None and not guarded and not opens:
            self._unspoken(verdict.shape, number, raw, must=held, bar=bar)
        elif hit is None:
            self._keep(number, raw, guarded=guarded, opens=opens, progress="" if bar else None)
        elif hit.rule.progress:
            if guarded or opens:
                self._release()
            writers = self._progress.writers(hit.rule.id)
            must = held or guarded or opens
            self._progress.take(hit, writers, number, raw, self._out, must=must, guarded=guarded)
        elif held or guarded or opens:
            self._keep(number, raw, guarded=guarded, opens=opens, routine=True)
        elif hit.rule.action == "drop":
            self._dropped += 1
        elif self._quota.takes(hit, raw):
            self._out.append(KeptLine(number, raw, routine=True))
        else:
            self._collapsed += 1
        return self._hold > 0

    def _keep(
        self,
        number: int,
        raw: bytes,
        *,
        guarded: bool,
        opens: bool,
        truncated: bool = False,
        progress: str | None = None,
        routine: bool = False,
    ) -> None:
        """Pass a line on; before one that may matter go the last signs of progress."""
        if guarded or opens:
            self._release()
        self._out.append(KeptLine(number, raw, guarded, truncated, progress, routine))

    def _unspoken(self, shape: Shape | None, number: int, raw: bytes, *, must: bool = False, bar: bool = False) -> None:
        """Pass on a line that nothing speaks of, unless it is one of many alike."""
        if shape is None or self._repeats is None:
            self._out.append(KeptLine(number, raw, progress="" if bar else None))
        else:
            self._repeats.take(shape, number, raw, self._out, must=must, bar=bar)

    def _release(self) -> None:
        """Pass on everything held back, by line number."""
        held = self._progress.held()
        if self._repeats is not None:
            held += self._repeats.held()
        if held:
            held.sort(key=lambda line: line.number)
            self._out += held

    def _guarded(self, raw: bytes, verdict: Verdict | None) -> bool:
        if verdict is None or verdict.guard is Answer.NO:
            return False
        return verdict.guard is Answer.SURE or self._guard.hits(raw)
