"""`diagnose eval CASES_DIR...`: how good the answers are, on labelled cases.

In: parsed arguments. Out: the evaluation on standard output or in a file, and an exit code: 0 done, 1 done but some
cases are broken.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from diagnose.cli.diagnose import write_whole
from diagnose.cli.streams import tell
from diagnose.errors import UsageError

if TYPE_CHECKING:
    from diagnose.evaluation.run import Evaluation

_FORMATS = ("text", "json", "html")
_EXAMPLES = """\
examples:
  diagnose eval tests/fixtures
  diagnose eval cases/ --format html --output eval.html
  diagnose eval cases/ --without-rules ECCError,NVLinkError
  diagnose eval cases/ --without-rules all --split 1
  DIAGNOSE_LLM_BASE_URL=http://localhost:8000/v1 DIAGNOSE_LLM_MODEL=qwen diagnose eval cases/ --without-rules all --llm

Cases are NAME.log with NAME.yaml, folders with case.yaml or expected.yaml, and logs in folders named healthy.
docs/evaluation.md tells how they are labelled and what each figure means."""
_MOST_JOBS = 64


def add_eval_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb `eval`."""
    parser = verbs.add_parser(
        "eval",
        help="measure the answers on labelled cases",
        description="Measure the answers on labelled cases, beside what grep and the launcher would have said.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("cases", nargs="+", metavar="CASES_DIR", help="directories of labelled cases")
    output = parser.add_argument_group("output")
    output.add_argument("--format", choices=_FORMATS, default="text", help="text (default), json, or html with plots")
    output.add_argument("--output", "-o", metavar="FILE", help="write to a file instead of standard output")
    output.add_argument("-v", "--verbose", action="store_true", help="also every case that is not right in all (text)")
    output.add_argument("-q", "--quiet", action="store_true", help="no progress on standard error")
    what = parser.add_argument_group("what is measured")
    what.add_argument("--rules", action="append", default=[], metavar="DIR", help="a site's rules; repeatable")
    what.add_argument(
        "--without-rules",
        action="append",
        default=[],
        metavar="LABELS",
        help="error types, separated by commas, that rules and exceptions may not name; or all",
    )
    what.add_argument("--no-baselines", action="store_true", help="leave out grep and the launcher; half the time")
    run = parser.add_argument_group("the run")
    run.add_argument("--jobs", "-j", type=_jobs, default=1, metavar="N", help="cases at once (default: 1)")
    run.add_argument(
        "--timeout", type=_seconds, default=120.0, metavar="SECONDS", help="for one diagnosis (default: 120)"
    )


def _jobs(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and 1 <= int(text) <= _MOST_JOBS):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {_MOST_JOBS}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 1 to 3600")
    return value


def run_eval(options: argparse.Namespace) -> int:
    """Evaluate and write; returns the exit code."""
    from diagnose.evaluation.cases import find_cases
    from diagnose.evaluation.judge import Plan
    from diagnose.evaluation.run import Setup, evaluate
    from diagnose.rules.bundle import load_bundled

    found = find_cases(options.cases)
    rules = load_bundled(options.rules)
    without = _labels(options.without_rules, tuple(rules.taxonomy))
    plan = Plan(
        rules=tuple(options.rules),
        withheld=frozenset(rules.taxonomy if "all" in without else without),
        baselines=not options.no_baselines,
        seconds=options.timeout,
    )
    setup = Setup(roots=tuple(options.cases), ruleset=rules.version, without=without)
    with _progress(shown=not options.quiet) as on_case:
        evaluation = evaluate(found.cases, plan, jobs=options.jobs, unread=found.unread, setup=setup, on_case=on_case)
    text = _rendered(evaluation, options.format, verbose=options.verbose)
    if options.output is not None:
        write_whole(options.output, text)
    else:
        sys.stdout.write(text)
        sys.stdout.flush()
    return 1 if evaluation.broken or evaluation.unread else 0


def _labels(given: list[str], known: tuple[str, ...]) -> tuple[str, ...]:
    labels = tuple(dict.fromkeys(label.strip() for text in given for label in text.split(",") if label.strip()))
    if "all" in labels:
        return ("all",)
    for label in labels:
        if label not in known:
            import difflib

            near = difflib.get_close_matches(label, known, 3)
            hint = f"did you mean {', '.join(near)}?" if near else "see rules/taxonomy.yml, or say all"
            raise UsageError(f"there is no error type {label!r}; {hint}")
    return labels


def _rendered(evaluation: Evaluation, format: str, *, verbose: bool) -> str:
    if format == "json":
        import json

        from diagnose.evaluation.contract import to_json

        return json.dumps(to_json(evaluation), indent=1, ensure_ascii=False) + "\n"
    if format == "html":
        from diagnose.evaluation.html import as_html

        return as_html(evaluation)
    from diagnose.evaluation.text import as_text

    return as_text(evaluation, verbose=verbose)


@contextlib.contextmanager
def _progress(*, shown: bool) -> Iterator[Callable[[int, int], None] | None]:
    """How many cases are done, on standard error: one line that is written over, or on no terminal every tenth."""
    if not shown:
        yield None
        return
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        from rich import progress
        from rich.console import Console

        columns = (*progress.Progress.get_default_columns(), progress.MofNCompleteColumn())
        with progress.Progress(*columns, console=Console(stderr=True), transient=True) as display:
            task = display.add_task("cases", total=None)
            yield lambda done, total: display.update(task, completed=done, total=total)
        return
    started = time.monotonic()
    told = [0]

    def on_case(done: int, total: int) -> None:
        tenth = done * 10 // max(1, total)
        if tenth > told[0]:
            told[0] = tenth
            tell(f"{done} of {total} cases, {time.monotonic() - started:.0f} s")

    yield on_case
