"""The bytes of a log on their way to disk: each range of the compressor in a segment of its own.

In: bytes that follow on what is known. Out: the same in segments, all of them or none. Raises `TooMuch` for lines that
never end.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

from diagnose.compress.ranges import next_border
from diagnose.service.durable import sync
from diagnose.service.streams import disk, layout
from diagnose.service.streams.model import TooMuch

_LONGEST: Final = 64 * 1024 * 1024  # behind a border a line may go on for so long


def write(folder: str, current: layout.Generation, known: int, data: bytes) -> bool:
    """Put bytes behind what is known, on disk; say whether there is a segment to seal."""
    full = False
    starts = layout.segments(folder, current.number)
    start = starts[-1] if starts else current.border
    if starts and _is_full(layout.segment(folder, current.number, start), known, start):
        start, full = known, True
    done: list[tuple[str, int]] = []
    try:
        while data:
            part = data
            if current.form == "raw":
                end = _border_in(data, known, next_border(start))
                part = data[:end] if end else data
                _bounded(known + len(part), start)
            path = layout.segment(folder, current.number, start)
            done.append((path, known - start))
            disk.append(path, part, known - start)
            known += len(part)
            data = data[len(part) :]
            if data:
                start, full = known, True
    except (OSError, TooMuch):
        for path, size in reversed(done):
            with contextlib.suppress(OSError):
                os.truncate(path, size)
        raise
    if full or not starts:
        sync(folder)
    return full and current.form == "raw"


def differ(folder: str, current: layout.Generation, offset: int, data: bytes) -> bool:
    """Whether bytes that come again are others than those that are there; of what is sealed nobody can tell."""
    for start in layout.segments(folder, current.number, current.border):
        with open(layout.segment(folder, current.number, start), "rb") as file:
            end = min(offset + len(data), start + os.fstat(file.fileno()).st_size)
            begin = max(offset, start)
            if begin < end:
                file.seek(begin - start)
                if file.read(end - begin) != data[begin - offset : end - offset]:
                    return True
    return False


def _border_in(data: bytes, known: int, border: int) -> int:
    """Where in a chunk that begins at byte `known` the range ends, 0 where it does not, or only with the chunk."""
    if known + len(data) <= border:
        return 0
    return data.find(b"\n", max(0, border - known)) + 1


def _is_full(path: str, known: int, start: int) -> bool:
    """Whether a range ended with the last chunk: then the line that ends it is its last."""
    if known <= next_border(start):
        return False
    with open(path, "rb") as file:
        file.seek(known - start - 1)
        return file.read(1) == b"\n"


def _bounded(end: int, start: int) -> None:
    if end > next_border(start) + _LONGEST:
        raise TooMuch(f"a line of more than {_LONGEST} bytes; the rest of this log is not taken")
