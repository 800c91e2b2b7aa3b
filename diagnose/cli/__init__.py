"""The command line: arguments in, a rendered report and an exit code out. No logic of its own."""

from diagnose.cli.main import main

__all__ = ["main"]
