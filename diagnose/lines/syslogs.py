"""Heads of system logs: syslog old and new, the journal's text, dmesg --decode, Go's logfmt.

In: a line and where to look. Out: where the head ends, or -1; what it says goes into the `Head`.
"""

from __future__ import annotations

from diagnose.lines.heads import (
    UPTIME,
    Head,
    clock_groups,
    level_of,
    level_of_number,
    past_separator,
    pid_of,
    stamped,
)
from diagnose.lines.stamps import ISO, LOCALE, MONTHS, SYSLOG, Clock
from diagnose.lines.writers import HOST
from diagnose.patterns import Lazy

_LOCALE = Lazy(LOCALE)
_SYSLOG = Lazy(SYSLOG + r":?")
_TAG = Lazy(rf"({HOST}|[0-9.]{{7,15}}) ([\w./@:-]{{1,64}}?)(?:\[([0-9]{{1,8}})\])?: ?")
_FACILITY = Lazy(
    r"(?:kern|user|daemon|syslog|auth|authpriv|mail|cron|local[0-7]|lpr) {0,8}:"
    r" {0,2}(emerg|alert|crit|err|warn|notice|info|debug)(?:or|ing)? {0,8}: ?"
)
_PRI = Lazy(r"<([0-9]{1,3})>(?:1 (?:" + ISO + r"|-) (\S{1,255}) (\S{1,64}) (\S{1,128}) \S{1,64} )?")
_STRUCTURED = Lazy(r"(?:-|(?:\[[^\]]*\])+)(?: |$)")
_LOGFMT = Lazy(r'time="?' + ISO + r'"? level=(\w{1,10}) ')
_KNOWN_TAGS = (
    "kernel",
    "systemd",
    "slurmstepd",
    "slurmd",
    "slurmctld",
    "kubelet",
    "containerd",
    "dockerd",
    "sshd",
    "CRON",
)
_LAUNCHERS = ("slurmstepd", "slurmd", "slurmctld", "srun")


def tag(text: str, pos: int, head: Head, *, sure: bool) -> int:
    """`host kernel: [123.4] `, `host prog[pid]: ` behind a syslog stamp; `pos` where there is none."""
    found = _TAG.match(text, pos)
    if found is None:
        return pos
    host, name, pid = found.groups()
    if not (sure or pid or name in _KNOWN_TAGS):
        return pos
    head.host = host
    head.at(host)
    if name == "kernel":
        head.stage = 3
        end = found.end()
        uptime = UPTIME.match(text, end)
        if uptime:
            head.uptime = float(uptime.group(1))
            return uptime.end()
        return end
    if pid:
        head.pid = pid_of(pid)
    head.at(found.group()[len(host) + 1 :].rstrip(": "))
    head.stage = 0
    # What a launcher's daemon says is known by its name.
    return found.start(2) if name in _LAUNCHERS else found.end()


def pri(text: str, pos: int, head: Head, clock: Clock) -> int:
    """`<34>` of syslog, with the rest of an RFC 5424 header when it is one."""
    found = _PRI.match(text, pos)
    if found is None or int(found.group(1)) > 191 or head.stage:
        return -1
    head.level = level_of_number(int(found.group(1)) & 7)
    if not found.group(6):
        return found.end()
    if found.group(2):
        stamped(head, clock.iso(found.group(2), found.group(3), found.group(4), found.group(5)))
    host, app, pid = found.group(6), found.group(7), found.group(8)
    if host != "-":
        head.host = host
        head.at(host)
    if pid.isascii() and pid.isdigit():
        head.pid = pid_of(pid)
    if app not in {"-", "kernel"}:
        head.at(f"{app}[{pid}]")
    structured = _STRUCTURED.match(text, found.end())
    return structured.end() if structured else found.end()


def syslog(text: str, pos: int, head: Head, clock: Clock) -> int:
    """`Apr 14 13:18:01 host kernel: `, `Tue Apr 14 13:18:01 2026 `."""
    if text[pos : pos + 3] in MONTHS:
        found = _SYSLOG.match(text, pos)
        if found is None:
            return -1
        month, number_, year = MONTHS[found.group(1)], int(found.group(2)), found.group(3)
        when = clock_groups(found, 4)
        time = clock.yearless(month, number_, when) if year is None else clock.dated(int(year), month, number_, when)
        if time is None:
            return -1
        stamped(head, time, dated=year is not None)
        return tag(text, past_separator(text, found.end()), head, sure=True)
    found = _LOCALE.match(text, pos)
    if found is None:
        return -1
    time = clock.locale(found)
    if time is None:
        return -1
    stamped(head, time)
    end = found.end()
    return end + 2 if text.startswith(": ", end) else past_separator(text, end)


def facility(text: str, pos: int, head: Head) -> int:
    """`kern  :err   : ` of dmesg --decode."""
    found = _FACILITY.match(text, pos)
    if found is None:
        return -1
    head.level = level_of(found.group(1))
    return found.end()


def logfmt(text: str, pos: int, head: Head, clock: Clock) -> int:
    """`time="..." level=info ` of Go's logrus."""
    found = _LOGFMT.match(text, pos)
    if found is None:
        return -1
    stamped(head, clock.iso(found.group(1), found.group(2), found.group(3), found.group(4)))
    head.level = level_of(found.group(5))
    head.stage = 3
    return found.end()
