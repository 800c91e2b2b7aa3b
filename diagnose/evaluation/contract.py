"""An evaluation as JSON (`diagnose.evaluation/v1`), described by docs/evaluation.schema.json.

In: an `Evaluation`. Out: plain values. Floats are rounded to what the number of cases can carry.
"""

from __future__ import annotations

from typing import Final

from diagnose.evaluation.cost import costs_of
from diagnose.evaluation.figures import Figures, Rate, wrong_parts
from diagnose.evaluation.model import Result, Said
from diagnose.evaluation.run import Evaluation

Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None
SCHEMA: Final = "diagnose.evaluation/v1"


def to_json(evaluation: Evaluation) -> dict[str, Json]:
    """The evaluation as JSON-ready values."""
    setup = evaluation.setup
    return {
        "schema": SCHEMA,
        "setup": {
            "cases_dirs": list(setup.roots),
            "ruleset": setup.ruleset,
            "without_rules": list(setup.without),
            "model": setup.model or None,
            "split": setup.split or None,
            "stored_incidents": setup.stored,
        },
        "methods": {name: _figures(figures) for name, figures in evaluation.figures.items()},
        "cost": _cost(evaluation),
        "cases": [_result(result) for result in evaluation.results],
        "unread": [{"name": _text(one.name), "why": _text(one.why)} for one in evaluation.unread],
    }


def _cost(evaluation: Evaluation) -> Json:
    cost = costs_of(evaluation.results)
    return {
        "seconds_median": round(cost.median, 4),
        "seconds_p95": round(cost.p95, 4),
        "seconds_max": round(cost.longest, 4),
        "calls": cost.calls,
        "tokens_in": cost.tokens_in,
        "tokens_out": cost.tokens_out,
    }


def _figures(figures: Figures) -> Json:
    return {
        "cases": figures.cases,
        "rates": {name: _rate(rate) for name, rate in figures.rates.items()},
        "macro": {name: round(value, 4) for name, value in figures.macro.items()},
        "counts": dict(figures.counts),
        "labels": [
            {
                "label": label.name,
                "cases": label.cases,
                "type": _rate(label.type),
                "attribution": _rate(label.attribution),
                "line": _rate(label.line),
            }
            for label in figures.labels
        ],
        "by_sureness": [
            {"at_least": level.sureness, "coverage": _rate(level.coverage), "accuracy": _rate(level.accuracy)}
            for level in figures.levels
        ],
        "by_stage": [
            {"stage": one.stage, "coverage": _rate(one.coverage), "accuracy": _rate(one.accuracy)}
            for one in figures.stages
        ],
        "agent_states": dict(figures.states),
        "nearest_3": _rate(figures.nearest),
        "nearest_3_label": _rate(figures.nearest_label),
        "past_incidents": [
            {"cases": one.cases, "decided": _rate(one.decided), "right": _rate(one.right), "label": _rate(one.label)}
            for one in figures.past
        ],
        "confusions": [{"want": cell.want, "got": cell.got, "count": cell.count} for cell in figures.confusions],
    }


def _rate(rate: Rate) -> Json:
    low, high = rate.interval
    value = rate.value
    return {
        "right": rate.right,
        "of": rate.of,
        "rate": None if value is None else round(value, 4),
        "low": round(low, 4),
        "high": round(high, 4),
    }


def _result(result: Result) -> Json:
    return {
        "name": _text(result.case.name),
        "want": result.case.label,
        "problem": _text(result.problem) or None,
        "seconds": round(result.seconds, 4),
        "calls": result.calls,
        "tokens_in": result.tokens_in,
        "tokens_out": result.tokens_out,
        "answers": {method: _said(said) for method, said in result.said.items()},
    }


def _said(said: Said) -> Json:
    answer, score = said.answer, said.score
    return {
        "got": answer.label,
        "status": answer.status,
        "attribution": answer.attribution,
        "sureness": answer.sureness,
        "stage": answer.stage,
        "agent_state": answer.agent_state,
        "wrong": score.wrong,
        "against": list(wrong_parts(score)),
        "cited": [{"source": _text(one.source), "line": one.line, "text": _text(one.text)} for one in answer.cited[:3]],
        "culprits": [{"kind": one.kind, "id": _text(one.names[0])} for one in answer.culprits[:3]],
        "nearest": list(answer.nearest[:3]),
    }


def _text(text: str) -> str:
    """What logs and names hold, as text that can be written: lone surrogates are shown as escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
