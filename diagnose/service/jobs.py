"""What the parts of a service hand to each other: a job as it was handed in, who has taken it up, what came of it.

In: nothing. Out: frozen types, and `digest`, by which names are made.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from diagnose.dataclass import dataclass
from diagnose.errors import UsageError

Projects = frozenset[str] | None  # None: all
FINAL: Final = ("done", "error")
OPEN: Final = ("queued", "running", "rules_done")
OVERDUE: Final = 60.0  # seconds after which a job is taken up though nobody says that its last ranks have spoken


@dataclass(frozen=True, slots=True)
class InputRef:
    """One input: where its bytes are, and what is said of it. `role` is `job`, `kernel` or `scheduler`."""

    role: str
    path: str | None = None
    uri: str | None = None
    upload: str | None = None
    source: str | None = None
    host: str | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Uploaded:
    """Bytes that lie in the spool, and whose they are."""

    id: str
    project: str
    name: str
    size: int
    sha256: str
    key_id: str


@dataclass(frozen=True, slots=True)
class NewJob:
    """One attempt of a job, as it was handed in. Times are seconds since the epoch.

    Before `due` nobody takes it up unless its last ranks are known to have spoken.
    """

    job_id: str
    project: str = ""
    cluster: str = ""
    attempt: int = 0
    scheduler: str = ""
    name: str = ""
    user: str = ""
    image: str = ""
    nodes: tuple[str, ...] = ()
    gpus: int | None = None
    code: int | None = None
    signal: int | None = None
    state: str | None = None
    started: float | None = None
    ended: float | None = None
    inputs: tuple[InputRef, ...] = ()
    callback: str | None = None
    key_id: str = ""
    due: float | None = None

    @property
    def id(self) -> str:
        """The name of its resource: the same for the same attempt, also while no database can be asked."""
        return f"d{digest(self.project, self.cluster, self.job_id, str(self.attempt))[:24]}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a diagnosis: its renderings, and what lists show of it."""

    report: str
    markdown: str
    screen: str
    status: str
    error_type: str | None
    attribution: str | None
    sureness: str | None
    summary: str
    job_action: str
    rule: str | None
    layout: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that somebody has taken up; what came of it must bear its epoch.

    `remembered` is the attempt in the memory that an earlier diagnosis of it has become.
    """

    id: str
    epoch: int
    tries: int
    job: NewJob
    remembered: int | None = None


@dataclass(frozen=True, slots=True)
class Filters:
    """What a list is to hold; None and empty: whatever."""

    state: str | None = None
    status: str | None = None
    error_type: str | None = None
    attribution: str | None = None
    cluster: str | None = None
    project: str | None = None
    job_id: str | None = None
    user: str | None = None
    name: str | None = None
    rule: str | None = None
    text: str | None = None
    since: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """Whom to tell of changes of state: the service's own receiver, beside a job's callback."""

    to: str | None = None
    callbacks: bool = True


class Conflict(UsageError):
    """The request contradicts what is there."""


class Absent(UsageError):
    """There is no such thing, or not for whoever asks."""


def digest(*parts: str) -> str:
    """A name made of parts."""
    return sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()
