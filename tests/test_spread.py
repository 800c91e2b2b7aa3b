"""Several processes find what one finds: whole reports, over all bundled logs, small ranges, and processes that die."""

from __future__ import annotations

import gzip
import os
import select
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from diagnose import spread
from diagnose.compress import Filters, Guard, Ranges, ranges
from diagnose.models import LogSource, Report, RuleSet
from diagnose.pipeline import Request, Services, diagnose
from diagnose.settings import Limits, Settings
from diagnose.sources import collect
from tests.incidents import incidents, run

MANY = Settings(processes=3)
FAILURE = "Traceback (most recent call last):\n  File \"/w/train.py\", line 3, in f\n    x\nKeyError: 'role'\n"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread, "SPREAD_FROM", 1)
    monkeypatch.setattr(spread, "HEAD_BYTES", 2000)  # a head stands in the first range
    for module in (spread, ranges):
        monkeypatch.setattr(module, "RANGE_BYTES", 5000)


def steps(count: int) -> str:
    return "".join(f"2026-03-01 10:00:{step % 60:02} iteration {step}/ 99999 | loss 2.5\n" for step in range(count))


def timeless(report: Report) -> Report:
    return replace(report, stats=replace(report.stats, seconds=0.0))


def both(paths: list[str], rule_set: RuleSet, settings: Settings = MANY) -> tuple[Report, Report]:
    one = replace(settings, processes=1)
    return tuple(timeless(diagnose(Request(paths), Services(rule_set), each)) for each in (one, settings))


def test_bundled_logs_give_the_same_reports(rule_set: RuleSet) -> None:
    for incident in incidents()[::4]:  # each kind, and a test that stays short
        one, many = (
            run(incident.folder, incident.expected["inputs"], rule_set, settings) for settings in (Settings(), MANY)
        )
        assert timeless(one) == timeless(many), incident.name


def test_a_log_of_many_ranges(tmp_path: Path, rule_set: RuleSet) -> None:
    log = tmp_path / "job.log"
    log.write_text(steps(900) + "some new line\n" * 50 + steps(20) + FAILURE)
    one, many = both([str(log)], rule_set, replace(MANY, limits=Limits(block_bytes=700)))
    assert one == many
    assert many.root_cause is not None
    assert many.root_cause.evidence[0].line == log.read_text().count("\n")


def test_files_of_all_kinds_in_one_folder(tmp_path: Path, rule_set: RuleSet) -> None:
    (tmp_path / "rank_0.log").write_text(steps(300))
    (tmp_path / "rank_1.log").write_text(steps(3) + FAILURE)
    (tmp_path / "rank_2.log.gz").write_bytes(gzip.compress(steps(300).encode()))
    (tmp_path / "rank_3.log").write_bytes(b"\xef\xbb\xbf" + steps(300).encode())
    (tmp_path / "rank_4.log").write_text("\n".join(reversed(steps(400).split("\n"))))  # newest first
    (tmp_path / "rank_5.log").write_text("")
    (tmp_path / "rank_6.log").write_text("x" * 30_000 + "\n" + steps(9))
    one, many = both([str(tmp_path)], rule_set)
    assert one == many
    assert len(many.coverage.sources) >= 6


@pytest.mark.parametrize("expanded", [5, 900])
def test_a_short_log_that_breaks_off_is_read_up_to_there(tmp_path: Path, rule_set: RuleSet, expanded: int) -> None:
    """The beginning that is looked over first is not lost with what never comes."""
    packed = gzip.compress((steps(expanded) + FAILURE).encode())
    (tmp_path / "job.log.gz").write_bytes(packed[:-8])
    for report in both([str(tmp_path / "job.log.gz")], rule_set):
        assert report.error_type == "KeyError"
        assert report.stats.lines == expanded + 4
        assert "cut off" in report.coverage.not_read[0]


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_the_year_of_stamps_that_leave_it_out(tmp_path: Path, rule_set: RuleSet, order: str) -> None:
    """It comes from another log of the job, whichever is read first and in whichever process."""
    dated = "2027-03-01 10:00:00,100 INFO set-up done\n" + steps(5).replace("2026", "2027")
    yearless = "".join(f"[E0301 10:00:0{second}.000000 77 x.cc:3] frobnication {second}\n" for second in range(9))
    for name, text in zip(order, (dated, yearless + FAILURE), strict=True):
        (tmp_path / f"rank_{name}.log").write_text(text)
    one, many = both([str(tmp_path)], rule_set)
    assert one == many
    assert [attempt.started for attempt in many.attempts] == ["2027-03-01T10:00:00Z"]


def test_what_a_dead_process_left_undone_is_done(tmp_path: Path, rule_set: RuleSet, monkeypatch) -> None:
    for rank in range(6):
        (tmp_path / f"rank_{rank}.log").write_text(steps(400) + (FAILURE if rank == 4 else ""))
    expected, _ = both([str(tmp_path)], rule_set)
    started = spread.Spread._start
    dead = []

    def start(self, pieces) -> None:
        started(self, pieces)
        os.kill(self._made[-1], signal.SIGKILL)
        dead.append(self._made[-1])

    monkeypatch.setattr(spread.Spread, "_start", start)
    report = timeless(diagnose(Request([str(tmp_path)]), Services(rule_set), MANY))
    assert dead
    assert report == expected


def test_a_process_that_fails_in_the_middle(tmp_path: Path, rule_set: RuleSet, monkeypatch) -> None:
    (tmp_path / "job.log").write_text(steps(1500) + FAILURE)
    expected, _ = both([str(tmp_path)], rule_set)
    whole, parent = spread._frames, os.getpid()

    def frames(piece, stages):
        for count, frame in enumerate(whole(piece, stages)):
            if os.getpid() != parent and count == 2 and piece.index % 2:
                raise MemoryError
            yield frame

    monkeypatch.setattr(spread, "_frames", frames)
    assert timeless(diagnose(Request([str(tmp_path)]), Services(rule_set), MANY)) == expected


def test_no_process_is_left(tmp_path: Path, rule_set: RuleSet, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job.log").write_text(steps(1500) + FAILURE)
    started, forked = spread.Spread._start, []

    def start(self, pieces) -> None:
        started(self, pieces)
        forked.append(self._made[-1])

    monkeypatch.setattr(spread.Spread, "_start", start)
    both([str(tmp_path)], rule_set)
    assert forked
    for process in forked:  # other tests have processes of their own
        with pytest.raises(ChildProcessError):
            os.waitpid(process, os.WNOHANG)


def test_a_process_that_nobody_listens_to_ends_quietly(tmp_path: Path, rule_set: RuleSet) -> None:
    log = tmp_path / "job.log"
    log.write_text(steps(3000))
    receiver, sender = os.pipe()
    error, told = os.pipe()
    pieces = spread.pieces_of(collect([str(log)], limits=Limits()).inputs)
    process = os.fork()
    if not process:
        os.dup2(told, 2)
        spread._work(pieces, Plain(Filters(rule_set.filters)), [receiver], sender)
    os.close(receiver)
    os.close(sender)
    os.close(told)
    assert os.waitpid(process, 0)[1] == 0
    with os.fdopen(error, "rb") as file:
        assert file.read() == b""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    (tmp_path / "job.log").write_text(steps(20_000))
    # More than processes hold ahead and a pipe holds: they wait for a parent that never asks.
    monkeypatch.setattr(spread, "RANGE_BYTES", 1 << 20)
    monkeypatch.setattr(ranges, "RANGE_BYTES", 1 << 20)
    alive, living = os.pipe()
    parent = os.fork()
    if not parent:
        try:
            inputs = collect([str(tmp_path / "job.log")], limits=Limits(block_bytes=4096)).inputs
            with spread.Spread(inputs, Plain(Filters(())), 2):
                os.write(living, b"x")
                signal.pause()
        finally:
            os._exit(1)
    assert os.read(alive, 1) == b"x"
    os.close(living)
    os.kill(parent, number)
    os.waitpid(parent, 0)
    assert select.select([alive], [], [], 60) == ([alive], [], [])
    assert os.read(alive, 1) == b""  # nobody holds the other end any more


class Plain:
    """Stages without a guard; lines are not read."""

    def __init__(self, filters: Filters) -> None:
        self._filters = filters

    def compressor(self, source: LogSource, start: int = 0) -> Ranges:
        return Ranges(source, self._filters, Guard(()), Limits(), start)

    def reading(self, source: LogSource) -> None:
        return None


def test_an_interrupt_is_the_parents_to_hear(tmp_path: Path, rule_set: RuleSet, monkeypatch) -> None:
    (tmp_path / "job.log").write_text(steps(900) + FAILURE)
    whole, parent = spread._frames, os.getpid()

    def frames(piece, stages):
        if os.getpid() != parent:
            blocked = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, set())
            (tmp_path / f"{piece.index}.blocked").write_text(str(blocked))
        yield from whole(piece, stages)

    monkeypatch.setattr(spread, "_frames", frames)
    diagnose(Request([str(tmp_path / "job.log")]), Services(rule_set), MANY)
    assert {path.read_text() for path in tmp_path.glob("*.blocked")} == {"True"}
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, set())
