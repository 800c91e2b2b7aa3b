"""Tracebacks that somebody caught: the process that printed one went on with its work.

In: the tracebacks that are left of an attempt, and the last lines of each stream. Out: whether all were caught: after
the last of a stream the same logger wrote on, with words of neither failure nor end, or the loop of before went on.
That a job ended well it does not tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from diagnose.lines.timeline import LastLine
from diagnose.models import Finding
from diagnose.patterns import Lazy

# Words of a line that may speak of the failure or of a death: with one of them nothing is caught.
_ILL = (
    "rror", "xception", "xit", "ailed", "ailure", "illed", "illing", "bort", "dumped", "ignal", "SIG", "erminat",
    "raceback", "srun", "slurm", "ANCELLED", "fault", "Warning", "nterrupt", "FAIL", "imeout", "imed out",
)  # fmt: skip
# What a dying process still says of its tidying up, and those who watch it: neither good nor ill.
_LEAVING = (
    "topp", "hut", "lean", "estroy", "inaliz", "losing", "losed", "lush", "elease", "isconnect", "pload", "ync",
    "View ", "ait", "otal", "lapsed", "end of", "ending", "Bye", "eport", "ave", "aving", "inish", "emov", "elet",
)  # fmt: skip
_CALM_LEVELS = frozenset({"info", "debug"})
_CALM_LINES = 2
_NUMBERS = Lazy(r"\d+(?:[.,:/-]\d+)*")


def all_caught(findings: Sequence[Finding], tails: Mapping[str, Iterable[LastLine]], ranks_known: int) -> bool:
    """Whether what is left of an attempt is tracebacks alone, and each writer of one went on with its work."""
    ends: dict[str, tuple[int, int]] = {}
    for finding in findings:
        if not (finding.traceback and finding.survivable and finding.role == "cause" and finding.streams):
            return False
        if ranks_known > 1 and not finding.ranks:
            return False  # whoever wrote on may be another rank
        for stream, (first, last) in finding.streams.items():
            known = ends.get(stream, (first, last))
            ends[stream] = (min(first, known[0]), max(last, known[1]))
    return bool(ends) and all(_went_on(tails.get(stream, ()), *span) for stream, span in ends.items())


def _went_on(tail: Iterable[LastLine], first: int, last: int) -> bool:
    before = [line for line in tail if line.number < first]
    after = [line for line in tail if line.number > last]
    if any(word in line.body for line in after for word in _ILL):
        return False
    at_work = [line for line in after if not any(word in line.body for word in _LEAVING)]
    logged = {_kind(line) for line in at_work if line.level in _CALM_LEVELS}
    if len(logged) >= _CALM_LINES and any(line.level is not None for line in before):
        return True
    loop = {_kind(line) for line in before if line.headed}
    return any(line.headed and _kind(line) in loop for line in at_work)


def _kind(line: LastLine) -> str:
    """A line's words without its numbers."""
    return _NUMBERS.sub("0", line.body).strip()
