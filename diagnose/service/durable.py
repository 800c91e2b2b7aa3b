"""What is on disk once it is said to be: the names in a directory."""

from __future__ import annotations

import os


def sync(folder: str) -> None:
    """Has the names in a directory on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
