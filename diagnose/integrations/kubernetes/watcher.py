"""Watches pods of training jobs, has those that fail diagnosed, and writes the verdict back.

In: the API, namespaces, and who diagnoses. Out: an annotation on the failed pods, an Event on the workload, notices.
All pods of a workload that fail together are one diagnosis: the first failure is read at once, the others are waited
for. What was diagnosed is known by its annotation, so that a watcher that is started again begins nothing anew.
"""

from __future__ import annotations

import contextlib
import os
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final

from diagnose.dataclass import dataclass, field
from diagnose.errors import DiagnoseError
from diagnose.integrations.kubernetes.api import Api, ApiError, Gone
from diagnose.integrations.kubernetes.gather import Gathering, named
from diagnose.integrations.kubernetes.workloads import (
    VERDICT,
    Failure,
    Workload,
    attempt_of,
    failures_of,
    gpus_of,
    workload_of,
)
from diagnose.integrations.summary import Summary, cut

Json = Mapping[str, Any]
Tell = Callable[[str], None]

_FIRST_WAIT, _LONGEST_WAIT = 1.0, 60.0
_MOST_MESSAGE: Final = 1000  # an Event's message may have 1024
_MOST_REMEMBERED: Final = 100_000
_WORKERS: Final = 2
_READERS: Final = 4
_TICK: Final = 0.5


@dataclass(frozen=True, slots=True)
class Job:
    """A workload that failed, as far as it was gathered: where its inputs lie, and who it is."""

    workload: Workload
    attempt: int
    folder: str
    logs: Sequence[str]
    records: Sequence[str]
    pods: Sequence[Json]
    nodes: tuple[str, ...]
    gpus: int
    image: str
    failures: Sequence[Failure]


Diagnose = Callable[[Job], Summary | None]
Told = Callable[[Job, Summary], None]


@dataclass(frozen=True, slots=True)
class Watching:
    """What is watched: `namespaces` (none: all), `selector` of pods.

    `settle` seconds are waited for other failures, until `quiet` seconds brought none, `most` at most. What had failed
    more than `since` seconds before it was first seen is history, and nobody is told of it.
    """

    namespaces: tuple[str, ...] = ()
    selector: str = ""
    settle: float = 10.0
    quiet: float = 5.0
    most: float = 40.0
    since: float = 3600.0
    log_bytes: int = 256 * 1024 * 1024
    write_back: bool = True


@dataclass(slots=True)
class _Pending:
    """A workload whose failures are being gathered."""

    gathering: Gathering
    since: float
    last: float
    failures: list[Failure] = field(default_factory=list)


class Watcher:
    """Watches until it is stopped."""

    def __init__(
        self,
        api: Api,
        how: Watching,
        diagnose: Diagnose,
        *,
        tell: Tell,
        told: Told = lambda _job, _summary: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._how = how
        self._diagnose = diagnose
        self._tell = tell
        self._told = told
        self._clock = clock
        self._changes: queue.Queue[Json] = queue.Queue(10_000)
        self._pending: dict[str, _Pending] = {}
        self._pods: dict[str, dict[str, Json]] = {}  # by workload, then by pod: those that live
        self._seen: dict[tuple[str, str, int], None] = {}
        self._attempts: dict[str, int] = {}
        self._stop = threading.Event()
        self._ready: set[str] = set()
        self._folder = tempfile.TemporaryDirectory(prefix="diagnose-kubernetes-", ignore_cleanup_errors=True)
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="diagnose")
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="read")
        self._working: list[Future[None]] = []
        self._number = 0

    def stop(self) -> None:
        """Ends `run`: what is being diagnosed is finished first."""
        self._stop.set()

    @property
    def listening(self) -> bool:
        """Whether every list was read once, so that nothing new is missed."""
        return len(self._ready) == len(self._paths())

    def run(self) -> None:
        """Watches until `stop`."""
        threads = [
            threading.Thread(target=self._follow, args=(path,), name=f"watch {path}", daemon=True)
            for path in self._paths()
        ]
        for thread in threads:
            thread.start()
        try:
            while not self._stop.is_set():
                with contextlib.suppress(queue.Empty):
                    self._taken(self._changes.get(timeout=_TICK))
                self._due()
        finally:
            self._stop.set()
            self._readers.shutdown(wait=True, cancel_futures=True)
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._folder.cleanup()

    def _paths(self) -> list[str]:
        if not self._how.namespaces:
            return ["/api/v1/pods"]
        return [f"/api/v1/namespaces/{name}/pods" for name in self._how.namespaces]

    def _follow(self, path: str) -> None:
        """Lists and watches, again and again; whatever goes wrong is told and tried again."""
        params = {"labelSelector": self._how.selector} if self._how.selector else {}
        version, wait = "", _FIRST_WAIT
        while not self._stop.is_set():
            began, problem = time.monotonic(), ""
            try:
                if not version:
                    pods, version = self._api.items(path, params)
                    for pod in pods:
                        self._changes.put({"type": "LISTED", "object": pod})
                    self._changes.put({"type": "WHOLE", "path": path, "object": {}, "uids": _uids(pods)})
                    self._ready.add(path)
                for change in self._api.watch(path, version, params):
                    version = change.version or version
                    if change.type != "BOOKMARK":
                        self._changes.put({"type": change.type, "object": change.object})
                    wait = _FIRST_WAIT
                    if self._stop.is_set():
                        return
            except Gone:
                version = ""  # too much has changed meanwhile; what is there is looked at again
            except ApiError as error:
                problem = str(error)
                if error.status in (400, 404, 410):
                    version = ""
            except Exception as error:  # noqa: BLE001 - a watch that has ended unseen hears of nothing any more
                problem, version = f"{path}: {type(error).__name__}: {cut(str(error), 200)}", ""
            if not problem and time.monotonic() - began >= _FIRST_WAIT:
                wait = _FIRST_WAIT
                continue
            if problem or wait > 2 * _FIRST_WAIT:  # that a watch ends early now and then is nothing to speak of
                self._tell(f"{problem or f'{path}: the watch ends at once'}; tried again in {wait:.0f} s")
            self._stop.wait(wait)
            wait = min(2 * wait, _LONGEST_WAIT)

    def _taken(self, change: Json) -> None:
        try:
            self._take(change)
        except Exception as error:  # noqa: BLE001 - one strange pod is not the end of the watch
            self._tell(f"a pod was passed over: {type(error).__name__}: {cut(str(error), 200)}")

    def _take(self, change: Json) -> None:
        """Looks at a pod that has changed; reads it at once where it has failed."""
        if change["type"] == "WHOLE":
            self._forget_absent(change["path"], change["uids"])
            return
        pod = change["object"]
        meta = pod.get("metadata") or {}
        namespace, name, uid = named(meta.get("namespace")), named(meta.get("name")), str(meta.get("uid") or "")
        workload = workload_of(pod)
        if workload is None or not (namespace and name and named(workload.name)):
            return
        pods = self._pods.setdefault(workload.key, {})
        if change["type"] == "DELETED":
            pods.pop(uid, None)
            if not pods:
                self._pods.pop(workload.key, None)
        else:
            pods[uid] = pod
        if change["type"] == "LISTED":
            known = bool((meta.get("annotations") or {}).get(VERDICT))
            self._remember([one for one in failures_of(pod) if known or self._is_history(one)])
        fresh = [one for one in failures_of(pod) if (one.pod_uid, one.container, one.restarts) not in self._seen]
        if not fresh:
            if workload.key in self._pending:
                self._pending[workload.key].gathering.see(pod)
            return
        if change["type"] == "DELETED" and not any(one.code for one in fresh):
            return
        self._remember(fresh)
        pending = self._pending.get(workload.key)
        now = self._clock()
        if pending is None:
            self._number += 1
            folder = os.path.join(self._folder.name, str(self._number))
            gathering = Gathering(self._api, workload, folder, log_bytes=self._how.log_bytes, tell=self._tell)
            pending = self._pending[workload.key] = _Pending(gathering, now, now)
        pending.last = now
        pending.failures.extend(fresh)
        pending.gathering.see(pod)
        self._readers.submit(self._read, pending.gathering, pod)

    def _forget_absent(self, path: str, uids: frozenset[str]) -> None:
        """Of pods that were deleted while nobody watched, a list says no more than that they are not in it."""
        for key, pods in list(self._pods.items()):
            for uid, pod in list(pods.items()):
                namespace = (pod.get("metadata") or {}).get("namespace")
                if uid not in uids and path in ("/api/v1/pods", f"/api/v1/namespaces/{namespace}/pods"):
                    del pods[uid]
            if not pods:
                del self._pods[key]

    def _read(self, gathering: Gathering, pod: Json) -> None:
        try:
            gathering.read_pod(pod)
        except Exception as error:  # noqa: BLE001 - one log's trouble is not the others'
            self._tell(f"a log was not read: {type(error).__name__}: {error}")

    def _is_history(self, failure: Failure) -> bool:
        try:
            at = datetime.fromisoformat(failure.at).timestamp()
        except ValueError:
            return False
        return time.time() - at > self._how.since

    def _remember(self, failures: Sequence[Failure]) -> None:
        for one in failures:
            self._seen[one.pod_uid, one.container, one.restarts] = None
        while len(self._seen) > _MOST_REMEMBERED:
            self._seen.pop(next(iter(self._seen)))

    def _due(self) -> None:
        """Hands over what was waited for long enough."""
        now = self._clock()
        self._working = [one for one in self._working if not one.done()]
        for key, pending in list(self._pending.items()):
            waited = now - pending.since
            enough = waited >= self._how.settle and now - pending.last >= self._how.quiet
            if enough or waited >= self._how.most:
                del self._pending[key]
                pods = list(self._pods.get(key, {}).values())
                self._working.append(self._pool.submit(self._finish, key, pending, pods))

    def _finish(self, key: str, pending: _Pending, pods: Sequence[Json]) -> None:
        """Reads what is left, has it diagnosed, and writes back."""
        gathering = pending.gathering
        try:
            for pod in pods:
                gathering.read_pod(pod)
            job = self._job(key, pending)
            summary = self._diagnose(job)
            if summary is None:
                return
            if self._how.write_back:
                self._write_back(job, summary)
            self._told(job, summary)
        except DiagnoseError as error:
            self._tell(f"{key}: {error}")
        except Exception as error:  # noqa: BLE001 - one workload's trouble is not the others'
            self._tell(f"{key}: internal error ({type(error).__name__}: {error}); please report it")
        finally:
            gathering.discard()

    def _job(self, key: str, pending: _Pending) -> Job:
        gathering = pending.gathering
        workload = workload_of(gathering.pods[0]) if gathering.pods else None
        if workload is None:
            raise ApiError("none of its pods is known any more")
        told = max(attempt_of(gathering.pods), *(one.restarts for one in pending.failures), 0)
        attempt = max(told, self._attempts.get(key, -1) + 1)
        self._attempts[key] = attempt
        nodes = dict.fromkeys(named((pod.get("spec") or {}).get("nodeName")) for pod in gathering.pods)
        images = [one.get("image") for pod in gathering.pods for one in (pod.get("spec") or {}).get("containers") or ()]
        records = gathering.records()
        return Job(
            workload=workload,
            attempt=attempt,
            folder=os.path.join(self._folder.name, os.path.basename(gathering.folder)),
            logs=tuple(gathering.logs),
            records=tuple(records),
            pods=gathering.pods,
            nodes=tuple(filter(None, nodes)),
            gpus=gpus_of(gathering.pods),
            image=cut(str(images[0]), 500) if images and images[0] else "",
            failures=tuple(pending.failures),
        )

    def _write_back(self, job: Job, summary: Summary) -> None:
        """An annotation on each failed pod that is still there, and an Event on the workload."""
        line = summary.line(_MOST_MESSAGE)
        namespace = job.workload.namespace
        for name in dict.fromkeys(one.pod for one in job.failures):
            try:
                # By the status, which may be written without the right to change what a pod runs.
                self._api.patch(
                    f"/api/v1/namespaces/{namespace}/pods/{name}/status", {"metadata": {"annotations": {VERDICT: line}}}
                )
            except ApiError as error:
                if error.status != 404:
                    self._tell(f"{namespace}/{name} was not annotated: {error}")
        try:
            self._api.create(f"/api/v1/namespaces/{namespace}/events", event_of(job, line, summary))
        except ApiError as error:
            self._tell(f"no event was written for {job.workload.key}: {error}")


def _uids(pods: Sequence[Json]) -> frozenset[str]:
    return frozenset(str((pod.get("metadata") or {}).get("uid") or "") for pod in pods)


def event_of(job: Job, line: str, summary: Summary) -> dict[str, Any]:
    """The Event that tells a verdict on its workload, or on a failed pod where the workload's identity is not known."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    workload = job.workload
    about = {
        "apiVersion": workload.api_version,
        "kind": workload.kind,
        "name": workload.name,
        "namespace": workload.namespace,
        **({"uid": workload.uid} if workload.uid else {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "diagnose-", "namespace": workload.namespace},
        "involvedObject": about,
        "reason": cut(summary.error_type or summary.status, 100).replace(" ", ""),
        "message": line,
        "type": "Warning" if summary.failed else "Normal",
        "source": {"component": "diagnose"},
        "reportingComponent": "diagnose",
        "reportingInstance": os.environ.get("HOSTNAME", "diagnose")[:128],
        "action": "Diagnosed",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
