"""Which of several jobs that a scheduler's listing names is the one at hand.

In: the names and lines of a job's own logs; the numbers that a listing holds. Out: those of them that are this job's,
and of a job that ran several times the last run's.
A number in a log file's name says most, then what Slurm itself sets or prints, then any other mention of a job. Where
nothing tells and several are listed, none is known to be this one; the only one listed is, unless the job is known by
another number.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable

from diagnose.models import Line, LogSource, Record
from diagnose.patterns import Lazy

_MAX_NUMBERS = 4096
_LONG = 4  # digits: shorter numbers are counts as well
_NUMBER = r"([0-9]{1,12}(?:_[0-9]{1,7})?)\b"
_IN_NAME = Lazy(r"[0-9]{1,12}(?:_[0-9]{1,7})?")
_SLURM_NAME = Lazy(r"slurm-" + _NUMBER)
_STATED = Lazy(
    r"\bSLURM_(?:ARRAY_)?JOB_?ID\W{1,4}" + _NUMBER + r"|\bsrun: (?:job|jobid) " + _NUMBER + r"|\*\*\* (?:JOB|STEP) "
    + _NUMBER + r"|\bStepId=" + _NUMBER + r"|\bslurm-" + _NUMBER + r"|job allocation " + _NUMBER
)  # fmt: skip
_MENTIONED = Lazy(r"\bjob(?:[ _]?id)?\W{1,4}" + _NUMBER, re.IGNORECASE)
_NAMED_IN_LISTING = Lazy(
    r"\A\s{0,8}([0-9]{1,12}(?:[_+][0-9]{1,7})?)[.| \t]|\b[Jj]ob_?[Ii]d[= ]([0-9]{1,12}(?:_[0-9]{1,7})?)"
)
_ISO = Lazy(r"\d{4}-\d\d-\d\dT\d\d:\d\d")
LITERALS = ("JOB", "job", "Job", "slurm-", "StepId", "STEP")


class JobNumbers:
    """The numbers under which a job's own logs speak of it."""

    def __init__(self) -> None:
        self._named: set[str] = set()
        self._stated: set[str] = set()
        self._slurm: set[str] = set()
        self._mentioned: set[str] = set()
        self._array = False

    def learn_source(self, source: LogSource) -> None:
        """Take the numbers in the name of a log."""
        if source.kind not in {"kernel", "scheduler"}:
            name = os.path.basename(source.name)[:256]
            self._named.update(found[0] for found in _IN_NAME.finditer(name))
            self._slurm.update(found[1] for found in _SLURM_NAME.finditer(name))

    def observe(self, line: Line) -> None:
        """Take what a line of a log says."""
        text = line.text[:400]
        if not any(word in text for word in LITERALS) or line.source.kind in {"kernel", "scheduler"}:
            return
        self._array = self._array or "SLURM_ARRAY_" in text
        for pattern, numbers in ((_STATED, self._stated), (_MENTIONED, self._mentioned)):
            if len(numbers) < _MAX_NUMBERS:
                numbers.update(number for found in pattern.finditer(text) for number in found.groups() if number)

    @property
    def slurm(self) -> str | None:
        """The number under which Slurm knows the job, where the log's name, or else its words, give just one."""
        known = self._slurm or self._stated
        return next(iter(known)) if len(known) == 1 else None

    def excludes(self, job: str) -> bool:
        """Whether this job is known by another number of the same kind.

        A task of an array has a number of its own beside the array's, so only a number in parts tells of one in parts;
        and what a log calls a job may be anything, unless the number stands in the log's name or is as long.
        """
        if self.own({job}):
            return False
        known = self._slurm | self._stated | (self._named & self._mentioned)
        known |= {number for number in self._mentioned if len(number) == len(job) >= _LONG}
        return any(_in_parts(number) == _in_parts(job) for number in known)

    def another(self, job: str) -> bool:
        """Whether a number that a control group bears is another Slurm job's: not where ours is known in parts only.

        A task of an array runs under a number of its own, which its log need not state.
        """
        known = self._slurm | self._stated
        whole = len(known) == 1 and not self._array
        whole = whole and not any(_in_parts(number) for number in known | self._named | self._mentioned)
        return whole and job not in known | self._named | self._mentioned

    def own(self, listed: Collection[str]) -> frozenset[str]:
        """Those of the listed jobs that are this one; none where nothing tells."""
        for numbers in (self._named, self._stated, self._mentioned):
            bases = {_base(number) for number in numbers}
            found = [job for job in listed if job in numbers] or [job for job in listed if _base(job) in bases]
            if found:
                return frozenset(found)
        return frozenset()


def of_this_job(records: Iterable[Record], numbers: JobNumbers) -> tuple[list[Record], frozenset[str]]:
    """The records of a listing without those of other jobs, and the numbers of these."""
    records = list(records)
    listed = {record.fields["job"] for record in records if _is_job(record)}
    if not listed or (len(listed) == 1 and not numbers.excludes(next(iter(listed)))):
        return records, frozenset()
    others = frozenset(listed) - numbers.own(listed)
    kept: list[Record] = []
    current: str | None = None
    for record in records:
        if record.fields.get("record") == "slurm_job":
            job: str | None = record.fields.get("job")
        elif record.kind == "line":
            # A line of a block goes on about the job that the block began with.
            current = _job_of(record.text, listed, current)
            job = current
        else:
            job = None
        if job is None or job not in others:
            kept.append(record)
    return kept, others


def of_last_run(records: Iterable[Record]) -> tuple[list[Record], int]:
    """The records of a listing without those of earlier runs of a requeued job, and how many runs these were.

    `sacct --duplicates` lists every run under one number; only the one that started last is the run at hand, and what
    the earlier ones ended of is told by the job's own log.
    """
    records = list(records)
    started: dict[str, set[str]] = {}
    for record in records:
        if _is_job(record) and "step" not in record.fields and _ISO.match(record.fields.get("start", "")):
            started.setdefault(record.fields["job"], set()).add(record.fields["start"])
    last = {job: max(starts) for job, starts in started.items() if len(starts) > 1}
    earlier = {
        record.first.number
        for record in records
        if _is_job(record) and record.fields["job"] in last and _before(record, last[record.fields["job"]])
    }
    kept = [record for record in records if record.first.number not in earlier]
    return kept, sum(len(started[job]) - 1 for job in last)


def of_current_states(records: Iterable[Record]) -> tuple[list[Record], tuple[str, ...]]:
    """The records of a listing without the former states of containers that are well now, and which these are.

    The last state is how an earlier attempt ended; a container that runs, or completed with 0, was started again.
    """
    records = list(records)
    well = {
        _container(record)
        for record in records
        if record.fields.get("record") == "k8s_container"
        and (
            record.fields.get("state") == "running"
            or (record.fields.get("state") == "terminated" and record.fields.get("exit") == "0")
        )
    }
    former = [record for record in records if "last-state" in record.fields and _container(record) in well]
    # The line on which it stands says the same once more.
    lines = {record.first.number for record in former}
    gone = {id(record) for record in former}
    kept = [
        record
        for record in records
        if id(record) not in gone and not (record.kind == "line" and record.first.number in lines)
    ]
    return kept, tuple(sorted({f"{record.fields.get('container', '?')} of {_pod(record)}" for record in former}))


def _container(record: Record) -> tuple[str, str]:
    return _pod(record), record.fields.get("container", "")


def _pod(record: Record) -> str:
    return record.fields.get("pod", "")


def _before(record: Record, start: str) -> bool:
    own = record.fields.get("start", "")
    return bool(_ISO.match(own)) and own < start


def _is_job(record: Record) -> bool:
    return record.fields.get("record") == "slurm_job" and "job" in record.fields


def _job_of(text: str, listed: Collection[str], current: str | None) -> str | None:
    found = _NAMED_IN_LISTING.search(text[:400])
    if found is not None:
        job = found[1] or found[2]
        return job if job in listed else None
    return current if text[:1] in {" ", "\t"} else None


def _in_parts(job: str) -> bool:
    return "_" in job or "+" in job


def _base(job: str) -> str:
    return re.split(r"[_+]", job, maxsplit=1)[0]
