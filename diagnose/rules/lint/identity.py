"""Checks of what a rule calls itself: id, tags, families, references, dates.

In: rules. Out: problems `id-stem`, `id-unique`, `tag`, `folder`, `references`, `date`, `related`, `unfinished`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import date

from diagnose.errors import Problem
from diagnose.models.rule import DiagnosisRule
from diagnose.rules.lint.base import Check, Rule

# What `diagnose rules new` marks: in text, and where a blank cannot stand.
_FILL_IN = ("FILL IN", "FILL-IN")
_KEBAB = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*\Z")


class IdIsStem(Check):
    """The id is kebab case and the file's name without `.yml`."""

    name = "id-stem"

    def validate(self, rule: Rule) -> Iterator[Problem]:
        stem = os.path.basename(self.context.rule_set.paths[rule.id]).removesuffix(".yml")
        if not _KEBAB.match(rule.id):
            yield self.problem(rule, "id", f"{rule.id!r} is not kebab case (small letters, digits, single dashes)")
        elif rule.id != stem:
            yield self.problem(rule, "id", f"{rule.id!r} is not the file's name {stem!r}; rename one of them")


class IdNeverReused(Check):
    """An id of `deprecated/` is gone for good."""

    name = "id-unique"

    def validate(self, rule: Rule) -> Iterator[Problem]:
        if rule.id in self.context.deprecated:
            yield self.problem(
                rule, "id", f"{rule.id!r} was retired in {self.context.deprecated[rule.id]}; take a new id"
            )


class TagsKnown(Check):
    """Tags come from tags.yml, at least one, none twice."""

    name = "tag"

    def validate(self, rule: Rule) -> Iterator[Problem]:
        if not rule.tags:
            yield self.problem(rule, "tags", "needs at least one tag of tags.yml")
        for index, tag in enumerate(rule.tags):
            if any(mark in tag for mark in _FILL_IN):
                continue  # `unfinished` says so
            if tag not in self.context.rule_set.tags:
                yield self.problem(rule, f"tags[{index}]", f"{tag!r} is not in tags.yml; use one of it or add it there")
            elif tag in rule.tags[:index]:
                yield self.problem(rule, f"tags[{index}]", f"{tag!r} stands twice")


class FolderFits(Check):
    """diagnoses/<family>/ is a family of the taxonomy, and filters and diagnoses are not mixed up."""

    name = "folder"

    def validate(self, rule: Rule) -> Iterator[Problem]:
        parts = self.context.rule_set.paths[rule.id].replace(os.sep, "/").split("/")
        families = {entry.family for entry in self.context.rule_set.taxonomy.values()}
        if isinstance(rule, DiagnosisRule):
            folder = parts[-2] if "diagnoses" in parts[:-2] else None
            if folder is not None and folder not in families:
                known = ", ".join(sorted(families))
                yield self.problem(
                    rule, "error_type", f"the folder {folder!r} is no family; put it under one of {known}"
                )
        if ("filters" if isinstance(rule, DiagnosisRule) else "diagnoses") in parts[-3:-1]:
            yield self.problem(rule, "schema", f"a {rule.schema} does not belong in this folder")


class ReferencesGiven(Check):
    """Rules past the experimental stage say where their knowledge comes from; agents' rules are experimental."""

    name = "references"

    def validate(self, rule: Rule) -> Iterator[Problem]:
        if rule.status in ("test", "stable") and not rule.references:
            yield self.problem(rule, "status", f"a rule of status {rule.status} needs at least one reference")
        if not rule.author:
            yield self.problem(rule, "author", "needs at least one author")
        if rule.status != "experimental" and any(name.startswith("agent:") for name in rule.author):
            yield self.problem(
                rule, "status", "a rule written by an agent alone is experimental; add the person who vouches"
            )


class DatesMakeSense(Check):
    """Dates are ISO dates, and a change does not precede the creation."""

    name = "date"

    def validate(self, rule: Rule) -> Iterator[Problem]:
        parsed: dict[str, date] = {}
        for where, text in (("created", rule.created), ("modified", rule.modified)):
            if text is None:
                continue
            try:
                parsed[where] = date.fromisoformat(text)
            except ValueError:
                yield self.problem(rule, where, f"{text!r} is not a date like 2026-03-02")
        if len(parsed) == 2 and parsed["modified"] < parsed["created"]:
            yield self.problem(rule, "modified", "lies before `created`")


class RelatedKnown(Check):
    """`related` names rules that exist."""

    name = "related"

    def validate(self, rule: Rule) -> Iterator[Problem]:
        ids = {other.id for other in self.context.rules}
        for index, other in enumerate(rule.related):
            if other not in ids or other == rule.id:
                yield self.problem(rule, f"related[{index}]", f"{other!r} is no other rule")


class NothingLeftToFillIn(Check):
    """Nothing of the template of `diagnose rules new` is left."""

    name = "unfinished"

    def validate(self, rule: Rule) -> Iterator[Problem]:
        for where, text in _strings(rule, ""):
            if any(mark in text for mark in _FILL_IN):
                yield self.problem(rule, where, "is still the template's; write what belongs there")


def _strings(value: object, where: str) -> Iterator[tuple[str, str]]:
    """Every text of a rule as (dotted place, text)."""
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, tuple):
        for index, part in enumerate(value):
            yield from _strings(part, f"{where}[{index}]")
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _strings(part, f"{where}.{key}")
    elif is_dataclass(value):
        for part in fields(value):
            yield from _strings(getattr(value, part.name), f"{where}.{part.name}" if where else part.name)
