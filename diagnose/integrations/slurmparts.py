"""Arrays and heterogeneous jobs: which of its parts a number means.

In: a number as Slurm gives it to hooks, or `14_2` and `17+1` as people say. Out: what Slurm's commands show of this
part alone, and what they call it and nothing else. The number of one task of an array is that of the array as well:
given it, scontrol and sacct show all tasks, and change all of them.
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
    for record in re.split(r"\n\s*\n(?=JobId=)", run(["scontrol", "show", "job", number]) or ""):
        own = _PART.match(record)
        if own and (own[1] == number or not number.isdigit()):
            if own[2] and own[3].isdigit():
                return record, f"{own[2]}_{own[3]}"
            return record, f"{own[4]}+{own[5]}" if own[4] else own[1]
    return "", number


def rows_of(spoken: str, told: str, columns: Sequence[str]) -> list[dict[str, str]]:
    """The rows of a job in what sacct or squeue print; `columns` begin with `NAMES`."""
    rows = [line.split("|") for line in told.splitlines()]
    found = [dict(zip(columns, row, strict=True)) for row in rows if len(row) == len(columns)]
    return [row for row in found if spoken in (row["JobID"], row["JobIDRaw"])]


def failed_parts(number: str, run: Run) -> tuple[list[str], int]:
    """Of a job of several parts those that failed, and how many parts it has; a job of one part has none."""
    told = run(["sacct", "-j", number, "-X", "-n", "-P", "-o", "JobID,State"]) or ""
    rows = [line.split("|") for line in told.splitlines()]
    parts = [row for row in rows if len(row) == 2 and re.match(rf"{re.escape(number)}[_+]\d+\Z", row[0])]
    return [name for name, state in parts if not state.startswith(_WELL)], len(parts)
