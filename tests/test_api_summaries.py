"""The numbers of the overview are counted once for who looks at the same, and never shown to who may not see them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from diagnose.api import summaries
from diagnose.api.summaries import Summaries
from diagnose.service.jobs import NewJob
from diagnose.service.stats import Summary
from diagnose.service.submissions import Submissions
from diagnose.store.database import Database, open_database


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with open_database(str(tmp_path / "memory.sqlite3")) as made:
        for project, count in (("one", 1), ("two", 2), ("", 4)):
            for number in range(count):
                Submissions(made).accept(NewJob(f"{project}{number}", project, "gx"))
        yield made


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was counted, as it was asked for."""
    asked: list[Any] = []
    true = summaries.summary

    def summary(database: Database, projects: Any, **how: Any) -> Summary:
        asked.append((projects, *how.values()))
        return true(database, projects, **how)

    monkeypatch.setattr(summaries, "summary", summary)
    return asked


def test_each_sees_the_numbers_of_their_own_projects(database: Database) -> None:
    known = Summaries(lambda: 0.0)
    seen: list[tuple[frozenset[str] | None, int]] = [
        (None, 7),
        (frozenset({"one"}), 1),
        (frozenset({"two"}), 2),
        (frozenset({"one", "two"}), 3),
        (frozenset({"none"}), 0),
        (frozenset(), 0),
        (frozenset({""}), 4),
    ]
    for projects, jobs in [*seen, *reversed(seen)]:
        assert known.get(database, projects, days=30, cluster=None).jobs == jobs
    assert known.get(database, None, days=30, cluster="other").jobs == 0
    assert known.get(database, None, days=30, cluster="gx").jobs == 7


def test_the_same_is_counted_once_in_a_while(database: Database, counted: list[Any]) -> None:
    now = [0.0]
    known = Summaries(lambda: now[0])

    def look(days: int = 30) -> int:
        return known.get(database, None, days=days, cluster=None).jobs

    assert {look() for _ in range(20)} == {7}
    assert len(counted) == 1
    look(7)
    assert len(counted) == 2
    Submissions(database).accept(NewJob("new", "one", "gx"))
    now[0] = 4.9
    assert look() == 7
    now[0] = 5.0
    assert look() == 8
    known.forget()
    look()
    assert len(counted) == 4


def test_what_is_kept_is_bounded(database: Database, counted: list[Any]) -> None:
    known = Summaries(lambda: 0.0)
    for days in [*range(1, 40), 39, 1]:
        known.get(database, None, days=days, cluster=None)
    assert len(counted) == 40  # the last was there still, the first no more
    assert len(known._known) == 16


def test_who_looks_at_the_same_time_waits_for_one_count(
    database: Database, monkeypatch: pytest.MonkeyPatch, counted: list[Any]
) -> None:
    true, all_there = summaries.summary, threading.Event()

    def slow(*given: Any, **how: Any) -> Summary:
        all_there.wait(60.0)
        return true(*given, **how)

    monkeypatch.setattr(summaries, "summary", slow)
    known = Summaries()
    with ThreadPoolExecutor(8) as pool:
        looking = [pool.submit(known.get, database, None, days=30, cluster=None) for _ in range(8)]
        all_there.set()
        assert {one.result(60.0).jobs for one in looking} == {7}
    assert len(counted) == 1
