"""`diagnose incidents ...`: the memory of past failures, as people read, correct, fill and empty it.

In: parsed arguments. Out: text or JSON on standard output and an exit code: 0 done, 1 nothing found.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from diagnose.cli.rules import counted, print_table
from diagnose.cli.streams import say
from diagnose.errors import UsageError

if TYPE_CHECKING:
    from diagnose.models import Incident, RuleSet
    from diagnose.store.database import Database
    from diagnose.store.recorder import Label

_EXAMPLES = """\
examples:
  diagnose slurm-4711.out --record --name pretrain --user ada
  diagnose incidents list --error-type ECCError --since 7
  diagnose incidents confirm i3f2a90bc1d2e --recovered yes
  diagnose incidents correct i3f2a90bc1d2e --error-type NetworkError --note 'the cable of gx-043'
  diagnose incidents add job.log --error-type DiskFull --summary 'scratch was full'
  diagnose incidents import cases/
  diagnose incidents export > incidents.jsonl
  diagnose incidents prune --older-than 180

The memory is in DIAGNOSE_DATABASE: a path, or postgresql://user@host/database; else a file in your data directory."""

_DAY = 86_400.0
_HEAD = ("incident", "when (UTC)", "error type", "decided", "outcome", "job", "cause")
_NAME, _SUMMARY = 40, 120  # characters shown
_ATTRIBUTIONS = ("user", "infrastructure", "scheduler", "unknown")


def add_incidents_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb `incidents` and its own verbs."""
    from diagnose.cli.arguments import add_memory_arguments

    parser = verbs.add_parser(
        "incidents",
        help="list, confirm, correct and exchange past failures",
        description="The memory of past failures.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    own = parser.add_subparsers(dest="incidents_verb", required=True, metavar="VERB")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        return own.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")

    adding = add("add", "add a failure whose cause you know, with its logs")
    adding.add_argument("logs", nargs="+", metavar="LOG")
    adding.add_argument("--error-type", required=True, metavar="TYPE", help="what failed, in the words of the taxonomy")
    adding.add_argument("--id", default="", help="the name it goes by; default: made from the logs")
    adding.add_argument("--kernel-log", action="append", default=[], metavar="FILE")
    adding.add_argument("--scheduler-record", action="append", default=[], metavar="FILE")
    adding.add_argument("--inventory", metavar="FILE")
    _said(adding)
    add_memory_arguments(adding)
    listing = add("list", "list incidents, the newest first")
    listing.add_argument("--error-type", metavar="TYPE", help="of this error type only")
    listing.add_argument("--user", help="of this user's jobs only")
    listing.add_argument("--since", type=float, metavar="DAYS", help="of failures in the last DAYS days only")
    state = listing.add_mutually_exclusive_group()
    state.add_argument("--confirmed", action="store_true", default=None, help="what people confirmed only")
    state.add_argument("--unconfirmed", dest="confirmed", action="store_false", help="what nobody confirmed only")
    listing.add_argument("--limit", type=int, default=50, metavar="N", help="at most N (50)")
    listing.add_argument("--format", choices=("text", "jsonl"), default="text")
    showing = add("show", "show an incident: its lines, what was done, what people said")
    showing.add_argument("id")
    showing.add_argument("--format", choices=("text", "json"), default="text")
    confirming = add("confirm", "say that the verdict was right, and whether the recovery worked")
    confirming.add_argument("id")
    confirming.add_argument("--recovered", choices=("yes", "no"))
    confirming.add_argument("--note", default="")
    confirming.add_argument("--by", default="", help="who says so; default: your user name")
    correcting = add("correct", "say what it really was; that is confirmed from then on")
    correcting.add_argument("id")
    correcting.add_argument("--error-type", required=True, metavar="TYPE")
    _said(correcting)
    correcting.add_argument("--by", default="", help="who says so; default: your user name")
    deleting = add("delete", "delete incidents and what was recorded of their runs")
    deleting.add_argument("ids", nargs="*", metavar="ID")
    deleting.add_argument("--of-user", default="", metavar="USER", help="everything recorded of this user's jobs")
    importing = add("import", "add labelled cases, or what `export` wrote; what is there already stays")
    importing.add_argument("source", metavar="CASES_DIR|FILE")
    exporting = add("export", "write incidents as lines of JSON")
    exporting.add_argument("--output", "-o", metavar="FILE")
    exporting.add_argument("--confirmed", action="store_true", help="only those that people confirmed")
    pruning = add("prune", "delete what was recorded long ago; what people confirmed stays")
    pruning.add_argument("--older-than", type=float, required=True, metavar="DAYS")
    pruning.add_argument("--confirmed-too", action="store_true")
    for verb in (adding, correcting, importing):
        verb.add_argument("--rules", action="append", default=[], metavar="DIR", help="a site's rules; repeatable")


def _said(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--attribution", choices=_ATTRIBUTIONS, help="whose fault; default: as the taxonomy has it")
    parser.add_argument("--summary", default="", help="the cause in one sentence")
    parser.add_argument("--recovered", choices=("yes", "no"), help="whether what was done about it worked")
    parser.add_argument("--note", default="")


def run_incidents(options: argparse.Namespace) -> int:
    """Run one of the verbs."""
    verbs: dict[str, Callable[[argparse.Namespace, Database], int]] = {
        "add": _add,
        "list": _list,
        "show": _show,
        "confirm": _confirm,
        "correct": _correct,
        "delete": _delete,
        "import": _import,
        "export": _export,
        "prune": _prune,
    }
    from diagnose.services import database_place, open_memory

    with open_memory(database_place(os.environ)) as database:
        return verbs[options.incidents_verb](options, database)


def _yes(said: str | None) -> bool | None:
    return None if said is None else said == "yes"


def _rules(options: argparse.Namespace) -> RuleSet:
    from diagnose.rules.bundle import load_bundled

    return load_bundled(options.rules)


def _label(options: argparse.Namespace, rules: RuleSet, id: str = "") -> Label:
    """What a person says, in the words of the taxonomy, redacted like all that is kept of a log."""
    from diagnose.redaction import Redactor
    from diagnose.store.recorder import Label

    entry = rules.taxonomy.get(options.error_type)
    if entry is None or entry.symptom:
        import difflib

        known = sorted(name for name, one in rules.taxonomy.items() if not one.symptom)
        near = difflib.get_close_matches(options.error_type, known, 3) or known[:3]
        raise UsageError(f"there is no error type {options.error_type}; did you mean {', '.join(near)}?")
    summary = Redactor(rules.redactions).redact(options.summary) if options.summary else ""
    return Label(
        error_type=entry.name,
        attribution=options.attribution or entry.attribution,
        summary=summary,
        recovered=_yes(options.recovered),
        id=id,
    )


def _who(options: argparse.Namespace) -> str:
    return options.by or os.environ.get("USER", "") or os.environ.get("LOGNAME", "")


def _add(options: argparse.Namespace, database: Database) -> int:
    from diagnose.cli.importing import recorded
    from diagnose.models import JobContext
    from diagnose.pipeline import Request

    rules = _rules(options)
    label = _label(options, rules, options.id)
    if options.id and (not options.id.isprintable() or " " in options.id or len(options.id) > 100):
        raise UsageError("--id must be one word of at most 100 characters")
    request = Request(
        options.logs,
        options.kernel_log,
        options.scheduler_record,
        options.inventory,
        sys.stdin.buffer if "-" in (*options.logs, *options.kernel_log, *options.scheduler_record) else None,
        JobContext(options.job_id, options.name, options.user, options.image, options.cluster, options.project),
    )
    made = recorded(request, database, rules, label, origin="added by hand", lived=True)
    print(made)
    return 0


def _list(options: argparse.Namespace, database: Database) -> int:
    from diagnose.store.exchange import as_json
    from diagnose.store.incidents import StoredIncidents

    if options.limit < 1:
        raise UsageError("--limit must be at least 1")
    found = StoredIncidents(database).latest(
        error_type=options.error_type,
        user=options.user,
        since=None if options.since is None else time.time() - options.since * _DAY,
        confirmed=options.confirmed,
        limit=min(options.limit, 1_000_000) + 1,
    )
    more, found = len(found) > options.limit, found[: options.limit]
    if options.format == "jsonl":
        for incident in found:
            print(as_json(incident))
    elif found:
        print_table(_HEAD, [tuple(map(_printable, _row(incident))) for incident in found])
    if not found:
        say("no incidents")
    if more:
        say(f"the newest {options.limit:,}; there are more: --limit N shows N")
    return 0 if found else 1


def _row(incident: Incident) -> tuple[str, ...]:
    return (
        incident.id,
        incident.created[:16].replace("T", " "),
        incident.error_type or "-",
        "confirmed" if incident.confirmed else incident.decided_by,
        _outcome(incident),
        incident.context.name[:_NAME] or "-",
        incident.summary[:_SUMMARY],
    )


def _outcome(incident: Incident) -> str:
    return {True: "recovered", False: "not recovered", None: "-"}[incident.recovered]


def _printable(text: str) -> str:
    from diagnose.report.text import printable

    return printable(text)


def _show(options: argparse.Namespace, database: Database) -> int:
    from diagnose.store.exchange import as_json
    from diagnose.store.incidents import StoredIncidents

    store = StoredIncidents(database)
    incident = store.get(options.id)
    if incident is None:
        raise UsageError(f"there is no incident {options.id}; `diagnose incidents list` shows which there are")
    if options.format == "json":
        print(as_json(incident))
        return 0
    context = incident.context
    rows = [
        ("Incident", f"{incident.id} of {incident.created or 'unknown time'}"),
        ("What", f"{incident.error_type or 'not named'} ({incident.attribution or 'not attributed'})"),
        ("Or", ", ".join(incident.accepted)),
        ("Cause", incident.summary),
        ("Decided", f"{incident.decided_by}{f' by {incident.rule}' if incident.rule else ''}"),
        ("Sure", "confirmed by a person" if incident.confirmed else "not confirmed"),
        ("Job", " ".join(filter(None, (context.id, context.name, context.user, context.image, context.cluster)))),
        ("Culprits", ", ".join(incident.culprits)),
        ("Tried", (incident.job or "").replace("_", " ")),
        ("Outcome", {True: "it worked", False: "it did not work", None: "not known"}[incident.recovered]),
    ]
    for label, text in rows:
        if text:
            print(f"{label:<9}{_printable(text)}")
    for said in store.said(incident.id):
        what = said.kind + (f" as {said.error_type}" if said.kind == "correct" else "")
        print(f"{'Said':<9}{_printable(' '.join(filter(None, (said.at, said.by, what, said.note))))}")
    if incident.text:
        print("Lines")
        for line in incident.text.split("\n"):
            print(f"  {_printable(line)}")
    return 0


def _confirm(options: argparse.Namespace, database: Database) -> int:
    from diagnose.store.incidents import confirm

    made = confirm(database, options.id, recovered=_yes(options.recovered), by=_who(options), note=options.note)
    print(f"{made.id}: {made.error_type}, confirmed, {_outcome(made).replace('-', 'outcome not known')}")
    return 0


def _correct(options: argparse.Namespace, database: Database) -> int:
    from diagnose.store.incidents import correct

    label = _label(options, _rules(options))
    made = correct(
        database,
        options.id,
        error_type=label.error_type or "",
        attribution=label.attribution,
        summary=label.summary or None,
        recovered=label.recovered,
        by=_who(options),
        note=options.note,
    )
    print(f"{made.id}: {made.error_type}, confirmed, {_outcome(made).replace('-', 'outcome not known')}")
    return 0


def _delete(options: argparse.Namespace, database: Database) -> int:
    from diagnose.store.incidents import delete
    from diagnose.store.retention import delete_of_user

    if bool(options.ids) == bool(options.of_user):
        raise UsageError("name the incidents to delete, or --of-user USER")
    if options.of_user:
        gone = delete_of_user(database, options.of_user)
        print(f"deleted {counted(gone.incidents, 'incident')} and {counted(gone.attempts, 'attempt')}")
        return 0 if gone.incidents or gone.attempts else 1
    count = delete(database, options.ids)
    print(f"deleted {counted(count, 'incident')}")
    return 0 if count == len(set(options.ids)) else 1


def _prune(options: argparse.Namespace, database: Database) -> int:
    from diagnose.store.retention import prune

    if options.older_than < 0:
        raise UsageError("--older-than must be a number of days")
    gone = prune(database, options.older_than, time.time(), confirmed_too=options.confirmed_too)
    print(f"deleted {counted(gone.incidents, 'incident')} and {counted(gone.attempts, 'attempt')}")
    return 0


def _export(options: argparse.Namespace, database: Database) -> int:
    from diagnose.store.exchange import as_json
    from diagnose.store.incidents import StoredIncidents

    count = 0
    with _written(options.output) as write:
        for incident in StoredIncidents(database):
            if incident.confirmed or not options.confirmed:
                write(as_json(incident) + "\n")
                count += 1
    if options.output:
        print(counted(count, "incident"))
    return 0


@contextlib.contextmanager
def _written(path: str | None) -> Iterator[Callable[[str], object]]:
    """Where to write: standard output, or a file that is there whole or not at all."""
    if path is None:
        yield sys.stdout.write
        return
    unfinished = f"{path}.part"
    try:
        with open(unfinished, "w", encoding="utf-8") as file:
            yield file.write
        os.replace(unfinished, path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; choose another --output") from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)


def _import(options: argparse.Namespace, database: Database) -> int:
    from diagnose.store.exchange import from_lines

    if os.path.isdir(options.source):
        from diagnose.cli.importing import import_cases

        return import_cases(options.source, database, _rules(options))
    try:
        with open(options.source, encoding="utf-8", errors="replace") as file:
            made = from_lines(database, file)
    except OSError as error:
        raise UsageError(f"{options.source} cannot be read: {error.strerror}") from error
    print(f"added {counted(made.added, 'incident')}, changed {made.changed}, {made.known} were there already")
    return 0
