"""The inputs of a case as a request to the pipeline.

In: a case's arguments. Out: a `Request`; its paths are relative to the case's folder, as its labels are.
"""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.pipeline import Request


def request_of(inputs: Sequence[str]) -> Request:
    """The request that the command line would make of these arguments."""
    paths: list[str] = []
    kernel: list[str] = []
    scheduler: list[str] = []
    inventory: str | None = None
    words = iter(inputs)
    for word in words:
        if word == "--kernel-log":
            kernel.append(next(words))
        elif word == "--scheduler-record":
            scheduler.append(next(words))
        elif word == "--inventory":
            inventory = next(words)
        else:
            paths.append(word)
    return Request(paths, kernel, scheduler, inventory)
