"""The compressor changes nothing of the verdict: what is judged by steps or by starts does not depend on its samples."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.models import Report, RuleSet
from diagnose.settings import Settings
from tests.incidents import run

STEPS = {
    "bare": "[rank{rank}]: step {step}/9000 loss 2.31 lr 1e-4\n",
    "dated": "2026-03-03 04:{minute:02}:{second:02},000 INFO trainer: rank {rank} step={step} loss=2.1\n",
    "megatron": " iteration {step:8}/  900000 | consumed samples: 12 | elapsed time per iteration (ms): 912.4 | learning rate:"
    " 1.2E-04 | global batch size:   512 | lm loss: 2.31E+00 | loss scale: 1.0 | grad norm: 0.412 | number of skipped"
    " iterations:   0 | number of nan iterations:   0 |\n",
}  # fmt: skip
CITED = {
    "HostOutOfMemory": "[12345.678] Out of memory: Killed process 4711 (python) total-vm:9kB, anon-rss:8kB\n",
    "ECCError": "NVRM: Xid (PCI:0000:5d:00): 95, pid=1234, Uncontained ECC error\n",
    "Preempted": "slurmstepd: error: *** JOB 608 ON srv4 CANCELLED AT 2026-03-03T04:06:12 DUE TO PREEMPTION ***\n",
}


def told(report: Report) -> tuple[object, ...]:
    """What a report says, and what it has set aside for which reason."""
    explanation = report.explanation
    return (
        report.status, report.error_type, report.attribution, report.culprits, report.recovery.job,
        [(attempt.index, attempt.error_type, attempt.last_step) for attempt in report.attempts],
        sorted((item.finding.id, item.why) for item in explanation.excluded),
        sorted(item.id for item in explanation.findings),
    )  # fmt: skip


def both(folder: Path, text: str, rule_set: RuleSet, settings: Settings | None = None) -> tuple[Report, Report]:
    """The report on a log as it is compressed, and with every line read."""
    (folder / "job.log").write_text(text)
    return (
        run(str(folder), ["job.log"], rule_set, settings),
        run(str(folder), ["job.log"], rule_set, Settings(compress=False)),
    )


def steps(form: str, first: int, count: int, ranks: int) -> str:
    return "".join(
        form.format(step=step, rank=rank, minute=step // 60 % 60, second=step % 60)
        for step in range(first, first + count)
        for rank in range(ranks)
    )


@pytest.mark.parametrize("form", STEPS)
@pytest.mark.parametrize("ranks", [1, 4, 24])
@pytest.mark.parametrize("after", [4, 5, 7, 30])
def test_what_the_work_outlived_does_not_depend_on_which_steps_are_kept(
    form: str, ranks: int, after: int, rule_set: RuleSet, tmp_path: Path
) -> None:
    for error_type, line in CITED.items():
        text = steps(STEPS[form], 100, 80, ranks) + line + steps(STEPS[form], 180, after, ranks)
        packed, whole = both(tmp_path, text, rule_set)
        assert told(packed) == told(whole), error_type
