"""`diagnose ship FILE... --job ID`: the logs of a running job, to a service.

In: options, the environment. Out: the exit code: 0 all of it is there, 1 something could not be sent, 2 refused.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import threading
import time
from typing import Any, Final

from diagnose.cli.streams import tell
from diagnose.errors import UsageError

_PAUSE: Final = 0.5
_TRIES: Final = 5
_MOST: Final = 1 << 40


def add_ship_parser(verbs: Any) -> None:
    """Add the verb to the parser."""
    ship = verbs.add_parser(
        "ship",
        help="send the logs of a running job to the service, as they grow",
        description=(
            "Send the logs of a running job to the service, as they grow, through rotation and truncation. They are "
            "compressed here; the job is not slowed, and goes on whatever becomes of this. SIGTERM sends the rest."
        ),
        epilog=(
            "example (in a batch script):\n"
            "  diagnose ship train.out 'ranks/*.err' --until-exit $$ --end &\n\n"
            "environment: DIAGNOSE_SERVICE, DIAGNOSE_API_KEY_FILE or DIAGNOSE_API_KEY, DIAGNOSE_SERVICE_CA_FILE;\n"
            "SLURM_JOB_ID, SLURM_CLUSTER_NAME and SLURM_RESTART_COUNT say which job it is"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    ship.add_argument("logs", nargs="+", metavar="FILE", help="logs, which need not be there yet; patterns in quotes")
    ship.add_argument("--job", metavar="ID", help="the job's number (SLURM_JOB_ID)")
    ship.add_argument("--cluster", help="where there are several (SLURM_CLUSTER_NAME)")
    ship.add_argument("--attempt", type=int, help="counted from 0 (SLURM_RESTART_COUNT)")
    ship.add_argument("--project", help="where the key is bound to several")
    ship.add_argument(
        "--prefix", default="", metavar="NAME", help="before the logs' names: where each node has its own"
    )
    ship.add_argument("--service", metavar="URL", help="such as https://diagnose.example (DIAGNOSE_SERVICE)")
    ship.add_argument("--key-file", metavar="FILE", help="holds the API key (DIAGNOSE_API_KEY_FILE)")
    ship.add_argument("--until-exit", type=int, metavar="PID", help="send the rest when this process has ended")
    ship.add_argument("--end", action="store_true", help="then say that the job has ended, so that it is diagnosed")
    ship.add_argument("--exit-code", type=int, metavar="N", help="with --end: how it ended, where that is known")
    ship.add_argument("--every", type=float, default=2.0, metavar="SECONDS", help="at most so late (default 2)")
    ship.add_argument("--grace", type=float, default=60.0, metavar="SECONDS", help="for the rest (default 60)")
    ship.add_argument(
        "--spool-mb",
        type=int,
        default=1024,
        metavar="N",
        help="on this disk, for what cannot be sent yet and may not stay where it is (default 1024)",
    )
    ship.add_argument("--rules", action="append", metavar="DIR", help="a site's own rules, if the service has them")
    ship.add_argument("-q", "--quiet", action="store_true", help="say nothing but what went wrong for good")


def run_ship(options: argparse.Namespace) -> int:
    """Run the verb."""
    from diagnose.integrations.backlog import Space
    from diagnose.integrations.sending import sender_of
    from diagnose.integrations.ship import Job, Refused, Shipping, Tools
    from diagnose.keeping import Keeping
    from diagnose.rules.bundle import load_bundled
    from diagnose.service.stall import SignReader

    if not (0.1 <= options.every <= 3600 and 0 <= options.grace <= 86_400):
        raise UsageError("--every must be from 0.1 to 3600 seconds, --grace from 0 to 86400")
    if not 0 <= options.spool_mb <= 1 << 20:
        raise UsageError("--spool-mb must be from 0 to 1048576")
    job = Job(_number(options), *_which(options), options.project, options.prefix)
    sender = sender_of(os.environ, options.service, options.key_file)
    asked = threading.Event()

    def ask(number: int, _frame: object) -> None:
        asked.set()
        if number == signal.SIGINT:  # whoever asks twice waits no longer
            signal.signal(number, signal.default_int_handler)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, ask)
    _stand_back(alone=options.until_exit is not None)
    rules = load_bundled(tuple(options.rules or ()))
    state = _state_folder()
    space = Space(state, disk=options.spool_mb * 1024 * 1024)
    tools = Tools(Keeping(rules), SignReader(rules), state=state, every=options.every, space=space)
    shipping = Shipping(options.logs, job, sender, tools, (lambda _: None) if options.quiet else tell)
    try:
        while not asked.is_set() and _lives(options.until_exit):
            if not shipping.turn():
                asked.wait(_PAUSE)
        if asked.is_set() and sys.stderr.isatty() and not options.quiet:
            tell(f"the rest is sent, for {options.grace:.0f} s at most; Ctrl-C again ends it at once")
        whole = shipping.finish(options.grace)
        if options.end:
            code = {} if options.exit_code is None else {"exit": {"code": options.exit_code}}
            slurm = {"scheduler": "slurm"} if "SLURM_JOB_ID" in os.environ else {}
            place = shipping.end({**slurm, **code}, options.grace)
            if place and not options.quiet:
                tell(f"the diagnosis will be at {sender.address}{place}")
            whole = whole and bool(place)
    except Refused as error:
        tell(f"{sender.address}: {error}")
        return 2
    finally:
        sender.close()
    return 0 if whole else 1


def _stand_back(*, alone: bool) -> None:
    """Take only what the job leaves of processors and disks.

    Where the kernel schedules sessions as groups, nice says nothing between them, and torchrun and srun give each rank
    a session of its own. One that ends with the job (`alone`) may have its own as well, which is last of all.
    """
    with contextlib.suppress(OSError):
        os.nice(19)
    if alone:
        with contextlib.suppress(OSError):  # whoever leads a group of processes stays where they are
            os.setsid()
    for _ in range(_TRIES if os.getsid(0) == os.getpid() else 0):
        try:
            with open("/proc/self/autogroup", "r+", encoding="ascii") as file:
                file.write("19")
        except BlockingIOError:  # of all users together the kernel hears one each tenth of a second
            time.sleep(random.uniform(0.1, 0.3))  # noqa: S311 - to spread senders
            continue
        except OSError:
            pass
        break
    with contextlib.suppress(OSError, AttributeError):  # takes a processor from nobody; SCHED_IDLE might never get one
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _number(options: argparse.Namespace) -> str:
    number = options.job or os.environ.get("SLURM_JOB_ID", "")
    if not number or not number.isprintable() or len(number) > 200:
        raise UsageError("whose logs are these? Say --job ID, or set SLURM_JOB_ID")
    return str(number)


def _which(options: argparse.Namespace) -> tuple[str, int]:
    restarts = os.environ.get("SLURM_RESTART_COUNT", "")
    attempt = options.attempt
    if attempt is None:
        attempt = int(restarts) if restarts.isascii() and restarts.isdigit() and len(restarts) < 7 else 0
    if not 0 <= attempt <= 1_000_000:
        raise UsageError("--attempt counts from 0")
    cluster = options.cluster if options.cluster is not None else os.environ.get("SLURM_CLUSTER_NAME", "")
    return cluster, attempt


def _lives(process: int | None) -> bool:
    """Whether a process is still there; of what is not ours, that too."""
    if process is None:
        return True
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            return file.read(4096).rpartition(")")[2].split()[:1] != ["Z"]
    except OSError:
        pass
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OverflowError, PermissionError):
        return process <= _MOST
    return True


def _state_folder() -> str | None:
    """Where it is noted how far each log is."""
    base = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):
        home = os.environ.get("HOME", "")
        base = os.path.join(home, ".local", "state") if os.path.isabs(home) else ""
    return os.path.join(base, "diagnose", "ship") if base else None
