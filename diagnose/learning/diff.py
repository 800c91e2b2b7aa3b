"""What a change of rules changes: the page that a pull request shows.

In: two rule sets, the corpus, logs of healthy runs. Out: `Change`, and its Markdown. The next version follows from it:
major where a rule is gone or says another error type or attribution, minor where there is a new rule or signature,
patch for all the rest.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal

from diagnose.compress import Compressor, Filters, Guard
from diagnose.dataclass import dataclass, fields
from diagnose.learning.corpus import Corpus, Known
from diagnose.learning.trial import near_rules
from diagnose.lines import guard_keywords
from diagnose.models import LogSource
from diagnose.models.rule import DiagnosisRule, FilterRule, RuleSet
from diagnose.rules.lint.base import Context
from diagnose.rules.lint.cross import NoUnknownOverlap
from diagnose.rules.lint.noise import Logs, measure
from diagnose.rules.lint.run import lint_rules
from diagnose.rules.lint.runner import keywords_of
from diagnose.settings import Limits

Step = Literal["major", "minor", "patch", "none"]
_STEPS: Final[tuple[Step, ...]] = ("none", "patch", "minor", "major")
_SHOWN: Final = 30
_PACES: Final = 5
_SPEED_BYTES: Final = 4 * 1024 * 1024
Rule = DiagnosisRule | FilterRule


@dataclass(frozen=True, slots=True)
class Change:
    """What differs between two rule sets, and what that does."""

    before: str
    after: str
    added: tuple[Rule, ...]
    removed: tuple[Rule, ...]
    changed: tuple[tuple[Rule, tuple[str, ...]], ...]
    reasons: tuple[tuple[Step, str], ...]
    verdicts: tuple[tuple[str, Known, Known], ...]
    jobs: int
    noise: tuple[tuple[str, int, int], ...]
    lines: tuple[int, int, int]
    overlaps: tuple[str, ...]
    speed: float | None

    @property
    def step(self) -> Step:
        """How far the version moves."""
        return max((step for step, _ in self.reasons), key=_STEPS.index, default="none")

    @property
    def version(self) -> str:
        """The next version."""
        return next_version(self.before, self.step)


def next_version(version: str, step: Step) -> str:
    """`1.4.2` one step on; what is behind a plus or hyphen is left out."""
    plain = version.partition("+")[0].partition("-")[0]
    numbers = [int(part) if part.isdigit() else 0 for part in plain.split(".")[:3]]
    major, minor, patch = (*numbers, 0, 0, 0)[:3]
    return {
        "major": f"{major + 1}.0.0",
        "minor": f"{major}.{minor + 1}.0",
        "patch": f"{major}.{minor}.{patch + 1}",
        "none": f"{major}.{minor}.{patch}",
    }[step]


def compare(before: RuleSet, after: RuleSet, corpus: Corpus, healthy: Logs, *, speed: bool = True) -> Change:
    """What a step from one rule set to the other changes."""
    old, new = {rule.id: rule for rule in before.rules}, {rule.id: rule for rule in after.rules}
    added = tuple(rule for name, rule in new.items() if name not in old)
    removed = tuple(rule for name, rule in old.items() if name not in new)
    changed = tuple((rule, _fields(old[name], rule)) for name, rule in new.items() if old.get(name, rule) != rule)
    reasons = tuple(_reasons(before, after, added, removed, changed))
    was, now = measure(before, healthy), measure(after, healthy)
    verdicts = tuple(_verdicts(before, after, corpus)) if reasons else ()
    return Change(
        before=before.version,
        after=after.version,
        added=added,
        removed=removed,
        changed=changed,
        reasons=reasons,
        verdicts=verdicts,
        jobs=len(corpus.incidents),
        noise=tuple(_noise(was.findings, now.findings)),
        lines=(now.lines, was.left, now.left),
        overlaps=tuple(_overlaps(after, {rule.id for rule in added} | {rule.id for rule, _ in changed})),
        speed=pace(before, after, healthy) if speed and reasons else None,
    )


def _fields(old: Rule, new: Rule) -> tuple[str, ...]:
    if type(old) is not type(new):
        return ("schema",)
    return tuple(each.name for each in fields(new) if getattr(old, each.name) != getattr(new, each.name))


def _reasons(
    before: RuleSet,
    after: RuleSet,
    added: Sequence[Rule],
    removed: Sequence[Rule],
    changed: Sequence[tuple[Rule, tuple[str, ...]]],
) -> Iterator[tuple[Step, str]]:
    """Why the version moves, each with how far."""
    for rule in removed:
        yield "major", f"`{rule.id}` is gone"
    for name, entry in before.taxonomy.items():
        other = after.taxonomy.get(name)
        if other is None:
            yield "major", f"the error type `{name}` is gone"
        elif (other.attribution, other.family) != (entry.attribution, entry.family):
            yield "major", f"the error type `{name}` has another attribution or family"
    for name in after.taxonomy.keys() - before.taxonomy.keys():
        yield "minor", f"the error type `{name}` is new"
    for rule in added:
        yield "minor", f"`{rule.id}` is new"
    old = {rule.id: rule for rule in before.rules}
    for rule, differs in changed:
        was = old[rule.id]
        if isinstance(rule, DiagnosisRule) and isinstance(was, DiagnosisRule):
            if rule.error_type != was.error_type:
                yield "major", f"`{rule.id}` says {rule.error_type}, no longer {was.error_type}"
            elif _attribution(rule, after) != _attribution(was, before):
                yield "major", f"`{rule.id}` blames {_attribution(rule, after)}, no longer {_attribution(was, before)}"
            elif rule.signatures.keys() - was.signatures.keys():
                names = ", ".join(sorted(rule.signatures.keys() - was.signatures.keys()))
                yield "minor", f"`{rule.id}` has new signatures: {names}"
            else:
                yield "patch", f"`{rule.id}`: {', '.join(differs)}"
        else:
            yield "patch", f"`{rule.id}`: {', '.join(differs)}"
    for name in sorted(before.tables.keys() | after.tables.keys()):
        yield from _table(name, before, after)
    if before.policy != after.policy:
        yield "patch", "the policy"
    if (before.tags, before.programs) != (after.tags, after.programs):
        yield "patch", "tags or programs"


def _table(name: str, before: RuleSet, after: RuleSet) -> Iterator[tuple[Step, str]]:
    """Rows are knowledge as rules are: what is gone or says another error type is a major change."""
    old = before.tables[name].rows if name in before.tables else {}
    new = after.tables[name].rows if name in after.tables else {}
    for key in old.keys() - new.keys():
        yield "major", f"row {key} of the table {name} is gone"
    if more := new.keys() - old.keys():
        yield "minor", f"the table {name} has {len(more)} new row{'s' if len(more) > 1 else ''}"
    for key in old.keys() & new.keys():
        if old[key].error_type != new[key].error_type:
            yield "major", f"row {key} of the table {name} says another error type"
        elif old[key] != new[key]:
            yield "patch", f"row {key} of the table {name}"


def _attribution(rule: DiagnosisRule, rule_set: RuleSet) -> str | None:
    entry = rule_set.taxonomy.get(rule.error_type)
    return rule.verdict.attribution or (entry.attribution if entry else None)


def _verdicts(before: RuleSet, after: RuleSet, corpus: Corpus) -> Iterator[tuple[str, Known, Known]]:
    """The jobs of the corpus that are judged otherwise."""
    for incident in corpus.incidents:
        old, new = corpus.verdict(incident, before), corpus.verdict(incident, after)
        if old != new:
            yield os.path.basename(incident.folder), old, new


def _noise(
    old: Sequence[tuple[str, str, int, str]], new: Sequence[tuple[str, str, int, str]]
) -> Iterator[tuple[str, int, int]]:
    was, now = _counted(old), _counted(new)
    for name in sorted(was.keys() | now.keys()):
        if was.get(name, 0) != now.get(name, 0):
            yield name, was.get(name, 0), now.get(name, 0)


def _counted(findings: Sequence[tuple[str, str, int, str]]) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for rule, *_ in findings:
        counts[rule] = counts.get(rule, 0) + 1
    return counts


def _overlaps(rule_set: RuleSet, names: set[str]) -> Iterator[str]:
    """Where new and changed rules match what others match, whether or not they know of each other."""
    mine = [rule for rule in rule_set.diagnoses if rule.id in names]
    for rule in mine:
        near = near_rules(rule_set, rule)
        context = Context(near, chosen=frozenset({rule.id}))
        unknown = {problem.message for problem in lint_rules(context, [NoUnknownOverlap])}
        shared: list[str] = []
        for example in rule.examples.positive:
            for other, result in context.runs.run(example.log, example.source).items():
                if other != rule.id and set(result.lines) & set(example.expect.lines):
                    shared.append(other)
        if shared:
            known = "" if unknown else ", which know of each other"
            names_ = ", ".join(f"`{name}`" for name in dict.fromkeys(shared))
            yield f"`{rule.id}` and {names_} match the same lines{known}"
        words = set(keywords_of(rule))
        twins = [
            other.id
            for other in near.diagnoses
            if other.error_type != rule.error_type and not words.isdisjoint(keywords_of(other))
        ]
        if twins:
            yield f"`{rule.id}` has keywords of {', '.join(f'`{name}`' for name in twins[:5])}, another error type"


def pace(before: RuleSet, after: RuleSet, healthy: Logs) -> float | None:
    """How long compression and its guard take with the new rules, as a multiple of the old; the best of several."""
    data = "\n".join("\n".join(lines) for _, lines in healthy).encode("utf-8", "replace")
    if not data:
        return None
    data = (data + b"\n") * max(1, _SPEED_BYTES // (len(data) + 1))
    runs = [_run(rule_set, data) for rule_set in (before, after)]
    best = [float("inf"), float("inf")]
    for _ in range(_PACES):  # in turns, so that a neighbour's burst hits both
        for index, run in enumerate(runs):
            best[index] = min(best[index], run())
    return best[1] / best[0] if best[0] else None


def _run(rule_set: RuleSet, data: bytes) -> Callable[[], float]:
    filters = Filters(rule_set.filters)
    guard = Guard((*(word for rule in rule_set.diagnoses for word in keywords_of(rule)), *guard_keywords()))

    def run() -> float:
        start = time.thread_time()
        compressor = Compressor(LogSource("healthy.log"), filters, guard, Limits())
        for place in range(0, len(data), 256 * 1024):
            compressor.feed(data[place : place + 256 * 1024])
        compressor.finish()
        return time.thread_time() - start

    return run


def markdown(change: Change) -> str:
    """The page: the next version first, then what a reviewer has to look at, then figures."""
    return "\n".join(_page(change)) + "\n"


def _page(change: Change) -> Iterator[str]:
    yield "## Rules: what this changes"
    yield ""
    if change.step == "none":
        yield f"Nothing: the rules are those of version {change.before}."
        return
    yield f"Next version: **{change.version}** ({change.step}, from {change.before})"
    yield ""
    yield from _listed(
        [f"{step}: {why}" for step, why in sorted(change.reasons, key=lambda reason: -_STEPS.index(reason[0]))]
    )
    yield ""
    yield "### Verdicts on the corpus"
    yield ""
    if change.verdicts:
        yield f"{len(change.verdicts)} of {change.jobs} jobs are judged otherwise:"
        yield ""
        yield "| job | before | after |"
        yield "|---|---|---|"
        for name, old, new in change.verdicts[:_SHOWN]:
            yield f"| {_cell(name)} | {_known(old)} | {_known(new)} |"
        yield from _more(len(change.verdicts))
    else:
        yield f"None of {change.jobs} jobs is judged otherwise."
    yield ""
    yield "### Noise on healthy logs"
    yield ""
    if change.noise:
        yield "| rule | lines before | lines after |"
        yield "|---|---:|---:|"
        for name, was, now in change.noise[:_SHOWN]:
            yield f"| `{name}` | {was} | {now} |"
        yield from _more(len(change.noise))
    else:
        yield "No rule finds more or less in healthy logs."
    yield ""
    yield "### Figures"
    yield ""
    lines, was, now = change.lines
    yield "| | before | after |"
    yield "|---|---:|---:|"
    yield f"| lines left of {lines} healthy ones | {_share(was, lines)} | {_share(now, lines)} |"
    if change.speed is not None:
        yield f"| time of compression | 1.00 | {change.speed:.2f} |"
    if change.overlaps:
        yield ""
        yield "### Overlap"
        yield ""
        yield from _listed(change.overlaps)


def _listed(items: Sequence[str]) -> Iterator[str]:
    for item in items[:_SHOWN]:
        yield f"- {_plain(item)}"
    yield from _more(len(items))


def _more(count: int) -> Iterator[str]:
    if count > _SHOWN:
        yield ""
        yield f"... and {count - _SHOWN} more"


def _known(known: Known) -> str:
    return _cell(str(known)) + (f" by `{_cell(known.rule)}`" if known.rule else "")


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _cell(text: str) -> str:
    return _plain(text).replace("|", "\\|")


def _plain(text: str) -> str:
    """A text that stays on its line and addresses nobody: names come from a pull request."""
    shown = "".join(char if char.isprintable() else " " for char in text)[:300]
    return shown.replace("@", "@\u200b").replace("<", "&lt;").replace("![", "[")
