"""Past incidents for an evaluation: made of labelled cases, and found again by the real index.

In: cases that are to be remembered, or incidents. Out: `Incident`s with the lines a memory keeps of a failure, an index
over them in a folder of its own, and how processes read it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from diagnose.dataclass import dataclass, replace
from diagnose.evaluation.judge import Plan, rules_of
from diagnose.evaluation.model import Case, Unread
from diagnose.evaluation.pool import each
from diagnose.evaluation.requests import request_of
from diagnose.models import Incident, Opinion, Report, RuleSet
from diagnose.pipeline import Services, diagnose

if TYPE_CHECKING:
    from diagnose.services import Gathered
    from diagnose.store.index import IncidentIndex


@dataclass(frozen=True, slots=True)
class Remembered:
    """Incidents in memory, in the form in which a database gives them."""

    incidents: tuple[Incident, ...] = ()

    def __iter__(self) -> Iterator[Incident]:
        return iter(self.incidents)

    def __len__(self) -> int:
        return len(self.incidents)

    def get(self, id: str) -> Incident | None:
        """One incident."""
        return next((one for one in self.incidents if one.id == id), None)

    def many(self, ids: Sequence[str]) -> tuple[Incident, ...]:
        """Those of the given ids, in the order asked for."""
        known = {one.id: one for one in self.incidents}
        return tuple(known[one] for one in ids if one in known)

    def changed_since(self, revision: int) -> Iterator[Incident]:
        """What came after a revision."""
        return (one for one in self.incidents if one.revision > revision)

    def removed_since(self, revision: int) -> Iterator[tuple[int, str]]:
        """Nothing is ever removed."""
        return iter(())

    def revision(self) -> int:
        """The latest revision."""
        return max((one.revision for one in self.incidents), default=0)


def remember(
    cases: Sequence[Case], plan: Plan, *, jobs: int = 1, on_case: Callable[[int, int], None] | None = None
) -> tuple[Remembered, tuple[Unread, ...]]:
    """The cases as confirmed incidents, and what cannot be one.

    They are read with all rules, as `incidents import` and `--record` read them: the plan withholds rules from the
    question, not from what is known of the past.
    """
    made: list[Incident | None] = [None] * len(cases)
    unread: list[Unread] = []
    told = each(_Recording(replace(plan, withheld=frozenset())), cases, jobs, 2 * plan.seconds)
    for done, (place, incident, why) in enumerate(told, 1):
        made[place] = incident
        if incident is None:
            unread.append(Unread(cases[place].name, f"cannot be remembered: {why}"))
        if on_case:
            on_case(done, len(cases))
    return numbered(one for one in made if one is not None), tuple(sorted(unread, key=lambda one: one.name))


def content_of(case: Case) -> bytes:
    """A digest of all that a case's inputs hold: two copies of a job are one."""
    digest = hashlib.sha256()
    for word in case.inputs:
        path = os.path.join(case.folder, word)
        files = [path] if os.path.isfile(path) else sorted(_files(path))
        for file in files:
            with contextlib.suppress(OSError), open(file, "rb") as opened:
                digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.digest()


def _files(folder: str) -> Iterator[str]:
    for place, _, names in os.walk(folder):
        yield from (os.path.join(place, name) for name in names)


def numbered(incidents: Iterable[Incident]) -> Remembered:
    """Incidents of any origin as one memory, each with a revision of its own."""
    different = {one.id: one for one in incidents}
    return Remembered(tuple(replace(one, revision=place) for place, one in enumerate(different.values(), 1)))


@dataclass(frozen=True, slots=True)
class _Recording:
    """Makes, in a process of its own, what turns a case into an incident."""

    plan: Plan

    def __call__(self) -> Callable[[Case], Incident]:
        rules, _ = rules_of(self.plan)

        def recorded(case: Case) -> Incident:
            from diagnose.services import Gathered

            os.chdir(case.folder)
            gathered = Gathered(rules)
            witness = _Listening(gathered)
            report = diagnose(request_of(case.inputs), Services(rules, second_opinion=witness), self.plan.settings)
            return _incident(case, report, gathered, rules)

        return recorded


@dataclass(frozen=True, slots=True)
class _Listening:
    """A witness that only listens."""

    gathered: Gathered

    def begin(self) -> _Listening:
        return self

    @property
    def observe(self) -> Callable[..., None]:
        return self.gathered.observe

    def opinion(self, _report: Report) -> Opinion:
        return Opinion()


def _incident(case: Case, report: Report, gathered: Gathered, rules: RuleSet) -> Incident:
    text, summary = gathered.told(report, (), ())
    entry = rules.taxonomy.get(case.error_types[0])
    return Incident(
        id=case.name,
        error_type=case.error_types[0],
        attribution=next(iter(case.attributions), entry.attribution if entry else None),
        summary=summary if report.error_type == case.error_types[0] else "",
        text=text,
        job=next(iter(case.job), None),
        confirmed=True,
        decided_by="person",
        origin="evaluation",
    )


def build_index(folder: str, incidents: Remembered, rules: RuleSet) -> None:
    """Makes the index, once, before several processes read it."""
    index = _open(folder, incidents, rules)
    try:
        index.rebuild()
    finally:
        index.close()


@dataclass(frozen=True, slots=True)
class Past:
    """Past incidents as the second opinion asks for them."""

    index: IncidentIndex

    @classmethod
    def opened(cls, folder: str, incidents: Remembered, rules: RuleSet) -> Past:
        """Those whose index lies in a folder."""
        return cls(_open(folder, incidents, rules))

    def opinion(self, text: str) -> Opinion:
        """What the neighbours of a text come to."""
        from diagnose.agents.retrieval import PastIncidents

        return PastIncidents(self.index).opinion(text)


def _open(folder: str, incidents: Remembered, rules: RuleSet) -> IncidentIndex:
    from diagnose.redaction import Redactor
    from diagnose.store.embeddings import local_embedder
    from diagnose.store.index import IncidentIndex, Place

    def redact(text: str) -> str:
        return Redactor(rules.redactions).redact(text)

    # Numpy finds what Chroma finds, and several processes may read it.
    return IncidentIndex(Place(folder, backend="numpy"), incidents, local_embedder(), redact)
