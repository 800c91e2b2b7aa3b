"""Renderings of one `Report`: text for the terminal, JSON for programs, Markdown for tickets."""

from diagnose.report.contract import to_json
from diagnose.report.render import FORMATS, Format, render

__all__ = ["FORMATS", "Format", "render", "to_json"]
