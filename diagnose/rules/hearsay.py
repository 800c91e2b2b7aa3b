"""Hearsay is not a cause: what a log only passes on, and what a kernel said at a time that nobody knows.

In: the findings of one attempt, its progress. Out: which of them are not believed and why, and those that are, with
`dated` set where something of the job's own agrees. A training log may cite anything: samples, prompts, a pasted
`dmesg`. So of what it prints (a kernel's or a scheduler's line, a device's error) nothing is believed that the work
outlived by several steps, that an exception of the job's own followed, or that bears another day's stamp. And a
kernel's log without comparable times, or one that goes on for hours, speaks of a job only where the job agrees.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from diagnose.dataclass import replace
from diagnose.lines.timeline import AttemptProgress
from diagnose.models import Finding
from diagnose.rules.captures import UNDATED
from diagnose.rules.edges import Edges, kind_of
from diagnose.rules.ends import Ends
from diagnose.rules.precedence import DATED

_STEPS = 5  # that make sure the work went on: the others of a job may print one or two more
_LINES = 3
_MANY_LINES = 25  # where steps bear no number
_AWAY = 3600.0  # seconds: wrong clocks and long silences make less
# What a fault of a machine or a word of a scheduler would explain, and a log may cite.
_OF_OTHERS = frozenset({"hardware", "cuda", "network", "node", "host"})
_SAID_ONCE = frozenset({"scheduler"})  # notices come before the end, and the work goes on for as long as it may
_WITH_PROGRESS = frozenset({"GPUThermalThrottle", "TrainingAnomaly"})
_ANYWHERE = "*"
_BY_SIGNAL = frozenset({"ProcessKilled", "SegmentationFault"})


def hearsay(
    findings: Sequence[Finding], progress: AttemptProgress, edges: Edges, *, proven: bool
) -> tuple[dict[str, str], dict[str, Finding]]:
    """Why findings are not believed, by id, and the changed ones among the others, by id.

    `proven`: something else than findings shows that the job failed, such as an exit code.
    """
    others = _Others(findings, edges)
    doubts = {finding.id: why for finding in findings if (why := _doubt(finding, others, progress, proven))}
    believed = _Believed(finding for finding in findings if finding.id not in doubts)
    aside: dict[str, str] = {}
    agreed: dict[str, Finding] = {}
    for finding in findings:
        if believed.agree(finding):
            if not finding.told.dated:
                agreed[finding.id] = replace(finding, told=replace(finding.told, dated=True))
        elif finding.id in doubts:
            aside[finding.id] = doubts[finding.id]
    return aside, agreed


class _Believed:
    """What is believed, by type and place: whether the job's own words say the same, without a look at all of them."""

    def __init__(self, believed: Iterable[Finding]) -> None:
        # Under each place the first two that are there: one of them is another than whoever asks.
        self._places: dict[tuple[str, str | None, str | None], list[str]] = {}
        for finding in believed:
            if finding.sources <= {"kernel"} or finding.told.kernel:
                continue
            for host in (_ANYWHERE, *(finding.hosts or (None,))):
                for gpu in (_ANYWHERE, *(finding.gpus or (None,))):
                    known = self._places.setdefault((finding.error_type, host, gpu), [])
                    if len(known) < 2:
                        known.append(finding.id)

    def agree(self, finding: Finding) -> bool:
        """Whether another says the same, of the same unit as far as is known."""
        hosts = (*finding.hosts, None) if finding.hosts else (_ANYWHERE,)
        gpus = (*finding.gpus, None) if finding.gpus else (_ANYWHERE,)
        return any(
            known != finding.id
            for host in hosts
            for gpu in gpus
            for known in self._places.get((finding.error_type, host, gpu), ())
        )


class _Others:
    """All findings, one of each kind, and what ended the job's own code."""

    def __init__(self, findings: Sequence[Finding], edges: Edges) -> None:
        self._edges = edges
        self._kinds = list({kind_of(finding): finding for finding in reversed(findings)}.values())
        ends = [finding for finding in findings if _own_end(finding)]
        self._ends, self._by_source = Ends(ends), Ends(ends, by_source=True)

    def explained(self, finding: Finding) -> list[Finding]:
        """One of each kind that a finding may explain; never of its own."""
        return [other for other in self._kinds if self._edges.scope(finding, other) is not None]

    def own_end(self, finding: Finding) -> Finding | None:
        """An exception that the finding does not explain."""
        return self._ends.unexplained(finding, self._edges)

    def followed_by(self, finding: Finding) -> Finding | None:
        """An exception later in the same log that the finding does not explain."""
        return self._by_source.unexplained_after(finding, self._edges)


def _doubt(finding: Finding, others: _Others, progress: AttemptProgress, proven: bool) -> str | None:
    if finding.told.printed:
        if UNDATED in finding.captures:
            return None  # where a listing stands in a log is not when it happened
        return _doubt_print(finding, others, progress, proven)
    if finding.sources <= {"kernel"}:
        return _doubt_kernel_log(finding, others)
    return None


def _doubt_print(finding: Finding, others: _Others, progress: AttemptProgress, proven: bool) -> str | None:
    """Doubts about what stands only in what the job itself wrote."""
    told = finding.told
    if finding.error_type in _WITH_PROGRESS or finding.role == "teardown":
        return None
    followed = others.followed_by(finding)
    if finding.family in _OF_OTHERS or (finding.family in _SAID_ONCE and followed is not None):
        if _outlived(finding, progress):
            return "the same log tells of steps after it: it is cited, or was survived"
        if told.kernel and not told.pasted and followed is not None:
            return f"a line of a kernel in the job's own log, which goes on until {followed.error_type}"
    if not told.kernel:
        return None
    if told.stamped and (away := _away(finding, progress)) is not None:
        return f"its stamp is {away / 3600:.0f} h away from the job's own"
    explained = others.explained(finding)
    if not told.stamped and not any(other.family in ("cuda", "hardware") for other in explained):
        return "a line of a kernel without its stamp in the job's own log, and nothing of the job agrees"
    if not told.pasted and not explained and not proven:
        return "a line of a kernel in the job's own log, and nothing shows that the job stopped"
    return None


def _doubt_kernel_log(finding: Finding, others: _Others) -> str | None:
    """Doubts about what only a kernel's own log tells."""
    told = finding.told
    if not told.dated:
        if told.goes_on is not None and told.goes_on > _AWAY:
            return f"its kernel log goes on for {told.goes_on / 3600:.0f} h after it, and nothing of the job agrees"
        own = others.own_end(finding)
        if own is not None:
            return f"nothing tells that it was during the job, which names a cause of its own: {own.error_type}"
    if told.bystander and not _hurt(finding, others):
        return "a program that is not known to be the job's was killed, and nothing of the job shows it"
    return None


def _hurt(finding: Finding, others: _Others) -> bool:
    """Whether something fell that a lack of memory on its node explains, beyond a process that was killed as well."""
    return any(
        other.role != "teardown" and other.error_type not in _BY_SIGNAL and not other.sources <= {"kernel"}
        for other in others.explained(finding)
    )


def _own_end(finding: Finding) -> bool:
    """Whether the job's own code raised, as its log tells with a traceback."""
    return finding.traceback and finding.role == "cause" and not finding.sources <= {"kernel", "scheduler"}


def _outlived(finding: Finding, progress: AttemptProgress) -> bool:
    """Whether in each log that tells of it several steps follow.

    A piece of a kernel's log may stand before the job's output: it counts only where steps were told before it too.
    """
    return bool(finding.spans) and all(
        _steps_after(progress, source, last, before=finding.told.pasted) for source, (_, last) in finding.spans.items()
    )


def _steps_after(progress: AttemptProgress, source: str, line: int, *, before: bool) -> bool:
    """Whether several steps follow a line, counted from the one before it, which passes every sampling of steps."""
    marks, course = progress.recent.get(source), progress.course.get(source)
    if not marks or course is None or marks[-1].number - line < _LINES:
        return False
    began = progress.began.get(source, line)
    if before and began >= line:
        return False
    since, latest = course.before(line), marks[-1]
    if since is None or latest.step is None:
        return began <= line and latest.number - line >= _MANY_LINES
    return latest.step - since >= _STEPS


def _away(finding: Finding, progress: AttemptProgress) -> float | None:
    """Seconds between a stamp and the job's own time, where they are too many; None where nothing tells."""
    if finding.first is None or finding.last is None or progress.started is None or progress.ended is None:
        return None
    if (finding.first < DATED) != (progress.started < DATED):
        return None
    away = max(progress.started - finding.last, finding.first - progress.ended)
    return away if away > _AWAY else None
