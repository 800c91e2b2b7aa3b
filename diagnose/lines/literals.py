"""What the lines package needs to see whatever a filter says: openers of records, ends, restarts, facts of units.

In: nothing. Out: `guard_keywords()`.
"""

from __future__ import annotations

from diagnose.lines.assembler import guard_openers
from diagnose.lines.attempts import attempt_literals
from diagnose.lines.inventory import inventory_literals
from diagnose.lines.progress import progress_literals
from diagnose.lines.timeline import BOOT


def guard_keywords() -> tuple[str, ...]:
    """All literals of this package for the guard, each once, in a fixed order."""
    own = (*guard_openers(), *progress_literals(), *attempt_literals(), *inventory_literals(), BOOT)
    return tuple(dict.fromkeys(own))
