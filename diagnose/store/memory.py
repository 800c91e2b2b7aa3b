"""One run's part of the memory: it hears what is read, asks what is known, and is recorded.

In: a `Database` and what was said of the job. Out: `StoredMemory`, the pipeline's `Memory`. It never raises: where the
database cannot be used, the report does without, and `tell` says so once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from sqlalchemy.orm import Session

from diagnose.dataclass import dataclass, field, replace
from diagnose.errors import StoreError
from diagnose.models import History, JobContext, Line, NoHistory, Particulars, Record, Report
from diagnose.store.changes import changes, last_good
from diagnose.store.database import Database
from diagnose.store.facts import FactReader
from diagnose.store.history import Asking, StoredHistory
from diagnose.store.recorder import Label, Recorded, Run, job_key, record, workload_key
from diagnose.store.retention import prune_when_due
from diagnose.store.tables import Job

_HOSTS = 4_096


class Teller(Protocol):
    """Gathers the lines by which an incident will be found again."""

    def observe(self, line: Line) -> None:
        """Takes a line."""
        ...

    def told(self, report: Report, hosts: Sequence[str], users: Sequence[str]) -> tuple[str, str]:
        """The deciding lines with their surroundings, and the cause in one sentence: both redacted.

        `hosts` and `users` are known to be names of such.
        """
        ...


class Owner(Protocol):
    """Whoever has the run diagnosed, where that may happen more than once or end to be wanted."""

    @property
    def former(self) -> int | None:
        """The row of the attempt as which the run was recorded before."""
        ...

    def wants(self, session: Session) -> bool:
        """Whether the run is still to be recorded; asked within the transaction that does it."""
        ...

    def became(self, session: Session, recorded: Recorded) -> None:
        """Hears within the same transaction what the run has become."""
        ...


class EvidenceTeller:
    """Tells what the report itself holds; for runs without any other."""

    def observe(self, line: Line) -> None:
        """Nothing more is gathered."""

    def told(self, report: Report, hosts: Sequence[str], users: Sequence[str]) -> tuple[str, str]:
        """The lines of the root cause and its sentence."""
        cause = report.root_cause
        lines = [text for each in (cause.evidence if cause else ()) for text in (*each.before, each.text, *each.after)]
        return "\n".join(dict.fromkeys(lines)), cause.summary if cause else ""


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """A memory in a database.

    `records` says whether runs are written down; `tell` gets a line for the user, `hide` masks
    secrets, `on_recorded` what a run has become.
    `label` is what a person says of the run, `origin` where it comes from, `lived` whether it ran on the nodes there
    are. `nodes` is how many the cluster has, where that is known; `keep_days` for how long unconfirmed runs are kept,
    None for ever. `owner` has the run recorded in place of what an earlier diagnosis of it has become, or not at all.
    """

    database: Database
    tell: Callable[[str], None]
    hide: Callable[[str], str]
    records: bool = True
    teller: Callable[[], Teller] = EvidenceTeller
    document: Callable[[Report], Mapping[str, object]] | None = None
    on_recorded: Callable[[Recorded], None] | None = None
    label: Label | None = None
    origin: str = ""
    lived: bool = True
    nodes: int | None = None
    keep_days: float | None = None
    owner: Owner | None = None
    clock: Callable[[], float] = field(default_factory=lambda: time.time)

    def begin(self, context: JobContext) -> Remembered:
        """The part of one run."""
        return Remembered(self, context)


class Remembered:
    """What is heard of one run, and what comes of it."""

    def __init__(self, memory: StoredMemory, context: JobContext) -> None:
        self._memory = memory
        self._context = context
        self._facts = FactReader(memory.hide)
        self._teller = memory.teller() if memory.records else None
        self._asking: Asking | None = None
        self._broken = False

    @property
    def _former(self) -> int | None:
        return self._memory.owner.former if self._memory.owner is not None else None

    def observe(self, line: Line) -> None:
        """Takes a line that compression let through."""
        self._facts.observe(line)
        if self._teller is not None:
            self._teller.observe(line)

    def record(self, record: Record) -> None:
        """Learns from a scheduler's record who the job is, where nobody said."""
        fields = record.fields
        if fields.get("record") == "slurm_job" and not fields.get("step"):
            self._context = _filled(
                self._context, id=fields.get("job", ""), name=fields.get("name", ""), user=fields.get("user", "")
            )
        elif fields.get("record") == "k8s_job":
            self._context = _filled(self._context, name=fields.get("job", ""))

    def history(self, *, job: str | None, at: float | None) -> History:
        """What earlier runs say."""
        self._context = context = _filled(self._context, id=job or "")
        log = self._facts.beginning
        key = job_key(context, log)
        now = self._memory.clock()
        known: int | None = None
        try:
            with self._memory.database.reading() as session:
                row = session.query(Job).filter(Job.key == key).one_or_none()
                if row is not None:
                    known = row.id
                    self._context = context = _filled(context, name=row.name, user=row.user, image=row.image)
        except StoreError as error:
            self._broken = True
            self._memory.tell(f"{error}; the report does without what it knows")
            return NoHistory()
        self._asking = Asking(known, workload_key(context, log), log, context.cluster, at, former=self._former)
        return StoredHistory(self._memory.database, self._asking, now, self._memory.tell, self._memory.nodes)

    def conclude(self, report: Report, particulars: Particulars) -> Report:
        """The report with what has changed since the workload's last good attempt; recorded, where that was asked."""
        if self._broken:
            return report
        if self._context.image:
            self._facts.add("image", "image", self._context.image)
        for host in particulars.hosts[:_HOSTS]:
            self._facts.add("nodes", host, "")
        try:
            report = self._with_changes(report, particulars)
            if self._memory.records:
                self._record(report, particulars)
        except StoreError as error:
            self._memory.tell(f"not recorded: {error}" if self._memory.records else str(error))
        return report

    def _with_changes(self, report: Report, particulars: Particulars) -> Report:
        if report.status == "no_failure":
            return report
        with self._memory.database.reading() as session:
            good = last_good(
                session,
                self._context,
                self._facts.beginning,
                particulars.ended,
                report.progress.last_step,
                self._former,
            )
        return report if good is None else replace(report, changes=changes(self._facts.facts(), good))

    def _record(self, report: Report, particulars: Particulars) -> None:
        memory = self._memory
        user = self._context.user
        text, summary = "", ""
        if self._teller is not None:
            text, summary = self._teller.told(report, particulars.hosts, (user,) if user else ())
        run = Run(
            report=report,
            particulars=particulars,
            context=self._context,
            log=self._facts.beginning,
            text=text,
            summary=summary,
            facts=self._facts.facts(),
            label=memory.label,
            origin=memory.origin,
            lived=memory.lived,
            document=memory.document(report) if memory.document is not None else {},
            former=self._former,
        )
        with memory.database.writing() as session:
            if memory.owner is not None and not memory.owner.wants(session):
                return
            recorded = record(session, run, memory.clock())
            if memory.owner is not None:
                memory.owner.became(session, recorded)
        if memory.on_recorded is not None:
            memory.on_recorded(recorded)
        if memory.keep_days is not None:
            prune_when_due(memory.database, memory.keep_days, memory.clock())


def _filled(context: JobContext, **known: str) -> JobContext:
    """The context with what was not said before."""
    return replace(context, **{name: value for name, value in known.items() if value and not getattr(context, name)})
