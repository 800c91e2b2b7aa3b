"""A rule's examples, run through the same lines, records and matcher as a real job.

In: a rule set and an example log. Out: which rules match it, on which lines, with which captures.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast, get_args

from diagnose.dataclass import dataclass, field, replace
from diagnose.lines import LineReader, RecordAssembler
from diagnose.lines.inventory import Inventory
from diagnose.models import KeptLine, LogSource, RuleSet, SourceKind
from diagnose.models.report import Scalar
from diagnose.rules.captures import Value
from diagnose.rules.combine import combine
from diagnose.rules.matcher import Matcher
from diagnose.rules.sighting import EvidenceDraft, Sighting
from diagnose.settings import Limits

_KINDS = get_args(SourceKind)


@dataclass(frozen=True, slots=True)
class ExampleResult:
    """What one rule makes of an example log: 1-based lines of the log, and the captures of its first finding."""

    lines: tuple[int, ...] = ()
    captures: Mapping[str, Scalar | tuple[Scalar, ...]] = field(default_factory=dict)
    matched: bool = False


@dataclass(slots=True)
class _Sightings:
    """A sink that keeps every sighting of a rule: examples are short."""

    by_rule: dict[str, list[Sighting]] = field(default_factory=dict)

    def add(self, sighting: Sighting, draft: EvidenceDraft, *, traceback: bool) -> None:
        """Keeps a sighting that a rule made; what was over again is none, unless something else failed meanwhile."""
        del draft, traceback
        if sighting.rule is not None and sighting.over is None:
            self.by_rule.setdefault(sighting.rule.id, []).append(sighting)


def run_log(rule_set: RuleSet, log: str, source: str | None) -> Mapping[str, ExampleResult]:
    """What each rule makes of an example log, by id; rules that do not match are left out.

    `source` is the kind of all lines; where it is None and every line starts with `job| `, `kernel| ` ..., each names
    its own.
    """
    sink = _Sightings()
    inventory = Inventory()
    # Shadow rules are examined like all others here.
    rules = replace(rule_set, diagnoses=tuple(replace(rule, status="test") for rule in rule_set.diagnoses))
    limits = Limits()
    matcher = Matcher(rules, sink, limits)
    for kind, lines in _by_source(log, source).items():
        log_source = LogSource(f"example.{kind}", kind)
        reader, records = LineReader(log_source, limits), RecordAssembler(log_source, limits)
        matching = matcher.source(log_source)
        for number, text in lines:
            for line in reader.read(KeptLine(number, text.encode(), guarded=True)):
                inventory.observe(line)
                matching.line(line)
                for record in records.feed(line):
                    matching.record(record, 0)
        for record in records.finish():
            matching.record(record, 0)
    combine(matcher, inventory)
    return {name: _result(sightings) for name, sightings in sink.by_rule.items()}


def _result(sightings: list[Sighting]) -> ExampleResult:
    lines = sorted({line.number for sighting in sightings for line in (sighting.line, *sighting.also)})
    captures: dict[str, Value] = {}
    for sighting in sorted(sightings, key=lambda sighting: sighting.line.number):
        for name, value in sighting.captures.items():
            captures.setdefault(name, value)
    return ExampleResult(tuple(lines), captures, matched=True)


def _by_source(log: str, source: str | None) -> dict[SourceKind, list[tuple[int, str]]]:
    numbered = list(enumerate(log.rstrip("\n").split("\n"), 1))
    if source is None:
        marked: dict[SourceKind, list[tuple[int, str]]] = {}
        for number, text in numbered:
            kind, bar, rest = text.partition("| ")
            if not bar and text.endswith("|"):
                kind, rest = text[:-1], ""
            if kind not in _KINDS:
                break
            marked.setdefault(cast("SourceKind", kind), []).append((number, rest))
        else:
            return marked
    return {cast("SourceKind", source if source in _KINDS else "job"): numbered}
