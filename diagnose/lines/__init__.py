"""Kept lines to lines, records, progress, attempts and the inventory of units."""

from diagnose.lines.assembler import RecordAssembler, guard_openers
from diagnose.lines.attempts import AttemptTracker, Boundary, align
from diagnose.lines.inventory import Inventory
from diagnose.lines.literals import guard_keywords
from diagnose.lines.order import Restored, restore
from diagnose.lines.progress import ProgressReader
from diagnose.lines.reader import LineReader
from diagnose.lines.stamps import Calendar
from diagnose.lines.units import normalise_pci

__all__ = [
    "AttemptTracker",
    "Boundary",
    "Calendar",
    "Inventory",
    "LineReader",
    "ProgressReader",
    "RecordAssembler",
    "Restored",
    "align",
    "guard_keywords",
    "guard_openers",
    "normalise_pci",
    "restore",
]
