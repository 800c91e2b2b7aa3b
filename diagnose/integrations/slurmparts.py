"""Arrays and heterogeneous jobs: which of its parts a number means.

In: a number as Slurm gives it to hooks, or `14_2` and `17+1` as people say. Out: what Slurm's commands show of this
part alone, and what they call it and nothing else. The number of one task of an array is that of the array as well:
given it, scontrol and sacct show all tasks, and change all of them. A heterogeneous job is one job on several kinds of
nodes: only its first part has a script and a log, so it is diagnosed as a whole by that one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from diagnose.integrations.slurmcommands import Run

# How a record of scontrol begins, before anything that a user chooses.
_PART: Final = re.compile(
    r"JobId=(\d{1,18})(?: ArrayJobId=(\d{1,18}) ArrayTaskId=(\S+))?(?: HetJobId=(\d{1,18}) HetJobOffset=(\d{1,6}))? "
)
NAMES: Final = ("JobID", "JobIDRaw")
# Of these nobody asks why.
_WELL: Final = ("COMPLETED", "RUNNING", "PENDING", "COMPLETING", "REQUEUED", "SUSPENDED")


def part_of(number: str, run: Run) -> tuple[str, str]:
    """What scontrol shows of this job alone, and what no other is called.

    The number of an array, or of a heterogeneous job, is that of one of its parts too; scontrol shows all of them.
    """
    for record in _records(number, run):
        own = _PART.match(record)
        if own and (own[1] == number or not number.isdigit()):
            if own[2] and own[3].isdigit():
                return record, f"{own[2]}_{own[3]}"
            return record, f"{own[4]}+{own[5]}" if own[4] else own[1]
    return "", number


def all_parts(whole: str, run: Run) -> str:
    """What scontrol shows of all parts of a heterogeneous job."""
    parts = (record for record in _records(whole, run) if (own := _PART.match(record)) and own[4] == whole)
    return "\n\n".join(parts)


def _records(number: str, run: Run) -> list[str]:
    return re.split(r"\n\s*\n(?=JobId=)", run(["scontrol", "show", "job", number]) or "")


def rows_of(spoken: str, told: str, columns: Sequence[str]) -> list[dict[str, str]]:
    """The rows of a job in what sacct or squeue print; `columns` begin with `NAMES`."""
    rows = [line.split("|") for line in told.splitlines()]
    found = [dict(zip(columns, row, strict=True)) for row in rows if len(row) == len(columns)]
    return [row for row in found if spoken in (row["JobID"], row["JobIDRaw"])]


def whole_of(spoken: str) -> str | None:
    """Of a part of a heterogeneous job that is not its first: the number of the whole, which is the first's too."""
    whole, plus, at = spoken.partition("+")
    return whole if plus and at != "0" else None


def other_parts(spoken: str, told: str, columns: Sequence[str]) -> list[dict[str, str]]:
    """The rows of the other parts of a heterogeneous job whose first is `spoken`; of each the latest."""
    whole, plus, _ = spoken.partition("+")
    rows = [line.split("|") for line in told.splitlines()] if plus else []
    found = [dict(zip(columns, row, strict=True)) for row in rows if len(row) == len(columns)]
    return list({row["JobID"]: row for row in found if whole_of(row["JobID"]) == whole}.values())


def failed_parts(number: str, run: Run) -> tuple[list[str], int]:
    """Of an array those tasks that failed, and how many it has; a job that is none has none."""
    told = run(["sacct", "-j", number, "-X", "-n", "-P", "-o", "JobID,State"]) or ""
    rows = [line.split("|") for line in told.splitlines()]
    parts = [row for row in rows if len(row) == 2 and re.match(rf"{re.escape(number)}_\d+\Z", row[0])]
    return [name for name, state in parts if not state.startswith(_WELL)], len(parts)
