"""What happened before: units that are one, faults that recur on them, hosts that stand out."""

import pytest

from diagnose.lines.timeline import AttemptProgress
from diagnose.models import Culprit, ExcludedFinding
from diagnose.rules.repeats import Earlier, Repeats, Unit, days_remembered, look_back, unit_of
from tests.made import finding, rule

GPU, OTHER_GPU, HOST = "0000:3b:00", "0000:5e:00", frozenset({"n1"})
AT_30 = AttemptProgress(steps=30, first_step=1, last_step=30)
NOW = 1.77e9
DAY = 86_400.0


def unit(hosts=(), gpus=(), nics=(), rank=None, *, by_rank=False):
    return Unit(frozenset(hosts), frozenset(gpus), frozenset(nics), rank, by_rank)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (unit(["n1"], [GPU]), unit(["n1"], [GPU]), True),
        (unit(["n1"], [GPU]), unit(["n2"], [GPU]), False),  # slots are numbered alike on all hosts
        (unit([], [GPU]), unit(["n2"], [GPU]), True),
        (unit(["n1"], [GPU]), unit(["n1"], [OTHER_GPU]), False),
        (unit(["n1"], [GPU]), unit(["n1"]), False),  # which GPU it was is not told
        (unit(["n1"]), unit(["n1"]), True),
        (unit(["n1"], nics=["mlx5_0"]), unit(["n1"], nics=["mlx5_3"]), False),
        (unit(["n1"], nics=["mlx5_0"]), unit(["n1"], nics=["mlx5_0"]), True),
        (unit(["n1"], rank=3, by_rank=True), unit(["n1"], rank=3, by_rank=True), True),
        (unit(["n1"], rank=3, by_rank=True), unit(["n1"], rank=4, by_rank=True), False),
        (unit(["n1"], rank=3, by_rank=True), unit(["n2"], rank=3, by_rank=True), False),
        (unit(by_rank=True), unit(by_rank=True), False),
        (unit(), unit(), False),
    ],
)
def test_units_are_one_where_the_most_exact_name_is(one, other, same):
    assert one.same(other) is same
    assert other.same(one) is same


def test_a_named_culprit_is_the_unit_rather_than_who_complained():
    root = finding("f", "NetworkError", hosts={"n1"}, ranks={0})
    assert unit_of(root, (Culprit("host", "n9", "lost"),)).hosts == {"n9"}
    assert unit_of(root, ()).hosts == {"n1"}


def back(root, earlier=(), excluded=(), *, progress=AT_30, witnesses=(), same_kind=(), by=None, culprits=()):
    made = [Earlier(one, unit_of(one, ()), how) for one, how in earlier]
    aside = [ExcludedFinding(one, "outside the job's time") for one in excluded]
    return look_back(root, unit_of(root, culprits), progress, made, aside, witnesses, same_kind, by, str)


def test_nothing_before_is_nothing():
    assert back(finding("f", "ECCError", at=NOW)) == Repeats()


def test_another_kind_of_error_before_is_no_repeat():
    root = finding("f", "ECCError", at=NOW, hosts={"n1"}, gpus={GPU})
    assert back(root, [(finding("e", "NetworkError", hosts={"n1"}), AT_30)]) == Repeats()


def test_steps_of_earlier_attempts_are_compared():
    root = finding("f", "NCCLTimeoutError")
    for last, at_step in ((30, True), (44, False)):
        found = back(root, [(finding("e", "NCCLTimeoutError"), AttemptProgress(steps=3, last_step=last))])
        assert (found.attempts, found.at_step, found.other_step) == ((0,), at_step, not at_step)


def test_twice_before_a_step():
    root, before = finding("f", "CollectiveHang"), finding("e", "CollectiveHang")
    assert back(root, [(before, AttemptProgress())], progress=AttemptProgress()).before_step
    assert not back(root, [(before, AT_30)], progress=AttemptProgress()).before_step
    assert not back(root, [(before, AttemptProgress())]).before_step


@pytest.mark.parametrize(
    ("error_type", "days_ago", "again"),
    [("ECCError", 29, True), ("ECCError", 31, False), ("NetworkError", 0.9, True), ("NetworkError", 1.1, False)],
)
def test_a_kernel_log_that_reaches_back_is_a_history(error_type, days_ago, again):
    where = {"hosts": {"n1"}, "gpus": {GPU}, "sources": {"kernel"}}
    root = finding("f", error_type, at=NOW, **where)
    assert back(root, excluded=[finding("e", error_type, at=NOW - days_ago * DAY, **where)]).same_unit is again
    assert days_remembered(error_type) in (1, 30)


def test_what_came_after_the_job_is_no_history():
    where = {"hosts": {"n1"}, "gpus": {GPU}, "sources": {"kernel"}}
    root = finding("f", "ECCError", at=NOW, **where)
    assert not back(root, excluded=[finding("e", "ECCError", at=NOW + DAY, **where)]).same_unit


@pytest.mark.parametrize(
    ("pids", "apart", "again"),
    [((1, 2), 7200, True), ((1, 2), 5, False), ((1,), 7200, False)],
    ids=["two processes", "one moment", "one process"],
)
def test_a_gpu_that_fails_process_after_process(pids, apart, again):
    fault = finding("x", "CUDAError", first=NOW, last=NOW + apart, gpus={GPU}, hosts={"n1"}, pids=frozenset(pids))
    assert back(fault).same_unit is again
    assert back(finding("f", "CUDAError", at=NOW + apart), witnesses=[fault]).same_unit is again


@pytest.mark.parametrize(
    ("count", "first", "last", "again"),
    [(2, NOW, NOW + 300, True), (2, NOW, NOW + 1, False), (3, None, None, True), (2, None, None, False)],
)
def test_a_port_that_goes_and_comes_back(count, first, last, again):
    made = rule(signatures={"down": "x"}, error_type="NetworkError", tags=("link",))
    root = finding("f", "NetworkError", hosts={"n1"}, count=count, first=first, last=last)
    assert back(root, by=made).same_unit is again
    assert not back(root, by=rule(signatures={"down": "x"})).same_unit


def test_an_exception_on_the_same_rank_is_a_line_of_code():
    root, before = (finding(name, "KeyError", ranks={3}, traceback=True) for name in "fe")
    assert not back(root, [(before, AT_30)]).same_unit


def complaint(number, host, peer):
    return finding(f"f{number}", "NetworkError", hosts={host}, captures={"peer": peer}, rule="retries")


@pytest.mark.parametrize(
    ("pairs", "out"),
    [
        ([("n1", "n9"), ("n2", "n9"), ("n3", "n9")], True),
        ([("n1", "n9"), ("n9", "n2"), ("n3", "n9")], True),  # it complains itself
        ([("n1", "n9"), ("n2", "n9")], False),  # two pairs have an end in common by chance
        ([("n1", "n9"), ("n2", "n9"), ("n3", "n4")], False),
        ([("n1", "n9")], False),
    ],
)
def test_one_end_of_all_failing_pairs_stands_out(pairs, out):
    made = [complaint(number, *pair) for number, pair in enumerate(pairs)]
    assert back(made[0], same_kind=made).singled_out is out
