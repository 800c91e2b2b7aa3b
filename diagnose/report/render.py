"""One entry for all renderings.

In: a `Report` and the name of a format. Out: the text to write.
"""

from __future__ import annotations

from typing import Literal

from diagnose.models import Report
from diagnose.report.contract import to_json

Format = Literal["text", "json", "jsonl", "markdown"]
FORMATS: tuple[Format, ...] = ("text", "json", "jsonl", "markdown")


def render(
    report: Report,
    format: Format,
    *,
    width: int = 100,
    colour: bool = False,
    explain: bool = False,
    verbose: bool = False,
) -> str:
    """The report in the given format, ending in a newline. `jsonl` is one line."""
    if format == "markdown":
        from diagnose.report.markdown import as_markdown

        return as_markdown(report, verbose=verbose)
    if format == "text":
        from diagnose.report.text import as_text

        return as_text(report, width=width, colour=colour, explain=explain, verbose=verbose)
    import json

    if format == "json":
        return json.dumps(to_json(report), indent=1, ensure_ascii=False) + "\n"
    return json.dumps(to_json(report), separators=(",", ":"), ensure_ascii=False) + "\n"
