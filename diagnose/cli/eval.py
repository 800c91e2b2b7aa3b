"""`diagnose eval CASES_DIR...`: how good the answers are, on labelled cases.

In: parsed arguments. Out: the evaluation on standard output or in a file, and an exit code: 0 done, 1 done but some
cases are broken.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from diagnose.cli.diagnose import write_whole
from diagnose.cli.streams import tell
from diagnose.dataclass import dataclass, replace
from diagnose.errors import UsageError, installing

if TYPE_CHECKING:
    from diagnose.agents.settings import ModelSettings
    from diagnose.evaluation.judge import Asked, Plan
    from diagnose.evaluation.memory import Remembered
    from diagnose.evaluation.model import Case, Unread
    from diagnose.evaluation.run import Evaluation
    from diagnose.models import Incident, RuleSet

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
    what.add_argument(
        "--split",
        default="",
        metavar="SEED",
        help="remember one half of the failures, drawn by SEED, and test the rest",
    )
    what.add_argument(
        "--store",
        action="append",
        default=[],
        metavar="PLACE",
        help="past incidents: a directory of further labelled cases, or a database as in DIAGNOSE_DATABASE; repeatable",
    )
    model = what.add_mutually_exclusive_group()
    model.add_argument("--llm", action="store_true", help="ask the model that DIAGNOSE_LLM_* describe")
    model.add_argument("--no-llm", action="store_true", help="ask no model (default)")
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
    model = _model() if options.llm else None
    with contextlib.ExitStack() as stack:
        cases, past, unread = _past(options, found.cases, plan)
        folder = ""
        if past:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="diagnose-eval-"))
            _index(folder, past, rules)
        if past or model:
            plan = replace(plan, ask=_Asking(tuple(options.rules), folder, past, model is not None, plan.withheld))
        setup = Setup(
            roots=tuple(options.cases),
            ruleset=rules.version,
            without=without,
            model=model.model if model else "",
            split=options.split,
            stored=len(past),
        )
        on_case = stack.enter_context(_progress("cases", shown=not options.quiet))
        evaluation = evaluate(
            cases,
            plan,
            jobs=options.jobs,
            unread=(*found.unread, *unread),
            setup=setup,
            stored=[one.error_type for one in past if one.error_type],
            on_case=on_case,
        )
    text = _rendered(evaluation, options.format, verbose=options.verbose)
    if options.output is not None:
        write_whole(options.output, text)
    else:
        sys.stdout.write(text)
        sys.stdout.flush()
    return 1 if evaluation.broken or evaluation.unread else 0


def _past(
    options: argparse.Namespace, cases: tuple[Case, ...], plan: Plan
) -> tuple[tuple[Case, ...], Remembered, tuple[Unread, ...]]:
    """The cases to test, the incidents to remember, and what could not be remembered."""
    from diagnose.evaluation.cases import find_cases
    from diagnose.evaluation.memory import Remembered, content_of, numbered, remember
    from diagnose.evaluation.run import halves

    if not (options.split or options.store):
        return cases, Remembered(), ()
    _needs_memory()
    kept: tuple[Case, ...] = ()
    if options.split:
        kept, cases = halves(cases, options.split)
    further: list[Case] = []
    stored: list[Incident] = []
    known = {content_of(case) for case in (*kept, *cases)} if options.store else set[bytes]()
    for place in options.store:
        if os.path.isdir(place):
            found = [case for case in find_cases([place]).cases if case.error_types]
            # What is tested is not remembered, or the memory would only have to recognise it; nor is a half twice.
            further += [replace(case, name=f"{place}/{case.name}") for case in found if content_of(case) not in known]
        else:
            stored += _stored(place)
    with _progress("remembered", shown=not options.quiet) as on_case:
        made, unread = remember((*kept, *further), plan, jobs=options.jobs, on_case=on_case)
    return cases, numbered((*made, *stored)), unread


def _stored(place: str) -> tuple[Incident, ...]:
    """The incidents of a database that is there: none is made for the sake of a measurement."""
    if "://" not in place and not os.path.isfile(place):
        raise UsageError(f"there is no directory or database {place}; --store takes what holds past incidents")
    from diagnose.services import open_memory
    from diagnose.store.incidents import StoredIncidents

    with open_memory(place) as database:
        return tuple(StoredIncidents(database))


def _needs_memory() -> None:
    from importlib.util import find_spec

    if find_spec("numpy") is None:
        raise UsageError(f"--split and --store need numpy, which is not installed: {installing('memory')}")


def _index(folder: str, past: Remembered, rules: RuleSet) -> None:
    from diagnose.evaluation.memory import build_index

    build_index(folder, past, rules)


def _model() -> ModelSettings:
    from diagnose.agents.settings import model_settings

    settings = model_settings(os.environ)
    if settings is None:
        raise UsageError("no model is configured: set DIAGNOSE_LLM_BASE_URL and DIAGNOSE_LLM_MODEL, or leave out --llm")
    return settings


@dataclass(frozen=True, slots=True)
class _Asking:
    """Whom to ask, made anew in each process: a key is never handed from one to another, each reads it by itself."""

    rules: tuple[str, ...]
    folder: str
    past: Remembered
    llm: bool
    withheld: frozenset[str]

    def __call__(self) -> Callable[[Case], Asked]:
        from diagnose.evaluation.asking import Consulting
        from diagnose.evaluation.memory import Past
        from diagnose.rules.bundle import load_bundled

        rules = load_bundled(self.rules)
        past = Past.opened(self.folder, self.past, rules) if self.folder else None
        return Consulting(rules, _model() if self.llm else None, past, self.withheld)


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
def _progress(what: str, *, shown: bool) -> Iterator[Callable[[int, int], None] | None]:
    """How many cases are done, on standard error: one line that is written over, or on no terminal every tenth."""
    if not shown:
        yield None
        return
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        from rich import progress
        from rich.console import Console

        columns = (*progress.Progress.get_default_columns(), progress.MofNCompleteColumn())
        with progress.Progress(*columns, console=Console(stderr=True), transient=True) as display:
            task = display.add_task(what, total=None)
            yield lambda done, total: display.update(task, completed=done, total=total)
        return
    started = time.monotonic()
    told = [0]

    def on_case(done: int, total: int) -> None:
        tenth = done * 10 // max(1, total)
        if tenth > told[0]:
            told[0] = tenth
            tell(f"{done} of {total} {what}, {time.monotonic() - started:.0f} s")

    yield on_case
