"""Where a log was written and which of its processes ended badly, by what the log says as a whole.

In: lines and launchers' summaries, each with its source and attempt. Out: for a source's attempt the one process that
its launchers saw fail, and the one host that it speaks of. Both answer only where exactly one is left, and only from
that source: with fewer inputs less is known, and nothing else. They are presumptions: a launcher may have reaped a
victim, and a log may be the whole job's. So nobody is drained for them.
"""

from __future__ import annotations

from diagnose.dataclass import dataclass, field
from diagnose.lines.hostlists import is_address
from diagnose.lines.writers import looks_like_host
from diagnose.models import LauncherFailure, Line, Record
from diagnose.patterns import Lazy, holds_any

MAX_LOGS = 8192
MAX_FAILURES = 256
MAX_HOSTS_OF_LOG = 8

# A launcher's own doing to those that are left over, and what it calls the whole job's end.
_ITS_OWN_DOING = frozenset({"cancelled", "kill"})
_SENT = frozenset({"SIGTERM", "SIGINT", "SIGHUP", "SIGCONT"})
_KILLED = "SIGKILL"
_CRASHED = frozenset({"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE"})
# How a process ends that died of what the error type says; any other way is another story.
_MANNER = {
    "HostOutOfMemory": frozenset({_KILLED}),
    "ProcessKilled": frozenset({_KILLED}),
    "SegmentationFault": _CRASHED,
}

# Lines by which a log says on which machine it is: a shell's prompt, a scheduler's variables, a banner's own words.
STATED = (
    "SLURMD_NODENAME", "running on host", "running on node", "scheduled on host", "scheduled on node", "ostname: ",
)  # fmt: skip
_PLACE = Lazy(
    r"\bSLURMD_NODENAME=(?P<slurm>[\w.-]{1,253})|\b(?:running|scheduled) on (?:host|node):? (?P<banner>[\w.-]{1,253})"
    r"|\A\W{0,4}[Hh]ostname: {1,8}(?P<pair>[\w.-]{1,253})\s{0,8}\Z"
)
_PROMPT = Lazy(
    r"(?:\([\w.-]{1,40}\) {0,2})?\[?[a-z_][\w.-]{0,31}@(?P<host>[A-Za-z][\w.-]{0,252})[: ][^\s$#>]{0,200}[$#] "
)
_FRONT = Lazy(r"(?i:login|log-?in|head|master|mgmt|admin|submit|bastion|jump|front|gateway|gw|mac|laptop)")
_MANY_NODES = Lazy(
    r"(?:--nnodes|\bnnodes|--num_nodes|--nodes|\bSLURM_(?:JOB_|STEP_)?N(?:UM_)?NODES|\bNumNodes)[= ]+['\"]?(\d{1,5})\b"
    r"|\bnNodes (\d{1,5})\b"
    r"|NODELIST=[^\s=]{0,200}([\[,])"
)
_MANY_LITERALS = ("nodes", "NODE", "Nodes")
_NCCL = Lazy(r"(?P<host>[A-Za-z0-9][\w.-]{0,252}):\d{1,9}:\d{1,9} \[\d{1,3}\] NCCL ")
_NCCL_SAYS = (" nranks ", " nRanks ", "Bootstrap : Using")  # what no filter takes away: all hosts are heard, or none
# Of a line that holds none of them only its host is of interest.
LITERALS = ("NCCL ", "@", "SLURM", *STATED, *_MANY_LITERALS)
_NCCL_SIZE = Lazy(r" n[rR]anks (\d{1,7})\b")
_MOST_OF_A_HOST = 16  # more ranks than that are on several hosts
_SYSLOG = Lazy(r"(?:<\d{1,3}>)?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d ")


@dataclass(slots=True)
class _Log:
    hosts: dict[str, None] = field(default_factory=dict)
    failures: list[tuple[LauncherFailure, bool]] = field(default_factory=list)
    many: bool = False
    labelled: bool = False


@dataclass(frozen=True, slots=True)
class Presumed:
    """Where something probably happened; each field is None where that is not known."""

    rank: int | None = None
    pid: int | None = None
    host: str | None = None


class Whereabouts:
    """What each log says of its own place, by source and attempt."""

    def __init__(self) -> None:
        self._logs: dict[tuple[str, int], _Log] = {}

    def observe(self, line: Line, attempt: int) -> None:
        """Take what a line says of where it was written."""
        if line.source.host is not None:
            return
        text = line.text[:512]
        if line.quoted:
            self._typed(line, attempt, text)
            return
        if "NCCL " in text and (found := _NCCL.search(text)) is not None:
            self._nccl(line, attempt, found["host"], text)
        elif line.host is not None and _SYSLOG.match(text) is None:
            # Where lines carry their host's name, a line without one was written by nobody knows whom.
            if (log := self._log(line, attempt)) is not None:
                log.labelled = True
            return
        elif holds_any(text, STATED) and (found := _PLACE.search(text)) is not None:
            self._host(line, attempt, found["slurm"] or found["banner"] or found["pair"])
        self._several(line, attempt, text)

    def _typed(self, line: Line, attempt: int, text: str) -> None:
        """A command that somebody typed or a variable's echo is no event, but tells where."""
        if "@" in text[:64] and (found := _PROMPT.match(text)) is not None and _FRONT.match(found["host"]) is None:
            self._host(line, attempt, found["host"])
        elif "SLURM" in text:
            if (found := _PLACE.search(text)) is not None and found["slurm"]:
                self._host(line, attempt, found["slurm"])
            self._several(line, attempt, text)

    def _several(self, line: Line, attempt: int, text: str) -> None:
        if holds_any(text, _MANY_LITERALS) and (found := _MANY_NODES.search(text)) is not None:
            self._many(line, attempt, bool(found[3]) or int(found[1] or found[2]) > 1)

    def _nccl(self, line: Line, attempt: int, host: str, text: str) -> None:
        if holds_any(text, _NCCL_SAYS):
            self._host(line, attempt, host)
            size = _NCCL_SIZE.search(text)
            self._many(line, attempt, size is not None and int(size[1]) > _MOST_OF_A_HOST)

    def _many(self, line: Line, attempt: int, many: bool) -> None:
        if many and (log := self._log(line, attempt)) is not None:
            log.many = True

    def learn(self, record: Record, attempt: int) -> None:
        """Take what a launcher says of the processes that it started."""
        if not record.failures or record.quoted or record.fields.get("what") in _ITS_OWN_DOING:
            return
        log = self._log(record.first, attempt)
        if log is None:
            return
        tasks = "srun: error: " in record.first.text  # tasks may be launchers, so their numbers are no ranks
        for item in record.failures:
            if len(log.failures) < MAX_FAILURES:
                log.failures.append((item, tasks))
            if item.host is not None:
                self._host(record.first, attempt, item.host)

    def failed(self, source: str, attempt: int, error_type: str) -> Presumed:
        """The one process, and the one host, that the launchers of a log saw end as the error type has it."""
        log = self._logs.get((source, attempt))
        if log is None or len(log.failures) >= MAX_FAILURES:
            return Presumed()
        kept = [(item, task) for item, task in log.failures if _fits(item, error_type)]
        hosts = {item.host for item, _ in kept if item.host is not None}
        known = {item.rank for item, task in kept if item.rank is not None and not task}
        pids = {item.pid for item, _ in kept if item.pid is not None}
        one = len(known) == 1 and len(pids) <= 1
        return Presumed(
            next(iter(known)) if one else None,
            next(iter(pids)) if one and pids else None,
            next(iter(hosts)) if len(hosts) == 1 else None,
        )

    def failed_on(self, source: str, attempt: int, error_type: str) -> frozenset[str]:
        """The hosts on which the launchers of a log saw processes end as the error type has it.

        None of them where the type is no manner of ending, or where one that ended so is not said to be on a host.
        """
        log = self._logs.get((source, attempt))
        if log is None or error_type not in _MANNER or len(log.failures) >= MAX_FAILURES:
            return frozenset()
        hosts = {item.host for item, _ in log.failures if _fits(item, error_type)}
        return frozenset() if None in hosts else frozenset(host for host in hosts if host is not None)

    def host(self, source: str, attempt: int) -> str | None:
        """The one host that a log speaks of, where nothing in it speaks of several nodes."""
        log = self._logs.get((source, attempt))
        if log is None or log.many or log.labelled or len(log.hosts) != 1:
            return None
        return next(iter(log.hosts))

    def _host(self, line: Line, attempt: int, name: str) -> None:
        log = self._log(line, attempt)
        if log is None or len(log.hosts) >= MAX_HOSTS_OF_LOG:
            return
        name = name.rstrip(".").lower() if is_address(name) else name.rstrip(".").partition(".")[0]
        if is_address(name) or looks_like_host(name):
            log.hosts[name] = None

    def _log(self, line: Line, attempt: int) -> _Log | None:
        key = (line.source.name, attempt)
        log = self._logs.get(key)
        if log is None and len(self._logs) < MAX_LOGS:
            log = self._logs[key] = _Log()
        return log


def _fits(item: LauncherFailure, error_type: str) -> bool:
    """Whether a process ended of itself, in a way that the error type explains."""
    if item.signal in _SENT or (item.exit_code == 0 and item.signal is None):
        return False
    wanted = _MANNER.get(error_type)
    return item.signal != _KILLED if wanted is None else item.signal in wanted
