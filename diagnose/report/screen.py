"""The first screen: what an on-call engineer needs, in the order it is needed.

In: a `Report` and a width in columns. Out: rows of (label, text, where), laid out by `text` and `markdown`. `where` is
the place of the line, `file:line`. Nothing here knows of colour or of a terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, takewhile

from diagnose.dataclass import dataclass
from diagnose.models import Evidence, Report
from diagnose.patterns import Lazy
from diagnose.rules.captures import shown_names, shown_numbers

_EVIDENCE_ROWS = 3
_LONGEST_UNIT = 20
_GAP = Lazy(r"[ \t]{2,}")
_NUMBER = Lazy(r"\d+")
_CHAIN_LINKS = 6
_CULPRIT_ROWS = 4
_SIMILAR, _SIMILAR_VERBOSE = 3, 10
_ATTEMPTS = 6
_ATTRIBUTIONS = {
    "infrastructure": "infrastructure",
    "user": "your code",
    "scheduler": "scheduler",
    "unknown": "not attributed",
}
# In the place of a rule's name, where none decided.
_FROM = {"retrieval": "by past incidents", "failure_agent": "by a model"}
# What a restart must change, by the row of the policy that asks for it.
_RESTART_WITH = {"time-limit-from-the-start": "restart with a longer time limit"}
# What to do with a job that did not fail, or is not known to have failed.
_UNPROVEN = {
    ("no_failure", "none"): "nothing to do",
    ("inconclusive", "none"): "no restart before a person has looked",
    ("inconclusive", "restart"): "restart once, if the job has ended",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the screen; a row without a label goes on with the one before. `lead` are columns that are not cut."""

    label: str
    text: str
    where: str = ""
    lead: str = ""


@dataclass(frozen=True, slots=True)
class Headline:
    """The first line: status, what follows it in order of importance, and the rule or who else decided."""

    status: str
    parts: tuple[str, ...]
    rule: str
    other: str = ""


def headline(report: Report) -> Headline:
    """The first line of the screen."""
    if report.status == "no_failure":
        done = "the job completed" if report.progress.completed else "nothing stopped the work"
        return Headline("NO FAILURE", (done,), "")
    if report.status == "inconclusive":
        return Headline("INCONCLUSIVE", ("nothing read proves a failure or an end",), "")
    if report.error_type is None:
        return Headline("FAILED", ("cause not found",), "")
    owner = _ATTRIBUTIONS[report.attribution or "unknown"]
    if report.attribution == "user" and report.error_type == "JobCancelled":
        owner = "the user"  # no code is at fault
    parts = tuple(part for part in (owner, report.error_type, _culprit(report)) if part)
    decided = report.decided_by
    return Headline("FAILED", parts, decided.rule or "", "" if decided.rule else _FROM.get(decided.stage, ""))


def _culprit(report: Report) -> str:
    by_kind: dict[str, list[str]] = {}
    for culprit in report.culprits:
        by_kind.setdefault(culprit.kind, []).append(f"pod {culprit.id}" if culprit.pod else culprit.id)
    host = by_kind.get("host", [])
    if len(host) == 1 and "gpu" in by_kind:
        gpu = next(culprit for culprit in report.culprits if culprit.kind == "gpu")
        return next((name for name in gpu.names if name.startswith(f"{host[0]} GPU ")), f"{host[0]} GPU {gpu.id}")
    places = ("file", "config") if report.attribution == "user" else ()
    for kind in (*places, "host", "gpu", "switch", "nic", "rank", "file", "config", "service", "process"):
        names = by_kind.get(kind)
        if names and kind == "file":  # the first is where to look, the others lie beneath it
            return names[0]
        if names:
            label = "" if kind in ("host", "file", "config", "service") else f"{kind} "
            if kind == "rank" and all(name.isdigit() for name in names):
                return label + shown_numbers(map(int, names), 8)
            return label + shown_names(names, 3)
    return ""


def screen(report: Report, *, verbose: bool = False) -> list[Row]:
    """The rows below the headline."""
    rows: list[Row] = []
    common = _common_directory([*_names(report), *_evidence_sources(report)])
    if report.root_cause:
        rows.append(Row("Cause", report.root_cause.summary))
        rows.extend(_evidence_rows(report.root_cause.evidence, common, 8 if verbose else _EVIDENCE_ROWS))
        for index, reason in enumerate(report.root_cause.reasons):
            rows.append(Row("Why" if index == 0 else "", reason))
    rows.extend(_chain_rows(report))
    rows.extend(_culprit_rows(report))
    rows.extend(_progress_rows(report))
    rows.extend(_attempt_rows(report))
    for letter, alternative in zip("abcdefgh", report.alternatives, strict=False):
        rows.append(
            Row(
                f"Maybe {letter}",
                f"{alternative.error_type}    for: {alternative.for_}    against: {alternative.against}",
            )
        )
        rows.append(Row("Decide", alternative.test))
    rows.extend(Row("Changed" if index == 0 else "", change) for index, change in enumerate(report.changes))
    rows.extend(_recovery_rows(report))
    rows.extend(_sure_rows(report))
    rows.extend(_similar_rows(report, _SIMILAR_VERBOSE if verbose else _SIMILAR))
    rows.extend(_asked_rows(report))
    rows.extend(_coverage_rows(report, common))
    return rows


def _names(report: Report) -> list[str]:
    return [source.source for source in report.coverage.sources]


def _evidence_sources(report: Report) -> list[str]:
    return [evidence.source for evidence in report.root_cause.evidence] if report.root_cause else []


def _common_directory(sources: Sequence[str]) -> str:
    """The directory that all sources are in, with its slash; empty where there is none."""
    directories = [source.rpartition("/")[0].split("/") if "/" in source else [] for source in sources]
    if not directories:
        return ""
    first, last = min(directories), max(directories)
    shared = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    parts = [part for part, _ in shared]
    return "/".join(parts) + "/" if parts else ""


def _evidence_rows(evidence: Sequence[Evidence], common: str, most: int) -> list[Row]:
    """Time, unit, message and place in columns; what several ranks say in one source is told once."""
    groups: dict[tuple[str, str], list[Evidence]] = {}
    for item in evidence:
        groups.setdefault((_said(item), item.source), []).append(item)
    shown = [group[0] for group in groups.values()][:most]
    units = [_unit(item) for item in shown]
    width = min(_LONGEST_UNIT, max(map(len, units), default=0))
    timed = any(item.time for item in shown)
    rows: list[Row] = []
    for item, unit in zip(shown, units, strict=True):
        clock = f"{item.time[11:19] if item.time else '':<8} " if timed else ""
        lead = clock + (f"{unit[:width]:<{width}}  " if width else "")
        rows.append(Row("", _message(item), _where(item, common), lead))
        alike = groups[_said(item), item.source][1:]
        if alike:
            numbers = ", ".join(str(other.line) for other in alike)
            rows.append(Row("", f"and {len(alike)} more like it: line{'s' if len(alike) > 1 else ''} {numbers}"))
    return rows


def _said(evidence: Evidence) -> str:
    """What a line says whichever rank says it; a line without a rank says just what it says."""
    return _message(evidence) if evidence.rank is None else _NUMBER.sub("0", _message(evidence))


def _message(evidence: Evidence) -> str:
    return _GAP.sub(" ", evidence.message.strip() or evidence.text.strip())


def _unit(evidence: Evidence) -> str:
    return f"rank {evidence.rank}" if evidence.rank is not None else evidence.host or ""


def _where(evidence: Evidence, common: str) -> str:
    name = evidence.source.removeprefix(common)
    return name if evidence.line is None else f"{name}:{evidence.line}"


def _chain_rows(report: Report) -> list[Row]:
    links = [link for link in report.chain if link.error_type != report.error_type]
    if not links:
        return []
    # What several rules say of one thing, one after the other, is one step.
    steps = [list(group) for _, group in groupby(links, key=lambda link: link.error_type)]
    shown = []
    for step in steps[:_CHAIN_LINKS]:
        ranks = {rank for link in step for rank in link.ranks}
        count = sum(link.count for link in step)
        who = f"{len(ranks)} ranks" if len(ranks) > 1 else f"rank {min(ranks)}" if ranks else ""
        times = f" x{count}" if count > 1 and not who else ""
        shown.append(f"{step[0].error_type}{' on ' + who if who else ''}{times}")
    more = f" -> {len(steps) - _CHAIN_LINKS} more" if len(steps) > _CHAIN_LINKS else ""
    start = f"{report.error_type} -> " if report.error_type else ""
    rows = [Row("Chain" if report.error_type else "Seen", start + " -> ".join(shown) + more)]
    victims = sorted({rank for link in links if link.role != "cause" for rank in link.ranks} - _blamed(report))
    if report.error_type and len(victims) > 1:
        rows.append(Row("", f"{len(victims)} ranks ({shown_numbers(victims, 4)}) are victims"))
    return rows


def _blamed(report: Report) -> set[int]:
    ranks = {int(culprit.id) for culprit in report.culprits if culprit.kind == "rank" and culprit.id.isdigit()}
    return ranks | set(report.chain[0].ranks if report.chain else ())


def _culprit_rows(report: Report) -> list[Row]:
    named = [culprit for culprit in report.culprits if culprit.names]
    texts = []
    for culprit in named:
        own = (culprit.id, f"{culprit.kind} {culprit.id}")
        others = [name for name in culprit.names if name not in own]
        if others:
            texts.append(f"{culprit.kind} {culprit.id} = {shown_names(others, 6)}")
    if len(texts) > _CULPRIT_ROWS:
        texts[_CULPRIT_ROWS:] = [f"and {len(texts) - _CULPRIT_ROWS} more"]
    return [Row("Also" if index == 0 else "", text) for index, text in enumerate(texts)]


def _progress_rows(report: Report) -> list[Row]:
    progress = report.progress
    parts = []
    if progress.last_step is not None:
        at = f" at {progress.last_step_time[11:19]}" if progress.last_step_time else ""
        parts.append(f"step {progress.last_step}{at}")
    if progress.last_checkpoint is not None:
        state = (
            "last complete checkpoint"
            if progress.last_checkpoint_complete
            else "last checkpoint (not known to be complete)"
        )
        parts.append(f"{state} {progress.last_checkpoint}")
    return [Row("Progress", "; ".join(parts))] if parts else []


def _attempt_rows(report: Report) -> list[Row]:
    if len(report.attempts) < 2:
        return []
    texts = []
    left_out = len(report.attempts) - _ATTEMPTS
    if left_out > 0:
        texts.append(f"{left_out} earlier")
    for attempt in report.attempts[-_ATTEMPTS:]:
        step = f" at step {attempt.last_step}" if attempt.last_step is not None else ""
        mark = " (this one)" if attempt.diagnosed else ""
        texts.append(f"{attempt.index + 1}: {attempt.error_type or 'not named'}{step}{mark}")
    return [Row("Attempts", "; ".join(texts))]


def _recovery_rows(report: Report) -> list[Row]:
    recovery = report.recovery
    words = {
        "restart": "restart",
        "restart_elsewhere": "restart elsewhere",
        "fix_and_resubmit": "fix and resubmit; a restart fails again",
        "wait_and_retry": "wait, then retry",
        "none": "no restart",
        "unknown": "not known",
    }
    text = _RESTART_WITH.get(recovery.policy or "", words[recovery.job])
    if report.status != "failed":
        text = _UNPROVEN.get((report.status, recovery.job), text)
    if recovery.from_checkpoint and recovery.job in ("restart", "restart_elsewhere", "wait_and_retry"):
        text += f" from {recovery.from_checkpoint}"
    hosts = sorted({node.host for node in recovery.nodes})
    hosts = hosts or [one.id for one in report.culprits if one.machine and not one.presumed]
    if recovery.job == "restart_elsewhere" and hosts:
        text += f" without {shown_names(hosts, 4)}"
    rows = [Row("Do job", text)]
    by_host: dict[str, list[str]] = {}
    for node in recovery.nodes:
        by_host.setdefault(node.host, []).append(
            node.action.replace("_", " ") + (f" {node.gpu}" if node.gpu and node.action == "reset_gpu" else "")
        )
    rows.extend(Row("Do node", f"{host}: {', '.join(actions)}") for host, actions in by_host.items())
    if recovery.hint and report.status == "inconclusive":
        rows.insert(0, Row("Decide", recovery.hint))  # what to find out comes before what to do till then
    elif recovery.hint and report.status == "failed":
        rows.append(Row("Hint", recovery.hint))
    rows.extend(Row("Check" if index == 0 else "", check) for index, check in enumerate(recovery.checks[:5]))
    return rows


def _sure_rows(report: Report) -> list[Row]:
    if report.sureness is None:
        return []
    words = {
        "confirmed": "confirmed: independent sources agree; no rival is left",
        "likely": "likely: one source says so; no rival is left",
        "possible": "possible: another cause is not ruled out",
    }
    return [Row("Sure", words[report.sureness])]


def _similar_rows(report: Report, most: int) -> list[Row]:
    """Past incidents that read alike: what they were, what was done, whether that helped."""
    rows: list[Row] = []
    for each in report.decided_by.similar_incidents[:most]:
        done = each.job.replace("_", " ") if each.job and each.job not in ("none", "unknown") else ""
        helped = "" if each.recovered is None else "it recovered" if each.recovered else "it did not recover"
        outcome = " and ".join(part for part in (done, helped) if part)
        told = f"{each.error_type}, {each.similarity:.0%} alike"
        text = "; ".join(part for part in (told, outcome, each.summary) if part)
        rows.append(Row("Similar" if not rows else "", f"{each.id}: {text}"))
    return rows


def _asked_rows(report: Report) -> list[Row]:
    """Who was asked where no rule decided, and how it went."""
    decided = report.decided_by
    if decided.agent_state in (None, "not_needed", "not_configured"):
        return [Row("Asked" if index == 0 else "", note) for index, note in enumerate(decided.asked)]
    if decided.agent_state == "answered" and decided.stage == "failure_agent":
        answer = "answered; its quotes stand in the lines above, and no person has looked at it"
    elif decided.agent_state == "abstained":
        answer = "cannot tell either"
    else:
        answer = decided.agent_state.replace("_", " ")
    notes = [note.removeprefix(f"{decided.model}: {decided.agent_state}: ") for note in decided.asked]
    return [Row("Asked", f"{decided.model or 'a model'}: {'; '.join([answer, *notes])}")]


def _coverage_rows(report: Report, common: str) -> list[Row]:
    coverage, stats = report.coverage, report.stats
    count = len(coverage.sources)
    what = coverage.sources[0].source if count == 1 else f"{count} sources"
    lines = f"{stats.lines:,} line{'s' if stats.lines != 1 else ''}" if stats.lines else "nothing in it"
    parts = [f"{what}, {lines}"]
    cut = [source.source.removeprefix(common) for source in coverage.sources if source.truncated]
    if cut:
        parts.append(f"in part: {shown_names(cut, 3)}")
    if coverage.ranks_seen:
        expected = f" of {coverage.ranks_expected}" if coverage.ranks_expected else ""
        plural = "" if coverage.ranks_seen == 1 and not expected else "s"
        parts.append(f"{coverage.ranks_seen}{expected} rank{plural} seen")
    parts.append(f"{stats.seconds:.1f} s")
    if report.decided_by.ruleset:
        parts.append(f"ruleset {report.decided_by.ruleset}")
    rows = [Row("Read", "; ".join(parts))]
    not_read = [item.removeprefix(common) for item in coverage.not_read]
    if not_read:
        rows.append(
            Row("Not read", "; ".join(not_read[:6]) + (f"; {len(not_read) - 6} more" if len(not_read) > 6 else ""))
        )
    return rows
