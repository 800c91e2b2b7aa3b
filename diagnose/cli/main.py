"""Where the process starts: selects the verb, and turns every expected error into one line and an exit code.

In: argv. Out: an exit code: 0 failed, 1 no failure, 3 inconclusive, 2 usage or input error, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

from diagnose.cli.arguments import VERBS, diagnose_parser, verb_parser
from diagnose.errors import DiagnoseError

ERROR = 2
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        _open_closed_streams()
        if "_ARGCOMPLETE" in os.environ:
            from diagnose.cli.completion import complete

            complete()
        code = _run(arguments)
        sys.stdout.flush()
    except DiagnoseError as error:
        _tell(str(error))
        return 0 if "--exit-zero" in arguments else ERROR
    except BrokenPipeError:  # the reader has left
        _forget_output()
        return 0
    except OSError as error:  # inputs have errors of their own, so this is standard output, such as on a full disk
        if isinstance(error, FileNotFoundError) and _is_homeless():
            _tell("the working directory was removed, so no relative path can be found; cd to another one")
            return 0 if "--exit-zero" in arguments else ERROR
        _forget_output()
        where = f"{error.filename}: " if isinstance(error.filename, str) else ""
        _tell(where + (error.strerror or str(error)))
        return ERROR
    except KeyboardInterrupt:
        _tell("interrupted", first="\n")  # the terminal shows ^C before it
        return INTERRUPTED
    except MemoryError:
        _tell("not enough memory; raise the limit (ulimit -v, the container's) or give fewer inputs")
        return 0 if "--exit-zero" in arguments else ERROR
    except Exception as error:  # noqa: BLE001 - Python would exit with 1, which says that the job did not fail
        _report_defect(error)
        return 0 if "--exit-zero" in arguments else ERROR
    return code


def _tell(message: str, first: str = "") -> None:
    """Says what is wrong. Names, which anybody may have given to files, cannot drive the terminal.

    Where nobody listens, the exit code still says it.
    """
    shown = "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in message)
    with contextlib.suppress(OSError, ValueError):
        print(f"{first}diagnose: {shown}", file=sys.stderr, flush=True)


def _report_defect(error: Exception) -> None:
    """Says that the tool itself failed, and what a report of it needs."""
    import traceback

    traceback.print_exception(error, limit=-6, file=sys.stderr)
    print(
        f"diagnose: internal error ({type(error).__name__}): the inputs were not diagnosed. "
        "This is a defect of diagnose; please report it with the lines above.",
        file=sys.stderr,
    )


def _open_closed_streams() -> None:
    """Gives a process that was started without one of the standard streams an empty one."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - as long as the process
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def _is_homeless() -> bool:
    """Whether the working directory is no more."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _forget_output() -> None:
    """Lets what is still buffered go nowhere: Python would complain again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: list[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if arguments and arguments[0] in VERBS:
        options = verb_parser().parse_args(arguments)
        if options.verb == "completion":
            from diagnose.cli.completion import script

            print(script(options.shell))
            return 0
        from diagnose.cli.rules import run_rules

        return run_rules(options)
    from diagnose.cli.diagnose import run_diagnose

    parser = diagnose_parser()
    options = parser.parse_args(arguments)
    if not (options.logs or options.kernel_log or options.scheduler_record):
        parser.error("nothing to read: name a log file or directory, or - for standard input (see --help)")
    return run_diagnose(options)
