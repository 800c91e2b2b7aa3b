"""What a failure's text says, as weighted terms: the words of its error lines count, paths, hosts and figures do not.

In: the text of an incident or of a failing log, redacted. Out: `Terms` (numbers of terms and their weights), and the
few most telling lines as one short text, which embeddings are made of. Error texts are lexical: what an exception is
called, an Xid, an exit code tell more than sentences do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final
from zlib import crc32

from diagnose.dataclass import dataclass

# How much a word counts by the kind of line that it stands in.
_RAISED: Final = 3.0
_SYSTEM: Final = 2.0
_ALARMING: Final = 1.0
_CASCADE: Final = 0.2
_OTHER: Final = 0.1

_MOST_CHARS: Final = 64 * 1024
_MOST_LINES: Final = 400
_LINE_CHARS: Final = 400
_CONDENSED_LINES: Final = 3
_CONDENSED_CHARS: Final = 300

# What programs put before a line: ranks, times, levels, hosts with a figure in their name.
_HEAD = re.compile(
    r"\s*(?:(?:\[[^\]\[]{0,80}\]:?|<[a-z]{1,16}-\d{1,9}>:|\d{4}-\d\d-\d\d[T ][\d:.,]{1,20}Z?|\d\d:\d\d:\d\d[\d.,]*|"
    r"[A-Z][a-z]{2}\s{1,3}\d{1,2}\s[\d:]{5,8}\s\S{1,64}|"
    r"(?=[\w.-]*\d)(?![A-Z]\w*(?:Error|Exception)\b)[\w.-]{1,64}:(?=\s)|"
    r"(?:default|rank):(?=\s)|\(\w[^)\n]{0,40}\)|[EWIF]\d{4}\s[\d:.]{1,20}|\d+|INFO|ERROR|WARNING|CRITICAL|[EWI](?=\s)|"
    r"[|-])\s*){0,12}"
)
_RAISES = re.compile(
    r"(?:[\w.]{1,100}\.)?([A-Z]\w{0,60}(?:Error|Exception|Exit|Interrupt|Warning|Failure)|KeyboardInterrupt)(?=:|$|\()"
)
_SYSTEMS = re.compile(
    r"NVRM|\bXid\b|SXid|nvidia-nvswitch|mlx5|Out of memory|oom-kill|oom_reaper|EDAC|\bMCE\b|I/O error|nfs:|lustre|"
    r"slurmstepd|OOMKilled|Evicted|FailedScheduling|BackOff|NODE_FAIL|NODE FAIL|DUE TO|PREEMPT|State=|Reason",
    re.IGNORECASE,
)
_ALARMS = re.compile(
    r"error|fail|fatal|exception|abort|kill|time[ds]?[ -]?out|cannot|can't|could not|unable|denied|refused|not found|"
    r"no such|no space|invalid|illegal|corrupt|mismatch|panic|segfault|segmentation|signal|lost|unreachable|"
    r"\bnan\b|overflow|out of memory|oom|xid|uncorrect|ecc\b|exceed|evict|preempt|cancel|exited|broken|reset by|"
    r"disconnect|hang|hung|stuck|stale|down\b|drain|core dumped|assert|unexpected|missing|expired|bug:|"
    r"expected|must|doesn't|not ",
    re.IGNORECASE,
)
# What launchers and watchdogs print when something else has failed.
_CASCADES = re.compile(
    r"ChildFailedError|CalledProcessError|SignalException|exits with return code|Killing subprocess|Sending process|"
    r"exit ?code|Root Cause|SIGTERM|SIGABRT|Signal (?:6|15)|Aborted|taking the entire process down|error_file|"
    r"To avoid data inconsistency|Some NCCL operations|traceback : |Primary job|mpirun|srun: error|"
    r"SystemExit|Failures:|"
    r"first observed failure|core dumped|During handling|terminate called|watchdog thread terminated",
    re.IGNORECASE,
)
_NUMBERED = re.compile(
    r"\b(s?xid|signal|sig|exitcode|code|errno|status|err|error|http|returned)\b[\"')\]]{0,2}\s{0,8}[:=(]?\s{0,3}"
    r"(?:\(?pci:[\w:.]{1,20}\)?[:,]?\s{0,3})?(-?\d{1,4})\b"
)
_CLASS = re.compile(r"\b[A-Z][A-Za-z]{0,60}(?:Error|Exception|Interrupt|Exit)\b")
_PATH = re.compile(r"(?<![\w/])[\w.@+-]{0,100}(?:/[\w.@+-]{1,100}){1,40}")
_FIGURES = re.compile(r"<[a-z]{1,16}-\d{1,9}>|\b(?:0x)?[0-9a-f]{6,}\b|(?<![\w-])(?=[\w-]{0,80}\d)[\w-]{1,80}")
_WORD = re.compile(r"[a-z_][a-z_]+(?:-[a-z]+)*")


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms by number (a hash of 32 bits, in order), and how much each counts."""

    numbers: tuple[int, ...]
    weights: tuple[float, ...]


def read(text: str) -> tuple[Terms, str]:
    """The terms of a text, and the text condensed, in one reading."""
    lines = list(weighed_lines(text))
    return _terms(lines), _condensed(lines)


def terms_of(text: str) -> Terms:
    """The terms of a text, each with the weight of the most telling line that it stands in."""
    return _terms(list(weighed_lines(text)))


def _terms(lines: Sequence[tuple[str, float]]) -> Terms:
    found: dict[int, float] = {}
    for line, weight in lines:
        raised = _RAISES.match(line)
        words = set(_words(line))
        for word in words:
            number = crc32(word.encode())
            if found.get(number, 0.0) < weight:
                found[number] = weight
        if raised:
            number = crc32(f"raised {raised[1]}".encode())
            found[number] = max(found.get(number, 0.0), 2 * weight)
    numbers = sorted(found)
    return Terms(tuple(numbers), tuple(found[number] for number in numbers))


def condensed(text: str) -> str:
    """The most telling lines of a text, in their order and without what is particular to this run."""
    return _condensed(list(weighed_lines(text)))


def _condensed(given: Sequence[tuple[str, float]]) -> str:
    lines = [(weight, index, line) for index, (line, weight) in enumerate(given)]
    best = sorted(lines, key=lambda each: (-each[0], each[1]))[:_CONDENSED_LINES]
    said = dict.fromkeys(masked(line) for _, _, line in sorted(best, key=lambda each: each[1]))
    return "\n".join(said)[:_CONDENSED_CHARS]


def masked(line: str) -> str:
    """A line without figures, and of a path the last part only."""
    shown = _FIGURES.sub("#", _PATH.sub(_last_part, line))
    return " ".join(shown.split())


def weighed_lines(text: str) -> Iterator[tuple[str, float]]:
    """The different lines of a text without what stands before them, and how much each counts."""
    seen: set[str] = set()
    for raw in text[:_MOST_CHARS].split("\n", _MOST_LINES)[:_MOST_LINES]:
        head = _HEAD.match(raw, 0, _LINE_CHARS)
        line = raw[head.end() if head else 0 :][:_LINE_CHARS].strip()
        if line and line not in seen:
            seen.add(line)
            yield line, _weight(line, raw[:_LINE_CHARS])


def _weight(line: str, raw: str) -> float:
    if _CASCADES.search(line):
        return _CASCADE
    if _RAISES.match(line):
        return _RAISED
    if _SYSTEMS.search(raw):
        return _SYSTEM
    return _ALARMING if _ALARMS.search(line) else _OTHER


def _words(line: str) -> Iterator[str]:
    for found in _CLASS.finditer(line):
        yield "!" + found[0].lower()
    lowered = line.lower()
    for name, value in _NUMBERED.findall(lowered):
        yield f"{name}={value}"
    yield from _WORD.findall(_FIGURES.sub(" ", _PATH.sub(_last_part, lowered)))


def _last_part(path: re.Match[str]) -> str:
    return " " + path[0].rpartition("/")[2] + " "
