"""Kept lines to lines, records, progress, attempts and the inventory of units."""

from diagnose.lines.assembler import RecordAssembler, guard_openers

__all__ = ["RecordAssembler", "guard_openers"]
