import json

import pytest

from diagnose.settings import Limits
from tests.recordlines import assemble, read


def canonical(text, **how):
    how = {"kind": "scheduler", "tags": False, "name": "record", **how}
    return [(r.first.number, r.text) for r in assemble(read(text, **how)) if r.kind == "scheduler"]


FIXED = """JobID           JobName  Partition      State ExitCode               Start                 End     NodeList
------------ ---------- ---------- ---------- -------- ------------------- ------------------- ------------
91177            moe-8x       h100  NODE_FAIL      1:0 2026-05-02T20:51:00 2026-05-02T22:26:25   pn-[29-32]
91177.0          python             CANCELLED     0:15 2026-05-02T20:51:09 2026-05-02T22:26:27   pn-[29-32]
"""
PIPE = """JobID|JobName|User|State|ExitCode|DerivedExitCode|ReqMem|MaxRSS|End|NodeList
401777|sft 70b|ada|OUT_OF_MEMORY|0:125|1:0|256G||2026-02-08T15:51:30|cn-[044-045]
401777.batch|batch||CANCELLED by 1000|0:125|||1201K|Unknown|cn-044"""
JOB = """JobId=818820 JobName=asr low
   UserId=tvega(20511) GroupId=research(20510) MCS_label=N/A
   JobState=PREEMPTED Reason=None Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
   RunTime=03:54:12 TimeLimit=2-00:00:00 TimeMin=N/A
   StartTime=2026-04-27T09:12:00 EndTime=2026-04-27T13:06:12 Deadline=N/A
   PreemptEligibleTime=2026-04-27T09:12:00 PreemptTime=2026-04-27T13:05:41
   NodeList=q-[10-11]

NodeName=cq04 Arch=x86_64 CoresPerSocket=32
   State=DOWN* ThreadsPerCore=2 TmpDisk=0 Weight=1
   Reason=Not responding [slurm@2026-05-02T22:26:25]"""
EVENTS = """$ kubectl get events -n nlp
LAST SEEN   TYPE     REASON      OBJECT             MESSAGE
2m10s (x3 over 5m)   Normal   Preempted   pod/ddp-worker-1   Preempted by pod prod/serve-9 on node w-14
90s         Warning  FailedScheduling     pod/ddp-worker-1  0/9 nodes are available: 9 Insufficient nvidia.com/gpu.
$ """
POD = """Name:             vlm-worker-3
Namespace:        ml-train
Node:             k8-gpu-14/10.12.0.14
Start Time:       Thu, 09 Apr 2026 18:40:12 +0000
Status:           Failed
Reason:           Evicted
Message:          The node was low on resource: ephemeral-storage.
Containers:
  pytorch:
    Container ID:  containerd://5f0a
    State:          Waiting
      Reason:       CrashLoopBackOff
    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
      Finished:     Thu, 09 Apr 2026 20:30:12 +0000
    Ready:          False
    Restart Count:  2
Conditions:
  Type              Status
  Ready             False
Events:
  Type     Reason               Age    From               Message
  ----     ------               ----   ----               -------
  Warning  Evicted              66s (x2 over 3m)    kubelet            The node was low on resource."""
NODE = """Name:               k8-gpu-14
Roles:              worker
Conditions:
  Type             Status    LastHeartbeatTime                 LastTransitionTime                Reason              Message
  ----             ------    -----------------                 ------------------                ------              -------
  MemoryPressure   False     Thu, 09 Apr 2026 20:29:01 +0000   Thu, 09 Apr 2026 10:00:00 +0000   KubeletHasSufficientMemory   kubelet has sufficient memory
  Ready            Unknown   Thu, 09 Apr 2026 20:29:01 +0000   Thu, 09 Apr 2026 20:30:12 +0000   NodeStatusUnknown   Kubelet stopped posting node status.
Addresses:"""
CUSTOM = """Name:         ddp
Namespace:    ml
API Version:  kubeflow.org/v1
Kind:         PyTorchJob
Status:
  Conditions:
    Last Transition Time:  2026-04-09T20:30:12Z
    Message:               PyTorchJob ddp is failed because 1 Worker replica(s) failed.
    Reason:                PyTorchJobFailed
    Status:                True
    Type:                  Failed
  Start Time:  x"""
TEXTS = {
    "sacct table": (
        FIXED,
        [
            (3, "slurm job=91177 name=moe-8x state=NODE_FAIL exit=1:0 nodes=pn-[29-32] start=2026-05-02T20:51:00 end=2026-05-02T22:26:25"),
            (4, "slurm job=91177 step=0 name=python state=CANCELLED exit=0:15 nodes=pn-[29-32] start=2026-05-02T20:51:09 end=2026-05-02T22:26:27"),
        ],
    ),
    "sacct -P": (
        PIPE,
        [
            (2, 'slurm job=401777 name="sft 70b" user=ada state=OUT_OF_MEMORY exit=0:125 derived=1:0 nodes=cn-[044-045] end=2026-02-08T15:51:30 reqmem=256G'),
            (3, "slurm job=401777 step=batch name=batch state=CANCELLED exit=0:125 nodes=cn-044 maxrss=1201K by=1000"),
        ],
    ),
    "sacct -n after an echo": (
        "+ sacct -j 8910 -n -o State,ExitCode,Elapsed\n    FAILED      2:0   00:00:01\ndone",
        [(2, "slurm job=8910 state=FAILED exit=2:0 elapsed=00:00:01")],
    ),
    "scontrol": (
        JOB,
        [
            (3, 'slurm job=818820 name="asr low" user=tvega state=PREEMPTED exit=0:0 reason=None nodes=q-[10-11] start=2026-04-27T09:12:00 end=2026-04-27T13:06:12 preempt=2026-04-27T13:05:41 elapsed=03:54:12 limit=2-00:00:00 restarts=0 requeue=1'),
            (11, 'slurm node=cq04 state=DOWN* reason="Not responding" since=2026-05-02T22:26:25'),
        ],
    ),
    "events": (
        EVENTS,
        [
            (3, 'k8s event=Preempted type=Normal object=pod/ddp-worker-1 count=3 message="Preempted by pod prod/serve-9 on node w-14"'),
            (4, 'k8s event=FailedScheduling type=Warning object=pod/ddp-worker-1 message="0/9 nodes are available: 9 Insufficient nvidia.com/gpu."'),
        ],
    ),
    "describe pod": (
        POD,
        [
            (6, 'k8s pod=ml-train/vlm-worker-3 node=k8-gpu-14 phase=Failed reason=Evicted message="The node was low on resource: ephemeral-storage."'),
            (12, "k8s container=pytorch pod=ml-train/vlm-worker-3 state=waiting reason=CrashLoopBackOff node=k8-gpu-14"),
            (14, 'k8s container=pytorch pod=ml-train/vlm-worker-3 last-state=terminated reason=OOMKilled exit=137 node=k8-gpu-14 finished="Thu, 09 Apr 2026 20:30:12 +0000"'),
            (25, 'k8s event=Evicted type=Warning object=pod/vlm-worker-3 count=2 from=kubelet message="The node was low on resource."'),
        ],
    ),
    "describe node": (
        NODE,
        [
            (6, 'k8s node=k8-gpu-14 condition=MemoryPressure status=False reason=KubeletHasSufficientMemory since="Thu, 09 Apr 2026 10:00:00 +0000" message="kubelet has sufficient memory"'),
            (7, 'k8s node=k8-gpu-14 condition=Ready status=Unknown reason=NodeStatusUnknown since="Thu, 09 Apr 2026 20:30:12 +0000" message="Kubelet stopped posting node status."'),
        ],
    ),
    "describe job": (
        CUSTOM,
        [(9, 'k8s job=ml/ddp kind=PyTorchJob condition=Failed status=True reason=PyTorchJobFailed since=2026-04-09T20:30:12Z message="PyTorchJob ddp is failed because 1 Worker replica(s) failed."')],
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", TEXTS)
def test_text(form):
    text, expected = TEXTS[form]
    assert sorted(canonical(text)) == expected
    # The raw lines pass too.
    plain = [r for r in assemble(read(text, kind="scheduler", tags=False, name="r")) if r.kind != "scheduler"]
    assert [r.first.number for r in plain] == list(range(1, text.count("\n") + 2))


@pytest.mark.parametrize("form", ["sacct table", "sacct -P", "sacct -n after an echo", "scontrol", "events"])
def test_text_within_a_job_log(form):
    text, expected = TEXTS[form]
    found = canonical("step 1\n" + text + "\nstep 2", kind="job", name="job.log")
    assert [(number - 1, line) for number, line in found] == expected


def test_described_events_in_a_job_log_belong_to_the_pod_of_the_command():
    text = "$ kubectl describe pod falcon-1 | tail -4\n" + "\n".join(POD.split("\n")[-3:])
    assert canonical(text, kind="job", name="job.log")[0][1].startswith(
        "k8s event=Evicted type=Warning object=pod/falcon-1 "
    )


def test_times_and_fields():
    (first, _) = (r for r in assemble(read(FIXED, kind="scheduler", tags=False)) if r.kind == "scheduler")
    assert first.first.time == 1777760785.0
    assert first.fields["record"] == "slurm_job"
    assert first.fields["state"] == "NODE_FAIL"


SACCT_JSON = {
    "meta": {"command": ["sacct"]},
    "jobs": [
        {
            "job_id": 12,
            "name": "sft",
            "user": "ada",
            "state": {"current": ["NODE_FAIL"], "reason": "None"},
            "exit_code": {
                "status": ["SIGNALED"],
                "return_code": {"set": True, "number": 0},
                "signal": {"id": {"set": True, "number": 15}},
            },
            "nodes": "cn-[1-2]",
            "time": {"start": 1700000000, "end": 1700000900},
            "steps": [{"step": {"id": "12.0", "name": "python"}, "state": ["FAILED"], "nodes": {"range": "cn-1"}}],
        },
        {"job_id": 13, "name": "other", "state": {"current": "COMPLETED"}},
    ],
}
NODES_JSON = {
    "nodes": [
        {
            "name": "cq04",
            "state": ["DOWN", "DRAIN"],
            "reason": "Not responding",
            "reason_changed_at": {"set": True, "number": 1700000000},
        }
    ]
}
POD_OBJECT = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "w-1", "namespace": "ml"},
    "spec": {"nodeName": "n7"},
    "status": {
        "phase": "Failed",
        "containerStatuses": [
            {
                "name": "pytorch",
                "restartCount": 2,
                "state": {"terminated": {"reason": "OOMKilled", "exitCode": 137, "finishedAt": "2026-04-09T20:30:12Z"}},
            }
        ],
    },
}
EVENT_OBJECT = {
    "kind": "Event",
    "metadata": {"name": "e"},
    "involvedObject": {"kind": "Pod", "name": "w-1"},
    "reason": "Preempted",
    "type": "Normal",
    "count": 2,
    "message": "by x",
    "lastTimestamp": "2026-04-09T20:30:12Z",
}
NODE_OBJECT = {
    "kind": "Node",
    "metadata": {"name": "n7"},
    "status": {
        "conditions": [
            {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped"}
        ]
    },
}
JOB_OBJECT = {
    "kind": "PyTorchJob",
    "metadata": {"name": "ddp", "namespace": "ml"},
    "status": {
        "conditions": [
            {"type": "Failed", "status": "True", "reason": "PyTorchJobFailed", "message": "1 replica failed"}
        ]
    },
}
WANTED = [
    "k8s pod=ml/w-1 node=n7 phase=Failed",
    "k8s container=pytorch pod=ml/w-1 state=terminated reason=OOMKilled exit=137 restarts=2 node=n7 finished=2026-04-09T20:30:12Z",
    'k8s event=Preempted type=Normal object=pod/w-1 count=2 message="by x"',
    'k8s node=n7 condition=Ready status=Unknown reason=NodeStatusUnknown message="Kubelet stopped"',
    'k8s job=ml/ddp kind=PyTorchJob condition=Failed status=True reason=PyTorchJobFailed message="1 replica failed"',
]
LIST = {"apiVersion": "v1", "kind": "List", "items": [POD_OBJECT, EVENT_OBJECT, NODE_OBJECT, JOB_OBJECT]}


@pytest.mark.parametrize("indent", [None, 2, 4])
def test_slurm_json(indent):
    text = json.dumps(SACCT_JSON, indent=indent)
    found = canonical(text)
    assert [line for _, line in found] == [
        "slurm job=12 name=sft user=ada state=NODE_FAIL exit=0:15 reason=None nodes=cn-[1-2] start=1700000000 end=1700000900",
        "slurm job=12 step=0 name=python state=FAILED nodes=cn-1",
        "slurm job=13 name=other state=COMPLETED",
    ]
    lines = text.split("\n")
    if indent:
        assert [lines[number - 1].strip().split(":")[0] for number, _ in found] == ['"state"'] * 3
    assert canonical(json.dumps(NODES_JSON, indent=indent))[0][1] == (
        'slurm node=cq04 state=DOWN+DRAIN reason="Not responding" since=1700000000'
    )


@pytest.mark.parametrize("indent", [None, 2])
def test_kubernetes_json(indent):
    text = json.dumps(LIST, indent=indent)
    found = canonical(text)
    assert [line for _, line in found] == WANTED
    if indent:
        lines = text.split("\n")
        stand = [lines[number - 1] for number, _ in found]
        for line, key in zip(stand, ("phase", "exitCode", "reason", "reason", "reason"), strict=True):
            assert f'"{key}"' in line
    one_by_one = "\n".join(json.dumps(item) for item in LIST["items"])
    assert [line for _, line in canonical(one_by_one)] == WANTED


def test_kubernetes_yaml():
    yaml = pytest.importorskip("yaml")
    text = yaml.safe_dump(LIST, sort_keys=True)
    found = canonical(text)
    assert [line for _, line in found] == WANTED
    lines = text.split("\n")
    assert "exitCode: 137" in lines[found[1][0] - 1]
    assert [
        line for _, line in canonical("---\n" + "---\n".join(yaml.safe_dump(item) for item in LIST["items"]))
    ] == WANTED


@pytest.mark.parametrize(
    "text",
    [
        '{"jobs": [{"job_id": 1, "state":',
        "{]",
        "[1, 2]",
        "[" * 100_000,
        "kind: [",
        "kind: Pod\na: &a [x]\nb: [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]",
        "kind: " + "[" * 5000,
        "items:\n" + "- " * 5000,
        "items:\n" + "\n".join(" " * n + "a:" for n in range(600)),
        "kind: !!python/object/apply:os.system ['true']",
        "kind: Pod\n? {a: 1}\n: b",
    ],
)
def test_what_is_no_document_comes_back_as_lines(text):
    found = assemble(read(text, kind="scheduler", tags=False, name="record"))
    assert {record.kind for record in found} == {"line"}
    assert len(found) == text.count("\n") + 1


def test_a_document_beyond_the_limit_comes_back_as_lines():
    text = json.dumps(LIST, indent=2)
    lines = read(text, kind="scheduler", tags=False, name="record")
    found = assemble(lines, Limits(structured_bytes=200))
    assert [record.first.number for record in found if record.kind == "line"] == [line.number for line in lines]


def test_odd_values_do_not_matter():
    odd = {
        "kind": "Pod",
        "metadata": {"name": 3},
        "status": {"phase": ["x"], "containerStatuses": [None, 3, {"state": {"terminated": None}}], "conditions": {}},
    }
    jobs = {"jobs": [{"job_id": None, "state": None}, {"job_id": {}, "state": {"current": []}, "steps": [None, {}]}, 3]}
    for value in (odd, jobs, {"items": [3, None]}, {"items": {}}, {"nodes": [{"name": "x", "state": 3, "reason": {}}]}):
        assemble(read(json.dumps(value), kind="scheduler", tags=False))


@pytest.mark.parametrize(
    ("cut", "state"),
    [
        ("CANCELLED+", "CANCELLED"),
        ("CANCELLED by 10+", "CANCELLED"),
        ("CANCELLED b+", "CANCELLED"),
        ("CANC+", "CANCELLED"),
        ("OUT_OF_ME+", "OUT_OF_MEMORY"),
        ("NODE_F+", "NODE_FAIL"),
        ("PREEM+", "PREEMPTED"),
        ("TIMEO+", "TIMEOUT"),
        ("BOOT_+", "BOOT_FAIL"),
        ("DEADL+", "DEADLINE"),
        ("LAUNCH_FA+", "LAUNCH_FAILED"),
        ("COMPLETED", "COMPLETED"),
        # Which of two it was is not known, nor what is no state of Slurm's.
        ("COMPLET+", "COMPLET+"),
        ("ODD+", "ODD+"),
    ],
)
def test_a_state_that_its_column_cut_is_the_only_one_that_begins_so(cut: str, state: str) -> None:
    table = f"JobID|State|ExitCode|NodeList\n4711|{cut}|0:0|gx-[001-0+\n"
    assert canonical(table) == [(2, f"slurm job=4711 state={state} exit=0:0")]


def test_sacct_s_default_columns() -> None:
    table = (
        "JobID           JobName  Partition    Account  AllocCPUS      State ExitCode \n"
        "------------ ---------- ---------- ---------- ---------- ---------- -------- \n"
        "4711              train        gpu        lab         64 CANCELLED+      0:0 \n"
        "4711.batch        batch                   lab         32  CANCELLED     0:15 \n"
    )
    assert canonical(table) == [
        (3, "slurm job=4711 name=train state=CANCELLED exit=0:0"),
        (4, "slurm job=4711 step=batch name=batch state=CANCELLED exit=0:15"),
    ]
