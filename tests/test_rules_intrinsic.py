"""What an exception says by itself: its class, and the operating system's number where the class says nothing."""

from __future__ import annotations

import pytest

from diagnose.models import RaisedException
from diagnose.rules.intrinsic import error_type_of

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
