"""What is known of templates: the verdict that holds for every line of one, learnt once.

In: templates of one source's lines. Out: the `Verdict` of each, or None where its lines are simply dropped. A line then
costs one look-up whatever the number of rules. Most templates have a single line, so that of those that nothing speaks
of the verdict is decided by their second one; new ones that come in crowds are looked through together.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import cache, lru_cache
from itertools import compress, repeat
from operator import is_
from typing import Final

from diagnose.compress.filters import NOTHING, ROUTINE_BYTES, Filters, Hit
from diagnose.compress.guard import Answer, Guard
from diagnose.compress.hold import RECORD_OPENERS
from diagnose.compress.repeats import Repeats, Shape
from diagnose.compress.routine import Fate
from diagnose.compress.sampling import ProgressSampler, Quota, Writer
from diagnose.compress.silence import Silence
from diagnose.models import SourceKind


class Verdict:
    """What is known of a template that is not simply dropped. Always true, and equal to itself alone, see `NOVEL`.

    Lines that no rule and no keyword speak of are `kept`, and have a `shape` if they are thinned out. Where one rule
    decides alone, outside records, no more is needed than: of a progress rule what finds its `writer`, of one that
    collapses those that are `full`; where its lines hold their writer's `name` and their `step`; and for their marks
    which `rule` it is. Where a line is known to pass on, for it shows `progress` by a rule, that is all. Lines that no
    rule speaks of and that matter in any case are `loud`: it says whether a keyword stands in them, else it is None.
    """

    __slots__ = (
        "full",
        "guard",
        "kept",
        "loud",
        "maybe",
        "name",
        "opener",
        "progress",
        "rule",
        "shape",
        "step",
        "sure",
        "writer",
    )

    def __init__(self, sure: Hit | None, maybe: tuple[Hit, ...], guard: Answer, opener: Answer) -> None:
        self.sure, self.maybe, self.guard, self.opener = sure, maybe, guard, opener
        self.kept = sure is None and not maybe and guard is Answer.NO and opener is Answer.NO
        known = sure is None and not maybe and Answer.MAYBE not in (guard, opener)
        self.loud = guard is Answer.SURE if known and not self.kept else None
        self.shape: Shape | None = None
        self.writer: Callable[[bytes], Writer | None] | None = None
        self.full: AbstractSet[bytes] | None = None
        self.rule: bytes | None = None
        self.progress: str | None = None
        self.name = slice(*sure.writer) if sure is not None else slice(0)
        self.step = slice(*sure.step) if sure is not None and sure.step is not None else None


# The cache holds None for templates whose lines are dropped, so that `compress` passes over them; a template that it
# does not know must not be passed over.
NOVEL: Final = Verdict(None, (), Answer.MAYBE, Answer.NO)
KEPT: Final = Verdict(None, (), Answer.NO, Answer.NO)  # one for all templates whose lines all pass
ONCE: Final = Verdict(None, (), Answer.NO, Answer.NO)  # one for all such templates of which one line has passed
_Cache = dict[bytes, Verdict | None]
_MANY: Final = 100  # new templates in one block: they are looked through together
_MEAN_BYTES: Final = 512  # the cache is full at this mean length even when it has room for more templates


@cache
def openers() -> Guard:
    """The literals that open records."""
    return Guard(RECORD_OPENERS)


@lru_cache(maxsize=2)  # of a run there is one, and one more when it adopts filters
def _silence(filters: Filters, guard: Guard) -> Silence:
    return Silence((*filters.searched, *guard.searched, *openers().searched))


class Verdicts:
    """The verdicts of one source's templates; `cache` has those that are known, None for dropped ones."""

    def __init__(
        self,
        kind: SourceKind,
        filters: Filters,
        guard: Guard,
        room: int,
        progress: ProgressSampler,
        quota: Quota,
        repeats: Repeats | None,
    ) -> None:
        """`room` is for how many templates. Verdicts point at the writers of `progress`, `quota` and `repeats`."""
        self.cache: _Cache = {}
        self.evicted = 0
        self._kind = kind
        self._filters = filters
        self._guard = guard
        self._openers = openers()
        self._silence = _silence(filters, guard)
        self._room = max(1, room)
        self._bytes = 0
        self._unseen: set[bytes] = set()  # templates learnt before their first line was judged
        self._progress = progress
        self._quota = quota
        self._repeats = repeats

    def adopt(self, filters: Filters) -> None:
        """Judge by other filter rules from here on."""
        self._filters = filters
        self._silence = _silence(filters, self._guard)
        self.cache.clear()
        self._bytes = 0

    def roomy(self, lines: int, size: int) -> bool:
        """Whether so many lines of `size` bytes cannot make anything be forgotten."""
        return len(self.cache) + lines <= self._room and self._bytes + size <= self._room * _MEAN_BYTES

    def of_all(self, templates: list[bytes]) -> list[Verdict | None]:
        """What the cache knows of each line, once it has learnt those templates of which there are several lines."""
        verdicts = list(map(self.cache.get, templates, repeat(NOVEL)))
        if NOVEL in verdicts:
            novel = templates
            if verdicts.count(NOVEL) < len(templates):
                novel = list(compress(templates, map(is_, verdicts, repeat(NOVEL))))
            distinct = dict.fromkeys(novel)
            single = len(distinct) == len(novel)
            silent = self._learn_silent(distinct, seen=single) if len(distinct) >= _MANY else None
            if single and silent:  # their first lines pass, and here are no others
                if len(silent) == len(templates):
                    return [KEPT] * len(templates)
                judged = zip(templates, verdicts, strict=True)
                return [KEPT if verdict is NOVEL and each in silent else verdict for each, verdict in judged]
            if len(distinct) * 2 <= len(novel):
                for each in distinct:
                    if each not in self.cache and self.learn(each) is ONCE:
                        self._unseen.add(each)
                silent = distinct.keys()
            if silent:
                verdicts = list(map(self.cache.get, templates, repeat(NOVEL)))
        return verdicts

    def _learn_silent(self, distinct: dict[bytes, None], *, seen: bool) -> AbstractSet[bytes] | None:
        """Learn all those new templates at once that nothing speaks of, and give them; None where it is not done.

        Of each that was not `seen` the first line has yet to be judged.
        """
        sizes = list(map(len, distinct))
        size = sum(sizes)
        room = self._room - len(self.cache) - len(distinct)
        if room < 0 or self._bytes + size > self._room * _MEAN_BYTES:
            return None
        spoken = self._silence.spoken(distinct)
        if spoken is None:
            return None
        if max(sizes) > ROUTINE_BYTES:
            spoken.update(each for each in distinct if len(each) > ROUTINE_BYTES)
        silent = distinct.keys() - spoken if spoken else distinct.keys()
        verdict = KEPT if self._repeats is None else ONCE
        self.cache.update(zip(silent, repeat(verdict), strict=False))
        self._bytes += size - sum(map(len, spoken))
        if self._repeats is not None and not seen:
            self._unseen |= silent
        return silent

    def of(self, line_template: bytes) -> Verdict | None:
        """The verdict of the template of a line that is judged now, None if it is dropped."""
        verdict = self.cache.get(line_template, NOVEL)
        if verdict is NOVEL:
            return self.learn(line_template)
        return self.again(line_template) if verdict is ONCE else verdict

    def again(self, line_template: bytes) -> Verdict:
        """The verdict of a template that nothing speaks of, which its second line decides: most have no second."""
        if line_template in self._unseen:
            self._unseen.discard(line_template)
            return KEPT
        verdict = self.cache.get(line_template)
        if verdict is ONCE or verdict is None:
            shape = None if self._repeats is None else self._repeats.shape(line_template)
            verdict = KEPT
            if shape is not None:
                verdict = Verdict(None, (), Answer.NO, Answer.NO)
                verdict.shape = shape
            if line_template in self.cache:
                self.cache[line_template] = verdict
        return verdict

    def fate(self, line_template: bytes) -> Fate | None:
        """What becomes of the lines of a template, if one rule decides."""
        verdict = self._judged(line_template)
        if verdict is None:
            return Fate()
        hit = verdict.sure
        return None if verdict.rule is None or hit is None else Fate(verdict.rule, hit.writer, hit.step or (0, 0))

    def learn(self, line_template: bytes) -> Verdict | None:
        """Judge a template that the cache does not know."""
        verdict = self._judged(line_template)
        self._remember(line_template, verdict)
        return verdict

    def _judged(self, line_template: bytes) -> Verdict | None:
        judged = self._filters.judge(line_template, self._kind)
        guard = self._guard.judge(line_template)
        opener = self._openers.judge(line_template)
        verdict: Verdict | None
        if judged is NOTHING and not guard and not opener:
            verdict = KEPT if self._repeats is None else ONCE
        else:
            verdict = Verdict(judged.sure, judged.maybe, guard, opener)
            if judged is NOTHING and self._repeats is not None and Answer.SURE not in {guard, opener}:
                verdict.shape = self._repeats.shape(line_template)
            if judged.sure is not None and not judged.maybe and not guard and not opener:
                rule = judged.sure.rule
                verdict.rule = b"%d" % rule.index
                if rule.progress:
                    verdict.writer = self._progress.writers(rule.id).get
                elif rule.action == "drop":
                    verdict = None
                else:
                    verdict.full = self._quota.full(rule.id)
        return verdict

    def _remember(self, line_template: bytes, verdict: Verdict | None) -> None:
        size = len(line_template)
        if size > ROUTINE_BYTES:  # no filter judges those, and they would fill the memory
            return
        if len(self.cache) >= self._room or self._bytes + size > self._room * _MEAN_BYTES:
            self.evicted += len(self.cache)
            self.cache.clear()
            self._bytes = 0
        self.cache[line_template] = verdict
        self._bytes += size
