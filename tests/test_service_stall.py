"""Stall notices: none on jobs that were well, one for each standstill, by the job's own measure."""

from __future__ import annotations

import itertools
import os
from statistics import median

import pytest

from diagnose.errors import UsageError
from diagnose.lines import LineReader
from diagnose.models import KeptLine, LogSource, RuleSet
from diagnose.service.settings import config_of
from diagnose.service.stall import Sign, SignReader, StallNotice, StallSettings, StallWatch, phase_of
from diagnose.settings import Limits
from diagnose.sources import collect
from tests.incidents import incidents, inside, request_of

SETTINGS = StallSettings()


@pytest.fixture(scope="module")
def reader(rule_set: RuleSet) -> SignReader:
    return SignReader(rule_set)


def replayed(timed: list[tuple[float, bytes, str]], reader: SignReader) -> list[StallNotice]:
    """The notices that somebody who was sent each line as it was printed would have had."""
    if not timed:
        return []
    now = timed[0][0]
    watch = StallWatch(now)
    notices: list[StallNotice | None] = []
    for at, raw, name in timed:
        now = max(now, at)
        notices.append(watch.check(now))
        notices.append(watch.observe(reader.read(name, raw + b"\n"), now))
    return [notice for notice in notices if notice is not None]


def timed_lines(folder: str, arguments: list[str]) -> list[tuple[float, bytes, str]]:
    """All lines of a job's own logs at the times that stand in them.

    Lines without a time were printed evenly between those that have one; what is weeks from all others is no time.
    """
    timed: list[tuple[float, bytes, str]] = []
    request = request_of(arguments)
    with inside(folder):
        for item in collect(request.paths, limits=Limits()).inputs:
            if item.source.kind != "job":
                continue
            data = b"".join(item.blocks())
            lines = LineReader(LogSource(item.source.name), Limits())
            lines.learn(data)
            raws = data.split(b"\n")
            times = [max((line.time or 0.0 for line in lines.read(KeptLine(1, raw))), default=0.0) for raw in raws]
            known = [at for at in times if at]
            middle = median(known) if known else 0.0
            places = [place for place, at in enumerate(times) if at and abs(at - middle) < 14 * 86_400]
            for start, end in itertools.pairwise(places):
                first, last = times[start], max(times[end], times[start])
                for place in range(start, end):
                    at = first + (last - first) * (place - start) / (end - start)
                    timed.append((at, raws[place], item.source.name))
            timed += [(times[places[-1]], raw, item.source.name) for raw in raws[places[-1] :]] if places else []
    return sorted(timed, key=lambda one: one[0])


def test_no_notice_on_any_job_that_was_well(reader: SignReader) -> None:
    timed = 0
    for incident in incidents("healthy"):
        arguments = incident.expected["inputs"]
        if not request_of(arguments).paths:
            continue
        lines = timed_lines(incident.folder, arguments)
        timed += bool(lines)
        assert replayed(lines, reader) == [], incident.name
    assert timed > 20


def watched(steps: int, each: float = 2.0, start: float = 0.0) -> tuple[StallWatch, float]:
    watch, now = StallWatch(start), start
    for step in range(steps):
        now += each
        assert watch.observe([Sign(step=step)], now) is None
        assert watch.check(now) is None
    return watch, now


def silence(watch: StallWatch, now: float, seconds: float) -> list[tuple[float, StallNotice]]:
    told = ((float(second), watch.check(now + second)) for second in range(0, int(seconds), 5))
    return [(second, notice) for second, notice in told if notice is not None]


def test_a_job_that_stops_stepping_is_told_once_and_when_it_goes_on() -> None:
    watch, now = watched(50)
    ((after, notice),) = silence(watch, now, 4000)
    assert after == 1205  # the floor: 20 steps of 2 s are less
    assert notice.phase == "training"
    assert notice.step == 49
    assert "No progress for 20 min after step 49" in notice.sentence
    assert "a step usually takes 2 s" in notice.sentence
    over = watch.observe([Sign(step=50)], now + 4000)
    assert over is not None
    assert over.over
    assert "goes on after step 50, after 67 min" in over.sentence
    # It has come back from that: the next one must be twice as long to be news.
    assert [after for after, _ in silence(watch, now + 4000, 9000)] == [8005]


def test_the_measure_is_the_jobs_own_step() -> None:
    watch, now = watched(12, each=100.0)
    assert [after for after, _ in silence(watch, now, 4000)] == [2005]


def test_what_is_printed_is_no_progress_while_it_trains() -> None:
    watch, now = watched(50)
    notices = []
    for second in range(0, 2400, 10):
        watch.observe([], now + second)
        notices.append(watch.check(now + second))
    assert sum(notice is not None for notice in notices) == 1


@pytest.mark.parametrize("phase", ["evaluation", "checkpoint", "compilation"])
def test_other_work_takes_its_time(phase: str) -> None:
    watch, now = watched(50)
    watch.observe([Sign(phase=phase)], now)  # type: ignore[arg-type]
    assert [after for after, _ in silence(watch, now, 9000)] == [3605]
    watch, now = watched(50)
    for _ in range(40):  # it says something every minute
        now += 60
        watch.observe([Sign(phase=phase)], now)  # type: ignore[arg-type]
        assert watch.check(now) is None
    assert watch.observe([Sign(step=50)], now + 60) is None


def test_start_up_is_not_hurried() -> None:
    watch = StallWatch(0.0)
    for minute in range(200):  # it downloads, and says so
        watch.observe([], minute * 60.0)
        assert watch.check(minute * 60.0) is None
    watch = StallWatch(0.0)
    ((after, notice),) = silence(watch, 0.0, 9000)
    assert after == 7205
    assert "no step yet" in notice.sentence


def test_a_new_attempt_starts_up_again() -> None:
    watch, now = watched(500)
    assert watch.observe([Sign(step=100)], now + 300) is None
    assert [after for after, _ in silence(watch, now + 300, 9000)] == [7205]
    watch, now = watched(500)
    watch.observe([Sign(step=498)], now)  # a rank that lags behind
    assert [after for after, _ in silence(watch, now, 9000)] == [1205]


def test_progress_without_a_number_is_progress() -> None:
    watch, now = StallWatch(0.0), 0.0
    for _ in range(2000):
        now += 60
        watch.observe([Sign(moved=True)], now)
        assert watch.check(now) is None


def test_a_job_that_is_done_stands_still() -> None:
    watch, now = watched(50)
    watch.observe([Sign(done=True)], now)
    assert silence(watch, now, 90_000) == []


def test_a_sender_that_cannot_be_heard_is_no_standstill() -> None:
    watch, now = watched(50)
    watch.heartbeat(now + 30)
    assert silence(watch, now + 30, 20_000) == []  # the network is away
    back = now + 20_000
    watch.heartbeat(back)
    for second in range(0, 500, 30):
        watch.heartbeat(back + second)
        assert watch.check(back + second) is None
    notices = []
    for second in range(500, 2400, 30):
        watch.heartbeat(back + second)
        notices.append(watch.check(back + second))
    assert sum(notice is not None for notice in notices) == 1


def test_signs_of_lines(reader: SignReader) -> None:
    def read(*lines: str) -> list[Sign]:
        return reader.read(os.urandom(4).hex(), "".join(line + "\n" for line in lines).encode())

    assert read("[rank3]: step 17/900 loss 2.31 lr 1e-4") == [Sign(step=17)]
    assert read("2026-03-01 10:00:01 iteration 400/ 99999 | loss 2.5 | elapsed time per iteration (ms): 9") == [
        Sign(step=400)
    ]
    assert read("nothing of it") == []
    assert read("running validation on 40 batches") == [Sign(phase="evaluation")]
    assert read("torch._inductor: autotuning 9 kernels") == [Sign(phase="compilation")]
    assert Sign(done=True) in read("training completed successfully", "Training finished.", "exit code 0")
    assert reader.read("x", b"step 5 loss 2.0 and no end of its line") == []
    assert reader.read("x", b"\xff\0\r\n" * 1000 + b"{" * 100_000 + b"\n") == []
    many = b"".join(b"step %d loss 2.0\n" % step for step in range(1000))
    assert [sign.step for sign in reader.read("y", many)] == list(range(936, 1000))


def test_phases() -> None:
    assert phase_of("saving model") == "checkpoint"
    assert phase_of("CUDA graph capture") == "compilation"
    assert phase_of("hello") is None


@pytest.mark.parametrize("settings", [StallSettings(factor=1), StallSettings(training=9e9), StallSettings(steps=1)])
def test_settings_that_cannot_be_meant(settings: StallSettings) -> None:
    with pytest.raises(UsageError, match="stall notices need"):
        settings.checked()
    assert SETTINGS.checked() == SETTINGS


BASE = {"DIAGNOSE_DATABASE": "/tmp/x.sqlite3"}


def test_the_settings_are_told_by_the_environment() -> None:
    assert config_of(BASE).stall == StallSettings()
    told = {"FACTOR": "30", "STEPS": "9", "SECONDS": "600", "PAUSE_SECONDS": "900", "START_SECONDS": "1800"}
    config = config_of({**BASE, **{f"DIAGNOSE_STALL_{name}": value for name, value in told.items()}})
    assert config.stall == StallSettings(30.0, 600.0, 900.0, 1800.0, 9)
    longer = config_of({**BASE, "DIAGNOSE_STALL_SECONDS": "10000"}).stall  # what may be longer is as long at least
    assert (longer.training, longer.pause, longer.start) == (10_000.0, 10_000.0, 10_000.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [("STEPS", "1"), ("STEPS", "33"), ("FACTOR", "1"), ("SECONDS", "0"), ("PAUSE_SECONDS", "x"), ("PAUSE_SECONDS", "60"),
     ("START_SECONDS", "60"), ("START_SECONDS", "99999999")],
)  # fmt: skip
def test_settings_that_cannot_be_meant_are_told(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"DIAGNOSE_STALL_{name}"):
        config_of({**BASE, f"DIAGNOSE_STALL_{name}": value})
