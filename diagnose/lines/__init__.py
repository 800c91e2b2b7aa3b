"""Kept lines to lines, records, progress, attempts and the inventory of units."""

from diagnose.lines.assembler import RecordAssembler, guard_openers
from diagnose.lines.reader import LineReader

__all__ = ["LineReader", "RecordAssembler", "guard_openers"]
