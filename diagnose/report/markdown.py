"""The report for a ticket or a chat: Markdown that renders the same everywhere, with log text that cannot break out.

In: a `Report`. Out: Markdown.
"""

from __future__ import annotations

from diagnose.models import Report
from diagnose.report.screen import headline, screen
from diagnose.report.text import printable

_SPECIAL = str.maketrans({char: f"\\{char}" for char in "\\`*_{}[]<>#|~"})


def as_markdown(report: Report, *, verbose: bool = False) -> str:
    """The report as Markdown, ending in a newline."""
    head = headline(report)
    lines = [f"**{head.status}** {' · '.join(_escaped(part) for part in head.parts)}".rstrip(), ""]
    for row in screen(report, verbose=verbose):
        if row.where:
            lines.append(f"  - {_code(row.where)}: {_code(row.text)}")
        elif row.label:
            lines.append(f"- **{row.label}:** {_escaped(row.text)}")
        else:
            lines.append(f"  - {_escaped(row.text)}")
    if head.rule:
        lines.extend(["", f"Decided by rule {_code(head.rule)}, rules {_code(report.decided_by.ruleset or '-')}."])
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return printable(text).translate(_SPECIAL)


def _code(text: str) -> str:
    """Text as a code span; the fence is longer than any run of backticks inside."""
    text = printable(text)[:500]
    longest = run = 0
    for char in text:
        run = run + 1 if char == "`" else 0
        longest = max(longest, run)
    fence = "`" * (longest + 1)
    pad = " " if longest else ""
    return f"{fence}{pad}{text}{pad}{fence}"
