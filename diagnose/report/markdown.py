"""The report for a ticket or a chat: Markdown that renders the same everywhere, with log text that cannot break out.

In: a `Report`. Out: Markdown.
"""

from __future__ import annotations

from diagnose.models import Report
from diagnose.patterns import Lazy
from diagnose.report.screen import headline, screen
from diagnose.report.text import printable

_SPECIAL = str.maketrans({char: f"\\{char}" for char in "\\`*_{}[]<>#|~$"})
# Words of which forges and chats make links, or call people: they do so after escapes are gone, but not in code spans.
_CALLING = Lazy(r"://|@\w|#\d|\b[Ww][Ww][Ww]\.|\bGH-\d|\b(?i:mailto|xmpp):")
_WORDS = Lazy(r"(\s+)")
_LIST_MARK = Lazy(r"\A(\s*)(\d{0,9})([-+=.)])")


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
    elif head.other:
        lines.extend(["", f"Decided {head.other}, not by a rule; rules {_code(report.decided_by.ruleset or '-')}."])
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    """Text that shows as itself: no markup, no link, nobody called."""
    words = _WORDS.split(printable(text))
    shown = "".join(_code(word) if _CALLING.search(word) else word.translate(_SPECIAL) for word in words)
    return _LIST_MARK.sub(r"\1\2\\\3", shown)


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
