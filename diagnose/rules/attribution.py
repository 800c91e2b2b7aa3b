"""Whose fault it is: the rule's word, else the shape of the evidence, else the taxonomy's default.

In: the root finding, what else is known of the job. Out: attribution and the tests that decided, in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from diagnose.dataclass import dataclass, field
from diagnose.lines.timeline import AttemptProgress
from diagnose.models import DiagnosisRule, ErrorType, Finding
from diagnose.models.rule import AttributionName
from diagnose.rules.captures import shown_names
from diagnose.rules.collectives import describe_ranks
from diagnose.rules.intrinsic import blames_nobody
from diagnose.rules.repeats import Repeats

AT_ONCE = 60.0  # seconds within which ranks that run the same code meet the same bug
_ENOUGH_RANKS = 4  # of fewer, one rank fails twice by chance
# Faults of an address that a kernel computes alike everywhere, and of instructions, which are the same for all ranks.
_COMPUTED = ("misaligned address", "address space")
_FETCHED = ("illegal instruction", "invalid program counter", "invalid pc", "hardware stack error")
_BUSY = 3  # more ranks than these are not each busy with something of their own


@dataclass(frozen=True, slots=True)
class Attribution:
    """Who is at fault and why that is said. `all_ranks` is a test that policy asks for again."""

    name: AttributionName
    reasons: tuple[str, ...]
    all_ranks: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """What the evidence looks like, beyond the root finding itself.

    `same_kind` are the findings of the diagnosed attempt with the same error type, `earlier` the root findings of
    earlier attempts, `ranks_known` how many ranks the job has as far as is known, `foreign` what somebody else's
    process did, in words, `busy` what the ranks that were missed were last heard to do, by rank, `died`
    whether any process is known to have ended badly, `struck` the findings that one device each is named in.
    """

    same_kind: Sequence[Finding]
    earlier: Sequence[Finding]
    repeats: Repeats
    progress: AttemptProgress
    ranks_known: int
    foreign: str | None = None
    busy: Mapping[int, str] = field(default_factory=dict)
    died: bool = True
    struck: Sequence[Finding] = ()


def attribute(root: Finding, rule: DiagnosisRule | None, entry: ErrorType, shape: Shape) -> Attribution:
    """Decides the attribution of a root finding."""
    ranks = frozenset(rank for finding in shape.same_kind for rank in finding.ranks)
    all_ranks = shape.ranks_known > 1 and len(ranks) >= shape.ranks_known and _at_once(shape.same_kind)
    reasons = _spread_reasons(root, shape, ranks) + _repeat_reasons(root, shape)
    if rule and rule.verdict.attribution and not _race(root, rule):
        return Attribution(rule.verdict.attribution, tuple(reasons), all_ranks)
    moved = _moved(root, rule, shape, ranks, all_ranks=all_ranks)
    if moved is not None:
        name, reason = moved
        return Attribution(name, (*reasons, reason), all_ranks)
    if root.error_type == "CUDAError" and len(ranks) == 1:
        reasons.append(f"only {describe_ranks(sorted(ranks))}: code or device, one line does not tell")
    told = (str(root.captures.get("exception") or ""), str(root.captures.get("message") or ""))
    if rule is None and entry.attribution == "user" and blames_nobody(*told):
        reasons.append(f"{told[0].rpartition('.')[2]}: code, machine or service, one line does not tell")
        return Attribution("unknown", tuple(reasons), all_ranks)
    return Attribution(entry.attribution or "unknown", tuple(reasons), all_ranks)


def _moved(
    root: Finding, rule: DiagnosisRule | None, shape: Shape, ranks: frozenset[int], *, all_ranks: bool
) -> tuple[AttributionName, str] | None:
    """Where the shape of the evidence moves the attribution away from the type's default, and why."""
    progress = shape.progress
    if root.error_type == "CUDAError":
        if shape.repeats.same_unit:
            return "infrastructure", "one device again and again is hardware"
        if all_ranks:
            return "user", "all ranks at one call is software"
        if (devices := _devices(shape.struck)) > 1:
            return "user", f"{devices} devices at once: they ran the same program, and do not break together"
        if progress.first_step is None and not progress.steps and len(ranks) != 1:
            return "user", "before the first step, on no single device"
        fault = str(root.captures.get("fault") or "").lower().replace("_", " ")
        if any(words in fault for words in _COMPUTED):
            return "user", f"{fault}: the code computed the address, and does so on any device"
        one_of_many = len(ranks) == 1 and shape.ranks_known >= _ENOUGH_RANKS and progress.steps > 0
        if one_of_many and any(words in fault for words in _FETCHED):
            return "infrastructure", f"{fault} on one rank only: all ranks run the same instructions, and had run them"
    elsewhere = shape.repeats.same_unit and shape.repeats.other_step and shape.ranks_known >= _ENOUGH_RANKS
    if root.error_type == "TrainingAnomaly" and elsewhere and len(ranks) == 1:
        return "infrastructure", "the numbers break on the same rank, at another step: data would have moved"
    if root.error_type == "NCCLRemoteError" and not shape.died and len(_reset_at(root)) > 1:
        return (
            "infrastructure",
            "hosts at both ends saw the connection reset, and nobody died: the way between broke it",
        )
    if root.error_type == "DataloaderKilled" and root.captures.get("signal") == "Killed" and not shape.repeats.attempts:
        return "unknown", "SIGKILL comes from outside the process, and nothing tells who sent it"
    if shape.foreign is not None:
        return "infrastructure", shape.foreign
    if rule is not None and _race(root, rule):
        return "user", "several ranks at one file at once: they get into each other's way"
    if shape.busy and len(shape.busy) <= _BUSY:
        told = "; ".join(f'rank {rank}: "{words}"' for rank, words in sorted(shape.busy.items()))
        return "user", f"who was missed was alive and at other work: {told}"
    return None


def _devices(struck: Sequence[Finding]) -> int:
    """On how many devices the kernel saw a program's fault at the same time (NVIDIA's test for Xid 13 and 31)."""
    seen = [finding for finding in struck if finding.error_type == "CUDAError" and finding.sources == {"kernel"}]
    units = {(host, gpu) for finding in seen for gpu in finding.gpus for host in finding.hosts or {""}}
    return len(units) if _at_once(seen) else 0


def _spread_reasons(root: Finding, shape: Shape, ranks: frozenset[int]) -> list[str]:
    if len(ranks) < 2:
        return []
    spread = _spread(shape.same_kind)
    within = f" within {spread:.0f} s" if spread is not None and spread <= AT_ONCE else ""
    of = f" of {shape.ranks_known}" if shape.ranks_known > len(ranks) else ""
    return [f"same {'line' if root.traceback else 'error'} on {len(ranks)}{of} ranks{within}"]


def _repeat_reasons(root: Finding, shape: Shape) -> list[str]:
    repeats = shape.repeats
    reasons = []
    if repeats.attempts:
        alike = [finding for finding in shape.earlier if finding.error_type == root.error_type]
        what = "the same line" if any(f.place == root.place for f in alike) else "the same error"
        what = "the same host was missed" if repeats.missing_host else "the same unit" if repeats.same_unit else what
        numbers = shown_names([str(index + 1) for index in repeats.attempts], 5)
        reasons.append(f"{what} in attempt{'s' if len(repeats.attempts) > 1 else ''} {numbers} as well")
    elif repeats.same_unit:
        reasons.append("the same unit failed like this before")
    if repeats.singled_out:
        reasons.append("several hosts lost touch with this one, and none with another")
    return reasons


def _reset_at(root: Finding) -> set[str]:
    """The hosts that saw a connection reset."""
    return {evidence.host for evidence in root.evidence if evidence.host and "reset by peer" in evidence.text}


def _race(root: Finding, rule: DiagnosisRule) -> bool:
    """Ranks that fell over each other at one file: all at once, and at no other file."""
    if "race" not in rule.tags or len(root.ranks) < 2 or not _at_once((root,)):
        return False
    files = {captured.get("file") for captured in root.by_rank.values()}
    return len(files) == 1 and None not in files


def _spread(findings: Sequence[Finding]) -> float | None:
    times = [time for finding in findings for time in (finding.first, finding.last) if time is not None]
    return max(times) - min(times) if times else None


def _at_once(findings: Sequence[Finding]) -> bool:
    spread = _spread(findings)
    return spread is None or spread <= AT_ONCE
