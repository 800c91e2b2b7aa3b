"""Scheduler records in one canonical line each, whatever tool printed them and in whatever format.

In: names and values as Slurm or Kubernetes gave them. Out: a `scheduler` record whose `text` is one of these lines,
keys in this order, keys without a value left out. A value with white space or quotes is quoted; `message` always is.

    slurm job=818820 step=batch name=sft user=ada state=NODE_FAIL exit=0:15 derived=0:0 reason=None
          nodes=q-[10-11] start=2026-04-27T09:12:00 end=2026-04-27T13:06:12 preempt=2026-04-27T13:05:41 elapsed=03:54:12
          limit=2-00:00:00 maxrss=1201K reqmem=256G restarts=0 requeue=1 by=1000 uid=1000
          (one line; `uid` is the owner's number, given where somebody cancelled the job)
    slurm node=cq04 state=DOWN* reason="Not responding" since=2026-05-02T22:26:25
    k8s pod=ml/ddp-worker-1 node=k8-gpu-14 phase=Failed reason=Evicted message="The node was low on resource: ..."
    k8s container=pytorch pod=ml/ddp-worker-1 state=terminated reason=OOMKilled exit=137 signal=9 restarts=2
          node=k8-gpu-14 started=... finished=... message="..."      (`last-state` for the state before a restart)
    k8s event=Preempted type=Normal object=pod/ddp-worker-1 count=3 from=kubelet message="Preempted by pod ..."
    k8s node=k8-gpu-14 condition=Ready status=Unknown reason=NodeStatusUnknown since=... message="Kubelet stopped ..."
    k8s job=ml/ddp kind=PyTorchJob condition=Failed status=True reason=PyTorchJobFailed since=... message="..."

`fields` holds the same values unquoted, and `record`: slurm_job, slurm_node, k8s_pod, k8s_container, k8s_event,
k8s_node or k8s_job. The record's one line is the one where the state stands; its time is the end or
the event, where given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from diagnose.dataclass import replace
from diagnose.lines.times import read_time
from diagnose.models import Line, Record
from diagnose.patterns import Lazy

_MAX_VALUE = 4096
_PLAIN = Lazy(r"[^\s\"']+\Z")
_EMPTY = frozenset({"", "(null)", "N/A", "None assigned", "<none>", "<unset>", "null", "Unknown"})

# Slurm's states of a job, as its manual lists them; a column that is too narrow cuts them and puts a `+` at the end.
_STATES = (
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "COMPLETING", "CONFIGURING", "DEADLINE", "FAILED", "LAUNCH_FAILED",
    "NODE_FAIL", "OUT_OF_MEMORY", "PENDING", "PREEMPTED", "RECONFIG_FAIL", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD",
    "RESIZING", "RESV_DEL_HOLD", "REVOKED", "RUNNING", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED",
    "SUSPENDED", "TIMEOUT",
)  # fmt: skip
_CUT = "+"

_ORDER: Mapping[str, tuple[str, ...]] = {
    "slurm_job": (
        "job", "step", "name", "user", "state", "exit", "derived", "reason", "nodes", "start", "end", "preempt",
        "elapsed", "limit", "maxrss", "reqmem", "restarts", "requeue", "by", "uid",
    ),
    "slurm_node": ("node", "state", "reason", "since"),
    "k8s_pod": ("pod", "node", "phase", "reason", "message"),
    "k8s_container": (
        "container", "pod", "state", "last-state", "reason", "exit", "signal", "restarts", "node", "started",
        "finished", "message",
    ),
    "k8s_event": ("event", "type", "object", "count", "from", "message"),
    "k8s_node": ("node", "condition", "status", "reason", "since", "message"),
    "k8s_job": ("job", "kind", "phase", "condition", "status", "reason", "since", "message"),
}  # fmt: skip


def canonical(record: str, values: Mapping[str, str | None], line: Line, time: str | None = None) -> Record:
    """The record of kind `record` with `values`, standing at `line`; `time` is when it ended, as printed."""
    kept: dict[str, str] = {}
    for key in _ORDER[record]:
        value = values.get(key)
        if value is None:
            continue
        value = " ".join(value.split())[:_MAX_VALUE]
        if value not in _EMPTY or (key in ("status", "state", "phase") and value):
            kept[key] = value
    head = "slurm" if record.startswith("slurm") else "k8s"
    text = " ".join([head, *(f"{key}={_quote(key, value)}" for key, value in kept.items())])
    when = read_seconds(time)
    if when is not None:
        line = replace(line, time=when)
    return Record(kind="scheduler", lines=(line,), text=text, fields={"record": record, **kept}, quoted=line.quoted)


def read_seconds(text: str | None) -> float | None:
    """Seconds since the epoch of a time as printed: a date, or seconds already."""
    if not text:
        return None
    if text.isdigit() and 9 <= len(text) <= 10:
        return float(text)
    return read_time(text)


def slurm_job(values: Mapping[str, str], line: Line) -> Record | None:
    """A job or step from Slurm's own names of its fields in lower case (sacct's columns, scontrol's keys)."""
    given = {key.lower().replace("%", ""): value.strip() for key, value in values.items()}

    def first(*names: str) -> str | None:
        return next((given[name] for name in names if given.get(name)), None)

    number = first("jobid", "jobidraw")
    state = first("state", "jobstate")
    if state is None:
        return None
    job, _, step = (number or "").partition(".")
    state, by = _cancelled(state)
    by = by or first("killrequestuser")
    user = first("user", "userid", "username")
    end = first("end", "endtime")
    nodes = first("nodelist", "nodes")
    return canonical(
        "slurm_job",
        {
            "job": job,
            "step": step,
            "name": first("jobname", "name"),
            "user": user.partition("(")[0] if user else None,
            "state": state,
            "exit": first("exitcode"),
            "derived": first("derivedexitcode"),
            "reason": first("reason", "statereason"),
            "nodes": None if nodes is not None and nodes.endswith(_CUT) else nodes,
            "start": first("start", "starttime"),
            "end": end,
            "preempt": first("preempttime"),
            "elapsed": first("elapsed", "runtime"),
            "limit": first("timelimit"),
            "maxrss": first("maxrss"),
            "reqmem": first("reqmem"),
            "restarts": first("restarts", "restartcnt"),
            "requeue": first("requeue"),
            "by": by,
            "uid": given.get("uid") or _in_brackets(user) if by else None,
        },
        line,
        first("preempttime") if state == "PREEMPTED" and end is None else end,
    )


def _in_brackets(user: str | None) -> str | None:
    """The number of `ada(1000)`."""
    number = (user or "").partition("(")[2].rstrip(")")
    return number if number.isdigit() else None


def _cancelled(state: str) -> tuple[str, str | None]:
    """`CANCELLED by 1000` to the state and who did it, where the column was wide enough to say that."""
    name, _, by = state.partition(" by ")
    return _uncut(name.strip()), None if by.endswith(_CUT) else by.strip() or None


def _uncut(state: str) -> str:
    """`OUT_OF_ME+` to the state that it is the beginning of, where that is but one; `CANCELLED+` cuts off by whom."""
    if not state.endswith(_CUT):
        return state
    start = state.removesuffix(_CUT).split(" ")[0]
    known = [name for name in _STATES if name == start] or [name for name in _STATES if name.startswith(start)]
    return known[0] if len(known) == 1 else state


def slurm_node(values: Mapping[str, str], line: Line) -> Record | None:
    """A node from scontrol's keys in lower case."""
    name, state = values.get("nodename") or values.get("name"), values.get("state")
    if not name or not state:
        return None
    reason, _, stamp = (values.get("reason") or "").partition(" [")
    since = stamp.rstrip("]").rpartition("@")[2] if stamp else values.get("since")
    return canonical("slurm_node", {"node": name, "state": state, "reason": reason, "since": since}, line, since)


def join(items: Iterable[str]) -> str:
    """Several flags of one state as Slurm prints them."""
    return "+".join(items)


def _quote(key: str, value: str) -> str:
    if key != "message" and _PLAIN.match(value):
        return value
    import json

    return json.dumps(value, ensure_ascii=False)
