"""`diagnose policy backtest`: what a policy would have asked for over the recorded history, and how that went.

In: parsed arguments. Out: text or JSON on standard output and an exit code: 0 done, 1 nothing recorded.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import TYPE_CHECKING

from diagnose.cli.rules import counted
from diagnose.cli.streams import say
from diagnose.errors import UsageError

if TYPE_CHECKING:
    from diagnose.store.backtest import Backtest, Kind

_EXAMPLES = """\
examples:
  diagnose policy backtest
  diagnose policy backtest --rules site/ --drain-hours 8

A stop is right where the next attempt died alike, false where one passed the failed step though nothing had changed;
a drain is right where the host was to blame again within 30 days, false where it served well."""
_FALSE_SHOWN = 20


def add_policy_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb `policy` and its own verb."""
    parser = verbs.add_parser("policy", help="try a policy on the recorded history", description="The policy.")
    own = parser.add_subparsers(dest="policy_verb", required=True, metavar="VERB")
    text = "replay a policy over recorded runs: what it would have asked for, and how much of it was false"
    verb = own.add_parser(
        "backtest",
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verb.add_argument(
        "--rules", action="append", default=[], metavar="DIR", help="a site's rules, with its policy.yml; repeatable"
    )
    verb.add_argument(
        "--stop-hours", type=float, default=2.0, help="hours until a person starts a falsely stopped job (2)"
    )
    verb.add_argument("--drain-hours", type=float, default=24.0, help="hours that a drained node is away (24)")
    verb.add_argument("--format", choices=("text", "json"), default="text")


def run_policy(options: argparse.Namespace) -> int:
    """Replay the policy."""
    from diagnose.rules.bundle import load_bundled
    from diagnose.services import database_place, open_memory

    if not 0 <= options.stop_hours <= 10_000 or not 0 <= options.drain_hours <= 10_000:
        raise UsageError("--stop-hours and --drain-hours must be hours from 0 to 10000")
    rules = load_bundled(options.rules)
    with open_memory(database_place(os.environ)) as database:
        from diagnose.store.backtest import Costs, backtest

        made = backtest(database, rules.policy, rules.budgets, Costs(options.stop_hours, options.drain_hours))
    if options.format == "json":
        print(json.dumps(_plain(made), indent=1))
    elif made.attempts:
        _show(made, rules.version)
    if not made.attempts:
        say("nothing is recorded yet: diagnose LOG --record, or DIAGNOSE_RECORD=1")
    return 0 if made.attempts else 1


def _show(made: Backtest, version: str) -> None:
    from diagnose.report.text import printable
    from diagnose.store.incidents import iso_time

    print(
        f"Policy of ruleset {version} over {counted(made.attempts, 'failed attempt')} of "
        f"{counted(made.workloads, 'workload')}, {iso_time(made.since or 0)[:10]} to {iso_time(made.until or 0)[:10]}"
    )
    rows: tuple[tuple[str, Kind, str], ...] = (
        ("Stops", "stop", "died alike"),
        ("Drains", "drain", "to blame again"),
        ("Restarts", "restart", "passed"),
    )
    for label, kind, right in rows:
        of = {fate: len(made.of(kind, fate)) for fate in ("right", "false", "mended", "unknown")}
        saved, lost = sum(one.saved for one in made.of(kind)), sum(one.lost for one in made.of(kind))
        mended = f", {of['mended']} mended" if of["mended"] else ""
        print(
            f"{label:<9}{len(made.of(kind))}: {of['right']} right ({right}), {of['false']} false{mended}, "
            f"{of['unknown']} not known; GPU-hours saved {saved:,.1f}, lost {lost:,.1f}"
        )
    wrong = [one for one in made.actions if one.fate == "false" and one.kind != "restart"]
    for index, one in enumerate(wrong[:_FALSE_SHOWN]):
        where = one.incident or one.job
        text = f"{iso_time(one.at)[:16]} {one.kind} {one.what} by {one.row}: {one.error_type} {where}"
        print(f"{'False' if not index else '':<9}{printable(text)}")
    if len(wrong) > _FALSE_SHOWN:
        print(f"{'':<9}and {len(wrong) - _FALSE_SHOWN} more; --format json shows all")
    if made.untimed:
        print(f"{'Note':<9}{counted(made.untimed, 'attempt')} of unknown length count for no GPU-hours")
    for name, count in sorted(made.unasked.items()):
        print(f"{'Note':<9}the test {name} was not answered in {counted(count, 'older verdict')}: taken as no")


def _plain(made: Backtest) -> dict[str, object]:
    from diagnose.dataclass import fields

    plain = {each.name: getattr(made, each.name) for each in fields(made)}
    plain["actions"] = [{each.name: getattr(one, each.name) for each in fields(one)} for one in made.actions]
    return plain
