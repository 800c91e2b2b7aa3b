"""What good runs print over and over is no news in a failed one; what one job alone lived through stays news."""

from __future__ import annotations

from typing import cast

from diagnose.agents.excerpt import Gatherer
from diagnose.agents.held import template_of
from diagnose.agents.second_opinion import Advisers
from diagnose.dataclass import replace
from diagnose.models import JobContext
from diagnose.services import ServiceSettings, services
from diagnose.store import healthy
from diagnose.store.database import open_database
from diagnose.store.facts import digest_of
from diagnose.store.healthy import HealthyTemplates
from diagnose.store.index import Place
from diagnose.store.opening import IndexSettings
from tests.made import line
from tests.stores import KEY_ERROR, Lab

USUAL = "shelf-keeper: error 12 in slot /srv/a/b.bin of unit 0x7f3a, going on"
OWN = "lamp-keeper: failed to light bulb 7, going on"


def good(lab: Lab, day: int, *lines: str) -> None:
    """A run that ended well and printed these lines among others."""
    log = lab.log(range(100), "exit code: 0\n", start="".join(f"{line}\n" for line in lines), day=day)
    assert lab.run(log, context=JobContext(str(day), "train")).status == "no_failure"


def test_what_two_good_jobs_printed_is_usual(lab: Lab) -> None:
    good(lab, 1, USUAL, OWN)
    assert template_of(USUAL) not in HealthyTemplates(lab.database)
    good(lab, 2, USUAL.replace("12", "999").replace("/srv/a/b.bin", "/data/x/y/z.bin"))
    usual = HealthyTemplates(lab.database)
    assert template_of(USUAL) in usual
    assert template_of(USUAL.replace("12", "3")) in usual
    assert template_of(OWN) not in usual
    assert "" not in usual
    assert 7 not in usual


def test_what_a_failed_run_printed_is_not_usual(lab: Lab) -> None:
    for day in (1, 2):
        lab.run(lab.log(range(3), KEY_ERROR, start=f"{OWN}\n", day=day), context=JobContext(str(day), "train"))
    assert template_of(OWN) not in HealthyTemplates(lab.database)


def test_only_the_latest_runs_are_read(lab: Lab, monkeypatch) -> None:
    good(lab, 1, USUAL)
    good(lab, 2, USUAL)
    for day in (3, 4):
        good(lab, day, OWN)
    monkeypatch.setattr(healthy, "_RUNS", 2)
    assert template_of(OWN) in HealthyTemplates(lab.database)
    assert template_of(USUAL) not in HealthyTemplates(lab.database)


def test_the_template_of_an_excerpt_is_that_of_the_memory() -> None:
    for text in (USUAL, OWN, "a1b2c3d 0xFF 1.5e9 /x/y9/z", "x" * 155 + " 12345678 /a/b/c", "é 7\x1b[0m"):
        assert digest_of(template_of(text)[:160]) == digest_of(text[:160])


def test_a_memory_that_cannot_be_read_knows_nothing(lab: Lab, tmp_path) -> None:
    with open_database(str(tmp_path / "broken.sqlite3")) as database:
        with database.writing() as session:
            session.connection().exec_driver_sql("DROP TABLE attempts")
        assert template_of(USUAL) not in HealthyTemplates(database)


def test_a_run_is_advised_of_what_good_runs_print(lab: Lab) -> None:
    """By the services of a run, down to the excerpt: the usual error gives way to the new one."""
    for day in (1, 2):
        good(lab, day, USUAL)
    undecided = replace(lab.run(lab.log(range(3), "exit code: 1\n", day=3)), root_cause=None)
    index = IndexSettings(Place(str(lab.folder / "index"), "numpy"), "hashed")
    with services(lab.rules, ServiceSettings(lab.database.address, index=index), lab.told.append) as opened:
        assert not lab.told
        advisers = cast("Advisers", opened.second_opinion)
        assert template_of(USUAL) in advisers.healthy
        for usual, first in ((frozenset(), USUAL), (advisers.healthy, OWN)):
            gatherer = Gatherer(usual)
            for number, text in enumerate([*(f"step {n} is done" for n in range(40)), USUAL, OWN], 1):
                gatherer.observe(line("job.log", number, text=text))
            told = gatherer.excerpt(undecided, 1_000).lines
            assert [each.line.text for each in told if each.why == "first error of its writer"] == [first]
