"""`diagnose run -- COMMAND`: a command as it is, and a diagnosis when it fails.

In: arguments. Out: the command's exit code, or one that says what should be done next.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from diagnose.cli.streams import tell
from diagnose.errors import UsageError

if TYPE_CHECKING:
    from diagnose.integrations.launch import Launch
    from diagnose.integrations.summary import Effect

_TERMINATION: Final = "/dev/termination-log"
_SMALLEST, _LARGEST = 1024**2, 1024**4
_UNITS: Final = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
# Below 128 launchers such as Kubeflow's take a code for final, above it for one to try again after; 129 to 192 are
# a shell's codes for signals.
_EXITS: Final = "stop=100,restart=200,elsewhere=201"
_EFFECTS: Final = ("stop", "restart", "elsewhere")

_USAGE: Final = "diagnose run [options] -- COMMAND [ARGUMENT...]"
_EPILOG: Final = f"""\
Output goes where it went before, byte by byte; signals reach the command; its exit code is returned (128 + N after
signal N; 127 where there is no such command, 126 where it cannot be executed). The report goes to standard error.

With --exit-map a diagnosed failure returns another code ({_EXITS} unless you say others):
  stop        a restart would fail again, likely or confirmed
  restart     try again on the same nodes
  elsewhere   try again without the nodes that the report names
Where there is no opinion, and when somebody asked the command to end, the code is the command's own.

examples:
  diagnose run -- python train.py
  diagnose run --log train.log -- torchrun --nproc-per-node 8 train.py
  diagnose run --exit-map stop=1,restart=75,elsewhere=76 -- ./train.sh
  diagnose run --termination-log -- python train.py          in a container of Kubernetes"""


def add_run_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Adds the verb; its parser reads what stands before `--`."""
    from diagnose.cli.arguments import FORMATS, add_memory_arguments

    parser = verbs.add_parser(
        "run",
        help="run a command, and say why it failed if it does",
        usage=_USAGE,
        description="Run a command, and say why it failed if it does.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--log",
        metavar="FILE",
        help="keep what the command prints, standard error in a FILE.err beside it; older ones are overwritten",
    )
    parser.add_argument(
        "--log-size",
        default="256M",
        metavar="SIZE",
        help="of what it prints at most so much is kept, the beginning and the end (1M to 1T, default 256M)",
    )
    parser.add_argument(
        "--exit-map",
        nargs="?",
        const="",
        metavar="stop=N,restart=N,elsewhere=N",
        help="return a code that says what to do next, see below",
    )
    parser.add_argument(
        "--termination-log",
        nargs="?",
        const=_TERMINATION,
        metavar="FILE",
        help=f"write the first 4096 bytes of the report there, {_TERMINATION} unless named",
    )
    parser.add_argument("--seconds", type=_seconds, default=60.0, help="for diagnosing at most (default 60)")
    parser.add_argument("--kernel-log", action="append", default=[], metavar="FILE", help="as for diagnose")
    parser.add_argument("--scheduler-record", action="append", default=[], metavar="FILE", help="as for diagnose")
    parser.add_argument("--inventory", metavar="FILE", help="as for diagnose")
    parser.add_argument("--rules", action="append", default=[], metavar="DIR", help="as for diagnose")
    parser.add_argument("--no-llm", action="store_true", help="as for diagnose")
    parser.add_argument("--format", choices=FORMATS, default="text", help="of the report (default text)")
    parser.add_argument("--output", "-o", metavar="FILE", help="write the report there, not to standard error")
    parser.add_argument("-q", "--quiet", action="store_true", help="print no report")
    add_memory_arguments(parser)
    return parser


def run_command(arguments: Sequence[str]) -> int:
    """Runs the command of `diagnose run ARGUMENTS`; returns what to exit with."""
    from diagnose.integrations.launch import launch, supported

    given = list(arguments)
    at = given.index("--") if "--" in given else len(given)
    parser = add_run_parser(argparse.ArgumentParser(prog="diagnose").add_subparsers())
    options, unknown = parser.parse_known_args(given[:at])
    command = given[at + 1 :]
    if unknown:
        parser.error(f"what is {unknown[0]}? Put -- before the command: diagnose run -- COMMAND")
    if not command:
        parser.error("no command; put it behind --: diagnose run -- COMMAND")
    if not supported():
        raise UsageError("diagnose run needs Linux; run the command as it is and diagnose its log")
    return launch(command, _how(options), tell)


def _how(options: argparse.Namespace) -> Launch:
    from diagnose.cli.diagnose import wants_colour
    from diagnose.integrations.launch import Launch
    from diagnose.integrations.local import Inputs

    named = {name: str(getattr(options, name)) for name in ("name", "user", "image", "cluster", "project")}
    inputs = Inputs(
        logs=(),
        kernel_logs=options.kernel_log,
        scheduler_records=options.scheduler_record,
        inventory=options.inventory,
        rules=options.rules,
        identity={"id": options.job_id or os.environ.get("SLURM_JOB_ID", ""), **named},
        records=options.record,
        llm=not options.no_llm,
        format=options.format,
        colour=options.output is None and sys.stderr.isatty() and wants_colour(),
    )

    def write(rendered: str) -> None:
        if options.output is not None:
            from diagnose.cli.diagnose import write_whole

            try:
                write_whole(options.output, rendered)
            except UsageError as error:
                tell(str(error))
        elif not options.quiet:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(rendered)
                sys.stderr.flush()

    return Launch(
        log=options.log,
        log_bytes=_size(options.log_size),
        inputs=inputs,
        output=write,
        termination_log=options.termination_log,
        exits={} if options.exit_map is None else exit_map(options.exit_map),
        seconds=options.seconds,
    )


def exit_map(text: str) -> dict[Effect, int]:
    """The codes that `stop=1,restart=75` names, with the usual ones for those it does not."""
    codes: dict[Effect, int] = {}
    for part in (*_EXITS.split(","), *filter(None, text.split(","))):
        name, equals, code = part.strip().partition("=")
        if name not in _EFFECTS or not equals or not (code.isascii() and code.isdigit() and 1 <= int(code[:9]) <= 255):
            raise UsageError(f"--exit-map {part.strip()!r}: say stop, restart or elsewhere = a code from 1 to 255")
        codes[name] = int(code)  # type: ignore[index] # it is one of the three
    return codes


def _size(text: str) -> int:
    number, unit = text[:-1], text[-1:].lower()
    if unit.isdigit():
        number, unit = text, ""
    if not (number.isascii() and number.isdigit() and len(number) < 16 and unit in _UNITS):
        raise UsageError(f"--log-size {text!r}: say a size such as 64M or 2G")
    size = int(number) * _UNITS[unit]
    if not _SMALLEST <= size <= _LARGEST:
        raise UsageError("--log-size must be from 1M to 1T")
    return size


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError("say seconds from 1 to 3600")
    return seconds
