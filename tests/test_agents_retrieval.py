"""Neighbours decide where they agree strongly, and only then."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from diagnose.agents.retrieval import AGREEMENT, PastIncidents, agreement, opinion_of
from diagnose.dataclass import replace
from diagnose.models import RuleSet, SimilarIncident
from diagnose.pipeline import Request, Services, diagnose
from diagnose.report import render


def near(id: str, error_type: str, similarity: float, **more: object) -> SimilarIncident:
    return SimilarIncident(id, error_type, similarity, summary=f"about {id}", **more)


def test_neighbours_that_agree_decide() -> None:
    found = (
        near("a", "ECCError", 0.9, attribution="infrastructure", job="restart_elsewhere", recovered=True),
        near("b", "ECCError", 0.8, attribution="infrastructure"),
        near("c", "CUDAError", 0.3, attribution="unknown"),
    )
    opinion = opinion_of(found)
    assert opinion.stage == "retrieval"
    assert opinion.error_type == "ECCError"
    assert opinion.attribution == "infrastructure"
    assert opinion.sureness == "likely"
    assert opinion.similar == found
    assert "2 of the 3 most similar incidents were ECCError: a (0.90), b (0.80)" in opinion.reasons
    assert opinion.reasons[1] == "a recovered by: restart_elsewhere"


def test_neighbours_that_differ_or_are_far_are_only_listed() -> None:
    differ = (near("a", "ECCError", 0.6), near("b", "CUDAError", 0.6), near("c", "NetworkError", 0.6))
    far = (near("a", "ECCError", AGREEMENT - 0.01), near("b", "ECCError", 0.2))
    for found in (differ, far, ()):
        opinion = opinion_of(found)
        assert opinion.stage == "none"
        assert opinion.error_type is None
        assert opinion.similar == found


def test_disagreement_on_attribution_leaves_it_to_the_taxonomy() -> None:
    found = (near("a", "DiskFull", 0.9, attribution="user"), near("b", "DiskFull", 0.9, attribution="infrastructure"))
    assert opinion_of(found).attribution is None


def test_what_speaks_against_nothing_is_no_agreement() -> None:
    assert agreement(()) == (None, 0.0)
    assert agreement((near("a", "ECCError", 0.0),)) == (None, 0.0)


def test_a_retriever_is_asked_for_its_neighbours() -> None:
    class Fixed:
        def similar(self, text: str, count: int = 5) -> tuple[SimilarIncident, ...]:
            assert text == "lines"
            return tuple(near(f"i{n}", "ECCError", 0.9) for n in range(count))

        def bearing(self, text: str, ids: Sequence[str], count: int = 3) -> tuple[str, ...]:
            assert list(ids) == ["i0", "i1", "i2", "i3", "i4"]
            return ("lines",)

    opinion = PastIncidents(Fixed()).opinion("lines")
    assert [each.text for each in opinion.evidence] == ["lines"]
    assert len(opinion.similar) == 5
    assert opinion.error_type == "ECCError"


def test_reports_list_them_with_verdict_and_outcome(tmp_path: Path, rule_set: RuleSet) -> None:
    found = (
        near("i1", "ECCError", 0.91, job="restart_elsewhere", recovered=True),
        near("i2", "ECCError", 0.5, recovered=False),
        near("i3", "DiskFull", 0.3),
        near("i4", "DiskFull", 0.2),
    )
    log = tmp_path / "job.log"
    log.write_text("nothing known\n")
    report = diagnose(Request([str(log)]), Services(rule_set))
    report = replace(report, decided_by=replace(report.decided_by, similar_incidents=found))
    text = render(report, "text")
    assert "Similar  i1: ECCError, 91% alike; restart elsewhere and it recovered; about i1" in text
    assert "i2: ECCError, 50% alike; it did not recover; about i2" in text
    assert "i4" not in text
    assert "i4" in render(report, "text", verbose=True)
    assert "- **Similar:** i1" in render(report, "markdown")
    assert '"recovered": true' in render(report, "json")
