"""The prefixes that launchers, loggers and collectors put before a line, as one pattern; and who wrote a line.

In: nothing. Out: `PREFIX` (bytes, RE2-safe, stands for `{prefix}` in filter patterns), `expand`, `LinePattern`,
`writer_span`.
All of it is blind to particular digits, so a span found on a template is the span on the raw line.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from diagnose.patterns import Lazy

Span = tuple[int, int]

_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
_STAMP = (
    r"(?:"
    rf"\d{{4}}[-/]\d\d[-/]\d\d[ T]{_CLOCK}(?:Z|[+-]\d\d:?\d\d| UTC)?"  # ISO, Python logging
    rf"|\d\d/\d\d(?:/\d+)? {_CLOCK}"  # 11/30/2026 and 11/30, transformers and mmengine
    rf"|(?:[A-Z][a-z][a-z],? )?[A-Z][a-z][a-z] +\d+ {_CLOCK}(?: [A-Z]{{3,4}})?(?: \d{{4}})?"  # Mon Nov 30 ... 2026
    rf"|\d\d-\d\d {_CLOCK}"  # vLLM
    rf"|\d{{8}} {_CLOCK}"
    rf"|{_CLOCK}"
    r")"
)
_LEVEL = r"(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|[Ii]nfo|[Dd]ebug|[Ww]arning|[Nn]otice)"

# Levels of error are left out on purpose: a line that its logger calls an error is no routine line. The order does
# not matter for what matches, only for how soon: a regular expression tries them from the left.
_ITEMS: Final = (
    r" {0,6}\d{1,6}: ",  # srun --label
    r"\[(?:[A-Za-z][A-Za-z_ .-]{0,40})?\d{1,9}(?:/\d{1,9})?\]:? ?",  # [rank3]: [default3]: [Rank 0] [0/8] [3]:
    r"\[\d+,\d+\]<std(?:out|err)>: ?",  # mpirun --tag-output
    rf"[\[(]?{_STAMP}[\])]?(?:[:,]? ?| +[-|] )",
    rf"{_STAMP} [A-Za-z][\w.-]{{0,63}} (?:kernel: )?",  # syslog: stamp, host
    r"\[ *\d+\.\d+\] ",  # kernel uptime
    r"[IWD]\d+ [\d:.]+ +\d+ [\w./-]{1,100}:\d+\] ",  # klog, glog, absl, torch._logging
    rf"\t?\[?{_LEVEL}\]?(?: *[-:|]+ *|\t| +)",
    r"\[(?:root|__main__|[a-z_]\w{0,40}\.[\w.]{1,60})\] ?",  # [package.module]
    r"[a-z_]\w{0,40}\.[\w.]{1,60}(?::| \|)? ",  # package.module
    rf"{_LEVEL}:[\w.]{{1,80}}:",  # logging.basicConfig
    # [file.py:12:fn], file.py:12: and InternEvo's file.py:12 in fn --
    r"(?:\[[A-Za-z_./][\w./-]{0,100}:\d+(?::[\w<>]{1,60})?\]|[\w./-]{1,100}:\d+(?: in [\w<>]{1,60} --|:)) ?",
    r"[A-Z]?[a-z_][\w.]{0,80}(?::[\w<>.]{1,60}:\d+)? {1,9}- ",  # logger name, loguru
    r"- ",
    r"\[NeMo [IWD] [\d:. -]{1,30} [\w.-]{1,60}:\d+\] ?",
    r"\[titan\] ",
    r"[A-Za-z][A-Za-z._-]{0,60}\d[\w.-]{0,60}(?::|/\d+:?| +\|) ",  # pdsh host, numbered replica, docker compose
    r"(?:localhost|\d+\.\d+\.\d+\.\d+): ",
    r"[A-Za-z][A-Za-z._-]{0,60}/\d+:? ",  # nemo-run, torchx: role/replica
    r"\([\w.:]{1,80}(?: rank=\d+,?)? pid=\d+(?:, ip=[\w.:]{1,45})?\) ?",  # Ray
    r"\[pod/[\w.-]{1,100}/[\w.-]{1,64}\] ",  # kubectl logs --prefix
    r"std(?:out|err) [FP] ",  # CRI, after its stamp
    r"\{\"log\":\"",  # docker's JSON file driver
    r"\x1b\[[\d;]*m ?",
)
PREFIX: Final = ("(?:" + "|".join(_ITEMS) + "){0,8}").encode("ascii")
_PREFIXES: Final = Lazy(PREFIX)
_MARK = "{prefix}"

_RANK: Final = Lazy(
    rb"\[[a-z]*rank ?\d+\]|\[Rank \d+\]|\[default\d+\]|\[trainer\d+\]|\[\d+,\d+\]<|\brank[ =:]\d+|"
    rb"^ *\d+: |^[\w.-]+/\d+ |\bpid=\d+(?:, ip=[\w.:]+)?|^\[pod/[\w./-]+\]|[\w.-]+:\d+:\d+ \[\d+\]|"
    rb"^[A-Za-z][A-Za-z._-]*\d[\w.-]*: |^[\w.-]+ +\| ",
    re.IGNORECASE,
)
_HOST: Final = Lazy(
    rb"\bip=[\w.:]+|^\[pod/[\w./-]+\]|[\w.-]+(?::\d+:\d+ \[\d+\])|^[A-Za-z][A-Za-z._-]*\d[\w.-]*: |"
    rb"^[\w.-]+ +\| |^ *\d+: |^[A-Z][a-z][a-z] +\d+ [\d:.]+ [\w.-]+ "
)
# Who wrote a line stands near its start; a longer look would find names that the text speaks of.
_WRITER_BYTES = 160
# So many lines cost what it takes to compile a pattern with its prefix.
_TRIES = 32


def expand(pattern: str) -> bytes:
    """Give the bytes pattern that `pattern` of a filter rule stands for, `{prefix}` written out."""
    prefixed, own = split(pattern)
    return PREFIX + b"(?:" + own + b")" if prefixed else own


def split(pattern: str) -> tuple[bool, bytes]:
    """Whether a filter's pattern allows prefixes, and what it says of the line behind them."""
    return pattern.startswith(_MARK), pattern.removeprefix(_MARK).encode("ascii")


class LinePattern:
    """What `expand` gives, over whole lines; the prefix is compiled once for all, since it is long."""

    def __init__(self, own: bytes, *, prefixed: bool) -> None:
        self._prefixed = prefixed
        self._own = Lazy(own)
        self._whole = Lazy(PREFIX + b"(?:" + own + b")")
        self._tries = 0

    def matches(self, line: bytes) -> bool:
        """Whether the pattern matches the line from end to end."""
        found = _PREFIXES.match(line) if self._prefixed else None
        if self._own.fullmatch(line, found.end() if found else 0) is not None:
            return True
        if found is None or found.end() == 0:
            return False
        # What could be a prefix may belong to the line's own words: then the pattern begins elsewhere. That is asked of
        # every place the first few times, which spares most rules of a small log the compilation of a long pattern.
        self._tries += 1
        if self._tries > _TRIES:
            return self._whole.fullmatch(line) is not None
        return any(
            self._own.fullmatch(line, start) is not None and _PREFIXES.fullmatch(line, 0, start) is not None
            for start in range(len(line))
        )


def writer_span(line: bytes, per: Literal["rank", "host", "job"]) -> Span:
    """Find the bytes of a line or template that name who wrote it; (0, 0) when nothing does, or for `job`."""
    if per == "job":
        return (0, 0)
    found = (_RANK if per == "rank" else _HOST).search(line, 0, _WRITER_BYTES)
    return found.span() if found else (0, 0)
