"""From rule directories to one `RuleSet`: the shipped rules, then each site directory, later ones winning.

In: directories. Out: `RuleSet`; `load_rules` raises `RuleError` with every problem, `read_rules` returns them beside
whatever could be loaded. Every override is visible in `RuleSet.overridden`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Final

import yaml

from diagnose.dataclass import dataclass, field
from diagnose.errors import Problem, RuleError
from diagnose.models.rule import (
    Budgets,
    DiagnosisRule,
    ErrorType,
    FilterRule,
    PolicyRow,
    Program,
    RedactionRule,
    RuleSet,
    Table,
)
from diagnose.rules.consistency import check_consistency
from diagnose.rules.decode import compose, decode, decode_node, line_numbers
from diagnose.rules.files import PolicyFile, ProgramsFile, TableFile, TagsFile, TaxonomyFile
from diagnose.rules.tree import RuleFile, read_tree, shipped_rules, shown

MAX_RULES: Final = 5_000  # of all directories together
# What every report and every shell can show; `lint` asks for more.
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
AnyRule = DiagnosisRule | FilterRule | RedactionRule
SCHEMAS: Mapping[str, type[AnyRule]] = {
    "filter-rule/v1": FilterRule,
    "diagnosis-rule/v1": DiagnosisRule,
    "redaction-rule/v1": RedactionRule,
}


def load_rules(dirs: Sequence[str] = (), *, shipped: str | None = None) -> RuleSet:
    """Load the shipped rules and site directories; raises `RuleError` when anything in them is unusable."""
    rule_set, problems = read_rules(dirs, shipped=shipped)
    if problems:
        raise RuleError(problems)
    return rule_set


def read_rules(dirs: Sequence[str] = (), *, shipped: str | None = None) -> tuple[RuleSet, tuple[Problem, ...]]:
    """Load what can be loaded, and list every problem that keeps the rest out."""
    root = shipped or shipped_rules()
    collected = _Collected()
    for index, directory in enumerate((root, *dirs)):
        collected.add_directory(directory, site=index > 0)
    rule_set = collected.rule_set(_version(root))
    if len(rule_set.rules) > MAX_RULES:
        message = f"{len(rule_set.rules)} rules with the shipped ones, more than {MAX_RULES}; give fewer"
        return rule_set, (*collected.problems, Problem(shown((root, *dirs)[-1]), None, "file", message))
    problems = [*collected.problems, *check_consistency(rule_set, collected.locate, compile_ids=collected.site_ids)]
    return rule_set, tuple(problems)


def _version(root: str) -> str:
    try:
        with open(os.path.join(root, "VERSION"), encoding="utf-8") as file:
            return file.read(64).strip() or "0.0.0"
    except (OSError, UnicodeDecodeError):
        return "0.0.0"


@dataclass(slots=True)
class _Collected:
    """What has been read so far; the last directory wins."""

    rules: dict[str, AnyRule] = field(default_factory=dict)
    types: dict[str, ErrorType] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    programs: dict[str, Program] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    policy: list[PolicyRow] = field(default_factory=list)
    budgets: Budgets = Budgets()
    places: dict[str, str] = field(default_factory=dict)  # of policy rows, each in its own file
    paths: dict[str, str] = field(default_factory=dict)
    overridden: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    site_ids: set[str] = field(default_factory=set)
    site_data: list[tuple[str, bytes]] = field(default_factory=list)

    def add_directory(self, directory: str, *, site: bool) -> None:
        """Read one directory on top of what is there."""
        files, problems = read_tree(directory)
        self.problems += problems
        own: dict[str, str] = {}
        silenced: list[tuple[str, str]] = []
        for file in files:
            if site:
                self.site_data.append((file.name, file.data))
            folder = file.name.partition("/")[0] if "/" in file.name else ""
            if folder == "deprecated":
                continue
            if folder == "tables":
                self._add_table(file, site=site)
            elif file.name == "taxonomy.yml":
                self._add_taxonomy(file)
            elif file.name == "tags.yml":
                self._add_tags(file)
            elif file.name == "programs.yml":
                self._add_programs(file)
            elif file.name == "policy.yml":
                self._add_policy(file, site=site)
            elif file.name == "silenced.yml":
                ids, problems = decode(file.data, file.path, tuple[str, ...])
                self.problems += problems
                silenced += [(rule_id, file.path) for rule_id in ids or ()]
            else:
                self._add_rule(file, own, site=site)
        for rule_id, path in silenced:
            found = self.rules.pop(rule_id, None)
            self.overridden.append(f"{path} silences {rule_id}" + ("" if found else ", which does not exist"))

    def _add_rule(self, file: RuleFile, own: dict[str, str], *, site: bool) -> None:
        node, problem = compose(file.data, file.path)
        if node is None:
            self.problems += [problem] if problem else []
            return
        kind = _schema_of(node)
        if kind is None:
            message = f"schema: must name what this file is: {' or '.join(SCHEMAS)}"
            self.problems.append(Problem(file.path, node.start_mark.line + 1, "not-allowed", message))
            return
        rule, problems = decode_node(node, file.path, kind)
        self.problems += problems
        if rule is None:
            return
        if not _ID.match(rule.id):
            message = f"id: {rule.id!r} is no name: small letters, digits and single dashes, as in my-rule"
            self.problems.append(Problem(file.path, self.locate(rule.id, "id", file), "id-stem", message))
            return
        if rule.id in own:
            message = f"the id {rule.id!r} is also that of {own[rule.id]}; ids are unique"
            self.problems.append(Problem(file.path, self.locate(rule.id, "id", file), "id-unique", message))
            return
        own[rule.id] = file.path
        shipped = self.rules.pop(rule.id, None)
        if rule.status == "deprecated":
            if shipped:
                self.overridden.append(f"{file.path} silences {rule.id}")
            return
        if shipped:
            self.overridden.append(f"{file.path} overrides {rule.id}")
        if site:
            self.site_ids.add(rule.id)
        self.rules[rule.id] = rule
        self.paths[rule.id] = file.path

    def _add_taxonomy(self, file: RuleFile) -> None:
        value, problems = decode(file.data, file.path, TaxonomyFile)
        self.problems += problems
        if value is None:
            return
        found = value.types()
        self.overridden += [f"{file.path} overrides the error type {name}" for name in found if name in self.types]
        self.types |= found
        self.paths["taxonomy"] = file.path

    def _add_tags(self, file: RuleFile) -> None:
        value, problems = decode(file.data, file.path, TagsFile)
        self.problems += problems
        if value is not None:
            self.tags |= value.tags
            self.paths["tags"] = file.path

    def _add_programs(self, file: RuleFile) -> None:
        value, problems = decode(file.data, file.path, ProgramsFile)
        self.problems += problems
        if value is not None:
            self.programs |= value.programs
            self.paths |= {f"programs/{name}": file.path for name in value.programs}

    def _add_policy(self, file: RuleFile, *, site: bool) -> None:
        value, problems = decode(file.data, file.path, PolicyFile)
        self.problems += problems
        if value is None:
            return
        known = {row.id: index for index, row in enumerate(self.policy)}
        new: list[PolicyRow] = []
        for index, row in enumerate(value.rules):
            if not _ID.match(row.id):
                place, message = f"rules[{index}].id", f"rules[{index}].id: {row.id!r} is no name, such as my-row"
                self.problems.append(Problem(file.path, self.locate("", place, file), "id-stem", message))
                continue
            key = f"policy/{row.id}"
            self.paths[key], self.places[key] = file.path, f"rules[{index}]"
            if row.id in known:
                self.policy[known[row.id]] = row
                self.overridden.append(f"{file.path} overrides the policy row {row.id}")
            else:
                new.append(row)
                if site:
                    self.overridden.append(f"{file.path} adds the policy row {row.id} before the shipped ones")
        self.policy = new + self.policy
        if value.budgets is not None:
            if site and value.budgets != self.budgets:
                self.overridden.append(f"{file.path} overrides the budgets of the policy")
            self.budgets = value.budgets
        self.paths["policy"] = file.path

    def _add_table(self, file: RuleFile, *, site: bool) -> None:
        value, problems = decode(file.data, file.path, TableFile)
        self.problems += problems
        if value is None:
            return
        name = file.name.removeprefix("tables/").removesuffix(".yml")
        before = self.tables[name].rows if name in self.tables else {}
        if site:
            self.overridden += [f"{file.path} overrides {name} {key}" for key in value.rows if key in before]
        self.tables[name] = Table(name, {**before, **value.rows})
        self.paths[f"tables/{name}"] = file.path

    def locate(self, rule_id: str, where: str, file: RuleFile | None = None) -> int | None:
        """The line of a place in a rule's file; read again, since it is needed only when something is wrong."""
        if rule_id in self.places:
            where = f"{self.places[rule_id]}.{where}"
        return line_of(self.paths.get(rule_id, ""), where, file.data if file else None)

    def rule_set(self, version: str) -> RuleSet:
        """Everything as one frozen object, in order of ids."""
        if self.site_data:
            from hashlib import sha256

            digest = sha256()
            for name, data in self.site_data:
                digest.update(f"{name}\0{len(data)}\0".encode("utf-8", "surrogateescape") + data)
            version = f"{version}+{digest.hexdigest()[:8]}"
        rules = [self.rules[rule_id] for rule_id in sorted(self.rules)]
        return RuleSet(
            version=version,
            taxonomy=self.types,
            tags=tuple(self.tags),
            diagnoses=tuple(rule for rule in rules if isinstance(rule, DiagnosisRule)),
            filters=tuple(rule for rule in rules if isinstance(rule, FilterRule)),
            tables=self.tables,
            policy=tuple(self.policy),
            budgets=self.budgets,
            paths=self.paths,
            overridden=tuple(self.overridden),
            programs=self.programs,
            redactions=tuple(rule for rule in rules if isinstance(rule, RedactionRule)),
        )


def _schema_of(node: yaml.Node) -> type[AnyRule] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == "schema" and isinstance(value, yaml.ScalarNode):
                return SCHEMAS.get(value.value)
    return None


def line_of(path: str, where: str, data: bytes | None = None) -> int | None:
    """The line of a dotted place in a rule file, or of the nearest place around it; None when it cannot be read."""
    if data is None:
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError:
            return None
    lines = line_numbers(data, path)
    while where:
        if where in lines:
            return lines[where]
        where = where[: max(where.rfind("."), where.rfind("["), 0)]
    return 1


__all__ = ["line_of", "load_rules", "read_rules", "shipped_rules", "shown"]
