"""Lines taken by turns make the reports that lines taken one by one make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diagnose import reading
from diagnose.lines.interests import RECORDS, RULES
from diagnose.lines.turns import turn, turn_ends
from diagnose.models import Line, LogSource, Report, RuleSet
from tests.incidents import incidents, run

SOURCE = LogSource("job.log")


def one_by_one(lines: Sequence[Line], asked: object) -> list[int]:
    return list(range(1, len(lines) + 1))


def timeless(report: Report) -> Report:
    return replace(report, stats=replace(report.stats, seconds=0.0))


def line(text: str, stream: str = "a", **how: object) -> Line:
    return Line(SOURCE, 1, text, text, stream, **how)


def test_a_turn_is_what_one_writer_wrote_in_a_row() -> None:
    lines = [line("  x"), line("  y"), line("  z", "b"), line("  w", "b", rank=3), line("  v", "b", rank=3), line("u")]
    ends = [turn(lines, [RECORDS] * len(lines), place) for place in range(len(lines))]
    assert turn_ends(lines, [RECORDS] * len(lines)) == ends
    assert ends == [2, 2, 3, 5, 5, 6]


@pytest.mark.parametrize("other", [line("y"), line("  y", time=1.0), line("  y", progress="f"), line("  y", pid=3)])
def test_what_says_more_is_no_part_of_one(other: Line) -> None:
    assert turn([line("  x"), other], [0, 0], 0) == 1
    assert turn([line("  x"), line("  y")], [0, RULES], 0) == 1
    assert turn([line("  x", host="n1"), line("  y", host="n1")], [0, 0], 0) == 1


def test_bundled_logs_give_the_same_reports(rule_set: RuleSet, monkeypatch: pytest.MonkeyPatch) -> None:
    for incident in incidents():
        by_turns = run(incident.folder, incident.expected["inputs"], rule_set)
        with monkeypatch.context() as patch:
            patch.setattr(reading, "turn_ends", one_by_one)
            assert timeless(run(incident.folder, incident.expected["inputs"], rule_set)) == timeless(by_turns)


PARTS = (
    "Traceback (most recent call last):", '  File "/w/a.py", line 3, in f', "    x = y", "    raise ValueError(x)",
    "ValueError: bad", "  frozen by  hand", " State=FAILED JobId=3", "    NCCL WARN  Call to x", "  step 3 of 9",
    "During handling of the above exception, another exception occurred:", "", "terminate called after throwing",
    "frame #3: f() + 0x1", "  RuntimeError: CUDA error: an illegal memory access was encountered", "    ^^^^^",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:", "  exitcode  : 1 (pid: 77)",
)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(["", "[rank0]: ", "[rank1]: ", "[default0]:"]), st.sampled_from(PARTS))))
def test_any_lines_give_the_same_report(tmp_path: Path, rule_set: RuleSet, parts: list[tuple[str, str]]) -> None:
    (tmp_path / "job.log").write_text("".join(f"{tag}{part}\n" for tag, part in parts))
    by_turns = run(str(tmp_path), ["job.log"], rule_set)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "turn_ends", one_by_one)
        assert timeless(run(str(tmp_path), ["job.log"], rule_set)) == timeless(by_turns)
