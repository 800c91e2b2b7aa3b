"""The watcher of Kubernetes against a server that speaks the true wire format: what is read, told, and survived."""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from diagnose.errors import UsageError
from diagnose.integrations.kubernetes.api import Api, ApiError, Gone, Place, in_cluster
from diagnose.integrations.kubernetes.gather import named
from diagnose.integrations.kubernetes.verdicts import Asking, ask, reference
from diagnose.integrations.kubernetes.watcher import Job, Watcher, Watching
from diagnose.integrations.kubernetes.workloads import VERDICT, failures_of, pruned, workload_of
from diagnose.integrations.summary import Summary
from tests.commandline import ROOT, start
from tests.kubeserver import ALLOWED, TOKEN, KubeServer, kube_server

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

KEY_ERROR = (
    b'step 1 loss 2.5\nTraceback (most recent call last):\n  File "/job/train.py", line 3, in <module>\n    f()\n'
    b"KeyError: 'role'\n"
)
_PATIENCE = 60.0
BUG = Summary("failed", "KeyError", "user", "likely", "KeyError: 'role'", job="fix_and_resubmit")


def pod(name: str, owner: tuple[str, str] | None = ("Job", "train"), **more: Any) -> dict[str, Any]:
    """A pod that runs."""
    meta: dict[str, Any] = {
        "name": name, "namespace": more.pop("namespace", "ml"), "uid": more.pop("uid", f"uid-{name}"),
        "creationTimestamp": "2026-11-30T10:00:00Z", "labels": more.pop("labels", {}),
    }  # fmt: skip
    if owner is not None:
        meta["ownerReferences"] = [
            {"apiVersion": "batch/v1", "kind": owner[0], "name": owner[1], "uid": f"uid-{owner[1]}", "controller": True}
        ]
    running = {"running": {"startedAt": "2026-11-30T10:00:05Z"}}
    return {
        "metadata": meta,
        "spec": {
            "nodeName": "k8-gpu-14",
            "containers": [
                {
                    "name": "main", "image": "registry/train:7", "env": [{"name": "TOKEN", "value": "hush-hush"}],
                    "resources": {"limits": {"nvidia.com/gpu": "8"}},
                }
            ],
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "main", "restartCount": 0, "state": running, "lastState": {}, **more}],
        },
    }  # fmt: skip


def ended(code: int, reason: str = "Error") -> dict[str, Any]:
    return {
        "terminated": {
            "exitCode": code, "reason": reason, "startedAt": "2026-11-30T10:00:05Z", "finishedAt": "2026-11-30T10:20:00Z",
        }
    }  # fmt: skip


def failed(name: str, code: int = 1, reason: str = "Error", **more: Any) -> dict[str, Any]:
    """The same pod after its container has failed."""
    made = pod(name, state=ended(code, reason), **more)
    made["status"]["phase"] = "Failed"
    return made


@pytest.fixture
def cluster() -> Iterator[KubeServer]:
    with kube_server() as server:
        yield server


@pytest.fixture
def place(cluster: KubeServer, tmp_path: Path) -> Place:
    (tmp_path / "token").write_text(TOKEN + "\n")
    return Place(cluster.address, str(tmp_path / "token"))


class Lab:
    """A watcher in a thread, and what it has told."""

    def __init__(self, api: Api, how: Watching, diagnose: Callable[[Job], Summary | None]) -> None:
        self.said: list[str] = []
        self.jobs: list[Job] = []
        self.told: list[tuple[Job, Summary]] = []
        self.files: list[dict[str, str]] = []

        def asked(job: Job) -> Summary | None:
            self.files.append(
                {
                    str(path.relative_to(job.folder)): path.read_text()
                    for path in Path(job.folder).rglob("*")
                    if path.is_file()
                }
            )
            self.jobs.append(job)
            return diagnose(job)

        self.watcher = Watcher(
            api, how, asked, tell=self.said.append, told=lambda job, summary: self.told.append((job, summary))
        )
        self.thread = threading.Thread(target=self.watcher.run)

    def until(self, question: Callable[[], object], what: str) -> None:
        end = time.monotonic() + _PATIENCE
        while not question():
            if time.monotonic() > end:
                raise AssertionError(f"waited in vain for {what}: {self.said}")
            time.sleep(0.02)


@contextlib.contextmanager
def watching(place: Place, diagnose: Callable[[Job], Summary | None] = lambda _: BUG, **how: Any) -> Iterator[Lab]:
    with Api(place, sleep=lambda _: None) as api:
        lab = Lab(api, Watching(**{"settle": 0.0, "quiet": 0.0, "since": 1e12, **how}), diagnose)
        lab.thread.start()
        try:
            lab.until(lambda: lab.watcher.listening, "the first list")
            yield lab
        finally:
            lab.watcher.stop()
            lab.thread.join(_PATIENCE)
            assert not lab.thread.is_alive()


def test_a_pod_that_fails_is_read_diagnosed_and_told(cluster: KubeServer, place: Place) -> None:
    cluster.nodes["k8-gpu-14"] = {
        "metadata": {"name": "k8-gpu-14", "labels": {"secret": "x"}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "images": [{"names": ["big"]}]},
    }
    cluster.events.append(
        {
            "metadata": {"uid": "e1"}, "involvedObject": {"name": "train-0", "kind": "Pod", "namespace": "ml"},
            "reason": "BackOff", "message": "Back-off restarting failed container", "type": "Warning",
        }
    )  # fmt: skip
    cluster.put(pod("train-0"))
    asking = Asking(cluster="lab")
    with watching(place, lambda job: ask(job, asking, print)) as lab:
        cluster.put(failed("train-0"), log=KEY_ERROR)
        lab.until(lambda: lab.told, "a verdict")
    (job, summary), files = lab.told[0], lab.files[0]
    assert (summary.status, summary.error_type, summary.attribution) == ("failed", "KeyError", "user")
    assert files["pods/train-0/main.log"] == KEY_ERROR.decode()
    assert "Back-off restarting" in files["events.json"]
    assert json.loads(files["nodes.json"])["items"][0]["status"] == {
        "conditions": [{"type": "Ready", "status": "True"}]
    }
    assert "hush-hush" not in "".join(files.values())
    assert (job.workload.kind, job.workload.uid, job.gpus, job.image) == ("Job", "uid-train", 8, "registry/train:7")
    annotation = cluster.pods["ml", "train-0"]["metadata"]["annotations"][VERDICT]
    assert annotation.startswith("FAILED your code KeyError")
    event = cluster.events[-1]
    assert (event["reason"], event["type"], event["message"]) == ("KeyError", "Warning", annotation)
    assert event["involvedObject"]["kind"] == "Job"
    assert cluster.refused == []
    assert lab.said == []


def evicted(name: str) -> dict[str, Any]:
    made = pod(name)
    message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi."
    made["status"] = {"phase": "Failed", "reason": "Evicted", "message": message, "startTime": "2026-11-30T10:00:00Z"}
    return made


@pytest.mark.parametrize(
    "broken, log, expected",
    [
        (failed("train-0", 137, "OOMKilled"), b"step 1 loss 2.5\n", "HostOutOfMemory"),
        (evicted("train-0"), None, "PodEvicted"),
        (failed("train-0", 139), b"step 1 loss 2.5\nSegmentation fault (core dumped)\n", "SegmentationFault"),
    ],
)
def test_what_only_kubernetes_says_is_read(
    cluster: KubeServer, place: Place, broken: dict[str, Any], log: bytes | None, expected: str
) -> None:
    cluster.nodes["k8-gpu-14"] = {"metadata": {"name": "k8-gpu-14"}, "status": {"conditions": []}}
    cluster.put(pod("train-0"))
    with watching(place, lambda job: ask(job, Asking(), print)) as lab:
        cluster.put(broken, log=log)
        lab.until(lambda: lab.told, "a verdict")
    assert lab.told[0][1].error_type == expected


def test_pods_that_fail_together_are_one_diagnosis(cluster: KubeServer, place: Place) -> None:
    for number in range(7):  # more than a page
        cluster.put(pod(f"train-{number}"), log=b"waiting\n")
    with watching(place, settle=0.5, quiet=0.3) as lab:
        cluster.put(failed("train-3"), log=KEY_ERROR)
        cluster.put(failed("train-4", 143), log=b"terminated\n")
        lab.until(lambda: lab.told, "a verdict")
        assert len(lab.jobs) == 1
        assert set(lab.files[0]) == {f"pods/train-{number}/main.log" for number in range(7)} | {
            "pods.json",
            "events.json",
        } - {"events.json"}
        assert {failure.pod for failure in lab.jobs[0].failures} == {"train-3", "train-4"}
        annotated = [
            name for (_, name), one in cluster.pods.items() if VERDICT in one["metadata"].get("annotations", {})
        ]
        assert sorted(annotated) == ["train-3", "train-4"]


def test_logs_are_read_before_the_pod_is_gone(cluster: KubeServer, place: Place) -> None:
    cluster.put(pod("train-0"))
    with watching(place, settle=1.0, quiet=0.2) as lab:
        cluster.put(failed("train-0"), log=KEY_ERROR)
        lab.until(
            lambda: any(path.startswith("/api/v1/namespaces/ml/pods/train-0/log") for _, path in cluster.requests),
            "the log",
        )
        lab.until(lambda: list(Path(lab.watcher._folder.name).rglob("main.log")), "the file")
        time.sleep(0.1)
        cluster.delete("ml", "train-0")
        lab.until(lambda: lab.told, "a verdict")
    assert lab.files[0]["pods/train-0/main.log"] == KEY_ERROR.decode()
    assert [line for line in lab.said if "not annotated" in line] == []  # it is gone, which is no trouble


def test_a_container_that_was_started_again_is_read_from_before(cluster: KubeServer, place: Place) -> None:
    cluster.put(pod("train-0"))
    again = pod("train-0", lastState=ended(137, "OOMKilled"), restartCount=1)
    with watching(place) as lab:
        cluster.put(again, log=b"step 1\n", previous=b"step 7\nKilled\n")
        lab.until(lambda: lab.told, "a verdict")
        cluster.put(again)  # the same, seen again
        cluster.put(pod("train-0", lastState=ended(137, "OOMKilled"), restartCount=2), previous=b"step 8\nKilled\n")
        lab.until(lambda: len(lab.told) == 2, "the second verdict")
    assert lab.files[0]["pods/train-0/main.log"] == "step 7\nKilled\n"
    assert lab.files[0]["pods/train-0/main.1.log"] == "step 1\n"
    assert [job.attempt for job in lab.jobs] == [0, 1]
    assert [job.failures[0].reason for job in lab.jobs] == ["OOMKilled", "OOMKilled"]


def test_what_was_diagnosed_is_not_diagnosed_again(cluster: KubeServer, place: Place) -> None:
    cluster.put(failed("old"), log=KEY_ERROR)
    cluster.pods["ml", "old"]["metadata"]["annotations"] = {VERDICT: "FAILED"}
    cluster.put(failed("missed", owner=("Job", "other")), log=KEY_ERROR)  # while no watcher was there
    with watching(place) as lab:
        lab.until(lambda: lab.told, "a verdict")
        cluster.end_watches()
        cluster.put(pod("late"))
        time.sleep(0.3)
    assert [job.workload.name for job in lab.jobs] == ["other"]


def test_what_failed_long_ago_is_history(cluster: KubeServer, place: Place) -> None:
    cluster.put(failed("old"), log=KEY_ERROR)
    recent = failed("recent", owner=("Job", "other"))
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    recent["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = now
    cluster.put(recent, log=KEY_ERROR)
    with watching(place, since=600.0) as lab:
        lab.until(lambda: lab.told, "a verdict")
        time.sleep(0.3)
    assert [job.workload.name for job in lab.jobs] == ["other"]


def test_a_watch_goes_on_where_it_was(cluster: KubeServer, place: Place) -> None:
    cluster.put(pod("train-0"))
    with watching(place) as lab:
        lab.until(lambda: cluster.watchers, "the first watch")
        cluster.bookmark()
        cluster.end_watches()
        cluster.put(failed("train-0"), log=KEY_ERROR)  # between two watches
        lab.until(lambda: lab.told, "a verdict")
    assert cluster.lists == 1
    watches = [path for _, path in cluster.requests if "watch=1" in path]
    assert len(watches) >= 2
    assert all("allowWatchBookmarks=true" in path for path in watches)


@pytest.mark.parametrize("in_stream", [True, False])
def test_what_is_too_old_is_listed_again(cluster: KubeServer, place: Place, in_stream: bool) -> None:
    cluster.put(pod("train-0"))
    with watching(place) as lab:
        cluster.put(failed("train-0"), log=KEY_ERROR)
        lab.until(lambda: lab.told, "a verdict")
        with cluster.lock:
            cluster.compact(in_stream=in_stream)
            cluster.put(failed("b", owner=("Job", "second")), log=KEY_ERROR)
        lab.until(lambda: len(lab.told) == 2, "what came meanwhile")
    assert cluster.lists == 2
    assert [job.workload.name for job in lab.jobs] == ["train", "second"]


def test_what_was_deleted_while_nobody_watched_is_known_no_more(cluster: KubeServer, place: Place) -> None:
    for number in range(3):
        cluster.put(pod(f"train-{number}"))
    with watching(place) as lab:
        lab.until(lambda: sum(map(len, lab.watcher._pods.values())) == 3, "all pods")
        with cluster.lock:
            cluster.compact()
            cluster.delete("ml", "train-1")
        lab.until(lambda: sum(map(len, lab.watcher._pods.values())) == 2, "that one is gone")
    assert cluster.lists == 2


def test_a_watch_that_breaks_is_begun_again(cluster: KubeServer, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it is that breaks: a watcher that lives and hears nothing would be the worst."""
    watch, broken = Api.watch, [RecursionError("maximum recursion depth exceeded"), ValueError("Invalid chunk")]

    def breaks(self: Api, *given: Any) -> Any:
        if broken:
            raise broken.pop(0)
        return watch(self, *given)

    monkeypatch.setattr(Api, "watch", breaks)
    with watching(place) as lab:
        lab.until(lambda: not broken, "another try")
        cluster.put(failed("train-0"), log=KEY_ERROR)
        lab.until(lambda: lab.told, "a verdict")
    assert "RecursionError" in lab.said[0]


@pytest.mark.parametrize("how", ["end", "gone"])
def test_a_server_that_ends_each_watch_is_not_asked_in_a_loop(
    cluster: KubeServer, place: Place, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    asked = 0

    def ends(*_: Any) -> Iterator[Any]:
        nonlocal asked
        asked += 1
        if how == "gone":
            raise Gone("too old", 410)
        return iter(())

    monkeypatch.setattr(Api, "watch", ends)
    with watching(place) as lab:
        lab.until(lambda: lab.said, "that it is told")
        assert asked <= 4
        assert "the watch ends at once; tried again in" in lab.said[0]


def test_a_server_that_fails_is_asked_again(cluster: KubeServer, place: Place) -> None:
    cluster.put(failed("train-0"), log=KEY_ERROR)
    cluster.fail = [500, 503, 429]
    cluster.expire_continue = 1
    with watching(place) as lab:
        lab.until(lambda: lab.told, "a verdict")


def test_the_token_is_read_anew(cluster: KubeServer, place: Place, tmp_path: Path) -> None:
    with Api(place, sleep=lambda _: None) as api:
        assert api.items("/api/v1/pods")[0] == []
        cluster.token = "second-token"
        with pytest.raises(ApiError, match="401 Unauthorized") as refused:
            api.items("/api/v1/pods")
        assert "token" not in str(refused.value)
        (tmp_path / "token").write_text("second-token")
        assert api.items("/api/v1/pods")[0] == []
        (tmp_path / "token").unlink()
        with pytest.raises(ApiError, match="cannot be read"):
            api.items("/api/v1/pods")


def test_lists_come_in_pages(cluster: KubeServer, place: Place) -> None:
    for number in range(8):
        cluster.put(pod(f"p{number}"))
    with Api(place) as api:
        pods, version = api.items("/api/v1/pods")
    assert [one["metadata"]["name"] for one in pods] == [f"p{number}" for number in range(8)]
    assert version == str(cluster.version)
    assert cluster.lists == 1


def test_without_a_right_the_rest_is_done(cluster: KubeServer, place: Place) -> None:
    cluster.allowed = {("pods", "list"), ("pods", "watch"), ("pods/log", "get")}
    cluster.put(failed("train-0"), log=KEY_ERROR)
    with watching(place) as lab:
        lab.until(lambda: lab.told, "a verdict")
    assert lab.files[0]["pods/train-0/main.log"] == KEY_ERROR.decode()
    assert {line.split(":")[0] for line in lab.said} == {
        "no events of train", "no conditions of node k8-gpu-14", "ml/train-0 was not annotated",
        "no event was written for ml/Job/train",
    }  # fmt: skip


def test_the_manifest_gives_the_rights_that_are_used_and_no_more() -> None:
    with open(os.path.join(ROOT, "deploy", "kubernetes", "watcher.yaml")) as file:
        objects = list(yaml.safe_load_all(file))
    rights = {
        (resource, verb)
        for one in objects
        if one["kind"] == "ClusterRole"
        for rule in one["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert rights == ALLOWED
    pods = next(one for one in objects if one["kind"] == "Deployment")["spec"]["template"]["spec"]
    assert pods["securityContext"]["runAsNonRoot"] is True
    limits = pods["containers"][0]["securityContext"]
    assert (limits["readOnlyRootFilesystem"], limits["allowPrivilegeEscalation"]) == (True, False)


@pytest.mark.parametrize(
    "owner, labels, kind, name",
    [
        (("Job", "a"), {}, "Job", "a"),
        (("Job", "js-workers-0"), {"jobset.sigs.k8s.io/jobset-name": "js"}, "JobSet", "js"),
        (
            ("Job", "tj-node-0"),
            {"jobset.sigs.k8s.io/jobset-name": "tj", "trainer.kubeflow.org/trainjob-ancestor-step": "trainer"},
            "TrainJob",
            "tj",
        ),
        (("PyTorchJob", "pt"), {"training.kubeflow.org/job-name": "pt"}, "PyTorchJob", "pt"),
        (
            ("RayCluster", "rj-raycluster-x"),
            {
                "ray.io/cluster": "rj-raycluster-x",
                "ray.io/originated-from-crd": "RayJob",
                "ray.io/originated-from-cr-name": "rj",
            },
            "RayJob",
            "rj",
        ),
        (("RayCluster", "rc"), {"ray.io/cluster": "rc"}, "RayCluster", "rc"),
        (("ReplicaSet", "web"), {}, None, None),
        (None, {}, None, None),
    ],
)
def test_what_a_pod_belongs_to(
    owner: tuple[str, str] | None, labels: dict[str, str], kind: str | None, name: str | None
) -> None:
    workload = workload_of(pod("p", owner=owner, labels=labels))
    assert (workload and workload.kind, workload and workload.name) == (kind, name)


def test_failures() -> None:
    assert failures_of(pod("p")) == []
    assert failures_of(pod("p", state=ended(0, "Completed"))) == []
    assert [(one.code, one.previous) for one in failures_of(failed("p", 3))] == [(3, False)]
    evicted = pod("p")
    evicted["status"] = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
    assert [(one.container, one.reason) for one in failures_of(evicted)] == [("", "Evicted")]
    ends = failures_of(pod("p", state=ended(1), restartCount=0))
    later = failures_of(pod("p", lastState=ended(1), restartCount=1))
    assert ends[0].restarts == later[0].restarts == 0  # one failure, seen twice


def test_what_is_hostile_becomes_no_path_and_no_crash() -> None:
    for text in ("..", ".", "", "a/b", "../x", "a\nb", "A", "-a", "a" * 300, None, 7, "a\0"):
        assert named(text) == ""
    for strange in ({}, {"metadata": None}, {"metadata": {"ownerReferences": "x", "labels": []}, "status": []}):
        assert workload_of(strange) is None
        assert failures_of(strange) == []
    assert "env" not in json.dumps(pruned(pod("p")))


def test_a_strange_pod_is_not_the_end_of_the_watch(cluster: KubeServer, place: Place) -> None:
    strange = pod("strange")
    strange["metadata"]["annotations"] = 7
    strange["status"] = {"containerStatuses": [{"name": "main", "state": ended(1), "restartCount": "many"}], "phase": 3}
    strange["spec"] = []
    cluster.put(strange, log=b"")
    with watching(place) as lab:
        cluster.put(failed("train-0", owner=("Job", "sound")), log=KEY_ERROR)
        lab.until(lambda: any(job.workload.name == "sound" for job, _ in lab.told), "the sound one's verdict")


def test_where_the_server_is(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="kubectl proxy"):
        in_cluster({})
    inside = in_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"})
    assert inside.server == "https://[fd00::1]:6443"
    for place in (
        Place("ftp://x"),
        Place("http://10.0.0.1", "token"),
        Place("https://x", None, str(tmp_path / "none")),
    ):
        with pytest.raises(UsageError):
            Api(place)


def test_a_server_that_answers_nonsense(cluster: KubeServer, place: Place) -> None:
    with Api(place) as api:
        with pytest.raises(ApiError, match="404"):
            api.get("/api/v1/nodes/absent")
        cluster.oldest = 50
        with pytest.raises(Gone):
            list(api.watch("/api/v1/pods", "1"))


def test_who_it_was() -> None:
    made = pod("p", labels={"diagnose.dev/owner": "ada"})
    workload = workload_of(made)
    assert workload is not None
    job = Job(workload, 2, "/", (), (), [made], (), 0, "", ())
    who = reference(job, "lab")
    assert (who.job_id, who.attempt, who.name, who.user) == ("uid-train", 2, "ml/train", "ada")


def test_the_command_watches_until_it_is_ended(cluster: KubeServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    cluster.nodes["k8-gpu-14"] = {"metadata": {"name": "k8-gpu-14"}, "status": {}}
    cluster.put(failed("train-0"), log=KEY_ERROR)
    arguments = (
        "watch",
        "kubernetes",
        "--server",
        cluster.address,
        "--token-file",
        str(tmp_path / "token"),
        "--settle",
        "0",
        "--since",
        "1e12",
    )
    with start(*arguments, env={"TMPDIR": str(tmp_path)}) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline().decode()
            process.terminate()
            _, err = process.communicate(timeout=_PATIENCE)
        finally:
            process.kill()
    assert line.startswith("diagnose: ml/Job/train: FAILED your code KeyError"), line
    assert process.returncode == 0
    assert not re.search(rb"Traceback|internal", err)
    assert [path.name for path in tmp_path.iterdir()] == ["token"]
