"""Cases through several processes: in order, and whatever becomes of one of them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from diagnose.dataclass import dataclass
from diagnose.errors import DiagnoseError, UsageError
from diagnose.evaluation.baselines import BASELINES, FIRST_HIT, LAST_HIT, LAUNCHER, baseline_answers
from diagnose.evaluation.cases import find_cases
from diagnose.evaluation.judge import Plan
from diagnose.evaluation.model import OURS, Case
from diagnose.evaluation.pool import each
from diagnose.evaluation.run import evaluate, halves
from diagnose.models import RuleSet
from diagnose.pipeline import Request
from tests.incidents import FIXTURES, inside


@dataclass(frozen=True, slots=True)
class Work:
    """What a process of these tests does with a word."""

    how: str = ""

    def __call__(self) -> Callable[[str], str]:
        if self.how == "unusable":
            raise UsageError("say something else")
        if self.how == "broken":
            raise ZeroDivisionError("no")
        if self.how == "dead":
            os._exit(7)
        return _do


def _do(word: str) -> str:
    print("a library that prints")
    if word == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "hang":
        time.sleep(60)
    if word == "raise":
        raise ValueError("a broken\ncase")
    if word == "refuse":
        raise DiagnoseError("nothing to read")
    if word == "slow":
        time.sleep(0.3)
    return word.upper()


def test_every_item_gets_its_result_or_a_reason(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["a", "die", "b", "raise", "refuse", "c"]
    told = {place: (made, why) for place, made, why in each(Work(), words, 2, 30.0)}
    assert sorted(told) == list(range(len(words)))
    assert [told[place][0] for place in (0, 2, 5)] == ["A", "B", "C"]
    assert told[1] == (None, "the process that read it ended with signal 9")
    assert told[3][0] is None
    assert told[3][1].startswith("internal error: ValueError: a broken\ncase at test_evaluation_run.py:")
    assert told[4] == (None, "nothing to read")
    assert capfd.readouterr().out == ""
    assert multiprocessing.active_children() == []


def test_what_takes_too_long_is_ended() -> None:
    told = list(each(Work(), ["hang", "a"], 1, 1.0))
    assert told == [(0, None, "it took longer than 1 s"), (1, "A", "")]


@pytest.mark.parametrize(
    ("how", "told"), [("unusable", "say something else"), ("broken", "ZeroDivisionError: no"), ("dead", "exit code 7")]
)
def test_where_no_process_can_work_it_is_said(how: str, told: str) -> None:
    with pytest.raises(DiagnoseError, match=told):
        list(each(Work(how), ["a"], 2, 5.0))
    assert multiprocessing.active_children() == []


def test_who_stops_listening_leaves_no_process_behind() -> None:
    results = each(Work(), ["a", "hang", "hang"], 2, 60.0)
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert multiprocessing.active_children() == []


def test_an_evaluation_of_some_fixtures() -> None:
    names = ("xid79-one-host-of-four", "address-in-use")
    found = find_cases([os.path.join(FIXTURES, "incidents", name) for name in names])
    healthy = find_cases([os.path.join(FIXTURES, "healthy", "mmengine-broken-image-skipped")])
    gone = Case("gone", FIXTURES, ("gone.log",), "failed", ("KeyError",))
    told: list[tuple[int, int]] = []
    cases = (*found.cases, gone, *healthy.cases)
    evaluation = evaluate(cases, Plan(), jobs=2, on_case=lambda done, total: told.append((done, total)))
    assert [result.case for result in evaluation.results] == list(cases)
    assert told == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]
    assert "gone.log" in evaluation.results[2].problem
    ours = evaluation.figures[OURS]
    assert (ours.cases, ours.rates["type"].right, ours.rates["type"].of, ours.counts["wrong"]) == (4, 2, 3, 1)
    assert tuple(evaluation.figures) == (OURS, *BASELINES)
    assert all(result.seconds > 0 for result in evaluation.results if not result.problem)


def test_without_rules_nothing_is_named() -> None:
    found = find_cases([os.path.join(FIXTURES, "incidents", "xid79-one-host-of-four")])
    for withheld, named in (({"GPUFallenOffBus"}, "NCCLTimeoutError"), (None, None)):
        from diagnose.rules.bundle import load_bundled

        plan = Plan(withheld=frozenset(withheld or load_bundled().taxonomy), baselines=False)
        answer = evaluate(found.cases, plan).results[0].said[OURS].answer
        assert answer.error_type == named or (withheld and answer.error_type not in withheld)
        assert list(evaluate(found.cases, plan).results[0].said) == [OURS]


def test_halves_are_drawn_by_the_seed_and_what_did_not_fail_is_tested() -> None:
    cases = [Case(f"c{number}", "/", ("x",), "failed", ("E",)) for number in range(11)]
    cases.append(Case("h", "/", ("x",), "no_failure"))
    one, other = halves(cases, "1")
    assert (len(one), len(other)) == (5, 7)
    assert {*one, *other} == set(cases)
    assert halves(cases, "1") == (one, other)
    assert halves(list(reversed(cases)), "1")[0] == tuple(reversed(one))
    assert halves(cases, "2") != (one, other)


LOG = """\
step 1
warning: deprecated, may raise an error
[rank1]: Traceback (most recent call last):
[rank1]:   File "/job/train.py", line 3, in <module>
[rank1]:     f()
[rank1]: KeyError: 'role'
[rank0]: Traceback (most recent call last):
[rank0]:   File "/job/train.py", line 9, in <module>
[rank0]:     dist.barrier()
[rank0]: ConnectionResetError: [Errno 104] Connection reset by peer
"""
SUMMARY = """\
E0101 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 0 (pid: 11) of binary: python
Traceback (most recent call last):
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2024-01-01_00:00:00
  host      : n1
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 12)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


def test_the_baselines_say_what_they_find_and_where(tmp_path: Path, rule_set: RuleSet) -> None:
    (tmp_path / "job.log").write_text(LOG + SUMMARY)
    with inside(str(tmp_path)):
        said = baseline_answers(Request(["job.log"]), rule_set)
    first, last, launcher = (said[name] for name in (FIRST_HIT, LAST_HIT, LAUNCHER))
    # The first hit is advice, and whoever reads on sees the traceback; the last one is in the launcher's own block.
    assert (first.error_type, first.cited[0].line) == ("KeyError", 2)
    assert last.error_type is None
    assert last.cited[0].line == len((LOG + SUMMARY).splitlines()) - 1
    assert (launcher.error_type, launcher.attribution, launcher.cited[0].line) == ("KeyError", "user", 6)
    assert [(one.kind, one.names) for one in launcher.culprits] == [("rank", ("1",)), ("host", ("n1",))]
    assert all(answer.status == "failed" for answer in said.values())
    assert all(answer.job is None for answer in said.values())


def test_baselines_of_a_quiet_log(tmp_path: Path, rule_set: RuleSet) -> None:
    (tmp_path / "job.log").write_text("step 1\nstep 2\ndone\n")
    with inside(str(tmp_path)):
        said = baseline_answers(Request(["job.log"]), rule_set)
    assert {name: answer.status for name, answer in said.items()} == {
        FIRST_HIT: "no_failure",
        LAST_HIT: "no_failure",
        LAUNCHER: "inconclusive",
    }


@pytest.mark.parametrize("blob", [b"\x00" * 4096, b"error \xff\xfe\n" * 50, b"", b"error\r" * 500, b"Failures:\n" * 99])
def test_baselines_bear_any_bytes(blob: bytes, tmp_path: Path, rule_set: RuleSet) -> None:
    (tmp_path / "job.log").write_bytes(b"x\n" + blob)
    with inside(str(tmp_path)):
        assert set(baseline_answers(Request(["job.log"]), rule_set)) == set(BASELINES)
