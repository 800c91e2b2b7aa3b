"""When a process looks for garbage: what is made before the first line lasts, and lines and records leave little.

In: nothing. Out: the garbage collector of this process, set for reading logs.
"""

from __future__ import annotations

import gc
from typing import Final

_YOUNG: Final = 100_000
"""Objects before garbage is looked for; Python's own 700 is often, where blocks of lines are made and let go."""


def settle() -> None:
    """Leaves all that is there out of the search from now on, and searches more rarely."""
    gc.freeze()
    gc.set_threshold(_YOUNG)
    gc.enable()
