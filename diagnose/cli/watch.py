"""`diagnose watch kubernetes`: the watcher of failed training jobs, as a process that runs until it is ended.

In: arguments and the environment. Out: annotations, Events, notices; what goes wrong on standard error.
"""

from __future__ import annotations

import argparse
import os
import signal
from typing import Final

from diagnose.cli.streams import tell
from diagnose.errors import UsageError

_EPILOG: Final = """\
settings (deploy/kubernetes/ has a Deployment with the rights it needs and no more):
  DIAGNOSE_SERVICE          address of a service; without one jobs are diagnosed by the watcher
  DIAGNOSE_API_KEY_FILE     file with the key for it
  DIAGNOSE_NOTICES          file that remembers notices; with DIAGNOSE_NOTICE_WEBHOOK or DIAGNOSE_NOTICE_COMMAND

examples:
  diagnose watch kubernetes --namespace ml
  kubectl proxy & diagnose watch kubernetes --server http://127.0.0.1:8001 --no-write-back"""


def add_watch_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the verb."""
    parser = verbs.add_parser(
        "watch",
        help="watch a scheduler, and diagnose jobs that fail",
        description="Watch pods of Job, JobSet, PyTorchJob, TrainJob and RayJob; diagnose those that fail.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("scheduler", choices=("kubernetes",))
    parser.add_argument("--namespace", action="append", default=[], metavar="NAME", help="watch these only; repeatable")
    parser.add_argument("--selector", default="", help="watch pods with these labels only, such as team=ml")
    parser.add_argument("--cluster", default="", help="the cluster's name in reports")
    parser.add_argument("--project", default="", help="what the jobs belong to")
    parser.add_argument("--server", metavar="URL", help="the API server (default: that of the cluster around)")
    parser.add_argument("--token-file", metavar="FILE", help="the token for it, read anew for each request")
    parser.add_argument("--ca-file", metavar="FILE", help="the certificate authority it is known by")
    parser.add_argument(
        "--settle", type=float, default=10.0, metavar="SECONDS", help="wait for other pods (default 10)"
    )
    parser.add_argument(
        "--since", type=float, default=3600.0, metavar="SECONDS", help="leave alone what failed longer ago (3600)"
    )
    parser.add_argument("--no-write-back", action="store_true", help="write no annotations and no Events")
    parser.add_argument("--rules", action="append", default=[], metavar="DIR", help="as for diagnose")
    parser.add_argument("--record", action="store_true", help="remember runs, as for diagnose")
    parser.add_argument("--seconds", type=float, default=300.0, help="for one diagnosis at most (default 300)")


def run_watch(options: argparse.Namespace) -> int:
    """Watches until a signal says that it is enough."""
    from diagnose.cli.slurm import notices_of
    from diagnose.integrations.client import client_of
    from diagnose.integrations.kubernetes.api import Api, Place, in_cluster
    from diagnose.integrations.kubernetes.gather import named
    from diagnose.integrations.kubernetes.verdicts import Asking, ask, reference
    from diagnose.integrations.kubernetes.watcher import Job, Watcher, Watching
    from diagnose.integrations.summary import Summary

    if not 0 <= options.settle <= 600 or not 1 <= options.seconds <= 86400 or not options.since >= 0:
        raise UsageError("--settle must be from 0 to 600 seconds, --seconds from 1 to 86400, --since 0 or more")
    for name in options.namespace:
        if not named(name):
            raise UsageError(f"{name!r} is no namespace")
    place = in_cluster(os.environ) if options.server is None else Place(options.server)
    place = Place(place.server, options.token_file or place.token_file, options.ca_file or place.ca_file)
    notices = notices_of(os.environ)
    client_of(os.environ)  # what is wrong with the settings is told now, not with the first job
    asking = Asking(
        cluster=options.cluster,
        project=options.project,
        rules=options.rules,
        records=options.record,
        seconds=options.seconds,
        client=lambda: client_of(os.environ, patience=options.seconds),
    )

    def told(job: Job, summary: Summary) -> None:
        tell(f"{job.workload.key}: {summary.line()}")
        if notices is not None:
            notices.tell(reference(job, options.cluster), summary)
            for problem in notices.deliver():
                tell(f"a notice was not delivered: {problem}")

    how = Watching(
        namespaces=tuple(options.namespace),
        selector=options.selector,
        settle=options.settle,
        since=options.since,
        quiet=min(5.0, options.settle),
        most=max(40.0, options.settle),
        write_back=not options.no_write_back,
    )
    with Api(place) as api:
        watcher = Watcher(api, how, lambda job: ask(job, asking, tell), tell=tell, told=told)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: watcher.stop())
        watcher.run()
    return 0
