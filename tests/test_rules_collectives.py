"""What the ranks' reports of a stuck collective say together: who issued another one, and who never came."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from diagnose.lines.inventory import Inventory
from diagnose.lines.timeline import RankSeen, Timeline
from diagnose.models import Evidence, LogSource, ProgressEvent
from diagnose.rules.collectives import (
    absent_ranks,
    describe_ranks,
    find_mismatches,
    mismatch_findings,
    silent_ranks,
    wait_began,
)
from tests.made import finding, line, rules


def call(op="ALLREDUCE", seq=77, **more):
    return {"op": op, "seq": seq, **more}


def timeout(by_rank, **how):
    how.setdefault("ranks", set(by_rank))
    how.setdefault("role", "symptom")
    return finding(how.pop("id", "timeout"), how.pop("type", "NCCLTimeoutError"), by_rank=by_rank, at=100.0, **how)


def odd(*findings):
    return [(found.group, found.seq, dict(found.others)) for found in find_mismatches(findings)]


# Mismatches.


def test_ranks_that_issued_the_same_are_no_mismatch():
    assert odd(timeout({rank: call(numel_in=512) for rank in range(8)})) == []


def test_the_odd_one_out_is_named():
    reports = {0: call(), 1: call(), 2: call("BROADCAST"), 3: call()}
    (found,) = find_mismatches([timeout(reports)])
    assert (found.group, found.seq, found.usual, dict(found.others)) == ("", 77, "ALLREDUCE", {2: "BROADCAST"})


def test_the_size_belongs_to_the_call():
    reports = {
        0: call(numel_in=512, numel_out=512),
        1: call(numel_in=512, numel_out=512),
        2: call(numel_in=1, numel_out=512),
    }
    assert odd(timeout(reports)) == [("", 77, {2: "ALLREDUCE of 1/512 elements"})]


def test_one_against_one_names_both():
    assert odd(timeout({0: call(), 1: call("BROADCAST")})) == [("", 77, {0: "ALLREDUCE", 1: "BROADCAST"})]


def test_two_against_two_name_all():
    reports = {0: call(), 1: call(), 2: call("BROADCAST"), 3: call("BROADCAST")}
    assert [sorted(others) for _, _, others in odd(timeout(reports))] == [[0, 1, 2, 3]]


@pytest.mark.parametrize(
    "reports",
    [
        {0: call(seq=77), 1: call("BROADCAST", seq=78)},
        {0: call(pg="1"), 1: call("BROADCAST", pg="2")},
        {0: call(), 1: {"seq": 77}},
        {0: call(), 1: {"op": "BROADCAST"}},
        {0: call()},
        {},
    ],
    ids=["other number", "other group", "no call", "no number", "one rank", "none"],
)
def test_what_cannot_be_compared_is_no_mismatch(reports):
    assert odd(timeout(reports)) == []


@pytest.mark.parametrize("name", ["", "0", "default_pg"])
def test_the_global_group_has_many_names(name):
    assert len(odd(timeout({0: call(pg=name), 1: call("BROADCAST")}))) == 1


def test_reports_of_several_findings_are_seen_together():
    assert len(odd(timeout({0: call()}), timeout({1: call("BROADCAST")}, id="hang", type="CollectiveHang"))) == 1
    assert odd(timeout({0: call()}), timeout({1: call("BROADCAST")}, id="other", type="CUDAError")) == []


def test_the_finding_states_both_sides():
    evidence = tuple(Evidence(f"{rank}.log", 5, f"from {rank}", rank=rank) for rank in range(4))
    base = timeout({0: call(), 1: call(), 2: call("BROADCAST"), 3: call()}, evidence=evidence, survivable=True)
    (made,) = mismatch_findings([base], rules())
    assert (made.error_type, made.family, made.role, made.rule) == ("CollectiveMismatch", "comm", "cause", None)
    assert made.ranks == {2}
    assert made.captures["ranks"] == (2,)
    assert made.captures["seq"] == 77
    assert "BROADCAST" in made.captures["message"]
    assert [one.rank for one in made.evidence] == [2, 0]
    assert not made.survivable
    assert mismatch_findings([timeout({0: call(), 1: call()})], rules()) == []


# Absent ranks.

WORLD = 8


def inventory(world=WORLD, ranks=()):
    made = Inventory()
    if world:
        made.world(world, 2)
    for rank in ranks:
        made.learn_source(LogSource(f"rank_{rank}.log", rank=rank))
        made.observe(line(f"rank_{rank}.log", rank=rank))
    return made


def timeline(own=(), shared=(), source="job.log", ended=200.0):
    """`ended` is when each rank's own log ends; the time-out is at 100."""
    made = Timeline()
    for rank in own:
        made.observe(line(f"rank_{rank}.log", time=ended), 0)
    made.ranks.update({rank: RankSeen(line(f"rank_{rank}.log", 9), own=True) for rank in own})
    made.ranks.update({rank: RankSeen(line(source, 9), own=False) for rank in shared})
    return made


def stuck(*ranks, **how):
    return timeout({rank: call() for rank in ranks}, source=how.pop("source", "job.log"), **how)


def test_a_rank_whose_log_was_read_and_that_did_not_report_is_absent():
    assert absent_ranks(stuck(0, 1, 2, 4, 5, 6, 7), timeline(own=range(8)), inventory(), None) == (3,)


def test_a_rank_whose_log_was_not_read_is_not_absent():
    assert absent_ranks(stuck(0, 1, 2, 4, 5, 6, 7), timeline(own=[0, 1, 2]), inventory(), None) == ()


@pytest.mark.parametrize(("ended", "wanted"), [(60.0, ()), (97.0, ()), (99.0, (3,)), (100.0, (3,)), (None, ())])
def test_a_rank_whose_log_ends_before_the_time_out_is_not_absent(ended, wanted):
    read = timeline(own=range(8), ended=ended)
    assert absent_ranks(stuck(0, 1, 2, 4, 5, 6, 7), read, inventory(), None) == wanted


def test_a_log_that_tells_of_its_process_s_end_was_read_past_the_time_out():
    read = timeline(own=range(8), ended=60.0)
    reports = stuck(0, 1, 2, 4, 5, 6, 7)
    assert absent_ranks(reports, read, inventory(), None, {"rank_3.log"}) == (3,)
    assert absent_ranks(reports, read, inventory(), None, {"rank_4.log"}) == ()


def test_a_rank_heard_in_the_file_of_the_time_out_is_absent_and_one_heard_elsewhere_is_not():
    here = timeline(own=[0, 1, 2], shared=[3])
    assert absent_ranks(stuck(0, 1, 2), here, inventory(4), None) == (3,)
    elsewhere = timeline(own=[0, 1, 2], shared=[3], source="launcher.log")
    assert absent_ranks(stuck(0, 1, 2), elsewhere, inventory(4), None) == ()


def test_a_rank_known_only_by_its_number_is_absent_where_all_ranks_write_to_one_file():
    one_file = timeline(shared=[0, 1, 2])
    known = inventory(4, ranks=[3])
    assert absent_ranks(stuck(0, 1, 2), one_file, known, None) == (3,)
    assert absent_ranks(stuck(0, 1, 2), one_file, inventory(4), None) == ()
    own_files = timeline(own=[0, 1, 2])
    assert absent_ranks(stuck(0, 1, 2), own_files, known, None) == ()


@pytest.mark.parametrize(("reported", "wanted"), [((0,), ()), ((0, 1), ()), ((0, 1, 2), (3,)), ((), ())])
def test_where_as_many_are_silent_as_speak_nobody_is_named(reported, wanted):
    assert absent_ranks(stuck(*reported), timeline(own=range(4)), inventory(4), None) == wanted


def test_of_two_ranks_the_silent_one_is_named():
    assert absent_ranks(stuck(0), timeline(own=range(2)), inventory(2), None) == (1,)


def test_without_a_world_size_only_ranks_that_were_seen_are_members():
    known = inventory(None, ranks=[0, 1, 2])
    assert absent_ranks(stuck(0, 1), timeline(own=range(8)), known, None) == (2,)


def test_a_world_size_that_the_reports_refute_is_not_believed():
    assert absent_ranks(stuck(8, 9), timeline(own=range(10)), inventory(4), None) == ()


def test_members_of_a_group_are_those_that_were_stated():
    known = inventory()
    for place, rank in enumerate((4, 5, 6)):
        known.group_member("tp_1", None, place, rank)
    assert absent_ranks(stuck(4, 5), timeline(own=range(8)), known, "tp_1") == (6,)
    assert absent_ranks(stuck(4, 5), timeline(own=range(8)), known, "tp_9") == ()


RANKS = st.frozensets(st.integers(0, WORLD - 1))


@given(reported=RANKS, read=RANKS, taken=RANKS, world=st.booleans())
def test_only_ranks_that_were_read_and_did_not_report_are_absent(reported, read, taken, world):
    """A rank's report is in its own log: with the log goes the report, and the rank was not read any more."""
    left = (read | reported) - taken
    assert set(_absent(reported & left, left, world)) <= left - reported


@given(reported=RANKS, read=RANKS, taken=RANKS)
@example(reported=frozenset({0, 1}), read=frozenset({2, 3}), taken=frozenset({3}))
def test_taking_logs_away_never_adds_an_absent_rank(reported, read, taken):
    before, left = read | reported, (read | reported) - taken
    assert set(_absent(reported & left, left, True)) <= set(_absent(reported, before, True))


def _absent(reported, read, world):
    found = stuck(*reported, source="rank_0.log")
    return absent_ranks(found, timeline(own=read), inventory(WORLD if world else None, read), None)


@given(st.frozensets(st.integers(0, 31), min_size=1), st.frozensets(st.integers(0, 31)))
def test_nobody_who_reported_is_absent(reported, read):
    assert not reported & set(absent_ranks(stuck(*reported), timeline(own=read), inventory(32), None))


def test_ranks_in_words():
    assert describe_ranks((3,)) == "rank 3"
    assert describe_ranks((0, 1, 2, 7)) == "ranks 0-2, 7"
    assert describe_ranks(range(5, 64, 8)) == "ranks 5, 13, 21, 29, 37, 45 and 2 more"


# Silent ranks.

BEGAN = 1000.0  # when the others began to wait; they report 600 s later


def logs(steps, untimed=()):
    """Own logs of ranks: the step that each came to, one every 60 s; 0 for a rank that prints none."""
    made = Timeline()
    for rank, last in steps.items():
        name = f"rank_{rank}.log"
        own = LogSource(name, rank=rank)
        for step in range(1, last + 1) or [0]:
            at = None if rank in untimed else BEGAN - 30 - 60 * (max(steps.values()) - step)
            one = replace(line(name, step + 3, rank=rank, time=at), source=own)
            if step:
                made.add(ProgressEvent("step", one, 0, step=step))
            made.observe(one, 0)
    return made


def waited(steps, *silent, world=None, **how):
    """Who is silent where all ranks but these report after the line that they print last."""
    reported = set(steps) - set(silent)
    spans = {f"rank_{rank}.log": (steps[rank] + 4, steps[rank] + 6) for rank in reported}
    made = finding(
        "timeout",
        "NCCLTimeoutError",
        role="symptom",
        ranks=reported,
        by_rank={rank: call() for rank in reported},
        at=BEGAN + 600,
        spans=spans,
        captures={"ran_ms": 600_000},
    )
    read = how.pop("read", None) or logs(steps, how.pop("untimed", ()))
    return silent_ranks(made, read, inventory(world, steps), how.pop("group", None))


def of_all(last, world=8, **other):
    return dict.fromkeys(range(world), last) | {int(name[1:]): value for name, value in other.items()}


def test_a_rank_whose_log_goes_as_far_as_the_others_is_silent():
    assert waited(of_all(9), 3) == (3,)
    assert waited(of_all(9), 3, world=8) == (3,)
    assert waited(of_all(9), 3, untimed=range(8)) == (3,)
    assert waited(of_all(9, world=2), 1) == (1,)
    assert waited(of_all(9), 6, 7) == (6, 7)


@pytest.mark.parametrize(("last", "wanted"), [(1, ()), (6, ()), (8, (3,)), (9, (3,))])
def test_a_log_that_ends_earlier_than_the_others_went_was_cut(last, wanted):
    """One step more may have been finished without it, as far as its own pace tells."""
    assert waited(of_all(9, r3=last), 3) == wanted
    assert waited(of_all(9, r3=last), 3, untimed=range(8)) == (wanted if last == 9 else ())


def test_ranks_that_print_no_steps_are_compared_by_their_lines():
    steps = of_all(0, r0=9)
    assert waited(steps, 3) == (3,)
    short = logs(steps)
    short.ranks[3] = replace(short.ranks[3], line=line("rank_3.log", 1))
    assert waited(steps, 3, read=short) == ()


def test_nobody_is_silent_as_long_as_another_rank_s_log_is_not_there():
    steps = {rank: 9 for rank in range(8) if rank != 5}
    assert waited(steps, 3, world=8) == ()
    assert waited(steps, 3) == ()
    assert waited(of_all(9, r5=2), 3, 5) == ()


def test_nobody_is_silent_where_all_report_or_as_many_are_silent():
    assert waited(of_all(9)) == ()
    assert waited(of_all(9), *range(8)) == ()
    assert waited(of_all(9), 4, 5, 6, 7) == ()


def test_a_log_of_which_something_was_not_read_blames_nobody():
    read = logs(of_all(9))
    read.truncated.add("rank_3.log")
    assert waited(of_all(9), 3, read=read) == ()


def test_a_rank_without_a_log_of_its_own_is_not_silent():
    read = logs(of_all(9))
    read.ranks[3].own = False
    assert waited(of_all(9), 3, read=read) == ()


def test_members_of_a_group_that_nobody_stated_are_not_silent():
    assert waited(of_all(9), 3, group="tp_9") == ()
    assert waited(of_all(9), 3, group="default_pg") == (3,)


@given(silent=RANKS, taken=RANKS, last=st.lists(st.integers(0, 9), min_size=WORLD, max_size=WORLD))
def test_taking_logs_away_never_adds_a_silent_rank(silent, taken, last):
    steps = dict(enumerate(last))
    left = {rank: step for rank, step in steps.items() if rank not in taken}
    if left:
        assert set(waited(left, *silent, world=WORLD)) <= set(waited(steps, *silent, world=WORLD))


def test_the_wait_began_before_it_was_reported():
    assert wait_began(finding("t", at=700.0, captures={"ran_ms": 600_000})) == 100.0
    assert wait_began(finding("t", at=700.0, captures={"timeout_ms": 600_000})) == 100.0
    assert wait_began(finding("t", at=700.0)) is None
    assert wait_began(finding("t", captures={"ran_ms": 5})) is None
