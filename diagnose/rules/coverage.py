"""Which error type is known in which program's words: the coverage table.

In: a `RuleSet`. Out: `Coverage`, and its Markdown, which is committed as
docs/coverage.md. What a program can print and no signature covers is a gap, and is listed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import regex

from diagnose.dataclass import dataclass
from diagnose.models.rule import DiagnosisRule, RuleSet, Signature
from diagnose.rules.intrinsic import exception_classes

_SHOWN = 12
_EXCEPTIONS = "https://docs.python.org/3/library/exceptions.html"


@dataclass(frozen=True, slots=True)
class Form:
    """One way in which a program says an error type: a rule's signature, or what a record says without any rule.

    `versions` are those of the program for which the wording holds, empty where it is not known to differ; `source`
    is a URL that holds the text.
    """

    name: str
    versions: str
    source: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """Forms by (error type, program), and the pairs without any that `programs.yml` expects."""

    forms: Mapping[tuple[str, str], tuple[Form, ...]]
    gaps: tuple[tuple[str, str], ...]
    filters: Mapping[str, tuple[str, ...]]
    unnamed: tuple[str, ...]


def coverage_of(rule_set: RuleSet) -> Coverage:
    """Gather the table from the rules, the tables they look up, and the exceptions that need no rule."""
    found: dict[tuple[str, str], list[Form]] = defaultdict(list)
    unnamed: list[str] = []
    for rule in rule_set.diagnoses:
        for name, signature in rule.signatures.items():
            if name in (*rule.match.unless, *rule.match.beside):
                continue
            if not signature.programs:
                unnamed.append(f"{rule.id}.{name}")
            source = signature.reference or (rule.references[0] if rule.references else "")
            for error_type, keys in _error_types(rule, signature, rule_set):
                form = Form(f"{rule.id}.{name}{keys}", signature.versions, source)
                for key in signature.programs:
                    found[error_type, key].append(form)
    for error_type, classes in exception_classes(rule_set.taxonomy).items():
        form = Form(f"exceptions {_listed(classes)}", "", _EXCEPTIONS)
        for program in rule_set.programs.values():
            if program.python and error_type in program.prints:
                found[error_type, program.key].append(form)
    expected = [(name, program.key) for program in rule_set.programs.values() for name in program.prints]
    filters: dict[str, list[str]] = defaultdict(list)
    for other in rule_set.filters:
        if not other.programs:
            unnamed.append(other.id)
        for key in other.programs:
            filters[key].append(other.id)
    return Coverage(
        forms={pair: tuple(forms) for pair, forms in found.items()},
        gaps=tuple(pair for pair in expected if pair not in found),
        filters={program: tuple(ids) for program, ids in filters.items()},
        unnamed=tuple(unnamed),
    )


def _error_types(rule: DiagnosisRule, signature: Signature, rule_set: RuleSet) -> Iterator[tuple[str, str]]:
    """The error types that a signature can name, each with the keys of the rule's table that do so."""
    group = None if rule.lookup is None else _group(signature.pattern, rule.lookup.key)
    if rule.lookup is None or group is None:
        yield rule.error_type, ""
        return
    keys: dict[str, list[str]] = defaultdict(list)
    for key, row in rule_set.tables[rule.lookup.table].rows.items():
        if group.fullmatch(key):
            keys[row.error_type or rule.error_type].append(key)
    for error_type, members in keys.items():
        yield error_type, f" ({rule.lookup.table} {_listed(members)})"


def _group(pattern: str, name: str) -> regex.Pattern[str] | None:
    """What the named group of a pattern matches, as a pattern of its own; None where there is no such group."""
    start = pattern.find(f"(?P<{name}>")
    depth, escaped, in_set = 0, False, False
    for end in range(start, len(pattern)) if start >= 0 else ():
        character = pattern[end]
        if escaped or character == "\\":
            escaped = not escaped
        elif in_set or character == "[":
            in_set = character != "]"
        else:
            depth += (character == "(") - (character == ")")
            if depth == 0:
                return regex.compile(pattern[start : end + 1])
    return None


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def coverage_markdown(rule_set: RuleSet) -> str:
    """The coverage table as Markdown, the same for the same rules."""
    coverage = coverage_of(rule_set)
    covered = {error_type for error_type, _ in coverage.forms}
    roots = [entry for entry in rule_set.taxonomy.values() if not entry.symptom]
    forms = len({form.name for entries in coverage.forms.values() for form in entries})
    summary = (
        f"{len(covered & {entry.name for entry in roots})} of {len(roots)} error types and {forms} forms of "
        f"{len({program for _, program in coverage.forms})} programs are known; {len(coverage.gaps)} pairs of "
        "error type and program that `rules/programs.yml` expects have none (listed under Gaps)."
    )
    about = (
        "Which error type the rules know in which program's words. Generated by `diagnose rules coverage`; edit the "
        "rules instead."
    )
    lines = ["# Coverage", "", about, "", summary, ""]
    family = ""
    for entry in rule_set.taxonomy.values():
        if entry.family != family:
            family = entry.family
            lines += [f"## {family}", ""]
        lines += [f"### {entry.name}", "", *_rows(entry.name, coverage, rule_set), ""]
    lines += ["## Routine output", "", "| program | filter rules |", "|---|---|"]
    for program in rule_set.programs.values():
        if ids := coverage.filters.get(program.key):
            lines.append(f"| {program.title} | {', '.join(f'`{rule_id}`' for rule_id in ids)} |")
    lines += ["", "## Gaps", "", "| program | error types it can print that no rule covers |", "|---|---|"]
    for program in rule_set.programs.values():
        missing = [error_type for error_type, key in coverage.gaps if key == program.key]
        if missing:
            lines.append(f"| {program.title} | {', '.join(missing)} |")
    return "\n".join(lines) + "\n"


def _rows(error_type: str, coverage: Coverage, rule_set: RuleSet) -> list[str]:
    rows = []
    for program in rule_set.programs.values():
        forms = coverage.forms.get((error_type, program.key))
        if not forms:
            continue
        shown = "<br>".join(f"`{form.name}`" + (f" ({form.versions})" if form.versions else "") for form in forms)
        sources = list(dict.fromkeys(form.source for form in forms if form.source))
        links = " ".join(f"[{index}]({url})" for index, url in enumerate(sources, 1))
        rows.append(f"| {program.title} | {shown} | {links} |")
    return ["| program | forms | source |", "|---|---|---|", *rows] if rows else ["No form is known."]
