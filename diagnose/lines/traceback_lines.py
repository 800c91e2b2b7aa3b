"""Single lines of Python tracebacks: what opens one, what states an exception, how messages go on.

In: a line's bare text. Out: a `Header`, the class and message of an exception, or nothing.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from diagnose.patterns import Lazy

HEADER = "Traceback (most recent call last)"

CHAIN_SENTENCES = (
    "During handling of the above exception, another exception occurred",
    "The above exception was the direct cause of the following exception",
)

_NAME = r"[A-Za-z_]\w{0,127}(?:\.(?:<locals>|[A-Za-z_]\w{0,127})){0,12}"
_EXCEPTION = Lazy(rf"({_NAME})(?:: ?(.*))?\Z", re.DOTALL)
RAY = Lazy(r"((?:ray\.exceptions\.)?RayTaskError(?:\([\w.]{1,128}\))?)(?:: ?(.*))?\Z", re.DOTALL)
_SUFFIXES = (
    "Error",
    "Exception",
    "Interrupt",
    "Exit",
    "Warning",
    "Timeout",
    "Failure",
    "Empty",
    "Full",
    "Group",
    "Traceback",
)
_ODD_NAMES = frozenset({"StopIteration", "StopAsyncIteration", "GeneratorExit", "TemplateNotFound", "BdbQuit", "Abort"})
_STRICT = Lazy(r"(?:[A-Za-z_]\w{0,127}\.){0,12}[A-Z]\w{0,127}(?:Error|Exception|Interrupt|Exit|Timeout|Failure)\Z")
# Words that open a log line with a colon and are no class of exception.
_LOG_WORDS = frozenset({
    "INFO", "WARNING", "WARN", "ERROR", "DEBUG", "CRITICAL", "FATAL", "NOTE", "Note", "Epoch", "Step", "Iter",
    "Warning", "Error", "Loss",
    "Training", "Validation", "Rank", "Hint", "Time", "Date", "NOTICE", "TRACE", "Iteration",
})  # fmt: skip

# How lines go on that libraries print after the first line of a message, without indenting them.
CONTINUATIONS = (
    "CUDA kernel errors might be", "For debugging consider", "Compile with `", "Compile with TORCH",
    "Device-side assertion",
    "Search for `cuda", "HIP kernel errors might be", "XPU kernel errors", "Last error:", "nccl",
    "Exception raised from ",
    "frame #", "C++ CapturedTraceback:", "C++ Traceback", "Set the environment variable HYDRA_FULL_ERROR",
    "full_key:", "object_type=",
    "reference_type=", "Key '", "Input should", "Field required", "For further information visit", "Parameter indices",
    "Parameters which did not receive", "making sure all `forward`", "If you already have done", "If reserved",
    "Including non-PyTorch",
    "Of the allocated", "See documentation for", "Expected all tensors", "Possible Cause", "Please use torch.load",
    "Check the documentation",
    "(1) In PyTorch 2.6", "(2) Alternatively", "Missing key(s)", "Unexpected key(s)", "size mismatch",
    "Error parsing override",
    "The stack trace below excludes JAX", "The preceding is the original exception", "For simplicity, JAX has removed",
    "Detected at node", "Node: '", "Caused by", "Errors may have originated", "Input Source operations",
    "Function call stack",
    "Original stack trace for", "[Op:", "Consider using `padding", "and the error", "Set TORCH_LOGS=",
    "from user code:",
    "You can suppress this exception", "This process will", "libc10", "Bad StatusOr", "[Hint:", "Failed to load",
    "[end of output]",
    "note: This error originates", "stdout:", "stderr:", "Traceback of TorchScript",
    "The following operation failed in the TorchScript",
    "Traceback (most recent call last, ", "Could not load this library", "FAILED: ", "ninja: build stopped",
    "error: command",
    "[1/", "[2/", "[3/", "The Python function", "Output of the command", "Run with", "To fix this", "To see the",
    "Process name:", "Exit code:",
    "To resolve",
)  # fmt: skip


class Header(NamedTuple):
    """How a traceback opens: its form, what stands before it, and where its text begins."""

    form: str  # plain, group, gutter, box, ipython, original
    lead: str
    name: str


def read_header(text: str) -> Header | None:
    """How `text` opens a traceback, if it does."""
    at = text.find(HEADER)
    if at < 0:
        return None
    lead = text[:at]
    before = lead.strip()
    after = text[at + len(HEADER) :].strip()
    if before[:1] in "╭┌┏" and before:
        return Header("box", "", "")
    if before.startswith("+-") and after.rstrip("+").rstrip("-") == "":
        return Header("box", "", "")
    if after == "":
        match = _EXCEPTION.match(before)
        # IPython sets the class at the left and the header at the right of one line.
        if match and match[2] is None and len(lead) - len(lead.rstrip()) >= 2:
            return Header("ipython", "", match[1])
        return Header("plain", lead, "") if not before else None
    if after != ":":
        return None
    if not before:
        return Header("plain", lead, "")
    if before in ("+ Exception Group", "Exception Group") or before.endswith("| + Exception Group"):
        return Header("group", lead, "")
    if before == "|":
        return Header("gutter", lead, "")
    if before == "Original":
        return Header("original", lead, "")
    return Header("plain", lead, "")


def read_exception_line(text: str, *, sure: bool) -> tuple[str, str] | None:
    """Class and message of `SomeError: message`; `sure` when it stands where only an exception can stand."""
    match = _EXCEPTION.match(text)
    if match is None:
        return None
    name, message = match[1], match[2]
    if name in _LOG_WORDS:
        return None
    last = name.rpartition(".")[2]
    if last.endswith(_SUFFIXES) or last in _ODD_NAMES:
        return name, message or ""
    if not sure:
        return None
    if message is not None and (text[len(name) : len(name) + 2] in (": ", ":")) and (name[0].isupper() or "." in name):
        return name, message
    if message is None and "." in name and last[:1].isupper():
        return name, ""
    return None


def read_bare_exception(text: str) -> tuple[str, str] | None:
    """Class and message where a line alone has the strict form of an exception that ended something."""
    name, colon, message = text.partition(": ")
    if not colon or len(name) > 200 or not _STRICT.match(name):
        return None
    return name, message
