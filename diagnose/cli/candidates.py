"""`diagnose rules candidates [list | show | promote | reject]`: rules that were proposed and that people review.

In: parsed arguments. Out: text on standard output and an exit code: 0 done, 1 lint has something against a rule.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, get_args

from diagnose.cli.streams import say
from diagnose.errors import UsageError, installing

if TYPE_CHECKING:
    from diagnose.models.learning import Proposed
    from diagnose.store.review import Review

_SHORT = 12  # characters of an id that tell candidates apart
_ACTIONS = ("list", "show", "promote", "reject")


def add_candidates_parser(add: Callable[[str, str], argparse.ArgumentParser]) -> None:
    """Add the verb."""
    from diagnose.models.learning import CandidateState

    parser = add("candidates", "list, show, promote or reject the rules that were proposed")
    parser.add_argument("action", nargs="?", default="list", choices=_ACTIONS)
    parser.add_argument("candidates", nargs="*", metavar="ID", help="an id of the list, or a rule's name")
    parser.add_argument("--kind", choices=("filter", "diagnosis"), help="list: only these")
    parser.add_argument("--state", choices=get_args(CandidateState), help="list: only these")
    parser.add_argument("--dir", default="", help="promote: the rules directory (default: the rules of this checkout)")
    parser.add_argument("--area", default="", help="promote: the folder of a filter rule (default: its framework)")


def run_candidates(options: argparse.Namespace) -> int:
    """Run one of the actions."""
    from diagnose.cli.learning import recorded_memory

    if options.action == "list" and options.candidates:
        raise UsageError("list takes no ids; see one with: diagnose rules candidates show ID")
    if options.action != "list" and not options.candidates:
        raise UsageError(f"{options.action} which? give ids of `diagnose rules candidates list`")
    with recorded_memory() as database:
        if database is None:
            raise UsageError(
                "nothing is proposed yet: the Log Agent (DIAGNOSE_LOG_AGENT=1) and `diagnose rules propose` do that"
            )
        from diagnose.store.review import Review

        review = Review(database)
        if options.action == "list":
            return _list(review, options)
        chosen = [_found(review, name) for name in dict.fromkeys(options.candidates)]
        if options.action == "promote":
            return _promote(review, chosen, options)
        for each in chosen:
            if options.action == "show":
                _show(each)
            elif review.decide(each.id, "rejected"):
                say(f"rejected {each.rule.id}; it is not proposed again")
    return 0


def _list(review: Review, options: argparse.Namespace) -> int:
    from diagnose.cli.rules import counted, print_table

    found = review.all(kind=options.kind, state=options.state)
    rows = [
        (
            each.id[:_SHORT],
            each.kind,
            each.state,
            str(each.hits),
            each.created[:10],
            _shown(each.author, 40),
            _shown(each.rule.id, 100),
            _shown(_whom(each), 120),
        )
        for each in found
    ]
    if rows:
        print_table(("id", "kind", "state", "hits", "created", "author", "rule", "for"), rows)
    waiting = sum(each.state in ("proposed", "applied") for each in found)
    say(f"{counted(len(found), 'candidate')}, {waiting} of which nobody has decided on")
    return 0


def _found(review: Review, name: str) -> Proposed:
    found = review.called(name)
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(f"there is no candidate {_shown(name, 100)}; see `diagnose rules candidates list`")
    ids = ", ".join(each.id[:_SHORT] for each in found[:5])
    raise UsageError(f"{_shown(name, 100)} means {len(found)} candidates; give one of their ids: {ids}")


def _show(each: Proposed) -> None:
    from diagnose.learning.writing import rule_text

    print(f"# candidate {each.id}, {each.state}, {each.hits} hits, proposed {each.created[:10]}")
    print(f"# author {_shown(each.author, 200)}")
    print(f"# for {_shown(_whom(each), 500)}")
    print(_lines_shown(rule_text(each.rule)), end="")


def _promote(review: Review, chosen: list[Proposed], options: argparse.Namespace) -> int:
    from diagnose.cli.learning import joined_rules, root_of
    from diagnose.learning.promote import path_of, problems_of, write
    from diagnose.rules.lint.engines import re2_module

    if re2_module() is None:
        raise UsageError(f"rules are promoted only where RE2 can check them: {installing('llm')}")
    root = root_of(options.dir)
    failed = False
    for each in chosen:
        rules = joined_rules(options)
        # A file of this name is what people made of the candidate, in a review or in a promotion that was cut short.
        there = next((rule for rule in rules.rules if rule.id == each.rule.id), None)
        rule = there or each.rule
        path = os.path.join(root, *path_of(rule, rules, each.fingerprint, options.area).split("/"))
        path = rules.paths[rule.id] if there else path
        if problems := problems_of(rule, path, rules, root):
            failed = True
            say(f"{rule.id} is not promoted:")
            for problem in problems[:5]:
                say(f"  {_shown(problem.message, 300)} [{problem.check}]")
            continue
        if there is None:
            write(rule, path)
        review.decide(each.id, "promoted")
        print(f"{path} is there already" if there else f"wrote {path}")
    return 1 if failed else 0


def _whom(each: Proposed) -> str:
    if each.fingerprint is None:
        return each.origin or "-"
    told = {name: getattr(each.fingerprint, name) for name in ("name", "image", "framework")}
    return " ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in told.items() if value) or "-"


def _shown(text: str, most: int) -> str:
    from diagnose.sources.printable import printable

    return printable(text[:most])


def _lines_shown(text: str) -> str:
    """A rule's text without what could drive a terminal."""
    return "".join(f"{_shown(line, 20_000)}\n" for line in text.split("\n")[:-1])
