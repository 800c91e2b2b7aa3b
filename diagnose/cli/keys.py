"""`diagnose keys`: who may use the service.

In: options. Out: an exit code; a new key on standard output, once.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any

from diagnose.cli.streams import tell
from diagnose.errors import UsageError, installing


def add_keys_parser(verbs: Any) -> None:
    """Add the verb to the parser."""
    keys = verbs.add_parser(
        "keys",
        help="make, list, revoke and rotate keys of the service",
        description="Keys of the service. Only digests are kept: a key is shown once.",
        epilog=(
            "examples:\n  diagnose keys add --scope submit --scope read --project llm --days 90 --note slurm\n"
            "  diagnose keys rotate 3f2a90bc1d2e --hours 24"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = keys.add_subparsers(dest="what", required=True, metavar="WHAT")
    add = what.add_parser("add", help="make a key", description="Make a key and print it.")
    add.add_argument(
        "--scope",
        action="append",
        required=True,
        choices=("submit", "read", "feedback", "admin"),
        help="what it may do; repeatable. admin: everything, in all projects",
    )
    add.add_argument(
        "--project", action="append", required=True, help="which project it is bound to; repeatable; * for all"
    )
    add.add_argument("--days", type=float, help="for how many days it is good; for ever by default")
    add.add_argument("--note", default="", help="what it is for")
    listed = what.add_parser("list", help="list keys", description="List keys, without the keys themselves.")
    listed.add_argument("--format", choices=("text", "json"), default="text")
    revoke = what.add_parser("revoke", help="end a key", description="End a key, within ten seconds.")
    revoke.add_argument("id")
    rotate = what.add_parser("rotate", help="replace a key", description="Make a key that may do the same.")
    rotate.add_argument("id")
    rotate.add_argument("--hours", type=float, default=24.0, help="for how long the old one is good yet (24)")


def run_keys(options: argparse.Namespace) -> int:
    """Run the verb."""
    try:
        from diagnose.service.keys import Keys
        from diagnose.services import database_place, open_memory
    except ModuleNotFoundError as error:
        raise UsageError(f"keys need {error.name}, which is not installed: {installing('service')}") from error
    with open_memory(database_place(os.environ)) as database:
        keys = Keys(database)
        if options.what == "add":
            first = not keys.any()
            name, key = keys.add(options.scope, options.project, days=options.days, note=options.note)
            tell(f"key {name} is made; it is shown this once")
            if first:
                tell("it is the first: within ten seconds the service asks everybody for a key, on this machine too")
            print(key)
        elif options.what == "rotate":
            name, key = keys.rotate(options.id, hours=options.hours)
            tell(f"key {name} takes the place of {options.id}, which is good for {options.hours:g} hours yet")
            print(key)
        elif options.what == "revoke":
            keys.revoke(options.id)
            tell(f"key {options.id} is revoked")
        else:
            _list(keys.rows(), options.format)
    return 0


def _list(rows: list[Any], form: str) -> None:
    now = time.time()
    if form == "json":
        shown = [
            {
                "id": row.id,
                "state": row.state(now),
                "scopes": row.scopes,
                "projects": row.projects,
                "note": row.note,
                "created": row.created,
                "expires": row.expires,
                "used": row.used,
            }
            for row in rows
        ]
        print(json.dumps(shown, indent=1))
        return
    print(f"{'id':14}{'state':9}{'scopes':28}{'projects':24}{'expires':12}{'last used':12}note")
    for row in rows:
        print(
            f"{row.id:14}{row.state(now):9}{','.join(row.scopes):28}{','.join(row.projects):24}"
            f"{_day(row.expires):12}{_day(row.used):12}{row.note}"
        )


def _day(seconds: float | None) -> str:
    return "-" if seconds is None else time.strftime("%Y-%m-%d", time.gmtime(seconds))
