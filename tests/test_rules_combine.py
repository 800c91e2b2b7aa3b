"""Rules over several signatures: all, sequence, unless, min_count, within, join."""

import pytest

from diagnose.lines.inventory import Inventory
from diagnose.models import Match
from diagnose.models.rule import Within
from diagnose.rules.combine import combine
from diagnose.rules.matcher import Hit, HitStore, Matcher
from diagnose.rules.sighting import EvidenceDraft
from diagnose.settings import Limits
from tests.made import Sightings, line, rule, rules, sightings

AB = {"alpha": r"alpha failed(?: on (?P<disk>\w+))?", "beta": r"beta failed(?: on (?P<disk>\w+))?"}


def found(match, log, *, signatures=AB, kinds=None, **how):
    """Lines (by source) at which the rule is sighted, groups joined."""
    made = rule(signatures=signatures, match=match, sources=("job", "kernel"), **how)
    return sightings(rules(made), log, kinds=kinds)


def lines(*args, **how):
    return sorted({number for _, number in found(*args, **how).lines})


ALL = Match(all=("alpha", "beta"))
ONE_OF = Match(any=("alpha",), unless=("beta",))


# all


@pytest.mark.parametrize("log", ["alpha failed\nquiet\nbeta failed\n", "beta failed\nquiet\nalpha failed\n"])
def test_all_needs_every_signature_in_any_order(log):
    assert lines(ALL, log) == [1, 3]


@pytest.mark.parametrize("log", ["alpha failed\n", "beta failed\nbeta failed\n", "alpha\nbeta\n"])
def test_all_is_silent_where_one_is_missing(log):
    assert lines(ALL, log) == []


def test_all_joins_the_nearest():
    assert lines(ALL, "alpha failed\n" + "quiet\n" * 8 + "beta failed\n" + "quiet\n" * 9 + "beta failed\n") == [1, 10]


def test_all_reaches_over_sources_and_starts_with_the_job():
    log = {"n1.dmesg": "[    5.000000] alpha failed\n", "job.log": "quiet\nbeta failed\n"}
    made = found(ALL, log, kinds={"n1.dmesg": "kernel"})
    assert made.lines == [("job.log", 2), ("n1.dmesg", 1)]


# sequence


def test_a_sequence_has_an_order():
    sequence = Match(sequence=("alpha", "beta"))
    assert lines(sequence, "alpha failed\nbeta failed\n") == [1, 2]
    assert lines(sequence, "beta failed\nalpha failed\n") == []


def test_a_sequence_over_two_logs_is_ordered_by_time():
    sequence = Match(sequence=("alpha", "beta"))
    early, late = "2026-03-01 10:00:00 ", "2026-03-01 10:00:30 "
    assert len(found(sequence, {"a.log": early + "alpha failed\n", "b.log": late + "beta failed\n"}).kept) == 2
    assert found(sequence, {"a.log": late + "alpha failed\n", "b.log": early + "beta failed\n"}).kept == []


def test_what_time_is_not_known_is_assumed_and_says_so():
    sequence = Match(sequence=("alpha", "beta"))
    made = found(sequence, {"a.log": "alpha failed\n", "b.log": "beta failed\n"})
    assert [one.captures.get("assumed") for one in made.kept] == [True, True]
    timed = {"a.log": "2026-03-01 10:00:00 alpha failed\n", "b.log": "2026-03-01 10:00:30 beta failed\n"}
    assert [one.captures.get("assumed") for one in found(sequence, timed).kept] == [None, None]


# unless


def test_unless_cancels_what_came_before_it():
    assert lines(ONE_OF, "alpha failed\n") == [1]
    assert lines(ONE_OF, "alpha failed\nquiet\nbeta failed\n") == []


def test_unless_does_not_cancel_what_comes_after_it():
    assert lines(ONE_OF, "alpha failed\nbeta failed\nalpha failed\n") == [3]


def test_unless_cancels_at_the_same_rank_only():
    log = "[rank0]: alpha failed\n[rank1]: alpha failed\n[rank1]: beta failed\n"
    assert lines(ONE_OF, log) == [1]


def test_unless_in_another_log_cancels_only_when_time_says_it_came_later():
    assert found(ONE_OF, {"a.log": "alpha failed\n", "b.log": "beta failed\n"}).lines == [("a.log", 1)]
    later = {"a.log": "2026-03-01 10:00:00 alpha failed\n", "b.log": "2026-03-01 10:00:09 beta failed\n"}
    assert found(ONE_OF, later).lines == []
    sooner = {"a.log": "2026-03-01 10:00:09 alpha failed\n", "b.log": "2026-03-01 10:00:00 beta failed\n"}
    assert found(ONE_OF, sooner).lines == [("a.log", 1)]


def test_what_was_over_again_is_sighted_with_the_line_that_says_so():
    log = (
        "alpha failed on sda\nbeta failed on sdb\nbeta failed on sda\nquiet\nbeta failed on sda\nalpha failed on sdb\n"
    )
    made = found(Match(any=("alpha",), unless=("beta",), join=("disk",)), log)
    assert (made.lines, made.over) == ([("job.log", 6)], [("job.log", 1, 3)])
    assert [one.number for one in made.kept[0].also] == [3]


def test_each_outage_ends_with_the_first_line_after_it():
    made = found(ONE_OF, "beta failed\nalpha failed\nbeta failed\nalpha failed\nalpha failed\nbeta failed\n")
    assert made.over == [("job.log", 2, 3), ("job.log", 4, 6), ("job.log", 5, 6)]
    assert made.lines == []


def test_what_a_flapping_port_says_is_paired_whole():
    made = rule(signatures=AB, match=ONE_OF)
    matcher = Matcher(rules(made), Sightings(), Limits())
    for name, first in (("alpha", 1), ("beta", 2)):
        store = matcher.hits.setdefault(made.id, {}).setdefault(name, HitStore())
        for number in range(first, 2001, 2):
            one = line(number=number)
            store.add(Hit(name, one, 0, {}, EvidenceDraft(one)))
    assert combine(matcher, Inventory()) == ()
    assert len(matcher.sink.over) == 1000


def test_unless_honours_within():
    near = Match(any=("alpha",), unless=("beta",), within=Within(lines=5))
    assert lines(near, "alpha failed\nquiet\nbeta failed\n") == []
    assert lines(near, "alpha failed\n" + "quiet\n" * 9 + "beta failed\n") == [1]


# min_count


@pytest.mark.parametrize(("count", "wanted"), [(2, []), (3, [1, 2, 3]), (5, [1, 2, 3, 4, 5])])
def test_min_count_wants_so_many(count, wanted):
    assert lines(Match(any=("alpha",), min_count=3), "alpha failed\n" * count) == wanted


def test_min_count_counts_after_unless():
    match = Match(any=("alpha",), unless=("beta",), min_count=2)
    assert lines(match, "alpha failed\nbeta failed\nalpha failed\n") == []
    assert lines(match, "alpha failed\nbeta failed\nalpha failed\nalpha failed\n") == [3, 4]


# within


@pytest.mark.parametrize(("between", "wanted"), [(3, True), (4, False)])
def test_within_lines(between, wanted):
    log = "alpha failed\n" + "quiet\n" * between + "beta failed\n"
    assert bool(lines(Match(all=("alpha", "beta"), within=Within(lines=4)), log)) is wanted


def test_within_lines_says_nothing_of_two_files():
    log = {"a.log": "alpha failed\n", "b.log": "quiet\n" * 50 + "beta failed\n"}
    assert found(Match(all=("alpha", "beta"), within=Within(lines=4)), log).kept


@pytest.mark.parametrize(("second", "wanted"), [(10, True), (11, False)])
def test_within_seconds(second, wanted):
    log = f"2026-03-01 10:00:00 alpha failed\n2026-03-01 10:00:{second} beta failed\n"
    assert bool(lines(Match(all=("alpha", "beta"), within=Within(seconds=10)), log)) is wanted


@pytest.mark.parametrize(("ranks", "wanted"), [((0, 0), True), ((0, 1), False), ((0, None), True)])
def test_within_the_same_rank(ranks, wanted):
    tags = [f"[rank{rank}]: " if rank is not None else "" for rank in ranks]
    log = f"{tags[0]}alpha failed\n{tags[1]}beta failed\n"
    assert bool(lines(Match(all=("alpha", "beta"), within=Within(same=("rank",))), log)) is wanted


HOSTS = {"alpha": r"(?P<host>n\d) alpha failed", "beta": r"(?P<host>n\d)? ?beta failed"}


@pytest.mark.parametrize(("second", "wanted"), [("n1 ", True), ("n2 ", False), ("", True)])
def test_within_the_same_host(second, wanted):
    match = Match(all=("alpha", "beta"), within=Within(same=("host",)))
    assert bool(lines(match, f"at n1 alpha failed\nat {second}beta failed\n", signatures=HOSTS)) is wanted


# join


@pytest.mark.parametrize(("second", "wanted"), [(" on sda", True), (" on sdb", False), ("", True)])
def test_join_wants_the_same_value_where_both_have_one(second, wanted):
    log = f"alpha failed on sda\nbeta failed{second}\n"
    assert bool(lines(Match(all=("alpha", "beta"), join=("disk",)), log)) is wanted


def test_join_passes_over_the_nearer_of_another_unit():
    log = "alpha failed on sda\nbeta failed on sdb\nbeta failed on sda\n"
    made = found(Match(all=("alpha", "beta"), join=("disk",)), log)
    assert [number for _, number in made.lines] == [1, 3]
    assert [one.captures["disk"] for one in made.kept] == ["sda", "sda"]


def test_captures_of_all_signatures_come_together():
    signatures = {"alpha": r"alpha took (?P<size>\d+)", "beta": r"beta left (?P<rest>\d+)"}
    made = found(ALL, "alpha took 7\nbeta left 3\n", signatures=signatures, captures={"size": "int", "rest": "int"})
    assert {(one.captures["size"], one.captures["rest"]) for one in made.kept} == {(7, 3)}


# Bounds.


def test_more_hits_than_can_be_paired_are_reported_and_not_waited_for():
    made = rule(signatures=AB, match=Match(sequence=("beta", "alpha")))
    matcher = Matcher(rules(made), Sightings(), Limits())
    for name, start in (("alpha", 0), ("beta", 5000)):
        store = matcher.hits.setdefault(made.id, {}).setdefault(name, HitStore())
        for number in range(start, start + 2000):
            one = line(number=number)
            store.add(Hit(name, one, 0, {}, EvidenceDraft(one)))
        assert len(store.all()) <= 1024
        assert (store.all()[0].line.number, store.all()[-1].line.number) == (start, start + 1999)
    assert combine(matcher, Inventory()) == ("rule a-rule: too many hits to pair them all",)
