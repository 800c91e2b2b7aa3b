"""What the command line was told: `Options` of `diagnose LOG...`, and the verbs there are beside it.

In: arguments. Out: `Options` where they are nothing but names, as in most runs; else argparse fills them, which
takes a tenth of a small run. A first word that is a verb selects the verb; a file of that name is given as `./rules`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from diagnose.dataclass import dataclass, field

if TYPE_CHECKING:
    from diagnose.report.render import Format

VERBS = (
    "rules",
    "eval",
    "incidents",
    "policy",
    "index",
    "run",
    "slurm",
    "watch",
    "ship",
    "serve",
    "worker",
    "migrate",
    "keys",
    "doctor",
    "completion",
)


@dataclass(slots=True)
class Options:
    """The arguments of `diagnose LOG...`, each with what it is when not given."""

    logs: list[str] = field(default_factory=list)
    kernel_log: list[str] = field(default_factory=list)
    scheduler_record: list[str] = field(default_factory=list)
    inventory: str | None = None
    format: Format = "text"
    output: str | None = None
    explain: bool = False
    verbose: bool = False
    quiet: bool = False
    exit_zero: bool = False
    rules: list[str] = field(default_factory=list)
    no_llm: bool = False
    llm_model: str | None = None
    record: bool = False
    job_id: str = ""
    name: str = ""
    user: str = ""
    image: str = ""
    cluster: str = ""
    project: str = ""


def options_of(arguments: Sequence[str]) -> Options:
    """The options that the arguments give; wrong ones end the process with a word, `--help` with many."""
    if arguments and all(word == "-" or not word.startswith("-") for word in arguments):
        return Options(logs=list(arguments))
    from diagnose.cli.arguments import diagnose_parser

    parser = diagnose_parser()
    options = parser.parse_args(arguments, namespace=Options())
    if not (options.logs or options.kernel_log or options.scheduler_record):
        parser.error("nothing to read: name a log file or directory, or - for standard input (see --help)")
    return options
