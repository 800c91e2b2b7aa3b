"""Which of two findings came first: streams, clocks, files; and what the clocks of sources are apart."""

import pytest

from diagnose.lines.timeline import AttemptProgress
from diagnose.rules.precedence import SAME_TIME, Clocks, estimate_clocks
from tests.made import finding

DEATH = 1_770_000_000.0


def fault(at, **how):
    how.setdefault("hosts", {"n1"})
    return finding("fault", how.pop("type", "ECCError"), at=at, source="n1.dmesg", sources={"kernel"}, **how)


def job(**how):
    return finding("died", "CUDAError", at=DEATH, source="job.log", **how)


def both_ways(one, other, clocks=None):
    clocks = clocks or Clocks()
    return clocks.before(one, other), clocks.before(other, one)


# Order of two findings.


def test_order_within_a_stream_is_known_whatever_the_stamps_say():
    one = finding("a", source="job.log", stream="job.log|0", line=10, at=DEATH + 500)
    other = finding("b", source="job.log", stream="job.log|0", line=20, at=DEATH)
    assert both_ways(one, other) == (True, False)


def test_across_streams_of_one_file_the_clock_decides_before_the_line():
    one = finding("a", source="job.log", stream="job.log|0", line=20, at=DEATH)
    other = finding("b", source="job.log", stream="job.log|1", line=10, at=DEATH + 60)
    assert both_ways(one, other) == (True, False)


@pytest.mark.parametrize("times", [(None, None), (DEATH, None), (DEATH, DEATH + SAME_TIME)])
def test_without_a_clear_time_the_one_file_decides(times):
    one = finding("a", source="job.log", stream="job.log|0", line=10, at=times[0])
    other = finding("b", source="job.log", stream="job.log|1", line=20, at=times[1])
    assert both_ways(one, other) == (True, False)
    assert both_ways(finding("a", line=10, at=times[0]), finding("b", line=20, at=times[1])) == (None, None)


@pytest.mark.parametrize(("gap", "wanted"), [(SAME_TIME, None), (SAME_TIME + 0.1, True), (-SAME_TIME - 0.1, False)])
def test_two_files_are_ordered_by_time_alone(gap, wanted):
    assert Clocks().before(finding("a", at=DEATH, line=900), finding("b", at=DEATH + gap, line=1)) is wanted


def test_one_line_is_not_before_itself():
    one = finding("a", source="job.log", line=10, at=DEATH)
    other = finding("b", source="job.log", line=10, at=DEATH)
    assert both_ways(one, other) == (None, None)


def test_stamps_without_a_year_order_nothing_that_has_one():
    undated = finding("a", at=86_400.0 * 90 + 946_684_800)  # in 2000
    assert Clocks().gap(undated, finding("b", at=DEATH)) is None
    assert Clocks().before(undated, finding("b", at=DEATH)) is None
    assert Clocks().gap(undated, finding("b", at=undated.first + 5)) == 5.0


def test_kernel_lines_pasted_into_a_jobs_log_have_their_own_order():
    """A dmesg excerpt stands where someone pasted it; only its stamps say when."""
    pasted = finding("k", "ECCError", source="job.log", line=900, at=DEATH - 60, sources={"kernel"})
    died = finding("d", source="job.log", line=20, at=DEATH)
    assert both_ways(pasted, died) == (True, False)
    timeless = finding("k", "ECCError", source="job.log", line=900, sources={"kernel"})
    assert both_ways(timeless, died) == (None, None)
    second = finding("k2", "CUDAError", source="job.log", line=901, sources={"kernel"})
    assert both_ways(timeless, second) == (True, False)


def test_offsets_are_added_to_the_times_of_their_source():
    clocks = Clocks({"n1.dmesg": -300.0})
    one, other = fault(DEATH + 290), job()
    assert clocks.first(one) == clocks.last(one) == DEATH - 10
    assert clocks.gap(one, other) == 10
    assert both_ways(one, other, clocks) == (True, False)
    assert clocks.first(finding("n")) is clocks.last(finding("n")) is None


# Estimated clocks.


def test_clocks_that_run_together_are_left_alone():
    clocks, notes = estimate_clocks([fault(DEATH - 5), job()], None)
    assert clocks.offsets == {}
    assert notes == ()


@pytest.mark.parametrize("skew", [120.0, 300.0, 890.0])
def test_a_kernel_log_that_is_late_is_set_before_the_failure_it_explains(skew):
    clocks, notes = estimate_clocks([fault(DEATH + skew), job()], None)
    assert clocks.before(fault(DEATH + skew), job()) is not False
    assert 0 <= clocks.gap(fault(DEATH + skew), job()) <= 5
    assert len(notes) == 1
    assert "n1.dmesg" in notes[0]


def test_a_kernel_log_that_is_early_needs_no_change_to_come_first():
    clocks, _ = estimate_clocks([fault(DEATH - 300), job()], None)
    assert clocks.before(fault(DEATH - 300), job()) is True


def test_only_the_late_hosts_clock_is_moved():
    good = finding("near", "ECCError", at=DEATH - 3, source="n2.dmesg", sources={"kernel"}, hosts={"n2"})
    clocks, _ = estimate_clocks([fault(DEATH + 300), good, job()], None)
    assert set(clocks.offsets) == {"n1.dmesg"}


def test_one_fault_near_the_failure_shows_that_the_clock_is_right():
    later = finding("later", "ECCError", at=DEATH + 400, source="n1.dmesg", sources={"kernel"})
    clocks, _ = estimate_clocks([fault(DEATH + 10), later, job()], None)
    assert clocks.offsets == {}


@pytest.mark.parametrize("found", [fault(DEATH + 901), fault(DEATH + 300, type="NetworkError")], ids=["far", "network"])
def test_what_cannot_be_the_same_event_moves_no_clock(found):
    assert estimate_clocks([found, job()], None)[0].offsets == {}


def test_clean_up_in_a_late_kernel_log_stays_behind_the_failure():
    found = fault(DEATH + 300, type="Terminated")
    clocks, _ = estimate_clocks([found, job()], None)
    assert clocks.gap(job(), found) == 2.0


def test_without_a_failure_in_the_job_nothing_is_estimated():
    assert estimate_clocks([fault(DEATH + 300)], None)[0].offsets == {}
    ended = finding("end", "ChildFailed", at=DEATH, source="job.log")
    assert estimate_clocks([fault(DEATH + 300), ended], None)[0].offsets == {}


def test_a_step_that_several_printed_compares_their_clocks():
    progress = AttemptProgress(step_times={"a.log": (90, DEATH), "b.log": (90, DEATH + 1), "c.log": (90, DEATH + 240)})
    clocks, notes = estimate_clocks([], progress)
    assert clocks.offsets == {"c.log": -239.0}
    assert len(notes) == 1


@pytest.mark.parametrize(
    "step_times",
    [
        {"a.log": (90, DEATH), "b.log": (91, DEATH + 240)},  # no step in common
        {"a.log": (90, DEATH), "b.log": (90, DEATH + 8)},  # as far apart as a slow step
        {"a.log": (90, DEATH), "b.log": (90, DEATH), "c.log": (90, DEATH + 3000)},  # another run
        {"a.log": (90, DEATH)},
    ],
)
def test_steps_that_prove_no_offset(step_times):
    assert estimate_clocks([], AttemptProgress(step_times=step_times))[0].offsets == {}


def test_the_steps_clock_is_known_before_the_kernels_is_judged():
    """A job log that is late itself must not make the kernel's fault look late."""
    progress = AttemptProgress(
        step_times={"a.log": (9, DEATH - 60), "b.log": (9, DEATH - 60), "job.log": (9, DEATH - 360)}
    )
    clocks, _ = estimate_clocks([fault(DEATH + 290), job()], progress)
    assert set(clocks.offsets) == {"job.log"}
    assert clocks.before(fault(DEATH + 290), job()) is True


def test_what_only_an_experiment_saw_moves_no_clock():
    died = finding("shadow", "CUDAError", at=DEATH, source="job.log", shadow=True)
    assert estimate_clocks([fault(DEATH + 300), died], None)[0].offsets == {}


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ({"at": 5.0}, {"at": 9.0}, True),
        ({"at": 5.0}, {}, False),
        ({"pids": frozenset({7})}, {"pids": frozenset({7, 8})}, True),
        ({}, {"sources": {"kernel"}}, True),
        ({}, {"sources": {"scheduler"}}, True),
    ],
    ids=["times", "no time", "one process", "one kernel", "a record of the job"],
)
def test_a_kernel_and_a_log_agree_where_times_or_a_process_tie_them(one, other, together):
    kernel = finding("k", "ECCError", **({"sources": {"kernel"}} | one))
    log = finding("j", "CUDAError", **other)
    assert Clocks().together(kernel, log, AttemptProgress()) is together
    assert Clocks().together(kernel, log, AttemptProgress(started=1.0))
