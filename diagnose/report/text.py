"""The report for a terminal: aligned, 100 columns or what there is, colour only where it is wanted.

In: a `Report`. Out: text. Log text is stripped of control characters first: a log must not drive the terminal.
"""

from __future__ import annotations

import textwrap

from diagnose.dataclass import replace
from diagnose.models import Finding, Report
from diagnose.patterns import Lazy
from diagnose.report.screen import Headline, Row, headline, screen

_LABEL = 9
_STYLES = {"FAILED": "\x1b[1;31m", "NO FAILURE": "\x1b[1;32m", "INCONCLUSIVE": "\x1b[1;33m"}
_DIM, _BOLD, _RESET = "\x1b[2m", "\x1b[1m", "\x1b[0m"
_DIRECTORIES = Lazy(r"(?<![\w.:/])/(?:[^/\s:'\"]{1,100}/){2,32}")
_LONGEST_LINE = 2000  # characters of a line of explanation: names come from logs
_SECOND = "\ue000"  # the second column of a wide character; `printable` lets none of these through
_LONGEST_ROW = 3  # lines that one row may take unless all is asked for


def as_text(
    report: Report, *, width: int = 100, colour: bool = False, explain: bool = False, verbose: bool = False
) -> str:
    """The report as text, ending in a newline."""
    width = max(60, width)
    head = _within(headline(report), width)
    status = f"{_STYLES[head.status]}{head.status}{_RESET}" if colour else head.status
    first = "  ".join([status, *(printable(part) for part in head.parts)])
    decided = f"rule {printable(head.rule)}" if head.rule else head.other
    rule = f"    {_dim(decided, colour=colour)}" if decided else ""
    length = _columns("  ".join([head.status, *head.parts])) + _columns(f"    {decided or 'rule '}")
    lines = [first + rule if length <= width else first]
    for row in screen(report, verbose=verbose):
        lines.extend(_laid_out(row, width, colour=colour, whole=verbose))
    if explain:
        lines.extend(["", *_explained(report, width)])
    return "\n".join(lines) + "\n"


def _within(head: Headline, width: int) -> Headline:
    """The headline with its last part, which may be any name of a log, cut to what the others leave."""
    *others, last = (printable(part) for part in head.parts)
    room = max(20, width - _columns("  ".join([head.status, *others])) - 2)
    return replace(head, parts=(*others, _narrow(_fitted(_widened(last), room))))


def _widened(text: str) -> str:
    """Text with a mark behind each character that takes two columns, so that its length is its width."""
    if text.isascii():
        return text
    from unicodedata import east_asian_width

    return "".join(char + _SECOND if east_asian_width(char) in "WF" else char for char in text)


def _narrow(text: str) -> str:
    return text.replace(_SECOND, "")


def _columns(text: str) -> int:
    return len(_widened(text))


def printable(text: str) -> str:
    """Text without characters that a terminal would act on, nor ones that cannot be encoded."""
    safe = "".join(char if char.isprintable() else " " if char in "\n\t\r" else f"\\x{ord(char):02x}" for char in text)
    return safe.encode("utf-8", "backslashreplace").decode("utf-8")


def _dim(text: str, *, colour: bool) -> str:
    return f"{_DIM}{text}{_RESET}" if colour else text


def _laid_out(row: Row, width: int, *, colour: bool, whole: bool) -> list[str]:
    text, lead = _widened(printable(row.text)), _widened(printable(row.lead))
    where = _shortened(_widened(printable(row.where)), width // 3)
    label = f"{row.label:<{_LABEL}}"
    if colour and row.label:
        label = f"{_BOLD}{label}{_RESET}"
    room = width - _LABEL
    if where:
        shown = lead + (text if whole else _fitted(text, max(20, room - len(lead) - len(where) - 2)))
        gap = " " * max(2, room - len(shown) - len(where))
        return [_narrow(f"{label}{shown}{gap}{_dim(where, colour=colour)}")]
    wrapped = textwrap.wrap(text, room, break_long_words=True, break_on_hyphens=False) or [""]
    if len(wrapped) > _LONGEST_ROW and not whole:
        wrapped = [*wrapped[: _LONGEST_ROW - 1], wrapped[_LONGEST_ROW - 1][: room - 4] + " ..."]
    return [_narrow(f"{label}{wrapped[0]}"), *(" " * _LABEL + _narrow(line) for line in wrapped[1:])]


def _fitted(text: str, room: int) -> str:
    """Text cut to the room: long paths lose their directories first, then the end goes."""
    if len(text) > room:
        text = _DIRECTORIES.sub(".../", text)
    return text if len(text) <= room else text[: room - 3] + "..."


def _shortened(where: str, room: int) -> str:
    """A place that is too long, from the left: the file's own name says most."""
    while len(where) > room and "/" in where.removeprefix(".../"):
        where = ".../" + where.removeprefix(".../").partition("/")[2]
    return where if len(where) <= 2 * room else "..." + where[3 - 2 * room :]


def _explained(report: Report, width: int) -> list[str]:
    explanation = report.explanation
    lines = ["Findings, and what explains them"]
    for finding in explanation.findings:
        causes = explanation.explained.get(finding.id, ())
        why = f"explained by {', '.join(causes[:4])}" if causes else "nothing explains it"
        lines.append(f"  {_finding(finding)}: {why}")
        lines.extend(_lines_of(finding, width))
    if not explanation.findings:
        lines.append("  none")
    if explanation.excluded:
        lines.append("Set aside")
        for item in explanation.excluded:
            lines.append(f"  {_finding(item.finding)}: {item.why}")
            lines.extend(_lines_of(item.finding, width))
    if explanation.attribution:
        lines.append("Attribution")
        lines.extend(f"  {reason}" for reason in explanation.attribution)
    if explanation.notes:
        lines.append("Notes")
        lines.extend(f"  {note}" for note in explanation.notes)
    lines.append(f"Policy row {report.recovery.policy or 'none'}; rules {report.decided_by.ruleset or '-'}")
    return [printable(line if len(line) <= _LONGEST_LINE else line[:_LONGEST_LINE] + " ...") for line in lines]


def _lines_of(finding: Finding, width: int) -> list[str]:
    return [f"      {one.source}:{one.line}  {one.text[: width - 10]}" for one in finding.evidence[:2]]


def _finding(finding: Finding) -> str:
    where = ", ".join(sorted(finding.hosts or finding.places)[:3] + sorted(finding.gpus)[:2])
    ranks = (
        f", {len(finding.ranks)} ranks"
        if len(finding.ranks) > 1
        else f", rank {next(iter(finding.ranks))}"
        if finding.ranks
        else ""
    )
    shadow = ", experimental: decides nothing" if finding.shadow else ""
    where = f", {where}" if where else ""
    return f"{finding.id} {finding.error_type} ({finding.role}, x{finding.count}{ranks}{where}{shadow})"
