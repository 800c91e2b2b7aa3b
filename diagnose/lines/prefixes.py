"""Takes the prefixes off a line, whatever their mixture and order.

In: the text of a line. Out: where its body begins; what the prefixes say, in a `Head`.
The first character decides which few patterns are tried; nothing is tried that cannot match there.
"""

from __future__ import annotations

from diagnose.lines import loggers, stacked, syslogs, writers
from diagnose.lines.heads import Head, Prefixes
from diagnose.lines.stamps import MONTHS, WEEKDAYS

MAX_PREFIXES = 16
_MESSAGE = 3
_MAX_BLANKS = 9
# srun pads the labels of a job to one width.
_MAX_PADDING = 4
_PARTS = frozenset("[-|:>")
_DIGITS = frozenset("0123456789")
_LEVEL_HEADS = ("INFO", "WARN", "ERROR", "DEBUG", "CRITICAL", "FATAL", "NOTICE", "LAUNCH")
_FACILITY_HEADS = ("kern ", "kern:", "user ", "user:", "daemon", "syslog", "auth", "local", "cron", "mail", "lpr")

# Lines of torchrun's own: a task that prints them started ranks of its own, and its number is none of theirs.
_AGENT = (
    "torch/distributed/elastic/multiprocessing/api.py",
    "torch/distributed/elastic/agent/",
    "torch/distributed/run.py:",
)


def read_prefixes(text: str, head: Head, known: Prefixes) -> int:
    """Where the body of `text` begins; its leading blanks belong to it."""
    pos = 0
    size = len(text)
    for _ in range(MAX_PREFIXES):
        if pos >= size:
            break
        start = pos
        c = text[pos]
        if c in {" ", "\t"}:
            start = _past_blanks(text, pos, head)
            if start < 0:
                break
            c = text[start]
        end = _one(text, start, c, head, known) if head.stage != _MESSAGE else -1
        if end <= start and pos:
            end = stacked.read_next(text, start, head, known)
        if end <= start:
            break
        pos = end
    if head.task is not None:
        if known.learning and not known.tasks_are_nodes:
            known.taught += head.tagged  # which ranks a task shows is told by the numbers, not by the template
            other = head.tagged and head.writer_rank != head.task
            known.tasks_are_nodes = other or any(agent in text for agent in _AGENT)
    elif known.labelled is None and text:
        known.unlabelled()
    return pos


def _past_blanks(text: str, pos: int, head: Head) -> int:
    """Where a prefix may begin behind blanks, else -1: at the start of a line only stamps and padded labels do."""
    window = text[pos : pos + _MAX_BLANKS]
    stripped = window.lstrip(" \t")
    if not stripped:
        return -1
    blanks = len(window) - len(stripped)
    c = stripped[0]
    if head.stage:
        # Between the parts of a logger's head blanks are padding; before the message they are the message's.
        if head.stage == _MESSAGE:
            return pos + 1 if blanks == 1 and c == "[" and stripped[1:2] in _DIGITS else -1
        return pos + blanks if c in _PARTS or c.isalpha() else -1
    if pos and blanks > 1:
        return -1
    if c == "[":
        return pos + blanks if stripped[1:2] in _DIGITS else -1
    return pos + blanks if c in _DIGITS and blanks <= _MAX_PADDING else -1


def _one(text: str, pos: int, c: str, head: Head, known: Prefixes) -> int:
    """Where the prefix at `pos` ends, or -1."""
    clock = known.clock
    if c == "[":
        return _bracket(text, pos, head, known)
    if c in _DIGITS:
        fourth = text[pos + 4 : pos + 5]
        if fourth in {"-", "/"}:
            end = loggers.iso(text, pos, head, clock)
            if end > 0:
                return end
        third = text[pos + 2 : pos + 3]
        if third in {"/", "-"}:
            return loggers.day(text, pos, head, clock)
        if (
            (third == ":" and text[pos + 5 : pos + 6] == ":")
            or text[pos + 10 : pos + 11] in (".", " ", "\t")
            or c == "1"
        ):
            end = loggers.number(text, pos, head, clock)
            if end > 0:
                return end
        if head.stage or head.writer_rank is not None:
            return -1
        if ":" in text[pos : pos + 6]:
            return writers.label(text, pos, head, known)
        return writers.address(text, pos, head, known) if ": " in text[pos + 7 : pos + 17] else -1
    if head.stage:
        return _behind_stamp(text, pos, c, head, known)
    if c.isalpha():
        return _word(text, pos, c, head, known)
    if c == "(":
        return writers.ray_tag(text, pos, head)
    if c == "<":
        return syslogs.pri(text, pos, head, clock)
    if c == ":" and text.startswith(":::MLLOG", pos):
        loggers.mllog(text, pos, head)
    return -1


def _behind_stamp(text: str, pos: int, c: str, head: Head, known: Prefixes) -> int:
    if c == "(":
        return writers.ray_tag(text, pos, head)
    if head.stage < 3:
        if c == ":" and text.startswith(":::MLLOG", pos):
            return -1
        end = loggers.after_stamp(text, pos, head)
        if end > 0:
            return end
    if not c.isalpha():
        return -1
    if c == "t" and text.startswith("task ", pos):
        return writers.task(text, pos, head)
    colon = text.find(":", pos, pos + 80)
    if colon > 0 and text[colon + 1 : colon + 2] in _DIGITS:
        return loggers.nccl(text, pos, head, known.clock)
    if head.stage == 1 and c in "IWEFCDV" and text[pos + 1 : pos + 2] in _DIGITS:
        return loggers.glog(text, pos, head, known.clock)
    return writers.stamped_host(text, pos, head, known) if head.stage == 1 else -1


def _bracket(text: str, pos: int, head: Head, known: Prefixes) -> int:
    c = text[pos + 1 : pos + 2]
    if c in _DIGITS or c == " ":
        end = loggers.bracket_stamp(text, pos, head, known.clock)
        if end > 0:
            return end
        if ">" in text[pos : pos + 100] and "]<std" in text[pos : pos + 100]:
            end = writers.mpi_tag(text, pos, head)
            if end > 0:
                return end
        if c == " ":
            return loggers.bracket_word(text, pos, head, known.clock)
        return writers.bracket_label(text, pos, head, known)
    if not (c.isalpha() or c in {"_", "/", "<"}):
        return -1
    if c in "rR":
        end = writers.rank_tag(text, pos, head)
        if end > 0:
            return end
    if head.stage == 0:
        if c == "p":
            end = writers.pod_tag(text, pos, head)
            if end > 0:
                return end
        close = text.find("]", pos, pos + 120)
        if close < 0:
            return -1
        if text[close + 1 : close + 2] == ":" or "|" in text[pos:close]:
            end = writers.role_tag(text, pos, head)
            if end > 0:
                return end
        if text.startswith("]<std", close):
            return writers.mpi_tag(text, pos, head)
    end = loggers.bracket_word(text, pos, head, known.clock)
    if end < 0 and ":" in text[pos : pos + 80]:
        return writers.host_process(text, pos, head)
    return end


def _word(text: str, pos: int, c: str, head: Head, known: Prefixes) -> int:
    """Prefixes that begin with a letter."""
    clock = known.clock
    second = text[pos + 1 : pos + 2]
    if second in _DIGITS and c in "IWEFCDV":
        end = loggers.glog(text, pos, head, clock)
        if end > 0:
            return end
    three = text[pos : pos + 3]
    if three in MONTHS or three in WEEKDAYS:
        end = syslogs.syslog(text, pos, head, clock)
        if end > 0:
            return end
    if "A" <= second <= "Z" and text.startswith(_LEVEL_HEADS, pos):
        return loggers.head_level(text, pos, head, clock)
    if c == "t" and text.startswith("time=", pos):
        return syslogs.logfmt(text, pos, head, clock)
    space = text.find(" ", pos, pos + 130)
    if space < 0:
        return -1
    colon = text.find(":", pos, space)
    if colon > 0:
        if text[colon + 1] in _DIGITS and text[space + 1 : space + 2] == "[":
            return loggers.nccl(text, pos, head, clock)
        if c in {"k", "u", "d"}:
            end = syslogs.facility(text, pos, head)
            if end > 0:
                return end
        if colon != space - 1:
            return -1
    elif text.startswith(_FACILITY_HEADS, pos):
        end = syslogs.facility(text, pos, head)
        if end > 0:
            return end
    elif (c in {"t", "r"}) and text.startswith(("task ", "rank "), pos):
        end = writers.task(text, pos, head)
        if end > 0:
            return end
    elif text.find(": ", space, space + 70) > 0 and writers.looks_like_host(text[pos:space]):
        # `gx-01 kernel: `, `gx-01 systemd[1]: `: a journal without its stamps.
        end = syslogs.tag(text, pos, head, sure=False)
        if end > pos:
            return end
    return writers.word(text, pos, head, known, space)
