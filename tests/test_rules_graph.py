"""The explanation graph: who explains whom, in which order what is left stands, and how far time and place reach."""

import pytest

from diagnose.models import Edge
from diagnose.rules.edges import Edges
from diagnose.rules.graph import AFTER_SYMPTOM, DEFAULT_TIMEOUT, MARGIN, explain, order, plausible, reach
from diagnose.rules.precedence import Clocks
from tests.made import finding, rule, rules

NOTHING = Edges(rules())


def edges(*made):
    return Edges(rules(*made))


def graph(*findings, made=(), specificity=None):
    return explain(findings, edges(*made), Clocks(), specificity or {})


def names(findings):
    return [one.id for one in findings]


def test_what_nothing_explains_is_the_root():
    made = graph(
        finding("exit", "ChildFailed", at=700.0),
        finding("waited", "NCCLTimeoutError", role="symptom", at=690.0),
        finding("fault", "CUDAError", at=100.0),
    )
    assert names(made.roots) == ["fault"]
    assert made.explained["waited"] == ("fault",)
    assert set(made.explained["exit"]) == {"waited", "fault"}
    assert made.tied == ()


def test_hardware_explains_the_device_error_of_its_own_host_only():
    fault = finding("fault", "ECCError", at=100.0, hosts={"n1"})
    same = finding("same", "CUDAError", at=101.0, hosts={"n1"})
    other = finding("other", "CUDAError", at=101.0, hosts={"n2"})
    made = graph(fault, same, other)
    assert made.explained["same"] == ("fault",)
    assert made.explained["other"] == ()
    assert set(names(made.roots)) == {"fault", "other"}


def test_a_rule_never_explains_its_own_kind():
    one = rule("r", signatures={"x": "x"}, explains=("cuda/CUDAError",))
    made = graph(finding("a", rule="r", at=1.0), finding("b", rule="r", at=9.0), made=[one])
    assert made.explained == {"a": (), "b": ()}


@pytest.mark.parametrize("how", ["explains", "explained_by"])
def test_a_rule_states_its_edges_from_either_end(how):
    cause = rule("cause", signatures={"x": "x"}, explains=("effect",) if how == "explains" else ())
    effect = rule("effect", signatures={"y": "y"}, explained_by=("script/KeyError",) if how == "explained_by" else ())
    made = graph(
        finding("c", "KeyError", rule="cause", at=10.0),
        finding("e", "RuntimeError", rule="effect", at=20.0),
        made=[cause, effect],
    )
    assert made.explained["e"] == ("c",)


def test_teardown_explains_only_what_its_rule_names():
    closed, error = finding("t", "Terminated", rule="t-rule", at=1.0), finding("e", "RuntimeError", at=2.0)
    assert graph(closed, error).explained["e"] == ()
    named = rule("t-rule", signatures={"x": "x"}, role="teardown", explains=("framework/*",))
    assert edges(named).scope(closed, error) == "job"


def test_a_cause_explains_teardown_also_where_the_teardown_rule_points_back():
    """Role stands before time within a circle: what kills a process is no effect of the clean-up."""
    named = rule("t-rule", signatures={"x": "x"}, role="teardown", explains=("comm/*",))
    closed = finding("t", "Terminated", rule="t-rule", at=1.0)
    waited = finding("waited", "NCCLTimeoutError", role="symptom", at=2.0)
    made = graph(closed, waited, made=[named])
    assert made.explained == {"t": ("waited",), "waited": ()}


def test_shadow_findings_explain_nothing_and_are_no_root():
    made = graph(finding("shadow", "ECCError", at=1.0, rule="s", shadow=True), finding("fault", "CUDAError", at=2.0))
    assert made.explained["fault"] == ()
    assert names(made.roots) == ["fault"]
    effect = graph(finding("fault", "CUDAError", at=2.0), finding("s", "ChildFailed", at=3.0, shadow=True))
    assert effect.explained["s"] == ("fault",)


# Cycles.

A_AND_B = (
    rule("a", signatures={"x": "x"}, explains=("b",)),
    rule("b", signatures={"y": "y"}, explains=("a",)),
)


@pytest.mark.parametrize("turn", [1, -1])
@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
def test_a_circle_is_broken_by_time(first, second, turn):
    pair = [
        finding("early", "CUDAError", rule=first, at=100.0),
        finding("late", "NetworkError", rule=second, at=110.0),
    ][::turn]
    made = graph(*pair, made=A_AND_B)
    assert made.explained == {"early": (), "late": ("early",)}
    assert names(made.roots) == ["early"]
    assert len(made.notes) == 1
    assert "circle" in made.notes[0]


def test_a_circle_of_three_leaves_one_root_and_keeps_what_leads_into_it():
    made = [
        rule("a", signatures={"x": "x"}, explains=("b",)),
        rule("b", signatures={"x": "x"}, explains=("c",)),
        rule("c", signatures={"x": "x"}, explains=("a",)),
    ]
    types = {"a": "CUDAError", "b": "NetworkError", "c": "HostOutOfMemory"}
    found = [finding(name, types[name], rule=name, at=100.0 + 5 * number) for number, name in enumerate("cab")]
    result = graph(*found, finding("exit", "ChildFailed", at=200.0), made=made)
    assert names(result.roots) == ["c"]
    assert result.explained["a"] == ("c",)
    assert result.explained["b"] == ("a",)
    assert set(result.explained["exit"]) == {"a", "b", "c"}


def test_a_circle_without_times_is_broken_by_the_file():
    pair = [
        finding("late", "NetworkError", rule="b", source="job.log", line=40),
        finding("early", "CUDAError", rule="a", source="job.log", line=20),
    ]
    assert names(graph(*pair, made=A_AND_B).roots) == ["early"]


def test_a_circle_that_nothing_orders_still_has_a_root():
    pair = [finding("one", "CUDAError", rule="a"), finding("two", "NetworkError", rule="b")]
    result = graph(*pair, made=A_AND_B, specificity={"b": 9})
    assert names(result.roots) == ["two"]
    assert result.explained["one"] == ("two",)


# Order.


def test_role_comes_before_time():
    found = [
        finding("teardown", "ChildFailed", at=1.0),
        finding("symptom", "NCCLTimeoutError", role="symptom", at=2.0),
        finding("cause", "KeyError", at=3.0),
    ]
    assert names(order(found, Clocks(), {})) == ["cause", "symptom", "teardown"]


def test_without_times_the_more_specific_stands_first_then_the_id():
    found = [finding("z", "KeyError", rule="short"), finding("y", "CUDAError", rule="long"), finding("x", "KeyError")]
    assert names(order(found, Clocks(), {"short": 3, "long": 30})) == ["y", "z", "x"]
    assert names(order([finding("b"), finding("a")], Clocks(), {})) == ["a", "b"]


def test_time_comes_before_specificity():
    found = [finding("late", rule="long", at=50.0), finding("early", rule="short", at=10.0)]
    assert names(order(found, Clocks(), {"short": 1, "long": 90})) == ["early", "late"]


def test_order_does_not_depend_on_the_order_given():
    found = [finding(str(number), at=float(10 * number)) for number in range(6)]
    assert names(order(found[::-1], Clocks(), {})) == names(order(found, Clocks(), {})) == list("012345")


def test_many_findings_are_all_kept():
    found = [finding(f"f{number:03}") for number in range(200)]
    assert sorted(names(order(found, Clocks(), {}))) == names(found)


def test_tied_are_those_that_time_does_not_set_apart():
    made = graph(
        finding("one", "KeyError", at=10.0), finding("two", "CUDAError", at=11.0), finding("far", "KeyError", at=99.0)
    )
    assert made.roots[0].id == "one"
    assert names(made.tied) == ["two"]


def test_a_symptom_is_no_rival_of_a_cause():
    made = graph(finding("cause", "KeyError", hosts={"a"}), finding("waited", "CUDAError", role="symptom"))
    assert made.tied == ()


# Plausible windows.


def wait(**captures):
    return finding("effect", "NCCLTimeoutError", role="symptom", at=10_000.0, captures=captures)


@pytest.mark.parametrize(
    ("captures", "longest"),
    [({}, DEFAULT_TIMEOUT), ({"timeout_ms": 600_000}, 600.0), ({"ran_ms": 900_500, "timeout_ms": 600_000}, 900.5)],
)
def test_a_cause_lies_within_the_operations_own_time_out(captures, longest):
    effect = wait(**captures)
    assert reach(effect) == longest + MARGIN
    at = effect.first - longest - MARGIN
    assert plausible(finding("c", at=at), effect, "job", Clocks())
    assert not plausible(finding("c", at=at - 1), effect, "job", Clocks())


def test_a_cause_may_be_logged_a_little_after_its_effect():
    effect = wait()
    assert plausible(finding("c", at=effect.first + AFTER_SYMPTOM), effect, "job", Clocks())
    assert not plausible(finding("c", at=effect.first + AFTER_SYMPTOM + 1), effect, "job", Clocks())


def test_clean_up_comes_when_it_comes():
    assert plausible(finding("c", at=0.0), finding("e", "ChildFailed", at=1e6), "job", Clocks())
    assert not plausible(finding("c", at=1e6), finding("e", "ChildFailed", at=0.0), "job", Clocks())


def test_a_text_as_time_out_is_no_time_out():
    assert reach(wait(timeout_ms="soon")) == DEFAULT_TIMEOUT + MARGIN


def test_the_common_clock_decides():
    effect, cause = wait(), finding("c", at=10_300.0, source="n1.dmesg")
    assert not plausible(cause, effect, "job", Clocks())
    assert plausible(cause, effect, "job", Clocks({"n1.dmesg": -300.0}))


@pytest.mark.parametrize(
    ("apart", "role", "wanted"), [(61, "cause", False), (60, "cause", True), (500, "symptom", True)]
)
def test_without_times_a_cause_may_stand_a_few_lines_below_its_effect(apart, role, wanted):
    cause = finding("c", line=1 + apart, source="job.log")
    effect = finding("e", "RuntimeError", role=role, line=1, source="job.log")
    assert plausible(cause, effect, "job", Clocks()) is wanted


def test_what_is_not_known_speaks_for_neither_side():
    assert plausible(finding("c"), finding("e", "RuntimeError"), "job", Clocks())
    assert plausible(finding("c", at=1.0), finding("e", "RuntimeError"), "gpu", Clocks())


# Scopes.

GPU, OTHER_GPU = {"0000:ac:00"}, {"0000:1b:00"}


@pytest.mark.parametrize(
    ("scope", "cause", "effect", "wanted"),
    [
        ("job", {"hosts": {"a"}, "gpus": GPU}, {"hosts": {"b"}, "gpus": OTHER_GPU}, True),
        ("host", {"hosts": {"a"}}, {"hosts": {"b"}}, False),
        ("host", {"hosts": {"a"}}, {"hosts": {"a", "b"}}, True),
        ("host", {"hosts": {"a"}, "gpus": GPU}, {"hosts": {"a"}, "gpus": OTHER_GPU}, True),
        ("host", {"hosts": {"a"}}, {}, True),
        ("gpu", {"hosts": {"a"}, "gpus": GPU}, {"hosts": {"a"}, "gpus": OTHER_GPU}, False),
        ("gpu", {"hosts": {"a"}, "gpus": GPU}, {"hosts": {"a"}, "gpus": GPU}, True),
        ("gpu", {"hosts": {"a"}, "gpus": GPU}, {"hosts": {"b"}, "gpus": GPU}, False),
        ("gpu", {"hosts": {"a"}, "gpus": GPU}, {"hosts": {"a"}}, True),
    ],
)
def test_a_scope_bounds_where_an_edge_reaches(scope, cause, effect, wanted):
    one = rule("c", signatures={"x": "x"}, explains=(Edge("e", scope),))
    cause, effect = finding("c", rule="c", at=1.0, **cause), finding("e", "RuntimeError", rule="e", at=2.0, **effect)
    assert plausible(cause, effect, scope, Clocks()) is wanted
    assert bool(explain([cause, effect], edges(one), Clocks(), {}).explained["e"]) is wanted


def test_of_several_edges_the_widest_holds():
    one = rule("c", signatures={"x": "x"}, explains=(Edge("e", "gpu"), Edge("framework/*", "host")))
    assert edges(one).scope(finding("c", rule="c"), finding("e", "RuntimeError", rule="e")) == "host"
    assert edges(one).scope(finding("c", rule="c"), finding("k", "RuntimeError", rule="k")) == "host"
    assert edges(one).scope(finding("c", rule="c"), finding("k", "KeyError", rule="k")) is None


def test_hardware_named_by_its_effect_reaches_its_host():
    named = rule("e", signatures={"x": "x"}, explained_by=("hardware/*",))
    assert edges(named).scope(finding("c", "ECCError"), finding("e", "CUDAError", rule="e")) == "host"
    assert edges(named).scope(finding("c", "ECCError"), finding("e", "KeyError", rule="e")) == "job"


def test_traces_of_a_context_torn_down_are_known_from_faults_by_the_witness():
    kernel = finding("k", "CUDAError", sources={"kernel"}, hosts={"a"})
    both = finding("b", "CUDAError", sources={"kernel", "job"}, hosts={"a"})
    assert NOTHING.scope(finding("u", "KeyError"), kernel) == "host"
    assert NOTHING.scope(finding("u", "KeyError"), both) is None


WAITED = {"ran_ms": 600_000}


@pytest.mark.parametrize("error_type", ["ProcessKilled", "SegmentationFault"])
@pytest.mark.parametrize(("killed_at", "explains"), [(20, True), (90, False)])
def test_a_death_after_a_long_wait_was_over_does_not_explain_it(error_type, killed_at, explains):
    cause = finding("killed", error_type, streams={"job": (killed_at, killed_at)}, spans={"job.log": (killed_at, 99)})
    effect = finding(
        "waited",
        "NCCLTimeoutError",
        role="symptom",
        captures=WAITED,
        streams={"job": (50, 50)},
        spans={"job.log": (50, 50)},
    )
    assert plausible(cause, effect, "job", Clocks()) is explains


@pytest.mark.parametrize(("cancelled_at", "explains"), [(40, True), (90, False)])
def test_clean_up_explains_only_the_deaths_that_follow_it(cancelled_at, explains):
    spans = {"job.log": (cancelled_at, cancelled_at)}
    cancel = finding("cancel", "Terminated", role="teardown", spans=spans)
    killed = finding("killed", "ProcessKilled", spans={"job.log": (60, 60)})
    assert plausible(cancel, killed, "job", Clocks()) is explains


@pytest.mark.parametrize(("seen", "gap", "explains"), [("scheduler", 240.0, True), ("kernel", 240.0, False)])
def test_a_lost_node_is_given_up_minutes_after_its_peers_missed_it(seen, gap, explains):
    lost = finding("lost", "NodeFailure", at=100.0 + gap, sources={seen})
    missed = finding("missed", "NetworkError", at=100.0)
    assert plausible(lost, missed, "job", Clocks()) is explains


def test_who_ends_a_job_that_hangs_did_not_make_it_hang():
    hang = finding("hang", "CollectiveHang", role="symptom", at=100.0)
    ended = finding("ended", "JobCancelled", family="scheduler", at=101.0)
    assert not plausible(ended, hang, "job", Clocks())
    assert plausible(ended, finding("later", "CollectiveHang", role="symptom", at=140.0), "job", Clocks())


# Hosts that only a launcher told of, and hosts that the job does not name.


def test_where_a_launcher_saw_a_process_die_limits_what_reaches_it():
    fault = finding("fault", "ECCError", at=100.0, hosts={"n1"})
    one = rule("one", signatures={"x": "x"}, explained_by=(Edge("hardware/*", "host"),))
    for places, causes in ((set(), ("fault",)), ({"n1", "n2"}, ("fault",)), ({"n2"}, ())):
        killed = finding("killed", "ProcessKilled", rule="one", at=101.0, places=frozenset(places))
        assert graph(fault, killed, made=[one]).explained["killed"] == causes


def test_of_two_causes_in_no_order_the_one_on_a_host_that_the_job_names_is_first():
    stray = finding("a", "ECCError", hosts={"n9"}, stray=True)
    own = finding("b", "KeyError")
    made = graph(stray, own, specificity={"r": 9})
    assert (names(made.roots), names(made.tied)) == (["b", "a"], ["a"])
    early = finding("a", "ECCError", hosts={"n9"}, stray=True, at=10.0)
    assert names(graph(early, finding("b", "KeyError", at=90.0)).roots) == ["a", "b"]
