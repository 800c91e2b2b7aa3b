"""A confirmed failure as a rule is made from it: its lines, and which of them may decide.

In: an `Incident` of the memory, or logs on disk with the right error type. Out: a `Case`, whose lines are clean text,
bounded in number and length, the likeliest deciding ones first.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

import yaml

from diagnose.compress import Compressor, Filters, Guard
from diagnose.compress.keptlog import KeptReader
from diagnose.dataclass import dataclass, replace
from diagnose.errors import SourceError, UsageError
from diagnose.lines import LineReader, guard_keywords
from diagnose.lines.ansi import clean
from diagnose.models import Incident, KeptLine, Line, LogSource, RuleSet, SourceKind
from diagnose.models.rule import AttributionName
from diagnose.rules.abstract import tokens, words_of
from diagnose.rules.lint.runner import keywords_of
from diagnose.settings import Limits
from diagnose.sources import collect

LINE_CHARS: Final = 600
_AROUND: Final = 3
_CANDIDATES: Final = 200
_DECIDING: Final = 6
_LINES: Final = 400
_EXPECTED_BYTES: Final = 256 * 1024
# Words of trouble, and how much they say.
_TROUBLE: Final = (
    ("error", 3), ("fail", 3), ("fatal", 4), ("exception", 3), ("abort", 3), ("panic", 4), ("critical", 3),
    ("cannot", 2), ("unable", 2), ("refused", 2), ("invalid", 2), ("denied", 2), ("lost", 2), ("missing", 2),
    ("timed out", 2), ("timeout", 2), ("killed", 2), ("corrupt", 3), ("mismatch", 2), ("unexpected", 2),
    ("giving up", 3), ("not found", 2), ("unreachable", 2), ("terminated", 1), ("warning", -2), ("retry", -1),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CaseLine:
    """One line: `text` as it stands in the log, `body` without the prefixes of loggers and launchers."""

    source: str
    kind: SourceKind
    number: int
    text: str
    body: str


@dataclass(frozen=True, slots=True)
class Case:
    """A failure whose cause is known. `deciding` are places in `lines`, the likeliest first.

    `named` says that a person or a label named them. `inputs` are the arguments by which `folder` was diagnosed; None
    where only lines are left.
    """

    id: str
    error_type: str
    lines: tuple[CaseLine, ...]
    deciding: tuple[int, ...]
    attribution: AttributionName | None = None
    summary: str = ""
    folder: str | None = None
    inputs: tuple[str, ...] = ()
    named: bool = False

    def around(self, index: int, before: int = _AROUND, after: int = _AROUND) -> tuple[tuple[CaseLine, ...], int]:
        """A line with its neighbours in the same source, and its place among them."""
        own = self.lines[index]
        first = index
        while first > 0 and index - first < before and self.lines[first - 1].source == own.source:
            first -= 1
        last = index
        while last + 1 < len(self.lines) and last - index < after and self.lines[last + 1].source == own.source:
            last += 1
        return self.lines[first : last + 1], index - first


def case_of_incident(incident: Incident, rule_set: RuleSet) -> Case:
    """The case of a confirmed incident of the memory; raises `UsageError` where there is none to make."""
    if not incident.confirmed:
        raise UsageError(
            f"incident {incident.id} is not confirmed; `diagnose incidents confirm {incident.id}` or `correct` it first"
        )
    if incident.error_type is None:
        raise UsageError(f"incident {incident.id} has no error type; `diagnose incidents correct` it first")
    if incident.rule is not None and incident.decided_by == "rules":
        raise UsageError(f"the rule {incident.rule} decided incident {incident.id}; there is nothing to learn from it")
    texts = [clean(text) for text in incident.text.split("\n")[:_LINES]]
    source = LogSource("incident.log")
    reader = LineReader(source, Limits())
    lines = [
        _case_line(line)
        for number, text in enumerate(texts, 1)
        for line in reader.read(KeptLine(number, text[:LINE_CHARS].encode("utf-8", "replace"), guarded=True))
    ]
    return _case(incident.id, incident.error_type, lines, rule_set, attribution=incident.attribution, told=incident)


def case_of_path(
    path: str,
    rule_set: RuleSet,
    *,
    error_type: str = "",
    attribution: AttributionName | None = None,
    deciding: tuple[str, int] | None = None,
    blind: bool = False,
) -> Case:
    """The case of logs on disk; a folder's `expected.yaml` says what is not given. Raises `UsageError`.

    `blind` takes no line from there, as where nobody has named one.
    """
    if not os.path.exists(path):
        raise UsageError(f"there is no incident and no file or directory {_printable(path)}")
    folder, name = (path, ".") if os.path.isdir(path) else (os.path.dirname(path) or ".", os.path.basename(path))
    inputs: tuple[str, ...] = (name,)
    expected = _expected(folder) if os.path.isdir(path) else {}
    known = expected.get("error_type")
    error_type = error_type or (known if isinstance(known, str) else "")
    if not error_type:
        raise UsageError(f"{_printable(path)}: what failed is not known; name it with --label TYPE")
    given = expected.get("inputs")
    if isinstance(given, list) and given and all(isinstance(item, str) for item in given):
        inputs = tuple(given)
    told: list[tuple[str, int]] = [] if deciding is None else [deciding]
    evidence = expected.get("evidence")
    told += [
        (str(entry.get("source")), entry["line"])
        for entry in (evidence if isinstance(evidence, list) and deciding is None and not blind else ())
        if isinstance(entry, dict) and isinstance(entry.get("line"), int)
    ]
    name = os.path.basename(os.path.abspath(path)) or "incident"
    paths = [os.path.join(folder, item) for item in inputs if not item.startswith("-")]
    lines = tuple(_read(paths, rule_set, told))
    case = _case(name, error_type, lines, rule_set, attribution=attribution)
    wanted = [index for source, number in told for index, line in enumerate(lines) if _same(line, source, number)]
    if deciding is not None and not wanted:
        raise UsageError(f"{_printable(deciding[0])} has no line {deciding[1]} that can be read; correct --line")
    order = tuple(dict.fromkeys((*wanted, *case.deciding)))[:_DECIDING] if not wanted else tuple(dict.fromkeys(wanted))
    return replace(case, deciding=order, folder=folder, inputs=inputs, named=bool(wanted))


def _same(line: CaseLine, source: str, number: int) -> bool:
    return line.number == number and (line.source == source or line.source.endswith("/" + source.lstrip("./")))


def _case(
    name: str,
    error_type: str,
    lines: Sequence[CaseLine],
    rule_set: RuleSet,
    *,
    attribution: AttributionName | None = None,
    told: Incident | None = None,
) -> Case:
    entry = rule_set.taxonomy.get(error_type)
    if entry is None:
        raise UsageError(f"{_printable(error_type)} is no error type; --label takes a name of taxonomy.yml")
    if entry.symptom:
        raise UsageError(f"{error_type} only follows from other failures; name what caused it with --label")
    if not any(line.body.strip() for line in lines):
        raise UsageError(f"{_printable(name)}: no line could be read, so that there is nothing to make a rule of")
    ranked = sorted(range(len(lines)), key=lambda index: (-trouble(lines[index].body), index))
    best = [index for index in ranked if trouble(lines[index].body) > 0][:_DECIDING] or list(ranked[:1])
    summary = "" if told is None else clean(told.summary)[:LINE_CHARS]
    return Case(name, error_type, tuple(lines), tuple(best), attribution, summary)


def trouble(text: str) -> float:
    """How much a line sounds like a failure."""
    lowered = text.lower()
    score = float(sum(weight for word, weight in _TROUBLE if word in lowered))
    pieces = tokens(text)
    if not words_of(pieces):
        return 0.0
    if text[:1] in " \t":
        score -= 2  # it continues another line
    return score if len(text) <= LINE_CHARS else score / 2


def _read(paths: Sequence[str], rule_set: RuleSet, told: Sequence[tuple[str, int]]) -> Iterator[CaseLine]:
    """The lines worth keeping of all inputs, in order: those told of, the troubled ones, and their neighbours."""
    limits = Limits()
    words = {word for rule in rule_set.diagnoses for word in keywords_of(rule)}
    guard = Guard((*words, *guard_keywords()))
    filters = Filters(rule_set.filters)
    left = _CANDIDATES
    try:
        inputs = collect(paths, kernel_logs=(), scheduler_records=(), stdin=None, limits=limits).inputs
    except SourceError as error:
        raise UsageError(str(error)) from error
    for item in inputs:
        compressor = Compressor(item.source, filters, guard, limits)
        reader = LineReader(item.source, limits)
        before: deque[Line] = deque(maxlen=_AROUND)
        after = 0
        wanted = {number for source, number in told if _ends(item.source.name, source)}

        def lines(item: Any = item, compressor: Compressor = compressor, reader: LineReader = reader) -> Iterator[Line]:
            try:
                if item.kept is not None:
                    for some in KeptReader(item.kept.records(), item.source.name).lines():
                        for kept in some:
                            yield from reader.read(kept)
                for block in item.blocks() if item.kept is None else ():
                    for kept in compressor.feed(block):
                        yield from reader.read(kept)
            except SourceError:
                pass  # what was read until then is good
            for kept in compressor.finish():
                yield from reader.read(kept)
            yield from reader.finish()

        for line in lines():
            chosen = line.number in wanted or (left > 0 and trouble(line.body) > 0)
            if chosen:
                left -= 1
                yield from map(_case_line, before)
                before.clear()
                after = _AROUND
                yield _case_line(line)
            elif after:
                after -= 1
                yield _case_line(line)
            else:
                before.append(line)
        if left > 0 and not after:
            yield from map(_case_line, before)  # how it ended


def _ends(name: str, source: str) -> bool:
    return name == source or name.endswith("/" + source.lstrip("./")) or source.endswith("/" + name)


def _case_line(line: Line) -> CaseLine:
    return CaseLine(line.source.name, line.source.kind, line.number, line.text[:LINE_CHARS], line.body[:LINE_CHARS])


def _expected(folder: str) -> dict[str, Any]:
    """The label beside logs, if there is one."""
    path = os.path.join(folder, "expected.yaml")
    try:
        with open(path, encoding="utf-8") as file:
            found = yaml.safe_load(file.read(_EXPECTED_BYTES))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        why = str(error).partition("\n")[0]
        raise UsageError(f"{_printable(path)} cannot be read: {why}; mend it, or give --label") from error
    return found if isinstance(found, dict) else {}


def _printable(text: str) -> str:
    from diagnose.sources.printable import printable

    return printable(text[:200])
