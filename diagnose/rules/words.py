"""What is said about a root cause: the rule's sentences filled in, or those for a plain exception.

In: the root finding's captures. Out: `Words`. The policy says what to do with the job and its nodes; the hint only adds
where to look and what to change.
"""

from __future__ import annotations

from collections.abc import Mapping

from diagnose.dataclass import dataclass
from diagnose.models import DiagnosisRule, Finding
from diagnose.rules.captures import CODE_PLACE, Value
from diagnose.rules.collectives import describe_ranks
from diagnose.rules.sentences import fill, one_line

_RANKS_NAMED = 64


@dataclass(frozen=True, slots=True)
class Words:
    """The sentences of a verdict."""

    cause: str
    hint: str
    checks: tuple[str, ...] = ()


# Hints for exceptions that no rule refines, by error type, in the syntax of rules' sentences.
EXCEPTION_HINTS: Mapping[str, str] = {
    "AssertionError": (
        "Print the values that the assertion[ at {file}] compares: it states what the code needs to hold."
    ),
    "AttributeError": (
        "Compare the installed version of the library with the one the code was written for, and look[ at "
        "{file}] for an object that is None."
    ),
    "AuthenticationError": (
        "Give the job its token or credentials (HF_TOKEN, WANDB_API_KEY, AWS_PROFILE) and test them by hand on a node."
    ),
    "CalledProcessError": "Run the command of the message by hand on the same node: its own output says what failed.",
    "CheckpointCorrupt": (
        "Compare the sizes of the checkpoint's files with those of an older one, and delete the broken one."
    ),
    "CollectiveMismatch": (
        "Make every rank take the same branch: a choice that changes the next collective must itself be shared."
    ),
    "ConfigurationError": "Correct the setting that the message names[; it is read at {file}].",
    "ConnectionError": (
        "Test the address of the message from the same node with `curl -v` or `nc -vz`, proxy and DNS included."
    ),
    "CUDAError": (
        "Set CUDA_LAUNCH_BLOCKING=1 for one run so that the traceback names the failing call, and read the "
        "kernel log for an Xid."
    ),
    "DatasetLoadingError": (
        "Open the file or record that the message names by hand, and check its format, size and columns."
    ),
    "FileNotFoundError": (
        "Check that the path exists on every node and inside the container, and that the working directory is"
        " the one you expect."
    ),
    "HostOutOfMemory": "Compare the job's memory request with what the process held; load in parts or memory-map.",
    "ImportError": (
        "Run `python -c 'import NAME'` for the named module in the job's own environment, and install or pin "
        "what is missing there."
    ),
    "IndexError": "Print the length and the index[ at {file}]: an empty or short batch is the usual reason.",
    "JSONDecodeError": "Look at the first bytes of the file that was parsed: empty, cut short, or an HTML error page.",
    "KeyError": "Compare the missing key with the keys of the data or configuration that is read[ at {file}].",
    "ModelLoadingError": (
        "Compare the files of the checkpoint with what this loader expects: names, sizes, format and library version."
    ),
    "NameError": "Define or import the name before it is used[ at {file}]; `python -m pyflakes` finds all of the kind.",
    "OSError": (
        "Check the path and the limits behind the errno of the message on that node (`df -h`, `ulimit -a`, `mount`)."
    ),
    "OutOfMemoryError": "Lower the micro-batch or sequence length, or turn on activation checkpointing or sharding.",
    "PermissionError": (
        "Check owner and mode of the path along all its directories (`namei -l`), as the job's user and "
        "inside the container."
    ),
    "QuotaExceeded": (
        "Look at the quota of the file system that the path lies on, and move caches and output to scratch."
    ),
    "RuntimeError": (
        "Read the first line of the message and the code[ at {file}]; with CUDA in the stack, "
        "CUDA_LAUNCH_BLOCKING=1 makes it the true place."
    ),
    "S3StorageError": (
        "Read the error code in the message: a denied or missing key is a setting, SlowDown and 5xx are the service."
    ),
    "StorageIOError": (
        "Is the path on a local disk or a shared file system? Try it from this node and from another: one node alone"
        " points to its mount or disk, all of them to the server."
    ),
    "SyntaxError": "Correct the line that is named, and check that the interpreter is as new as the syntax.",
    "TypeError": (
        "Compare the arguments of the call[ at {file}] with the signature in the installed version of the library."
    ),
    "UnicodeDecodeError": (
        "Open the file with its true encoding, or look for binary or compressed data under a text name."
    ),
    "ValueError": "Check the value that the message names[; it is used at {file}].",
    "ZeroDivisionError": "Look for an empty data set, batch or world size[ at {file}]: its count is 0.",
}
OTHER_HINT = "Read the message and the code[ at {file}]; as long as they stand, the same input fails the same way."


def words_of(
    root: Finding,
    rule: DiagnosisRule | None,
    captures: Mapping[str, Value],
    place: str | None = None,
    job: str | None = None,
) -> Words:
    """The sentences for a root; `captures` are its own and what was found out since.

    Checks also know the `place`, a host, and the `job` by its Slurm number, where the rule's lines say neither.
    """
    if rule is None:
        hint = EXCEPTION_HINTS.get(root.error_type, OTHER_HINT)
        return Words(_cause_of_exception(root), fill(hint, captures))
    said = rule.verdict
    if "file" in rule.captures and captures.get("file") == captures.get(CODE_PLACE):
        # The rule's own file is another than the line of code that a traceback ends in.
        captures = {name: value for name, value in captures.items() if name != "file"}
    where = dict(captures)
    if place is not None:
        where.setdefault("host", place)
    if job is not None and ("job" not in rule.captures or "slurm" in rule.tags):  # others number jobs as well
        where.setdefault("job", job)
    checks = (fill(check, where, rule.captures, command=True) for check in said.checks)
    return Words(
        fill(said.cause, captures, rule.captures),
        fill(said.hint, captures, rule.captures),
        tuple(check for check in checks if check),
    )


def _cause_of_exception(root: Finding) -> str:
    message = one_line(str(root.captures.get("message", "")))
    if root.error_type == "CollectiveMismatch" and "seq" in root.captures:
        return f"Ranks issued different collectives: {message}"
    text = str(root.captures.get("exception", root.error_type)).rpartition(".")[2]
    if message:
        text += f": {message}"
    where = root.captures.get("file")
    if isinstance(where, str):
        text += f", raised at {where}"
    if 0 < len(root.ranks) <= _RANKS_NAMED:
        text += f" on {describe_ranks(sorted(root.ranks))}"
    elif root.ranks:
        text += f" on {len(root.ranks)} ranks"
    return text
