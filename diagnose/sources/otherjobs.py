"""Logs of other jobs that lie in the same folder: the latest job is diagnosed, the others are set aside by name.

In: inputs with their names, whether somebody named them, and their first text. Out: why some are not read. Only the
number by which a scheduler knows a job tells: in a name (`slurm-99.out`, `train-4711.out`, `job_99.log`, `train.o99`,
or a folder called like that), or as the only one that a log states in its first lines. Tasks of one array are one job,
as are runs of one number. Files without a number are kept, and so is every file that somebody names: several named
files are one job, and their numbers are those that count in folders beside them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from diagnose.dataclass import dataclass
from diagnose.models import SourceKind
from diagnose.patterns import Lazy
from diagnose.sources.names import host_like
from diagnose.sources.settle import looks_like_ranks

_SURE = Lazy(r"(?:.{0,120}[._-])?slurm-([0-9]{1,12})(?![0-9])", re.IGNORECASE)
_LIKELY = Lazy(r"(?:.{0,120}[._-])?job(?:[._-]?id)?[._-]?([0-9]{3,12})(?![0-9])", re.IGNORECASE)
_OUT = Lazy(r"(.{0,120})\.[oe]([0-9]{2,12})(?:[.-][0-9]{1,7})?(?:\.gz|\.zst)?\Z")
# What `-o %x-%j.out` makes: the name of a job, which is none of what else is numbered.
_NAMED_OUT = Lazy(r"(.{0,120}?)[._-]([0-9]{4,12})(?:[._-](?:t|task)?[0-9]{1,5})?\.(?:out|err)(?:\.gz|\.zst)?\Z")
_NUMBERED = re.compile(
    r"(?:pid|proc|process|worker|node|rank|task|port|step|gpu|seed|epoch|iter|host|device|shard|part|log)s?\Z"
)
_DATE = re.compile(r"(?:19|20)[0-9]{6}(?:[0-9]{4})?\Z")
_STATED = Lazy(
    rb"\bSLURM_JOB_?ID\W{1,4}([0-9]{1,12})\b|\*\*\* (?:JOB|STEP) ([0-9]{1,12})\b|\bjob allocation ([0-9]{1,12})\b"
    rb"|\bPBS_JOBID\W{1,4}([0-9]{1,12})\b|\bLSB_JOBID\W{1,4}([0-9]{1,12})\b"
)
_ARRAY = Lazy(rb"\bSLURM_ARRAY_JOB_?ID\W{1,4}([0-9]{1,12})\b")
_STATEMENTS = (b"JOB", b"STEP", b"job allocation")


@dataclass(frozen=True, slots=True)
class Claim:
    """Whose log an input is: `sure` where its name or its words can mean nothing else, else its `series` of names."""

    job: int
    sure: bool
    series: str = ""


def claim_of(path: str, head: bytes) -> Claim | None:
    """The job that an input's name or its first text states; None where neither does."""
    name = path.replace("!", "/").rpartition("/")[2]
    if "slurm-" in name.lower() and (sure := _SURE.match(name)):
        return Claim(int(sure[1]), sure=True)
    stated = _stated(head)
    if stated is not None:
        return Claim(stated, sure=True)
    if "job" in name.lower() and (likely := _LIKELY.match(name)):
        return Claim(int(likely[1]), sure=False, series=name[: likely.start(1)])
    if out := _OUT.match(name):
        return Claim(int(out[2]), sure=False, series=f"{out[1]}.o")
    if (out := _NAMED_OUT.match(name)) and _names_a_job(out[1], out[2]):
        return Claim(int(out[2]), sure=False, series=out[1])
    return None


def _names_a_job(name: str, number: str) -> bool:
    words = re.split(r"[._-]", name.lower())
    return not (_DATE.match(number) or _NUMBERED.search(words[-1]) or host_like(f"{words[-1]}{number}"))


def _stated(head: bytes) -> int | None:
    if not any(word in head for word in _STATEMENTS):
        return None
    for pattern in (_ARRAY, _STATED):
        numbers = {int(number) for found in pattern.finditer(head) for number in found.groups() if number}
        if numbers:
            return numbers.pop() if len(numbers) == 1 else None
    return None


def of_other_jobs(claims: Sequence[tuple[Claim | None, SourceKind, bool]]) -> dict[int, str]:
    """Why inputs are set aside, by their place: those of other jobs than the last, or than the ones that are named.

    `claims` tell for each input whose log it is, its kind, and whether somebody named it.
    """
    logs = {
        place: (claim, given)
        for place, (claim, kind, given) in enumerate(claims)
        if claim is not None and kind not in ("kernel", "scheduler")
    }
    sure = {claim.job for claim, _ in logs.values() if claim.sure}
    series: dict[str, set[int]] = {}
    for claim, _ in logs.values():
        if not claim.sure:
            series.setdefault(claim.series, set()).add(claim.job)
    # One number of a kind may number anything; several that are no ranks, or one that is sure, number jobs.
    jobs = {name: len(numbers) > 1 and not looks_like_ranks(numbers) for name, numbers in series.items()}
    believed = {
        place: found for place, found in logs.items() if found[0].sure or found[0].job in sure or jobs[found[0].series]
    }
    named = {claim.job for claim, given in believed.values() if given}
    kept = named or {max((claim.job for claim, _ in believed.values()), default=0)}
    which = "the job of the named files" if named else f"the latest, {max(kept)},"
    return {
        place: f"set aside as another job's ({claim.job}): {which} is diagnosed; to read it, name the file"
        for place, (claim, given) in believed.items()
        if not given and claim.job not in kept
    }
