"""Prefixes that loggers write: stamps, levels, names and places in the source.

In: a line and where to look. Out: where the prefix ends, or -1; what it says goes into the `Head`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from diagnose.lines.heads import UPTIME, Head, clock_groups, level_of, past_separator, pid_of, stamped
from diagnose.lines.stamps import ISO, LOCALE, WEEKDAYS, Clock, from_number
from diagnose.lines.syslogs import tag
from diagnose.lines.writers import HOST, looks_like_host
from diagnose.patterns import Lazy

# A reader of one kind of prefix: text, where to look, what was read so far, the clock; where it ends, or -1.
Reads = Callable[[str, int, Head, Clock], int]

_WORDS = (
    r"DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|ERR|CRITICAL|FATAL|SEVERE|TRACE|SUCCESS|EXCEPTION"
    r"|Debug|Info|Notice|Warning|Warn|Error|Critical|Fatal|debug|info|notice|warning|warn|error|critical|fatal"
)
LEVEL = rf"(?P<level>{_WORDS})"

_ISO = Lazy(ISO)
_ISO_BRACKET = Lazy(rf"\[{ISO}(?P<more>[^\]\[]{{0,100}})\]:?")
_LOCALE_BRACKET = Lazy(rf"\[{LOCALE}\]:?")
_US_DATE = Lazy(r"([0-9]{2})[/-]([0-9]{2})(?:[/-]([0-9]{4}))? ([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]{1,9}))?")
_US_BRACKET = Lazy(
    r"\[([0-9]{2})/([0-9]{2})(?:/([0-9]{4}))?[ -]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]{1,9}))?"
    r"(?: ([\w. -]{1,60}))?\]:?"
)
_CLOCK = Lazy(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]{1,9}))?[ \t|]")
_CLOCK_BRACKET = Lazy(r"\[([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]{1,9}))?\]:?")
_EPOCH = Lazy(r"(1[0-9]{9}(?:\.[0-9]{1,9}|[0-9]{3}|[0-9]{6}|[0-9]{9})?)[ \t]")
_EPOCH_BRACKET = Lazy(r"\[(1[0-9]{9}(?:\.[0-9]{1,9}|[0-9]{3}|[0-9]{6}|[0-9]{9})?)\]:?")
_GLOG = Lazy(
    r"([IWEFCDV])(?:([0-9]{4})([0-9]{2})([0-9]{2})|([0-9]{2})([0-9]{2})) ([0-9]{2}):([0-9]{2}):([0-9]{2})"
    r"(?:\.([0-9]{1,9}))? (?: {0,10}([0-9]{1,20}) )?[^\]\s:]{1,250}:[0-9]{1,6}\] ?"
)
_C10D = Lazy(
    r"\[([IWEFCDV])(?:([0-9]{1,2})([0-9]{2}) ([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?)?"
    r" (?:[^\s\]:]{1,250}:[0-9]{1,6})?\] ?"
)
_GROUP_RANK = Lazy(r"\[Rank ([0-9]{1,6})\]")
_NCCL = Lazy(rf"({HOST}):([0-9]{{1,8}})(?::([0-9]{{1,8}}))? \[([0-9]{{1,3}})\] (?:\[?{ISO}\]? )?")
_NCCL_LEVEL = Lazy(r"(?:[\w./-]{1,200}:[0-9]{1,6} )?(?:NCCL|RCCL) (INFO|WARN|ERROR|TRACE|VERSION|ABORT)\b")
_NEMO = Lazy(rf"\[NeMo ([A-Z]) {ISO}(?: rank_?([0-9]{{1,6}}))? [^\]]{{1,200}}\] ?")
_HF = Lazy(rf"\[{LEVEL}\|(?:{ISO}|[\w./-]{{1,120}}:[0-9]{{1,6}})\] ?(?:[\w.]{{1,120}}:[0-9]{{1,6}} >> )?")
_LEVEL_BRACKET = Lazy(rf"\[ {{0,8}}{LEVEL} {{0,8}}(?::[\w.-]{{1,60}})?\]:? ?(?:- )?")
# Hydra: `[stamp][name][INFO] - `.
_HYDRA = Lazy(rf"\[[\w.-]{{1,100}}\]\[{LEVEL}\] (?:- )?")
_LETTER_BRACKET = Lazy(r"\[([DIWEFC])\] ")
_NAME_BRACKET = Lazy(r"\[([A-Za-z][\w.-]{0,40})\] ?")
_PLACE_BRACKET = Lazy(r"\[[\w./<>-]{1,160}(?::[0-9]{1,6}|:[\w<>]{1,80})[^\]\[]{0,80}\]:? ?(?:- )?")
_LOGGER_BRACKET = Lazy(r"\[[a-z_][\w.]{0,80}\] ")
_ASCEND = Lazy(
    rf"\[{LEVEL}\] ?(?:[A-Z_]{{1,20}} ?)?\(([0-9]{{1,8}}),[^)]{{1,60}}\):"
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}-[0-9]{2}:[0-9]{2}):([0-9]{2})(?:\.([0-9]{3})(?:\.[0-9]{3})?)? ?"
    r"(?:\[[^\]\s]{1,200}\] ?)?"
)
_ROOT = Lazy(r"(DEBUG|INFO|WARNING|ERROR|CRITICAL):([A-Za-z_][\w.-]{0,120}(?::[\w<>]{1,60})?):")
_HEAD_LEVEL = Lazy(
    r"(?:LAUNCH )?(DEBUG|INFO|WARNING|ERROR|CRITICAL) {1,5}(?:([0-9]{2})-([0-9]{2}) ([0-9]{2}):([0-9]{2}):([0-9]{2})"
    rf"(?:[.,]([0-9]{{1,9}}))?|{ISO}) (?:\[[\w./<>-]{{1,120}}:[0-9]{{1,6}}\] |[\w./<>-]{{1,120}}:[0-9]{{1,6}}\] ?)?"
)
_PEEK = Lazy(r"(DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|CRITICAL|FATAL)(?::| - | {1,5}\[)")
_DASH = Lazy(rf"- (?:[\w.:/<>\[\] -]{{1,100}}? - )?{LEVEL} {{0,6}}(?:- |: ?)")
_DASH_PLACE = Lazy(r"- [\w./<>-]{1,100}:[0-9]{1,6} - ")
_DASH_LEVEL = Lazy(rf"- {LEVEL} {{1,6}}")
_PIPE = Lazy(rf"\| ?{LEVEL} {{0,8}}\| ?(?:[\w.<>:/-]{{1,160}}(?: - | ?\| ))?")
_TF = Lazy(r": ([DIWEFC]) (?:[^\s\]]{1,200}:[0-9]{1,6}\] ?)")
_UPPER = r"DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|ERR|CRITICAL|FATAL|SEVERE|TRACE|SUCCESS|EXCEPTION"
_WORD = Lazy(
    rf"(?P<level>{_UPPER})(?:(?::|\]| -) ?|(?P<gap>[ \t]{{1,6}})|$)"
    r"|(?P<lower>debug|info|notice|warning|warn|error|critical|fatal): "
)
# `Error: ...` and `Fatal Python error: ...` are the message itself.
_TITLE = Lazy(r"(Debug|Info|Warning|Error|Critical|Fatal)(?: error)?: ")
_LETTER = Lazy(r"([DIWEFC]) ")
_CODE = Lazy(
    r"(?:(?:\w{1,20}=\S{1,64} ){1,6})?[\w./<>-]{1,160}(?::[0-9]{1,6}|, line [0-9]{1,6},)(?: in [\w<>.]{1,80})?"
    r"(?: --| -|:|\]) ?"
)
_PAIRS = Lazy(r"(?:\w{1,20}=[^\s\"]{1,64} ){1,6}(?:-- |- )?")
_PAIR = Lazy(r"\b(rank|global_rank|local_rank|host|hostname|pid)=([^\s,]{1,64})")
_DOTTED = Lazy(
    r"(?:[A-Za-z_]\w{0,60}(?:\.[A-Za-z_]\w{0,60}){0,8}\.[a-z_]\w{0,60}|__main__|root)(?::[0-9]{1,6})?(?:: | - )"
)
_NAME_LEVEL = Lazy(r"[\w.:/<>-]{1,100} (?:- )?(?P<level>DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)(?: - |: | )")
_NAME_BRACKET_LEVEL = Lazy(rf"[\w.]{{1,100}}: \[{LEVEL}\] ")
_FIELDS = Lazy(r"([a-z0-9][\w.-]{0,100})\t([\w.-]{1,60})\t")
_MLLOG = Lazy(r'"time_ms": ?([0-9]{12,14})')
_LETTERS = frozenset("IWEFCDV")
# What names of levels begin with, and the blanks some loggers pad them with.
_INITIALS = frozenset("DINWECFSTdinwecf ")
# Brackets that say something themselves.
_MEANT = ("[rank", "[Rank", "[RANK", "[PG", "[notice", "[after", "[before")


def iso(text: str, pos: int, head: Head, clock: Clock) -> int:
    """`2026-01-01 00:00:00,123 ` and its kin, with whatever zone; a syslog host and tag behind it."""
    found = _ISO.match(text, pos)
    if found is None:
        return -1
    minute, second, digits, zone = found.groups()
    time = clock.iso(minute, second, digits, zone)
    if time is None:
        return -1
    end = found.end()
    if end < len(text) and (text[end].isalnum() or text[end] == "/"):
        return -1
    if not head.dated:
        head.time = time
        head.dated = True
    if head.stage == 0:
        head.stage = 1
        if zone and minute[10] == "T" and text.find(": ", end, end + 140) > 0:
            return tag(text, past_separator(text, end), head, sure=False)
    elif head.stage == 2:
        # A second stamp begins a second head, of the program whose output a logger passes on.
        head.stage = 1
    return past_separator(text, end)


def day(text: str, pos: int, head: Head, clock: Clock) -> int:
    """`01/31/2026 12:00:00 `, `01/31 12:00:00 `, `01-31 12:00:00.123 `."""
    found = _US_DATE.match(text, pos)
    if found is None:
        return -1
    return _day(found, text, head, clock)


def _day(found: re.Match[str], text: str, head: Head, clock: Clock) -> int:
    month, number = int(found.group(1)), int(found.group(2))
    if month > 12:
        month, number = number, month
    if not 1 <= month <= 12:
        return -1
    when = clock_groups(found, 4)
    year = found.group(3)
    time = clock.yearless(month, number, when) if year is None else clock.dated(int(year), month, number, when)
    if time is None:
        return -1
    stamped(head, time, dated=year is not None)
    return past_separator(text, found.end())


def number(text: str, pos: int, head: Head, clock: Clock) -> int:
    """`12:30:01 ` or an epoch number before the text."""
    found = _CLOCK.match(text, pos)
    if found:
        if int(found.group(1)) > 23:
            return -1
        stamped(head, clock.dateless(clock_groups(found, 1)), dated=False)
        return found.end() - 1 if text[found.end() - 1] == "|" else found.end()
    found = _EPOCH.match(text, pos)
    return _epoch(found, head, clock) if found else -1


def _epoch(found: re.Match[str], head: Head, clock: Clock) -> int:
    time = from_number(float(found.group(1)))
    if time is None:
        return -1
    clock.last = time
    stamped(head, time)
    return found.end()


def bracket_stamp(text: str, pos: int, head: Head, clock: Clock) -> int:
    """`[2026-01-01 00:00:00,123] `, `[12345.678901] `, `[01/31 12:00:00 name]: `, `[12:30:01] `, `[<epoch>] `."""
    found = _ISO_BRACKET.match(text, pos)
    if found:
        time = clock.iso(found.group(1), found.group(2), found.group(3), found.group(4))
        if time is None:
            return -1
        stamped(head, time)
        more = found.group("more")
        if more:
            _more(more, head)
        return past_separator(text, found.end())
    found = _EPOCH_BRACKET.match(text, pos)
    if found:
        end = _epoch(found, head, clock)
        return past_separator(text, end) if end > 0 else -1
    found = UPTIME.match(text, pos)
    if found:
        head.uptime = float(found.group(1))
        head.stage = 3
        return _of_the_journal(text, found.end(), head)
    found = _CLOCK_BRACKET.match(text, pos)
    if found and int(found.group(1)) < 24:
        stamped(head, clock.dateless(clock_groups(found, 1)), dated=False)
        return past_separator(text, found.end())
    found = _US_BRACKET.match(text, pos)
    return _day(found, text, head, clock) if found else -1


def _of_the_journal(text: str, pos: int, head: Head) -> int:
    """`gx-01 kernel: ` or `gx-01 prog[pid]: ` behind the uptime, which `journalctl -o short-monotonic` writes."""
    space = text.find(" ", pos, pos + 130)
    if space < 0 or text.find(": ", space, space + 80) < 0 or not looks_like_host(text[pos:space]):
        return pos
    return tag(text, pos, head, sure=False)


def _more(more: str, head: Head) -> None:
    """What stands with the stamp in its bracket: `ERROR crate::module`, Ray's `W 149 199`."""
    parts = more.split()
    for index, part in enumerate(parts):
        named = level_of(part)
        if named and (len(part) > 1 or (index + 1 < len(parts) and parts[index + 1].isdigit())):
            head.level = named
            return


def bracket_word(text: str, pos: int, head: Head, clock: Clock) -> int:
    """Brackets that begin with a letter or blanks: c10d and NeMo heads, levels, places in the code, logger names."""
    c = text[pos + 1]
    second = text[pos + 2 : pos + 3]
    found = _C10D.match(text, pos) if c in _LETTERS and (second == " " or second.isdigit()) else None
    if found and (found.group(2) or ":" in found.group()):
        head.level = level_of(found.group(1))
        if found.group(2):
            stamped(head, clock.yearless(int(found.group(2)), int(found.group(3)), clock_groups(found, 4)), dated=False)
        head.stage = 3
        end = found.end()
        own = _GROUP_RANK.match(text, end)
        if own and head.rank is None:
            head.rank = int(own.group(1))
        return end
    if text.startswith(_MEANT, pos):
        if head.stage >= 1 and head.rank is None:
            own = _GROUP_RANK.match(text, pos)
            if own:
                head.rank = int(own.group(1))
        return -1
    if text.startswith("[NeMo ", pos):
        found = _NEMO.match(text, pos)
        if found is None:
            return -1
        head.level = level_of(found.group(1))
        stamped(head, clock.iso(found.group(2), found.group(3), found.group(4), found.group(5)))
        if found.group(6):
            head.rank = int(found.group(6))
        head.stage = 3
        return found.end()
    found = _LEVEL_BRACKET.match(text, pos) if c in _INITIALS else None
    if found:
        end = found.end()
        head.level = level_of(found.group("level"))
        head.stage = 2
        if text.startswith(("(", " (", "GE(", "HCCL("), end) or text.find("(", end, end + 20) > 0:
            ascend = _ASCEND.match(text, pos)
            if ascend:
                head.pid = pid_of(ascend.group(2))
                stamped(head, clock.iso(ascend.group(3), ascend.group(4), ascend.group(5), None))
                return ascend.end()
        return end
    bar = text.find("|", pos, pos + 12)
    found = _HF.match(text, pos) if bar > 0 else None
    if found:
        if found.group(2):
            stamped(head, clock.iso(found.group(2), found.group(3), found.group(4), found.group(5)))
        head.level = level_of(found.group("level"))
        head.stage = 2
        return found.end()
    found = _LOCALE_BRACKET.match(text, pos) if text[pos + 1 : pos + 4] in WEEKDAYS else None
    if found:
        time = clock.locale(found)
        if time is None:
            return -1
        stamped(head, time)
        return past_separator(text, found.end())
    if head.stage:
        found = _HYDRA.match(text, pos) if head.stage == 1 and text.find("][", pos, pos + 110) > 0 else None
        if found:
            return _levelled(found, text, head)
        found = _LETTER_BRACKET.match(text, pos) if second == "]" else None
        if found:
            head.level = level_of(found.group(1))
            head.stage = 2
            return found.end()
        found = _PLACE_BRACKET.match(text, pos) or (_LOGGER_BRACKET.match(text, pos) if head.stage >= 2 else None)
        if found:
            head.stage = 2
            return found.end()
        return -1
    # `[titan] 2026-...`, `[gx-01] [2026-...`: a name is a prefix only before a stamp.
    found = _NAME_BRACKET.match(text, pos)
    if found:
        end = found.end()
        if _ISO.match(text, end) or _ISO_BRACKET.match(text, end):
            if looks_like_host(found.group(1)):
                head.host = found.group(1)
            return end
    return -1


def glog(text: str, pos: int, head: Head, clock: Clock) -> int:
    """`E0302 12:00:00.000000 123 file.cc:12] ` of glog, absl, klog and torch."""
    found = _GLOG.match(text, pos)
    if found is None:
        return -1
    when = clock_groups(found, 7)
    if found.group(2):
        time = clock.dated(int(found.group(2)), int(found.group(3)), int(found.group(4)), when)
    else:
        time = clock.yearless(int(found.group(5)), int(found.group(6)), when)
    if time is None:
        return -1
    stamped(head, time, dated=bool(found.group(2)))
    head.level = level_of(found.group(1))
    head.stage = 3
    if found.group(11):
        head.pid = pid_of(found.group(11))
    return found.end()


def nccl(text: str, pos: int, head: Head, clock: Clock) -> int:
    """`host:pid:tid [gpu] ` of NCCL; `NCCL WARN ...` stays in the body."""
    found = _NCCL.match(text, pos)
    if found is None:
        return -1
    level = _NCCL_LEVEL.match(text, found.end())
    if level is None and found.group(3) is None:
        return -1
    head.host, head.pid, head.gpu = found.group(1), pid_of(found.group(2)), found.group(4)
    if found.group(5):
        stamped(head, clock.iso(found.group(5), found.group(6), found.group(7), found.group(8)))
    if level:
        head.level = level_of(level.group(1)) or "info"
    head.stage = 3
    return found.end()


def head_level(text: str, pos: int, head: Head, clock: Clock) -> int:
    """`INFO:root:`, `INFO 02-24 12:00:00 worker.py:100] `, `INFO 2026-... `; a bare `WARNING: ` only has a level."""
    found = _ROOT.match(text, pos)
    if found:
        head.level = level_of(found.group(1))
        head.stage = 3
        return found.end()
    found = _HEAD_LEVEL.match(text, pos)
    if found:
        if found.group(2):
            time = clock.yearless(int(found.group(2)), int(found.group(3)), clock_groups(found, 4))
        else:
            time = clock.iso(found.group(8), found.group(9), found.group(10), found.group(11))
        if time is None:
            return -1
        stamped(head, time, dated=not found.group(2))
        head.level = level_of(found.group(1))
        head.stage = 2
        return found.end()
    found = _PEEK.match(text, pos)
    if found:
        head.level = level_of(found.group(1))
    return -1


def mllog(text: str, pos: int, head: Head) -> None:
    """The time inside a `:::MLLOG {...}` line, which is all body."""
    found = _MLLOG.search(text, pos, pos + 160)
    if found:
        head.time = from_number(float(found.group(1)))


def after_stamp(text: str, pos: int, head: Head) -> int:
    """What loggers put between stamp and message: `- name - INFO - `, `| INFO | mod:fn:12 - `, `INFO x.py:1 -- `."""
    c = text[pos]
    if c == "-":
        if head.stage == 1:
            found = _DASH.match(text, pos) or _DASH_LEVEL.match(text, pos)
            if found:
                return _levelled(found, text, head)
        found = _DASH_PLACE.match(text, pos)
        if found:
            head.stage = 2
            return found.end()
        return pos + 2 if text.startswith("- ", pos) and head.stage == 1 else -1
    if c == "|":
        found = _PIPE.match(text, pos)
        return _levelled(found, text, head) if found else -1
    if c == ":":
        found = _TF.match(text, pos)
        if found:
            head.level = level_of(found.group(1))
            head.stage = 3
            return found.end()
        return pos + 2 if text.startswith(": ", pos) and head.stage == 1 else -1
    if c == ">":
        return pos + 3 if text.startswith(">> ", pos) else -1
    if head.stage == 1:
        found = _WORD.match(text, pos)
        if found:
            return _levelled(found, text, head)
        found = _TITLE.match(text, pos)
        if found:
            head.level = level_of(found.group(1))
            return -1
        if c in "DIWEFC":
            found = _LETTER.match(text, pos)
            if found:
                head.level = level_of(c)
                head.stage = 2
                return found.end()
        found = _NAME_LEVEL.match(text, pos) or _NAME_BRACKET_LEVEL.match(text, pos)
        if found:
            return _levelled(found, text, head)
    elif head.stage == 2:
        found = _FIELDS.match(text, pos)
        if found:
            head.host = head.host or found.group(1)
            head.at(f"{found.group(1)}/{found.group(2)}")
            head.stage = 3
            return found.end()
        found = _CODE.match(text, pos)
        if found and (" in " in found.group() or " --" in found.group() or "." in found.group()):
            _pairs(found.group(), head)
            head.stage = 3
            return found.end()
        found = _DOTTED.match(text, pos)
        if found:
            head.stage = 3
            return found.end()
        found = _PAIRS.match(text, pos)
        if found and "rank=" in found.group():
            _pairs(found.group(), head)
    return -1


def _levelled(found: re.Match[str], text: str, head: Head) -> int:
    groups = found.groupdict()
    head.level = level_of(groups["level"] or groups.get("lower") or "")
    head.stage = 2
    end = found.end()
    gap = groups.get("gap")
    # Padding belongs to the level, unless it is the indentation of a traceback's frame.
    if gap and len(gap) > 1 and text.startswith('File "', end):
        end -= len(gap) - 1
    return end


def _pairs(text: str, head: Head) -> None:
    for key, value in _PAIR.findall(text):
        if key in {"host", "hostname"}:
            head.host = value
        elif value.isascii() and value.isdigit() and len(value) <= 7:
            if key == "pid":
                head.pid = pid_of(value)
            elif key == "local_rank":
                head.local_rank = int(value)
            else:
                head.rank = int(value)
