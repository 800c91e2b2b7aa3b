"""One run becomes rows, in one transaction: there whole, or not at all.

In: a `Run`. Out: `Recorded`. Recording the same logs again, or the same logs grown, changes what is there instead of
adding to it. What a person said of an incident stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256

from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from diagnose.dataclass import dataclass, field, fields, replace
from diagnose.models import AttemptSummary, Circumstances, Finding, JobContext, Particulars, Report
from diagnose.models.rule import AttributionName
from diagnose.store.facts import Facts, packed
from diagnose.store.incidents import PERSON, announce, remove, remove_run
from diagnose.store.outcomes import label
from diagnose.store.tables import (
    Attempt,
    Diagnosis,
    EvidenceRow,
    Fact,
    FindingRow,
    IncidentRow,
    Job,
    NodeEvent,
    Source,
)

_STRENGTH = {"replace": 5, "drain": 4, "reboot": 3, "reset_gpu": 2, "inspect": 1}
_FINDINGS, _EVIDENCE, _SOURCES, _RANKS = 400, 3, 4_096, 256
_SAME_START = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class Label:
    """What a person says a failure was. `id` is the name it goes by, where it has one.

    `accepted` are error types that would be right as well.
    """

    error_type: str | None
    attribution: AttributionName | None = None
    summary: str = ""
    recovered: bool | None = None
    job: str | None = None
    id: str = ""
    accepted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """All that is recorded of one run. `log` tells its logs from others'; `text` and `summary` are redacted.

    `lived` says whether it ran on the nodes that there are: what an imported case says of its hosts is none of theirs.
    `former` is the row of the attempt as which the same run was recorded before, by other logs perhaps.
    """

    report: Report
    particulars: Particulars
    context: JobContext
    log: str
    text: str = ""
    summary: str = ""
    facts: Facts = Facts()
    label: Label | None = None
    origin: str = ""
    lived: bool = True
    document: Mapping[str, object] = field(default_factory=dict)
    former: int | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a run has become: its incident, where it failed, whether that one is new, and the row of its attempt."""

    incident: str | None
    new: bool
    attempt: int | None = None


def job_key(context: JobContext, log: str) -> str:
    """What tells jobs apart: the scheduler's number on its cluster, else the logs; those of a project are its own."""
    own = (context.project,) if context.project else ()
    return _digest("job", context.cluster, context.id, *own) if context.id else _digest("log", log, *own)


def workload_key(context: JobContext, log: str) -> str:
    """What is started again and again; where that has no name, the job itself.

    One project's runs are no other's history: what has changed since them would tell of them.
    """
    workload = context.workload
    if not workload.known:
        return f"job:{job_key(context, log)}"
    own = (context.project,) if context.project else ()
    return _digest("workload", workload.name, workload.user, workload.image, *own)


def _digest(*parts: str) -> str:
    return sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:32]


def record(session: Session, run: Run, now: float) -> Recorded:
    """Writes one run, within the writer's transaction."""
    job = _job(session, run, now)
    attempt, known = _attempts(session, job, run, now)
    _diagnosis(session, attempt, run, now, known=known)
    if run.lived:
        _nodes(session, job, attempt, run, now, known=known)
    _facts(session, attempt, run.facts, known=known)
    recorded = _incident(session, job, attempt, run, known=known)
    session.flush()
    label(session, job.workload)
    return replace(recorded, attempt=attempt.id)


def _job(session: Session, run: Run, now: float) -> Job:
    context = run.context
    key = job_key(context, run.log)
    row = session.scalar(select(Job).where(Job.key == key))
    if row is None:
        row = Job(key=key, recorded=now)
        session.add(row)
    known = {
        "number": context.id,
        "name": context.name,
        "user": context.user,
        "image": context.image,
        "cluster": context.cluster,
        "project": context.project,
    }
    for name, value in known.items():
        if value or getattr(row, name) is None:
            setattr(row, name, value)
    whose = JobContext(row.number, row.name, row.user, row.image, row.cluster, row.project)
    row.workload = workload_key(whose, run.log)
    session.flush()
    return row


def _attempts(session: Session, job: Job, run: Run, now: float) -> tuple[Attempt, bool]:
    """All attempts that the logs tell of; returns the diagnosed one, and whether it was known, so that it has rows."""
    report, particulars = run.report, run.particulars
    summaries = report.attempts or (AttemptSummary(0, diagnosed=True),)
    known = {row.key: row for row in session.scalars(select(Attempt).where(Attempt.job_id == job.id))}
    former = next((row for row in known.values() if row.id == run.former), None)
    if former is not None:
        known = _renamed(session, known, former.key.rpartition(":")[0], run.log)
    by_start = {(row.number, int(row.started)): row for row in known.values() if row.started is not None}
    made: Attempt | None = None
    for position, summary in enumerate(summaries):
        key = f"{run.log}:{summary.index}"
        started = particulars.started if summary.diagnosed else None
        row = known.get(key)
        if row is None and started is not None:
            row = by_start.get((summary.index, int(started)))
        if row is None:
            row = Attempt(job_id=job.id, key=key, recorded=now)
            session.add(row)
        row.number = summary.index
        row.error_type = summary.error_type
        row.last_step = summary.last_step
        if summary.diagnosed:
            row.status = report.status
            row.error_type = report.error_type
            row.place = particulars.place
            row.completed = bool(report.progress.completed)
            row.started, row.ended, row.gpus = started, particulars.ended, particulars.gpus
            made = row
        else:
            row.status = "failed"
        # Undated attempts come in their own order, before the time of recording.
        dated = particulars.ended if particulars.ended is not None else row.recorded
        row.at = dated - (len(summaries) - 1 - position) * 0.001
    if made is None:
        raise ValueError("no attempt of the report is the diagnosed one")
    session.flush()
    if former is not None and former is not made:
        told = {f"{run.log}:{summary.index}" for summary in summaries}
        _unsaid(session, former, with_run=former.key not in told)
    return made, made in known.values()


def _renamed(session: Session, known: Mapping[str, Attempt], before: str, log: str) -> dict[str, Attempt]:
    """The attempts of a job by their keys, where those that some logs told of are told of by others now."""
    for key, row in known.items():
        new = f"{log}:{key.rpartition(':')[2]}"
        if key.startswith(f"{before}:") and new not in known:
            row.key = new
    session.flush()
    return {row.key: row for row in known.values()}


def _unsaid(session: Session, former: Attempt, *, with_run: bool) -> None:
    """Takes back what was said of a run as another attempt than it has turned out to be, unless people agreed."""
    said = session.scalars(select(IncidentRow).where(IncidentRow.attempt_id == former.id)).all()
    for row in said:
        if not row.confirmed:
            remove(session, row, with_run=with_run)
    if not said and with_run:
        remove_run(session, former)


def _diagnosis(session: Session, attempt: Attempt, run: Run, now: float, *, known: bool) -> None:
    report, decided = run.report, run.report.decided_by
    summary = report.root_cause.summary if report.root_cause else ""
    evidence = report.root_cause.evidence if report.root_cause else ()
    key = _digest(
        *(str(part) for part in (decided.ruleset, decided.model, decided.prompt, decided.stage, report.status)),
        *(str(part) for part in (report.error_type, report.attribution, report.recovery, summary, evidence)),
    )
    same = select(Diagnosis).where(Diagnosis.attempt_id == attempt.id, Diagnosis.key == key)
    if known and session.scalar(same) is not None:
        return
    row = Diagnosis(
        attempt_id=attempt.id,
        key=key,
        recorded=now,
        status=report.status,
        error_type=report.error_type,
        attribution=report.attribution,
        sureness=report.sureness,
        summary=summary,
        stage=decided.stage,
        rule=decided.rule,
        ruleset=decided.ruleset,
        model=decided.model,
        prompt=decided.prompt,
        agent_state=decided.agent_state,
        job_action=report.recovery.job,
        policy=report.recovery.policy,
        circumstances=_as_mapping(run.particulars.circumstances),
        report=dict(run.document),
    )
    session.add(row)
    session.flush()
    sources = [
        {
            "diagnosis_id": row.id,
            "name": each.source,
            "kind": each.kind,
            "lines": each.lines,
            "truncated": each.truncated,
        }
        for each in report.coverage.sources[:_SOURCES]
    ]
    explanation = report.explanation
    aside = {item.finding.id: item.why for item in explanation.excluded}
    findings = [*explanation.findings, *(item.finding for item in explanation.excluded)][:_FINDINGS]
    rows = [
        _finding(row.id, each, explanation.explained.get(each.id, ()), aside.get(each.id), decided.rule)
        for each in findings
    ]
    lines = [_line(row.id, each.id, evidence) for each in findings for evidence in each.evidence[:_EVIDENCE]] + [
        _line(row.id, None, each) for each in evidence
    ]
    for table, values in ((Source, sources), (FindingRow, rows), (EvidenceRow, lines)):
        if values:
            session.execute(insert(table), values)


def _finding(
    diagnosis: int, finding: Finding, explained: Sequence[str], aside: str | None, rule: str | None
) -> dict[str, object]:
    return {
        "diagnosis_id": diagnosis,
        "name": finding.id,
        "rule": finding.rule,
        "error_type": finding.error_type,
        "role": finding.role,
        "attempt": finding.attempt,
        "count": finding.count,
        "first": finding.first,
        "last": finding.last,
        "hosts": sorted(finding.hosts)[:_RANKS],
        "gpus": sorted(finding.gpus)[:_RANKS],
        "ranks": sorted(finding.ranks)[:_RANKS],
        "explained_by": list(explained)[:_RANKS],
        "excluded": aside,
        "shadow": finding.shadow,
        "decided": finding.rule is not None and finding.rule == rule and aside is None,
    }


def _line(diagnosis: int, finding: str | None, evidence: object) -> dict[str, object]:
    return {"diagnosis_id": diagnosis, "finding": finding} | {
        name: getattr(evidence, name) for name in ("source", "line", "text", "time", "rank", "host")
    }


def _as_mapping(circumstances: Circumstances) -> dict[str, object]:
    made = {each.name: getattr(circumstances, each.name) for each in fields(circumstances)}
    made["tests"] = sorted(name for name, holds in circumstances.tests.items() if holds)
    made["asked"] = sorted(circumstances.tests)
    made["targets"] = [[each.host, each.gpu, each.presumed, each.asks] for each in circumstances.targets]
    return made


def _nodes(session: Session, job: Job, attempt: Attempt, run: Run, now: float, *, known: bool) -> None:
    """Which hosts took part, which were to blame, and what was to be done with them."""
    report = run.report
    before: dict[tuple[str, str | None], float] = {}
    if known:
        events = session.scalars(select(NodeEvent).where(NodeEvent.attempt_id == attempt.id))
        before = {(row.host, row.action): row.asked for row in events}
        session.execute(delete(NodeEvent).where(NodeEvent.attempt_id == attempt.id))
    actions: dict[str, str] = {}
    for node in report.recovery.nodes:
        if _STRENGTH[node.action] > _STRENGTH.get(actions.get(node.host, ""), 0):
            actions[node.host] = node.action
    failed = report.status == "failed" and report.attribution != "user" and report.error_type is not None
    blamed = {one.id for one in report.culprits if one.machine and not one.presumed} if failed else set()
    gpus = [one.id for one in report.culprits if one.kind == "gpu"]
    gpu = gpus[0] if len(gpus) == 1 and len(blamed) == 1 else None
    rows = [
        {
            "attempt_id": attempt.id,
            "cluster": job.cluster,
            "host": host,
            "gpu": gpu if host in blamed else None,
            "error_type": report.error_type if host in blamed else None,
            "action": actions.get(host),
            "at": attempt.at,
            "asked": before.get((host, actions.get(host)), now),
        }
        for host in dict.fromkeys((*run.particulars.hosts, *sorted(blamed), *actions))
    ]
    if rows:
        session.execute(insert(NodeEvent), rows)


def _facts(session: Session, attempt: Attempt, facts: Facts, *, known: bool) -> None:
    attempt.templates = packed(facts)
    if known:
        session.execute(delete(Fact).where(Fact.attempt_id == attempt.id))
    rows = [
        {"attempt_id": attempt.id, "kind": kind, "name": name, "value": value}
        for kind, names in facts.by_kind.items()
        for name, values in names.items()
        for value in values
    ]
    if rows:
        session.execute(insert(Fact), rows)


def _incident(session: Session, job: Job, attempt: Attempt, run: Run, *, known: bool) -> Recorded:
    report, said = run.report, run.label
    row: IncidentRow | None = None
    if said is not None and said.id:
        row = session.get(IncidentRow, said.id)
    elif known:
        row = session.scalars(select(IncidentRow).where(IncidentRow.attempt_id == attempt.id)).first()
    if report.status == "no_failure" and said is None:
        if row is not None and not row.confirmed:
            remove(session, row, with_run=False)
        return Recorded(None, new=False)
    new = row is None
    if row is None:
        name = said.id if said is not None and said.id else f"i{_digest(job.key, attempt.key)[:12]}"
        row = session.get(IncidentRow, name)
        row = row or IncidentRow(id=name, created=attempt.at, confirmed=False, outcome_by="", recovered=None)
    elif row.confirmed and said is None:
        row.attempt_id = attempt.id
        return Recorded(row.id, new=False)
    before = _content(row)
    row.attempt_id = attempt.id
    row.created = attempt.at
    row.text = run.text
    row.number, row.name, row.user, row.image = job.number, job.name, job.user, job.image
    row.cluster, row.project = job.cluster, job.project
    row.culprits = [f"{one.kind} {one.id}" for one in report.culprits[:_RANKS] if not one.presumed]
    row.nodes = sorted({node.host for node in report.recovery.nodes})
    row.origin = run.origin
    row.status, row.error_type, row.attribution = report.status, report.error_type, report.attribution
    row.summary = run.summary
    row.job_action = report.recovery.job
    row.decided_by, row.rule = report.decided_by.stage, report.decided_by.rule
    if said is not None:
        _say(row, said)
    if _content(row) != before:
        announce(session, row)
    session.add(row)
    session.flush()
    return Recorded(row.id, new=new)


def _say(row: IncidentRow, said: Label) -> None:
    """What a person says goes before what the report says."""
    if said.error_type != row.error_type:
        if row.error_type not in said.accepted:
            row.decided_by, row.rule = PERSON, None
        row.attribution = said.attribution
        row.status = "failed" if said.error_type else row.status
    elif said.attribution is not None:
        row.attribution = said.attribution
    row.error_type, row.accepted = said.error_type, list(said.accepted)
    row.summary = said.summary or row.summary
    row.job_action = said.job or row.job_action
    row.confirmed = True
    if said.recovered is not None:
        row.recovered, row.outcome_by = said.recovered, PERSON


def _content(row: IncidentRow) -> tuple[object, ...]:
    return tuple(getattr(row, column.key) for column in IncidentRow.__table__.columns if column.key != "revision")
