"""Compression: routine lines out, guarded and unknown lines through, progress sampled.

In: the bytes of one source, filter rules, the literals that must never be lost. Out: `KeptLine`s and counts.
Start reading in `compressor.py`.
"""

from diagnose.compress.bars import is_bar
from diagnose.compress.compressor import Compressor
from diagnose.compress.filters import CompiledFilter, Filters
from diagnose.compress.guard import Guard
from diagnose.compress.hold import RECORD_HOLD_LINES, RECORD_OPENERS
from diagnose.compress.passthrough import PassThrough
from diagnose.compress.prefix import PREFIX, expand
from diagnose.compress.ranges import RANGE_BYTES, Ranges, add_counts, range_blocks
from diagnose.compress.relax import relax, template
from diagnose.compress.repeats import Listeners
from diagnose.compress.routine import Routine

__all__ = [
    "PREFIX",
    "RANGE_BYTES",
    "RECORD_HOLD_LINES",
    "RECORD_OPENERS",
    "CompiledFilter",
    "Compressor",
    "Filters",
    "Guard",
    "Listeners",
    "PassThrough",
    "Ranges",
    "Routine",
    "add_counts",
    "expand",
    "is_bar",
    "range_blocks",
    "relax",
    "template",
]
