"""What streams take and tell: chunks of a log, whose it is, how far it is known, and why a chunk is refused.

In: nothing. Out: frozen types, and the errors with which a chunk is not taken.
"""

from __future__ import annotations

from typing import Literal

from diagnose.dataclass import dataclass
from diagnose.errors import DiagnoseError

Form = Literal["raw", "kept"]


class StreamError(DiagnoseError):
    """A chunk cannot be taken; `kind` names the reason for programs."""

    kind = "stream-error"


class Gap(StreamError):
    """A chunk begins behind the end of what is known; `offset` is where that is."""

    kind = "offset-gap"

    def __init__(self, message: str, offset: int, generation: int) -> None:
        super().__init__(message)
        self.offset, self.generation = offset, generation


class OldGeneration(StreamError):
    """A chunk of a log that was begun anew since; `generation` is the current one."""

    kind = "old-generation"

    def __init__(self, message: str, generation: int) -> None:
        super().__init__(message)
        self.generation = generation


class GuardDiffers(StreamError):
    """The sender chose lines by other rules: the log itself is wanted."""

    kind = "guard-differs"


class ChunkTooLarge(StreamError):
    """One chunk is larger than a chunk may be."""

    kind = "chunk-too-large"


class BadEncoding(StreamError):
    """A chunk cannot be expanded."""

    kind = "bad-encoding"


class BadKeptLog(StreamError):
    """What is sent as a kept log is none."""

    kind = "bad-kept-log"


class TooMuch(StreamError):
    """A log, or a job's number of logs, is beyond its bound."""

    kind = "too-much"


class SpoolFull(StreamError):
    """There is no room on the disk, or none left of the bound."""

    kind = "spool-full"


@dataclass(frozen=True, slots=True)
class StreamBounds:
    """What streams may take: sizes in bytes. Beyond `generations` the oldest are dropped.

    A job to which something comes after it was handed in is handed in `again` so many times.
    """

    chunk_bytes: int = 4 * 1024 * 1024
    log_bytes: int = 64 * 1024**3
    logs: int = 5_000
    generations: int = 20
    again: int = 3
    spool_bytes: int = 50 * 1024**3


@dataclass(frozen=True, slots=True)
class JobKey:
    """One attempt of a job."""

    project: str
    cluster: str
    job_id: str
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Appended:
    """How far a log is known: `offset` is where the next chunk begins. `new` bytes were not known before."""

    generation: int
    offset: int
    new: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of the log `name` that begin at its byte `offset`.

    `generation` counts up from 0 each time the log begins anew; None means the current one. One that is the same log
    sent `again` takes the place of the one before. Kept logs (`form`) must say by which `guard` they are made.
    """

    name: str
    data: bytes
    offset: int
    generation: int | None = None
    again: bool = False
    form: Form = "raw"
    guard: str | None = None
