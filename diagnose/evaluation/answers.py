"""A report as an answer that can be scored.

In: a `Report`. Out: an `Answer`.
"""

from __future__ import annotations

from diagnose.evaluation.model import Answer, Blamed, Cited
from diagnose.models import Report

_CITED, _SHOWN_CHARS = 8, 300


def answer_of(report: Report) -> Answer:
    """What the pipeline says."""
    decided = report.decided_by
    evidence = report.root_cause.evidence if report.root_cause else ()
    return Answer(
        status=report.status,
        error_type=report.error_type,
        attribution=report.attribution,
        sureness=report.sureness,
        stage=decided.stage,
        agent_state=decided.agent_state,
        cited=tuple(Cited(one.source, one.line, one.text[:_SHOWN_CHARS]) for one in evidence[:_CITED]),
        culprits=tuple(Blamed(one.kind, (one.id, *one.names)) for one in report.culprits),
        job=report.recovery.job,
        nodes=tuple(node.action for node in report.recovery.nodes),
        nearest=tuple(similar.error_type for similar in decided.similar_incidents),
    )
