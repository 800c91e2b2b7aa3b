"""The online matcher: records in, sightings out, in bounded memory.

In: records of one source after another, in file order. Out: sightings handed to a sink at once (rules that
one signature decides, and exceptions that need no rule), and hits kept for `combine` (rules over several signatures).
Matching sees every record that could matter, unfolded: 64 ranks' watchdog lines are 64 sightings.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, cast

from diagnose.dataclass import dataclass, field
from diagnose.lines.frames import culprit_file, innermost_user_frame, library_file
from diagnose.models import DiagnosisRule, Line, LogSource, RaisedException, Record, RuleSet
from diagnose.models.rule import Role
from diagnose.rules.captures import CODE_PLACE, LIBRARY_PLACE, RESERVED, UNDATED, Value, typed
from diagnose.rules.gate import CompiledSignature, Gate
from diagnose.rules.intrinsic import deciding_chain, deciding_exception, error_type_of, role_of
from diagnose.rules.sighting import EvidenceDraft, Sighting
from diagnose.settings import Limits

if TYPE_CHECKING:
    import regex

_MATCHES_PER_RECORD = 32
_SIGNATURES_PER_RECORD = 64  # that match it; two or three do, of the shipped rules
_TIMEOUTS = 3  # of one pattern, before it is given up
_CONTEXT_LINES = 40
_SHOWN_BYTES = 500
_QUOTED_CODE = "    "  # how far a traceback indents it


Match = tuple[CompiledSignature, "regex.Match[str]", int]


class Sink(Protocol):
    """Where sightings go: an `Aggregator` in a run."""

    def add(self, sighting: Sighting, draft: EvidenceDraft, *, traceback: bool) -> None:
        """Takes one sighting."""
        ...


@dataclass(frozen=True, slots=True)
class Hit:
    """One signature's match, before a rule over several signatures is decided."""

    signature: str
    line: Line
    attempt: int
    captures: Mapping[str, Value]
    draft: EvidenceDraft


@dataclass(slots=True)
class HitStore:
    """The hits of one signature: all up to a bound, then the first and the latest ones."""

    first: list[Hit] = field(default_factory=list)
    latest: deque[Hit] = field(default_factory=lambda: deque(maxlen=512))
    count: int = 0

    def add(self, hit: Hit) -> None:
        """Keeps the hit if there is room, else in place of an older of the latest ones."""
        self.count += 1
        if len(self.first) < 512:  # half of the bound
            self.first.append(hit)
        else:
            self.latest.append(hit)

    def all(self) -> list[Hit]:
        """The kept hits in the order seen."""
        return [*self.first, *self.latest]


class Matcher:
    """Matches the records of a job against a rule set.

    `sink` receives sightings; `hits` holds, by rule id and signature, what `combine` decides at the end.
    `timeouts` counts how often patterns were stopped, by rule id and signature; one that was too often is given up.
    `crowded` counts the records that more signatures match than are weighed, `crowded_at` is the first of them.
    """

    def __init__(self, rule_set: RuleSet, sink: Sink, limits: Limits, gate: Gate | None = None) -> None:
        self._rules = rule_set
        self._gate = gate or Gate(rule for rule in rule_set.diagnoses if rule.status != "deprecated")
        self._limits = limits
        self.sink = sink
        self.hits: dict[str, dict[str, HitStore]] = {}
        self.timeouts: dict[tuple[str, str], int] = {}
        self.crowded = 0
        self.crowded_at: Line | None = None

    @property
    def keywords(self) -> tuple[str, ...]:
        """All literals of the rules, for the guard."""
        return self._gate.keywords

    def source(self, source: LogSource) -> SourceMatcher:
        """The matcher of one source's records."""
        return SourceMatcher(self, source)

    def search(self, signature: CompiledSignature, text: str) -> list[regex.Match[str]]:
        """The signature's matches in a text; none where the pattern ran over its time, or has been given up."""
        found: list[regex.Match[str]] = []
        key = (signature.rule.id, signature.name)
        if self.timeouts.get(key, 0) >= _TIMEOUTS:
            return found
        try:
            for match in signature.pattern.finditer(text, timeout=self._limits.pattern_seconds):
                found.append(match)
                if len(found) >= _MATCHES_PER_RECORD:
                    break
        except TimeoutError:
            self.timeouts[key] = self.timeouts.get(key, 0) + 1
        return found

    @property
    def unmatched(self) -> list[str]:
        """In words, what the rules may have missed because a bound of the matcher bit."""
        told = [
            f"some of what rule {rule} looks for: its pattern {name} ran out of time {count}x"
            + (" and was given up" if count >= _TIMEOUTS else "")
            for (rule, name), count in self.timeouts.items()
        ]
        if self.crowded_at is not None:
            told.append(
                f"some of what rules look for in {self.crowded_at.source.name}:{self.crowded_at.number}"
                f"{f' (the first of {self.crowded} such places)' if self.crowded > 1 else ''}: "
                f"more than {_SIGNATURES_PER_RECORD} patterns match there, those with the longest keywords were heard"
            )
        return told

    def candidates(self, record: Record) -> list[CompiledSignature]:
        """The signatures worth searching in this record."""
        return self._gate.candidates(record.text, record.first.source.kind)

    def error_type(self, name: str) -> tuple[str, bool]:
        """The family of an error type, and whether it is a symptom type."""
        entry = self._rules.taxonomy.get(name)
        return (entry.family, entry.symptom) if entry else ("framework", False)

    @property
    def rule_set(self) -> RuleSet:
        """The rules in use."""
        return self._rules


class SourceMatcher:
    """Feeds one source's lines and records to the matcher, with the lines around each piece of evidence."""

    def __init__(self, matcher: Matcher, source: LogSource) -> None:
        self._matcher = matcher
        self._source = source
        self._recent: deque[Line] = deque(maxlen=_CONTEXT_LINES)
        self._waiting: list[tuple[EvidenceDraft, int]] = []
        self._beside: dict[str, tuple[int, Mapping[str, Value]]] = {}  # attempt and captures, by rule id

    def line(self, line: Line) -> None:
        """Notes a line as context. Called for each line before its record is matched."""
        self._recent.append(line)
        if self._waiting:
            text = line.text[:_SHOWN_BYTES]
            for draft, wanted in self._waiting:
                if line.number > draft.line.number and len(draft.after) < wanted:
                    draft.after.append(text)
            self._waiting = [(draft, wanted) for draft, wanted in self._waiting if len(draft.after) < wanted]

    def lines(self, lines: Sequence[Line]) -> None:
        """Notes lines as context, as `line` does one by one."""
        if self._waiting:
            for line in lines:
                self.line(line)
        else:
            self._recent.extend(lines)

    def record(self, record: Record, attempt: int) -> None:
        """Matches one record."""
        if record.quoted:
            return
        refined = False
        exception = deciding_exception(record) if record.exceptions else None
        for signature, match, index in _without_general(self._matches(record)):
            line = record.lines[index]
            if not line.quoted:
                decided = self._found(signature, match, line, record, attempt)
                refined = refined or (decided and _refines(signature.rule, index, exception, record))
        if exception is not None and not refined:
            self._exception(exception, record, attempt)

    def _matches(self, record: Record) -> list[Match]:
        """Every signature's match in the record, with the index of the line that states it."""
        found: list[Match] = []
        offsets: list[int] | None = None
        searched = ((one, self._matcher.search(one, record.text)) for one in self._matcher.candidates(record))
        matching = [(signature, matches) for signature, matches in searched if matches]
        if len(matching) > _SIGNATURES_PER_RECORD:
            self._matcher.crowded += 1
            self._matcher.crowded_at = self._matcher.crowded_at or record.first
            matching = sorted(matching, key=lambda item: -_specificity(item[0]))[:_SIGNATURES_PER_RECORD]
        for signature, matches in matching:
            for match in matches:
                if offsets is None:
                    offsets = _line_starts(record.text)
                index = bisect_right(offsets, _stating_offset(match)) - 1
                found.append((signature, match, min(index, len(record.lines) - 1)))
        if len(found) > 1 and record.exceptions:
            # What was raised first is told first; code that a traceback quotes says less than the messages.
            found.sort(key=lambda one: (record.lines[one[2]].body.startswith(_QUOTED_CODE), one[2]))
        return found

    def _found(
        self, signature: CompiledSignature, match: regex.Match[str], line: Line, record: Record, attempt: int
    ) -> bool:
        rule = signature.rule
        captures = _captures(rule, match, line, record)
        if rule.match.beside:
            if signature.name in rule.match.beside:
                self._beside[rule.id] = (
                    attempt,
                    {name: captures[name] for name in match.groupdict() if name in captures},
                )
                return False
            noted, said = self._beside.get(rule.id, (attempt, {}))
            captures = {**said, **captures} if noted == attempt else captures
        draft = self._draft(line, rule.evidence.before, rule.evidence.after)
        if decided_by_one(rule):
            if signature.name not in rule.match.any:
                return False
            self._add(sighting_of(rule, signature.name, line, attempt, captures, self._matcher.rule_set), draft, record)
            return rule.status != "experimental"
        store = self._matcher.hits.setdefault(rule.id, {}).setdefault(signature.name, HitStore())
        store.add(Hit(signature.name, line, attempt, captures, draft))
        return False

    def _exception(self, exception: RaisedException, record: Record, attempt: int) -> None:
        error_type = error_type_of(exception, self._matcher.rule_set.taxonomy)
        _, symptom = self._matcher.error_type(error_type)
        line = record.lines[min(exception.line_index, len(record.lines) - 1)]
        frame = innermost_user_frame(exception)
        where = culprit_file(deciding_chain(record))
        captures: dict[str, Value] = {"exception": exception.type, "message": exception.message[:_SHOWN_BYTES]}
        if where:
            captures["file"] = where
        _add_places(captures, record)
        sighting = Sighting(
            rule=None,
            signature="exception",
            error_type=error_type,
            role=cast("Role", role_of(error_type, symptom=symptom)),
            survivable=True,
            line=line,
            attempt=attempt,
            captures=captures,
            place=f"{exception.type} {where or (frame.file if frame else '')}",
            also=_other_half(exception, record),
        )
        self._add(sighting, self._draft(line, 8, 4), record)

    def _add(self, sighting: Sighting, draft: EvidenceDraft, record: Record) -> None:
        self._matcher.sink.add(sighting, draft, traceback=record.kind in ("traceback", "json_error"))

    def _draft(self, line: Line, before: int, after: int) -> EvidenceDraft:
        earlier = [kept.text[:_SHOWN_BYTES] for kept in self._recent if kept.number < line.number]
        draft = EvidenceDraft(line, tuple(earlier[-before:] if before else ()))
        draft.after.extend([kept.text[:_SHOWN_BYTES] for kept in self._recent if kept.number > line.number][:after])
        if len(draft.after) < after and len(self._waiting) < 64:  # context is a courtesy: bounded
            self._waiting.append((draft, after))
        return draft


def _specificity(signature: CompiledSignature) -> int:
    return max(map(len, signature.keywords), default=0)


def decided_by_one(rule: DiagnosisRule) -> bool:
    """Whether one signature's match alone makes a finding of the rule."""
    match = rule.match
    return bool(match.any) and not match.unless and match.min_count <= 1 and not match.within and not match.join


def sighting_of(
    rule: DiagnosisRule, signature: str, line: Line, attempt: int, captures: Mapping[str, Value], rule_set: RuleSet
) -> Sighting:
    """The sighting of a rule, with the row of its look-up table joined."""
    error_type, role, survivable = rule.error_type, rule.role, rule.survivable
    joined = dict(captures)
    if rule.lookup and rule.lookup.key in captures:
        table = rule_set.tables.get(rule.lookup.table)
        row = table.rows.get(str(captures[rule.lookup.key])) if table else None
        if row:
            error_type = row.error_type or error_type
            role = row.role or role
            survivable = survivable if row.survivable is None else row.survivable
            joined.update({name: value for name, value in row.columns.items() if name not in joined})
            if row.title:
                joined.setdefault("title", row.title)
            if row.actions:
                joined.setdefault("table_action", f"{row.actions[0].action} ({row.actions[0].source})")
    return Sighting(rule, signature, error_type, role, survivable, line, attempt, joined)


def _captures(rule: DiagnosisRule, match: regex.Match[str], line: Line, record: Record) -> dict[str, Value]:
    captures: dict[str, Value] = {}
    for name, text in match.groupdict().items():
        if text is None:
            continue
        value = typed(name, text, rule.captures.get(name))
        if value is not None:
            captures[name] = value
    if line.time is None and line.source.kind == "job" and (record.kind == "scheduler" or "listed" in record.fields):
        captures[UNDATED] = 1
    defaults = (("rank", line.rank), ("host", line.host), ("gpu", line.gpu), ("pid", line.pid))
    for name, known in defaults:
        if known is not None and name in RESERVED:
            captures.setdefault(name, known)
    if record.kind == "scheduler":
        kind, _, name = record.fields.get("object", "").rpartition("/")
        pod = record.fields.get("pod") or (name if kind.startswith("pod") else "")
        node = record.fields.get("node") or (name if kind.startswith("node") else "")
        if pod:
            captures.setdefault("pod", pod.rpartition("/")[2])
        if node:
            captures.setdefault("host", node)
    if record.exceptions:
        exception = deciding_exception(record)
        where = culprit_file(deciding_chain(record))
        if where:
            captures.setdefault("file", where)
        _add_places(captures, record)
        if exception:
            captures.setdefault("exception", exception.type)
            captures.setdefault("message", exception.message[:_SHOWN_BYTES])
    return captures


def _add_places(captures: dict[str, Value], record: Record) -> None:
    """Where in the code it was raised, whatever a pattern of the rule calls `file`."""
    chain = deciding_chain(record)
    if (place := culprit_file(chain)) is not None:
        captures[CODE_PLACE] = place
    if (place := library_file(chain)) is not None:
        captures[LIBRARY_PLACE] = place


def _other_half(exception: RaisedException, record: Record) -> tuple[Line, ...]:
    """The lines that state how a chain began and how it ended, without the one that decides."""
    indexes = (record.exceptions[0].line_index, record.exceptions[-1].line_index)
    others = dict.fromkeys(index for index in indexes if index != exception.line_index)
    return tuple(record.lines[min(index, len(record.lines) - 1)] for index in others)


def _without_general(matches: list[Match]) -> list[Match]:
    """Matches without those of a look-up rule on a line where another rule names the same key by itself."""
    if len(matches) < 2:
        return matches
    named = {
        (index, key)
        for signature, match, index in matches
        if signature.rule.lookup is None and signature.rule.status != "experimental"
        for key in match.groupdict()
    }
    return [
        (signature, match, index)
        for signature, match, index in matches
        if signature.rule.lookup is None or (index, signature.rule.lookup.key) not in named
    ]


def _refines(rule: DiagnosisRule, index: int, exception: RaisedException | None, record: Record) -> bool:
    """Whether a rule's match says what the record's exception means, so that the exception need not speak for itself.

    A teardown rule does so only in the words of the exception itself: a launcher's wrapper around a traceback, or a
    warning printed beside it, takes nothing away from it.
    """
    if rule.role != "teardown" or exception is None:
        return True
    later = [other.line_index for other in record.exceptions if other.line_index > exception.line_index]
    return exception.line_index <= index < min(later, default=len(record.lines))


def _line_starts(text: str) -> list[int]:
    starts = [0]
    position = text.find("\n")
    while position >= 0:
        starts.append(position + 1)
        position = text.find("\n", position + 1)
    return starts


def _stating_offset(match: regex.Match[str]) -> int:
    """Where the match begins, past line ends and blanks that the pattern let in before its first word."""
    text = match.group()
    return int(match.start()) + len(text) - len(text.lstrip())
