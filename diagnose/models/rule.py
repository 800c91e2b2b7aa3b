"""The types of rules: frozen dataclasses that rule files decode into and JSON Schemas are generated from.

In: nothing. Out: `FilterRule`, `DiagnosisRule`, `RedactionRule`, `Taxonomy`, `Table`, `PolicyRow`. Every field is a
field of the YAML format of the same name; the comments of this file become the descriptions of the schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from diagnose.dataclass import dataclass, field
from diagnose.models.flow import SourceKind

Status = Literal["experimental", "test", "stable", "deprecated"]
Role = Literal["cause", "symptom", "teardown"]
Level = Literal["critical", "high", "medium", "low"]
Scope = Literal["gpu", "host", "job"]
CaptureType = Literal["int", "str", "pci", "rank", "host", "duration_ms", "bytes"]
AttributionName = Literal["infrastructure", "user", "scheduler", "unknown"]
CulpritKind = Literal["host", "rank", "gpu", "nic", "switch", "file", "process", "config", "service"]
Same = Literal["rank", "host", "job"]
RedactionKind = Literal["key", "password", "email", "ip", "mac", "host", "user", "path", "text"]
RedactionTest = Literal["ipv4", "ipv6", "random", "figures"]


@dataclass(frozen=True, slots=True)
class ErrorType:
    """A row of the taxonomy. Symptom types have the family `teardown` and no category."""

    name: str
    family: str
    category: str | None = None
    attribution: AttributionName | None = None
    meaning: str = ""
    symptom: bool = False


@dataclass(frozen=True, slots=True)
class FilterExamples:
    """Lines a filter must match, and lines it must not."""

    noise: tuple[str, ...]
    signal: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Yields:
    """What a routine line says besides being routine. `progress` maps a field to a pattern with a group of its name."""

    progress: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FilterRule:
    """Which raw lines are routine. Judged on the template: the line with every digit replaced by 0.

    `programs` are the ids (of programs.yml) of what prints such lines.
    """

    schema: Literal["filter-rule/v1"]
    id: str
    title: str
    status: Status
    description: str
    author: tuple[str, ...]
    created: str
    tags: tuple[str, ...]
    sources: tuple[SourceKind, ...]
    keywords: tuple[str, ...]
    pattern: str
    action: Literal["drop", "collapse"]
    examples: FilterExamples
    keep_first: int | None = None
    per: Literal["rank", "host", "job"] | None = None
    yields: Yields | None = None
    modified: str | None = None
    references: tuple[str, ...] = ()
    related: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Signature:
    """A pattern searched within one line or one record, only where one of the keywords stands.

    `programs` are the ids (of programs.yml) of what prints the text; `versions` of them where the wording is known to
    differ; `reference` is where the text stands, if that is none of the rule's references. All three are for people
    and for the coverage table.
    """

    keywords: tuple[str, ...]
    pattern: str
    programs: tuple[str, ...] = ()
    versions: str = ""
    reference: str = ""


@dataclass(frozen=True, slots=True)
class Within:
    """How near the signatures of a match must be: lines of one stream, or seconds."""

    lines: int | None = None
    seconds: float | None = None
    same: tuple[Same, ...] = ()


@dataclass(frozen=True, slots=True)
class Match:
    """Which signatures make a finding. Exactly one of `any`, `all`, `sequence`.

    Those of `beside` make none: what the latest of them captured earlier in the same source joins the captures.
    """

    any: tuple[str, ...] = ()
    all: tuple[str, ...] = ()
    sequence: tuple[str, ...] = ()
    join: tuple[str, ...] = ()
    within: Within | None = None
    unless: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    min_count: int = 1


@dataclass(frozen=True, slots=True)
class Absent:
    """Members of the process group named by the capture `group` that did not report."""

    group: str


@dataclass(frozen=True, slots=True)
class Lookup:
    """Joins the row of `table` whose key is the capture `key`."""

    table: str
    key: str


@dataclass(frozen=True, slots=True)
class Edge:
    """A pattern of what explains or is explained: `family/*`, `family/Type` or a rule id; and how far it reaches."""

    what: str
    scope: Scope | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to say when this finding is the root cause.

    `{name}` is filled in from the captures, `[ on {host}]` is left out where it is not known: see `rules.sentences`.
    """

    cause: str
    hint: str
    attribution: AttributionName | None = None
    culprit: Mapping[CulpritKind | Literal["ranks"], str] = field(default_factory=dict)
    checks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Context:
    """How many lines to show around the evidence."""

    before: int = 3
    after: int = 5


@dataclass(frozen=True, slots=True)
class Expect:
    """What a positive example must give: the matching lines exactly, captures as a subset."""

    lines: tuple[int, ...]
    captures: Mapping[str, int | float | str | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PositiveExample:
    """A log the rule must match. Many-source logs start each line with `job| `, `kernel| ` ..."""

    log: str
    expect: Expect
    source: SourceKind | None = None


@dataclass(frozen=True, slots=True)
class NegativeExample:
    """A log the rule must not match, and why one might think it does."""

    why: str
    log: str
    source: SourceKind | None = None


@dataclass(frozen=True, slots=True)
class DiagnosisExamples:
    """Proof of a diagnosis rule."""

    positive: tuple[PositiveExample, ...]
    negative: tuple[NegativeExample, ...]


@dataclass(frozen=True, slots=True)
class DiagnosisRule:
    """What one kind of failure looks like, what it explains and what to do about it."""

    schema: Literal["diagnosis-rule/v1"]
    id: str
    title: str
    status: Status
    level: Level
    role: Role
    error_type: str
    description: str
    author: tuple[str, ...]
    created: str
    tags: tuple[str, ...]
    sources: tuple[SourceKind, ...]
    signatures: Mapping[str, Signature]
    match: Match
    verdict: Verdict
    examples: DiagnosisExamples
    captures: Mapping[str, CaptureType] = field(default_factory=dict)
    collect: Mapping[str, str] = field(default_factory=dict)
    absent: Absent | None = None
    lookup: Lookup | None = None
    explains: tuple[Edge, ...] = ()
    explained_by: tuple[Edge, ...] = ()
    survivable: bool = False
    evidence: Context = field(default_factory=Context)
    falsepositives: tuple[str, ...] = ()
    modified: str | None = None
    references: tuple[str, ...] = ()
    related: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HiddenExample:
    """A text, and every part of it that must be hidden."""

    text: str
    hidden: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OpenExample:
    """A text of which nothing may be hidden, and why one might think so."""

    why: str
    text: str


@dataclass(frozen=True, slots=True)
class RedactionExamples:
    """Proof of a redaction rule."""

    positive: tuple[HiddenExample, ...]
    negative: tuple[OpenExample, ...]


@dataclass(frozen=True, slots=True)
class RedactionRule:
    """What must not leave the process: `kind` names the placeholder that takes its place, as in `<host-3>`.

    What the pattern's groups `hidden`, `hidden2` ... match is hidden, or all of a match in which none of them takes
    part. It is searched in lines that hold a keyword (in any case), or everywhere if there are no keywords; `lines` is
    how many lines after the keyword's it may reach into. `spares` stay as they are; of one that starts with a dot, all
    that ends in it. `must` is a test that what was found has to pass as well.
    """

    schema: Literal["redaction-rule/v1"]
    id: str
    title: str
    status: Status
    description: str
    author: tuple[str, ...]
    created: str
    kind: RedactionKind
    pattern: str
    examples: RedactionExamples
    keywords: tuple[str, ...] = ()
    ignore_case: bool = False
    lines: int = 0
    spares: tuple[str, ...] = ()
    must: RedactionTest | None = None
    modified: str | None = None
    references: tuple[str, ...] = ()
    related: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableAction:
    """An action some source recommends for a table's row."""

    action: str
    source: str


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of a lookup table. `error_type`, `role`, `survivable` override the rule's; `columns` join the captures.

    `source` is where the row's facts stand, if that is not the table's first reference.
    """

    key: str
    title: str = ""
    error_type: str | None = None
    role: Role | None = None
    survivable: bool | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    actions: tuple[TableAction, ...] = ()
    source: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """`rules/tables/<name>.yml`: facts by key, with the sources of each recommended action."""

    name: str
    rows: Mapping[str, TableRow]


@dataclass(frozen=True, slots=True)
class Program:
    """A program whose texts rules know. `prints` are the error types of its own words: those no rule covers are gaps.

    What a `python` program raises is told by the class of the exception, where that is one of the known classes.
    """

    key: str
    title: str
    prints: tuple[str, ...] = ()
    python: bool = False


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """A row of `rules/policy.yml`; the first that fits wins. `when` names tests of `rules/policy.py`, all must hold.

    `budget` is how often one workload is started again for one root before a person should look, where that is not what
    the file says for all rows; rows that are not `counted` may do so for ever.
    """

    id: str
    job: Literal["restart", "restart_elsewhere", "fix_and_resubmit", "wait_and_retry", "none", "unknown"]
    error_types: tuple[str, ...] = ()
    but: tuple[str, ...] = ()
    when: tuple[str, ...] = ()
    nodes: tuple[Literal["inspect", "drain", "reset_gpu", "reboot", "replace"], ...] = ()
    hint: str = ""
    budget: int | None = None
    counted: bool = True


@dataclass(frozen=True, slots=True)
class Budgets:
    """What the policy may ask for in all: restarts of one workload for one root, the share of nodes drained an hour."""

    restarts: int = 3
    drains_per_hour: float = 0.02


@dataclass(frozen=True, slots=True)
class RuleSet:
    """All knowledge of one run. `version` names the rules' release, or a digest where files were added."""

    version: str
    taxonomy: Mapping[str, ErrorType]
    tags: tuple[str, ...]
    diagnoses: tuple[DiagnosisRule, ...]
    filters: tuple[FilterRule, ...]
    tables: Mapping[str, Table]
    policy: tuple[PolicyRow, ...]
    budgets: Budgets = Budgets()
    paths: Mapping[str, str] = field(default_factory=dict)
    overridden: tuple[str, ...] = ()
    programs: Mapping[str, Program] = field(default_factory=dict)
    redactions: tuple[RedactionRule, ...] = ()

    @property
    def rules(self) -> tuple[DiagnosisRule | FilterRule, ...]:
        """All rules, diagnoses first."""
        return (*self.diagnoses, *self.filters)
