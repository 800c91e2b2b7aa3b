"""The Log Agent: while logs stream, it finds filter rules for lines that come over and over and that no filter covers.

In: lines as they are compressed. Out: filter rules that were admitted, for the rest of this job and for later jobs with
the same fingerprint; candidates for people to review. Models are asked by one thread beside the run, which never waits
for it: an outage costs filters, not time. Without a model candidates are made by frequency, and none of them applies
before somebody has reviewed it.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from diagnose.agents.families import Families, Family, Watch
from diagnose.agents.filter_author import FREQUENCY, Draft, FilterAuthor, by_frequency
from diagnose.agents.fingerprint import Sniffer
from diagnose.compress import CompiledFilter, Filters
from diagnose.dataclass import dataclass, replace
from diagnose.errors import DiagnoseError
from diagnose.models import FilterRule, JobContext, LogSource, RuleSet
from diagnose.models.learning import CandidateState, FilterCandidate, FilterCandidates, Fingerprint
from diagnose.rules.admission import Admission, Evidence

if TYPE_CHECKING:
    from diagnose.agents.model import ChatModel

_FINGERPRINT_BYTES: Final = 512 * 1024  # by then the head of the log has been seen
_BATCH: Final = 8
_CANDIDATES: Final = 64  # of one job


@dataclass(frozen=True, slots=True)
class LogBudget:
    """What a job may cost. A round is `samples` calls and one that votes; a call counts whatever comes of it.

    `least` lines make a family worth a filter; `seconds` is how long the end of a run waits for a round under way.
    """

    calls_per_job: int = 24
    calls_per_mb: float = 1.0
    samples: int = 3
    least: int = 200
    seconds: float = 5.0


class LogAgent:
    """Advises runs of filter rules. One for a process; each run has its own advice."""

    def __init__(
        self,
        rule_set: RuleSet,
        store: FilterCandidates,
        *,
        redact: Callable[[], Callable[[str], str]],
        model: ChatModel | None = None,
        evidence: Evidence = tuple,
        budget: LogBudget | None = None,
    ) -> None:
        """`redact` gives each run a redaction of its own; `evidence` are lines that prove past incidents."""
        self._rule_set = rule_set
        self._store = store
        self._redact = redact
        self._model = model
        self._evidence = evidence
        self._budget = budget or LogBudget()
        self._runs: list[Advice] = []

    def begin(self, context: JobContext) -> Advice:
        """The advice of one run of a job."""
        admission = Admission(self._rule_set, self._evidence)
        author = None if self._model is None else FilterAuthor(self._model, self._redact())
        asker = None if author is None or self._model is None else _Asker(author, self._model, admission, self._budget)
        families = Families(Filters(self._rule_set.filters), admission)
        advice = Advice(families, admission, self._store, Sniffer(context), asker, self._redact(), self._budget)
        self._runs.append(advice)
        return advice

    def close(self) -> tuple[FilterCandidate, ...]:
        """End all runs and keep what they have found; the candidates that are new."""
        runs, self._runs = self._runs, []
        return tuple(candidate for run in runs for candidate in run.close())


class Advice:
    """What one run is told. Used by the run's own thread alone."""

    def __init__(
        self,
        families: Families,
        admission: Admission,
        store: FilterCandidates,
        sniffer: Sniffer,
        asker: _Asker | None,
        redact: Callable[[str], str],
        budget: LogBudget,
    ) -> None:
        self._families = families
        self._admission = admission
        self._store = store
        self._sniffer = sniffer
        self._asker = asker
        self._redact = redact
        self._budget = budget
        self._fingerprint: Fingerprint | None = None
        self._stored: dict[str, FilterCandidate] = {}
        self._new: dict[str, FilterCandidate] = {}

    def watch(self, source: LogSource) -> Watch | _HeadWatch:
        """Who sees the lines of a source."""
        self._sniffer.source(source.name)
        watch = self._families.watch(source)
        return watch if self._fingerprint else _HeadWatch(watch, self._sniffer)

    def news(self) -> tuple[FilterRule, ...]:
        """Rules admitted since the last call: those of earlier jobs alike first, then what the model wrote."""
        found: list[FilterRule] = []
        if self._fingerprint is None:
            if self._families.bytes < _FINGERPRINT_BYTES:
                return ()
            found += self._recalled()
        if self._asker is not None:
            families = self._families.frequent(self._budget.least)[:_BATCH]
            if families and self._asker.may(self._families.bytes):
                for family in families:
                    family.asked = True
                others = [tuple(self._families.others(family)) for family in families]
                self._asker.put(families, others)
            found += [draft.rule for draft in self._asker.taken() if self._kept(draft, "applied")]
        return tuple(found)

    def _recalled(self) -> list[FilterRule]:
        """The rules that earlier jobs of this fingerprint brought, judged anew: other rules may have changed."""
        self._fingerprint = self._sniffer.fingerprint
        if not self._fingerprint.known:
            return []
        with contextlib.suppress(DiagnoseError):  # a store that fails costs filters
            self._stored = {each.rule.id: each for each in self._store.of(self._fingerprint)}
        found: list[FilterRule] = []
        for each in self._stored.values():
            lines = [line.encode() for line in each.rule.examples.noise]
            if each.state in ("applied", "promoted") and self._admission.refuses(each.rule, lines, ()) is None:
                found.append(each.rule)
                for family in self._families.all():
                    family.asked = family.asked or _covers(each.rule, family)
        return found

    def _kept(self, draft: Draft, state: CandidateState) -> bool:
        """Note a candidate; no where a person has rejected it, or it is known already."""
        rule = draft.rule
        if rule.id in self._stored or rule.id in self._new or len(self._new) >= _CANDIDATES:
            return False
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        fingerprint = self._fingerprint or self._sniffer.fingerprint
        self._new[rule.id] = FilterCandidate(rule, fingerprint, rule.author[0], state, 0, now)
        return True

    def close(self) -> tuple[FilterCandidate, ...]:
        """Wait a little for what is under way, then keep candidates and hits."""
        if self._fingerprint is None:
            self._recalled()
        if self._asker is not None:
            self._asker.end(self._budget.seconds)
            for draft in self._asker.taken():
                self._kept(draft, "applied")
        elif self._admission.able:
            self._by_frequency()
        made = tuple(replace(each, hits=self._hits(each.rule)) for each in self._new.values())
        with contextlib.suppress(DiagnoseError):
            for candidate in made:
                self._store.add(candidate)
            for candidate in self._stored.values():
                if hits := self._hits(candidate.rule):
                    self._store.count(candidate.fingerprint, candidate.rule.id, hits)
        self._stored, self._new = {}, {}
        return made

    def _by_frequency(self) -> None:
        for family in self._families.frequent(self._budget.least)[:_BATCH]:
            draft = by_frequency(family, self._redact)
            others = self._families.others(family)
            if draft and self._admission.refuses(draft.rule, family.samples, others, family.kind) is None:
                self._kept(draft, "proposed")

    def _hits(self, rule: FilterRule) -> int:
        return sum(family.count for family in self._families.all() if _covers(rule, family))


class _HeadWatch:
    """Sees the lines of a source while the fingerprint is not known yet."""

    __slots__ = ("_sniffer", "_watch")

    def __init__(self, watch: Watch, sniffer: Sniffer) -> None:
        self._watch = watch
        self._sniffer = sniffer

    def lines(self, lines: Sequence[bytes], templates: Sequence[bytes]) -> None:
        """Take whole lines and their templates."""
        self._sniffer.lines(lines)
        self._watch.lines(lines, templates)


class _Asker:
    """Asks the model in a thread of its own: rounds in, admitted and voted drafts out. Its answers wait to be taken."""

    def __init__(self, author: FilterAuthor, model: ChatModel, admission: Admission, budget: LogBudget) -> None:
        self._author = author
        self._model = model
        self._admission = admission
        self._budget = budget
        self._calls = 0
        self.failure = ""
        self._rounds: queue.SimpleQueue[tuple[Sequence[Family], Sequence[Sequence[bytes]]] | None] = queue.SimpleQueue()
        self._found: queue.SimpleQueue[Draft] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._busy = threading.Event()

    def may(self, read: int) -> bool:
        """Whether the budget has a round left, after so many bytes, and none is under way."""
        calls = self._calls + self._budget.samples + 1
        allowed = min(self._budget.calls_per_job, self._budget.calls_per_mb * read / 1e6)
        return calls <= allowed and not self._busy.is_set()

    def put(self, families: Sequence[Family], others: Sequence[Sequence[bytes]]) -> None:
        """Begin a round."""
        self._calls += self._budget.samples + 1
        self._busy.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="log agent", daemon=True)
            self._thread.start()
        self._rounds.put((_snapshots(families), others))

    def taken(self) -> list[Draft]:
        """What has come since."""
        found: list[Draft] = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._found.get_nowait())
        return found

    def end(self, seconds: float) -> None:
        """Let the round under way come to its end, for so long at most."""
        if self._thread is not None:
            self._rounds.put(None)
            self._thread.join(seconds)

    def _work(self) -> None:
        while (asked := self._rounds.get()) is not None:
            try:
                for draft in self._round(*asked):
                    self._found.put(draft)
            except Exception as error:  # noqa: BLE001 - whatever an answer makes a library do costs filters alone
                self.failure = f"{type(error).__name__}: {error}"[:300]
            finally:
                self._busy.clear()

    def _round(self, families: Sequence[Family], others: Sequence[Sequence[bytes]]) -> Sequence[Draft]:
        """Samples, each admitted by itself; families with the same word from most samples; and of those the vote."""
        allowance = self._model.allowance()
        admitted: dict[str, Draft] = {}
        speaking: dict[int, set[int]] = {}
        strangers: Mapping[int, Sequence[bytes]] = {
            id(family): each for family, each in zip(families, others, strict=True)
        }
        for sample in range(self._budget.samples):
            for draft in self._author.ask(families, sample, allowance):
                family = draft.family
                if draft.rule.id not in admitted:
                    why = self._admission.refuses(draft.rule, family.samples, strangers[id(family)], family.kind)
                    if why is not None:
                        continue
                    admitted[draft.rule.id] = draft
                speaking.setdefault(id(family), set()).add(sample)
        most = self._budget.samples // 2 + 1
        ballot = [draft for draft in admitted.values() if len(speaking[id(draft.family)]) >= most]
        if not ballot:
            return ()
        chosen: dict[int, Draft] = {}
        for draft in self._author.vote(ballot[:24], allowance):
            chosen.setdefault(id(draft.family), draft)
        return tuple(chosen.values())


def _snapshots(families: Sequence[Family]) -> tuple[Family, ...]:
    """Copies that the run does not change while they are looked at."""
    found: list[Family] = []
    for family in families:
        copy = Family(family.kind, family.pieces)
        copy.count, copy.samples = family.count, list(family.samples)
        found.append(copy)
    return tuple(found)


def _covers(rule: FilterRule, family: Family) -> bool:
    return family.kind in rule.sources and bool(family.samples) and CompiledFilter(0, rule).matches(family.samples[0])


__all__ = ["FREQUENCY", "Advice", "LogAgent", "LogBudget"]
