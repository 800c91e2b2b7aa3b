"""A call that somebody else's server may never answer, given up after so many seconds.

In: a call and seconds. Out: what it returns or raises in time, else `TimeoutError`. Time-outs of HTTP clients count
from byte to byte, and some calls have none: here the whole call is counted. What was given up goes on in a thread that
nobody waits for, not even the end of the process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, call: Callable[[], T]) -> T:
    """What the call returns, or raises, within so many seconds; else raises `TimeoutError`."""
    returned: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            returned.append(call())
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True, name="diagnose-call")
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not returned:
        raise TimeoutError
    return returned[0]
