"""Slurm's part: what it knows of a job, the job's logs, and the verdict written into the job's comment.

In: a job's number and Slurm's own commands. Out: a `SlurmJob`, the `Evidence` that there is on disk, a comment. Whoever
runs this may read more than the job's owner: a log is opened only where it belongs to the owner, so that no job can
have somebody else's file read by naming it as its own. What a job's fields hold is the user's word: nothing of it
reaches a shell.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, Final

from diagnose.dataclass import dataclass, replace
from diagnose.errors import DiagnoseError, UsageError
from diagnose.integrations.slurmcommands import Run, run_command, told_by
from diagnose.integrations.slurmparts import NAMES, all_parts, other_parts, part_of, rows_of
from diagnose.integrations.summary import Summary, cut

_NUMBER: Final = re.compile(r"[1-9][0-9]{0,17}(?:_[0-9]{1,9})?(?:\+[0-9]{1,6})?\Z")
_FIELD: Final = re.compile(r"([A-Za-z/:_-]+)=(\S*)")
_WHOLE_LINES: Final = ("StdOut", "StdErr", "WorkDir", "Comment", "Command")  # their values may hold blanks
_UNDER_WAY: Final = frozenset(
    {"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STAGE_OUT", "SIGNALING", "STOPPED"}
)
_WAITING: Final = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "REQUEUE_FED"})
# What is decided by: no column of these holds a word of the user's.
COLUMNS: Final = (*NAMES, "UID", "User", "State", "ExitCode", "NodeList", "Start", "End", "Cluster")
_QUEUED: Final = "%i|%A|%U|%u|%T||%N|%S|%e|"  # the same of squeue
# What the rules read.
_RECORD: Final = (
    "JobID,JobName,User,State,ExitCode,DerivedExitCode,Reason,NodeList,Start,End,Elapsed,Timelimit,MaxRSS,ReqMem,UID"
)
_MARK: Final = "diagnose: "
_LONGEST_COMMENT: Final = 800
_MOST_LOGS: Final = 2000
_MOST_PARTS: Final = 256
_POLL: Final = 1.0
_ACCOUNTED: Final = 15.0


class SlurmError(DiagnoseError):
    """Slurm's commands do not say what is needed."""


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One attempt of a job, as Slurm knows it. `records` are what its commands printed, by name.

    `spoken` is what its commands call it and nothing else (`slurmparts`). A heterogeneous job is its first part, with
    the nodes of all; `others` are the numbers of the rest.
    """

    id: str
    attempt: int
    cluster: str
    name: str = ""
    user: str = ""
    uid: int | None = None
    state: str = ""
    exit_code: int | None = None
    signal: int | None = None
    nodes: tuple[str, ...] = ()
    started: str | None = None
    ended: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    directory: str | None = None
    comment: str = ""
    gpus: int | None = None
    spoken: str = ""
    others: tuple[str, ...] = ()
    records: tuple[tuple[str, str], ...] = ()

    @property
    def under_way(self) -> bool:
        """Whether it has not ended yet."""
        return self.state in _UNDER_WAY

    @property
    def succeeded(self) -> bool:
        """Whether Slurm saw it end well."""
        return self.state == "COMPLETED"


def checked_number(text: str) -> str:
    """A job's number; raises `UsageError` where it is none."""
    if not _NUMBER.match(text):
        raise UsageError(f"{text!r} is no number of a Slurm job")
    return text


def read_job(number: str, *, attempt: int | None = None, cluster: str = "", run: Run = run_command) -> SlurmJob:
    """What Slurm knows of a job; raises `SlurmError` where that is nothing.

    `attempt` counts restarts; without it the last attempt that has ended, or the one that runs, is meant.
    """
    shown, spoken = part_of(checked_number(number), run)
    attempts = _attempts(spoken, run)
    if shown.strip():  # the accounting begins a job as root's and pending, and corrects that about a second later
        attempts = [row for row in attempts if row["State"] != "PENDING"]
    if not shown.strip() and not attempts:
        raise SlurmError(f"Slurm knows no job {number}: neither scontrol nor sacct shows it")
    if not shown.strip():
        spoken = attempts[-1]["JobID"]
    facts = _shown(shown)
    restarts = int(facts["Restarts"]) if re.match(r"\d{1,6}\Z", facts.get("Restarts", "")) else 0
    waits = facts.get("JobState", "") in _WAITING  # it was requeued: what scontrol shows is the attempt to come
    if attempt is None:
        attempt = max(0, restarts - 1) if waits else restarts if shown.strip() else max(0, len(attempts) - 1)
    stale = not shown.strip() or waits or restarts != attempt
    row = attempts[attempt] if len(attempts) > attempt else {}
    if not row and not stale and (queued := _queued(spoken, run)):
        row = queued | {"ExitCode": facts.get("ExitCode", "")}
    elif not row and attempts:
        row = attempts[-1]
    state = row.get("State", "").split(" ")[0]
    if not stale and state in _UNDER_WAY | _WAITING | {""}:  # the accounting comes later
        state = facts.get("JobState", state)
    exit_code, _, signal = row.get("ExitCode", "").partition(":")
    known = bool(attempts) and (stale or len(attempts) > attempt)
    others = _others(spoken, run) if spoken.endswith("+0") else []
    meant = spoken.partition("+")[0] if others else spoken
    record = run(["sacct", "-j", meant, "-D", "-P", "-o", _RECORD]) if known else None
    records = (
        [("sacct.txt", _of_attempt(record, [spoken, *(one["JobID"] for one in others)], attempt))] if record else []
    )
    if not stale:
        records.append(("scontrol.txt", all_parts(meant, run) if others else shown))
    nodes = [host for one in (row, *others) for host in _hosts(one.get("NodeList", ""), run)]
    uid = row.get("UID", "") if row.get("State") != "PENDING" else ""
    return SlurmJob(
        id=row.get("JobIDRaw") or number,
        spoken=spoken,
        attempt=attempt,
        cluster=cluster or os.environ.get("SLURM_CLUSTER_NAME", "") or row.get("Cluster", ""),
        name=cut(facts.get("JobName", ""), 200),
        user=row.get("User", ""),
        uid=int(uid) if re.match(r"\d{1,10}\Z", uid) else None,
        state=state,
        exit_code=int(exit_code) if re.match(r"\d{1,5}\Z", exit_code) else None,
        signal=int(signal) if re.match(r"\d{1,3}\Z", signal) else None,
        nodes=tuple(dict.fromkeys(nodes)),
        others=tuple(one["JobIDRaw"] for one in others if one["JobIDRaw"].isdigit()),
        started=_time(row.get("Start", "")),
        ended=_time(row.get("End", "")),
        stdout=_absolute(facts.get("StdOut")),
        stderr=_absolute(facts.get("StdErr")),
        directory=_absolute(facts.get("WorkDir")),
        comment=facts.get("Comment", ""),
        gpus=_gpus(facts.get("TRES", "") + " " + facts.get("TresPerNode", "")),
        records=tuple(records),
    )


def _attempts(spoken: str, run: Run) -> list[dict[str, str]]:
    """What the accounting says of the attempts of a job, the oldest first; empty where there is none."""
    told = run(["sacct", "-j", spoken, "-D", "-X", "-n", "-P", "-o", ",".join(COLUMNS)]) or ""
    return rows_of(spoken, told, COLUMNS)


def _others(spoken: str, run: Run) -> list[dict[str, str]]:
    """What is known of the other parts of a heterogeneous job."""
    whole = spoken.partition("+")[0]
    told = run(["sacct", "-j", whole, "-D", "-X", "-n", "-P", "-o", ",".join(COLUMNS)]) or ""
    if not (found := other_parts(spoken, told, COLUMNS)):
        told = run(["squeue", "-h", "-t", "all", "-j", whole, "-o", _QUEUED]) or ""
        found = other_parts(spoken, told, COLUMNS)
    return found[:_MOST_PARTS]


def _queued(spoken: str, run: Run) -> dict[str, str]:
    """The same of a job that slurmctld still remembers."""
    told = run(["squeue", "-h", "-t", "all", "-j", spoken, "-o", _QUEUED]) or ""
    return next(iter(rows_of(spoken, told, COLUMNS)), {})


def _shown(text: str) -> dict[str, str]:
    """The fields of `scontrol show job`. The user chooses some of them, and may put others into those."""
    fields: dict[str, str] = {}
    for line in text.split("\n"):
        key, equals, value = line.strip().partition("=")
        if equals and key in _WHOLE_LINES:
            fields[key] = value
        elif line.startswith("JobId="):
            fields["JobName"] = line.partition(" JobName=")[2]
        else:
            fields.update(_FIELD.findall(line))
    return fields


def _of_attempt(text: str, parts: Sequence[str], attempt: int) -> str:
    """What sacct says of one attempt of a job's parts: where there were several, only that one's lines."""
    head, *lines = text.splitlines()
    chosen = []
    for part in parts:
        own = lines if len(parts) == 1 else [line for line in lines if re.match(rf"{re.escape(part)}[.|]", line)]
        begins = [at for at, line in enumerate(own) if line.partition("|")[0] == part]
        if len(begins) > 1 and attempt < len(begins):
            own = own[begins[attempt] : begins[attempt + 1] if attempt + 1 < len(begins) else None]
        chosen += own
    return "\n".join([head, *chosen]) + "\n"


def _hosts(nodes: str, run: Run) -> tuple[str, ...]:
    """The names in `gx-[01-04]`."""
    if not nodes or nodes in ("(null)", "None assigned", "None"):
        return ()
    if "[" not in nodes:
        return tuple(nodes.split(","))[:20_000]
    return tuple((run(["scontrol", "show", "hostnames", nodes]) or "").split())[:20_000]


def _time(text: str) -> str | None:
    """A time with the zone of this machine, which Slurm leaves out."""
    if not re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\Z", text):
        return None
    seconds = time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _absolute(path: str | None) -> str | None:
    return path if path and path.startswith("/") and path != "/dev/null" and "\0" not in path else None


def _gpus(tres: str) -> int | None:
    found = re.search(r"gres[/:]gpu[=:](?:[a-z0-9_.-]+[=:])?([0-9]{1,7})\b", tres)
    return int(found[1]) if found else None


def wait_for_end(
    number: str,
    *,
    attempt: int | None = None,
    restart_count: int | None = None,
    cluster: str = "",
    seconds: float = 0.0,
    run: Run = run_command,
) -> SlurmJob:
    """The job as soon as it has ended, and its accounting with it; after `seconds` as it is.

    `restart_count` is what the hook was told (`ended_attempt`), in place of `attempt`.
    """
    until = time.monotonic() + seconds
    while True:
        if restart_count is not None:
            attempt = ended_attempt(number, restart_count, run)
        if restart_count is None or attempt is not None:
            job = read_job(number, attempt=attempt, cluster=cluster, run=run)
            if not job.under_way and job.state not in _WAITING | {""}:
                return job
        if time.monotonic() >= until:
            return read_job(number, attempt=attempt, cluster=cluster, run=run)
        time.sleep(_POLL)


def ended_attempt(number: str, restart_count: int, run: Run = run_command) -> int | None:
    """Which attempt has ended when slurmctld runs its epilog with this count of restarts; None while it is not known.

    The count of a job that was put back into the queue is that of the attempt to come already.
    """
    shown, spoken = part_of(checked_number(number), run)
    facts = _shown(shown)
    state, restarts = facts.get("JobState", ""), facts.get("Restarts", "")
    if state == "COMPLETING":
        return None
    if not state:  # slurmctld has forgotten it
        return restart_count if len(_attempts(spoken, run)) > restart_count else max(0, restart_count - 1)
    over = state not in _UNDER_WAY | _WAITING and restarts == str(restart_count)
    return restart_count if over else max(0, restart_count - 1)


def ending(job: SlurmJob, code: int) -> SlurmJob:
    """A job that still runs, as it will be once its script has ended with a code: Slurm does not know yet."""
    record = f"JobID|User|State|ExitCode\n{job.spoken or job.id}|{job.user}|FAILED|{code}:0\n"
    return replace(job, state="FAILED", exit_code=code, signal=0, records=(("sacct.txt", record),))


@dataclass(frozen=True, slots=True)
class Opened:
    """A log that is open, and the name to show it by."""

    name: str
    file: BinaryIO
    path: str


@contextlib.contextmanager
def open_logs(
    job: SlurmJob, *, patterns: Sequence[str] = (), kernel_logs: str | None = None, tell: Callable[[str], None]
) -> Iterator[tuple[list[Opened], list[Opened]]]:
    """The job's own logs, and the kernel logs that its nodes have left in the directory `kernel_logs`.

    `patterns` name further logs; {job}, {attempt} and {directory} stand for the job's own.
    """
    paths = list(dict.fromkeys(path for path in (job.stdout, job.stderr) if path))
    for pattern in patterns:
        values = {
            "{job}": job.id,
            "{attempt}": str(job.attempt),
            "{directory}": glob.escape(job.directory or "/nowhere"),
        }
        for name, value in values.items():
            pattern = pattern.replace(name, value)  # noqa: PLW2901 - put together step by step
        paths.extend(sorted(glob.glob(pattern, recursive=True))[:_MOST_LOGS])
    kernels: dict[str, str] = {}  # by host: of several parts on one, the first part's
    for number in (job.id, *job.others) if kernel_logs is not None else ():
        folder = os.path.join(glob.escape(kernel_logs or ""), kernel_folder(job.cluster, number))
        for path in sorted(glob.glob(os.path.join(folder, "*.dmesg"))):
            kernels.setdefault(os.path.basename(path), path)
    with contextlib.ExitStack() as stack:
        logs = [one for path in dict.fromkeys(paths) if (one := _open(path, {job.uid}, tell, stack)) is not None]
        nodes = [one for path in kernels.values() if (one := _open(path, {0, os.geteuid()}, tell, stack)) is not None]
        yield _named(logs), _named(nodes)


def kernel_folder(cluster: str, number: str) -> str:
    """The name of the folder into which a job's nodes put their kernel logs."""
    plain = "".join(char if char.isalnum() or char in "._-" else "_" for char in cluster) or "cluster"
    return f"{plain}-{checked_number(number)}"


def _open(
    path: str, owners: set[int | None], tell: Callable[[str], None], stack: contextlib.ExitStack
) -> Opened | None:
    shown = cut(path, 200)
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        tell(f"{shown}: {error.strerror}; the verdict does without it")
        return None
    file = stack.enter_context(os.fdopen(number, "rb"))
    status = os.fstat(number)
    if not stat.S_ISREG(status.st_mode):
        tell(f"{shown}: no ordinary file; the verdict does without it")
        return None
    if status.st_uid not in owners:
        tell(f"{shown}: not the job owner's file; the verdict does without it")
        return None
    return Opened(os.path.basename(path), file, path)


def _named(opened: list[Opened]) -> list[Opened]:
    """The same with names that tell them apart; a user may call files as this does."""
    names = [one.name for one in opened]
    taken = {name for name in names if names.count(name) == 1}
    made = []
    for at, one in enumerate(opened):
        name = one.name
        if names.count(name) > 1:
            name = f"{at}-{name}"
            while name in taken:
                name = f"{at}-{name}"
            taken.add(name)
        made.append(Opened(name, one.file, one.path))
    return made


def lay_out(folder: str, name: str, opened: Sequence[Opened]) -> list[str]:
    """Links to what is open, under names to show: what was checked is what is read, whatever is put in its place."""
    os.makedirs(os.path.join(folder, name), exist_ok=True)
    made = []
    for one in opened:
        path = os.path.join(name, one.name)
        os.symlink(f"/proc/{os.getpid()}/fd/{one.file.fileno()}", os.path.join(folder, path))
        made.append(path)
    return made


def write_comment(job: SlurmJob, summary: Summary, *, admin: bool = False) -> str | None:
    """Writes the verdict into the job's comment; returns in words why it could not be.

    A job that runs is told to slurmctld; of one that has ended only the accounting can be changed, by an operator.
    What the user has written there stays.
    """
    return _write(job, comment_line(summary), admin=admin)


def point_to(job: SlurmJob, whole: str, *, admin: bool = False) -> str | None:
    """Says in the comment of a part of a heterogeneous job which other part bears the verdict."""
    return _write(job, _plain(f"{_MARK}see {whole}+0, the part of the job that has its log"), admin=admin)


def _write(job: SlurmJob, line: str, *, admin: bool) -> str | None:
    own = job.comment.split(_MARK)[0].rstrip(" ;")
    text = f"{_plain(own)}; {line}" if own and own != "(null)" and not admin else line
    field = "admincomment" if admin else "comment"
    code, _, said = told_by(["scontrol", "update", f"jobid={job.spoken or job.id}", f"{field}={text}"])
    if code == 0:
        return None
    ended = ["sacctmgr", "-i", "modify", "job", "where", f"jobid={job.spoken or job.id}"]
    if job.cluster:
        ended.append(f"cluster={job.cluster}")
    until = time.monotonic() + _ACCOUNTED
    while True:
        known = _accounted(job.spoken or job.id)
        code, out, more = told_by([*ended, "set", f"{field}='{text}'"])
        if code == 0 and "Modified" in out:
            return None
        if known or time.monotonic() >= until:
            break
        time.sleep(_POLL)
    reason = cut(more or out or said, 200)
    return f"the comment of job {job.spoken or job.id} was not written: {reason}"


def _accounted(spoken: str) -> bool:
    """Whether waiting helps no more: of a job that has just begun the accounting hears a second or two later."""
    told = run_command(["sacct", "-j", spoken, "-D", "-X", "-n", "-P", "-o", ",".join(COLUMNS)])
    rows = rows_of(spoken, told or "", COLUMNS)
    return told is None or any(row["JobID"] == spoken and row["State"] != "PENDING" for row in rows)


def comment_line(summary: Summary) -> str:
    """The verdict as a comment: one line, none of whose characters mean anything to Slurm's commands."""
    return _plain(_MARK + summary.line(_LONGEST_COMMENT))


def _plain(text: str) -> str:
    told = "".join(char if char not in "'\"\\|`$" else " " for char in cut(text, 4 * _LONGEST_COMMENT))
    return cut(told.replace("=", ":"), _LONGEST_COMMENT)
