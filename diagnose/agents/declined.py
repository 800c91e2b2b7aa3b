"""Lines by which the rules know a failure, in a run of which they say that nothing proves one.

In: the rules in force, a report, lines. Out: which of them the rules have read and passed over. Past incidents and
models are asked for what no rule knows: that somebody else knows such a line too is no news, and no proof that it ended
a job.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Final

from diagnose.agents.excerpt import ExcerptLine
from diagnose.models import Report, RuleSet
from diagnose.rules.gate import CompiledSignature, Gate
from diagnose.rules.intrinsic import error_type_called

DECLINED: Final = "the rules know such lines, and nothing read says that anything failed by this one"
_SECONDS: Final = 0.1  # of a pattern on a line
# A traceback's head and frames, and exceptions: read without any rule.
_HEAD: Final = "Traceback (most recent call last)"
_FRAME: Final = re.compile(r"\bFile \"[^\"]{1,300}\", line \d{1,7}")
_EXCEPTION: Final = re.compile(r"\b([A-Z]\w{0,60}(?:Error|Exception))(?::|\s{0,9}$)")


class Declined:
    """Knows what the rules in force read. `withheld` are error types that they may not name."""

    def __init__(self, rules: RuleSet, withheld: Collection[str] = ()) -> None:
        self._rules = rules
        self._withheld = withheld

    def among(self, report: Report, lines: Sequence[ExcerptLine]) -> Mapping[tuple[str, int], str]:
        """The lines that were passed over, by source and number; none where the report says that the job failed.

        A frame's source line is known by the frame before it: the lines are those that stand side by side.
        """
        if report.status != "inconclusive" or not self._rules.diagnoses:
            return {}
        frames = {(each.source, each.order) for each in lines if _FRAME.search(each.line.text)}
        tracebacks = "RuntimeError" not in self._withheld
        return {
            (each.source, each.line.number): DECLINED
            for each in lines
            if self._read(each) or (tracebacks and not frames.isdisjoint(_this_and_the_last(each)))
        }

    @cached_property
    def _gate(self) -> Gate:
        return Gate(self._rules.diagnoses)

    def _read(self, each: ExcerptLine) -> bool:
        line = each.line
        if line.source.kind == "scheduler":
            return True  # its records are read as what they are, whole
        if _HEAD in line.text and "RuntimeError" not in self._withheld:
            return True
        named = (error_type_called(name, self._rules.taxonomy) for name in _EXCEPTION.findall(line.text))
        if any(name not in self._withheld for name in named):
            return True
        return any(_found(one, line.text) for one in self._gate.candidates(line.text, line.source.kind))


def _this_and_the_last(each: ExcerptLine) -> tuple[tuple[str, int], tuple[str, int]]:
    return (each.source, each.order), (each.source, each.order - 1)


def _found(signature: CompiledSignature, text: str) -> bool:
    try:
        return signature.pattern.search(text, timeout=_SECONDS) is not None
    except TimeoutError:
        return False
