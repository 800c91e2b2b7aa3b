"""Signs of progress: steps, checkpoints, completion, exit codes.

In: lines with their prefixes off. Out: at most one `ProgressEvent` per line. A line that states no progress costs one
literal pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import ahocorasick_rs

from diagnose.lines.milestones import MILESTONE_LITERALS, Milestone, load_started, read_milestone
from diagnose.lines.steps import MAX_STREAMS, STEP_LITERALS, Step, StepReader
from diagnose.models import FilterRule, Line, ProgressEvent, Record

# Progress stands near the front of a line; a line of 64 KiB is not searched further.
SEARCHED = 4096

LITERALS = STEP_LITERALS + MILESTONE_LITERALS

_COMPLAINING = frozenset({"E", "ERR", "ERROR", "F", "FATAL", "C", "CRITICAL", "W", "WARN", "WARNING"})


# An evaluation writes its summary whether or not its tasks succeeded.
_SUMMARY, _TASK_FAILED = "write summary to", "failed with code "
# States in which a Slurm job has ended; tables cut them short and mark that with a plus sign.
_ENDED = (
    "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "BOOT_FAIL", "DEADLINE",
)  # fmt: skip
_SHORTEST_STATE = 5


class ProgressReader:
    """Reads signs of progress; `filters` are the rules whose `yields` name where a routine line holds its step."""

    def __init__(self, filters: Sequence[FilterRule] = ()) -> None:
        self._steps = StepReader()
        self._yields = {rule.id: rule.yields for rule in filters if rule.yields is not None and rule.yields.progress}
        self._patterns: dict[str, tuple[re.Pattern[str], ...]] = {}
        self._pending: dict[tuple[str, str], Milestone] = {}
        self._with_failures: set[str] = set()
        # Case is kept: folding it would cost more than the few literals it saves.
        self._gate = ahocorasick_rs.AhoCorasick(LITERALS)

    def read(self, line: Line, attempt: int) -> ProgressEvent | None:
        """The sign of progress that this line carries, if any."""
        body = line.body if len(line.body) <= SEARCHED else line.body[:SEARCHED]
        hits = self._gate.find_matches_as_indexes(body)
        if not hits and line.progress is None:
            return None
        if line.quoted or line.source.kind in {"kernel", "dump"}:
            return None
        marks = {hit[0] - len(STEP_LITERALS) for hit in hits if hit[0] >= len(STEP_LITERALS)}
        found = self._milestone(line, body, marks) if marks else None
        # Exit codes of a scheduler's records are read from these, as only the whole record tells whose they are.
        in_record = line.source.kind == "scheduler" and "State: " not in body
        if found is not None and not (found.kind == "exit" and in_record):
            return ProgressEvent(
                found.kind, line, attempt, step=found.step, checkpoint=found.checkpoint, blocking=found.blocking
            )
        if line.source.kind == "scheduler" or (line.level or "").upper() in _COMPLAINING:
            return None
        step = self._steps.read(_stream(line), body) if any(hit[0] < len(STEP_LITERALS) for hit in hits) else None
        if step is None and line.progress is not None and "%|" not in body:
            step = self._yielded(line)  # a bar's name tells whether it is the training's: shards and maps are no steps
        return ProgressEvent("step", line, attempt, step=step.number, total=step.total) if step is not None else None

    def _milestone(self, line: Line, body: str, marks: set[int]) -> Milestone | None:
        """A milestone; an end of saving or loading that names no place takes it from the beginning it ends."""
        milestone = read_milestone(body, marks)
        key = (line.source.name, line.stream)
        if _TASK_FAILED in body and len(self._with_failures) < MAX_STREAMS:
            self._with_failures.add(line.source.name)
        if milestone is not None and _SUMMARY in body and line.source.name in self._with_failures:
            return None
        if milestone is None:
            if "oading" in body or "estoring" in body:
                self._remember((*key[:1], key[1] + " load"), load_started(body))
            return None
        if milestone.kind == "checkpoint_started":
            self._remember(key, milestone)
        elif milestone.kind in {"checkpoint_complete", "checkpoint_loaded"} and milestone.checkpoint is None:
            loading = milestone.kind == "checkpoint_loaded"
            begun = self._pending.pop((key[0], key[1] + " load") if loading else key, None)
            if begun is not None:
                return Milestone(milestone.kind, begun.step, begun.checkpoint)
        return milestone

    def _remember(self, key: tuple[str, str], milestone: Milestone | None) -> None:
        if milestone is None or milestone.checkpoint is None:
            return
        if len(self._pending) >= MAX_STREAMS:
            self._pending.pop(next(iter(self._pending)))
        self._pending[key] = milestone

    def _yielded(self, line: Line) -> Step | None:
        """What the filter rule that let this line through says it holds."""
        rule = line.progress or ""
        if rule not in self._patterns:
            self._patterns[rule] = self._compile(rule)
        found: dict[str, str] = {}
        for pattern in self._patterns[rule]:
            match = pattern.search(line.text[:SEARCHED])
            if match is not None:
                found.update((name, value) for name, value in match.groupdict().items() if value is not None)
        if "step" not in found:
            return Step() if found else None
        return Step(_whole(found["step"]), _whole(found.get("total", "")))

    def _compile(self, rule: str) -> tuple[re.Pattern[str], ...]:
        """The patterns of a rule's `yields`; the rules' lint has judged them, a bad one of a site's own is left out."""
        yields = self._yields.get(rule)
        patterns = []
        for text in yields.progress.values() if yields is not None else ():
            try:
                patterns.append(re.compile(text, re.ASCII))
            except re.error:
                continue
        return tuple(patterns)


def recorded_exit(record: Record) -> ProgressEvent | None:
    """The exit code that a scheduler's record states: of a container that is not to be started again, of a job."""
    line, fields = record.first, record.fields
    code: int | None = None
    if fields.get("record") == "k8s_container" and fields.get("state") == "terminated":
        code = _whole(fields.get("exit", ""))
    elif fields.get("record") == "slurm_job" and "step" not in fields and line.source.kind == "scheduler":
        code = _slurm_exit(fields)
    return ProgressEvent("exit", line, 0, step=code) if code is not None else None


def recorded_completion(records: Iterable[Record]) -> Line | None:
    """The line of a scheduler's record by which the Slurm job completed with 0; none where it names a failed step."""
    line: Line | None = None
    for record in records:
        fields = record.fields
        if fields.get("record") != "slurm_job":
            continue
        code = _slurm_exit(fields)
        if code or fields.get("derived", "0:0") != "0:0" or (code is None and "step" not in fields):
            return None
        if "step" not in fields:
            line = record.first
    return line


def _slurm_exit(fields: Mapping[str, str]) -> int | None:
    """The exit code of a Slurm job that has ended: `code:signal` as a shell gives it, and none of 0 but COMPLETED's."""
    state = fields.get("state", "").partition(" ")[0].rstrip("+")
    if not any(end.startswith(state) for end in _ENDED) or len(state) < _SHORTEST_STATE:
        return None
    code, _, signal = fields.get("exit", "").partition(":")
    stated = _whole(code) or 128 * bool(_whole(signal)) + (_whole(signal) or 0)
    return stated or int(not "COMPLETED".startswith(state))


def progress_literals() -> tuple[str, ...]:
    """Literals of completion, checkpoint and exit markers, for the guard; steps come through the filters' `yields`."""
    return (
        "saving checkpoint", "Saving checkpoint", "saved checkpoint", "Saved checkpoint", "checkpoint saved",
        "Saving model checkpoint", "Saving the checkpoint", "Saving a full checkpoint", "saving the checkpoint",
        "a checkpoint at step", "async checkpoint", "Async checkpoint", "[Torch] Sav", "[Torch] Checkpoint",
        "loaded checkpoint", "loading checkpoint", "Loading the checkpoint", "loading the checkpoint",
        "Finished saving", "Resuming ", "resuming from", "Restored ", "Continuing training", "save ckpt",
        "ckpt=saved", "saving model to", "raining completed", "raining complete", "raining finished",
        "raining done", "training is done", "inished training", "Trainer.fit", "train_runtime", "train metrics",
        "exiting program", "Signaling Trainer", "run_stop", "RESULT,", "job completed",
        "successfully finished", "All done",
        '"train_samples"', "exit code", "exit status", "Exit status", "exits with return code", "exits successfully",
        "Exited with",
        "exited with code", "State: COMPLETED", "ExitCode=", "|Version|Filter", "finished, exit",
        "End time of running main",
)  # fmt: skip


def _stream(line: Line) -> str:
    return f"{line.source.name}\0{line.stream}"


def _whole(text: str) -> int | None:
    """A whole number, with or without thousands separators, or None."""
    digits = text.replace(",", "").strip()
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 15 else None
