"""`diagnose index ...`: the index of past incidents, made anew from the database and compared with it.

In: parsed arguments. Out: text on standard output and an exit code: 0 sound, 1 it differs from the database.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from diagnose.cli.rules import counted
from diagnose.cli.streams import say
from diagnose.errors import UsageError

if TYPE_CHECKING:
    from diagnose.store.index import Checked, IncidentIndex

_EXAMPLES = """\
examples:
  diagnose index rebuild
  diagnose index check
  diagnose index similar job-lines.txt

The index lies beside the database (DIAGNOSE_DATABASE), or in DIAGNOSE_INDEX. One process writes it at a time; to share
it among machines run `chroma run` and set DIAGNOSE_CHROMA_URL."""
_TOLD_EVERY = 500
_SHOWN = 5
_MOST_TEXT = 256 * 1024


def add_index_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb `index` and its own verbs."""
    parser = verbs.add_parser(
        "index",
        help="rebuild and check the index of past incidents",
        description="The index by which past incidents are found.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    own = parser.add_subparsers(dest="index_verb", required=True, metavar="VERB")
    for name, text in (
        ("rebuild", "make the index anew from the database; goes on where it was stopped"),
        ("check", "compare the index with the database"),
        ("similar", "show the past incidents that read like a text"),
    ):
        verb = own.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        verb.add_argument("--rules", action="append", default=[], metavar="DIR", help="a site's rules; repeatable")
        if name == "similar":
            verb.add_argument("text", metavar="FILE", help="lines of a failure; - is standard input")
            verb.add_argument("--count", type=int, default=_SHOWN, metavar="N", help=f"how many ({_SHOWN})")


def run_index(options: argparse.Namespace) -> int:
    """Run one of the verbs."""
    if options.index_verb == "similar":
        if not 1 <= options.count <= 100:
            raise UsageError("--count must be from 1 to 100")
        return _similar(options, _text(options.text))
    with _opened(options.rules) as index:
        if options.index_verb == "check":
            return _told(index.check())
        taken = index.rebuild(tell=lambda done: say(f"{done:,} incidents") if done % _TOLD_EVERY < 64 else None)
        print(f"the index holds {counted(len(index), 'incident')}; {taken} read")
        return 0


def _similar(options: argparse.Namespace, text: str) -> int:
    from diagnose.report.text import printable

    with _opened(options.rules) as index:
        index.sync()
        found = index.similar(text, options.count)
    for each in found:
        outcome = "" if each.recovered is None else "recovered" if each.recovered else "did not recover"
        parts = (f"{each.similarity:.2f}", each.id, each.error_type, outcome, each.summary)
        print(printable("  ".join(part for part in parts if part)))
    if not found:
        say("no incident reads like this")
    return 0 if found else 1


def _told(checked: Checked) -> int:
    for what, ids in (
        ("not in the index", checked.missing),
        ("changed since", checked.stale),
        ("no longer in the database", checked.left_over),
        ("without a vector", checked.without_vector),
        ("vectors of none", checked.vectors_left_over),
    ):
        if ids:
            more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
            print(f"{what}: {', '.join(ids[:_SHOWN])}{more}")
    if checked.sound:
        print(f"sound: {counted(checked.incidents, 'incident')}")
        return 0
    say("diagnose: the index differs from the database; run: diagnose index rebuild")
    return 1


def _text(path: str) -> str:
    import sys

    if path == "-":
        return sys.stdin.buffer.read(_MOST_TEXT).decode("utf-8", "replace")
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_TEXT).decode("utf-8", "replace")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


@contextlib.contextmanager
def _opened(dirs: list[str]) -> Iterator[IncidentIndex]:
    """The index of the configured memory."""
    from diagnose.rules.bundle import load_bundled
    from diagnose.services import database_place, open_memory

    place = database_place(os.environ)
    with open_memory(place) as database:
        from diagnose.store.incidents import StoredIncidents
        from diagnose.store.opening import index_settings, open_index

        settings = index_settings(os.environ, place)
        redactions = load_bundled(dirs).redactions
        with contextlib.closing(open_index(settings, StoredIncidents(database), redactions)) as index:
            yield index
