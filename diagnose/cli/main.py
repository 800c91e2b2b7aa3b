"""Where the process starts: selects the verb, and turns every expected error into one line and an exit code.

In: argv. Out: an exit code: 0 failed, 1 no failure, 3 inconclusive, 2 usage or input error; 130 interrupted, 143
terminated, 129 hung up: what was begun is put away first, processes and half-written files.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence

from diagnose.cli.options import VERBS, options_of
from diagnose.cli.streams import forget, forget_unheard, open_closed, say, tell
from diagnose.errors import DiagnoseError

ERROR = 2
INTERRUPTED = 130
_ENDING = {signal.SIGTERM: "terminated"} | ({signal.SIGHUP: "hung up"} if hasattr(signal, "SIGHUP") else {})


class _Ended(BaseException):
    """A signal asked the process to end."""

    def __init__(self, number: int) -> None:
        self.number = number


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    open_closed()
    try:
        with _listening():
            return _code(arguments)
    except _Ended as ended:
        tell(_ENDING[signal.Signals(ended.number)])
        return 128 + ended.number
    finally:
        forget_unheard()


@contextlib.contextmanager
def _listening() -> Iterator[None]:
    """Turns signals that ask the process to end into an exception; one that is ignored, as under nohup, stays so."""
    heard: list[int] = []
    with contextlib.suppress(ValueError):  # not the main thread: then somebody else listens
        for number in _ENDING:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _end)
                heard.append(number)
    try:
        yield
    finally:
        for known in heard:
            signal.signal(known, signal.SIG_DFL)


def _end(number: int, _frame: object) -> None:
    signal.signal(number, signal.SIG_DFL)  # asked once more, it ends at once
    raise _Ended(number)


def _code(arguments: list[str]) -> int:
    """The exit code of a run; whatever ended it was told."""
    try:
        if "_ARGCOMPLETE" in os.environ:
            from diagnose.cli.completion import complete

            complete()
        try:
            code = _run(arguments)
        except SystemExit:  # after --help, --version and wrong usage
            sys.stdout.flush()
            raise
        sys.stdout.flush()
    except DiagnoseError as error:
        tell(str(error))
        return 0 if "--exit-zero" in arguments else ERROR
    except BrokenPipeError:  # the reader has left
        forget(sys.stdout)
        return 0
    except OSError as error:  # inputs have errors of their own, so this is standard output, such as on a full disk
        if isinstance(error, FileNotFoundError) and _is_homeless():
            tell("the working directory was removed, so no relative path can be found; cd to another one")
            return 0 if "--exit-zero" in arguments else ERROR
        forget(sys.stdout)
        where = f"{error.filename}: " if isinstance(error.filename, str) else ""
        tell(where + (error.strerror or str(error)))
        return ERROR
    except KeyboardInterrupt:
        say("\ndiagnose: interrupted")  # the terminal shows ^C before it
        return INTERRUPTED
    except MemoryError:
        tell("not enough memory; raise the limit (ulimit -v, the container's) or give fewer inputs")
        return 0 if "--exit-zero" in arguments else ERROR
    except Exception as error:  # noqa: BLE001 - Python would exit with 1, which says that the job did not fail
        _report_defect(error)
        return 0 if "--exit-zero" in arguments else ERROR
    return code


def _report_defect(error: Exception) -> None:
    """Says that the tool itself failed, and what a report of it needs."""
    import traceback

    say("".join(traceback.format_exception(error, limit=-6)).rstrip("\n"))
    tell(
        f"internal error ({type(error).__name__}): the inputs were not diagnosed. "
        "This is a defect of diagnose; please report it with the lines above."
    )


def _is_homeless() -> bool:
    """Whether the working directory is no more."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _run(arguments: list[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if arguments and arguments[0] == "run":  # what stands behind -- is another's
        from diagnose.cli.run import run_command

        return run_command(arguments[1:])
    if arguments and arguments[0] in VERBS:
        from diagnose.cli.arguments import verb_parser

        try:
            options = verb_parser().parse_args(arguments)
        except SystemExit as ended:
            if ended.code and os.path.lexists(arguments[0]):
                tell(f"a first word {arguments[0]} is a verb; the file or directory here is ./{arguments[0]}")
            raise
        if options.verb == "completion":
            from diagnose.cli.completion import script

            print(script(options.shell))
            return 0
        if options.verb == "eval":
            from diagnose.cli.eval import run_eval

            return run_eval(options)
        if options.verb == "incidents":
            from diagnose.cli.incidents import run_incidents

            return run_incidents(options)
        if options.verb == "index":
            from diagnose.cli.index import run_index

            return run_index(options)
        if options.verb == "policy":
            from diagnose.cli.policy import run_policy

            return run_policy(options)
        if options.verb == "ship":
            from diagnose.cli.ship import run_ship

            return run_ship(options)
        if options.verb in ("serve", "worker", "migrate"):
            from diagnose.cli.serving import run_serving

            return run_serving(options)
        if options.verb == "keys":
            from diagnose.cli.keys import run_keys

            return run_keys(options)
        if options.verb == "doctor":
            from diagnose.cli.doctor import run_doctor

            return run_doctor(options)
        if options.verb == "slurm":
            from diagnose.cli.slurm import run_slurm

            return run_slurm(options)
        if options.verb == "watch":
            from diagnose.cli.watch import run_watch

            return run_watch(options)
        from diagnose.cli.rules import run_rules

        return run_rules(options)
    from diagnose.cli.diagnose import run_diagnose

    return run_diagnose(options_of(arguments))
