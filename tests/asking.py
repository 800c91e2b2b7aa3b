"""Failures that no rule knows, and a model's answers to them: what tests of the Failure Agent share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from diagnose.agents.second_opinion import Neighbours, advisers
from diagnose.agents.settings import ModelSettings
from diagnose.models import Report, RuleSet
from diagnose.pipeline import Request, Services, diagnose
from tests.modelserver import Asked

CAUSE = "bridge watcher: nvlink lane 4 of gpu 5 failed its handshake, no sparkle left"
LOG = f"""\
2027-03-01 10:00:00 [rank 3] step 3 loss 1.0
2027-03-01 10:00:04 [rank 3] {CAUSE}
2027-03-01 10:00:05 [rank 3] giving up on everything
exit code: 1
"""
_LINE = re.compile(r"^\[(\d+)\] (\S+):(\d+) .*?\| (.*)$", re.MULTILINE)


def settings(url: str, **how: Any) -> ModelSettings:
    """A model at an address, with nothing kept."""
    given: dict[str, Any] = {"seconds": 60.0, "retry_wait": 0.01, "state": None, "cache": False, "tokens": 1_000_000}
    return ModelSettings(url, "scripted", **given | how)


def shown(asked: Asked) -> dict[int, str]:
    """The lines that a request shows, by the numbers that it gives them."""
    return {int(number): text for number, _, _, text in _LINE.findall(asked.text)}


def quote(asked: Asked, words: str) -> list[dict[str, Any]]:
    """Evidence: the shown lines that hold some words, word for word."""
    return [{"line": number, "quote": text} for number, text in shown(asked).items() if words in text][:6]


def answer(label: str, evidence: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    """An answer of the Failure Agent's model."""
    return {
        "read_more": [],
        "evidence": evidence or [],
        "label": label,
        "attribution": "infrastructure",
        "attribution_reason": "",
        "root_cause": "A link between two devices failed.",
        "would_settle": "",
        **more,
    }


def right(asked: Asked) -> dict[str, Any]:
    """The right answer to `LOG`."""
    return answer("NVLinkError", quote(asked, CAUSE))


def run(
    folder: Path,
    rule_set: RuleSet,
    model: ModelSettings | None,
    logs: str | Mapping[str, str] = LOG,
    neighbours: Neighbours | None = None,
) -> Report:
    """The report on one log or several by name, with a model to ask."""
    for name, text in {"job.log": logs}.items() if isinstance(logs, str) else logs.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    names = ["job.log"] if isinstance(logs, str) else list(logs)
    asked = advisers(rule_set, model, neighbours)
    return diagnose(Request([str(folder / name) for name in names]), Services(rule_set, second_opinion=asked))


Answerer = Callable[[Asked], dict[str, Any]]
