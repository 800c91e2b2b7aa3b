"""Incidents as others read them: in order, by id, by revision, with word of those that are gone."""

from __future__ import annotations

import pytest

from diagnose.errors import UsageError
from diagnose.models import Incidents, JobContext
from diagnose.store.backtest import backtest
from diagnose.store.exchange import as_json, from_lines
from diagnose.store.incidents import StoredIncidents, confirm, correct, delete, iso_time, seconds_of
from diagnose.store.retention import delete_of_user, prune
from tests.stores import DAY, KEY_ERROR, Lab

LINE = '{{"schema": "diagnose.incident/v1", "id": "{id}", "status": "failed", "decided_by": "rules", "error_type": "KeyError"{more}}}'


def filled(lab: Lab, count: int) -> StoredIncidents:
    from_lines(lab.database, (LINE.format(id=f"a{number:05}", more="") for number in range(count)))
    return StoredIncidents(lab.database)


def test_all_are_read_in_order_page_by_page(lab: Lab) -> None:
    store: Incidents = filled(lab, 1_203)
    assert len(store) == 1_203
    ids = [incident.id for incident in store]
    assert ids == sorted(ids)
    assert len(ids) == 1_203
    assert [one.id for one in store.many(["a00700", "none", "a00003", *ids[:600]])][:2] == ["a00700", "a00003"]
    assert store.get("none") is None


def test_copies_follow_by_revision(lab: Lab) -> None:
    store = filled(lab, 5)
    assert [incident.id for incident in store.changed_since(0)] == [f"a{number:05}" for number in range(5)]
    before = store.revision()
    assert list(store.changed_since(before)) == []
    confirm(lab.database, "a00002")
    correct(lab.database, "a00001", error_type="DiskFull")
    delete(lab.database, ["a00004", "a00004", "none"])
    assert [incident.id for incident in store.changed_since(before)] == ["a00002", "a00001"]
    assert [name for _, name in store.removed_since(before)] == ["a00004"]
    assert store.revision() == before + 3


def test_one_that_comes_back_is_no_longer_gone(lab: Lab) -> None:
    store = filled(lab, 2)
    delete(lab.database, ["a00001"])
    filled(lab, 2)
    assert list(store.removed_since(0)) == []
    assert [incident.id for incident in store.changed_since(0)] == ["a00000", "a00001"]


def test_what_is_confirmed_elsewhere_goes_before_what_is_not(lab: Lab) -> None:
    store = filled(lab, 1)
    made = from_lines(lab.database, [LINE.format(id="a00000", more=', "confirmed": true, "recovered": true')])
    assert (made.added, made.changed, made.known) == (0, 1, 0)
    assert store.get("a00000").confirmed
    assert store.get("a00000").recovered is True
    made = from_lines(lab.database, [LINE.format(id="a00000", more="")])
    assert (made.added, made.changed, made.known) == (0, 0, 1)


def test_a_bad_line_leaves_its_batch_out_and_those_before_in(lab: Lab) -> None:
    lines = [LINE.format(id=f"b{number}", more="") for number in range(450)]
    lines[420] = "{"
    with pytest.raises(UsageError, match="line 421: no JSON"):
        from_lines(lab.database, lines)
    assert len(StoredIncidents(lab.database)) == 400


def test_json_of_an_incident_is_one_line_whatever_it_holds(lab: Lab) -> None:
    log = lab.log(range(3), KEY_ERROR.replace("role", "ro\u2028le \udcff"))
    lab.run(log)
    (incident,) = StoredIncidents(lab.database)
    assert "\n" not in as_json(incident)
    as_json(incident).encode()


def test_times_come_back() -> None:
    assert seconds_of(iso_time(1.8e9)) == 1.8e9
    assert iso_time(1e30) == ""
    assert seconds_of("no time") == 0.0


def test_old_runs_go_and_what_people_confirmed_stays(lab: Lab) -> None:
    for day in (1, 2, 3):
        lab.run(lab.log(range(3), KEY_ERROR, day=day))
    store = StoredIncidents(lab.database)
    kept, *others = [incident.id for incident in store]
    confirm(lab.database, kept)
    gone = prune(lab.database, 30, lab.now + 31 * DAY)
    assert (gone.incidents, gone.attempts) == (2, 1)
    assert [incident.id for incident in store] == [kept]
    assert sorted(name for _, name in store.removed_since(0)) == sorted(others)
    assert backtest(lab.database, lab.rules.policy, lab.rules.budgets).attempts == 0
    assert prune(lab.database, 30, lab.now + 31 * DAY) == type(gone)()


def test_runs_are_pruned_once_a_day_where_that_is_asked(lab: Lab) -> None:
    lab.run(lab.log(range(3), KEY_ERROR, day=1))
    lab.now += 40 * DAY
    lab.run(lab.log(range(3), KEY_ERROR, day=9), keep_days=30.0)
    assert len(StoredIncidents(lab.database)) == 1
    assert not lab.told


def test_a_node_that_served_well_after_its_drain_was_drained_for_nothing(lab: Lab) -> None:
    from diagnose.models import JobContext
    from tests.test_store_memory import failing_node

    failing_node(lab, "1", 1, host="gx-001")
    failing_node(lab, "2", 2, host="gx-002")
    lab.now += 7200
    served = lab.log(range(30), "exit code: 0\n", start="gx-001:7:7 [0] NCCL INFO cudaDriverVersion 12040\n", day=5)
    lab.run(served, context=JobContext(id="9", name="n9"))
    failing_node(lab, "3", 6, host="gx-002")
    made = backtest(lab.database, lab.rules.policy, lab.rules.budgets)
    fates = {(one.what, one.fate) for one in made.of("drain")}
    assert ("gx-001", "false") in fates
    assert ("gx-002", "right") in fates


def test_what_is_deleted_is_not_left_in_the_file(tmp_path, rule_set) -> None:
    """Nor what is masked ever in it."""
    from diagnose.store.database import open_database

    folder = tmp_path / "logs"
    folder.mkdir()
    path = tmp_path / "memory.sqlite3"
    with open_database(str(path)) as database:
        lab = Lab(database, rule_set, folder)
        end = KEY_ERROR.replace("'role'", "'quuxquux' password=hunter2hunter2")
        lab.run(lab.log(range(3), end), context=JobContext("4711", "train", "zorkmid"))
    assert b"quuxquux" in path.read_bytes()
    assert b"zorkmid" in path.read_bytes()
    with open_database(str(path)) as database:
        assert delete_of_user(database, "zorkmid").incidents == 1
    for each in tmp_path.glob("memory.sqlite3*"):
        data = each.read_bytes()
        assert not any(word in data for word in (b"quuxquux", b"zorkmid", b"hunter2"))
        assert each.stat().st_mode & 0o077 == 0
