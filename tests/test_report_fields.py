"""Every field of a report on small jobs of our own, one job for each thing a field can say."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import jsonschema
import pytest

from diagnose import Limits, Settings, diagnose
from diagnose.models import Report
from diagnose.report import render
from diagnose.report.contract import to_json

WAITED = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=512, NumelOut=512, "
    "Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
)
KEY_ERROR = (
    "Traceback (most recent call last):\n"
    '  File "/home/me/train.py", line 61, in <module>\n'
    "    main()\n"
    "KeyError: 'label'\n"
)


def steps(first: int, last: int, at: str = "2026-03-02 10:00") -> str:
    return "".join(f"{at}:{step:02} step: {step} loss: 2.5\n" for step in range(first, last + 1))


def rank_log(rank: int, error: str | None = None) -> str:
    """The log of a rank that fails with `error`, or waits for one that does."""
    lines = [f"2026-03-02 10:00:{second:02}.000 [rank{rank}] step: {second} loss: 2.5" for second in (5, 10, 15)]
    if error is None:
        lines.append(f"[rank{rank}]:[E302 10:10:{20 + rank}.000000000 ProcessGroupNCCL.cpp:616] [Rank {rank}] {WAITED}")
    else:
        lines.append(f"[rank{rank}]: Traceback (most recent call last):")
        lines.append(f'[rank{rank}]:   File "/home/me/train.py", line 61, in step')
        lines.append(f"[rank{rank}]: {error}")
    return "\n".join(lines) + "\n"


ILLEGAL = "RuntimeError: CUDA error: an illegal memory access was encountered"
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
XID = "[Mon Mar  2 10:00:16 2026] NVRM: Xid (PCI:0000:5d:00): 48, pid=100, name=python, DBE (double bit error)\n"


def placed(rank: int, host: str, world: int) -> str:
    return (
        f"{host}:100:200 [{rank}] NCCL INFO comm 0x1 rank {rank} nranks {world} cudaDev {rank} busId 5d000"
        " - Init COMPLETE\n"
    )


ONE_RANK = {f"rank_{rank}.log": rank_log(rank, ILLEGAL if rank == 1 else None) for rank in range(4)}
ON_HOSTS = {
    f"rank_{rank}.log": placed(rank, f"gx-0{rank}", 4) + rank_log(rank, ILLEGAL if rank == 1 else None)
    for rank in range(4)
}
FAULTY_GPU = {"rank_3.log": placed(3, "gx-02", 8) + rank_log(3, ECC), "gx-02.dmesg": XID}
PLAIN = {"job.log": steps(1, 8) + KEY_ERROR}
RETRIED = {
    "job.log": steps(1, 8)
    + KEY_ERROR
    + "[2026-03-02 10:00:30] Restarting worker group, attempt 1\n"
    + steps(4, 11, "2026-03-02 10:05")
    + KEY_ERROR
}
OTHER_LINE = {"job.log": RETRIED["job.log"].replace("line 61", "line 40", 1).replace("'label'", "'text'", 1)}
TIED = {
    "a.log": '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/home/me/data.py", line 3, in f\n'
    "[rank0]: KeyError: 'x'\n",
    "b.log": '[rank1]: Traceback (most recent call last):\n[rank1]:   File "/home/me/model.py", line 9, in g\n'
    "[rank1]: AttributeError: 'NoneType' object has no attribute 'y'\n",
}
SAVING = "saving checkpoint at iteration      {step} to /ckpt/a in torch_dist format\n"
SAVED = "  successfully saved checkpoint from iteration      {step} to /ckpt/a [ t 1/2, p 1/2 ]\n"
TORCHTITAN = (
    "2026-03-02 10:00:09 - root - INFO - Saving the checkpoint (or staging if async is enabled).\n"
    "2026-03-02 10:00:09 - root - INFO - Finished saving the checkpoint (or staging if async is enabled) in 4.20 seconds.\n"
)
HF = "Saving model checkpoint to out/checkpoint-8\nModel weights saved in out/checkpoint-8/model.safetensors\n"
MMENGINE = "2026/03/02 10:00:09 - mmengine - INFO - Saving checkpoint at 8 iterations\n"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def report_on(files: Mapping[str, str], settings: Settings | None = None) -> Report:
    for name, text in files.items():
        Path(name).write_text(text, encoding="utf-8")
    kernel = [name for name in files if name.endswith("dmesg")]
    return diagnose([name for name in files if name not in kernel], kernel_logs=kernel, settings=settings)


def evidence(report: Report) -> list[tuple[str, int | None]]:
    assert report.root_cause is not None
    return [(line.source, line.line) for line in report.root_cause.evidence]


@pytest.mark.parametrize(
    ("files", "error_type", "sureness"),
    [
        pytest.param(PLAIN, "KeyError", "likely", id="one log"),
        pytest.param(ONE_RANK, "CUDAError", "likely", id="those who wait are no witnesses"),
        pytest.param(FAULTY_GPU, "ECCError", "confirmed", id="the kernel and the dying rank"),
        pytest.param({"gx-02.dmesg": XID}, "ECCError", "possible", id="the kernel alone: nothing ties it to a job"),
        pytest.param(RETRIED, "KeyError", "confirmed", id="the same line in two attempts"),
        pytest.param(OTHER_LINE, "KeyError", "likely", id="another line in the attempt before"),
        pytest.param(TIED, "KeyError", "possible", id="a rival"),
    ],
)
def test_sureness_is_counted(job: Path, files: Mapping[str, str], error_type: str, sureness: str) -> None:
    report = report_on(files)
    assert (report.status, report.error_type, report.sureness) == ("failed", error_type, sureness)
    assert bool(report.alternatives) == (sureness == "possible")


def test_a_rival_is_named_with_what_would_decide(job: Path) -> None:
    (rival,) = report_on(TIED).alternatives
    assert rival.error_type == "AttributeError"
    assert "b.log:3" in rival.for_
    assert "a.log:3" in rival.against
    assert "a.log:3" in rival.test
    assert "b.log:3" in rival.test


WATCHDOG = (
    "[rank{0}]:[E302 10:10:{0:02d}.123456789 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=71, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for 600010 "
    "milliseconds before timing out.\n"
)


def waited(*ranks: int) -> dict[str, str]:
    placed_ranks = "".join(placed(rank, f"gx-0{rank}", 3) for rank in range(3))
    return {"job.log": placed_ranks + steps(1, 8) + "".join(WATCHDOG.format(rank) for rank in ranks)}


def test_what_may_lie_beneath_a_time_out_is_told_with_what_would_decide(job: Path) -> None:
    report = report_on(waited(0, 1))
    assert (report.error_type, report.sureness) == ("NCCLTimeoutError", "possible")
    assert [culprit.id for culprit in report.culprits if culprit.kind == "rank"] == ["2"]
    lost, stuck = report.alternatives
    assert lost.error_type == "NodeFailure"
    assert "rank 2" in lost.for_
    assert lost.test == "the kernel log of gx-02 since 10:00:00"
    assert stuck.error_type == "CollectiveHang"
    assert "rank 2" in stuck.test


def test_where_all_ranks_waited_the_network_or_another_call_is_the_rival(job: Path) -> None:
    report = report_on(waited(0, 1, 2))
    assert not [culprit for culprit in report.culprits if culprit.kind in ("rank", "host")]
    assert [rival.error_type for rival in report.alternatives] == ["NetworkError", "CollectiveMismatch"]


def test_the_chain_leads_from_the_cause_to_those_who_waited(job: Path) -> None:
    cause, waiting = report_on(ONE_RANK).chain
    assert (cause.error_type, cause.role, cause.count, cause.ranks) == ("CUDAError", "cause", 1, (1,))
    assert cause.explained_by is None
    assert (cause.first.source, cause.first.line) == ("rank_1.log", 6)
    assert (waiting.error_type, waiting.role, waiting.count, waiting.ranks) == (
        "NCCLTimeoutError",
        "symptom",
        3,
        (0, 2, 3),
    )
    assert waiting.explained_by == cause.rule == "cuda-illegal-memory-access"
    assert waiting.rule == "nccl-collective-timeout"
    assert (waiting.first.source, waiting.first.line, waiting.first.rank) == ("rank_0.log", 4, 0)


def test_what_died_of_the_cause_comes_before_those_who_waited_for_it(job: Path) -> None:
    others = {f"rank_{rank}.log": placed(rank, "gx-01", 8) + rank_log(rank) for rank in range(3)}
    links = report_on({**others, **FAULTY_GPU}).chain
    # The dying rank's last words have no time, those who waited have one.
    assert [(link.error_type, link.ranks) for link in links[1:3]] == [
        ("ECCError", (3,)),
        ("NCCLTimeoutError", (0, 1, 2)),
    ]


def test_the_evidence_holds_both_witnesses(job: Path) -> None:
    report = report_on(FAULTY_GPU)
    assert evidence(report) == [("gx-02.dmesg", 1), ("rank_3.log", 7)]
    assert report.root_cause is not None
    assert report.root_cause.evidence[1].rank == 3
    assert [link.rule for link in report.chain] == ["nvidia-xid", "gpu-ecc-uncorrectable"]


def test_reasons_say_what_decided(job: Path) -> None:
    retried, one_rank = report_on(RETRIED).root_cause, report_on(ONE_RANK).root_cause
    assert retried is not None
    assert any("attempt 1" in reason for reason in retried.reasons)
    assert one_rank is not None
    assert any("only rank 1" in reason for reason in one_rank.reasons)


def test_attempts_are_listed_with_their_own_end(job: Path) -> None:
    report = report_on(OTHER_LINE)
    first, second = report.attempts
    assert (first.index, first.diagnosed, first.error_type, first.last_step) == (0, False, "KeyError", 8)
    assert (second.index, second.diagnosed, second.error_type, second.last_step) == (1, True, "KeyError", 11)
    assert first.started == "2026-03-02T10:00:01Z"
    assert (second.started, second.ended) == ("2026-03-02T10:05:04Z", "2026-03-02T10:05:11Z")
    assert evidence(report) == [("job.log", 25)]


def test_one_attempt_is_one(job: Path) -> None:
    (only,) = report_on(PLAIN).attempts
    assert (only.index, only.diagnosed, only.error_type, only.last_step) == (0, True, "KeyError", 8)


@pytest.mark.parametrize(
    ("log", "last", "checkpoint", "complete"),
    [
        pytest.param(steps(1, 8), 8, None, None, id="none"),
        pytest.param(steps(1, 8) + SAVING.format(step=8), 8, "iteration 8 in /ckpt/a", False, id="begun"),
        pytest.param(
            steps(1, 8) + SAVING.format(step=8) + SAVED.format(step=8) + steps(9, 12),
            12,
            "iteration 8 in /ckpt/a",
            True,
            id="complete",
        ),
        pytest.param(
            steps(1, 4) + SAVED.format(step=4) + steps(5, 8) + SAVING.format(step=8),
            8,
            "iteration 4 in /ckpt/a",
            True,
            id="a later one was begun",
        ),
        pytest.param(steps(1, 8) + TORCHTITAN + steps(9, 12), 12, "step 8", True, id="torchtitan"),
        pytest.param(steps(1, 8) + HF, 8, "out/checkpoint-8", False, id="HF: one file is no checkpoint"),
        pytest.param(steps(1, 8) + HF + steps(9, 9), 9, "out/checkpoint-8", True, id="HF: the work went on"),
        pytest.param(steps(1, 8) + MMENGINE, 8, "step 8", False, id="MMEngine: begun"),
        pytest.param(steps(1, 8) + MMENGINE + steps(9, 9), 9, "step 8", True, id="MMEngine: the work went on"),
    ],
)
def test_progress(job: Path, log: str, last: int, checkpoint: str | None, complete: bool | None) -> None:
    progress = report_on({"job.log": log + KEY_ERROR}).progress
    assert (progress.first_step, progress.last_step) == (1, last)
    assert progress.last_step_time == f"2026-03-02T10:00:{last:02}Z"
    assert (progress.last_checkpoint, progress.last_checkpoint_complete) == (checkpoint, complete)
    assert progress.completed is False


def test_a_restart_names_the_checkpoint(job: Path) -> None:
    saved = SAVING.format(step=8) + SAVED.format(step=8)
    files = {**FAULTY_GPU, "rank_3.log": saved + FAULTY_GPU["rank_3.log"]}
    recovery = report_on(files).recovery
    assert (recovery.job, recovery.from_checkpoint) == ("restart_elsewhere", "iteration 8 in /ckpt/a")
    assert [(node.host, node.gpu) for node in recovery.nodes] == [("gx-02", "0000:5d:00")] * 2


def test_what_was_not_given_is_said(job: Path) -> None:
    given = {name: text for name, text in ON_HOSTS.items() if name != "rank_2.log"}
    coverage = report_on(given).coverage
    assert (coverage.ranks_seen, coverage.ranks_expected) == (3, 4)
    assert coverage.not_read == ("rank 2", "kernel log of gx-01")


def test_what_was_given_is_not_called_missing(job: Path) -> None:
    coverage = report_on({**ON_HOSTS, "gx-01.dmesg": "[Mon Mar  2 09:00:00 2026] nvidia: loading module\n"}).coverage
    assert (coverage.ranks_seen, coverage.ranks_expected, coverage.not_read) == (4, 4, ())
    assert [(source.source, source.kind) for source in coverage.sources][-1] == ("gx-01.dmesg", "kernel")


def routine(lines: int) -> str:
    return "".join(
        f" [2026-05-04 03:00:00] iteration {number:8d}/  900000 | consumed samples: {number * 512:12d} | elapsed time"
        " per iteration (ms): 912.4 | learning rate: 1.2E-04 | global batch size:   512 | lm loss: 2.31E+00 |\n"
        for number in range(lines)
    )


def test_lines_are_counted(job: Path) -> None:
    report = report_on({"job.log": routine(2000) + KEY_ERROR})
    assert report.stats.lines == 2004
    assert report.stats.bytes == os.path.getsize("job.log")
    assert report.coverage.dropped_lines > 1900
    assert report.stats.kept_lines + report.coverage.dropped_lines == 2004
    (source,) = report.coverage.sources
    assert (source.lines, source.truncated) == (2004, False)


def test_a_cut_line_is_told(job: Path) -> None:
    report = report_on({"job.log": steps(1, 8) + "x" * 200_000 + "\n" + KEY_ERROR})
    assert report.error_type == "KeyError"
    assert report.coverage.sources[0].truncated
    assert "in part: job.log" in render(report, "text")


def test_an_empty_log_is_told(job: Path) -> None:
    report = report_on({"job.log": ""})
    assert report.status == "inconclusive"
    assert "job.log, nothing in it" in render(report, "text")


def test_the_time_limit_holds_inside_a_source(job: Path) -> None:
    report = report_on({"job.log": routine(2000) + KEY_ERROR}, Settings(limits=Limits(seconds=0, block_bytes=4096)))
    assert report.status == "inconclusive"
    assert any("time limit" in missing for missing in report.coverage.not_read)


def test_a_source_in_the_middle_of_which_the_time_ends_is_truncated(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter(range(100_000))
    monkeypatch.setattr("diagnose.clock.time.monotonic", lambda: float(next(seconds)))
    report = report_on({"job.log": routine(2000) + KEY_ERROR}, Settings(limits=Limits(seconds=20, block_bytes=4096)))
    (source,) = report.coverage.sources
    assert source.truncated
    assert source.lines < 2000
    assert any("time limit" in missing for missing in report.coverage.not_read)


@pytest.mark.parametrize(
    "files", [PLAIN, ONE_RANK, ON_HOSTS, FAULTY_GPU, RETRIED, OTHER_LINE, TIED, {"job.log": steps(1, 3)}]
)
def test_every_report_keeps_the_contract(job: Path, files: Mapping[str, str]) -> None:
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures")
    with open(os.path.join(folder, "report.schema.json"), encoding="utf-8") as file:
        jsonschema.Draft202012Validator(json.load(file)).validate(to_json(report_on(files)))
