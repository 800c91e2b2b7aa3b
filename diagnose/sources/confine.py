"""Whether a file lies below the folders that a service may read, whatever links lead to it.

In: a path or an open descriptor, and roots as absolute real paths. Out: yes or no. A path is judged before it is
looked at, and the file once more after it was opened, since a link may change in between.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

OUTSIDE = "lies outside the folders that may be read here; ask whoever runs the service"


def inside(path: str, roots: Sequence[str]) -> bool:
    """Whether a path leads below one of the roots, links followed. A path that cannot be judged does not."""
    try:
        real = os.path.realpath(path)
    except (OSError, ValueError):
        return False
    return _below(real, roots)


def opened_inside(descriptor: int, path: str, roots: Sequence[str]) -> bool:
    """Whether an open file lies below one of the roots."""
    try:
        real = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:  # no such system: the path again, and that it is still this file
        try:
            return inside(path, roots) and os.path.samestat(os.fstat(descriptor), os.stat(os.path.realpath(path)))
        except (OSError, ValueError):
            return False
    return _below(real, roots)


def _below(real: str, roots: Sequence[str]) -> bool:
    return any(real == root or real.startswith(root.rstrip("/") + "/") for root in roots)
