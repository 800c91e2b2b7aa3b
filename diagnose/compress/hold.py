"""Where records open, and how long compression keeps everything after that.

In: nothing. Out: `RECORD_OPENERS` and `RECORD_HOLD_LINES`, which `lines` shares: its assembler closes a record when
more than that many raw lines passed since the record's last line, so that records do not depend on compression.
"""

from __future__ import annotations

from typing import Final

RECORD_OPENERS: Final[tuple[str, ...]] = (
    "Traceback (most recent call last)",  # boxed by rich too
    "During handling of the above",
    "The above exception was the direct cause",
    "Exception raised from",
    "frame #0",
    "terminate called after",
    "Fatal Python error",
    "Current thread 0x",
    "*** Process received signal ***",
    "*** stack trace",
    "Stack trace:",
    "==== backtrace",
    "Root Cause (first observed failure)",
    "ChildFailedError",
    '"message": {',
    '"message":{',
    '"extraInfo"',
    "Call Trace:",
    "Modules linked in:",
    "invoked oom-killer",
    "[ cut here ]",
    "Mem-Info:",
)
RECORD_HOLD_LINES: Final = 64
