"""The quick ways through many findings answer as a look at all of them would, and stop where time is over."""

import random
from collections import deque

import pytest

from diagnose.clock import Clock
from diagnose.lines.timeline import AttemptProgress
from diagnose.models import Finding, Over
from diagnose.rules.edges import Edges, kind_of
from diagnose.rules.graph import explain, plausible
from diagnose.rules.nearby import Causes
from diagnose.rules.precedence import Clocks
from diagnose.rules.survival import UNWEIGHED, set_aside
from tests.made import FAMILIES, finding, mark, rule, rules

TYPES = (*FAMILIES, "NodeFailure")
ON_THE_GPU = rule("gpu", signatures={"x": "x"}, error_type="ECCError", explained_by=("hardware/GPUThermalThrottle",))
EDGES = Edges(rules(ON_THE_GPU))
OVER = Clock(-1.0)


def many(seed: int, count: int = 60) -> list[Finding]:
    """Findings of all sorts: with and without times, years, hosts and GPUs, in streams that some share."""
    chance = random.Random(seed)
    made = []
    for number in range(count):
        source = f"{chance.randrange(6)}.log"
        how = {
            "at": chance.choice([None, chance.uniform(0, 9000.0), 1_800_000_000.0 + chance.uniform(0, 9000.0)]),
            "line": chance.randrange(1, 400),
            "source": source,
            "stream": f"{source}/{chance.randrange(2)}",
            "hosts": chance.sample(["n1", "n2", "n3"], chance.choice([0, 1, 1, 2])),
            "gpus": chance.sample(["g0", "g1"], chance.choice([0, 1])),
            "sources": [chance.choice(["job", "kernel", "scheduler"])],
            "survivable": chance.random() < 0.5,
            "traceback": chance.random() < 0.3,
            "captures": {"timeout_ms": 600_000} if chance.random() < 0.3 else {},
        }
        if chance.random() < 0.2:
            how["over"] = Over(source, how["line"] + chance.randrange(200), how["at"] and how["at"] + 40.0)
        made.append(finding(f"f{number}", chance.choice(TYPES), rule=chance.choice([None, "gpu"]), **how))
    return made


def looked_at_each(findings: list[Finding], clocks: Clocks) -> dict[str, tuple[str, ...]]:
    """What explains each finding, by comparing all with all."""
    by_kind: dict[object, list[Finding]] = {}
    for one in findings:
        by_kind.setdefault(kind_of(one), []).append(one)
    explained: dict[str, tuple[str, ...]] = {}
    for effect in findings:
        names: list[str] = []
        for group in by_kind.values():
            causes = sorted(group, key=lambda one: (one.first is None, clocks.first(one) or 0.0, one.id))
            scope = EDGES.scope(causes[0], effect)
            fit = [c.id for c in causes if scope and c.id != effect.id and plausible(c, effect, scope, clocks)]
            names += fit[:8]
        explained[effect.id] = tuple(names)
    return explained


@pytest.mark.parametrize("seed", range(12))
def test_explanations_are_those_of_a_look_at_each_pair(seed, monkeypatch):
    monkeypatch.setattr("diagnose.rules.graph._break_cycles", lambda *_: ())
    findings, clocks = many(seed), Clocks({"1.log": 40.0} if seed % 2 else {})
    assert explain(findings, EDGES, clocks, {}).explained == looked_at_each(findings, clocks)


@pytest.mark.parametrize("scope", ["job", "host", "gpu"])
@pytest.mark.parametrize("seed", range(4))
def test_what_is_near_are_at_least_those_that_fit(seed, scope):
    findings = many(seed)
    causes = Causes(findings, Clocks())
    for effect in findings:
        near = list(causes.near(effect, scope, effect.first, 120.0, 600.0))
        assert len({one.id for one in near}) == len(near)
        wanted = {one.id for one in findings if _fits(one, effect, scope)}
        assert wanted <= {one.id for one in near}


def _fits(cause: Finding, effect: Finding, scope: str) -> bool:
    gap = Clocks().gap(cause, effect)
    if gap is not None and not -600.0 <= gap <= 120.0:
        return False
    if scope != "job" and cause.hosts and effect.hosts and not cause.hosts & effect.hosts:
        return False
    return scope != "gpu" or not (cause.gpus and effect.gpus and not cause.gpus & effect.gpus)


@pytest.mark.parametrize("seed", range(12))
def test_what_a_process_went_on_to_die_of_is_found_as_by_a_look_at_each(seed):
    findings = [one for one in many(seed, 90) if one.over is None]
    kept, excluded = set_aside(findings, AttemptProgress(), EDGES, Clocks())
    fatal = [one for one in findings if one.role == "cause" and (not one.survivable or one.traceback)]
    wanted = {}
    for one in findings:
        if one.survivable and not one.traceback and one.role != "teardown":
            later = [f for f in fatal if _after(one, f) and EDGES.scope(one, f) is None]
            if later:
                wanted[one.id] = f"the process went on until {later[0].error_type}"
    assert {aside.finding.id: aside.why for aside in excluded} == wanted
    assert [one.id for one in kept] == [one.id for one in findings if one.id not in wanted]


def _after(one: Finding, other: Finding) -> bool:
    return any(other.streams[name][0] > one.streams[name][1] for name in one.streams.keys() & other.streams.keys())


@pytest.mark.parametrize("seed", range(12))
def test_steps_after_a_finding_are_found_as_by_a_look_at_each(seed):
    chance = random.Random(seed)
    recent = {}
    for number in range(8):
        name = f"{number}.log"
        times = [chance.choice([None, 1_800_000_000.0 + chance.uniform(0, 9000.0)]) for _ in range(chance.randrange(4))]
        marks = [mark(name, chance.randrange(400), time=time, stream=f"{name}/{chance.randrange(2)}") for time in times]
        recent[name] = deque(marks, maxlen=3)
    findings = [one for one in many(seed) if one.over is None and one.survivable]
    _, excluded = set_aside(findings, AttemptProgress(recent=recent), EDGES, Clocks())
    told = {a.finding.id for a in excluded if a.why == "the job made progress after it"}
    assert told == {
        one.id
        for one in findings
        if one.error_type != "GPUThermalThrottle"
        and any(len(marks) >= 2 and _step_after(marks[-2], one) for marks in recent.values())
    }


def _step_after(step, one: Finding) -> bool:
    if step.stream in one.streams:
        return step.number > one.streams[step.stream][1]
    if step.time is not None and one.last is not None:
        return step.time > one.last + 1.0
    return step.source in one.spans and step.number > one.spans[step.source][1]


def test_thousands_of_findings_are_compared_with_few(monkeypatch):
    compared = []

    def counted(*pair):
        compared.append(pair)
        return plausible(*pair)

    monkeypatch.setattr("diagnose.rules.graph.plausible", counted)
    faults = [finding(f"x{n}", "ECCError", at=float(n), hosts={f"n{n}"}) for n in range(1500)]
    errors = [finding(f"c{n}", at=n + 1.0, hosts={f"n{n}"}) for n in range(1500)]
    graph = explain([*faults, *errors], EDGES, Clocks(), {})
    assert graph.explained["c700"] == ("x700",)
    assert len(compared) < 3 * 1500


def test_what_there_is_no_time_for_is_no_root():
    graph = explain([finding("a", at=1.0), finding("b", at=2.0)], EDGES, Clocks(), {}, OVER)
    assert (graph.roots, graph.unweighed) == ((), 2)


def test_the_latest_are_left_unweighed(monkeypatch):
    left = iter([False, True, True])
    monkeypatch.setattr(Clock, "over", property(lambda _self: next(left)))
    made = [finding("late", at=30.0), finding("first", "ECCError", at=1.0), finding("later", "KeyError", at=20.0)]
    graph = explain(made, EDGES, Clocks(), {}, Clock(1.0))
    assert [root.id for root in graph.roots] == ["first"]
    assert graph.unweighed == 2


def test_an_outage_that_there_is_no_time_to_weigh_is_set_aside_and_says_so():
    flap = finding("flap", "NetworkError", at=100.0, over=Over("flap.log", 9, 140.0))
    failed = finding("failed", "NCCLTimeoutError", role="symptom", at=120.0)
    _, excluded = set_aside([flap, failed], AttemptProgress(), EDGES, Clocks(), OVER)
    assert [(aside.finding.id, aside.why) for aside in excluded] == [("flap", UNWEIGHED)]
    kept, _ = set_aside([flap, failed], AttemptProgress(), EDGES, Clocks())
    assert [one.id for one in kept] == ["flap", "failed"]
