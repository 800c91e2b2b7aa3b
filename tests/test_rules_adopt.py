"""A second opinion counts only where the rules had none, and never acts on its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.models import Evidence, Line, Opinion, Report, SimilarIncident
from diagnose.pipeline import Request, Services, diagnose
from diagnose.rules.bundle import load_bundled

UNKNOWN = "2027-03-01 10:00:00 step 3 loss 1.0\nthe frobnicator of rank 3 has lost its marbles\nexit code: 1\n"
KNOWN = "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\nKeyError: 'x'\nexit code: 1\n"


class Asked:
    """A second opinion that answers what it is told to, and remembers what it saw."""

    def __init__(self, opinion: Opinion) -> None:
        self.answer, self.seen, self.asked = opinion, list[str](), 0

    def begin(self) -> Asked:
        return self

    def observe(self, line: Line) -> None:
        self.seen.append(line.text)

    def opinion(self, report: Report) -> Opinion:
        self.asked += 1
        return self.answer


def run(tmp_path: Path, text: str, opinion: Opinion) -> tuple[Report, Asked]:
    log = tmp_path / "job.log"
    log.write_text(text)
    asked = Asked(opinion)
    return diagnose(Request([str(log)]), Services(load_bundled(), second_opinion=asked)), asked


def test_an_opinion_names_what_no_rule_did(tmp_path: Path) -> None:
    line = Evidence("job.log", 2, "the frobnicator of rank 3 has lost its marbles")
    similar = (SimilarIncident("i-1", "NVLinkError", 0.9, recovered=True),)
    report, asked = run(
        tmp_path,
        UNKNOWN,
        Opinion("failure_agent", "NVLinkError", summary="a link", evidence=(line,), similar=similar, state="answered"),
    )
    assert (report.status, report.error_type, report.attribution) == ("failed", "NVLinkError", "infrastructure")
    assert report.root_cause is not None
    assert report.root_cause.evidence == (line,)
    assert report.decided_by.stage == "failure_agent"
    assert report.decided_by.similar_incidents == similar
    assert any("frobnicator" in text for text in asked.seen)
    assert report.recovery.policy  # from the policy, and no node is acted on without a kernel's or scheduler's word
    assert all(node.action == "inspect" for node in report.recovery.nodes)


def test_it_is_not_asked_where_a_rule_decides(tmp_path: Path) -> None:
    report, asked = run(tmp_path, KNOWN, Opinion("failure_agent", "NVLinkError", state="answered"))
    assert report.error_type == "KeyError"
    assert asked.asked == 0
    assert report.decided_by.agent_state == "not_needed"


@pytest.mark.parametrize("name", [None, "NoSuchType", "PeerClosed"])
def test_what_is_no_error_type_decides_nothing(tmp_path: Path, name: str | None) -> None:
    report, _ = run(tmp_path, UNKNOWN, Opinion("failure_agent", name, state="answered"))
    assert report.error_type is None
    assert report.decided_by.stage == "none"
    assert report.decided_by.agent_state == "answered"


def test_another_attribution_wants_a_reason(tmp_path: Path) -> None:
    without, _ = run(tmp_path, UNKNOWN, Opinion("retrieval", "NVLinkError", "user"))
    with_one, _ = run(
        tmp_path, UNKNOWN, Opinion("retrieval", "NVLinkError", "user", reasons=("all ranks at one call",))
    )
    assert (without.attribution, with_one.attribution) == ("infrastructure", "user")
