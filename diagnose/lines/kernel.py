"""Kernel reports of several lines: oopses, lockups, stalls, hung tasks, panics, and the oom-killer's account.

In: the lines of one kernel stream (or of a job log that holds such lines) from an opener on. Out: `kernel_oops`
records. Other messages that come in between (Xid lines, link changes ...) stay lines of their own.
"""

from __future__ import annotations

from diagnose.lines.grammar import Builder, Lines, Step
from diagnose.models import Line, Record
from diagnose.patterns import Lazy
from diagnose.settings import Limits

_MAX_NOISE = 32
_OPEN = Lazy(
    r"BUG: |Oops: |Kernel panic - not syncing|INFO: task .{1,64} blocked for more than"
    r"|INFO: rcu_\w{1,32} (?:self-)?detected"
    r"|INFO: rcu_\w{1,32} detected stalls|general protection fault|unable to handle (?:kernel|page)"
    r"|watchdog: .{0,32}(?:soft|hard) LOCKUP"
    r"|Watchdog detected hard LOCKUP|NMI watchdog: |WARNING: CPU: \d{1,5} PID: |divide error: "
    r"|invalid opcode: |stack segment: |kernel BUG at "
)
_OOM = " invoked oom-killer: "
_OOM_END = ("Killed process", "oom_reaper: reaped process")
_END = ("---[ end ", "end Kernel panic")
_STARTS = (
    "CPU: ", "Hardware name:", "RIP:", "RSP:", "RAX:", "RDX:", "RBP:", "R10:", "R13:", "FS:", "CS:", "CR2:", "DR0:",
    "DR3:", "PKRU:", "Code:",
    "Call Trace:", "Call trace:", "<TASK>", "</TASK>", "<IRQ>", "</IRQ>", "<NMI>", "</NMI>", "Modules linked in:",
    "Workqueue:", "#PF:", "PGD ", "Oops:",
    "task:", '"echo 0 >', "Not tainted", "Tainted:", "rcu:", "NMI backtrace", "Sending NMI", "Kernel Offset",
    "Rebooting in", "---[",
    "irq event stamp", "hardirqs", "softirqs", "pc :", "lr :", "sp :", "x29:", "x27:", "x24:", "x21:", "x18:",
    "x15:", "x12:", "x9 :", "x6 :", "x3 :",
    "pstate:", "Comm:", "(detected by", "(t=", "Possible timer handling", "EFLAGS", "ORIG_RAX", "Internal error",
    "Unable to handle", "Mem abort info",
    "Kernel panic", "Future hung task reports", "Blocked by coredump", "Showing all locks",
)  # fmt: skip
_OOM_STARTS = (
    "CPU: ", "Hardware name:", "Call Trace:", "<TASK>", "</TASK>", "RIP:", "RSP:", "RAX:", "RDX:", "RBP:", "R10:",
    "R13:", "Code:", "Mem-Info:",
    "active_anon:", "Node ", "lowmem_reserve", "Tasks state", "[ pid ]", "[  pid  ]", "oom-kill:", "Memory cgroup ",
    "memory: usage", "swap: usage", "memory+swap:",
    "kmem: usage", "Cgroup ", "anon ", "file ", "kernel_stack", "Tasks in ", "Task in ", "Out of memory",
    "Total swap", "Free swap", "Swap cache",
    "pages RAM", "pages HighMem", "pages reserved", "pages hwpoisoned", "pagecache", "slab_", "Unreclaimable slab",
    "free:", "isolated_anon",
    "unevictable:", "mapped:", "inactive_", "Killed process", "oom_reaper:", "Name ", "COMPACT", "total_vm",
)  # fmt: skip
_TRACE = Lazy(
    r"\s{0,8}(?:\? )?[A-Za-z_.][\w.]{0,127}\+0x[0-9a-f]{1,8}(?:/0x[0-9a-f]{1,8})?|\s{0,8}\[<[0-9a-f]{1,18}>\]"
)
# How a kernel's own log stamps a line: dmesg, `dmesg -T`, `--time-format iso`, `--decode`, syslog and the journal.
_STAMPED = Lazy(
    r"\W{0,4}\[ {0,8}\d{1,9}\.\d{1,6}\] |\W{0,4}\[\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}\] "
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{6}[+-]\d\d:\d\d |.{0,120}?(?: kernel: |\bkern {0,4}: {0,2}\w{1,8} {0,4}:)"
)
_UPTIME = Lazy(r"\W{0,4}\[ {0,8}(\d{1,9}\.\d{1,6})\]")
_TASK_ROW = Lazy(r"\[\s{0,8}\d{1,9}\]\s{1,8}\d{1,9}\s|\d{1,12} (?:total|pages)\b")

OPENERS = (
    "soft lockup", "BUG: kernel", "BUG: Bad ", "BUG: scheduling", "BUG: workqueue", "BUG: KASAN", "Oops: ",
    "Kernel panic", "blocked for more than", "INFO: rcu_", "general protection fault", "unable to handle",
    "hard LOCKUP",
    "invoked oom-killer", "WARNING: CPU: ", "kernel BUG at ", "invalid opcode: ",
)  # fmt: skip


def is_kernel_line(text: str) -> bool:
    """Whether a line bears the stamp of a kernel's log: what a kernel said, and not only words that one could say."""
    return _STAMPED.match(text) is not None


def uptime_of(line: Line) -> float | None:
    """Seconds since boot that a line of a kernel's log states, however many digits it has."""
    if line.uptime is not None or line.time is not None:
        return line.uptime
    found = _UPTIME.match(line.text)
    return float(found[1]) if found is not None else None


def open_kernel(line: Line, limits: Limits) -> Builder | None:
    """The report that `line` opens, if it opens one."""
    body = line.body
    if _OOM in body:
        return _Oops(line, limits, oom=True)
    if _OPEN.search(body[:512]) and (
        line.source.kind == "kernel" or "kernel" in line.text[:128] or line.uptime is not None
    ):
        return _Oops(line, limits, oom=False)
    return None


class _Oops:
    def __init__(self, line: Line, limits: Limits, *, oom: bool) -> None:
        self._lines = Lines(limits.record_lines)
        self._oom = oom
        self._noise = 0
        self._killed = False
        self._lines.add(line, keep=True)

    def add(self, line: Line) -> Step:
        """Judge the next line of the stream."""
        stripped = line.body.strip()
        if self._killed:
            # The reaper's line may follow the kill, nothing else does.
            if stripped.startswith("oom_reaper: reaped process"):
                self._lines.add(line, keep=True)
                return Step.FINAL
            return Step.REFUSED
        starts = _OOM_STARTS if self._oom else _STARTS
        if not (stripped.startswith(starts) or _TRACE.match(line.body) or (self._oom and _TASK_ROW.match(stripped))):
            if self._oom and "Killed process" in stripped:
                self._killed = True
                self._lines.add(line, keep=True)
                return Step.TAKEN
            self._noise += 1
            return Step.PASSED if self._noise <= _MAX_NOISE else Step.REFUSED
        self._noise = 0
        self._killed = self._oom and "Killed process" in stripped
        self._lines.add(line, keep=self._killed or stripped.startswith(("oom-kill:", "Kernel panic", "RIP:")))
        return Step.FINAL if stripped.startswith(_END) else Step.TAKEN

    def close(self) -> list[Record]:
        """The report as one record."""
        lines, _ = self._lines.finish()
        return [
            Record(
                kind="kernel_oops",
                lines=lines,
                text="\n".join(line.text for line in lines),
                fields={"what": "oom" if self._oom else "oops"},
                quoted=lines[0].quoted,
            )
        ]
