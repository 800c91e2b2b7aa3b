"""The wall clock is set while a service runs, by years and either way: nothing is lost by it, and nothing stops."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from diagnose.api.running import Running
from diagnose.service.claims import Claims
from diagnose.service.clocks import Ages, Jumps
from diagnose.service.jobs import NewJob, Uploaded
from diagnose.service.settings import config_of
from diagnose.service.streams import Chunk, JobKey
from diagnose.service.submissions import Submissions
from diagnose.service.uploads import Uploads
from diagnose.store.database import Database, open_database
from tests.serving import environment_of

DAY = 86_400.0
NOW = 1_700_000_000.0


class Clocks:
    """Both clocks; `passes` is time that passes, `wall` can be set."""

    def __init__(self) -> None:
        self.wall, self.steady = NOW, 1_000.0

    def passes(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds

    def ages(self, folder: Path, boot: str = "one") -> Ages:
        return Ages(str(folder / "clock"), lambda: self.wall, lambda: self.steady, lambda: boot)


def test_a_clock_that_was_set_is_noticed_once() -> None:
    clocks = Clocks()
    jumps = Jumps(lambda: clocks.wall, lambda: clocks.steady)
    for jump in (10 * DAY, -20 * DAY, 60.0):
        clocks.passes(10_000.0)
        assert jumps.quiet(100.0)
        clocks.wall += jump
        clocks.passes(1.0)
        assert not jumps.quiet(100.0)
        clocks.passes(99.0)
        assert not jumps.quiet(100.0)
        clocks.passes(2.0)
        assert jumps.quiet(100.0)
    clocks.wall += 1.0  # as time servers do
    assert jumps.quiet(100.0)


def test_without_jumps_age_is_age(tmp_path: Path) -> None:
    clocks = Clocks()
    for _ in range(10):
        ages = clocks.ages(tmp_path)  # however often it is started anew
        ages.look()
        span = ages.span(7 * DAY)
        assert span
        assert clocks.wall - 6.9 * DAY in span
        assert clocks.wall - 7.1 * DAY not in span
        clocks.passes(0.5 * DAY)


@pytest.mark.parametrize("jump", [30 * DAY, 10_000 * DAY, -30 * DAY, 0.2 * DAY])
@pytest.mark.parametrize("again", [False, True])
def test_nothing_is_old_until_it_is_by_the_other_clock(tmp_path: Path, jump: float, again: bool) -> None:
    clocks = Clocks()
    ages = clocks.ages(tmp_path)
    ages.look()
    made = clocks.wall
    clocks.wall += jump
    for _ in range(14):
        clocks.passes(DAY / 2 - 1)
        ages = clocks.ages(tmp_path) if again else ages
        ages.look()
        assert ages.span(7 * DAY) is None
    clocks.passes(DAY)
    ages.look()
    span = ages.span(7 * DAY)
    assert span
    assert (made in span) == (jump == 0.2 * DAY and made >= span.since)
    assert clocks.wall in span


def test_small_steps_that_add_up_are_a_jump(tmp_path: Path) -> None:
    clocks = Clocks()
    ages = clocks.ages(tmp_path)
    for _ in range(4):
        ages.look()
        clocks.passes(600.0)
        clocks.wall += 1_500.0
    assert ages.span(DAY) is None


def test_two_machines_on_one_spool_see_no_jump_where_none_is(tmp_path: Path) -> None:
    clocks = Clocks()
    both = [clocks.ages(tmp_path, boot) for boot in ("one", "two")]
    for turn in range(100):
        both[turn % 2].look()
        clocks.passes(300.0)
    assert all(one.span(DAY / 4) for one in both)
    assert both[0]._seen == pytest.approx(98 * 300.0, abs=301.0)


@pytest.mark.parametrize("found", ["", "{", "[]", '{"wall": "x"}', "{" * 5000])
def test_a_note_that_cannot_be_read_is_made_anew(tmp_path: Path, found: str) -> None:
    (tmp_path / "clock").write_text(found)
    ages = Clocks().ages(tmp_path)
    ages.look()
    assert ages.span(DAY)


@pytest.mark.parametrize("jump", [30 * DAY, -3_000 * DAY])
def test_the_janitor_deletes_nothing_for_a_clock_that_was_set(tmp_path: Path, jump: float) -> None:
    environment = environment_of(tmp_path)
    running = Running(config_of(environment), environment)
    clocks = Clocks()
    key = JobKey("", "gx", "1")
    try:
        running.ages = clocks.ages(tmp_path)
        running._tidy()
        writing = running.spool.begin()
        writing.write(b"log")
        stored = writing.end()
        uploaded = Uploaded(stored.id, "", "a.log", stored.size, stored.sha256, "")
        Uploads(running.opening.database(), lambda: NOW).add(uploaded)
        running.live.streams.append(key, Chunk("a.log", b"line\n", 0))
        for path in (running.spool.path(stored.id), *(tmp_path / "spool" / "streams").rglob("*")):
            os.utime(path, (NOW, NOW))
        clocks.wall += jump
        clocks.passes(0.9 * DAY)
        running._tidy()
        assert os.path.exists(running.spool.path(stored.id))
        assert running.live.streams.known(key, "a.log")
        clocks.passes(DAY)
        running._tidy()
        assert not os.path.exists(running.spool.path(stored.id))  # nobody has named it for a day
        assert running.live.streams.known(key, "a.log")
        clocks.passes(7 * DAY)
        running._tidy()
        assert not running.live.streams.known(key, "a.log")
    finally:
        running.live.close()
        running.opening.close()


@pytest.fixture
def waiting(tmp_path: Path) -> Database:
    """A database with a job that waits for its last ranks."""
    made = open_database(str(tmp_path / "memory.sqlite3"))
    assert Submissions(made, clock=lambda: NOW).hold(NewJob("1", "", "gx", due=NOW + 100.0))
    return made


def test_a_job_that_waits_is_not_taken_up_before_its_time_by_a_clock_that_was_set(
    tmp_path: Path, waiting: Database
) -> None:
    environment = environment_of(tmp_path)
    running = Running(config_of(environment), environment)
    clocks = Clocks()
    try:
        running._jumps = Jumps(lambda: clocks.wall, lambda: clocks.steady)
        clocks.wall += 1_000.0  # the real one is past all this, whatever it says
        assert running._unfinished() == []
        clocks.passes(running.config.waits.most + 61.0)
        assert running._unfinished() == [NewJob("1", "", "gx").id]  # nobody has handed it in
    finally:
        running.live.close()
        running.opening.close()
        waiting.close()


def test_what_a_clock_that_was_set_back_has_put_off_for_years_is_taken_up(waiting: Database) -> None:
    with waiting:
        name = NewJob("1", "", "gx").id
        back = NOW - 3_000 * DAY
        assert Claims(waiting, clock=lambda: NOW).unfinished() == []
        assert Claims(waiting, clock=lambda: back).unfinished(overdue=False) == []
        claims = Claims(waiting, clock=lambda: back)
        assert claims.unfinished() == [name]
        assert Claims(waiting, clock=lambda: NOW + 200.0).claim(name, "one", 3)
        assert claims.unfinished(silent_since=back - 20.0) == [name]  # its worker spoke last years from now
        assert claims.claim(name, "two", 3)
        assert claims.unfinished(silent_since=back - 20.0) == []
