"""The files of a rules directory that are no rules: their shapes as written, before they become models.

In: nothing. Out: `TaxonomyFile`, `TagsFile`, `ProgramsFile`, `TableFile`, `PolicyFile`, which `load` decodes into and
`schema` describes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from diagnose.dataclass import dataclass
from diagnose.models.rule import AttributionName, Budgets, ErrorType, PolicyRow, Program, TableRow


@dataclass(frozen=True, slots=True)
class ErrorTypeEntry:
    """An error type: what a report may name as a root cause. `paper_table_3` marks the types of the Acme paper."""

    name: str
    family: str
    category: Literal["infrastructure", "framework", "script", "scheduler"]
    attribution: AttributionName
    meaning: str = ""
    paper_table_3: bool = False


@dataclass(frozen=True, slots=True)
class SymptomTypeEntry:
    """A symptom type: seen after every failure, never a root cause."""

    name: str
    family: Literal["teardown"]
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class TaxonomyFile:
    """`taxonomy.yml`: the closed list of error types, and the symptom types."""

    schema: Literal["taxonomy/v1"]
    error_types: tuple[ErrorTypeEntry, ...] = ()
    symptom_types: tuple[SymptomTypeEntry, ...] = ()

    def types(self) -> dict[str, ErrorType]:
        """The entries by name, as the engine knows them."""
        named = {
            entry.name: ErrorType(entry.name, entry.family, entry.category, entry.attribution, entry.meaning)
            for entry in self.error_types
        }
        for symptom in self.symptom_types:
            named[symptom.name] = ErrorType(symptom.name, symptom.family, meaning=symptom.meaning, symptom=True)
        return named


@dataclass(frozen=True, slots=True)
class TagsFile:
    """`tags.yml`: the tags that rules may carry, each with what it stands for."""

    schema: Literal["tags/v1"]
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ProgramsFile:
    """`programs.yml`: the programs whose texts rules know, by id."""

    schema: Literal["programs/v1"]
    programs: Mapping[str, Program]


@dataclass(frozen=True, slots=True)
class TableFile:
    """`tables/<name>.yml`: facts by key. A site's row replaces the shipped row of the same key."""

    schema: Literal["table/v1"]
    title: str
    rows: Mapping[str, TableRow]
    description: str = ""
    references: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """`policy.yml`: what to do about a verdict. The first row that fits wins; a site's new rows come first."""

    rules: tuple[PolicyRow, ...]
    budgets: Budgets | None = None
    schema: Literal["policy/v1"] = "policy/v1"
