"""Checkpoints, completion and exit codes: what marks how far a job came and how it ended.

In: the body of a line. Out: `Milestone`, or None. Only unambiguous wordings count as completion: what a job prints
after an epoch, a phase or a part of itself does not end the job, and a save that is only scheduled has only started.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable

from diagnose.dataclass import dataclass
from diagnose.models.flow import ProgressKind
from diagnose.patterns import Lazy

# What opens the gate, and to which kind of milestone: a line without any of these holds none.
CHECKPOINT_LITERALS = (
    "heckpoint", "ckpt", "Ckpt", "CKPT", "aving model", "aved model", "odel saved", "ave model", "esum", "estored",
    "estoring", "[Torch] Sav", "ontinuing training", "async upload",
)  # fmt: skip
COMPLETED_LITERALS = (
    "train_runtime", "train metrics", "Trainer.fit", "RESULT,", "run_stop", "ompleted", "complete", "Complete",
    "inished", "FINISHED", "uccess", "SUCCE", "COMPLETED", "done", "Done", "DONE", "Version", "program a", "succeeded",
    "raining time", "otal time", "write summary to", "Best metric: ",
    "inal validation metrics", "of running main", "Signaling Trainer",
)  # fmt: skip
EXIT_LITERALS = (
    "xit", "EXIT", "return code", "returncode", "return value", "rc=", "ret_code", " code ", "JobState=",
)  # fmt: skip
MILESTONE_LITERALS = CHECKPOINT_LITERALS + COMPLETED_LITERALS + EXIT_LITERALS


@dataclass(frozen=True, slots=True)
class Milestone:
    """A checkpoint's start, end or load; a completion; an exit code in `step`."""

    kind: ProgressKind
    step: int | None = None
    checkpoint: str | None = None
    blocking: bool = False


_KINDS = (len(CHECKPOINT_LITERALS), len(CHECKPOINT_LITERALS) + len(COMPLETED_LITERALS))

_ANY = re.IGNORECASE

# Words that turn a statement into a plan, a complaint, an offer or another subject.
_DENIED = Lazy(
    r"\b(?:fail\w*|error|errors|unable|cannot|can't|couldn't|could not|not|no|never|without|skip\w*|will|would|should"
    r"|may|might|disabl\w*|exception|warning|expected|retry\w*|if|when|whether|before|until|unless|gradient"
    r"|activation|shards?|part|corrupt\w*|missing|mismatch|delet\w*|remov\w*|interval|every|waiting|use_cache|timed"
    r"|shape)\b|Error\b",
    _ANY,
)
_SAVE_STARTED = Lazy(
    r"\b(?:(?:saving|writing|dumping|start(?:ed|ing)? saving|began saving) (?:[\w\-'.]+ ){0,5}?(?:checkpoint"
    r"|ckpt|snapshot)"
    r"|sav(?:e|ing) (?:final |best |the |full )*model (?:weights |state )?(?:to|at|under)\b"
    r"|schedul(?:ed|ing) (?:an )?async\w* (?:checkpoint )?save"
    r"|(?:start(?:ed|ing)?|begin|initiat\w+|launch\w*|queued) (?:an? |the )?(?:async\w* )?(?:checkpoint"
    r"|ckpt)(?: save| saving| upload)"
    r"|start(?:ed|ing)?: '?save_checkpoint"
    r"|save_checkpoint\S*\s.{0,40}\b(?:writing|saving)\b"
    r"|checkpoint (?:save |upload )?(?:is |was )?(?:scheduled|started|queued)"
    r"|async\w* (?:checkpoint )?(?:save|upload) (?:\w+ ){0,3}(?:scheduled|started|queued))"
    r"|\[Torch\] Saving \S|, saving model to '",
    _ANY,
)
_SAVE_COMPLETE = Lazy(
    r"\b(?:(?:saved|wrote|written|uploaded|stored|committed) (?:[\w\-'.]+ ){0,4}?(?:checkpoint|ckpt|snapshot)"
    r"|(?:finished|completed|done) (?:async\w* )?(?:saving|writing|uploading"
    r"|committing) (?:[\w\-'.]+ ){0,4}?(?:checkpoint|ckpt|snapshot)"
    r"|(?:checkpoint|ckpt|snapshot)\b(?: \S+){0,4}?\s*(?:was |has been |is |successfully |now |fully |save "
    r"|saving |upload )*"
    r"(?:saved|uploaded|written|committed|finali[sz]ed|completed?|ready now)\b"
    r"|async\w* (?:checkpoint )?save\b.{0,200}\bfinali[sz]ed"
    r"|(?:ckpt|checkpoint)=saved|save ckpt use|all async upload finish at step"
    r"|model (?:weights |state )?(?:was |has been )?saved (?:to|at|in)\b|saved (?:final |best "
    r"|the )*model (?:weights )?(?:to|at|in)\b)"
    r"|\[Torch\] Saved \S",
    _ANY,
)
_SAVE_DONE_TAIL = Lazy(r"\bsaving (?:[\w\-'.]+ ){0,3}?checkpoint\b.{0,300}(?:\.\.\.|:) ?(?:done|ok|finished)\W*$", _ANY)
_LOADED = Lazy(
    r"\b(?:(?:loaded|restored) (?:[\w\-'.]+ ){0,5}?(?:checkpoint|ckpt)"
    r"|(?:checkpoint|ckpt)\b(?: \S+){0,3}? (?:was |has been |is |successfully )*(?:loaded|restored)\b"
    r"|(?:finished|done) (?:loading|restoring) (?:the |a )?checkpoint"
    r"|resum(?:ing|ed) (?:[\w\-'.]+ ){0,3}?(?:from|at)\b:? ?(?:the )?(?:last |latest |global )?(?:checkpoint"
    r"|ckpt|step|iteration|iter|epoch|/|\w+://)"
    r"|continuing training from (?:global )?(?:step|epoch|checkpoint)|restored from\b)",
    _ANY,
)
_LOAD_STARTED = Lazy(r"\b(?:loading|restoring) (?:[\w\-'.]+ ){0,5}?(?:checkpoint|ckpt)\b", _ANY)
_CHECKPOINTING = Lazy(
    r"(?:gradient|activation|selective)[ _-]checkpoint|checkpointing\b|checkpoint shards|checkpoint_utils\b", _ANY
)
_PATH = Lazy(
    r"(?:^|[\s'\"`(=:])((?:\w+:)?(?:\w+://|/|\./)[^\s'\"`,;)\]]{1,400}"
    r"|[\w.\-]{1,100}/[\w./=\-]{1,300}\.(?:pt|pth|ckpt|safetensors|bin|distcp)\b"
    r"|(?:[\w.\-]{1,100}/){1,8}checkpoint-\d{1,12}\b)"
)
_PLACE_STEP = Lazy(
    r"\b(?:iteration|global[ _]step|step|iter|batch count|updates?)\s*[:=]?\s*(\d{1,12})\b|@ (\d{1,12}) updates", _ANY
)
# MMEngine counts in front of the unit: `Saving checkpoint at 12 epochs`.
_COUNTED = Lazy(r"\bcheckpoint at (\d{1,12}) (epoch|iter)(?:ation)?s\b", _ANY)
# Programs that say when they begin to save and train on when the save is done: HF's Trainer, MMEngine.
_BLOCKING = Lazy(r"\W*Saving (?:model checkpoint to \S|checkpoint at \d{1,12} (?:epoch|iter(?:ation)?)s\W*\Z)")
# One file of the directory that is HF's or DeepSpeed's checkpoint: the states of others are still to come.
_OF_DIRECTORY = Lazy(
    r"(?P<directory>(?:\S*/)?(?:checkpoint-|global_step)\d{1,12})/[^/\s]{1,200}\.(?:safetensors|bin|json|pt|pth)\Z"
)
# torchtitan's `(or staging if async is enabled)` denies nothing.
_ASIDE = Lazy(r"\((?:or )?staging [^)]{1,60}\)")
_PATH_STEP = Lazy(
    r"(?:global_step|global_steps?[_=-]|step[_=-]|steps[_=-]|checkpoint[_-]|ckpt[_-]|iter[_=-]"
    r"|epoch=\d{1,6}-step=)0*(\d{1,12})"
)

_COMPLETED = Lazy(
    r"\btraining (?:is |was |has |job |run |process |loop )*(?:successfully |now )?(?:completed?|finished|done"
    r"|succeeded)\b"
    r"|\b(?:finished|completed) (?:the |model |pre-?|successful )*training\b"
    r"|\b(?:pre-?training|fine-?tuning|finetuning|evaluation|benchmark) (?:run |job )?(?:is |has "
    r"|was )*(?:successfully )?(?:completed?|finished|done)\b"
    r"|`?Trainer\.fit`? stopped: `(?:max_steps|max_epochs|max_time|max_minutes)=[^`]{1,40}` reached"
    r"|\[after training is done\]|\bexiting program (?:at iteration|after [\d.]{1,24} minutes)\b"
    r"|'train_runtime': |\*{3,} train metrics \*{3,}"
    r"|\bTime limit reached\. .{0,80}Signaling Trainer to stop"
    r"|\bdone training\b|\bReporting training SUCCESS\b|\bEnd time of running main: \d"
    r"|\b(?:job|run|experiment|task)(?: [\w'\"./:-]{1,80})? (?:has |is |was )?(?:successfully )?(?:succeeded"
    r"|completed successfully|finished successfully|completed)(?:\W*$|!)"
    r"|\b(?:successfully (?:completed|finished)) (?:the |all )?(?:job|run|training|experiment|program)\b"
    r"|\bworker group successfully finished\b|\bLocal worker group finished \((?:WorkerState\.)?SUCCEEDED\)"
    r"|\ball (?:ranks|workers|processes|tasks) (?:have )?(?:finished|completed|exited) successfully\b"
    r"|^(?:\d{1,5}:\s*)?RESULT,[\w ]{1,60},[^,]{0,20},\d{1,12},"
    r"|\"key\": ?\"run_stop\".*\"status\": ?\"success\""
    r"|\|\s*Tasks\s*\|\s*Version\s*\|\s*Filter\s*\|"
    r"|^\W*all done\W*$|^\W*\bSuccessfully completed\.?\s*$"
    # What a program sums up once, when its work is behind it: the whole time, the best result, the evaluation's table.
    r"|^(?:[\w./:\[\] -]{1,60}[:\]] )?(?:total |overall )(?:pre-?)?training time ?[:=]? ?\d"
    r"|^(?:[\w./:\[\] -]{1,60}[:\]] )?(?:pre-?)?training time ?[:=]? ?(?:\d{1,3} days?, )?\d{1,4}:\d\d:\d\d\b"
    r"|^\d{1,7} epochs completed in \d|^\W*Best metric: [\d.]{1,20} \(epoch \d|\bwrite summary to \S"
    r"|^\W*Final validation metrics\b",
    _ANY,
)
# `Done. Errors: 0, failures: 0`: an end that counts what went wrong, and found nothing.
_CLOSED = Lazy(
    r"^(?:[\w./:\[\]-]{1,60}[ :] ?)?(?:all |run |job |training |evaluation |eval |benchmark )?(?:done|finished"
    r"|completed?|total (?:training |run |wall |elapsed )?time)\b[^a-z]",
    _ANY,
)
_OF_A_PART = Lazy(
    r"\b(?:valid\w*|val|test\w*|epoch|step|stage|phase|pre-?process\w*|data\w*|download\w*|warm\w*|shard|part|tokeni\w*"
    r"|load\w*|sav\w*|upload\w*|check\w*)\b",
    _ANY,
)
_NO_ERRORS = Lazy(
    r"\b[a-z_-]{0,40}(?:errors?|fail(?:ures|ed)?(?:_\w{1,24})?|crash(?:es|ed)?)\s?[=:]\s?0+(?:\.0+)?(?:[\s,;)\]]|\.?\Z)",
    _ANY,
)
_SOME_ERRORS = Lazy(r"\b[a-z_-]{0,40}(?:errors?|fail(?:ures|ed)?|crash(?:es|ed)?)\s?[=:]\s?[\d.]*[1-9]", _ANY)
# Forms of one tool that say it beyond doubt, whatever stands around them.
_TOOLS_OWN = ("train_runtime", "run_stop", "Tasks", "[after", "epochs completed in")
_PART = Lazy(
    r"\b(?:epochs?|phase|stage|fold|trial|tokeni[sz]er|warm-?up|round|shard|part|batch|iteration \d+ of"
    r"|step \d+ of|generation"
    r"|sub-?task|download\w*|prolog|epilog|not|before|until|if|when|once|failed|errors?|without|will|unless"
    r"|after all)\b",
    _ANY,
)
_SENTENCE_END = Lazy(r"[.;!]")
# How much was done ends the statement as well: `Training finished, 4 epochs`; `epoch 4` would be a part of it.
_AMOUNT = Lazy(r"(?:\s?[,:(]\s?(?:after |in |all )?| (?:after|in) )\d{1,9} (?:epochs|steps|iterations)\b(?! of)", _ANY)
_EXIT = Lazy(
    r"\b(?:exit(?:ed|s|ing)?|terminated|finished|returned|ended|stopped"
    r"|return)[ :,]*(?:program )?(?:with )?(?:an? )?(?:non-?zero )?"
    r"(?:exit[ _-]?)?(?:code|status|value|return code)s?\s*(?:of|is|was)?\s*[:=]?\s*(-?\d{1,4})\b"
    r"|\bexit[_ -]?(?:code|status)\s*[:=]\s*(-?\d{1,4})\b"
    r"|\b(?:finished|done|completed)\b.{0,60}?[,;:] exit (-?\d{1,4})\s*$"
    r"|\b(?:return code|ret_code|returncode|rc|return value)\s*[:=]?\s*(-?\d{1,4})\b",
    _ANY,
)
_EXIT_JOB = Lazy(
    r"^\W*(?:exit(?:ed|_code|_status)?|return|rc|ret_code)\b|\b(?:job|training|train\w*|script|program|container|ranks"
    r"|workers|command|process|main|srun"
    r"|torchrun|mpirun|mpiexec|python\w*|launcher|run|finished|normal termination|all|State|deepspeed"
    r"|accelerate|\w+\.(?:sh|py))\b",
    _ANY,
)
_EXIT_OTHER = Lazy(
    r"\b(?:prolog|epilog|health\w*|hook|data ?loader|worker \(?pid|nvidia-smi|check|sidecar|init|server|ssh"
    r"|subprocess|trial"
    r"|compile\w*|make|pip|git|exitcode|download\w*|nccl-test\w*|if|when|until)\b",
    _ANY,
)
_SEFF = Lazy(r"^\s*State: ([A-Z_]{4,20})(?: by \d+)? \(exit code (\d{1,3})\)")
_RECORD = Lazy(r"\bJobState=([A-Z_]{4,20})\b.*\bExitCode=(\d{1,3}):(\d{1,3})\b")
# `kubectl describe`: the line alone does not tell whether it is the container's last state or the one before.
_DESCRIBED = Lazy(r"\s{4,12}Exit Code:\s{1,12}\d{1,3}\s*\Z")
# Help text and a report: what each code means, what was found to have happened.
_CODES_EXPLAINED = Lazy(r"\bcodes?\b[ :]{1,4}-?\d{1,3}\b[^,;\n]{2,200}[,;]\s{1,8}(?:and )?-?\d{1,3}\b\s{0,4}[^\s\d,;]")
_REPORTED = Lazy(r"\W*(?:NO FAILURE|FAILED|INCONCLUSIVE) {2}\S")
_PROCESS_OK = Lazy(r"\bProcess \d{1,9} exits successfully")


def read_milestone(body: str, hits: Iterable[int]) -> Milestone | None:
    """The checkpoint, completion or exit code that a line's body states, if any.

    `hits` are the places in `MILESTONE_LITERALS` of the literals that the body holds.
    """
    kinds = {bisect_right(_KINDS, hit) for hit in hits}
    found = _completed(body) if 1 in kinds else None
    if found is None and 2 in kinds:
        found = read_exit(body)
    if found is None and 0 in kinds:
        found = _checkpoint(body)
    return found


def load_started(body: str) -> Milestone | None:
    """A load that has only begun: no progress yet, but it names what a later `finished loading` does not."""
    if _LOAD_STARTED.search(body) is None or _CHECKPOINTING.search(body):
        return None
    return _placed("checkpoint_loaded", body)


def _checkpoint(body: str) -> Milestone | None:
    """A checkpoint's start, end or load."""
    if _CHECKPOINTING.search(body) is not None:
        return None
    kind: ProgressKind
    if _SAVE_DONE_TAIL.search(body) is not None or _SAVE_COMPLETE.search(body) is not None:
        kind = "checkpoint_complete"
    elif _SAVE_STARTED.search(body) is not None:
        kind = "checkpoint_started"
    elif _LOADED.search(body) is not None:
        kind = "checkpoint_loaded"
    else:
        return None
    if _DENIED.search(_ASIDE.sub("", _without_paths(body))) is not None:
        return None
    return _placed(kind, body)


def _placed(kind: ProgressKind, body: str) -> Milestone:
    """The milestone with the path or step that the line names: both where the path does not hold the step."""
    path = _PATH.search(body)
    place = path[1].rstrip(".:") if path is not None else None
    part = _OF_DIRECTORY.match(place) if place is not None else None
    if part is not None:
        kind, place = "checkpoint_started" if kind == "checkpoint_complete" else kind, part["directory"]
    blocking = kind == "checkpoint_started" and (part is not None or _BLOCKING.match(body) is not None)
    if place is None and (counted := _COUNTED.search(body)) is not None:
        number, epochs = int(counted[1]), counted[2].lower() == "epoch"
        return Milestone(kind, None if epochs else number, f"{'epoch' if epochs else 'step'} {number}", blocking)
    match = _PLACE_STEP.search(body)
    if match is not None and place is not None and next(filter(None, match.groups())).lstrip("0") not in place:
        number = int(next(filter(None, match.groups())))
        unit = "iteration" if match[0].lower().startswith("iteration") else "step"
        return Milestone(kind, number, f"{unit} {number} in {place}", blocking)
    if match is None and path is not None:
        match = _PATH_STEP.search(path[1])
    if match is None:
        match = _PATH_STEP.search(body)
    step = int(next(number for number in match.groups() if number is not None)) if match is not None else None
    return Milestone(kind, step, place or (f"step {step}" if step is not None else None), blocking)


def _without_paths(body: str) -> str:
    return _PATH.sub(" ", body)


def _completed(body: str) -> Milestone | None:
    """An unmistakable end of the work."""
    match = _COMPLETED.search(body)
    if _REPORTED.match(body) is not None:
        return None
    if match is None:
        return Milestone("completed") if _closed(body) else None
    if any(word in match[0] for word in _TOOLS_OWN):
        return Milestone("completed")
    before = body[max(0, match.start() - 60) : match.start()]
    # What follows belongs to the statement only up to its end.
    after = _SENTENCE_END.split(body[match.end() : match.end() + 40], maxsplit=1)[0]
    if (amount := _AMOUNT.match(after)) is not None:
        after = after[amount.end() :]
    if _PART.search(before) is not None or _PART.search(after) is not None:
        return None
    return Milestone("completed")


def _closed(body: str) -> bool:
    """An end of the work that states its errors: none."""
    match = _CLOSED.match(body)
    if match is None or _OF_A_PART.search(match[0]) or _NO_ERRORS.search(body) is None:
        return False
    return _SOME_ERRORS.search(body) is None


def read_exit(body: str) -> Milestone | None:
    """The exit code of the job or of one of its processes; 0 only where it is plainly the job's."""
    if (match := _SEFF.match(body)) is not None:
        return Milestone("exit", int(match[2]) or int(match[1] != "COMPLETED"))
    if (match := _RECORD.search(body)) is not None:
        if match[1] not in {"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"}:
            return None
        return Milestone(
            "exit", int(match[2]) or 128 * bool(int(match[3])) + int(match[3]) or int(match[1] != "COMPLETED")
        )
    if _PROCESS_OK.search(body) is not None:
        return Milestone("exit", 0)
    match = _EXIT.search(body)
    if match is None or _DESCRIBED.match(body) or _CODES_EXPLAINED.search(body) is not None:
        return None
    code = int(next(group for group in match.groups() if group is not None))
    if _EXIT_OTHER.search(body) is not None:
        return None
    if code == 0 and _EXIT_JOB.search(body) is None:
        return None
    return Milestone("exit", code)
