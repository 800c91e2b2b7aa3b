"""`diagnose rules ...`: the rules as people who write and review them need them.

In: parsed arguments. Out: text on standard output and an exit code: 0 clean, 1 problems found.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from diagnose.cli.streams import say
from diagnose.errors import UsageError

if TYPE_CHECKING:
    from diagnose.models.report import Report
    from diagnose.models.rule import DiagnosisRule, FilterRule, RuleSet

_EXAMPLES = """\
examples:
  diagnose rules list --family hardware
  diagnose rules show gpu-fallen-off-bus
  diagnose rules new diagnosis my-rule --family network --error-type NetworkError --dir site/
  diagnose rules lint site/
  diagnose rules test my-rule --rules site/
  diagnose rules noise healthy.log
  diagnose rules propose logs/ --label NetworkError --line job.log:118
  diagnose rules propose i3f2a90bc1d2e --push origin --pull-request github
  diagnose rules candidates promote agent-crates-on-shelves-3f2a90bc1d
  diagnose rules diff main rules
  diagnose rules schema diagnosis-rule > .schema.json"""


def counted(count: int, what: str) -> str:
    """`1 rule`, `2 rules`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def add_rules_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb `rules` and its own verbs."""
    parser = verbs.add_parser(
        "rules",
        help="list, show, check and write rules",
        description="List, show, check and write the rules that diagnose decides by.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    from diagnose.cli.candidates import add_candidates_parser
    from diagnose.cli.learning import add_learning_parsers

    own = parser.add_subparsers(dest="rules_verb", required=True, metavar="VERB")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        verb = own.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        if name not in ("new", "schema", "lint"):
            verb.add_argument("--rules", action="append", default=[], metavar="DIR", help="a site's rules; repeatable")
        return verb

    listing = add("list", "list rules")
    listing.add_argument("--family", help="only rules of this family, or filter area")
    listing.add_argument("--type", dest="error_type", help="only rules of this error type")
    listing.add_argument("--status", choices=("experimental", "test", "stable", "deprecated"))
    add("show", "show a rule, where it comes from and what it explains").add_argument("id")
    add("lint", "check rules; without PATH the shipped ones").add_argument("paths", nargs="*", metavar="PATH")
    add("test", "run the examples of rules").add_argument("ids", nargs="*", metavar="ID")
    noise = add("noise", "show what rules say of logs that hold no failure")
    noise.add_argument("logs", nargs="*", metavar="LOG")
    noise.add_argument("--accept", action="store_true", help="write what is found to healthy/noise.yml")
    new = add("new", "write the template of a new rule")
    new.add_argument("kind", choices=("diagnosis", "filter"))
    new.add_argument("id", help="kebab case; becomes the file name")
    new.add_argument(
        "--family", default="", help="area of a filter rule; a diagnosis rule's follows from its error type"
    )
    new.add_argument("--error-type", default="", help="an error type of the taxonomy (diagnosis rules)")
    new.add_argument(
        "--dir", default="", help="where to write: a rules directory (default: the rules of this checkout)"
    )
    coverage = add("coverage", "print which error types are known in which programs' words, as Markdown")
    coverage.add_argument("--gaps", action="store_true", help="only what no rule covers, one pair a line")
    add_learning_parsers(add)
    add_candidates_parser(add)
    schema = add("schema", "print the JSON Schema of a kind of rule file")
    schema.add_argument("name", nargs="?", default="", help="diagnosis-rule, filter-rule, table, policy or taxonomy")


def run_rules(options: argparse.Namespace) -> int:
    """Run one of the verbs."""
    from diagnose.cli.candidates import run_candidates
    from diagnose.cli.learning import run_diff, run_propose, run_stats

    verbs: dict[str, Callable[[argparse.Namespace], int]] = {
        "list": _list,
        "show": _show,
        "lint": _lint,
        "test": _test,
        "noise": _noise,
        "new": _new,
        "coverage": _coverage,
        "propose": run_propose,
        "diff": run_diff,
        "stats": run_stats,
        "candidates": run_candidates,
        "schema": _schema,
    }
    return verbs[options.rules_verb](options)


def _load(options: argparse.Namespace) -> RuleSet:
    from diagnose.rules.load import load_rules

    return load_rules(options.rules)


def _list(options: argparse.Namespace) -> int:
    rule_set = _load(options)
    rows: list[tuple[str, ...]] = []
    for rule in sorted(rule_set.diagnoses, key=lambda rule: rule.id):
        entry = rule_set.taxonomy.get(rule.error_type)
        family = entry.family if entry else ""
        if options.family in (None, family) and options.error_type in (None, rule.error_type):
            rows.append((rule.id, rule.status, rule.error_type, rule.role, rule.title))
    for other in sorted(rule_set.filters, key=lambda rule: rule.id):
        area = os.path.basename(os.path.dirname(rule_set.paths.get(other.id, "")))
        if options.family in (None, area) and options.error_type is None:
            rows.append((other.id, other.status, "-", "filter", other.title))
    rows = [row for row in rows if options.status in (None, row[1])]
    print_table(("id", "status", "error type", "role", "title"), rows)
    return 0


def print_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Rows below a head, each column as wide as its longest cell."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head) - 1)]
    for row in (head, *rows):
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)]
        print("  ".join([*cells, row[-1]]))


def _show(options: argparse.Namespace) -> int:
    rule_set = _load(options)
    found = next((rule for rule in rule_set.rules if rule.id == options.id), None)
    if found is None:
        import difflib

        names = [rule.id for rule in rule_set.rules]
        near = difflib.get_close_matches(options.id, names, 3)
        hint = f"did you mean {', '.join(near)}?" if near else "see `diagnose rules list`"
        raise UsageError(f"there is no rule {options.id}; {hint}")
    path = rule_set.paths.get(found.id, "")
    print(f"# {path}")
    for note in rule_set.overridden:
        if found.id in note:
            print(f"# {note}")
    for line in _resolved(found, rule_set):
        print(f"# {line}")
    with open(path, encoding="utf-8") as file:
        sys.stdout.write(file.read())
    return 0


def _resolved(rule: DiagnosisRule | FilterRule, rule_set: RuleSet) -> list[str]:
    """What the rule explains and is explained by, as far as rules say so; defaults are in the documentation."""
    from diagnose.models.rule import DiagnosisRule

    if not isinstance(rule, DiagnosisRule):
        return []
    entry = rule_set.taxonomy.get(rule.error_type)
    names = {rule.id, f"{entry.family}/*", f"{entry.family}/{rule.error_type}"} if entry else {rule.id}
    explained = sorted(other.id for other in rule_set.diagnoses if any(edge.what in names for edge in other.explains))
    explaining = sorted(
        other.id for other in rule_set.diagnoses if any(edge.what in names for edge in other.explained_by)
    )
    lines = [f"error type {rule.error_type}" + (f", family {entry.family}" if entry else "")]
    if explained:
        lines.append(f"named as explained by: {', '.join(explained)}")
    if explaining:
        lines.append(f"named as explaining: {', '.join(explaining)}")
    return lines


def _lint(options: argparse.Namespace) -> int:
    from diagnose.rules.lint import lint_paths
    from diagnose.rules.lint.engines import re2_module

    for path in options.paths:
        if not os.path.exists(path):
            raise UsageError(f"there is no file or directory {path}")
    problems = lint_paths(options.paths, judge=judged)
    for problem in problems:
        print(problem)
    if re2_module() is None:
        say("RE2 is not installed: patterns were checked by their syntax only")
    say(counted(len(problems), "problem") if problems else "no problems")
    return 1 if problems else 0


def judged(rule_set: RuleSet, folder: str, arguments: Sequence[str]) -> Report:
    """The report that the command line would give in a folder."""
    from diagnose.cli.diagnose import request_of
    from diagnose.cli.options import options_of
    from diagnose.pipeline import Services, diagnose

    before = os.getcwd()
    os.chdir(folder)
    try:
        return diagnose(request_of(options_of(arguments)), Services(rule_set))
    finally:
        os.chdir(before)


def _test(options: argparse.Namespace) -> int:
    from dataclasses import replace

    from diagnose.rules.lint.run import EXAMPLE_CHECKS, context_of, lint_rules
    from diagnose.rules.tree import shipped_rules

    rule_set = _load(options)
    known = {rule.id for rule in rule_set.rules}
    unknown = [name for name in options.ids if name not in known]
    if unknown:
        raise UsageError(f"there is no rule {unknown[0]}; see `diagnose rules list`")
    if options.ids:
        rule_set = replace(
            rule_set,
            diagnoses=tuple(rule for rule in rule_set.diagnoses if rule.id in options.ids),
            filters=tuple(rule for rule in rule_set.filters if rule.id in options.ids),
        )
    problems = lint_rules(context_of(rule_set, (shipped_rules(), *options.rules)), EXAMPLE_CHECKS)
    for problem in problems:
        print(problem)
    examples = sum(len(rule.examples.positive) + len(rule.examples.negative) for rule in rule_set.diagnoses)
    examples += sum(len(rule.examples.noise) + len(rule.examples.signal) for rule in rule_set.filters)
    count = len(rule_set.diagnoses) + len(rule_set.filters)
    say(", ".join((counted(count, "rule"), counted(examples, "example"), counted(len(problems), "problem"))))
    return 1 if problems else 0


def _coverage(options: argparse.Namespace) -> int:
    from diagnose.rules.coverage import coverage_markdown, coverage_of

    rule_set = _load(options)
    if not options.gaps:
        sys.stdout.write(coverage_markdown(rule_set))
        return 0
    coverage = coverage_of(rule_set)
    for error_type, program in coverage.gaps:
        print(f"{program}: {error_type}")
    for name in coverage.unnamed:
        print(f"{name}: names no program")
    return 0


def _noise(options: argparse.Namespace) -> int:
    from dataclasses import replace

    from diagnose.rules.lint.base import log_files
    from diagnose.rules.lint.checkout import write_noise
    from diagnose.rules.lint.noise import FREQUENT, measure
    from diagnose.rules.lint.run import context_of, fixtures_beside
    from diagnose.rules.tree import shipped_rules

    rule_set = _load(options)
    for path in options.logs:
        if not os.path.exists(path):
            raise UsageError(f"there is no log {path}")
    context = context_of(rule_set, (shipped_rules(),))
    if options.logs:
        named = [log for path in options.logs for log in (log_files(path) if os.path.isdir(path) else (path,))]
        context = replace(context, healthy=tuple(named))
    logs = context.healthy_lines
    if not logs:
        raise UsageError("no healthy logs to look at: name some")
    if options.accept and (options.logs or options.rules):
        raise UsageError("--accept goes with the shipped rules and the healthy logs of the checkout; name none")
    noise = measure(rule_set, logs)
    if options.accept:
        print(f"wrote {write_noise(fixtures_beside(shipped_rules()), noise.findings)}")
        return 0
    for rule, log, number, line in noise.findings[:50]:
        print(f"{log}:{number}: {rule}: {line[:160]}")
    say(f"{counted(noise.lines, 'line')}, {100 * noise.left / max(1, noise.lines):.1f} % left by the filters")
    for name, count in noise.filters[:50]:
        if count:
            print(f"{name}: matches {counted(count, 'line')}, {100 * count / max(1, noise.lines):.1f} %")
    frequent = [hit for hit in noise.keywords if hit[2] > FREQUENT * noise.lines]
    for rule, keyword, count in frequent[:20]:
        print(f"{rule}: keyword {keyword!r} in {counted(count, 'line')}")
    # Logs of the checkout have findings that are known; in logs that somebody names, only teardown may speak.
    known = {rule.id: len(noise.findings) for rule in rule_set.diagnoses if rule.role == "teardown"}
    known = known if options.logs else dict(context.noise)
    found = [finding[0] for finding in noise.findings]
    rises = any(found.count(name) > known.get(name, 0) for name in set(found))
    return 1 if rises or frequent else 0


def _new(options: argparse.Namespace) -> int:
    from diagnose.rules.new import write_template

    path = write_template(options.kind, options.id, options.family, options.error_type, options.dir)
    print(f"wrote {path}; fill in what is marked FILL IN, then: diagnose rules lint {path}")
    return 0


def _schema(options: argparse.Namespace) -> int:
    import json

    from diagnose.rules.schema import SCHEMAS, schema_of

    if not options.name:
        print("\n".join(SCHEMAS))
        return 0
    if options.name not in SCHEMAS:
        raise UsageError(f"there is no schema {options.name}; there are {', '.join(SCHEMAS)}")
    print(json.dumps(schema_of(options.name), indent=1))
    return 0
