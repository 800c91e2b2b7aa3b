"""The console script: Ctrl-C ends it with a word and 130 however early it comes, also while modules are loaded.

In: nothing. Out: the exit code. Imports next to nothing itself.
"""

import signal
import sys

INTERRUPTED = 130


def main() -> int:
    """Run the command line."""
    # Loaded code may turn an exception that comes from outside into one of its own: here the process just ends.
    listening = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if listening:
        signal.signal(signal.SIGINT, _end)
    from diagnose.cli.main import main as run

    if listening:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return run()
    except KeyboardInterrupt:
        return _told()


def _told() -> int:
    try:
        sys.stderr.write("\ndiagnose: interrupted\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # closed or full: the exit code says it
        pass
    return INTERRUPTED


def _end(_number: int, _frame: object) -> None:
    import os

    try:
        _told()
    finally:
        os._exit(INTERRUPTED)
