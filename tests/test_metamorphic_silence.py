"""A rank that falls silent while the others wait is named; a log that was cut or is missing never makes a culprit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from diagnose.models import Report, RuleSet
from tests.incidents import run

WORLD = 8
SILENT = 5
EXPIRED = (
    "[Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=512, "
    "NumelOut=512, Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
)


def job(*silent: int, printing: int = WORLD) -> dict[int, list[str]]:
    """A log per rank, of which the first `printing` print steps; all but the silent ones report a time-out."""
    made: dict[int, list[str]] = {}
    for rank in range(WORLD):
        host = f"qx-{rank // 4:02}"
        lines = [
            f"{host}:{3000 + rank}:{3000 + rank} [{rank % 4}] NCCL INFO Bootstrap : Using ib0:10.4.2.{rank // 4}<0>",
            (
                f"{host}:{3000 + rank}:{3900 + rank} [{rank % 4}] NCCL INFO ncclCommInitRank comm 0x55d{rank} rank {rank} "
                f"nranks {WORLD} cudaDev {rank % 4} busId {rank % 4 + 1}b000 commId 0xabc1 - Init COMPLETE"
            ),
        ]
        if rank < printing:
            lines += [
                f"2026-03-04 01:{10 + n}:02 INFO rank={rank} step={n * 50} loss={3 - n / 9:.2f}" for n in range(1, 9)
            ]
        if rank not in silent:
            lines.append(f"[rank{rank}]:[E304 01:29:05.1{rank}10 ProcessGroupNCCL.cpp:629] " + EXPIRED.format(rank))
        made[rank] = lines
    return made


def report(logs: Mapping[int, list[str]], rule_set: RuleSet, folder: Path) -> Report:
    for rank, lines in logs.items():
        (folder / f"rank_{rank}.log").write_text("".join(f"{line}\n" for line in lines))
    return run(str(folder), ["."], rule_set)


def blamed(found: Report) -> set[str]:
    return {culprit.id for culprit in found.culprits if culprit.kind == "rank"}


@pytest.mark.parametrize("printing", [WORLD, 1, 0])
@pytest.mark.parametrize("silent", [(SILENT,), (0,), (6, 7), (4, 5, 6)])
def test_silent_ranks_are_named_as_possible(
    silent: tuple[int, ...], printing: int, rule_set: RuleSet, tmp_path: Path
) -> None:
    found = report(job(*silent, printing=printing), rule_set, tmp_path)
    assert (found.status, found.error_type, found.sureness) == ("failed", "NCCLTimeoutError", "possible")
    # Of a rank that alone printed steps, its own pace tells how far it came.
    assert blamed(found) == {str(rank) for rank in silent}
    assert "never reached it" not in found.root_cause.summary
    assert "wrote nothing" in found.root_cause.summary
    assert "drain" not in {action.action for action in found.recovery.nodes}


@pytest.mark.parametrize("kept", range(11))
@pytest.mark.parametrize("cut", [0, 4, 7])
def test_a_cut_log_of_an_innocent_adds_no_single_blame(cut: int, kept: int, rule_set: RuleSet, tmp_path: Path) -> None:
    logs = job(SILENT)
    logs[cut] = logs[cut][:kept]
    found = report(logs, rule_set, tmp_path)
    assert blamed(found) in (set(), {str(SILENT), str(cut)})
    assert found.sureness == "possible"


@pytest.mark.parametrize("printing", [WORLD, 1])
@pytest.mark.parametrize("kept", range(10))
def test_where_all_reported_a_log_that_was_cut_early_blames_nobody(
    kept: int, printing: int, rule_set: RuleSet, tmp_path: Path
) -> None:
    logs = job(printing=printing)
    before = len(logs[3]) - 1
    logs[3] = logs[3][:kept]
    found = report(logs, rule_set, tmp_path)
    # Cut within the wait it looks as a silent rank's does.
    assert blamed(found) <= (set() if kept < before - 1 else {"3"})


@pytest.mark.parametrize("taken", range(WORLD))
def test_a_missing_log_adds_no_blame(taken: int, rule_set: RuleSet, tmp_path: Path) -> None:
    logs = job(SILENT)
    del logs[taken]
    assert blamed(report(logs, rule_set, tmp_path)) <= {str(SILENT)}


def test_one_file_and_many_name_the_same(rule_set: RuleSet, tmp_path: Path) -> None:
    logs = job(SILENT)
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "all.log").write_text("".join(f"{line}\n" for lines in logs.values() for line in lines))
    (tmp_path / "many").mkdir()
    together, apart = run(str(tmp_path / "all"), ["all.log"], rule_set), report(logs, rule_set, tmp_path / "many")
    assert blamed(together) == blamed(apart) == {str(SILENT)}
    assert together.error_type == apart.error_type
