"""Slurm's own commands, run.

In: a command and its arguments, no shell. Out: what it prints, bounded in size and time. `Run` is what tests put in its
place.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from typing import Final

_COMMAND_SECONDS: Final = 20.0
_MOST_OUTPUT: Final = 4 * 1024 * 1024

Run = Callable[[Sequence[str]], str | None]


def run_command(command: Sequence[str]) -> str | None:
    """What one of Slurm's commands prints; None where it cannot be run or fails."""
    told = told_by(command)
    return None if told[0] != 0 else told[1]


def told_by(command: Sequence[str]) -> tuple[int | None, str, str]:
    """The exit code, standard output and standard error of a command."""
    try:
        done = subprocess.run(  # noqa: S603 - Slurm's own commands, no shell
            list(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_COMMAND_SECONDS,
            check=False,
            env={**os.environ, "LC_ALL": "C.UTF-8", "SLURM_TIME_FORMAT": "standard", "SACCT_FORMAT": ""},
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return None, "", str(error)
    out, err = (text[:_MOST_OUTPUT].decode("utf-8", "replace") for text in (done.stdout, done.stderr))
    return done.returncode, out, err
