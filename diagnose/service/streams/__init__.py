"""Logs that are sent while their job runs: chunks in, by offset; files to diagnose out.

In: `Chunk`s, each with the place in the log where it begins. Out: how far the log is known, once the bytes are on disk;
and, at any time, a directory with all logs of a job.

`taking` is the door, `model` what goes in and out of it. A log lies in *segments*, one for each range of the compressor
(`compress/ranges.py`). A segment that is full is *sealed*: compressed onto the end of the kept log, and then deleted.
So of each log there is a kept log up to the last border and the bytes since, nothing is held in memory between two
chunks, and a process that dies leaves nothing to be made again: `state` names what is sealed, and what it does not name
is not there. Kept logs that are sent are bytes like any other, and never sealed.

A log that is begun anew (rotated, truncated) is a new *generation*; the old one is kept under its name and a number, as
`logrotate` has it.
"""

from diagnose.service.streams.model import (
    Appended,
    BadEncoding,
    BadKeptLog,
    Chunk,
    ChunkTooLarge,
    Form,
    Gap,
    GuardDiffers,
    JobKey,
    OldGeneration,
    SpoolFull,
    StreamBounds,
    StreamError,
    TooMuch,
)
from diagnose.service.streams.progress import Progress
from diagnose.service.streams.snapshots import snapshot_of
from diagnose.service.streams.taking import Streams

__all__ = [
    "Appended",
    "BadEncoding",
    "BadKeptLog",
    "Chunk",
    "ChunkTooLarge",
    "Form",
    "Gap",
    "GuardDiffers",
    "JobKey",
    "OldGeneration",
    "Progress",
    "SpoolFull",
    "StreamBounds",
    "StreamError",
    "Streams",
    "TooMuch",
    "snapshot_of",
]
