"""The verdict on a workload whose inputs lie in a directory: from a service, or from this machine.

In: a gathered `Job`. Out: its `Summary`; None where there is none, which is told.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from diagnose.dataclass import dataclass
from diagnose.errors import DiagnoseError
from diagnose.integrations.kubernetes.watcher import Job
from diagnose.integrations.local import Diagnosing, Inputs
from diagnose.integrations.notices import JobRef
from diagnose.integrations.summary import Summary, summary_of

if TYPE_CHECKING:
    from diagnose.integrations.client import Client

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Asking:
    """Who is asked, and what of. `client` makes a connection to a service for one job."""

    cluster: str = ""
    project: str = ""
    rules: Sequence[str] = ()
    records: bool = False
    seconds: float = 300.0
    client: Callable[[], Client | None] = lambda: None


def ask(job: Job, asking: Asking, tell: Tell) -> Summary | None:
    """The verdict on a job. Where a service is away, the job is diagnosed here."""
    try:
        client = asking.client()
        if client is not None:
            with client:
                return summary_of(_served(job, asking, client))
    except (DiagnoseError, OSError) as error:
        tell(f"{error}; {job.workload.key} is diagnosed here instead")
    inputs = Inputs(
        logs=job.logs,
        scheduler_records=job.records,
        rules=asking.rules,
        identity=_identity(job, asking),
        records=asking.records,
    )
    answer = Diagnosing(inputs, seconds=asking.seconds, directory=job.folder).wait()
    if isinstance(answer, str):
        tell(f"{job.workload.key} was not diagnosed: {answer}")
        return None
    for line in answer.told:
        tell(line)
    return answer.summary


def reference(job: Job, cluster: str) -> JobRef:
    """Which attempt of which job this is. A workload that is made again under its old name is another."""
    user = next((owner for pod in job.pods if (owner := _owner(pod))), "")
    number = job.workload.uid or job.workload.key
    return JobRef(cluster, number, job.attempt, f"{job.workload.namespace}/{job.workload.name}", user)


def _owner(pod: Any) -> str:
    labels = (pod.get("metadata") or {}).get("labels") or {}
    for label in ("diagnose.dev/owner", "app.kubernetes.io/managed-by-user", "user", "owner"):
        if isinstance(labels.get(label), str):
            return str(labels[label])
    return ""


def _identity(job: Job, asking: Asking) -> dict[str, str]:
    who = reference(job, asking.cluster)
    return {
        "id": who.job_id, "name": who.name, "user": who.user, "image": job.image, "cluster": asking.cluster,
        "project": asking.project,
    }  # fmt: skip


def _served(job: Job, asking: Asking, client: Client) -> Any:
    who = reference(job, asking.cluster)

    def upload(name: str) -> dict[str, str]:
        with open(os.path.join(job.folder, name), "rb") as file:
            return {"upload": client.upload(name, file, project=asking.project), "source": name}

    codes = [one.code for one in job.failures if one.code is not None]
    submission: dict[str, Any] = {
        "scheduler": "kubernetes",
        "cluster": asking.cluster,
        "job_id": who.job_id,
        "attempt": job.attempt,
        "name": who.name,
        "user": who.user,
        "image": job.image,
        "nodes": list(job.nodes),
        "gpus": job.gpus,
        "exit": {"code": codes[0] if codes else None, "state": job.failures[0].reason[:200] if job.failures else None},
        "logs": [upload(name) for name in job.logs],
        "scheduler_records": [upload(name) for name in job.records],
        **({"project": asking.project} if asking.project else {}),
    }
    served = client.report(client.submit(submission).id)
    if served.report is None:
        raise DiagnoseError(served.error)
    return served.report
