"""`diagnose LOG...`: run the pipeline and write the report.

In: options. Out: an exit code; the report on standard output or in a file.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TextIO

from diagnose import garbage
from diagnose.cli.options import Options
from diagnose.cli.streams import tell
from diagnose.errors import UsageError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from diagnose.models import Report
    from diagnose.pipeline import Request, Services
    from diagnose.store.recorder import Recorded

EXIT_CODES = {"failed": 0, "no_failure": 1, "inconclusive": 3}
_PROGRESS_AFTER = 1.0  # seconds
_MOST_PROCESSES = 8
_SYSTEM = ("/dev/", "/proc/")
_MEMORY = "/dev/shm/"  # noqa: S108 - holds files like any other folder
_LINKS = 40


def run_diagnose(options: Options) -> int:
    """Diagnose and write the report; returns the exit code of the verdict."""
    if options.output is not None:
        _refuse_input(options, options.output)
    with _lasting():
        from diagnose import precompiled, regexes
        from diagnose.pipeline import Services, diagnose
        from diagnose.report import render  # noqa: F401 - here it lasts; `_answer` uses it
        from diagnose.rules.bundle import load_bundled
        from diagnose.settings import Settings

        settings = Settings(rules=tuple(options.rules), processes=min(_MOST_PROCESSES, _processors()))
        precompiled.recall()
        rules = load_bundled(settings.rules)
    request = request_of(options)
    with contextlib.ExitStack() as lasting:
        with _progress(shown=not options.quiet and sys.stderr.isatty()) as on_progress:
            services = Services(rules, on_progress=on_progress, on_wait=None if options.quiet else _tell_wait)
            services = lasting.enter_context(_configured(services, options))
            report = diagnose(request, services, settings)
        _answer(report, options)  # before services end: what they still have to do delays no answer
    precompiled.keep()
    regexes.keep()
    return 0 if options.exit_zero else EXIT_CODES[report.status]


def _answer(report: Report, options: Options) -> None:
    """Writes the report."""
    from diagnose.report import render

    _tell_unread(options)
    text = render(
        report,
        options.format,
        width=_width(to_file=options.output is not None),
        colour=options.output is None and wants_colour(),
        explain=options.explain,
        verbose=options.verbose,
    )
    if options.quiet and options.format == "text":
        text = text.split("\n", 1)[0] + "\n"
    if options.output is not None:
        write_whole(options.output, text)
    else:
        sys.stdout.write(text)
        sys.stdout.flush()


@contextlib.contextmanager
def _configured(services: Services, options: Options) -> Iterator[Services]:
    """The services with those that the environment or the arguments ask for; what they need is loaded only then."""
    if not options.record and not options.llm_model and not any(name.startswith("DIAGNOSE_") for name in os.environ):
        yield services
        return
    from diagnose import services as wiring
    from diagnose.dataclass import replace

    def told(recorded: Recorded) -> None:
        if options.record and not options.quiet and recorded.incident is not None:
            tell(f"recorded as incident {recorded.incident}")

    settings = wiring.service_settings(
        os.environ, record=options.record, llm=not options.no_llm, llm_model=options.llm_model
    )
    with wiring.services(services.rules, settings, tell, told) as opened:
        yield replace(services, memory=opened.memory, second_opinion=opened.second_opinion, log_agent=opened.log_agent)


def request_of(options: Options) -> Request:
    """The inputs that the arguments name."""
    from diagnose.models import JobContext
    from diagnose.pipeline import Request

    return Request(
        context=JobContext(options.job_id, options.name, options.user, options.image, options.cluster, options.project),
        paths=options.logs,
        kernel_logs=options.kernel_log,
        scheduler_records=options.scheduler_record,
        inventory=options.inventory,
        stdin=sys.stdin.buffer if "-" in [*options.logs, *options.kernel_log, *options.scheduler_record] else None,
    )


def _tell_unread(options: Options) -> None:
    """Says which named inputs were not read: the verdict stands without them, but whoever named them expects them."""
    for path in dict.fromkeys((*options.logs, *options.kernel_log, *options.scheduler_record)):
        exists = os.path.exists(path)
        pattern = not exists and any(mark in path for mark in "*?[")  # that it may match nothing is its purpose
        if path == "-" or pattern or (exists and os.access(path, os.R_OK)):
            continue
        tell(f"{_shown(path)} {'cannot be read' if exists else 'does not exist'}; the report does without it")


def _refuse_input(options: Options, output: str) -> None:
    """Raises `UsageError` where the report would take the place of what is read, by whatever name."""
    try:
        status = os.stat(output)
    except (OSError, ValueError):
        return
    if not stat.S_ISREG(status.st_mode):
        return
    from diagnose.sources import files_of

    arguments = (*options.logs, *options.kernel_log, *options.scheduler_record)
    named = [*(path for path in arguments if path != "-"), *options.rules, options.inventory or ""]
    if any(_is_same(path, status) for path in files_of(list(filter(None, named)))) or (
        "-" in arguments and _is_same(sys.stdin, status)
    ):
        raise UsageError(f"cannot write {_shown(output)}: it is one of the inputs; choose another --output")


def _is_same(file: str | TextIO, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(file if isinstance(file, str) else file.fileno()), status)
    except (OSError, ValueError):
        return False


def _tell_wait(what: str) -> None:
    """Says what a silent run waits for."""
    tell(f"{what}; Ctrl-C to stop")


def _processors() -> int:
    """How many processors this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def _lasting() -> Iterator[None]:
    """Modules and rules made here last until the end: looking for garbage among them would only cost time."""
    gc.disable()
    try:
        yield
    finally:
        garbage.settle()


def wants_colour() -> bool:
    """Colour where people look: a terminal, unless NO_COLOR says otherwise; FORCE_COLOR for pagers."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (sys.stdout.isatty() and os.environ.get("TERM") != "dumb")


def _width(*, to_file: bool) -> int:
    """100 columns, or the terminal's; COLUMNS says another width, also for pipes and files."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isascii() and asked.isdigit() and len(asked) <= 4 and int(asked):
        return int(asked)
    if to_file or not sys.stdout.isatty():
        return 100
    import shutil

    return shutil.get_terminal_size((100, 24)).columns


def write_whole(path: str, text: str) -> None:
    """Writes a file whole or not at all."""
    import tempfile

    temporary = ""
    try:
        if _straight(path):
            with open(path, "a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
            return
        target = os.path.realpath(path)  # a link stays one: what it leads to becomes the report
        mode = os.stat(target).st_mode & 0o777 if os.path.exists(target) else 0o666 & ~_umask()
        with tempfile.NamedTemporaryFile(
            "w", dir=os.path.dirname(target), delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            temporary = file.name
            file.write(text)
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except OSError as error:
        raise UsageError(f"cannot write {_shown(path)}: {error.strerror}; choose another --output") from error
    finally:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _shown(path: str) -> str:
    """A path on one line, whatever its name holds."""
    from diagnose.sources.printable import printable

    return printable(path)


def _straight(path: str) -> bool:
    """Whether there is nothing to replace: devices, pipes, and what the system's own folders lead to."""
    if os.path.exists(path) and not os.path.isfile(path):
        return True
    for _ in range(_LINKS):  # each link on the way: /dev/stdout leads to a file that others write to as well
        folder = os.path.realpath(os.path.dirname(path) or ".")
        if (folder + os.sep).startswith(_SYSTEM):
            return not (folder + os.sep).startswith(_MEMORY)
        if not os.path.islink(path):
            return False
        path = os.path.join(folder, os.readlink(path))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextlib.contextmanager
def _progress(*, shown: bool) -> Iterator[Callable[[int, int | None], None] | None]:
    """A progress bar on standard error once the work has taken a second."""
    if not shown:
        yield None
        return
    started = time.monotonic()
    bar: list[tuple[Progress, TaskID]] = []

    def on_progress(done: int, total: int | None) -> None:
        if not bar:
            if time.monotonic() - started < _PROGRESS_AFTER:
                return
            from rich import progress
            from rich.console import Console

            display = progress.Progress(console=Console(stderr=True), transient=True)
            display.start()
            bar.append((display, display.add_task("reading", total=total)))
        display, task = bar[0]
        # Compressed inputs grow past their size on disk: then the end is not known.
        display.update(task, completed=done, total=total if total and total >= done else None)

    try:
        yield on_progress
    finally:
        if bar:
            bar[0][0].stop()
