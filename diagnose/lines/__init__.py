"""Kept lines to lines, records, progress, attempts and the inventory of units."""

from diagnose.lines.assembler import RecordAssembler, guard_openers
from diagnose.lines.literals import guard_keywords
from diagnose.lines.order import Restored, restore
from diagnose.lines.reader import LineReader
from diagnose.lines.stamps import Calendar

__all__ = ["Calendar", "LineReader", "RecordAssembler", "Restored", "guard_keywords", "guard_openers", "restore"]
