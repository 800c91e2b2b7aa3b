"""Small factories for the tests of the engine: findings, rules and rule sets, lines, and a run of a few rules over logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from diagnose.lines import LineReader, RecordAssembler
from diagnose.lines.inventory import Inventory
from diagnose.lines.timeline import Mark
from diagnose.models import (
    DiagnosisRule,
    Edge,
    ErrorType,
    Evidence,
    Finding,
    KeptLine,
    Line,
    LogSource,
    Match,
    RuleSet,
    Signature,
    Table,
    Verdict,
)
from diagnose.models.rule import DiagnosisExamples
from diagnose.rules.combine import combine
from diagnose.rules.matcher import Matcher
from diagnose.rules.sighting import EvidenceDraft, Sighting
from diagnose.settings import Limits

TYPES = (
    ErrorType("ECCError", "hardware", "infrastructure", "infrastructure"),
    ErrorType("GPUThermalThrottle", "hardware", "infrastructure", "infrastructure"),
    ErrorType("CUDAError", "cuda", "framework", "unknown"),
    ErrorType("NetworkError", "network", "infrastructure", "infrastructure"),
    ErrorType("HostOutOfMemory", "host", "infrastructure", "unknown"),
    ErrorType("NCCLTimeoutError", "comm", "infrastructure", "infrastructure"),
    ErrorType("CollectiveMismatch", "comm", "framework", "user"),
    ErrorType("RuntimeError", "framework", "framework", "unknown"),
    ErrorType("ProcessKilled", "framework", "framework", "unknown"),
    ErrorType("KeyError", "script", "script", "user"),
    ErrorType("ChildFailed", "teardown", symptom=True),
    ErrorType("Terminated", "teardown", symptom=True),
)
FAMILIES = {entry.name: entry.family for entry in TYPES}


def finding(id: str, error_type: str = "CUDAError", **how: Any) -> Finding:
    """A finding; `at` is its time, `line` its line in `source` (and in the stream of that name)."""
    at, line, source = how.pop("at", None), how.pop("line", 1), how.pop("source", f"{id}.log")
    stream = how.pop("stream", source)
    how.setdefault("role", "teardown" if FAMILIES.get(error_type) == "teardown" else "cause")
    how.setdefault("first", at)
    how.setdefault("last", at)
    how.setdefault("streams", {stream: (line, line)})
    how.setdefault("spans", {source: (line, line)})
    how.setdefault("sources", {"job"})
    for name in ("ranks", "hosts", "gpus", "sources"):
        how[name] = frozenset(how.get(name, ()))
    how.setdefault("family", FAMILIES.get(error_type, "framework"))
    how.setdefault("evidence", (Evidence(source, line, f"{error_type} was seen"),))
    return Finding(id=id, rule=how.pop("rule", None), error_type=error_type, attempt=how.pop("attempt", 0), **how)


def rule(id: str = "a-rule", *, signatures: Mapping[str, str], **how: Any) -> DiagnosisRule:
    """A rule; `signatures` are patterns by name, and the name is the keyword."""
    made = {name: Signature((name,), text) for name, text in signatures.items()}
    for edges in ("explains", "explained_by"):
        how[edges] = tuple(edge if isinstance(edge, Edge) else Edge(edge) for edge in how.get(edges, ()))
    match = how.pop("match", None) or Match(any=tuple(signatures))
    return DiagnosisRule(
        schema="diagnosis-rule/v1",
        id=id,
        title=id,
        status=how.pop("status", "test"),
        level=how.pop("level", "high"),
        role=how.pop("role", "cause"),
        error_type=how.pop("error_type", "CUDAError"),
        description="made for a test",
        author=("tests",),
        created="2026-01-01",
        tags=how.pop("tags", ()),
        sources=how.pop("sources", ("job",)),
        signatures=made,
        match=match,
        verdict=how.pop("verdict", Verdict("it broke", "mend it")),
        examples=DiagnosisExamples((), ()),
        **how,
    )


def rules(*made: DiagnosisRule, tables: Iterable[Table] = ()) -> RuleSet:
    """A rule set of these rules alone."""
    return RuleSet(
        version="test",
        taxonomy={entry.name: entry for entry in TYPES},
        tags=(),
        diagnoses=made,
        filters=(),
        tables={table.name: table for table in tables},
        policy=(),
    )


def line(source: str = "job.log", number: int = 1, *, text: str = "", **how: Any) -> Line:
    """A line of a source."""
    kind = how.pop("kind", "job")
    return Line(LogSource(source, kind), number, text, text, how.pop("stream", source), **how)


def mark(source: str = "job.log", number: int = 1, *, time: float | None = None, stream: str | None = None) -> Mark:
    """A place where something was last seen."""
    return Mark(source, stream or source, number, time)


@dataclass
class Sightings:
    """A sink that keeps everything; `told` is (rule or None, error type, line) of each sighting, in order.

    `lines` are those of what lasted, `over` of what was over again: (source, line, and the line that says so).
    """

    kept: list[Sighting] = field(default_factory=list)

    def add(self, sighting: Sighting, draft: EvidenceDraft, *, traceback: bool) -> None:
        self.kept.append(sighting)

    @property
    def told(self) -> list[tuple[str | None, str, int]]:
        return [(s.rule.id if s.rule else None, s.error_type, s.line.number) for s in self.kept]

    @property
    def lines(self) -> list[tuple[str, int]]:
        return [(s.line.source.name, s.line.number) for s in self.kept if s.over is None]

    @property
    def over(self) -> list[tuple[str, int, int]]:
        return [(s.line.source.name, s.line.number, s.over.number) for s in self.kept if s.over is not None]


def sightings(rule_set: RuleSet, log: str | Mapping[str, str], *, kinds: Mapping[str, Any] | None = None) -> Sightings:
    """What a rule set makes of one log or several by name, through the real lines, records, matcher and `combine`."""
    sink, inventory, limits = Sightings(), Inventory(), Limits()
    matcher = Matcher(rule_set, sink, limits)
    for name, text in {"job.log": log}.items() if isinstance(log, str) else log.items():
        source = LogSource(name, (kinds or {}).get(name, "job"))
        reader, records, matching = LineReader(source, limits), RecordAssembler(source, limits), matcher.source(source)
        made = [
            one
            for number, raw in enumerate(text.rstrip("\n").split("\n"), 1)
            for one in reader.read(KeptLine(number, raw.encode(), guarded=True))
        ]
        for one in [*made, *reader.finish()]:
            inventory.observe(one)
            matching.line(one)
            for record in records.feed(one):
                matching.record(record, 0)
        for record in records.finish():
            matching.record(record, 0)
    combine(matcher, inventory)
    return sink
