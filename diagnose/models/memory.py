"""What past failures were, and how others read them: the incidents of the memory, a job's identity.

In: nothing. Out: `JobContext` (who a job is), `Incident` (what a past failure came to), `Particulars` (what a memory
keeps of a run beside its report), and the protocol by which retrieval, the learning loop and evaluation read incidents
without knowing where they are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, Protocol

from diagnose.dataclass import dataclass, field
from diagnose.models.report import ReportStatus
from diagnose.models.rule import AttributionName

IncidentStage = Literal["rules", "retrieval", "failure_agent", "person", "none"]


@dataclass(frozen=True, slots=True)
class Workload:
    """What is started again and again: the same name, user and image. A job's id is no part of it."""

    name: str = ""
    user: str = ""
    image: str = ""

    @property
    def known(self) -> bool:
        """Whether it tells workloads apart at all: without a name it does not."""
        return bool(self.name)


@dataclass(frozen=True, slots=True)
class JobContext:
    """Who a job is, as far as the command line, the environment or its inputs say."""

    id: str = ""
    name: str = ""
    user: str = ""
    image: str = ""
    cluster: str = ""
    project: str = ""

    @property
    def workload(self) -> Workload:
        """The workload that this job is one run of."""
        return Workload(self.name, self.user, self.image)


@dataclass(frozen=True, slots=True)
class Target:
    """A host that an action may be about. `presumed`: no line of the finding names it; `asks`: its driver's word."""

    host: str
    gpu: str | None = None
    presumed: bool = False
    asks: str = ""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """All that the policy looks at, as plain data, so that a verdict can be replayed under another policy.

    `tests` holds the answers to the questions of `rules/policy.py`; `physical` whether a kernel or scheduler line
    stands behind the verdict; `repeats` how often this workload failed alike; `drained` and `nodes` what is left of the
    budget of drains.
    """

    status: ReportStatus
    error_type: str | None = None
    attribution: AttributionName | None = None
    tests: Mapping[str, bool] = field(default_factory=dict)
    targets: tuple[Target, ...] = ()
    physical: bool = False
    checkpoint: str | None = None
    repeats: int = 0
    drained: int = 0
    nodes: int | None = None


@dataclass(frozen=True, slots=True)
class Particulars:
    """What a memory keeps of a run beside its report. Times are seconds since the epoch, None where no date is known.

    `place` is where in the code the failure arose; `hosts` are those that the job is known to have run on, `gpus` how
    many it had. `circumstances` know nothing of other jobs: what the history said can be asked again.
    """

    circumstances: Circumstances
    job: str | None = None
    place: str = ""
    hosts: tuple[str, ...] = ()
    gpus: int | None = None
    started: float | None = None
    ended: float | None = None


@dataclass(frozen=True, slots=True)
class Incident:
    """A past failure: what it was, whether a person has confirmed it, what was done and whether that helped.

    `text` holds the redacted deciding lines and their surroundings, one a line: what retrieval reads. `summary` is one
    sentence, redacted as well. `rule` is the diagnosis rule that decided, None where none did. `job` is the recovery
    of the job that was tried; `recovered` whether it worked, None where not known. `created` is ISO 8601 in UTC.
    `revision` grows with every change of any incident of one store: whoever copies incidents remembers the highest.
    `accepted` are error types that are right as well, where more than one name fits.
    """

    id: str
    error_type: str | None
    attribution: AttributionName | None = None
    status: ReportStatus = "failed"
    summary: str = ""
    text: str = ""
    job: str | None = None
    recovered: bool | None = None
    confirmed: bool = False
    decided_by: IncidentStage = "none"
    rule: str | None = None
    created: str = ""
    context: JobContext = JobContext()
    culprits: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    origin: str = ""
    revision: int = 0
    accepted: tuple[str, ...] = ()


class Incidents(Protocol):
    """The incidents of a memory, read in order of id or of revision without holding all of them."""

    def __iter__(self) -> Iterator[Incident]:
        """All incidents, in order of id."""
        ...

    def __len__(self) -> int:
        """How many there are."""
        ...

    def get(self, id: str) -> Incident | None:
        """One incident, None where there is none of that id."""
        ...

    def many(self, ids: Sequence[str]) -> tuple[Incident, ...]:
        """Those of the given ids that there are, in the order asked for."""
        ...

    def changed_since(self, revision: int) -> Iterator[Incident]:
        """What was added or changed after a revision, in order of revision; 0 gives all."""
        ...

    def removed_since(self, revision: int) -> Iterator[tuple[int, str]]:
        """Revision and id of incidents that were deleted after a revision, in order of revision."""
        ...

    def revision(self) -> int:
        """The latest revision of the store."""
        ...
