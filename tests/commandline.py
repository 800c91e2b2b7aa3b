"""The command line as tests call it: within this process, and as a process of its own."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest

from diagnose.cli import main

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FIXTURES = os.path.join(ROOT, "tests", "fixtures")
# A process that hears Ctrl-C even where the tests themselves run in the background.
_START = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "[signal.signal(number, signal.SIG_DFL) for number in (signal.SIGHUP, signal.SIGTERM)]; "
    "from diagnose.cli import main; sys.argv[0] = 'diagnose'; sys.exit(main())"
)

FAILED = "Traceback (most recent call last):\n  File \"/job/train.py\", line 3, in <module>\n    f()\nKeyError: 'x'\n"
HEALTHY = os.path.join(FIXTURES, "healthy", "bar-to-the-end-exit0", "bar.log")


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str


Call = Callable[..., Outcome]


def caller(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """A function that runs the command line in this process: `call(*arguments, stdin=b"")`."""

    def call(*arguments: str, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        try:
            code = main(arguments)
        except SystemExit as left:  # argparse
            code = left.code if isinstance(left.code, int) else 2
        told = capsys.readouterr()
        return Outcome(code, told.out, told.err)

    return call


def environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a process that finds the package and no terminal settings."""
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    return {**kept, "PYTHONPATH": ROOT, **(changes or {})}


def start(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """The command line as a process with pipes."""
    return subprocess.Popen(
        [sys.executable, "-c", _START, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(env),
    )
