"""What must hold between the parts of a rule set before the engine can run on it.

In: a `RuleSet`. Out: problems. These are the cheap checks that every start makes; `lint` makes all the others too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from diagnose.errors import Problem
from diagnose.models.rule import DiagnosisRule, FilterRule, PolicyRow, RedactionRule, RuleSet
from diagnose.rules.policy import TESTS
from diagnose.rules.sentences import balanced, variants

Locate = Callable[[str, str], int | None]


def check_consistency(rule_set: RuleSet, locate: Locate, *, compile_ids: Collection[str] = ()) -> Iterator[Problem]:
    """Yield what would break the engine; patterns and sentences only of the given ids, since that takes time."""
    for rule in rule_set.diagnoses:
        for where, check, message in faults(rule, rule_set):
            yield Problem(rule_set.paths[rule.id], locate(rule.id, where), check, f"{where}: {message}")
    for name, table in rule_set.tables.items():
        for key, row in table.rows.items():
            if row.error_type is not None and row.error_type not in rule_set.taxonomy:
                place, key_path = f"rows.{key}.error_type", f"tables/{name}"
                message = f"{place}: {row.error_type!r} is not in taxonomy.yml"
                yield Problem(rule_set.paths[key_path], locate(key_path, place), "error-type", message)
    for filter_rule in rule_set.filters:
        for name in filter_rule.programs:
            if name not in rule_set.programs:
                place, message = "programs", f"programs: {name!r} is not in programs.yml"
                yield Problem(rule_set.paths[filter_rule.id], locate(filter_rule.id, place), "program", message)
    for program in rule_set.programs.values():
        for name in program.prints:
            if name not in rule_set.taxonomy:
                place, path = f"programs.{program.key}.prints", rule_set.paths[f"programs/{program.key}"]
                message = f"{place}: {name!r} is not in taxonomy.yml"
                yield Problem(path, locate(f"programs/{program.key}", place), "error-type", message)
    for policy in rule_set.policy:
        for part, check, message in row_faults(policy, rule_set):
            key = f"policy/{policy.id}"
            yield Problem(rule_set.paths[key], locate(key, part), check, f"row {policy.id}: {part}: {message}")
    yield from _keywords(rule_set, locate, compile_ids)
    yield from _patterns(rule_set, locate, compile_ids)
    yield from _sentences(rule_set, locate, compile_ids)


def faults(rule: DiagnosisRule, rule_set: RuleSet) -> Iterator[tuple[str, str, str]]:
    """Why the engine could not run a rule, as (dotted place, check, message)."""
    if rule.error_type not in rule_set.taxonomy:
        yield "error_type", "error-type", f"{rule.error_type!r} is not in taxonomy.yml"
    modes = [mode for mode in (rule.match.any, rule.match.all, rule.match.sequence) if mode]
    if len(modes) != 1:
        yield "match", "match", "needs exactly one of any, all, sequence, with at least one signature"
    for name in (*rule.match.any, *rule.match.all, *rule.match.sequence, *rule.match.unless, *rule.match.beside):
        if name not in rule.signatures:
            yield "match", "match", f"names {name!r}, which is not among the signatures"
    if rule.match.min_count < 1:
        yield "match.min_count", "match", "must be 1 or more"
    for name, signature in rule.signatures.items():
        if not signature.keywords or "" in signature.keywords:
            yield f"signatures.{name}.keywords", "keywords", "needs at least one keyword, none of them empty"
        for program in signature.programs:
            if program not in rule_set.programs:
                yield f"signatures.{name}.programs", "program", f"{program!r} is not in programs.yml"
    if rule.lookup is not None and rule.lookup.table not in rule_set.tables:
        yield "lookup.table", "lookup", f"there is no tables/{rule.lookup.table}.yml"


def row_faults(row: PolicyRow, rule_set: RuleSet) -> Iterator[tuple[str, str, str]]:
    """Why the engine could not judge by a policy row, as (part, check, message)."""
    for part, names in (("error_types", row.error_types), ("but", row.but)):
        for name in names:
            if name not in rule_set.taxonomy:
                yield part, "error-type", f"{name!r} is not in taxonomy.yml"
    for name in row.when:
        if name not in TESTS:
            yield "when", "policy-test", f"there is no test {name!r}; known: {', '.join(sorted(TESTS))}"


def _keywords(rule_set: RuleSet, locate: Locate, ids: Collection[str]) -> Iterator[Problem]:
    """Keywords that no line can hold: the rule would never be asked, and a guard that seeks them in blocks misled."""
    for rule in (*rule_set.rules, *rule_set.redactions) if ids else ():
        for where, keywords in _sought(rule) if rule.id in ids else ():
            for index, keyword in enumerate(keywords):
                if "\n" in keyword or "\r" in keyword:
                    place = f"{where}[{index}]"
                    message = f"{place}: holds a line end, and no line does: make two keywords of it"
                    yield Problem(rule_set.paths[rule.id], locate(rule.id, place), "keywords", message)


def _patterns(rule_set: RuleSet, locate: Locate, ids: Collection[str]) -> Iterator[Problem]:
    if not ids:
        return
    from diagnose.rules.prove import too_repetitive, why_not_compiled

    for rule in (*rule_set.rules, *rule_set.redactions):
        if rule.id not in ids:
            continue
        for where, pattern in _searched(rule):
            path, line = rule_set.paths[rule.id], locate(rule.id, where)
            if why := too_repetitive(pattern):
                yield Problem(path, line, "re2", f"{where}: {why}")
            elif why := why_not_compiled(pattern):
                yield Problem(path, line, "pattern", f"{where}: does not compile: {why}")


def _sentences(rule_set: RuleSet, locate: Locate, ids: Collection[str]) -> Iterator[Problem]:
    for rule in rule_set.diagnoses if ids else ():
        texts = {"verdict.cause": rule.verdict.cause, "verdict.hint": rule.verdict.hint}
        texts |= {f"verdict.checks[{index}]": text for index, text in enumerate(rule.verdict.checks)}
        for where, text in texts.items() if rule.id in ids else ():
            if (said := next((said for said in variants(text, "Value") if not balanced(said)), None)) is not None:
                message = f"{where}: has a bracket or quote without its other half, in {said!r}"
                yield Problem(rule_set.paths[rule.id], locate(rule.id, where), "sentence", message)


def _sought(rule: DiagnosisRule | FilterRule | RedactionRule) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The keywords of a rule, as (dotted place, keywords)."""
    if isinstance(rule, DiagnosisRule):
        for name, signature in rule.signatures.items():
            yield f"signatures.{name}.keywords", signature.keywords
    else:
        yield "keywords", rule.keywords


def _searched(rule: DiagnosisRule | FilterRule | RedactionRule) -> Iterator[tuple[str, str]]:
    """The patterns of a rule, as (dotted place, pattern)."""
    if isinstance(rule, RedactionRule):
        yield "pattern", rule.pattern
        return
    if isinstance(rule, DiagnosisRule):
        for name, signature in rule.signatures.items():
            yield f"signatures.{name}.pattern", signature.pattern
        return
    yield "pattern", rule.pattern.replace("{prefix}", "")
    if rule.yields is not None:
        for name, pattern in rule.yields.progress.items():
            yield f"yields.progress.{name}", pattern
