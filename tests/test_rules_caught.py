"""Tracebacks after which their process went on with its work."""

import pytest

from diagnose.lines.timeline import LastLine
from diagnose.rules.caught import all_caught
from tests.made import finding

BEFORE = [LastLine(40, "info", True, "loaded 9 shards"), LastLine(41, "warning", True, "bad sample, skipping")]
CALM = [LastLine(60, "info", True, "epoch 3 done"), LastLine(61, "info", True, "wrote model.pt")]


def raised(**how):
    return finding("raised", "DatasetLoadingError", line=50, traceback=True, survivable=True, **how)


def caught(tail, *findings, ranks=0):
    findings = findings or (raised(),)
    stream = next(iter(findings[0].streams))
    return all_caught(findings, {stream: tail}, ranks)


def test_the_same_logger_wrote_on():
    assert caught([*BEFORE, *CALM])


def test_the_loop_of_before_went_on():
    assert caught([LastLine(3, None, True, "problem 1/9 PASS"), LastLine(60, None, True, "problem 2/9 PASS")])


@pytest.mark.parametrize(
    "after",
    [
        pytest.param([], id="nothing followed"),
        pytest.param(CALM[:1], id="one line alone"),
        pytest.param([*CALM, LastLine(62, "error", True, "rank 0 failed")], id="a word of failure"),
        pytest.param([LastLine(60, "info", True, "Shutting down"), CALM[0]], id="a word of leaving"),
        pytest.param([LastLine(60, None, False, "job done"), LastLine(61, None, False, "bye")], id="a shell's words"),
    ],
)
def test_what_follows_may_prove_nothing(after):
    assert not caught([*BEFORE, *after])


def test_of_several_ranks_another_may_have_written_on():
    assert not caught([*BEFORE, *CALM], ranks=2)


def test_beside_another_failure_nothing_is_caught():
    assert not caught([*BEFORE, *CALM], raised(), finding("killed", "ProcessKilled", line=70))
