"""What an exception says by itself: its class, and the operating system's number where the class says nothing."""

from __future__ import annotations

import pytest

from diagnose.lines.tracebacks import parse_traceback
from diagnose.models import Line, LogSource, RaisedException, Record
from diagnose.rules.intrinsic import deciding_exception, error_type_of

KNOWN = {"OSError": None, "KeyError": None, "ConnectionError": None, "RuntimeError": None}


@pytest.mark.parametrize(
    ("name", "message", "error_type"),
    [
        ("OSError", "[Errno 101] Network is unreachable", "ConnectionError"),
        ("OSError", "[Errno 113] No route to host", "ConnectionError"),
        ("socket.error", "[Errno 111] Connection refused", "ConnectionError"),
        ("OSError", "[Errno 110] Connection timed out", "ConnectionError"),
        ("OSError", "[Errno 104] Connection reset by peer", "PeerClosed"),
        # A file that a server does not give is no connection of the program's own.
        ("OSError", "[Errno 110] Connection timed out: '/scratch/a.idx'", "OSError"),
        ("OSError", "[Errno 22] Invalid argument", "OSError"),
        ("OSError", "cannot read the header", "OSError"),
        ("KeyError", "[Errno 101] x", "KeyError"),
        ("tensorflow.python.framework.errors_impl.DataLossError", "Graph execution error:", "DatasetLoadingError"),
        ("tensorflow.python.framework.errors_impl.InvalidArgumentError", "x", "ValueError"),
        ("botched.MysteryError", "x", "RuntimeError"),
    ],
)
def test_the_error_type_of_an_exception(name: str, message: str, error_type: str) -> None:
    assert error_type_of(RaisedException(name, message, (), 0), KNOWN) == error_type


def told(text: str) -> tuple[str, int]:
    source = LogSource("job.log")
    lines = tuple(Line(source, number, line, line, "job.log") for number, line in enumerate(text.splitlines(), 1))
    record = Record("traceback", lines, text, exceptions=parse_traceback(text))
    found = deciding_exception(record)
    assert found is not None
    return found.name, lines[found.line_index].number


OPEN = 'Traceback (most recent call last):\n  File "/job/train.py", line 9, in <module>\n    step()\n'


@pytest.mark.parametrize(
    ("raised", "name", "line"),
    [
        (
            "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\nPermissionError: no\n",
            "PermissionError",
            5,
        ),
        ("torch._inductor.exc.InductorError: OSError: [Errno 28] No space left\n", "OSError", 4),
        ("odd.CompileFailed: step failed\n", "CompileFailed", 4),
        # What the message only mentions is not what was raised.
        ("odd.CompileFailed: see KeyError: x\n", "CompileFailed", 4),
        ("odd.CompileFailed: while compiling\nFoo: bar\n", "CompileFailed", 4),
        # A class that says something itself speaks for itself.
        ("ValueError: KeyError: 'x'\n", "ValueError", 4),
    ],
)
def test_a_wrapper_s_message_holds_what_was_raised(raised: str, name: str, line: int) -> None:
    assert told(OPEN + raised) == (name, line)
