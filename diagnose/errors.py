"""What can go wrong for a user, as one tree.

DiagnoseError                  anything a user can be told about; `str()` says what happened and what to do next
├── UsageError                 the command line or the call asks for something impossible
│   └── OutageError            a server that a setting names does not serve
├── SourceError                an input cannot be read, or only in part
│   └── LimitExceeded          a bound on size, depth, files or time has bitten
├── RuleError                  rule files cannot be used; carries every problem found
└── StoreError                 the memory of past runs cannot be read or written
"""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.dataclass import dataclass


class DiagnoseError(Exception):
    """Base of all errors that are meant for the user."""


class UsageError(DiagnoseError):
    """The request itself cannot be served."""


class OutageError(UsageError):
    """A server that a setting names does not serve; whoever asks again soon may wait in vain again."""


class SourceError(DiagnoseError):
    """An input cannot be read, or only in part."""


class LimitExceeded(SourceError):
    """A bound on size, depth, number of files or time was reached."""


class StoreError(DiagnoseError):
    """The memory of past runs cannot be read or written."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in a rule file: where, which check found it, and what to do."""

    path: str
    line: int | None
    check: str
    message: str

    def __str__(self) -> str:
        where = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{where}: {self.message} [{self.check}]"


class RuleError(DiagnoseError):
    """Rule files cannot be used; all problems are listed together."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def installing(extras: str) -> str:
    """How these extras are had, by people with and without a clone."""
    return f"pip install 'gpu-job-diagnose[{extras}]' (in a clone: pip install '.[{extras}]')"
