"""The arguments of `diagnose LOG...` and of its verbs, as argparse parsers.

In: nothing. Out: `diagnose_parser()`, which fills `Options`, and `verb_parser()`.
"""

from __future__ import annotations

import argparse
from typing import Never

FORMATS = ("text", "json", "jsonl", "markdown")
SHELLS = ("bash", "zsh", "fish")

_DESCRIPTION = """\
Say what failed in a GPU training job, whose fault it is, why, and what to do next.

All inputs together are one job: log files, directories, globs, archives (gz, zst, xz, bz2, tar, zip), or - for
standard input."""

_USAGE = """\
diagnose LOG... [options]
       diagnose rules {list,show,lint,test,noise,new,propose,candidates,diff,stats,coverage,schema} ...
       diagnose eval CASES_DIR... [options]
       diagnose incidents {add,list,show,confirm,correct,delete,import,export,prune} ...
       diagnose policy backtest ...
       diagnose index {rebuild,check,similar} ...
       diagnose run [options] -- COMMAND
       diagnose ship FILE... --job ID [options]
       diagnose {serve,worker,migrate,doctor} [options]
       diagnose keys {add,list,revoke,rotate} ...
       diagnose slurm JOB [options]
       diagnose watch kubernetes [options]
       diagnose completion {bash,zsh,fish}"""

_EPILOG = """\
examples:
  diagnose slurm-4711.out
  diagnose logs/ --kernel-log gx-043.kernel.log --scheduler-record sacct.txt
  kubectl logs --prefix -l job=train | diagnose -
  diagnose --format json logs/ | jq .recovery
  diagnose rules list                      all rules
  diagnose ./rules                         a file or directory that is named like a verb

exit codes:
  0  the job failed, and the report says what is known of why
  1  the job did not fail
  3  inconclusive: neither failure nor success is proven
  2  wrong usage, or nothing could be read
  --exit-zero turns all of them into 0, for scheduler hooks"""


def diagnose_parser() -> argparse.ArgumentParser:
    """The parser of `diagnose LOG...`; what is not given stays as `Options` have it."""
    parser = argparse.ArgumentParser(
        prog="diagnose",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage=_USAGE,
        allow_abbrev=False,
    )
    parser.add_argument(
        "logs", nargs="*", metavar="LOG", help="files, directories, globs, archives; - is standard input"
    )
    inputs = parser.add_argument_group("further inputs of the same job")
    inputs.add_argument(
        "--kernel-log",
        action="append",
        metavar="FILE",
        help="kernel log of a host (dmesg, journalctl text or JSON, syslog); repeatable",
    )
    inputs.add_argument(
        "--scheduler-record",
        action="append",
        metavar="FILE",
        help="sacct, scontrol, kubectl describe or events; text, JSON or YAML; repeatable",
    )
    inputs.add_argument(
        "--inventory",
        metavar="FILE",
        help="which rank is on which host and GPU: JSON, YAML or CSV with columns rank, host, gpu, pci, nic ...",
    )
    output = parser.add_argument_group("output")
    output.add_argument("--format", choices=FORMATS, help="text (default), json, jsonl or markdown")
    output.add_argument("--output", "-o", metavar="FILE", help="write the report to a file instead of standard output")
    output.add_argument(
        "--explain",
        action="store_true",
        help="show every finding, what explained or excluded it, and which test moved attribution (text)",
    )
    output.add_argument("-v", "--verbose", action="store_true", help="more evidence, nothing shortened")
    output.add_argument("-q", "--quiet", action="store_true", help="the first line only, no progress bar")
    output.add_argument(
        "--exit-zero", action="store_true", help="exit 0 whatever the verdict, also when nothing could be read"
    )
    rules = parser.add_argument_group("knowledge")
    rules.add_argument(
        "--rules",
        action="append",
        metavar="DIR",
        help="a site's own rules, over the shipped ones; repeatable",
    )
    rules.add_argument(
        "--no-llm",
        action="store_true",
        help="ask no model, whatever DIAGNOSE_LLM_* says; past incidents may still decide where no rule does",
    )
    rules.add_argument(
        "--llm-model",
        metavar="NAME",
        help="the model to ask where no rule decides, at DIAGNOSE_LLM_BASE_URL (see docs/models.md)",
    )
    add_memory_arguments(parser)
    parser.add_argument(
        "--version", action=_Version, nargs=0, default=argparse.SUPPRESS, help="show program's version number and exit"
    )
    return parser


def add_memory_arguments(parser: argparse.ArgumentParser) -> None:
    """Add who the job is, and whether it is remembered."""
    memory = parser.add_argument_group("memory of past runs (in DIAGNOSE_DATABASE, or a file in your data directory)")
    memory.add_argument(
        "--record", action="store_true", help="remember this run, and answer with what earlier ones say"
    )
    memory.add_argument("--job-id", default="", metavar="ID", help="the scheduler's number of the job")
    memory.add_argument("--name", default="", help="of the workload: name, user and image stay when it is restarted")
    memory.add_argument("--user", default="", help="who runs it")
    memory.add_argument("--image", default="", help="the container image it runs in")
    memory.add_argument("--cluster", default="", help="where it ran: names of hosts are told apart by it")
    memory.add_argument("--project", default="", help="what it belongs to")


def verb_parser() -> argparse.ArgumentParser:
    """The parser of the verbs."""
    from diagnose.cli.doctor import add_doctor_parser
    from diagnose.cli.eval import add_eval_parser
    from diagnose.cli.incidents import add_incidents_parser
    from diagnose.cli.index import add_index_parser
    from diagnose.cli.keys import add_keys_parser
    from diagnose.cli.policy import add_policy_parser
    from diagnose.cli.rules import add_rules_parser
    from diagnose.cli.run import add_run_parser
    from diagnose.cli.serving import add_serving_parsers
    from diagnose.cli.ship import add_ship_parser
    from diagnose.cli.slurm import add_slurm_parser
    from diagnose.cli.watch import add_watch_parser

    parser = argparse.ArgumentParser(prog="diagnose", allow_abbrev=False)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    add_rules_parser(verbs)
    add_eval_parser(verbs)
    add_incidents_parser(verbs)
    add_policy_parser(verbs)
    add_index_parser(verbs)
    add_run_parser(verbs)
    add_ship_parser(verbs)
    add_serving_parsers(verbs)
    add_keys_parser(verbs)
    add_doctor_parser(verbs)
    add_slurm_parser(verbs)
    add_watch_parser(verbs)
    completion = verbs.add_parser(
        "completion",
        help="print a shell completion script",
        description="Print a completion script for your shell.",
        epilog='example:\n  eval "$(diagnose completion bash)"',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    completion.add_argument("shell", choices=SHELLS)
    return parser


class _Version(argparse.Action):
    """Prints the version; asks for it only then, since the library that knows takes longer than a small log."""

    def __call__(self, parser: argparse.ArgumentParser, *_given: object) -> Never:
        from importlib.metadata import PackageNotFoundError, version

        try:
            known = version("gpu-job-diagnose")
        except PackageNotFoundError:
            known = "(not installed)"
        print(f"diagnose {known}")
        parser.exit()
