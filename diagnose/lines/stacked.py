"""Prefixes behind whole heads: what one program, collector or launcher passed on of another, head and all.

In: a line, and where the message of a head already read begins. Out: where a further prefix ends, or -1.
Only unmistakable forms count here, because what stands at the beginning of a message is a message as a rule.
"""

from __future__ import annotations

from diagnose.lines import loggers, syslogs, writers
from diagnose.lines.heads import Head, Prefixes
from diagnose.lines.stamps import MONTHS, WEEKDAYS

_DIGITS = frozenset("0123456789")
_LETTERS = frozenset("IWEFCDV")
_RANK = ("[rank", "[RANK")
_STAMP = 1
_FLOWS = ("stdout F ", "stderr F ", "stdout P ", "stderr P ")


def read_next(text: str, pos: int, head: Head, known: Prefixes) -> int:
    """Where a prefix that begins at `pos`, behind a stamp or a logger's head, ends; -1 where none does."""
    c = text[pos]
    if c == "[":
        return _bracket(text, pos, head, known)
    if c == "(":
        return writers.ray_tag(text, pos, head)
    if c in _DIGITS:
        if text[pos + 4 : pos + 5] in {"-", "/"} and text[pos + 13 : pos + 14] == ":":
            return _again(loggers.iso, text, pos, head, known)
        unnamed = head.stage == _STAMP and head.task is None and head.writer_rank is None
        return writers.label_behind(text, pos, head, known) if unnamed else -1
    if not (c.isalpha() and c.isascii()):
        return -1
    if c == "s" and head.dated and text.startswith(_FLOWS, pos):
        # What CRI-O and containerd put between their stamp and the text.
        head.flow = text[pos : pos + 6]
        return pos + len(_FLOWS[0])
    if c in _LETTERS and text[pos + 1 : pos + 2] in _DIGITS:
        end = loggers.glog(text, pos, head, known.clock)
        if end > 0:
            return end
    if text[pos : pos + 3] in WEEKDAYS and text[pos + 4 : pos + 7] in MONTHS:
        return _again(syslogs.syslog, text, pos, head, known)
    colon = text.find(":", pos, pos + 80)
    if colon < 0:
        return -1
    after = text[colon + 1 : colon + 2]
    if after in _DIGITS:
        return loggers.nccl(text, pos, head, known.clock)
    return writers.host_behind(text, pos, head, known) if after == " " else -1


def _bracket(text: str, pos: int, head: Head, known: Prefixes) -> int:
    if text.startswith(_RANK, pos):
        return writers.rank_tag(text, pos, head)
    if text.startswith("[pod/", pos):
        return writers.pod_tag(text, pos, head)
    close = text.find("]", pos, pos + 120)
    if close < 0:
        return -1
    if text.startswith("]<std", close):
        return writers.mpi_tag(text, pos, head)
    second = text[pos + 1]
    if text[close + 1 : close + 2] == ":" or "|" in text[pos:close]:
        end = writers.role_tag(text, pos, head)
        if end > 0:
            return end
    if second in _DIGITS and text[pos + 5 : pos + 6] in {"-", "/"}:
        return _again(loggers.bracket_stamp, text, pos, head, known)
    if (second in _LETTERS and text[pos + 2 : pos + 3] in _DIGITS) or text.startswith("[NeMo ", pos):
        return loggers.bracket_word(text, pos, head, known.clock)
    return -1


def _again(read: loggers.Reads, text: str, pos: int, head: Head, known: Prefixes) -> int:
    """A second stamp begins a second head: its level and place may follow it."""
    end = read(text, pos, head, known.clock)
    if end > pos:
        head.stage = _STAMP
    return end
