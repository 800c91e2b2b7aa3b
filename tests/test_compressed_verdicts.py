"""The compressor changes nothing of the verdict: what is judged by steps or by starts does not depend on its samples."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from diagnose.models import Report, RuleSet
from diagnose.settings import Settings
from tests.incidents import run
from tests.test_lines_attempts import CASES

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


BAR = "  {step}%|#         | {step}/100 [00:05<00:45,  2.0it/s]"
# Starts and ends that no filter speaks of, beside the shipped filters' own examples.
STARTS = (
    "torch 2.1 | backend gloo | world_size 2\n",
    "arguments: {'steps': 20}\n",
    "my own banner of the trainer\n",
    "model parameters: 132992\n",
    "+ torchrun --nproc-per-node 8 train.py\n",
    "=== run a41f on n[1-4] ===\n",
    "\r".join(BAR.format(step=step) for step in (0, 1, 10)) + "\n",
)
ENDS = (
    "srun: error: n1: task 0: Exited with exit code 1\n",
    "[default] Worker group FAILED. 2/3 attempts left; will restart worker group\n",
    "failed (exitcode: -6) local_rank: 0 (pid: 21739) of binary: /usr/bin/python\n",
    "Training completed\n",
    "Restarting training (2/3)\n",
    "KeyboardInterrupt\n",
    "slurmstepd: error: *** JOB 608 ON srv4 CANCELLED AT 2026-03-03T02:06:12 DUE TO JOB REQUEUE ***\n",
    "RuntimeError: CUDA error: uncorrectable ECC error encountered\n",
    'Traceback (most recent call last):\n  File "/w/t.py", line 7, in step\n    loss = f(x)\nKeyError: 5\n',
)


@pytest.fixture(scope="module")
def blind(rule_set: RuleSet) -> RuleSet:
    """The shipped rules, and a filter that takes every line with a blank for routine."""
    drop = next(rule for rule in rule_set.filters if rule.action == "drop")
    wrong = replace(
        drop, id="all-is-routine", sources=("job",), keywords=(" ",), pattern=".*", yields=None, keep_first=0
    )
    return replace(rule_set, filters=(wrong,))


def same_verdict(folder: Path, text: str, *rule_sets: RuleSet) -> None:
    for rule_set in rule_sets:
        packed, whole = both(folder, text, rule_set)
        assert told(packed) == told(whole), text


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_start_is_one_with_and_without_the_compressor(
    name: str, rule_set: RuleSet, blind: RuleSet, tmp_path: Path
) -> None:
    same_verdict(tmp_path, CASES[name][0].strip("\n") + "\n", rule_set, blind)


@pytest.mark.parametrize("end", range(4))
@pytest.mark.parametrize("area", ["wandb", "hf", "torch", "deepspeed", "lightning", "nccl", "megatron"])
def test_a_banner_that_filters_know_begins_no_attempt_of_its_own(
    area: str, end: int, rule_set: RuleSet, blind: RuleSet, tmp_path: Path
) -> None:
    lines = [line for rule in rule_set.filters if rule.id.startswith(area) for line in rule.examples.noise]
    banner = "".join(line + "\n" for line in lines[:16])
    assert len(lines) > 2
    same_verdict(tmp_path, banner + ENDS[end] + banner + ENDS[8], rule_set, blind)


def log_of_restarts(chance: random.Random, known: list[tuple[str, ...]]) -> str:
    """A job that starts several times, with what filters know and what they do not in any order."""
    banner: list[str] = []
    for _ in range(chance.choice((1, 2, 4, 8))):
        if chance.random() < 0.65:
            banner += [line + "\n" for line in chance.choice(known)[:4]]
        else:
            banner.append(chance.choice(STARTS))
    text: list[str] = []
    for _ in range(chance.choice((2, 2, 3))):
        text += banner if chance.random() < 0.85 else banner[::2]
        first, count = chance.choice((0, 0, 50, 100)), chance.choice((0, 3, 30, 200))
        text += [f"step {step} loss 2.3\n" for step in range(first, first + count)]
        text += chance.sample(ENDS, chance.choice((1, 2, 3)))
        if chance.random() < 0.3:
            text += [line + "\n" for line in chance.choice(known)[:3]]
    return "".join(text)


@pytest.mark.parametrize("seed", range(12))
def test_attempts_of_any_job_that_starts_again(seed: int, rule_set: RuleSet, blind: RuleSet, tmp_path: Path) -> None:
    chance = random.Random(seed)
    known = [rule.examples.noise for rule in rule_set.filters]
    for _ in range(5):
        same_verdict(tmp_path, log_of_restarts(chance, known), rule_set, blind)


def test_an_attempt_that_failed_before_its_first_step_is_the_one_to_judge(rule_set: RuleSet, tmp_path: Path) -> None:
    text = "=== run 5 on n1 ===\nstep 1 loss 2\nTraining completed\n=== run 6 on n1 ===\n" + ENDS[8]
    report, _ = both(tmp_path, text, rule_set)
    assert (report.status, report.error_type, len(report.attempts)) == ("failed", "KeyError", 2)
