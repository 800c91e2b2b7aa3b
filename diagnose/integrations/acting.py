"""What may be done about a verdict without a person: requeue without the failed nodes, drain. Opt-in, and bounded.

In: a verdict and what the policy made of it. Out: what was done, or would have been, in an audit trail. Nothing is done
that the report does not advise, or on a verdict that is only possible; no more than 2 % of the nodes are drained within
an hour (one at least), and each job attempt is requeued once, each workload three times a day. The first day is a
rehearsal: only what stands in the trail as rehearsed a day before is done, for each kind of action and cluster.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal, Protocol

from diagnose.dataclass import dataclass
from diagnose.errors import UsageError
from diagnose.integrations.notices import JobRef
from diagnose.integrations.slurmcommands import told_by
from diagnose.integrations.summary import Summary, cut

Mode = Literal["off", "rehearse", "act"]
MODES: Final[tuple[Mode, ...]] = ("off", "rehearse", "act")
Kind = Literal["requeue", "drain"]

_DRAINS: Final = frozenset({"drain", "reset_gpu", "reboot", "replace"})
_HOUR, _DAY = 3600.0, 86400.0
_MOST_TRAIL: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Caps:
    """How much may be done. `nodes` is how many the cluster has; where that is not known, one drain an hour."""

    nodes: int | None = None
    share: float = 0.02
    drains_a_day: int = 10
    requeues: int = 3
    rehearsal: float = _DAY

    @property
    def drains_an_hour(self) -> int:
        """How many nodes may be drained within an hour."""
        return max(1, int((self.nodes or 0) * self.share))


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do. `target` is a node or a job; `exclude` are nodes that a job should not get again."""

    kind: Kind
    target: str
    why: str
    exclude: tuple[str, ...] = ()


class Scheduler(Protocol):
    """What acts."""

    def state(self, node: str) -> str:
        """The node's state, in the scheduler's words."""
        ...

    def drain(self, node: str, why: str) -> str | None:
        """Drains a node; returns why it could not be."""
        ...

    def requeue(self, job: str, exclude: Sequence[str], why: str) -> str | None:
        """Puts a job into the queue again, not for these nodes; returns why it could not be."""
        ...


def actions(job: JobRef, summary: Summary, nodes: Sequence[str], spoken: str = "") -> list[Action]:
    """What the report advises that a program may do. `nodes` are the job's: no other is drained for it.

    `spoken` is what the scheduler calls the job where the number means others too; a heterogeneous job goes as a whole.
    """
    if not summary.failed or summary.error_type is None or summary.sureness not in ("confirmed", "likely"):
        return []
    why = cut(f"diagnose: {summary.error_type} in job {job.job_id}: {summary.cause}", 200)
    hosts = dict.fromkeys(node.host for node in summary.nodes if node.action in _DRAINS and node.host in nodes)
    found = [Action("drain", host, why) for host in hosts]
    if summary.effect in ("restart", "elsewhere") and summary.job != "wait_and_retry":
        exclude = tuple(host for host in summary.excluded_hosts if host in nodes)
        found.append(Action("requeue", spoken.partition("+")[0] or job.job_id, why, exclude))
    return found


class Actor:
    """Does what is advised, within bounds, and writes down everything."""

    def __init__(
        self, scheduler: Scheduler, trail: str, mode: Mode, caps: Caps, *, clock: Callable[[], float] = time.time
    ) -> None:
        if mode not in MODES:
            raise UsageError(f"acting is one of {', '.join(MODES)}, not {mode!r}")
        self._scheduler = scheduler
        self._trail = trail
        self._mode = mode
        self._caps = caps
        self._clock = clock

    def act(self, job: JobRef, wanted: Sequence[Action]) -> list[str]:
        """Does what may be done; returns what became of each action, in words. One process at a time."""
        if self._mode == "off" or not wanted:
            return []
        told = []
        with self._locked() as file:
            past = [one for one in _read(file) if one.get("cluster") == job.cluster]
            for action in wanted:
                outcome, why = self._one(job, action, past)
                entry = {
                    "at": self._clock(), "cluster": job.cluster, "job": job.job_id, "attempt": job.attempt,
                    "workload": f"{job.user}/{job.name}", "kind": action.kind, "target": action.target,
                    "exclude": list(action.exclude), "why": action.why, "outcome": outcome, "note": why,
                }  # fmt: skip
                past.append(entry)
                _append(file, entry)
                told.append(f"{action.kind} {action.target}: {outcome}{f' ({why})' if why else ''}")
        return told

    def _one(self, job: JobRef, action: Action, past: Sequence[dict[str, Any]]) -> tuple[str, str]:
        """What becomes of one action: done, rehearsed, refused or failed, and why."""
        now = self._clock()
        ended = ("done", "rehearsed")
        counted = [one for one in past if one.get("outcome") in ended and one.get("kind") == action.kind]
        refused = self._refused(job, action, counted, now)
        if refused:
            return "refused", refused
        if self._mode == "rehearse":
            return "rehearsed", ""
        known = [one for one in counted if one["outcome"] == "done" or now - one["at"] >= self._caps.rehearsal]
        if not known:
            hours = self._caps.rehearsal / _HOUR
            return "rehearsed", f"nothing of this kind was rehearsed here {hours:.0f} h ago or earlier"
        if action.kind == "drain":
            problem = self._scheduler.drain(action.target, action.why)
        else:
            problem = self._scheduler.requeue(action.target, action.exclude, action.why)
        return ("failed", problem) if problem else ("done", "")

    def _refused(self, job: JobRef, action: Action, counted: Sequence[dict[str, Any]], now: float) -> str:
        # A rehearsal counts against rehearsals, so that it shows what the caps would do.
        mine = [one for one in counted if one["outcome"] == ("rehearsed" if self._mode == "rehearse" else "done")]
        if action.kind == "drain":
            if self._scheduler.state(action.target).upper().startswith(("DRAIN", "DOWN")):
                return "it is drained or down already"
            if sum(now - one["at"] < _HOUR for one in mine) >= self._caps.drains_an_hour:
                return f"{self._caps.drains_an_hour} drained within the hour is the most"
            if sum(now - one["at"] < _DAY for one in mine) >= self._caps.drains_a_day:
                return f"{self._caps.drains_a_day} drained within a day is the most"
            return ""
        if any(one["job"] == job.job_id and one["attempt"] == job.attempt for one in mine):
            return "this attempt was requeued already"
        workload = f"{job.user}/{job.name}"
        if sum(one["workload"] == workload and now - one["at"] < _DAY for one in mine) >= self._caps.requeues:
            return f"{self._caps.requeues} requeues of a workload within a day are the most"
        return ""

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """The trail, for nobody else at the same time."""
        try:
            number = os.open(self._trail, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise UsageError(
                f"the audit trail {self._trail} cannot be written: {error.strerror}; nothing is done without it"
            ) from error
        try:
            fcntl.flock(number, fcntl.LOCK_EX)
            yield number
        finally:
            os.close(number)


def _read(number: int) -> list[dict[str, Any]]:
    size = os.fstat(number).st_size
    raw = os.pread(number, min(size, _MOST_TRAIL), max(0, size - _MOST_TRAIL))
    entries = []
    for line in raw.split(b"\n"):
        with contextlib.suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict) and isinstance(entry.get("at"), (int, float)):
                entries.append(entry)
    return entries


def _append(number: int, entry: dict[str, Any]) -> None:
    os.write(number, json.dumps(entry, ensure_ascii=True).encode() + b"\n")
    os.fsync(number)


class SlurmActor:
    """Slurm's means: scontrol, by whoever may."""

    def state(self, node: str) -> str:
        """The node's state as scontrol shows it; flags such as DRAIN stand behind a +."""
        _, out, _ = told_by(["sinfo", "-h", "-N", "-n", node, "-o", "%T"])
        return out.split("\n")[0].strip()

    def drain(self, node: str, why: str) -> str | None:
        """Drains a node."""
        code, _, said = told_by(["scontrol", "update", f"nodename={node}", "state=drain", f"reason={why}"])
        return None if code == 0 else cut(said, 200) or "scontrol failed"

    def requeue(self, job: str, exclude: Sequence[str], why: str) -> str | None:
        """Requeues a job, held until the nodes are excluded."""
        code, _, said = told_by(["scontrol", "requeuehold" if exclude else "requeue", job])
        if code != 0:
            return cut(said, 200) or "scontrol failed"
        if not exclude:
            return None
        code, _, said = told_by(["scontrol", "update", f"jobid={job}", f"excnodelist={','.join(exclude)}"])
        problem = None if code == 0 else f"requeued, but it may get the same nodes: {cut(said, 200)}"
        code, _, said = told_by(["scontrol", "release", job])
        return problem if code == 0 else f"requeued and held: {cut(said, 200)}"
