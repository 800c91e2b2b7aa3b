"""Streamed logs: chunks in any order, restarts, generations, bounds; and a process killed in mid-stream."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import zlib
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from diagnose.compress import keptlog, ranges
from diagnose.keeping import Keeping
from diagnose.models import RuleSet
from diagnose.pipeline import Request, Services, diagnose
from diagnose.service.chunks import expanded
from diagnose.service.streams import (
    BadKeptLog,
    Chunk,
    ChunkTooLarge,
    Gap,
    GuardDiffers,
    JobKey,
    OldGeneration,
    SpoolFull,
    StreamBounds,
    StreamError,
    Streams,
    TooMuch,
    sealing,
    segments,
)
from diagnose.service.work import place
from diagnose.sources import kept
from diagnose.sources.packed import _zstd_module
from tests.incidents import inside
from tests.keeping import kept_log

HEAD, RANGE = 1500, 4000
JOB = JobKey("p", "gx", "4711")
FAILURE = "Traceback (most recent call last):\n  File \"/w/train.py\", line 3, in f\n    x\nKeyError: 'role'\n"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for one in (kept, keptlog, sealing):
        monkeypatch.setattr(one, "KEPT_HEAD_BYTES", HEAD)
    monkeypatch.setattr(sys.modules["diagnose.sources.collect"], "KEPT_LOOKED_BYTES", HEAD + 4096)
    monkeypatch.setattr(ranges, "RANGE_BYTES", RANGE)


@pytest.fixture(scope="module")
def keeper(rule_set: RuleSet) -> Keeping:
    return Keeping(rule_set)


def opened(folder: Path, keeper: Keeping, **bounds: int) -> Streams:
    return Streams(str(folder), lambda: keeper, StreamBounds(**bounds))


def steps(count: int) -> str:
    return "".join(f"2026-03-01 10:00:{step % 60:02} iteration {step}/ 99999 | loss 2.5\n" for step in range(count))


def files(streams: Streams, into: Path, job: JobKey = JOB) -> dict[str, bytes]:
    """What would be diagnosed now."""

    def place(folder: str, name: str) -> str:
        os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
        return name

    into.mkdir(exist_ok=True)
    return {name: (into / name).read_bytes() for name in streams.snapshot(job, str(into), place)}


def stored(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.raw.*"))


@pytest.mark.parametrize("seed", range(6))
def test_chunks_in_any_order_again_and_again_make_the_log(seed: int, tmp_path: Path, keeper: Keeping) -> None:
    """Restarts at any place as well; what is there to diagnose is the kept log that the whole log would give."""
    log = (steps(400) + "x" * 9000 + "\n" + "some new line\n" * 50 + FAILURE + "no end").encode()
    chance = random.Random(seed)
    streams = opened(tmp_path / "spool", keeper)
    known = 0
    while known < len(log):
        start = max(0, known - chance.choice((0, 0, 10, 3000)))
        chunk = log[start : start + chance.choice((1, 100, 1500, 4000, 20_000))]
        if chance.random() < 0.2:
            with pytest.raises(Gap) as gap:
                streams.append(JOB, Chunk("job.log", chunk, known + 1))
            assert gap.value.offset == known
        took = streams.append(JOB, Chunk("job.log", chunk, start))
        assert took.offset == max(known, start + len(chunk))
        assert took.new == took.offset - known
        known = took.offset
        assert streams.append(JOB, Chunk("job.log", chunk, start)).new == 0
        if chance.random() < 0.3:
            streams.close()
            streams = opened(tmp_path / "spool", keeper)
            streams.seal_all()
    streams.close()
    assert stored(tmp_path) < 2 * RANGE + 10_000  # what lies before the last border is only kept
    assert files(streams, tmp_path / "job") == {"job.log": kept_log(keeper, "job.log", log)}
    assert streams.known(JOB, "job.log").offset == len(log)


def test_a_range_may_end_with_a_chunk(tmp_path: Path, keeper: Keeping) -> None:
    log = steps(400).encode()
    streams = opened(tmp_path / "spool", keeper)
    known = 0
    for line in log.splitlines(keepends=True):
        known = streams.append(JOB, Chunk("job.log", line, known)).offset
    streams.close()
    assert files(streams, tmp_path / "job") == {"job.log": kept_log(keeper, "job.log", log)}


def test_the_report_is_that_of_the_log(tmp_path: Path, keeper: Keeping, rule_set: RuleSet) -> None:
    log = (steps(400) + FAILURE).encode()
    streams = opened(tmp_path / "spool", keeper)
    known = 0
    while known < len(log):
        known = streams.append(JOB, Chunk("logs/job.log", log[known : known + 999], known)).offset
    streams.close()
    assert files(streams, tmp_path / "job").keys() == {"logs/job.log"}
    (tmp_path / "raw" / "logs").mkdir(parents=True)
    (tmp_path / "raw" / "logs" / "job.log").write_bytes(log)
    reports = []
    for folder in ("job", "raw"):
        with inside(str(tmp_path / folder)):
            report = diagnose(Request(["."]), Services(rule_set))
        reports.append(replace(report, stats=replace(report.stats, seconds=0.0)))
    assert reports[0] == reports[1]
    assert reports[0].root_cause is not None


def test_a_log_that_must_be_read_as_a_whole_stays_as_it_is(tmp_path: Path, keeper: Keeping) -> None:
    log = "".join(reversed(steps(300).splitlines(keepends=True))).encode()
    streams = opened(tmp_path / "spool", keeper)
    known = 0
    while known < len(log):
        known = streams.append(JOB, Chunk("job.log", log[known : known + 999], known)).offset
    streams.close()
    assert files(streams, tmp_path / "job") == {"job.log": log}


def test_a_log_that_begins_anew_is_a_new_generation(tmp_path: Path, keeper: Keeping) -> None:
    streams = opened(tmp_path / "spool", keeper, generations=3)
    streams.append(JOB, Chunk("job.log", b"first\n", 0))
    with pytest.raises(Gap, match="begins at offset 0"):
        streams.append(JOB, Chunk("job.log", b"x", 6, generation=1))
    with pytest.raises(Gap, match="next generation is 1"):
        streams.append(JOB, Chunk("job.log", b"x", 0, generation=2))
    assert streams.append(JOB, Chunk("job.log", b"second\n", 0, generation=1)).generation == 1
    with pytest.raises(OldGeneration) as old:
        streams.append(JOB, Chunk("job.log", b"more\n", 6, generation=0))
    assert old.value.generation == 1
    assert files(streams, tmp_path / "a") == {"job.log": b"second\n", "job.log.1": b"first\n"}
    streams.append(JOB, Chunk("job.log", b"the second as a whole\n", 0, generation=2, again=True))
    assert files(streams, tmp_path / "b") == {"job.log": b"the second as a whole\n", "job.log.1": b"first\n"}
    for generation in range(3, 6):
        streams.append(JOB, Chunk("job.log", b"%d\n" % generation, 0, generation=generation))
    assert files(streams, tmp_path / "c") == {"job.log": b"5\n", "job.log.1": b"4\n", "job.log.2": b"3\n"}
    streams.close()


def test_kept_logs_are_taken_of_those_who_have_the_same_rules(tmp_path: Path, keeper: Keeping) -> None:
    log = kept_log(keeper, "job.log", (steps(300) + FAILURE).encode())
    assert log is not None
    streams = opened(tmp_path / "spool", keeper)
    with pytest.raises(GuardDiffers, match="send the log itself"):
        streams.append(JOB, Chunk("job.log", log, 0, form="kept", guard="0" * 32))
    with pytest.raises(GuardDiffers):
        streams.append(JOB, Chunk("job.log", log, 0, form="kept"))
    with pytest.raises(BadKeptLog, match="first line is damaged"):
        streams.append(JOB, Chunk("job.log", log[:20], 0, form="kept", guard=keeper.guard))
    with pytest.raises(BadKeptLog, match="no kept log"):
        streams.append(JOB, Chunk("job.log", b"just a line\n", 0, form="kept", guard=keeper.guard))
    with pytest.raises(BadKeptLog, match="another name"):
        streams.append(JOB, Chunk("other.log", log, 0, form="kept", guard=keeper.guard))
    known = 0
    while known < len(log):
        known = streams.append(
            JOB, Chunk("d/job.log", log[known : known + 999], known, form="kept", guard=keeper.guard)
        ).offset
    with pytest.raises(Gap, match="another form"):
        streams.append(JOB, Chunk("d/job.log", b"x", known))
    streams.close()
    assert files(streams, tmp_path / "job") == {"d/job.log": log}


def test_what_comes_again_and_is_another_log_is_refused(tmp_path: Path, keeper: Keeping) -> None:
    log = (steps(60) + FAILURE).encode()  # of what is sealed nobody can tell
    streams = opened(tmp_path / "spool", keeper)
    assert streams.append(JOB, Chunk("job.log", log, 0)).offset == len(log)
    for offset, data in (
        (0, log[:-1] + b"!"),
        (len(log) - 3, b"abc"),
        (len(log) - 3, log[-3:-1] + b"x and more"),
        (RANGE // 2, b"another"),
    ):
        with pytest.raises(Gap, match="another log") as gap:
            streams.append(JOB, Chunk("job.log", data, offset))
        assert (gap.value.offset, gap.value.generation) == (0, 1)
    assert streams.append(JOB, Chunk("job.log", log[-3:] + b"more", len(log) - 3)).new == 4
    streams.close()


def test_logs_that_releases_of_other_rules_have_sealed_say_so(
    tmp_path: Path, keeper: Keeping, rule_set: RuleSet
) -> None:
    other = Keeping(replace(rule_set, filters=rule_set.filters[1:]))
    log = (steps(400) + FAILURE + "2026-03-01 10:00:00 the end\n").encode()
    third = len(log) // 3
    for order, told in (((keeper, keeper, keeper), False), ((keeper, other, keeper), True), ((other,) * 3, True)):
        job = JobKey("p", "gx", "-".join(one.guard[:4] for one in order))
        for number, whose in enumerate(order):
            streams = opened(tmp_path / "spool", whose)
            part = log[third * number : third * (number + 1) if number < 2 else None]
            streams.append(job, Chunk("job.log", part, third * number))
            streams.seal_all()
            streams.close()
        folder = tmp_path / job.job_id
        streams = opened(tmp_path / "spool", keeper)
        files(streams, folder, job)
        streams.close()
        report = diagnose(Request(paths=(str(folder),)), Services(rules=rule_set))
        assert any("by other rules than these" in one for one in report.coverage.not_read) == told
        assert report.error_type == "KeyError"


def test_a_kept_log_goes_on_by_the_rules_that_have_begun_it(tmp_path: Path, keeper: Keeping, rule_set: RuleSet) -> None:
    newer = Keeping(replace(rule_set, filters=rule_set.filters[1:]))
    log = kept_log(keeper, "job.log", (steps(300) + FAILURE).encode())
    assert log is not None
    streams = opened(tmp_path / "spool", keeper)
    known = streams.append(JOB, Chunk("job.log", log[:999], 0, form="kept", guard=keeper.guard)).offset
    streams.close()
    streams = opened(tmp_path / "spool", newer)
    with pytest.raises(Gap, match="by other rules") as gap:
        streams.append(JOB, Chunk("job.log", log[known:], known, form="kept", guard=newer.guard))
    assert (gap.value.offset, gap.value.generation) == (0, 1)
    streams.close()


def test_bounds(tmp_path: Path, keeper: Keeping, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "_LONGEST", 3000)
    streams = opened(tmp_path / "spool", keeper, chunk_bytes=8000, log_bytes=12_000, logs=2, spool_bytes=60_000)
    with pytest.raises(ChunkTooLarge):
        streams.append(JOB, Chunk("a", b"x" * 8001, 0))
    assert streams.append(JOB, Chunk("a", b"x" * 6000, 0)).offset == 6000
    with pytest.raises(TooMuch, match="a line of more than"):
        streams.append(JOB, Chunk("a", b"x" * 2000, 6000))
    assert streams.append(JOB, Chunk("a", b"\n" + b"y" * 999, 6000)).offset == 7000  # nothing of it was left
    with pytest.raises(TooMuch, match="a log may have"):
        streams.append(JOB, Chunk("a", b"y\n" * 3000, 7000))
    streams.append(JOB, Chunk("b", b"", 0))
    with pytest.raises(TooMuch, match="a job may have 2 logs"):
        streams.append(JOB, Chunk("c", b"x", 0))
    others = [JobKey("p", "gx", str(number)) for number in range(30)]
    with pytest.raises(SpoolFull, match="no more than 60000"):
        list(map(partial(streams.append, chunk=Chunk("a", b"y\n" * 1500, 0)), others))
    streams.forget(JobKey("p", "gx", "0"))
    assert streams.append(JobKey("p", "gx", "0"), Chunk("a", b"y\n" * 1500, 0)).offset == 3000
    assert streams.tidy(0.0) == 0
    assert streams.tidy(1e12) > 9
    assert os.listdir(tmp_path / "spool") == [".room"]  # where the bytes are counted
    streams.close()


def test_a_job_that_ended_without_logs_keeps_no_other_from_being_tidied(tmp_path: Path, keeper: Keeping) -> None:
    streams = opened(tmp_path / "spool", keeper)
    assert streams.endings.end(JOB, "{}")  # its folder is there, and empty
    streams.append(JobKey("p", "gx", "1"), Chunk("a", b"x", 0))
    for folder in (tmp_path / "spool").iterdir():
        for part in (folder, *folder.rglob("*")):
            os.utime(part, (1e9, 1e9))
    assert streams.tidy(2e9) == 2
    assert not [one for one in (tmp_path / "spool").iterdir() if one.name[0] != "."]
    streams.close()


def test_a_full_disk_takes_nothing_back(tmp_path: Path, keeper: Keeping, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = opened(tmp_path / "spool", keeper)
    log = steps(300).encode()
    assert streams.append(JOB, Chunk("job.log", log[:3000], 0)).offset == 3000
    write = os.pwrite

    def full(descriptor: int, data: bytes, place: int) -> int:
        if place > 500 and len(data) > 100:
            return write(descriptor, bytes(data[:100]), place)  # as much as there is room for
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(SpoolFull, match="disk of the spool is full"):
        streams.append(JOB, Chunk("job.log", log[3000:], 3000))
    monkeypatch.undo()
    assert streams.known(JOB, "job.log").offset == 3000
    assert streams.append(JOB, Chunk("job.log", log[3000:6000], 3000)).offset == 6000
    streams.close()
    assert files(streams, tmp_path / "job")["job.log"].startswith(log[:3000])


def test_names_lead_nowhere(tmp_path: Path, keeper: Keeping) -> None:
    streams = opened(tmp_path / "spool", keeper)
    for name in ("../../etc/passwd", "/etc/passwd", "a\x1b[2Jb", "x" * 5000, "..", "", "\udcff", "a\0b"):
        streams.append(JOB, Chunk(name, b"line\n", 0))
    streams.close()
    assert {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*")} == {"spool"}
    names = streams.names(JOB)
    assert all(name.isprintable() and ".." not in name.split("/") and len(name) <= 1000 for name in names)
    assert "etc/passwd" in names


def test_logs_whose_names_look_alike_are_two(tmp_path: Path, keeper: Keeping) -> None:
    streams = opened(tmp_path / "spool", keeper)
    names = ["a\x01.log", "a\x02.log", "x" * 2_000 + "y" * 1_500, "z" * 2_000 + "y" * 1_500]
    for name in names:
        assert streams.append(JOB, Chunk(name, name.encode(), 0)).new == len(name)
    assert [streams.known(JOB, name).offset for name in names] == [len(name) for name in names]
    streams.close()
    paths = streams.snapshot(JOB, str(tmp_path / "job"), place)
    assert len({os.path.realpath(tmp_path / "job" / path) for path in paths}) == 4


def test_bodies_are_expanded_within_bounds() -> None:
    zstd = _zstd_module()
    gzip = zlib.compressobj(wbits=31)
    packed = gzip.compress(b"line\n" * 1000) + gzip.flush()
    assert expanded(b"as it is", "", 5) == b"as it is"
    assert expanded(packed, "gzip", 5000) == b"line\n" * 1000
    assert expanded(zstd.compress(b"line\n" * 1000), "zstd", 5000) == b"line\n" * 1000
    with pytest.raises(ChunkTooLarge):
        expanded(zstd.compress(bytes(10**8)), "zstd", 5000)
    for data in (packed[:-9], packed[:30], b"", b"\x28\xb5\x2f\xfdxxxxxxx", packed[:20] + b"?" + packed[21:]):
        with pytest.raises(StreamError, match=r"cut off|damaged"):
            expanded(data, "zstd" if data[:1] == b"\x28" else "gzip", 10_000)
    with pytest.raises(StreamError, match="is not known here"):
        expanded(packed, "br", 10_000)
    with pytest.raises(StreamError, match="members"):
        expanded(packed * 20, "gzip", 10**6)


WRITER = """
import os, sys
from diagnose.compress import keptlog, ranges
from diagnose.rules.load import load_rules
from diagnose.keeping import Keeping
from diagnose.service.streams import Chunk, JobKey, Streams, sealing
from diagnose.service.work import place
from diagnose.sources import kept
for one in (kept, keptlog, sealing):
    one.KEPT_HEAD_BYTES = 1500
ranges.RANGE_BYTES = 4000
keeper = Keeping(load_rules())
taking = Streams(sys.argv[1], lambda: keeper)
taking.seal_all()
known = taking.known(JobKey("p", "gx", "4711"), "job.log")
place = known.offset if known else 0
log = open(sys.argv[2], "rb").read()
while place < len(log):
    place = taking.append(JobKey("p", "gx", "4711"), Chunk("job.log", log[place : place + 700], place)).offset
    os.write(1, b"%d\\n" % place)
taking.close()
"""


def test_what_was_acknowledged_is_there_after_a_kill(tmp_path: Path, keeper: Keeping) -> None:
    """A process that takes chunks is killed again and again, wherever it is."""
    log = (steps(900) + FAILURE).encode()
    (tmp_path / "log").write_bytes(log)
    killed = 0
    for wanted in (1, 3, 9, 20, 0):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / "spool"), str(tmp_path / "log")], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        acknowledged = 0
        for count, line in enumerate(iter(process.stdout.readline, b""), start=1):
            acknowledged = int(line)
            if count == wanted:
                process.kill()
                killed += 1
                break
        acknowledged = max([acknowledged, *map(int, process.stdout.read().split(b"\n")[:-1])])
        process.stdout.close()
        process.wait(60)
        streams = opened(tmp_path / "spool", keeper)
        known = streams.known(JOB, "job.log")
        assert known is not None
        assert known.offset >= acknowledged > 0
        now = files(streams, tmp_path / "now")["job.log"]
        ended = kept_log(keeper, "job.log", log[: known.offset])
        assert now in (ended, log[: known.offset])
        streams.close()
    assert killed == 4
    assert known.offset == len(log)
