"""What a log only passes on is not believed; what a kernel's own log or the job's own words say is."""

from collections import deque

import pytest

from diagnose.lines.kernel import is_kernel_line, uptime_of
from diagnose.lines.timeline import AttemptProgress, Course, Mark, Timeline
from diagnose.models import Edge, ProgressEvent, Telling
from diagnose.rules.edges import Edges
from diagnose.rules.hearsay import hearsay
from tests.made import finding, line, rule, rules

DEFAULTS = Edges(rules())
CITED = Telling(printed=True)
KERNEL_LINE = Telling(printed=True, kernel=True, stamped=True)
DAY = 86_400.0
NOON = 1_780_000_000.0


def doubts(*findings, proven=False, edges=DEFAULTS, **progress):
    began = {source: marks[0].number for source, marks in progress.get("recent", {}).items() if marks}
    course = {source: Course() for source in progress.get("recent", {})}
    for source, marks in progress.get("recent", {}).items():
        for mark in marks:
            course[source].note(mark.number, mark.step)
    aside, agreed = hearsay(findings, AttemptProgress(began=began, course=course, **progress), edges, proven=proven)
    assert not aside.keys() & agreed.keys()
    return aside


def stepped(*places):
    """Progress of `job.log`: (line, step) each."""
    return {"job.log": deque((Mark("job.log", "job.log", number, None, step) for number, step in places), maxlen=8)}


def cited(error_type="ECCError", told=CITED, **how):
    return finding("cited", error_type, **({"line": 50, "source": "job.log", "told": told} | how))


def raised(at=90, source="job.log", **how):
    return finding("raised", "KeyError", line=at, source=source, traceback=True, **how)


# What the work outlived.


def test_a_device_error_that_five_steps_follow_is_cited():
    assert doubts(cited(), recent=stepped((49, 10), (60, 15))).keys() == {"cited"}


@pytest.mark.parametrize(
    "places", [((49, 10), (60, 14)), ((49, 10), (52, 20)), ((40, 9), (49, 10)), ((49, None), (60, None)), ()]
)
def test_a_step_or_two_of_others_or_none_prove_nothing(places):
    assert doubts(cited(), recent=stepped(*places)) == {}


def test_steps_in_another_log_prove_nothing():
    recent = {
        "other.log": deque([Mark("other.log", "other.log", 5, None, 0), Mark("other.log", "other.log", 95, None, 90)])
    }
    assert doubts(cited(), recent=recent) == {}


@pytest.mark.parametrize(
    ("told", "sources", "type_"),
    [
        pytest.param(Telling(), {"job"}, "ECCError", id="a traceback"),
        pytest.param(Telling(), {"kernel"}, "ECCError", id="a kernel's own log"),
        pytest.param(CITED, {"job"}, "GPUThermalThrottle", id="what hurts with progress"),
    ],
)
def test_what_is_no_citation_may_be_followed_by_steps(told, sources, type_):
    assert doubts(cited(type_, told, sources=sources), recent=stepped((49, 10), (80, 40))) == {}


def test_a_piece_of_a_kernel_log_before_the_output_is_not_outlived_by_it():
    pasted = Telling(printed=True, kernel=True, stamped=True, pasted=True)
    failed = finding("failed", "CUDAError", source="job.log", line=99)
    after = stepped((60, 0), (80, 40))
    assert doubts(cited(told=pasted), failed, recent=after) == {}
    assert doubts(cited(told=pasted), failed, recent=stepped((49, 0), (80, 40))).keys() == {"cited"}


def test_the_same_said_at_the_end_keeps_it():
    end = finding("end", "ECCError", source="job.log", line=99, traceback=True)
    assert doubts(cited(), end, recent=stepped((49, 10), (80, 40))) == {}


# What an exception of the job's own followed.


def test_a_kernel_line_that_an_exception_follows_is_cited():
    assert doubts(cited(told=KERNEL_LINE), raised()).keys() == {"cited"}


@pytest.mark.parametrize("how", [{"at": 40}, {"source": "other.log"}])
def test_an_exception_before_it_or_elsewhere_does_not_follow(how):
    assert doubts(cited(told=KERNEL_LINE), raised(**how), proven=True) == {}


def test_an_exception_that_it_explains_does_not_speak_against_it():
    edges = Edges(rules(rule("xid", signatures={"x": "x"}, error_type="ECCError", explains=(Edge("script/KeyError"),))))
    assert doubts(cited(told=KERNEL_LINE, rule="xid"), raised(), edges=edges) == {}


def test_a_notice_of_a_scheduler_is_cited_only_if_an_exception_follows_the_steps():
    notice = finding("cited", "Preempted", family="scheduler", line=50, source="job.log", told=CITED)
    recent = stepped((49, 10), (80, 40))
    assert doubts(notice, recent=recent) == {}
    assert doubts(notice, raised(), recent=recent).keys() == {"cited"}


# Its stamp, its surroundings.


def test_a_stamp_of_another_day_is_another_jobs():
    found = cited(told=KERNEL_LINE, at=NOON - DAY)
    span = {"started": NOON, "ended": NOON + 60}
    assert "24 h away" in doubts(found, proven=True, **span)["cited"]
    assert doubts(cited(told=KERNEL_LINE, at=NOON - 600), proven=True, **span) == {}
    assert doubts(cited(told=KERNEL_LINE, at=5 * DAY), proven=True, **span) == {}, "the year is not known"


def test_a_line_without_a_stamp_needs_the_jobs_word():
    found = cited(told=Telling(printed=True, kernel=True))
    assert doubts(found, proven=True).keys() == {"cited"}
    assert doubts(found, finding("failed", "CUDAError", source="job.log", line=60)) == {}


def test_one_line_alone_does_not_prove_that_the_job_stopped():
    assert doubts(cited(told=KERNEL_LINE)).keys() == {"cited"}
    assert doubts(cited(told=KERNEL_LINE), proven=True) == {}
    assert doubts(cited(told=Telling(printed=True, kernel=True, stamped=True, pasted=True))) == {}


# Kernel logs without comparable times.


def kernels(**told):
    return finding(
        "kernel", "ECCError", source="dmesg", sources={"kernel"}, hosts={"n1"}, told=Telling(dated=False, **told)
    )


def test_a_kernel_log_that_goes_on_for_hours_speaks_of_another_time():
    assert "10 h after it" in doubts(kernels(goes_on=36_000.0))["kernel"]
    assert doubts(kernels(goes_on=60.0)) == {}
    assert doubts(kernels(goes_on=None)) == {}


def test_where_the_job_says_the_same_it_counts_as_dated():
    told = finding("told", "ECCError", source="job.log", hosts={"n1"}, traceback=True)
    aside, agreed = hearsay([kernels(goes_on=36_000.0), told], AttemptProgress(), DEFAULTS, proven=False)
    assert aside == {}
    assert agreed["kernel"].told.dated
    elsewhere = finding("told", "ECCError", source="job.log", hosts={"n2"}, traceback=True)
    assert doubts(kernels(goes_on=36_000.0), elsewhere).keys() == {"kernel"}


def test_the_jobs_own_exception_goes_before_what_nobody_can_date():
    assert doubts(kernels(), raised()).keys() == {"kernel"}
    dated = finding("kernel", "ECCError", source="dmesg", sources={"kernel"})
    assert doubts(dated, raised()) == {}


def test_a_strangers_death_matters_only_where_something_else_fell():
    victim = finding("kernel", "HostOutOfMemory", source="dmesg", sources={"kernel"}, told=Telling(bystander=True))
    assert doubts(victim, finding("killed", "ProcessKilled")).keys() == {"kernel"}
    assert doubts(victim, finding("hang", "NCCLTimeoutError", role="symptom")) == {}


# What it is read from.


@pytest.mark.parametrize(
    "text",
    [
        "[81210.118273] NVRM: Xid",
        "[Tue Mar  3 04:10:15 2026] NVRM: Xid",
        "2026-03-03T04:10:15,118273+00:00 NVRM: Xid",
        "Mar  3 04:10:15 n1 kernel: NVRM: Xid",
        "kern  :warn  : [ 81.118273] NVRM: Xid",
        "n1: Mar  3 04:10:15 n1 kernel: [ 81.118273] NVRM: Xid",
    ],
)
def test_stamps_of_kernel_logs(text):
    assert is_kernel_line(text)


@pytest.mark.parametrize(
    "text", ["NVRM: Xid", "sample 3: NVRM: Xid", "the kernel log", "2026-03-03 04:10:15 step 3", "[rank0]: x"]
)
def test_no_stamps_of_kernel_logs(text):
    assert not is_kernel_line(text)


def test_seconds_since_boot_with_any_number_of_digits():
    assert uptime_of(line(text="[ 1000.5] usb")) == 1000.5
    assert uptime_of(line(text="[1000.5] usb", uptime=3.0)) == 3.0
    assert uptime_of(line(text="usb")) is None


def test_a_stamp_of_a_cited_kernel_line_is_none_of_the_jobs_times():
    timeline = Timeline()
    for number, (text, time) in enumerate(
        [("step 1", NOON), ("Mar  3 04:10:15 n1 kernel: x", NOON - DAY), ("step 2", NOON + 5), ("step 3", NOON + 7200)],
        1,
    ):
        timeline.observe(line(number=number, text=text, time=time), 0)
    (progress,) = timeline.attempts({}).values()
    assert (progress.started, progress.ended) == (NOON, NOON + 7200)


def test_how_far_each_kernel_log_reaches():
    timeline = Timeline()
    timeline.add(ProgressEvent("step", line(text="step 1"), 0, step=1))
    for text in ("[10.5] a", "[900.25] b", "no stamp"):
        timeline.observe(line("n1.dmesg", kind="kernel", text=text), 0)
    (progress,) = timeline.attempts({}).values()
    assert progress.kernel_ends == {"n1.dmesg": (None, 900.25)}
