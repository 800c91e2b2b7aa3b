"""What every check shares: the rule set, where things stand in the files, and the logs of a checkout.

In: a rule set and what may be compared with it. Out: `Check`, the base of all checks, and `Context`.
"""

from __future__ import annotations

import gzip
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Final

from diagnose.errors import Problem, UsageError
from diagnose.models.report import Report
from diagnose.models.rule import DiagnosisRule, FilterRule, RuleSet
from diagnose.rules.decode import line_numbers
from diagnose.rules.lint.runner import ExampleRuns
from diagnose.rules.tree import shown
from diagnose.settings import Limits

Rule = DiagnosisRule | FilterRule

_MAX_LOG_BYTES: Final = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Labelled:
    """A bundled job with its right verdict: any of these error types and attributions."""

    folder: str
    inputs: tuple[str, ...]
    status: str
    error_types: tuple[str | None, ...]
    attributions: tuple[str | None, ...]


@dataclass
class Context:
    """One lint run. `healthy` and `evidence` are empty outside a checkout; checks that need them then say nothing.

    `deprecated` maps ids that were retired to their files; `healthy` are logs of runs that finished; `evidence` are
    lines that prove something in the incident corpus, as (where, line); `noise` is how often each rule is known to
    match in healthy logs; `roots` are the rule directories; `incidents` are labelled jobs, which `judge` diagnoses
    (None: not asked for, as it takes long). `chosen` are the ids of the rules that are asked about,
    None for all; the others are there to be compared with.
    """

    rule_set: RuleSet
    deprecated: Mapping[str, str] = field(default_factory=dict)
    healthy: tuple[str, ...] = ()
    evidence: tuple[tuple[str, str], ...] = ()
    noise: Mapping[str, int] = field(default_factory=dict)
    roots: tuple[str, ...] = ()
    chosen: frozenset[str] | None = None
    incidents: tuple[Labelled, ...] = ()
    judge: Callable[[RuleSet, str, Sequence[str]], Report] | None = None
    _places: dict[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All rules, diagnoses first."""
        return (*self.rule_set.diagnoses, *self.rule_set.filters)

    def asked(self, rule: Rule) -> bool:
        """Whether a rule is one of those that are asked about."""
        return self.chosen is None or rule.id in self.chosen

    @property
    def asked_rules(self) -> RuleSet:
        """The rule set with only those diagnosis rules that are asked about."""
        return replace(self.rule_set, diagnoses=tuple(rule for rule in self.rule_set.diagnoses if self.asked(rule)))

    def line(self, path: str, where: str) -> int | None:
        """The line of a dotted place in a file, or of the nearest place around it."""
        if path not in self._places:
            try:
                with open(path, "rb") as file:
                    self._places[path] = line_numbers(file.read(), path)
            except OSError:
                self._places[path] = {}
        places = self._places[path]
        while where:
            if where in places:
                return places[where]
            where = where[: max(where.rfind("."), where.rfind("["), 0)]
        return 1 if places else None

    def problem(self, key: str, where: str, check: str, message: str) -> Problem:
        """A problem at a dotted place of a rule (or of `taxonomy`, `tables/<name>` ...)."""
        path = self.rule_set.paths.get(key, key)
        return Problem(path, self.line(path, where), check, f"{where}: {message}" if where else message)

    @cached_property
    def runs(self) -> ExampleRuns:
        """The examples' results, each log run once."""
        return ExampleRuns(self.rule_set)

    @cached_property
    def healthy_lines(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The healthy logs as (name, lines), each line as long as the engine reads one."""
        longest = Limits().line_bytes
        return tuple(
            (shown(path), tuple(line[:longest] for line in read_log(path).split("\n"))) for path in self.healthy
        )


class Check:
    """One check: looks at each rule, then at the set as a whole. `name` stands in brackets behind each message."""

    name: ClassVar[str]

    def __init__(self, context: Context) -> None:
        self.context = context

    def validate(self, rule: Rule) -> Iterator[Problem]:
        """Yield what is wrong with one rule."""
        yield from ()

    def finalize(self) -> Iterator[Problem]:
        """Yield what is wrong with the set, after every rule was seen."""
        yield from ()

    def problem(self, rule: Rule | str, where: str, message: str) -> Problem:
        """A problem of this check."""
        return self.context.problem(rule if isinstance(rule, str) else rule.id, where, self.name, message)


def read_log(path: str) -> str:
    """The text of a log, plain or gzip, up to a bound; what is no UTF-8 is replaced.

    Raises `UsageError` for pipes and devices, which would be waited for or never end.
    """
    # Should it be a pipe, opening it must not wait for a writer.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as raw:
        if not stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
            raise UsageError(f"{shown(path)}: a pipe or device, no log; save what it gives to a file and name that")
        head = raw.read(2)
        raw.seek(0)
        if head == b"\x1f\x8b":
            with gzip.open(raw) as packed:
                data = packed.read(_MAX_LOG_BYTES)
        else:
            data = raw.read(_MAX_LOG_BYTES)
    return data.decode("utf-8", "replace")


def log_files(root: str) -> tuple[str, ...]:
    """All logs below a directory, in a stable order; YAML beside them says what they are and is left out."""
    found: list[str] = []
    for folder, folders, names in os.walk(root):
        folders.sort()
        found += [
            path
            for name in sorted(names)
            if not name.endswith((".yml", ".yaml", ".md", ".json"))
            and os.path.isfile(path := os.path.join(folder, name))
        ]
    return tuple(found)


def signatures(rule: Rule) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Every searched pattern of a rule as (dotted place, keywords, pattern); a filter's has `{prefix}` taken out."""
    if isinstance(rule, DiagnosisRule):
        for name, signature in rule.signatures.items():
            yield f"signatures.{name}", signature.keywords, signature.pattern
    else:
        yield "", rule.keywords, filter_pattern(rule)


def filter_pattern(rule: FilterRule) -> str:
    """A filter's pattern as it applies to a line without prefixes."""
    return rule.pattern.removeprefix("{prefix}")


def place(where: str, part: str) -> str:
    """The dotted name of a part of a place."""
    return f"{where}.{part}" if where else part
