"""What a scheduler's hook does when a job has ended: gather, have it diagnosed, tell.

In: a `SlurmJob`. Out: its verdict, from a service or from this machine; who needs to know is told. Each step that fails
is told in a line and costs only itself.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from diagnose.dataclass import dataclass
from diagnose.errors import DiagnoseError
from diagnose.integrations.local import Diagnosing, Inputs
from diagnose.integrations.slurm import Opened, SlurmJob, lay_out, open_logs
from diagnose.integrations.summary import Summary, summary_of

if TYPE_CHECKING:
    from diagnose.integrations.client import Client

_NICE: Final = 10
_MEDIA: Final = {"text": "text/plain", "markdown": "text/markdown"}

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class How:
    """How a job is diagnosed: by `client`, if there is one; logs are uploaded unless the server reads them itself."""

    client: Client | None = None
    upload: bool = True
    patterns: Sequence[str] = ()
    kernel_logs: str | None = None
    rules: Sequence[str] = ()
    records: bool = False
    seconds: float = 300.0
    project: str = ""
    format: str = "json"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A report, and the text of it where it was asked for as text or Markdown."""

    report: Mapping[str, Any]
    text: str = ""

    @property
    def summary(self) -> Summary:
        """The verdict in short."""
        return summary_of(self.report)


def verdict_of(job: SlurmJob, how: How, tell: Tell) -> Verdict | None:
    """The verdict on a job; None where there is none, and why is told."""
    with open_logs(job, patterns=how.patterns, kernel_logs=how.kernel_logs, tell=tell) as (logs, kernels):
        if how.client is not None:
            try:
                return _served(job, logs, kernels, how, how.client)
            except (DiagnoseError, OSError) as error:
                tell(f"{error}; diagnosed here instead")
        return _local(job, logs, kernels, how, tell)


def _local(job: SlurmJob, logs: Sequence[Opened], kernels: Sequence[Opened], how: How, tell: Tell) -> Verdict | None:
    with tempfile.TemporaryDirectory(prefix="diagnose-slurm-", ignore_cleanup_errors=True) as folder:
        records = []
        for name, text in job.records:
            with open(os.path.join(folder, name), "w", encoding="utf-8", errors="replace") as file:
                file.write(text)
            records.append(name)
        inputs = Inputs(
            logs=lay_out(folder, "logs", logs),
            kernel_logs=lay_out(folder, "kernel", kernels),
            scheduler_records=records,
            rules=how.rules,
            identity=_identity(job, how),
            records=how.records,
            format=how.format,
        )
        answer = Diagnosing(inputs, seconds=how.seconds, directory=folder, nice=_NICE).wait()
    if isinstance(answer, str):
        tell(f"job {job.id} was not diagnosed: {answer}")
        return None
    for line in answer.told:
        tell(line)
    return Verdict(answer.report, answer.rendered if how.format in _MEDIA else "")


def _served(job: SlurmJob, logs: Sequence[Opened], kernels: Sequence[Opened], how: How, client: Client) -> Verdict:
    submission: dict[str, Any] = {
        "scheduler": "slurm",
        "cluster": job.cluster,
        "job_id": job.id,
        "attempt": job.attempt,
        "name": job.name,
        "user": job.user,
        "nodes": list(job.nodes),
        "exit": {"code": job.exit_code, "signal": job.signal, "state": job.state or None},
        "logs": [_log(one, how, client) for one in logs],
        "kernel_logs": [{**_log(one, how, client), "host": one.name.removesuffix(".dmesg")} for one in kernels],
        "scheduler_records": [],
    }
    if job.gpus is not None:
        submission["gpus"] = job.gpus
    if how.project:
        submission["project"] = how.project
    if job.started:
        submission["started_at"] = job.started
    if job.ended and (not job.started or job.ended >= job.started):
        submission["ended_at"] = job.ended
    with contextlib.ExitStack() as stack:
        for name, text in job.records:
            file = stack.enter_context(tempfile.TemporaryFile())
            file.write(text.encode("utf-8", "replace"))
            submission["scheduler_records"].append(
                {"upload": client.upload(name, file, project=how.project), "source": name}
            )
        served = client.submit(submission)
    served = client.report(served.id)
    if served.report is None:
        raise DiagnoseError(served.error)
    text = ""
    if how.format in _MEDIA:
        with contextlib.suppress(DiagnoseError):  # the verdict is there, and is told as JSON
            text = client.shown(served.id, _MEDIA[how.format])
    return Verdict(served.report, text)


def _log(one: Opened, how: How, client: Client) -> dict[str, Any]:
    if how.upload:
        return {"upload": client.upload(one.name, one.file, project=how.project), "source": one.name}
    return {"path": os.path.realpath(one.path), "source": one.name}


def _identity(job: SlurmJob, how: How) -> dict[str, str]:
    return {"id": job.id, "name": job.name, "user": job.user, "cluster": job.cluster, "project": how.project}
