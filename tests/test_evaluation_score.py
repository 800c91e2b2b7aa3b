"""What an answer is worth: each figure by its own cases."""

from __future__ import annotations

import pytest

from diagnose.dataclass import replace
from diagnose.evaluation.figures import Rate, figures_of, wrong_parts
from diagnose.evaluation.model import OURS, Answer, Blamed, Case, Cited, Place, Result, Said, Score, Stage
from diagnose.evaluation.score import score, unanswered
from diagnose.models.report import ReportStatus

CASE = Case(
    "c",
    "/",
    ("c.log",),
    "failed",
    ("ECCError", "CUDAError"),
    ("infrastructure",),
    (Place("logs/k.dmesg", 10),),
    (Blamed("host", ("gx-04",)), Blamed("gpu", ("0000:5d:00",))),
    ("restart_elsewhere",),
    "none",
    counted=("host", "gpu"),
)
RIGHT = Answer(
    "failed",
    "ECCError",
    "infrastructure",
    "confirmed",
    "rules",
    cited=(Cited("k.dmesg", 11),),
    culprits=(Blamed("host", ("gx-04.cluster",)),),
    job="restart_elsewhere",
    nodes=("inspect",),
)
HEALTHY = Case("h", "/", ("h.log",), "no_failure")


def against(answer: Answer, case: Case = CASE) -> tuple[str, ...]:
    return wrong_parts(score(case, answer))


def test_a_right_answer() -> None:
    scored = score(CASE, RIGHT)
    assert wrong_parts(scored) == ()
    assert not scored.wrong


@pytest.mark.parametrize(
    ("changes", "parts", "wrong"),
    [
        ({"error_type": "CUDAError"}, (), False),
        ({"error_type": "KeyError"}, ("type",), True),
        ({"error_type": None}, ("type",), False),
        ({"status": "inconclusive", "error_type": None}, ("status", "type"), False),
        ({"status": "no_failure", "error_type": None}, ("status", "type"), True),
        ({"attribution": "user"}, ("attribution", "blame_user"), False),
        ({"attribution": "unknown"}, ("attribution",), False),
        ({"cited": ()}, ("line",), False),
        ({"cited": (Cited("k.dmesg", 12),)}, ("line",), False),
        ({"cited": (Cited("k.dmesg", None),)}, ("line",), False),
        ({"cited": (Cited("other.dmesg", 10),)}, ("line",), False),
        ({"cited": (Cited("a", 1), Cited("a", 2), Cited("/x/logs/k.dmesg.gz", 9))}, (), False),
        ({"cited": (Cited("a", 1), Cited("a", 2), Cited("a", 3), Cited("k.dmesg", 10))}, ("line",), False),
        ({"culprits": ()}, ("culprit",), False),
        ({"culprits": (Blamed("gpu", ("7", "00000000:5D:00.0")),)}, (), False),
        ({"culprits": (Blamed("host", ("gx-05",)),)}, ("culprit", "innocent"), False),
        ({"culprits": (*RIGHT.culprits, Blamed("host", ("gx-05",)), Blamed("rank", ("3",)))}, ("innocent",), False),
        ({"job": "restart"}, ("recovery",), False),
        ({"job": None}, (), False),
        ({"nodes": ("drain",)}, ("false_node",), False),
    ],
)
def test_each_figure(changes: dict[str, object], parts: tuple[str, ...], wrong: bool) -> None:
    answer = replace(RIGHT, **changes)
    assert against(answer) == parts
    assert score(CASE, answer).wrong is wrong


def test_where_nothing_failed() -> None:
    assert score(HEALTHY, Answer("no_failure")) == Score(True)
    assert score(HEALTHY, Answer("inconclusive")) == Score(False)
    assert score(HEALTHY, RIGHT).wrong


def test_what_nobody_could_name_is_wrong_to_name() -> None:
    case = replace(CASE, error_types=())
    assert score(case, RIGHT).wrong
    assert against(RIGHT, case) == ("type",)
    assert score(case, replace(RIGHT, error_type=None)).type
    assert not score(case, replace(RIGHT, error_type=None)).wrong
    assert score(replace(CASE, innocent=("host",), counted=()), RIGHT).innocent == 1


@pytest.mark.parametrize(
    ("kind", "named", "wanted", "same"),
    [
        ("host", "gx-04", "gx-04.lan", True),
        ("host", "gx-04", "gx-041", False),
        ("host", "10.0.0.4", "10.0.0.5", False),
        ("file", "/job/data/aligner.py:147", "data/aligner.py", True),
        ("file", "/job/aligner.py", "data/aligner.py", False),
        ("switch", "0000:07:00.0", "07:00", True),
        ("gpu", "3", "3", True),
        ("rank", "3", "13", False),
        ("host", "GX-04", "gx-04", True),
    ],
)
def test_names_of_one_thing(kind: str, named: str, wanted: str, same: bool) -> None:
    case = replace(CASE, culprits=(Blamed(kind, (wanted,)),))
    assert score(case, replace(RIGHT, culprits=(Blamed(kind, (named,)),))).culprit is same


def test_a_case_without_an_answer_is_wrong_in_all_that_is_asked() -> None:
    assert wrong_parts(unanswered(CASE)) == ("status", "type", "attribution", "line", "culprit", "recovery")
    assert unanswered(HEALTHY) == Score(False, wrong=True)


# Intervals as published for Wilson's method, to three digits.
@pytest.mark.parametrize(
    ("right", "of", "low", "high"),
    [
        (0, 10, 0.0, 0.278),
        (10, 10, 0.722, 1.0),
        (1, 10, 0.018, 0.404),
        (81, 263, 0.255, 0.366),
        (148, 148, 0.975, 1.0),
        (0, 0, 0.0, 1.0),
    ],
)
def test_intervals(right: int, of: int, low: float, high: float) -> None:
    assert Rate(right, of).interval == pytest.approx((low, high), abs=6e-4)


def result(case: Case, answer: Answer) -> Result:
    return Result(case, {OURS: Said(answer, score(case, answer))})


def test_figures_add_up() -> None:
    other = replace(CASE, name="d", error_types=("KeyError",), lines=(), culprits=(), job=())
    results = [
        result(CASE, RIGHT),
        result(CASE, replace(RIGHT, error_type="KeyError", sureness="possible")),
        result(
            CASE,
            replace(RIGHT, error_type="CUDAError", sureness="likely", stage="retrieval", nearest=("A", "ECCError")),
        ),
        result(other, Answer("inconclusive", agent_state="abstained", nearest=("A", "B", "C", "KeyError"))),
        Result(other, problem="it died"),
        result(HEALTHY, replace(RIGHT, stage="failure_agent", sureness="possible")),
    ]
    figures = figures_of(results, OURS, stored=("ECCError", "KeyError"))
    assert figures.rates["status"] == Rate(3, 6)
    assert figures.rates["type"] == Rate(2, 5)
    assert figures.macro["type"] == pytest.approx((2 / 3 + 0) / 2)
    assert figures.counts["wrong"] == 3
    assert [(label.name, label.cases, label.type) for label in figures.labels] == [
        ("ECCError", 3, Rate(2, 3)),
        ("KeyError", 2, Rate(0, 2)),
    ]
    assert [(level.coverage, level.accuracy) for level in figures.levels] == [
        (Rate(1, 5), Rate(1, 1)),
        (Rate(2, 5), Rate(2, 2)),
        (Rate(3, 5), Rate(2, 4)),  # the false alarm counts against the answers
    ]
    assert [(one.stage, one.accuracy) for one in figures.stages] == [
        ("rules", Rate(1, 2)),
        ("retrieval", Rate(1, 1)),
        ("failure_agent", Rate(0, 1)),
    ]
    # Where rules decided nobody looked; a fourth neighbour is not among three; what died found none.
    assert figures.nearest == Rate(1, 3)
    assert figures.nearest_label == Rate(1, 3)
    assert {(cell.want, cell.got): cell.count for cell in figures.confusions} == {
        ("ECCError", "ECCError"): 2,
        ("ECCError", "KeyError"): 1,
        ("KeyError", "inconclusive"): 2,
        ("no_failure", "ECCError"): 1,
    }


def test_what_past_incidents_decide_is_counted_by_what_they_could_know() -> None:
    def past(case: Case, error_type: str | None, *nearest: str) -> Result:
        stage: Stage = "retrieval" if error_type else "none"
        status: ReportStatus = "failed" if error_type else "inconclusive"
        return result(case, Answer(status, error_type, stage=stage, nearest=nearest))

    both = replace(CASE, name="b", error_types=("ECCError", "CUDAError"))
    other = replace(CASE, name="o", error_types=("KeyError", "CUDAError"))
    unproven = replace(HEALTHY, name="u", status="inconclusive")
    results = [
        past(both, "ECCError", "ECCError"),
        past(both, "CUDAError", "CUDAError"),  # accepted, not the very label
        past(both, "DiskFull", "DiskFull"),
        past(both, None, "DiskFull"),
        past(other, "CUDAError", "CUDAError"),  # the memory lacks its label, but not one that is accepted
        past(other, "DiskFull", "DiskFull"),
        past(unproven, "DiskFull", "DiskFull"),
        past(unproven, None),
        result(both, RIGHT),  # rules decided: nobody looked
    ]
    figures = figures_of(results, OURS, stored=("ECCError", "CUDAError", "DiskFull"))
    assert [(one.cases, one.decided, one.right, one.label) for one in figures.past] == [
        ("remembered", Rate(3, 4), Rate(2, 3), Rate(1, 3)),
        ("not_remembered", Rate(2, 2), Rate(1, 2), Rate(0, 2)),
        ("nothing_to_name", Rate(1, 2), Rate(0, 1), Rate(0, 1)),
        ("all", Rate(6, 8), Rate(3, 6), Rate(1, 6)),
    ]
    assert figures.nearest == Rate(3, 6)
    assert figures.nearest_label == Rate(1, 4)
    assert figures_of(results, OURS).past == ()
