"""What goes over the wire, in and out, as pydantic models: the REST contract of `/v1`.

In: JSON. Out: checked values. Reports themselves are not modelled here: they are `diagnose.report/v1`, as the command
line prints it. Every text is bounded, every unknown field refused: a typing error in a hook must not pass in silence.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, model_validator

STATES: Final = ("queued", "running", "rules_done", "done", "error")
State = Literal["queued", "running", "rules_done", "done", "error"]
Status = Literal["failed", "no_failure", "inconclusive"]
Attribution = Literal["infrastructure", "user", "scheduler", "unknown"]

# Printable on one line: what is shown in lists, headers and tickets holds no control characters.
_LINE: Final = r"^[^\x00-\x1f\x7f]*$"
Word = Annotated[str, StringConstraints(max_length=200, pattern=_LINE)]
Words = Annotated[str, StringConstraints(max_length=1000, pattern=_LINE)]
Host = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=_LINE)]
JobNumber = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=_LINE)]
Path = Annotated[str, StringConstraints(min_length=1, max_length=4096, pattern=r"^/[^\x00]*$")]
Name = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]+$")]
Note = Annotated[str, StringConstraints(max_length=4000, pattern=r"^[^\x00]*$")]
Address = Annotated[str, StringConstraints(max_length=2000, pattern=r"^https?://[^\x00-\x20\x7f]+$")]
Seconds = Annotated[float, Field(ge=0, lt=4e9)]

MOST_LOGS: Final = 5_000
MOST_NODES: Final = 20_000


class _In(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=False)


class _Out(BaseModel):
    model_config = ConfigDict(frozen=True)


class Exit(_In):
    """How the job ended, as the scheduler says: exit code, signal number, the scheduler's own word for its state."""

    code: Annotated[int, Field(ge=-255, le=2**31 - 1)] | None = None
    signal: Annotated[int, Field(ge=0, le=255)] | None = None
    state: Word | None = None


class Log(_In):
    """One input: exactly one of `path` (on the server, below an allowed root), `uri` or `upload`.

    `source` is the name by which the report calls it, such as `ranks/r3.err`; `host` and `rank` say what the name does
    not.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"path": "/scratch/ada/slurm-4711.out"}]})

    path: Path | None = None
    uri: Annotated[str, StringConstraints(min_length=1, max_length=4096, pattern=r"^[^\x00-\x20\x7f]+$")] | None = None
    upload: Annotated[str, StringConstraints(pattern=r"^u[0-9a-f]{20}$")] | None = None
    source: Name | None = None
    host: Host | None = None
    rank: Annotated[int, Field(ge=0, le=10_000_000)] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(one is not None for one in (self.path, self.uri, self.upload)) != 1:
            raise ValueError("a log is given by exactly one of path, uri and upload")
        return self


_Logs = Annotated[list[Log], Field(max_length=MOST_LOGS)]


class Submission(_In):
    """A job to diagnose. (project, cluster, job_id, attempt) is unique: sent again, it is the same resource."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "scheduler": "slurm",
                    "cluster": "gx",
                    "job_id": "4711",
                    "attempt": 0,
                    "name": "qx7b",
                    "user": "ada",
                    "nodes": ["gx-012", "gx-043"],
                    "gpus": 16,
                    "exit": {"code": 1, "state": "FAILED"},
                    "started_at": "2026-09-14T01:00:00Z",
                    "ended_at": "2026-09-14T01:20:00Z",
                    "logs": [{"path": "/scratch/ada/slurm-4711.out"}],
                }
            ]
        }
    )

    job_id: JobNumber
    cluster: Word = ""
    attempt: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    project: Word | None = Field(None, description="needed only where the key is bound to several projects")
    scheduler: Word = ""
    name: Annotated[str, StringConstraints(max_length=500, pattern=_LINE)] = ""
    user: Word = ""
    image: Words = ""
    nodes: Annotated[list[Host], Field(max_length=MOST_NODES)] = []
    gpus: Annotated[int, Field(ge=0, le=10_000_000)] | None = None
    exit: Exit = Exit()
    started_at: AwareDatetime | None = None
    ended_at: AwareDatetime | None = None
    logs: _Logs = []
    kernel_logs: _Logs = []
    scheduler_records: _Logs = []
    callback: Annotated[str, StringConstraints(max_length=2000, pattern=r"^https?://[^\x00-\x20\x7f]+$")] | None = (
        Field(None, description="told of every change of state, by Standard Webhooks")
    )

    @model_validator(mode="after")
    def _some(self) -> Self:
        count = len(self.logs) + len(self.kernel_logs) + len(self.scheduler_records)
        if count > MOST_LOGS:
            raise ValueError(f"more than {MOST_LOGS} inputs; give a directory or an archive")
        if self.started_at and self.ended_at and self.ended_at < self.started_at:
            raise ValueError("ended_at lies before started_at")
        return self


class MoreInputs(_In):
    """Inputs that came later, such as the kernel log of a node: the job is diagnosed again with them."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"kernel_logs": [{"path": "/var/log/gx-043.dmesg", "host": "gx-043"}]}]}
    )

    logs: _Logs = []
    kernel_logs: _Logs = []
    scheduler_records: _Logs = []

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not (self.logs or self.kernel_logs or self.scheduler_records):
            raise ValueError("no input: give logs, kernel_logs or scheduler_records")
        return self


class Feedback(_In):
    """What a person says of a verdict.

    `confirm`: it is right. `correct`: it was `error_type`. `outcome`: whether what was done about it helped.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"kind": "correct", "error_type": "NetworkError", "note": "the cable"}]}
    )

    kind: Literal["confirm", "correct", "outcome"]
    error_type: Word | None = None
    attribution: Attribution | None = None
    recovered: bool | None = None
    note: Note = ""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.kind == "correct" and not self.error_type:
            raise ValueError("correct needs error_type: what it really was")
        if self.kind == "outcome" and self.recovered is None:
            raise ValueError("outcome needs recovered: true or false")
        if self.kind != "correct" and (self.error_type or self.attribution):
            raise ValueError("error_type and attribution go with correct only")
        return self


class Verdict(_Out):
    """The verdict in short, where there is one."""

    status: Status
    error_type: str | None
    attribution: Attribution | None
    sureness: Literal["confirmed", "likely", "possible"] | None
    summary: str
    job_action: str
    rule: str | None


class Diagnosis(_Out):
    """The resource of one attempt of a job: how far its diagnosis is, and where the report is."""

    schema_: Literal["diagnose.diagnosis/v1"] = Field("diagnose.diagnosis/v1", alias="schema")
    id: str
    state: State
    project: str
    cluster: str
    job_id: str
    attempt: int
    scheduler: str
    name: str
    user: str
    image: str
    nodes: list[str]
    gpus: int | None
    exit: Exit
    started_at: str | None
    ended_at: str | None
    created_at: str
    updated_at: str
    revision: int = Field(description="grows each time the job is diagnosed again with more inputs")
    verdict: Verdict | None
    incident: str | None
    error: str | None = Field(description="why there is no report, where the state is error")
    report: str = Field(description="path of the report")


class Page(_Out):
    """A page of diagnoses, the newest first; `next` is the cursor of the following one."""

    items: list[Diagnosis]
    next: str | None


class Upload(_Out):
    """Bytes that were put on the server; a submission names them by `id`. Unused ones are deleted after a day."""

    id: str
    name: str
    size: int
    sha256: str


class LostBytes(_In):
    """Bytes of a log that were gone before they could be sent: its name, and about how many."""

    name: Annotated[str, StringConstraints(max_length=500, pattern=_LINE)]
    bytes: Annotated[int, Field(ge=0, le=1 << 60)]


class End(_In):
    """A job has ended: what its scheduler says of it, as in a `Submission`. Its logs are those that were streamed."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"scheduler": "slurm", "nodes": ["gx-012"], "exit": {"code": 1}}]}
    )

    scheduler: Word = ""
    name: Annotated[str, StringConstraints(max_length=500, pattern=_LINE)] = ""
    user: Word = ""
    image: Words = ""
    nodes: Annotated[list[Host], Field(max_length=MOST_NODES)] = []
    gpus: Annotated[int, Field(ge=0, le=10_000_000)] | None = None
    exit: Exit = Exit()
    started_at: AwareDatetime | None = None
    ended_at: AwareDatetime | None = None
    lost: Annotated[list[LostBytes], Field(max_length=100, description="the report's coverage tells it")] = []


class Ended(_Out):
    """The job is diagnosed once its last ranks have spoken; `report` is where that will be."""

    id: str
    report: str
    new: bool = Field(description="false where it was said before")


class Known(_Out):
    """How far a streamed log is known: `offset` is where its next chunk begins; kept logs must be made by `guard`."""

    generation: int
    offset: int
    new: int = 0
    guard: str | None = None


class Similar(_Out):
    """A past incident that reads like this failure. Of other projects there is type and outcome, no text."""

    id: str | None
    error_type: str | None
    similarity: float
    recovered: bool | None
    summary: str | None
    project: str | None


class SimilarList(_Out):
    """Past incidents that read alike, best first."""

    items: list[Similar]


class Said(_Out):
    """What became of feedback."""

    incident: str
    error_type: str | None
    confirmed: bool
    recovered: bool | None


class Problem(_Out):
    """An error, as RFC 9457 has it (`application/problem+json`)."""

    type: str
    title: str
    status: int
    detail: str
    instance: str = Field(description="the request's id, as in the server's log")
    errors: list[dict[str, Any]] | None = None


class RuleItem(_Out):
    """A diagnosis rule in short."""

    id: str
    title: str
    error_type: str
    status: str
    role: str


class RuleList(_Out):
    """All diagnosis rules of the service, and which release they are of."""

    ruleset: str
    items: list[RuleItem]


class Rule(RuleItem):
    """A diagnosis rule: what it looks for, and what it says."""

    body: dict[str, Any] = Field(description="the rule as in `rules/diagnoses`")


class ErrorTypeItem(_Out):
    """A row of the taxonomy."""

    name: str
    family: str
    category: str | None
    attribution: Attribution | None
    meaning: str
    symptom: bool


class Taxonomy(_Out):
    """All error types that a verdict may name."""

    items: list[ErrorTypeItem]


class Policy(_Out):
    """Which action follows from which verdict: the first row that fits."""

    rows: list[dict[str, Any]]
    budgets: dict[str, Any]


class IncidentItem(_Out):
    """A past failure, redacted."""

    id: str
    status: Status
    error_type: str | None
    attribution: Attribution | None
    summary: str
    job_action: str | None
    recovered: bool | None
    confirmed: bool
    decided_by: str
    rule: str | None
    created_at: str
    project: str
    cluster: str
    job_id: str
    name: str
    user: str
    culprits: list[str]
    nodes: list[str]


class IncidentList(_Out):
    """The latest incidents."""

    items: list[IncidentItem]


class SaidItem(_Out):
    """What a person said of an incident."""

    at: str
    by: str
    kind: str
    error_type: str | None
    recovered: bool | None
    note: str


class IncidentWhole(IncidentItem):
    """A past failure with its redacted lines, and what people said of it."""

    text: str
    said: list[SaidItem]


CandidateState = Literal["proposed", "applied", "rejected", "promoted"]


class CandidateItem(_Out):
    """A rule that somebody or some model proposed."""

    id: str
    kind: Literal["filter", "diagnosis"]
    rule: str
    state: CandidateState
    author: str
    hits: int
    created_at: str
    origin: str


class CandidateList(_Out):
    """The candidates, those with the most hits first."""

    items: list[CandidateItem]


class CandidateWhole(CandidateItem):
    """A candidate with its rule."""

    body: dict[str, Any]


class Decision(_In):
    """What a person decides of a candidate. Promoting writes files: `diagnose rules candidates promote` does that."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"state": "rejected"}]})

    state: Literal["proposed", "rejected"]


class FailureGroup(_Out):
    """Failures of one error type, with the GPU time that they cost."""

    error_type: str | None
    attribution: str | None
    count: int
    gpu_hours: float


class DayCount(_Out):
    """One day, in UTC."""

    day: str
    jobs: int
    failed: int
    gpu_hours: float


class NodeCount(_Out):
    """A host that jobs blamed."""

    host: str
    cluster: str
    jobs: int
    error_types: list[str]


class RuleCount(_Out):
    """How a rule fares."""

    rule: str
    hits: int
    decided: int
    confirmed: int
    refuted: int
    last: str | None


class Stats(_Out):
    """What the last days' jobs came to."""

    days: int
    jobs: int
    statuses: dict[str, int]
    failures: list[FailureGroup]
    by_day: list[DayCount]
    nodes: list[NodeCount]


class RuleStats(_Out):
    """How the rules fare."""

    items: list[RuleCount]


class AuditItem(_Out):
    """Who did what."""

    at: float
    key_id: str
    project: str
    action: str
    object: str
    status: int
    request_id: str
    address: str


class AuditList(_Out):
    """The latest acts, the newest first."""

    items: list[AuditItem]
