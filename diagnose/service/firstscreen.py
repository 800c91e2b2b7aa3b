"""The first screen of a report as it is kept, so that a page can lay it out again.

In: a `Report`. Out: JSON text, and from that `Headline` and `Row`s: the same words, in the same order, as the command
line shows, before they are cut to the columns of a terminal.
"""

from __future__ import annotations

import json

from diagnose.models import Report
from diagnose.report.screen import Headline, Row, headline, screen
from diagnose.report.text import printable


def layout_of(report: Report) -> str:
    """The headline and the rows, as JSON."""
    head = headline(report)
    rows = [[_plain(part) for part in (row.label, row.text, row.where, row.lead.strip())] for row in screen(report)]
    first = [head.status, [_plain(part) for part in head.parts], _plain(head.rule), head.other]
    return json.dumps([first, rows], ensure_ascii=False, separators=(",", ":"))


def _plain(text: str) -> str:
    """Text as JSON holds it, without what would act on whoever looks at it."""
    return printable(text.encode("utf-8", "backslashreplace").decode("utf-8"))


def read_layout(text: str) -> tuple[Headline, tuple[Row, ...]]:
    """What `layout_of` has written."""
    (status, parts, rule, other), rows = json.loads(text)
    return Headline(status, tuple(parts), rule, other), tuple(Row(*row) for row in rows)
