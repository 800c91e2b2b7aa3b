"""What a pod belongs to, and whether it has failed.

In: pods as the API server gives them. Out: a `Workload` (the training job behind the pod, whatever controller made it)
and `Failure`s of its containers. Labels say what owners do not: a JobSet's pods are owned by Jobs, a RayJob's by a
cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from diagnose.dataclass import dataclass

Json = Mapping[str, Any]

RESTARTED: Final = "jobset.sigs.k8s.io/restart-attempt"
VERDICT: Final = "diagnose.dev/verdict"
_JOBSET: Final = "jobset.sigs.k8s.io/jobset-name"
_JOBSET_UID: Final = "jobset.sigs.k8s.io/jobset-uid"
_TRAINER: Final = "trainer.kubeflow.org/"  # a TrainJob's pods are those of a JobSet of its name
_KUBEFLOW: Final = "training.kubeflow.org/job-name"
_RAY_KIND, _RAY_NAME = "ray.io/originated-from-crd", "ray.io/originated-from-cr-name"
_RAY_CLUSTER: Final = "ray.io/cluster"
_OWNERS: Final = {
    "Job": "batch/v1",
    "PyTorchJob": "kubeflow.org/v1",
    "MPIJob": "kubeflow.org/v1",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "RayJob": "ray.io/v1",
    "RayCluster": "ray.io/v1",
}


@dataclass(frozen=True, slots=True)
class Workload:
    """A training job. `uid` is empty where only its name is known; `key` is the same for all its pods."""

    kind: str
    api_version: str
    namespace: str
    name: str
    uid: str = ""

    @property
    def key(self) -> str:
        """What tells it from all others."""
        return f"{self.namespace}/{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class Failure:
    """A container that failed. `previous`: it has been started again since, so its log is the previous one's."""

    pod: str
    pod_uid: str
    container: str
    code: int | None
    reason: str
    restarts: int
    previous: bool
    at: str

    @property
    def key(self) -> tuple[str, str, int, bool]:
        """What tells it from other failures."""
        return self.pod_uid, self.container, self.restarts, self.previous


def workload_of(pod: Json) -> Workload | None:
    """The training job behind a pod; None where there is none."""
    meta = _mapping(pod.get("metadata"))
    labels, namespace = _mapping(meta.get("labels")), str(meta.get("namespace") or "default")
    owner = next((one for one in _list(meta.get("ownerReferences")) if one.get("controller")), {})
    kind, name, uid = str(owner.get("kind") or ""), str(owner.get("name") or ""), str(owner.get("uid") or "")

    def made(of: str, named: str, by: str = "") -> Workload:
        version = str(owner.get("apiVersion")) if of == kind and owner.get("apiVersion") else _OWNERS[of]
        return Workload(of, version, namespace, named, by or (uid if of == kind else ""))

    if labels.get(_RAY_KIND) == "RayJob" and labels.get(_RAY_NAME):
        return made("RayJob", str(labels[_RAY_NAME]))
    if labels.get(_JOBSET):
        of = "TrainJob" if any(str(label).startswith(_TRAINER) for label in labels) else "JobSet"
        return made(of, str(labels[_JOBSET]), str(labels.get(_JOBSET_UID) or "") if of == "JobSet" else "")
    if kind in ("PyTorchJob", "MPIJob", "TrainJob", "RayJob", "RayCluster", "JobSet"):
        return made(kind, name)
    if labels.get(_KUBEFLOW):
        return made("PyTorchJob", str(labels[_KUBEFLOW]))
    if labels.get(_RAY_CLUSTER):
        return made("RayCluster", str(labels[_RAY_CLUSTER]))
    return made("Job", name) if kind == "Job" else None


def attempt_of(pods: Sequence[Json]) -> int:
    """How often the workload was started again before, as far as its pods say."""
    counts = [0]
    for pod in pods:
        meta = _mapping(pod.get("metadata"))
        told = str(
            _mapping(meta.get("labels")).get(RESTARTED) or _mapping(meta.get("annotations")).get(RESTARTED) or ""
        )
        if told.isascii() and told.isdigit() and len(told) < 6:
            counts.append(int(told))
    return max(counts)


def failures_of(pod: Json) -> list[Failure]:
    """The containers of a pod that have failed, the one before a restart too."""
    meta, status = _mapping(pod.get("metadata")), _mapping(pod.get("status"))
    name, uid = str(meta.get("name") or ""), str(meta.get("uid") or "")
    found = []
    for one in (*_list(status.get("initContainerStatuses")), *_list(status.get("containerStatuses"))):
        restarts = one.get("restartCount")
        restarts = restarts if isinstance(restarts, int) else 0
        for key, previous in (("state", False), ("lastState", True)):
            ended = _mapping(_mapping(one.get(key)).get("terminated"))
            if not ended or ended.get("exitCode") in (0, None):
                continue
            if previous and _mapping(_mapping(one.get("state")).get("terminated")).get("exitCode"):
                continue  # the last one has failed as well, and that is told already
            found.append(
                Failure(
                    pod=name,
                    pod_uid=uid,
                    container=str(one.get("name") or ""),
                    code=ended["exitCode"] if isinstance(ended["exitCode"], int) else None,
                    reason=str(ended.get("reason") or ""),
                    # a container that failed and was started again is the same failure, seen later
                    restarts=restarts - 1 if previous else restarts,
                    previous=previous,
                    at=str(ended.get("finishedAt") or ""),
                )
            )
    if not found and status.get("phase") == "Failed":  # evicted, preempted, or its node is gone
        reason = str(status.get("reason") or "")
        found.append(
            Failure(name, uid, "", None, reason, 0, previous=False, at=str(meta.get("creationTimestamp") or ""))
        )
    return found


def containers_of(pod: Json) -> list[tuple[str, bool]]:
    """The containers of a pod that have run, and whether there was one before."""
    status = _mapping(pod.get("status"))
    told = []
    for one in (*_list(status.get("initContainerStatuses")), *_list(status.get("containerStatuses"))):
        state = _mapping(one.get("state"))
        ran = bool(state.get("terminated") or state.get("running"))
        before = bool(_mapping(one.get("lastState")).get("terminated"))
        if ran or before:
            told.append((str(one.get("name") or ""), before))
    return told


def pruned(pod: Json) -> dict[str, Any]:
    """A pod without what may hold secrets: of its spec only what a diagnosis asks for."""
    meta, spec = _mapping(pod.get("metadata")), _mapping(pod.get("spec"))
    kept = ("name", "namespace", "uid", "labels", "creationTimestamp", "deletionTimestamp", "ownerReferences")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {key: meta[key] for key in kept if key in meta},
        "spec": {
            "nodeName": spec.get("nodeName"),
            "restartPolicy": spec.get("restartPolicy"),
            "containers": [
                {key: one[key] for key in ("name", "image", "resources") if key in one}
                for one in _list(spec.get("containers"))
            ],
        },
        "status": dict(_mapping(pod.get("status"))),
    }


def gpus_of(pods: Sequence[Json]) -> int:
    """How many GPUs the pods ask for."""
    total = 0
    for pod in pods:
        for one in _list(_mapping(pod.get("spec")).get("containers")):
            asked = str(_mapping(_mapping(one.get("resources")).get("limits")).get("nvidia.com/gpu"))
            total += int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 6 else 0
    return total


def _mapping(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Json]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
