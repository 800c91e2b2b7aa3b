"""What an answer is worth, by the labels of its case.

In: a `Case` and an `Answer`. Out: a `Score`. docs/evaluation.md says in words what each figure means.
"""

from __future__ import annotations

import os
import re

from diagnose.evaluation.model import Answer, Blamed, Case, Cited, Place, Score

# A healthy node taken out of service costs more than a look at it.
EVICTING = frozenset({"drain", "reset_gpu", "reboot", "replace"})
_SHOWN = 3
_PACKED = (".gz", ".zst", ".xz", ".bz2")
_BUS = re.compile(r"([0-9a-f]{2}:[0-9a-f]{2})(?:\.\d)?$")
_LINE_OF_FILE = re.compile(r":\d+$")


def score(case: Case, answer: Answer) -> Score:
    """The score of an answer."""
    status = answer.status == case.status
    actions = frozenset(answer.nodes)
    false_node = case.node == "none" and bool(actions & EVICTING)
    named = answer.error_type if answer.status == "failed" else None
    if case.status != "failed":
        return Score(status, wrong=answer.status == "failed", innocent=_innocents(case, answer), false_node=false_node)
    # Where nobody could name the failure, the right answer names none.
    right = answer.status == "failed" and named in (case.error_types or (None,))
    blamed = answer.attribution in case.attributions if case.attributions else None
    return Score(
        status=status,
        type=right,
        attribution=blamed,
        line=cites(case, answer) if case.lines else None,
        culprit=_names_culprit(case, answer) if case.culprits else None,
        recovery=answer.job in case.job if case.job and answer.job is not None else None,
        wrong=(named is not None and not right) or answer.status == "no_failure",
        innocent=_innocents(case, answer),
        false_node=false_node,
        blame_user=blamed is False and answer.attribution == "user",
        blame_infra=blamed is False and answer.attribution == "infrastructure",
    )


def unanswered(case: Case) -> Score:
    """The score of a case that could not be run: wrong in every figure that its labels ask for."""
    failed = case.status == "failed"
    return Score(
        status=False,
        type=False if failed else None,
        attribution=False if failed and case.attributions else None,
        line=False if failed and case.lines else None,
        culprit=False if failed and case.culprits else None,
        recovery=False if failed and case.job else None,
        wrong=True,
    )


def cites(case: Case, answer: Answer) -> bool:
    """Whether one of the first lines cited is a labelled one, or stands next to it."""
    return any(_same_line(cited, place) for cited in answer.cited[:_SHOWN] for place in case.lines)


def _same_line(cited: Cited, place: Place) -> bool:
    if not cited.line or abs(cited.line - place.line) > 1:
        return False
    return not place.source or same_file(cited.source, place.source)


def same_file(one: str, other: str) -> bool:
    """Whether two names mean one file: either may be shortened from the left, and a packed file is its content."""
    ours, theirs = _parts(one), _parts(other)
    return ours[-len(theirs) :] == theirs or theirs[-len(ours) :] == ours


def _parts(name: str) -> list[str]:
    name = os.path.normpath(name)
    for ending in _PACKED:
        name = name.removesuffix(ending)
    return re.split(r"[/!]", name)


def _names_culprit(case: Case, answer: Answer) -> bool:
    return any(_same(named, wanted) for named in answer.culprits[:_SHOWN] for wanted in case.culprits)


def _innocents(case: Case, answer: Answer) -> int:
    """How many are named that are none of the labelled ones, of the kinds of which those are all."""
    return sum(
        named.kind in case.innocent
        or (named.kind in case.counted and not any(_same(named, wanted) for wanted in case.culprits))
        for named in answer.culprits
    )


def _same(named: Blamed, wanted: Blamed) -> bool:
    return named.kind == wanted.kind and any(
        _same_name(wanted.kind, name.lower(), want.lower()) for name in named.names for want in wanted.names
    )


def _same_name(kind: str, name: str, wanted: str) -> bool:
    if kind in ("gpu", "switch"):
        return _bus(name) == _bus(wanted)
    if kind == "file":
        return same_file(_LINE_OF_FILE.sub("", name), _LINE_OF_FILE.sub("", wanted))
    if kind == "host" and wanted and not wanted[0].isdigit():
        return name == wanted or name.partition(".")[0] == wanted.partition(".")[0]
    return name == wanted


def _bus(name: str) -> str:
    found = _BUS.search(name)
    return found[1] if found else name
