"""The whole path: equal with and without compression, whatever the chunks, the order and the names of inputs."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import diagnose
from diagnose import pipeline
from diagnose.clock import Clock
from diagnose.errors import SourceError, UsageError
from diagnose.models import Finding, Report, RuleSet, SourceSet
from diagnose.settings import Limits, Settings
from diagnose.sources import collect
from tests.incidents import Incident, incidents, run

ALL = incidents()


def told(report: Report) -> tuple[object, ...]:
    """What a verdict says, without how it was read."""
    cause = report.root_cause
    return (
        report.status, report.error_type, report.attribution,
        sorted((c.kind, c.id) for c in report.culprits), report.recovery.job,
        cause.summary if cause else None,
    )  # fmt: skip


def facts(findings: tuple[Finding, ...]) -> list[tuple[object, ...]]:
    return sorted(
        (f.id, f.count, f.first, f.last, tuple(sorted(f.ranks)), tuple((e.source, e.line) for e in f.evidence))
        for f in findings
    )


@pytest.mark.parametrize("incident", ALL, ids=lambda incident: incident.name)
@pytest.mark.parametrize("limits", [Limits(), Limits(block_bytes=4096, templates=4)], ids=["blocks", "small"])
def test_compression_hides_nothing(incident: Incident, limits: Limits, rule_set: RuleSet) -> None:
    packed = run(incident.folder, incident.expected["inputs"], rule_set, Settings(limits=limits))
    whole = run(incident.folder, incident.expected["inputs"], rule_set, Settings(compress=False))
    assert facts(packed.explanation.findings) == facts(whole.explanation.findings)
    assert told(packed) == told(whole)


def test_nothing_to_read_is_an_error(tmp_path: Path, rule_set: RuleSet) -> None:
    with pytest.raises(SourceError):
        run(str(tmp_path), ["absent.log"], rule_set)


def test_bad_inventory_is_an_error(tmp_path: Path, rule_set: RuleSet) -> None:
    (tmp_path / "job.log").write_text("hello\n")
    (tmp_path / "inventory.json").write_text("[1, 2")
    with pytest.raises(UsageError):
        run(str(tmp_path), ["job.log", "--inventory", "inventory.json"], rule_set)


def test_time_limit_is_reported(tmp_path: Path, rule_set: RuleSet) -> None:
    (tmp_path / "job.log").write_text("hello\n" * 10)
    report = run(str(tmp_path), ["job.log"], rule_set, Settings(limits=replace(Limits(), seconds=-1.0)))
    assert any("time limit" in text for text in report.coverage.not_read)


def test_what_is_appended_while_a_log_is_read_is_told(
    tmp_path: Path, rule_set: RuleSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "job.log"
    log.write_text("step 1\n")

    def collected(*arguments: object, **how: object) -> SourceSet:
        sources = collect(*arguments, **how)
        with log.open("a") as file:
            file.write("step 2\n" * 10)
        return sources

    monkeypatch.setattr(pipeline, "collect", collected)
    report = run(str(tmp_path), ["job.log"], rule_set)
    assert report.coverage.not_read[0] == "job.log: 70 bytes that were appended while it was read"
    assert report.coverage.sources[0].lines == 1


def test_what_the_verdict_had_no_time_to_weigh_is_told(
    tmp_path: Path, rule_set: RuleSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job.log").write_text('Traceback (most recent call last):\n  File "a.py", line 1, in f\nKeyError: 1\n')
    monkeypatch.setattr("diagnose.clock.Clock.rest", lambda _self: Clock(-1.0))
    report = run(str(tmp_path), ["job.log"], rule_set)
    assert (report.status, report.error_type) == ("failed", None)
    assert any("what explains 1 findings" in text for text in report.coverage.not_read)


def test_findings_over_the_limit_are_counted_and_told(tmp_path: Path, rule_set: RuleSet) -> None:
    text = "".join(
        f'Traceback (most recent call last):\n  File "/w/part{number}.py", line {number}, in f\nKeyError: {number}\n'
        for number in range(1, 41)
    )
    (tmp_path / "job.log").write_text(text)
    whole = run(str(tmp_path), ["job.log"], rule_set)
    cut = run(str(tmp_path), ["job.log"], rule_set, Settings(limits=Limits(findings=10)))
    assert not any("beyond" in entry for entry in whole.coverage.not_read)
    (told_of,) = [entry for entry in cut.coverage.not_read if "beyond 10 findings" in entry]
    assert int(told_of.split()[0]) >= 30
    assert sum(f.count for f in cut.explanation.findings) == sum(f.count for f in whole.explanation.findings)
    assert (cut.status, cut.error_type) == (whole.status, whole.error_type)


def test_python_interface(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(
        "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    f()\nKeyError: 'x'\n"
    )
    report = diagnose.diagnose(str(log))
    assert (report.status, report.error_type, report.attribution) == ("failed", "KeyError", "user")


# Beyond the standard library; of that, what takes long and a run of a text log does without.
ALLOWED = {"ahocorasick_rs", "diagnose", "regex"}
SPARED = {
    "asyncio", "dataclasses", "email", "hashlib", "importlib.metadata", "inspect", "logging", "pathlib", "random",
    "socket", "subprocess", "tempfile", "unittest", "urllib.parse", "zipfile",
    "diagnose.cli.rules", "diagnose.report.markdown", "diagnose.rules.decode", "diagnose.rules.lint",
    "diagnose.rules.load", "diagnose.sources.inventory", "diagnose.sources.zips",
}  # fmt: skip


def test_a_run_loads_only_what_it_needs(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text("KeyError: 'x'\n")
    code = (
        "import sys\nbefore = set(sys.modules)\nfrom diagnose.cli import main\n"
        f"main([{str(log)!r}])\nprint(sorted(set(sys.modules) - before), file=sys.stderr)"
    )
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    for _ in range(2):  # the first run prepares the rules
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment
        )
    loaded = set(ast.literal_eval(done.stderr.strip().splitlines()[-1]))
    foreign = {name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names)
    assert {name for name in foreign if not name.startswith("__")} <= ALLOWED
    assert not loaded & SPARED


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="a system without /proc")
def test_many_sources_take_little_memory(tmp_path: Path, rule_set: RuleSet) -> None:
    """What is held of each source is small; searchers outside Python's own memory are shared."""

    def resident() -> int:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    for number in range(600):
        (tmp_path / f"rank{number}.log").write_text("step 1 loss 2.0\n")
    pipeline.diagnose(pipeline.Request([str(tmp_path / "rank0.log")]), pipeline.Services(rule_set))
    before = resident()
    pipeline.diagnose(pipeline.Request([str(tmp_path)]), pipeline.Services(rule_set))
    assert resident() - before < 40_000_000


def test_a_clock_that_is_off_is_told_by_a_log_whose_stamps_are_as_wrong(tmp_path, rule_set):
    """The system's log is read first and does not state the year; its line lies half an hour after the job's last."""
    (tmp_path / "a-syslog.txt").write_text(
        "Jan 23 03:39:58 gx-07 chronyd[1120]: Can't synchronise: no selectable sources\n"
        "Jan 23 04:12:31 gx-07 chronyd[1120]: System clock wrong by 1211.448120 seconds\n"
    )
    (tmp_path / "train.log").write_text(
        "2024-01-23 03:40:12 INFO loading s3://corpus/train\n"
        "botocore.exceptions.ClientError: An error occurred (RequestTimeTooSkewed) when calling the GetObject operation\n"
    )
    report = run(str(tmp_path), ["train.log", "a-syslog.txt"], rule_set)
    assert report.error_type == "ClockSkewError"
    assert [culprit.id for culprit in report.culprits] == ["gx-07"]


def test_a_kernel_log_from_a_pipe_is_read_whole(tmp_path, rule_set):
    """It is not looked into for the year before: its bytes come once."""
    (tmp_path / "rank_0.log").write_text("step 1 loss 2.0\n")
    pipe = tmp_path / "kernel"
    os.mkfifo(pipe)
    line = "Mar  1 10:00:00 gx-07 kernel: NVRM: Xid (PCI:0000:52:00): 79, pid=77, GPU has fallen off the bus.\n"
    writer = subprocess.Popen(["sh", "-c", 'printf %s "$1" > "$2"', "sh", line, str(pipe)])
    report = pipeline.diagnose(
        pipeline.Request([str(tmp_path / "rank_0.log")], kernel_logs=[str(pipe)]), pipeline.Services(rule_set)
    )
    assert writer.wait() == 0
    assert report.error_type == "GPUFallenOffBus"


@pytest.mark.parametrize("after", [2, 10, 45])
def test_steps_after_a_failure_are_seen_through_the_filters(tmp_path: Path, rule_set: RuleSet, after: int) -> None:
    """What was survived is so with and without compression, however few steps follow."""
    steps = [f"[rank1]: step {step}/5000 loss 2.50\n" for step in range(1, 61 + after)]
    steps.insert(60, "monitor: job 8188 appears to be stuck at step 4410\n")
    (tmp_path / "job.log").write_text("".join(steps))
    one, other = (run(str(tmp_path), ["job.log"], rule_set, Settings(compress=compress)) for compress in (True, False))
    assert (one.status, one.error_type) == (other.status, other.error_type) == ("inconclusive", None)
