"""`diagnose slurm JOB`: a job of Slurm's, from its number to a verdict in its comment.

In: a job's number, and settings in the environment, since hooks have no other. Out: the report on standard output, the
comment, notices, and, where it is asked for, actions.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from diagnose.cli.streams import tell
from diagnose.errors import DiagnoseError, UsageError

if TYPE_CHECKING:
    from diagnose.integrations.notices import Notices, Sink
    from diagnose.integrations.slurm import SlurmJob
    from diagnose.integrations.summary import Summary

_EPILOG: Final = """\
settings, for hooks (deploy/slurm/diagnose.conf has them all):
  DIAGNOSE_SERVICE          address of a service; without one the job is diagnosed on this machine
  DIAGNOSE_API_KEY_FILE     file with the key for it
  DIAGNOSE_KERNEL_LOGS      directory where the nodes' epilogs leave kernel logs
  DIAGNOSE_SLURM_LOGS       further logs of a job, patterns with {job} and {directory}, separated by blanks
  DIAGNOSE_NOTICES          file that remembers notices; with DIAGNOSE_NOTICE_WEBHOOK or DIAGNOSE_NOTICE_COMMAND
  DIAGNOSE_ACT              rehearse or act: requeue and drain as advised; see docs/schedulers.md

examples:
  diagnose slurm 4711
  diagnose slurm 4711 --comment --wait 60"""


def add_slurm_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the verb."""
    from diagnose.cli.arguments import FORMATS

    parser = verbs.add_parser(
        "slurm",
        help="diagnose a job of Slurm's by its number",
        description="Diagnose a job of Slurm's: what Slurm knows of it, its logs, and its nodes' kernel logs.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("job", metavar="JOB", help="the job's number; 14_2 is a task of an array")
    parser.add_argument("--attempt", type=int, metavar="N", help="which restart is meant (default the last that ended)")
    parser.add_argument(
        "--restart-count", type=int, metavar="N", help="instead: SLURM_JOB_RESTART_COUNT as EpilogSlurmctld was told"
    )
    parser.add_argument("--cluster", default="", help="its name (default SLURM_CLUSTER_NAME)")
    parser.add_argument("--project", default="", help="what the job belongs to")
    parser.add_argument("--wait", type=float, default=0.0, metavar="SECONDS", help="wait so long for the job to end")
    parser.add_argument("--settle", type=float, default=0.0, metavar="SECONDS", help="then wait for late kernel logs")
    parser.add_argument("--comment", action="store_true", help="write the verdict into the job's comment")
    parser.add_argument("--admin-comment", action="store_true", help="and into its AdminComment, as an operator may")
    parser.add_argument(
        "--logs", action="append", default=[], metavar="PATTERN", help="further logs of the job's owner"
    )
    parser.add_argument("--rules", action="append", default=[], metavar="DIR", help="as for diagnose")
    parser.add_argument("--record", action="store_true", help="remember this run, as for diagnose")
    parser.add_argument("--server-reads", action="store_true", help="send the service paths of logs, not their bytes")
    parser.add_argument("--seconds", type=float, default=300.0, help="for diagnosing at most (default 300)")
    parser.add_argument("--format", choices=FORMATS, default="text", help="of the report (default text)")
    parser.add_argument("--exit-code", type=int, metavar="N", help="the job is about to end with this code (for traps)")
    parser.add_argument("--add-kernel-log", metavar="FILE", help="only send a node's kernel log to the service")
    parser.add_argument("--host", default="", help="the node whose kernel log it is")
    parser.add_argument("--exit-zero", action="store_true", help="exit 0 whatever the verdict")
    parser.add_argument("-q", "--quiet", action="store_true", help="print no report")


def run_slurm(options: argparse.Namespace) -> int:
    """Diagnoses a job; returns the exit code of the verdict, as `diagnose` has it."""
    code = _run(options)
    return 0 if options.exit_zero else code


def _run(options: argparse.Namespace) -> int:
    import time

    from diagnose.cli.diagnose import EXIT_CODES
    from diagnose.integrations.client import client_of
    from diagnose.integrations.hook import How, verdict_of
    from diagnose.integrations.slurm import ending, point_to, read_job, wait_for_end, write_comment
    from diagnose.integrations.slurmparts import whole_of

    for number in (options.attempt, options.restart_count):
        if number is not None and not 0 <= number < 1_000_000:
            raise UsageError("--attempt and --restart-count must be 0 or more")
    if not (0 <= options.wait <= 86400 and 0 <= options.settle <= 3600 and 1 <= options.seconds <= 86400):
        raise UsageError("--wait, --settle and --seconds must be reasonable numbers of seconds")
    if options.add_kernel_log is not None:
        return _add_kernel_log(options)
    if options.exit_code is not None:
        job = ending(read_job(options.job, cluster=options.cluster), options.exit_code)
    else:
        job = wait_for_end(
            _meant(options),
            attempt=options.attempt,
            restart_count=options.restart_count,
            cluster=options.cluster,
            seconds=options.wait,
        )
    if (whole := whole_of(job.spoken)) is not None:  # by its first part it is diagnosed as a whole, once
        tell(f"job {job.id} is {job.spoken}, a part without a log: the verdict is that of {whole}+0")
        for wanted, admin in ((options.comment, False), (options.admin_comment, True)):
            problem = point_to(job, whole, admin=admin) if wanted else None
            if problem:
                tell(problem)
        return EXIT_CODES["no_failure"]
    if job.succeeded:
        tell(f"job {job.id} completed; there is nothing to diagnose")
        return EXIT_CODES["no_failure"]
    time.sleep(options.settle)
    how = How(
        client=client_of(os.environ, patience=options.seconds),
        upload=not options.server_reads,
        patterns=(*options.logs, *os.environ.get("DIAGNOSE_SLURM_LOGS", "").split()),
        kernel_logs=os.environ.get("DIAGNOSE_KERNEL_LOGS", "").strip() or None,
        rules=options.rules,
        records=options.record,
        seconds=options.seconds,
        project=options.project,
        format="json" if options.quiet else options.format,
    )
    verdict = verdict_of(job, how, tell)
    if verdict is None:
        return 2
    if not options.quiet:
        sys.stdout.write(_shown(verdict.report, verdict.text, options.format))
    summary = verdict.summary
    for wanted, admin in ((options.comment, False), (options.admin_comment, True)):
        problem = write_comment(job, summary, admin=admin) if wanted else None
        if problem:
            tell(problem)
    _tell_others(job, summary)
    _act(job, summary)
    return EXIT_CODES[summary.status]


def _meant(options: argparse.Namespace) -> str:
    """The job, or of one of several parts the first that failed: a hook knows which part it means, a person may not."""
    from diagnose.integrations.slurm import checked_number
    from diagnose.integrations.slurmcommands import run_command
    from diagnose.integrations.slurmparts import failed_parts, part_of, whole_of

    number = checked_number(options.job)
    if options.restart_count is not None or options.attempt is not None:
        return number
    if (whole := whole_of(part_of(number, run_command)[1])) is not None:
        tell(f"job {number} is a part without a log: this is {whole}+0")
        return f"{whole}+0"
    if not number.isdigit():
        return number
    failed, count = failed_parts(number, run_command)
    if count < 2 or not failed:
        return number
    others = ", ".join(failed[1:5]) + (" ..." if len(failed) > 5 else "")
    tell(
        f"job {number} has {count} parts, of which {len(failed)} failed: this is {failed[0]}"
        + f"; others: {others}" * bool(others)
    )
    return failed[0]


def _add_kernel_log(options: argparse.Namespace) -> int:
    """Sends a node's kernel log to the service, as soon as that knows the job."""
    import time

    from diagnose.integrations.client import client_of
    from diagnose.integrations.slurm import checked_number
    from diagnose.integrations.slurmcommands import run_command
    from diagnose.integrations.slurmparts import part_of, whole_of

    job, attempt = checked_number(options.job), options.attempt
    job = whole_of(part_of(job, run_command)[1]) or job
    client = client_of(os.environ, patience=options.seconds)
    if client is None:
        raise UsageError("--add-kernel-log needs a service; set DIAGNOSE_SERVICE")
    until = time.monotonic() + options.seconds
    try:
        log = open(options.add_kernel_log, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise UsageError(f"{options.add_kernel_log}: {error.strerror}") from error
    with client, log:
        while (known := client.find(options.cluster, job, attempt)) is None:
            if time.monotonic() > until:
                tell(f"the service does not know job {job}; its kernel log was not sent")  # most jobs do not fail
                return 0
            time.sleep(5)
        name = f"{options.host or 'node'}.dmesg"
        given = {"upload": client.upload(name, log), "source": name, **({"host": options.host} if options.host else {})}
        client.add(known.id, {"kernel_logs": [given]}, key=f"kernel-{known.id}-{options.host}")
    return 0


def _shown(report: Any, text: str, format: str) -> str:
    import json

    if format == "jsonl":
        return json.dumps(report, separators=(",", ":"), ensure_ascii=False) + "\n"
    if text:
        return text
    return json.dumps(report, indent=1, ensure_ascii=False) + "\n"


def _tell_others(job: SlurmJob, summary: Summary) -> None:
    from diagnose.integrations.notices import JobRef

    try:
        notices = notices_of(os.environ)
        if notices is not None:
            notices.tell(JobRef(job.cluster, job.id, job.attempt, job.name, job.user), summary)
            for problem in notices.deliver():
                tell(f"a notice was not delivered: {problem}")
    except DiagnoseError as error:
        tell(str(error))


def notices_of(environment: Any) -> Notices | None:
    """The notices that the environment asks for; None where it asks for none."""
    path = environment.get("DIAGNOSE_NOTICES", "").strip()
    if not path:
        return None
    import shlex

    from diagnose.integrations.client import read_key
    from diagnose.integrations.notices import CommandSink, Notices, WebhookSink, webhook_secret

    sinks: list[Sink] = []
    if address := environment.get("DIAGNOSE_NOTICE_WEBHOOK", "").strip():
        secret_file = environment.get("DIAGNOSE_NOTICE_SECRET_FILE", "").strip()
        sinks.append(WebhookSink(address, secret=webhook_secret(read_key(secret_file)) if secret_file else None))
    if command := environment.get("DIAGNOSE_NOTICE_COMMAND", "").strip():
        try:
            sinks.append(CommandSink(shlex.split(command)))
        except ValueError as error:
            raise UsageError(f"DIAGNOSE_NOTICE_COMMAND: {error}") from None
    return Notices(path, sinks)


def _act(job: SlurmJob, summary: Summary) -> None:
    mode = os.environ.get("DIAGNOSE_ACT", "").strip() or "off"
    if mode == "off":
        return
    from diagnose.integrations.acting import MODES, Actor, Caps, SlurmActor, actions
    from diagnose.integrations.notices import JobRef

    trail = os.environ.get("DIAGNOSE_ACT_TRAIL", "").strip()
    nodes = os.environ.get("DIAGNOSE_NODES", "").strip()
    try:
        if mode not in MODES or not trail:
            raise UsageError("DIAGNOSE_ACT is off, rehearse or act, and DIAGNOSE_ACT_TRAIL the file of its audit trail")
        known = int(nodes) if nodes.isascii() and nodes.isdigit() and len(nodes) < 9 else None
        ref = JobRef(job.cluster, job.id, job.attempt, job.name, job.user)
        actor = Actor(SlurmActor(), trail, mode, Caps(nodes=known))
        for line in actor.act(ref, actions(ref, summary, job.nodes, job.spoken)):
            tell(line)
    except DiagnoseError as error:
        tell(str(error))
