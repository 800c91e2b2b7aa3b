"""The corpus of a checkout as the learning loop uses it: labelled jobs with their texts, and lines of healthy runs.

In: a rules directory, a judge. Out: verdicts under a rule set, negatives that read like a given line.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Final

from diagnose.dataclass import dataclass
from diagnose.lines.ansi import clean
from diagnose.models.report import Report
from diagnose.models.rule import NegativeExample, RuleSet
from diagnose.rules.abstract import tokens, words_of
from diagnose.rules.lint.base import Labelled, log_files, read_log
from diagnose.rules.lint.checkout import read_fixtures, read_incidents
from diagnose.rules.lint.incidents import Judge
from diagnose.rules.lint.secrets import private
from diagnose.rules.secrets import Secrets

_PACKED: Final = (".gz", ".zst", ".xz", ".bz2", ".tar", ".tgz", ".zip")
_NEGATIVES: Final = 2
_LEAST_LIKE: Final = 0.15
_LONGEST: Final = 400


@dataclass(frozen=True, slots=True)
class Known:
    """What the engine says of one labelled job, as far as a change of it matters."""

    status: str
    error_type: str | None
    attribution: str | None
    rule: str | None = None

    @property
    def verdict(self) -> tuple[str, str | None, str | None]:
        """Without the rule that decided: which one it is may change."""
        return self.status, self.error_type, self.attribution

    def __str__(self) -> str:
        return " ".join(filter(None, (self.status, self.error_type, self.attribution)))


def known_of(report: Report) -> Known:
    """What matters of a report."""
    return Known(report.status, report.error_type, report.attribution, report.decided_by.rule)


def _right(incident: Labelled, known: Known) -> bool:
    """Whether a verdict is the one that the job's label states."""
    if known.status != incident.status:
        return False
    return known.status != "failed" or (
        known.error_type in incident.error_types and known.attribution in incident.attributions
    )


class Corpus:
    """The fixtures beside a rules directory; empty outside a checkout."""

    def __init__(self, fixtures: str, judge: Judge) -> None:
        self.fixtures = fixtures
        self._judge = judge
        self._verdicts: dict[str, Known] = {}

    @cached_property
    def incidents(self) -> tuple[Labelled, ...]:
        """All labelled jobs: failures, healthy ones, undecided ones."""
        return read_incidents(self.fixtures)

    @cached_property
    def evidence(self) -> tuple[tuple[str, str], ...]:
        """The lines that prove an incident, as (where, line)."""
        return read_fixtures(self.fixtures).evidence

    @cached_property
    def _texts(self) -> dict[str, str | None]:
        """All text of each job, None where it is packed or cannot be read."""
        found: dict[str, str | None] = {}
        for incident in self.incidents:
            paths = log_files(incident.folder)
            packed = any(path.endswith(_PACKED) for path in paths)
            found[incident.folder] = None if packed else "\n".join(read_log(path) for path in paths)
        return found

    def verdict(self, incident: Labelled, rule_set: RuleSet) -> Known:
        """What the engine says of one job."""
        return known_of(self._judge(rule_set, incident.folder, incident.inputs))

    def verdicts(self, rule_set: RuleSet) -> dict[str, Known]:
        """What the engine says of every job, by folder."""
        return {incident.folder: self.verdict(incident, rule_set) for incident in self.incidents}

    def changes(self, before: RuleSet, after: RuleSet, words: Sequence[str]) -> Iterator[tuple[str, Known, Known]]:
        """The jobs whose verdict a new rule changes for another than their label's; a change to that one is none.

        Only those that hold one of its words are asked.
        """
        for incident in self.incidents:
            text = self._texts[incident.folder]
            if text is not None and not any(word in text for word in words):
                continue
            if incident.folder not in self._verdicts:
                self._verdicts[incident.folder] = self.verdict(incident, before)
            old, new = self._verdicts[incident.folder], self.verdict(incident, after)
            if old.verdict != new.verdict and not _right(incident, new):
                yield incident.folder, old, new

    def negatives(
        self, body: str, matches: Callable[[str], bool], secrets: Secrets, *, but: str | None = None
    ) -> Iterator[NegativeExample]:
        """Lines of other jobs that read most like a line and are none of its kind, and hold no secrets."""
        mine = words_of(tokens(body))
        found: list[tuple[float, str, str]] = []
        for incident in self.incidents:
            text = self._texts[incident.folder]
            if text is None or (but and os.path.samefile(incident.folder, but)):
                continue
            name = os.path.basename(incident.folder)
            for line in dict.fromkeys(map(str.strip, text.split("\n"))):
                if not mine or not 12 <= len(line) <= _LONGEST or not any(word in line.lower() for word in mine):
                    continue
                theirs = words_of(tokens(line))
                like = len(mine & theirs) / len(mine | theirs) if theirs else 0.0
                if like >= _LEAST_LIKE and clean(line) == line and not matches(line) and not private(line, secrets):
                    kind = "a job that finished" if incident.status == "no_failure" else str(incident.error_types[0])
                    found.append((like, line, f"It shares words and is of {kind} ({name})"))
        found.sort(key=lambda item: (-item[0], item[1]))
        for _, line, why in found[:_NEGATIVES]:
            yield NegativeExample(why, f"{line}\n", "job")
