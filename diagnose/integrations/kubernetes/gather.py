"""What there is to read of a failed workload: logs at once, then the rest, all in one directory.

In: the API and the pods of a workload. Out: files, as `diagnose` takes them. A pod may be gone a second after it has
failed, so its log is read when the failure is seen, and kept until the diagnosis. Names are checked before they become
names of files; logs keep their beginning and end; what secrets a pod's environment holds is never written.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from diagnose.integrations.kubernetes.api import Api, ApiError
from diagnose.integrations.kubernetes.workloads import Workload, containers_of, pruned
from diagnose.integrations.teelog import TeeLog

Json = Mapping[str, Any]
Tell = Callable[[str], None]

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z")
_MOST_PODS: Final = 2000
_MOST_EVENTS_OF: Final = 32  # pods
_MOST_NODES: Final = 64


def named(text: object) -> str:
    """A name as Kubernetes allows it; empty where it is none, so that nothing else becomes part of a path."""
    return text if isinstance(text, str) and _NAME.match(text) else ""


class Gathering:
    """The directory of one workload's inputs."""

    def __init__(self, api: Api, workload: Workload, folder: str, *, log_bytes: int, tell: Tell) -> None:
        self._api = api
        self._workload = workload
        self.folder = folder
        self._log_bytes = log_bytes
        self._tell = tell
        self._pods: dict[str, Json] = {}
        self._read: set[tuple[str, str, bool, int]] = set()
        self._lock = threading.Lock()  # several pods of a workload may fail at once, each read by another thread
        self._closed = False
        self.logs: list[str] = []
        os.makedirs(folder, mode=0o700, exist_ok=True)

    @property
    def pods(self) -> list[Json]:
        """The pods that were seen, each as it was last."""
        return list(self._pods.values())

    def see(self, pod: Json) -> None:
        """Notes a pod as it is now."""
        uid = str((pod.get("metadata") or {}).get("uid") or "")
        if uid in self._pods or len(self._pods) < _MOST_PODS:
            self._pods[uid] = pod

    def read_pod(self, pod: Json) -> None:
        """Reads the logs of all containers of a pod that have run, the previous ones as well."""
        with self._lock:
            if not self._closed:
                self._read_pod(pod)

    def _read_pod(self, pod: Json) -> None:
        self.see(pod)
        name = named((pod.get("metadata") or {}).get("name"))
        if not name:
            return
        restarts = {
            str(one.get("name")): one.get("restartCount") or 0
            for one in (pod.get("status") or {}).get("containerStatuses") or ()
            if isinstance(one, dict)
        }
        for container, before in containers_of(pod):
            if not named(container):
                continue
            for previous in (True, False) if before else (False,):
                key = (name, container, previous, int(restarts.get(container, 0)))
                if key not in self._read and self._read_log(name, container, previous=previous, number=key[3]):
                    self._read.add(key)

    def _read_log(self, pod: str, container: str, *, previous: bool, number: int) -> bool:
        folder = os.path.join(self.folder, "pods", pod)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        attempt = number - 1 if previous else number
        path = os.path.join(folder, f"{container}.log" if not attempt else f"{container}.{attempt}.log")
        log = TeeLog(path, self._log_bytes)
        try:
            for block in self._api.log(self._workload.namespace, pod, container, previous=previous):
                log.add(block)
        except ApiError as error:
            if not log.written:
                log.discard()
                self._tell(f"no log of {pod}/{container}: {error}")
                return False
            self._tell(f"only part of the log of {pod}/{container}: {error}")
        log.close()
        if log.problem:
            self._tell(log.problem)
        name = os.path.relpath(path, self.folder)
        if name not in self.logs:
            self.logs.append(name)
        return True

    def records(self) -> list[str]:
        """Writes what the API server knows beside the logs: pods, their events, their nodes, the workload itself."""
        written = [self._write("pods.json", [pruned(pod) for pod in self.pods])]
        if events := self._events():
            written.append(self._write("events.json", events))
        if nodes := self._nodes():
            written.append(self._write("nodes.json", nodes))
        return written

    def _events(self) -> list[Json]:
        namespace = self._workload.namespace
        path = f"/api/v1/namespaces/{namespace}/events"
        names = [named((pod.get("metadata") or {}).get("name")) for pod in self._failed_first()[:_MOST_EVENTS_OF]]
        found: dict[str, Json] = {}
        for name in filter(None, (named(self._workload.name), *names)):
            try:
                events, _ = self._api.items(path, {"fieldSelector": f"involvedObject.name={name}"})
            except ApiError as error:
                self._tell(f"no events of {name}: {error}")
                if error.status in (401, 403):
                    break
                continue
            for event in events:
                if (event.get("source") or {}).get("component") != "diagnose":  # our own words are no evidence
                    found[str((event.get("metadata") or {}).get("uid"))] = {
                        "apiVersion": "v1",
                        "kind": "Event",
                        **event,
                    }
        return list(found.values())

    def _failed_first(self) -> list[Json]:
        return sorted(self.pods, key=lambda pod: (pod.get("status") or {}).get("phase") != "Failed")

    def _nodes(self) -> list[Json]:
        hosts = dict.fromkeys(named((pod.get("spec") or {}).get("nodeName")) for pod in self._failed_first())
        found: list[Json] = []
        for name in list(filter(None, hosts))[:_MOST_NODES]:
            try:
                node = self._api.get(f"/api/v1/nodes/{name}")
            except ApiError as error:
                self._tell(f"no conditions of node {name}: {error}")
                if error.status in (401, 403):
                    break
                continue
            status = node.get("status") or {}
            kept = {key: status[key] for key in ("conditions", "nodeInfo") if key in status}
            found.append({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": kept})
        return found

    def _write(self, name: str, items: Sequence[Json]) -> str:
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            json.dump({"apiVersion": "v1", "kind": "List", "items": items}, file)
        return name

    def discard(self) -> None:
        """Removes everything."""
        import shutil

        with self._lock, contextlib.suppress(OSError):
            self._closed = True
            shutil.rmtree(self.folder)
