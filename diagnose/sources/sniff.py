"""What the first 64 KB of an input say of its kind.

In: bytes. Out: `Content`: the kind where the shape of the lines leaves no doubt, how much of it looks like a kernel
log, the one host that all its lines name, and the ranks that prefixes name.
"""

from __future__ import annotations

import re

from diagnose.dataclass import dataclass
from diagnose.models import SourceKind
from diagnose.patterns import Lazy

_LINES = 400
_LINE_BYTES = 1000
_HOST = rb"([A-Za-z0-9][A-Za-z0-9._-]{0,100})"
# Who writes to a system log besides the kernel; a job's own lines through syslog bear another name.
_WRITER = (
    rb"(?:kernel|systemd|CRON|cron|crond|sshd|dockerd|containerd|chronyd|ntpd|rsyslogd|dbus-daemon|NetworkManager"
    rb"|nvidia-persistenced|nv-fabricmanager|nvidia-fabricmanager|kubelet|audit|auditd|slurmd|slurmstepd|irqbalance|mcelog"
    rb"|rasdaemon|smartd|multipathd|iscsid|polkitd|sudo|su|snapd|dhclient|opensm|ibacm|init|run-parts|anacron|logrotate"
    rb"|systemd-[a-z]{1,30})"
)
_STAMP = (
    rb"(?:[A-Z][a-z]{2} [ 0-9]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?(?: \d{4})?"
    rb"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?)"
)
_SYSLOG = Lazy(rb"(?:<\d{1,3}>)?" + _STAMP + rb" " + _HOST + rb" " + _WRITER + rb"(?:\[\d{1,10}\])?: ")
_SYSLOG_ANY = Lazy(rb"(?:<\d{1,3}>)?" + _STAMP + rb" " + _HOST + rb" [A-Za-z0-9_.()/@-]{1,60}(?:\[\d{1,10}\])?: ")
_DMESG = Lazy(
    rb"(?:<\d{1,3}>|[a-z]{1,8} *:[a-z]{1,6} *: ?)?"
    rb"(?:\[ *\d{1,9}\.\d{6}\](?:\[ *[TC]\d{1,7}\])? |\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9]\d \d\d:\d\d:\d\d \d{4}\] "
    rb"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{6}[+-]\d\d:?\d\d )"
)
_JOURNAL_JSON = (b'"__REALTIME_TIMESTAMP"', b'"_TRANSPORT"', b'"SYSLOG_IDENTIFIER"', b'"_BOOT_ID"')
_JOURNAL_HOST = Lazy(rb'"_HOSTNAME" ?: ?"' + _HOST + rb'"')
# Lines of a system log that have no stamp of their own.
_JOURNAL_MARK = (b"-- Logs begin", b"-- Journal begins", b"-- Boot ", b"-- Reboot", b"-- No entries", b"-- cursor")

_SACCT = Lazy(rb"JobID(?:Raw)? *[| ,] *.{0,600}(?:State|ExitCode|Partition|NodeList|Elapsed|JobName)", re.IGNORECASE)
_SQUEUE = Lazy(rb" *JOBID +PARTITION|PARTITION +AVAIL|NODELIST +|HOSTNAMES +")
_SCONTROL = Lazy(rb"(?:JobId|NodeName|PartitionName|StepId|JobID)=\S")
_PAIRS = Lazy(rb"\s*[A-Za-z_/:]{1,40}=")
_DESCRIBE = Lazy(rb"Name: {2,}\S")
_DESCRIBE_LINE = Lazy(rb"[ \t]+\S|[A-Z][A-Za-z .()-]{1,40}:|  ")
_EVENTS = Lazy(rb"(?:NAMESPACE +)?(?:LAST SEEN|FIRST SEEN|LASTSEEN) +|NAME +READY +STATUS")
_KUBE_KIND = Lazy(
    rb'(?m)^[ \t-]{0,20}"?kind"?: ?"?(?:List|Pod|PodList|Event|EventList|Job|JobList|Node|NodeList|Workload'
    rb"|PyTorchJob|MPIJob|TFJob|TrainJob|RayJob|RayCluster|JobSet|VolcanoJob|PodGroup)\b"
)
_SLURMD = Lazy(
    rb"\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3})?\] (?:\[\d{1,10}\.\w{1,10}\] )?(?:error|debug\d?|slurm|sched|_slurm"
    rb"|node|Launch|launch|task|done|update_node|prolog|epilog|JobId|job|cleanup|Resending|requeue|backfill|slurmctld|slurmd)"
)
_FLIGHT_RECORDER = (
    (b'"pg_config"', b'"entries"'),
    (b'"nccl_version"', b'"entries"'),
    (b'"collective_seq_id"', b'"profiling_name"'),
)
_STACKS = Lazy(rb"Process \d{1,10}: |Thread \d{1,10} \(|\[New LWP|#0 +0x[0-9a-f]{4,16} in ")
_STATES_HOST = Lazy(
    rb"(?:^|[\s|>])([A-Za-z][A-Za-z0-9.-]{0,100}):\d{1,9}:\d{1,9} \[\d{1,3}\] NCCL "
    rb"|\bsrun: error: ([A-Za-z0-9.-]{1,100}): tasks? "
    rb"|\b(?i:hostname)['\"]?[:=] {0,4}['\"]?([A-Za-z][A-Za-z0-9.-]{0,100})|\bSLURMD_NODENAME=([A-Za-z0-9.-]{1,100})"
)
_OPENS_HOST = (b"NCCL ", b"srun: error: ", b"ostname", b"HOSTNAME", b"SLURMD_NODENAME=")
_PREFIX_RANK = Lazy(rb"\[(?:rank|default)(\d{1,6})\]")
_ONE_RANK = Lazy(rb"\b(?:global_)?rank[ =:]{1,2}(\d{1,6})\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Content:
    """What the head says. `kernel_share` is 0 to 1; `ranks` are those of `[rankN]` and `[defaultN]` prefixes."""

    kind: SourceKind | None = None
    kernel_share: float = 0.0
    host: str | None = None
    settings: bool = False


def content_of(head: bytes) -> Content:
    """Return what `head`, UTF-8 without a mark, says of its kind."""
    lines = [line[:_LINE_BYTES].rstrip(b"\r") for line in head.split(b"\n", _LINES)[:_LINES] if line.strip(b"\0 \t\r")]
    if not lines:
        return Content()
    if kind := _structured(head, lines):
        host = _one(_JOURNAL_HOST.findall(head)) if kind == "kernel" else None
        return Content(kind, 1.0 if kind == "kernel" else 0.0, host)
    if _is_scheduler(lines):
        return Content("scheduler")
    if _STACKS.match(lines[0]):
        return Content("dump")
    return _system(lines) or Content(settings=_is_settings(lines))


def ranks_of(head: bytes) -> frozenset[int]:
    """Return the ranks that line prefixes name, or else the one that the text speaks of."""
    prefixed = frozenset(int(rank) for rank in _PREFIX_RANK.findall(head))
    if prefixed:
        return prefixed
    said = frozenset(int(rank) for rank in _ONE_RANK.findall(head))
    return said if len(said) == 1 else frozenset()


def hosts_stated(head: bytes) -> frozenset[str]:
    """Return the hosts that lines of `head` state outright: NCCL's prefix, srun's errors, a host's name so called."""
    if not any(literal in head for literal in _OPENS_HOST):
        return frozenset()
    found = {name.partition(b".")[0] for groups in _STATES_HOST.findall(head) for name in groups if name}
    return frozenset(name.decode("ascii").lower() for name in found) - {"localhost"}


def names_host(head: bytes, host: str) -> bool:
    """Say whether `host` stands in `head` as a word of its own, or before its domain."""
    word = host.encode("utf-8", "replace")
    position = head.find(word)
    while position >= 0:
        before = head[position - 1 : position]
        after = head[position + len(word) : position + len(word) + 1]
        if not (before.isalnum() or (before in (b"-", b"_", b"/", b".") and before)) and not (
            after.isalnum() or (after in (b"-", b"_") and after)
        ):
            return True
        position = head.find(word, position + 1)
    return False


def _structured(head: bytes, lines: list[bytes]) -> SourceKind | None:
    start = lines[0].lstrip()
    if start.startswith(b"__CURSOR="):
        return "kernel"
    if start.startswith((b"{", b"[")):
        if sum(key in head for key in _JOURNAL_JSON) >= 2:
            return "kernel"
        if any(all(key in head for key in keys) for keys in _FLIGHT_RECORDER):
            return "dump"
        if b'"apiVersion"' in head and _KUBE_KIND.search(head):
            return "scheduler"
        if b'"jobs"' in head and (b'"job_id"' in head or b'"job_state"' in head or b'"exit_code"' in head):
            return "scheduler"
        if b'"apiVersion"' in head and b'"kind"' in head and b'"metadata"' in head:
            return "scheduler"
    elif start.startswith((b"apiVersion:", b"kind:", b"---", b"items:", b"- apiVersion:")) and (
        b"apiVersion:" in head and _KUBE_KIND.search(head)
    ):
        return "scheduler"
    return None


def _is_scheduler(lines: list[bytes]) -> bool:
    first = lines[0]
    rest = lines[1:] or [b""]
    if b"=" in first and _SCONTROL.match(first):
        return _share(rest, _PAIRS) >= 0.8 or lines[1:] == []
    if first[:5].lower() == b"jobid" and _SACCT.match(first):
        separator = b"|" if b"|" in first else None
        rows = sum(
            1
            for line in rest
            if (separator in line if separator else line[:1].isdigit() or line.startswith((b"-", b" ")))
        )
        return rows >= 0.8 * len(lines[1:])
    if first.startswith(b"Name:") and _DESCRIBE.match(first):
        return _share(rest, _DESCRIBE_LINE) >= 0.9
    if _EVENTS.match(first) or _SQUEUE.match(first):
        return True
    bracketed = [line for line in lines if line.startswith(b"[")]
    return len(bracketed) >= 0.6 * len(lines) and _share(bracketed, _SLURMD) * len(bracketed) >= 0.6 * len(lines)


def _system(lines: list[bytes]) -> Content | None:
    hosts: list[bytes] = []
    shaped = sure = 0
    for line in lines:
        match = _SYSLOG_ANY.match(line)
        if match and _SYSLOG.match(line):
            shaped += 1
            sure += 1
            hosts.append(match[1])
        elif _DMESG.match(line):
            shaped += 1
            sure += 1
        elif match:
            shaped += 1
            hosts.append(match[1])
        elif line.startswith(_JOURNAL_MARK):
            shaped += 1
    share = shaped / len(lines)
    if not sure:
        return None
    kernel = share >= 0.6 and sure >= 0.2 * len(lines)
    return Content("kernel" if kernel else None, share, _one(hosts) if kernel else None)


def _is_settings(lines: list[bytes]) -> bool:
    """Say whether this is one pretty-printed JSON value or a YAML mapping: settings, not the lines of a log."""
    if lines[0].strip() in (b"{", b"[", b"[{"):
        return True
    return len(lines) == 1 and lines[0][:1] in (b"{", b"[") and b'"message"' not in lines[0]


def _share(lines: list[bytes], pattern: Lazy[bytes]) -> float:
    return sum(1 for line in lines if pattern.match(line)) / len(lines)


def _one(hosts: list[bytes]) -> str | None:
    distinct = set(hosts)
    return distinct.pop().decode("utf-8", "replace") if len(distinct) == 1 else None
