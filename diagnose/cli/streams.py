"""The standard streams: closed ones, full ones, and what is said on standard error.

In: what is to be said. Out: nothing, and no error either: where nobody listens, the exit code still says it. Python
flushes both streams once more when it ends and would turn any exit code into 120 if one of them fails then.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO


def open_closed() -> None:
    """Gives a process that was started without one of the standard streams an empty one."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - as long as the process
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def say(text: str) -> None:
    """Writes a line to standard error. Names, which anybody may have given to files, cannot drive the terminal."""
    shown = "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)
    with contextlib.suppress(OSError, ValueError):
        print(shown, file=sys.stderr, flush=True)


def tell(message: str) -> None:
    """Says something in the name of the tool."""
    say(f"diagnose: {message}")


def forget(stream: TextIO) -> None:
    """Lets what a stream still holds go nowhere."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def forget_unheard() -> None:
    """Forgets what could not be said on standard error."""
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        forget(sys.stderr)
