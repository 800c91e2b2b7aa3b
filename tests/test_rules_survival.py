"""What the work outlived is set aside, with the reason; what it did not outlive stays."""

from collections import deque

import pytest

from diagnose.lines.timeline import AttemptProgress, Mark
from diagnose.models import Over
from diagnose.rules.edges import Edges
from diagnose.rules.precedence import Clocks
from diagnose.rules.survival import completion, failed_exits, set_aside
from tests.made import finding, line, mark, rule, rules

NO_RULES = Edges(rules())


def judged(*findings, clocks=None, edges=NO_RULES, **progress):
    kept, excluded = set_aside(findings, AttemptProgress(**progress), edges, clocks or Clocks())
    assert len(kept) + len(excluded) == len(findings)
    return [one.id for one in kept], {one.finding.id: one.why for one in excluded}


def hiccup(**how):
    how = {"at": 100.0, "line": 50, "source": "job.log", "survivable": True} | how
    return finding("hiccup", how.pop("type", "NetworkError"), **how)


# The end of the job.


def test_a_job_that_completed_survived_all_before_it():
    kept, why = judged(hiccup(survivable=False), completed=[line(number=90, time=500.0)])
    assert kept == []
    assert why == {"hiccup": "the job completed after it"}


def test_what_follows_the_completion_is_not_survived():
    assert judged(hiccup(line=95), completed=[line(number=90, time=50.0)])[0] == ["hiccup"]


def test_an_exit_code_of_zero_is_a_completion_and_another_is_none():
    assert judged(hiccup(), exits=[(0, line(number=90, time=500.0))])[0] == []
    assert judged(hiccup(), exits=[(1, line(number=90, time=500.0))])[0] == ["hiccup"]


def test_the_last_completion_counts_and_failed_exits_are_kept_apart():
    early, late = line(number=5, time=10.0), line(number=90, time=500.0)
    progress = AttemptProgress(completed=[late, early], exits=[(0, early), (137, late), (1, early)])
    assert completion(progress) is late
    assert failed_exits(progress) == [(137, late), (1, early)]
    assert completion(AttemptProgress()) is None


def test_a_scheduler_that_says_completed_proves_it_unless_a_task_was_seen_to_fail():
    recorded = line("sacct.txt", 2)
    assert judged(hiccup(survivable=False), recorded=recorded)[0] == []
    failed = finding("task", "ChildFailed", at=101.0, line=60, source="job.log", role="symptom")
    assert "hiccup" in judged(hiccup(survivable=False), failed, recorded=recorded)[0]
    assert judged(hiccup(), recorded=recorded, exits=[(1, line(number=60, time=101.0))])[0] == ["hiccup"]


def test_what_is_dated_after_the_recorded_end_is_not_proven_harmless():
    recorded = line("sacct.txt", 2, time=1_700_000_000.0)
    assert judged(hiccup(at=1_700_000_500.0), recorded=recorded)[0] == ["hiccup"]


# Progress.


def test_progress_of_the_same_ranks():
    ranks = {"ranks": {3}}
    assert judged(hiccup(**ranks), by_rank={3: mark("r3.log", 9, time=160.0)})[1] == {
        "hiccup": "the same ranks made progress after it"
    }
    assert judged(hiccup(**ranks), by_rank={4: mark("r4.log", 9, time=160.0)})[0] == ["hiccup"]


def test_all_ranks_of_a_finding_must_go_on():
    found = hiccup(ranks={3, 4})
    went_on = {3: mark("r3.log", 9, time=160.0)}
    assert judged(found, by_rank=went_on)[0] == ["hiccup"]
    assert judged(found, by_rank={**went_on, 4: mark("r4.log", 9, time=160.0)})[0] == []


def test_progress_of_the_same_process():
    assert judged(hiccup(), last={"job.log": mark(number=60)})[1] == {
        "hiccup": "the same process made progress after it"
    }
    assert judged(hiccup(), last={"job.log": mark(number=40)})[0] == ["hiccup"]


def test_within_a_stream_the_line_counts_and_not_the_stamp():
    assert judged(hiccup(), last={"job.log": mark(number=40, time=900.0)})[0] == ["hiccup"]
    assert judged(hiccup(), last={"job.log": mark(number=60, time=1.0)})[0] == []


@pytest.mark.parametrize(("steps", "kept"), [([150.0], True), ([150.0, 160.0], False), ([90.0, 160.0], True)])
def test_one_step_of_the_job_may_be_an_echo_two_are_progress(steps, kept):
    """The step under way may still be printed by others; a second one shows that work goes on."""
    recent = deque([mark("rank0.log", number, time=time) for number, time in enumerate(steps)], maxlen=3)
    assert judged(hiccup(), recent={"rank0.log": recent})[0] == (["hiccup"] if kept else [])


def test_progress_is_compared_on_the_common_clock():
    found = hiccup(source="n1.dmesg", sources={"kernel"}, at=400.0)
    recent = {"rank0.log": deque([mark("rank0.log", 1, time=150.0), mark("rank0.log", 2, time=160.0)])}
    assert judged(found, recent=recent)[0] == ["hiccup"]
    assert judged(found, recent=recent, clocks=Clocks({"n1.dmesg": -300.0}))[0] == []


def test_the_last_sighting_counts():
    again = hiccup(first=100.0, last=900.0, streams={"job.log": (50, 80)}, spans={"job.log": (50, 80)})
    assert judged(again, last={"job.log": mark(number=60, time=500.0)})[0] == ["hiccup"]


@pytest.mark.parametrize(
    "how", [{"survivable": False}, {"type": "GPUThermalThrottle"}], ids=["fatal", "goes on hurting"]
)
def test_progress_does_not_acquit_what_is_fatal_or_goes_on_hurting(how):
    marks = deque([mark(number=60), mark(number=70)])
    assert judged(hiccup(**how), last={"job.log": mark(number=70)}, recent={"job.log": marks})[0] == ["hiccup"]


# Dying of something else.


def fatal(**how):
    return finding("fatal", "KeyError", **({"at": 300.0, "line": 90, "source": "job.log"} | how))


def test_a_process_that_dies_of_something_else_had_survived():
    assert judged(hiccup(), fatal()) == (["fatal"], {"hiccup": "the process went on until KeyError"})


@pytest.mark.parametrize(
    ("found", "death"),
    [
        (hiccup(), fatal(source="other.log")),
        (hiccup(), fatal(line=40)),
        (hiccup(traceback=True), fatal()),
        (hiccup(), fatal(role="symptom")),
        (hiccup(), fatal(survivable=True)),
    ],
    ids=["another process", "earlier", "its own last words", "a symptom", "survivable itself"],
)
def test_what_another_end_does_not_acquit(found, death):
    assert judged(found, death)[0] == ["hiccup", "fatal"]


def test_a_death_that_the_finding_explains_does_not_acquit_it():
    edges = Edges(rules(rule("r", signatures={"x": "x"}, explains=("script/KeyError",))))
    assert judged(hiccup(rule="r"), fatal(), edges=edges)[0] == ["hiccup", "fatal"]


def test_last_words_of_a_survivable_kind_are_an_end_too():
    assert judged(hiccup(), fatal(survivable=True, traceback=True))[0] == ["fatal"]


# What was over again: a link that is up, a server that answers.

PORT = Edges(rules(rule("port", signatures={"x": "x"}, error_type="NetworkError", explains=("comm/*",))))


def outage(start=100.0, end=140.0, **how):
    how = {"rule": "port", "source": "n1.dmesg", "sources": {"kernel"}, "hosts": {"n1"}, "survivable": True} | how
    over = Over(how["source"], 9, end)
    return finding(how.pop("id", "outage"), "NetworkError", at=start, line=how.pop("line", 5), over=over, **how)


def waiting(at, **how):
    how = {"role": "symptom", "source": "job.log", "line": 70} | how
    return finding("waited", "NCCLTimeoutError", at=at, **how)


@pytest.mark.parametrize(
    ("at", "kept"),
    [(90.0, False), (99.0, True), (120.0, True), (140.0, True), (155.0, True), (200.0, False)],
    ids=["before it", "whole seconds", "in it", "as it ended", "seconds after", "long after"],
)
def test_an_outage_that_was_over_again_counts_where_the_job_failed_in_it(at, kept):
    ids, why = judged(outage(), waiting(at), edges=PORT)
    assert ("outage" in ids) is kept
    assert why == ({} if kept else {"outage": "it was over again after 40 s, and nothing failed of it meanwhile"})


@pytest.mark.parametrize(("began", "kept"), [(120.0, True), (60.0, False), (300.0, False)])
def test_what_began_to_wait_in_an_outage_is_its_doing(began, kept):
    late = waiting(began + 600.0, captures={"timeout_ms": 600_000})
    assert ("outage" in judged(outage(), late, edges=PORT)[0]) is kept


def test_steps_between_the_end_of_an_outage_and_the_failure_acquit_it():
    recent = {"rank0.log": deque([mark("rank0.log", 1, time=60.0), mark("rank0.log", 2, time=150.0)])}
    assert "outage" in judged(outage(), waiting(155.0), edges=PORT)[0]
    assert judged(outage(), waiting(155.0), edges=PORT, recent=recent)[0] == ["waited"]


def test_a_failure_of_another_kind_in_an_outage_is_not_its_doing():
    assert judged(outage(), finding("own", "KeyError", at=120.0, source="job.log"), edges=PORT)[0] == ["own"]
    ended = finding("ended", "Terminated", at=120.0, source="job.log")
    assert judged(outage(), ended, edges=PORT)[0] == ["ended"]


def test_what_the_kernel_says_besides_is_no_failure_of_the_job():
    assert judged(outage(), waiting(120.0, sources={"kernel"}), edges=PORT)[0] == ["waited"]


def test_without_times_an_outage_that_was_over_again_is_set_aside_and_says_why():
    kept, why = judged(outage(), waiting(None), edges=PORT)
    assert kept == ["waited"]
    assert why["outage"] == "it was over again after 40 s; no time tells whether the job had failed by then"


@pytest.mark.parametrize(("number", "kept"), [(3, False), (7, True), (12, False)])
def test_within_one_log_the_order_of_lines_tells(number, kept):
    port = outage(None, None, source="job.log", sources={"job"})
    assert ("outage" in judged(port, waiting(None, line=number), edges=PORT)[0]) is kept


def test_the_end_of_an_outage_is_read_on_the_common_clock():
    clocks = Clocks({"n1.dmesg": -300.0})
    assert "outage" in judged(outage(400.0, 440.0), waiting(120.0), edges=PORT, clocks=clocks)[0]


def test_an_outage_outlives_its_end_in_the_account_of_what_was_set_aside():
    flaps = [outage(100.0 * n, 100.0 * n + 9, id=f"flap{n}") for n in range(1, 31)]
    _, excluded = set_aside(flaps, AttemptProgress(), PORT, Clocks())
    assert len(excluded) == 8
    assert sum(one.finding.count for one in excluded) == 30
    assert excluded[-1].finding.last == 3000.0


# A fault of a device that the job outlived for long.


def fault(**how):
    how = {"at": 1e9, "source": "n1.dmesg", "sources": {"kernel"}, "hosts": {"n1"}, "gpus": {"0000:1b:00"}} | how
    return finding("fault", "ECCError", family="hardware", **how)


def own_error(**how):
    how = {"at": 1e9 + 1001.0, "line": 900, "source": "job.log", "traceback": True} | how
    return finding("own", "KeyError", family="script", **how)


def stepping(until=1000.0, every=1.0, source="job.log"):
    marks = [Mark(source, source, 800 + n, 1e9 + until - every * (7 - n), n) for n in range(8)]
    return {source: deque(marks, maxlen=8)}


def test_a_fault_after_which_all_went_on_for_long_is_no_cause_of_an_exception():
    kept, why = judged(fault(), own_error(), recent=stepping())
    assert kept == ["own"]
    assert why == {"fault": "the job made progress for 17 minutes after it, until KeyError"}


def test_an_exception_without_a_time_is_as_late_as_the_step_before_it():
    assert judged(fault(), own_error(at=None), recent=stepping())[0] == ["own"]
    assert "fault" in judged(fault(), own_error(at=None, line=700), recent=stepping())[0]


@pytest.mark.parametrize(
    "recent",
    [
        pytest.param({}, id="no steps"),
        pytest.param(stepping(60.0), id="for a short while"),
        pytest.param(stepping(130.0, every=100.0), id="two steps"),
        pytest.param({**stepping(), **stepping(-1.0, source="other.log")}, id="not all of them"),
    ],
)
def test_a_fault_after_which_not_all_went_on_for_long_stays(recent):
    assert "fault" in judged(fault(), own_error(), recent=recent)[0]


def test_a_fault_stays_where_nothing_else_ended_the_job():
    assert judged(fault(), recent=stepping())[0] == ["fault"]


@pytest.mark.parametrize(
    "sign",
    [
        pytest.param(
            finding("sign", "CUDAError", family="cuda", at=1e9 + 1000.5, hosts={"n1"}, source="r2.log"), id="its error"
        ),
        pytest.param(
            finding("sign", "NVLinkError", family="hardware", at=1e9 + 900, hosts={"n1"}, sources={"kernel"}),
            id="another fault of its host",
        ),
        pytest.param(
            finding("sign", "NCCLTimeoutError", family="comm", role="symptom", at=1e9 + 1000.5, source="r2.log"),
            id="a time-out before the exception",
        ),
    ],
)
def test_a_later_sign_of_a_fault_keeps_it(sign):
    assert "fault" in judged(fault(), own_error(), sign, recent=stepping())[0]


def test_what_peers_say_after_the_exception_is_no_sign_of_the_fault():
    echo = finding("echo", "NCCLTimeoutError", family="comm", role="symptom", at=1e9 + 1600.0, source="r2.log")
    assert judged(fault(), own_error(), echo, recent=stepping())[0] == ["own", "echo"]
