"""Every row of the policy is reached by whole logs, read as any others are, and gives the action of the table."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from diagnose.models import Report, RuleSet
from diagnose.pipeline import Request, Services, diagnose


@dataclass(frozen=True)
class Run:
    """The inputs of one job by file name, and what is to be done: `kernel/` and `scheduler/` begin such inputs."""

    inputs: dict[str, str]
    job: str
    nodes: list[str] = field(default_factory=list)


def clock(second: int) -> str:
    second += 9 * 3600
    return f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"


def steps(first: int, last: int, *, every: int = 1, start: int = 0, pace: float = 1.0, prefix: str = "") -> str:
    """Steps as a trainer logs them, from `start` seconds after nine."""
    return "".join(
        f"{prefix}2026-03-02 {clock(int(start + (step - first) * pace))} INFO step {step}/90000 loss 2.31 lr 1.0e-04\n"
        for step in range(first, last + 1, every)
    )


def kernel(second: int, text: str, host: str = "gx-01", day: int = 2) -> str:
    return f"2026-03-{day:02d}T{clock(second)}.000000+00:00 {host} kernel: {text}\n"


def xid(second: int, number: int, text: str, gpu: str = "0000:3b:00", day: int = 2, pid: int = 4242) -> str:
    return kernel(second, f"NVRM: Xid (PCI:{gpu}): {number}, pid={pid}, name=python, {text}", day=day)


def raised(error: str, *, rank: int | None = None, line: int = 88, path: str = "/home/ada/lm/train.py") -> str:
    prefix = "" if rank is None else f"[rank{rank}]: "
    return "".join(
        prefix + text + "\n"
        for text in ("Traceback (most recent call last):", f'  File "{path}", line {line}, in main', "    run()", error)
    )


def watchdog(rank: int, second: int, seq: int = 77) -> str:
    return (
        f"[rank{rank}]:[E302 {clock(second)}.118200391 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught "
        f"collective operation timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=512, NumelOut=512, "
        "Timeout(ms)=600000) ran for 600029 milliseconds before timing out.\n"
    )


def ended(code: int = 1) -> str:
    return f"srun: error: gx-01: task 0: Exited with exit code {code}\n"


def cluster(size: int = 4, per_host: int = 2) -> str:
    """Which rank runs where, as NCCL says it."""
    return "".join(
        f"gx-{rank // per_host + 1:02d}:{700 + rank}:{700 + rank} [{rank % per_host}] NCCL INFO comm 0x5581 rank {rank} "
        f"nranks {size} cudaDev {rank % per_host} busId {'3b' if rank % per_host == 0 else '5e'}000 - Init START\n"
        for rank in range(size)
    )


def restarts(*attempts: str) -> str:
    """Attempts one after another in one log, as a launcher script announces them."""
    return "".join(f"=== attempt {number} ===\n{text}" for number, text in enumerate(attempts, 1))


def connect(host: str, peer: str, error: str) -> str:
    return f"{host}:795:822 [0] include/socket.h:409 NCCL WARN Net : Connect to {peer}<54263> failed : {error}\n"


def retried(host: str, peer: str) -> str:
    return (
        f"{host}:984:1357 [4] 2026-03-02 09:01:40 transport/net_ib.cc:2131 NCCL WARN NET/IB : Got completion from peer "
        f"{peer}<42001> with status=12 opcode=129 len=0 vendor err 129 (Recv)\n"
    )


def out_of_memory(rank: int = 0, held: str = "Including non-PyTorch memory, this process has 78.50 GiB") -> str:
    return raised(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.25 GiB. GPU 0 has a total capacity of 79.11 GiB "
        f"of which 620.12 MiB is free. {held} memory in use. Of the allocated memory 71.90 GiB is allocated by PyTorch",
        rank=rank,
    )


GONE = "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus."
STARTED = "2026-03-02 09:00:00 INFO starting\n"
MISSED = cluster() + steps(1, 30) + "".join(watchdog(rank, 700) for rank in (0, 1, 3))
CANCELLED = STARTED + steps(1, 30) + "slurmstepd: error: *** JOB 61002 ON gx-01 CANCELLED AT 2026-03-02T09:00:31 ***\n"
SACCT = "JobID|JobName|User|UID|State|ExitCode\n61002|sft|ada|30122|CANCELLED by {by}|0:0\n"

REACHED = {
    "nothing-to-do": Run({"job.log": steps(1, 30) + "Training done\n"}, "none"),
    "inconclusive-with-progress": Run({"job.log": steps(1, 30)}, "restart"),
    "inconclusive": Run({"job.log": STARTED}, "none"),
    "fix-the-code": Run({"job.log": steps(1, 30) + raised("KeyError: 'role'") + ended()}, "fix_and_resubmit"),
    "wrong-set-up": Run(
        {"job.log": connect("gx-01", "192.168.40.9", "No route to host") + ended()}, "fix_and_resubmit", ["inspect"]
    ),
    "ecc-remap-failure": Run(
        {"job.log": steps(1, 30), "kernel/gx-01.log": xid(31, 64, "Row Remapper: Failed to remap row (0xb2f0d00)")},
        "restart_elsewhere",
        ["replace"],
    ),
    "ecc-again": Run(
        {
            "job.log": steps(1, 30),
            "kernel/gx-01.log": xid(0, 95, "Uncontained ECC error.", day=1) + xid(31, 95, "Uncontained ECC error."),
        },
        "restart_elsewhere",
        ["replace"],
    ),
    "ecc-contained": Run(
        {"job.log": steps(1, 30), "kernel/gx-01.log": xid(31, 94, "Contained: SM (0x1). RST: No, D-RST: No")},
        "restart_elsewhere",
        ["reset_gpu"],
    ),
    "ecc": Run(
        {"job.log": steps(1, 30), "kernel/gx-01.log": xid(31, 48, "An uncorrectable double bit error (DBE)")},
        "restart_elsewhere",
        ["drain", "reset_gpu"],
    ),
    "off-the-bus-again": Run(
        {"job.log": steps(1, 30), "kernel/gx-01.log": kernel(0, GONE, day=1) + kernel(31, GONE)},
        "restart_elsewhere",
        ["replace"],
    ),
    "off-the-bus": Run(
        {"job.log": steps(1, 30), "kernel/gx-01.log": kernel(31, GONE)}, "restart_elsewhere", ["drain", "reboot"]
    ),
    "network-singled-out": Run(
        {
            "job.log": steps(1, 30)
            + "".join(retried(f"gx-0{number}", "10.64.0.26") for number in (1, 2, 3))
            + raised("torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:219, remote process exited")
        },
        "restart_elsewhere",
        ["inspect"],
    ),
    "shared-fabric": Run(
        {"job.log": steps(1, 30)}
        | {
            f"kernel/gx-0{number}.log": kernel(
                31, "NVRM: Xid (PCI:0000:3b:00): 74, pid=4242, NVLink: fatal error detected on link 3", f"gx-0{number}"
            )
            for number in (1, 2, 3)
        },
        "wait_and_retry",
    ),
    "nvlink": Run(
        {"job.log": steps(1, 30), "kernel/gx-01.log": xid(31, 74, "NVLink: fatal error detected on link 3(0x0, 0x1)")},
        "restart_elsewhere",
        ["drain", "reset_gpu"],
    ),
    "cuda-same-unit": Run(
        {
            "job.log": "".join(xid(second, 31, "Ch 00000008, MMU Fault", pid=second) for second in (1000, 5000))
            + steps(1, 30, start=5000)
            + raised("RuntimeError: CUDA error: an illegal memory access was encountered")
        },
        "restart_elsewhere",
        ["drain"],
    ),
    "cuda-at-start": Run(
        {"job.log": cluster() + raised("RuntimeError: CUDA error: an illegal memory access was encountered", rank=2)},
        "fix_and_resubmit",
    ),
    "cuda-one-gpu": Run(
        {
            "job.log": cluster()
            + steps(1, 30)
            + raised("RuntimeError: CUDA error: an illegal memory access was encountered", rank=2)
        },
        "restart",
        ["inspect"],
    ),
    "collective-same-missing-host": Run(
        {"job.log": restarts(MISSED + ended(), MISSED.replace("step ", "step 1") + ended())},
        "restart_elsewhere",
        ["inspect"],
    ),
    "collective-at-same-step": Run(
        {
            "job.log": restarts(
                *[steps(1, 30) + "".join(watchdog(rank, 700) for rank in range(4)) + ended() for _ in range(2)]
            )
        },
        "none",
    ),
    "collective-twice-before-a-step": Run(
        {"job.log": restarts(*["".join(watchdog(rank, 700) for rank in range(4)) + ended() for _ in range(2)])}, "none"
    ),
    "collective-first": Run(
        {"job.log": steps(1, 30) + "".join(watchdog(rank, 700) for rank in range(4)) + ended()}, "restart"
    ),
    "network-adapter": Run(
        {
            "job.log": steps(1, 30) + watchdog(1, 700),
            "kernel/gx-01.log": kernel(
                31, "mlx5_core 0000:5e:00.0: poll_health:815:(pid 0): device's health compromised - reached miss count"
            ),
        },
        "restart_elsewhere",
        ["inspect"],
    ),
    "network-again": Run(
        {
            "job.log": restarts(
                *[connect(host, "10.33.8.8", "Software caused connection abort") + ended() for host in ("gx-4", "gx-5")]
            )
        },
        "restart_elsewhere",
        ["inspect"],
    ),
    "network": Run({"job.log": steps(1, 30) + retried("gx-01", "10.64.0.26") + ended()}, "restart"),
    "node-lost-again": Run(
        {"job.log": restarts(*[steps(1, 30) + "srun: error: Node failure on gx-07\n" for _ in range(2)])},
        "restart_elsewhere",
        ["inspect"],
    ),
    "node-lost": Run(
        {
            "job.log": steps(1, 30)
            + "slurmstepd: error: *** JOB 61002 ON gx-01 CANCELLED AT 2026-03-02T09:00:31 DUE TO NODE FAILURE, SEE "
            "SLURMCTLD LOG FOR DETAILS ***\n"
        },
        "restart_elsewhere",
    ),
    "container-anew": Run(
        {
            "job.log": "gx-01: 2026-03-02 09:00:00 INFO starting on host gx-01\n"
            + steps(1, 30)
            + raised("pynvml.NVMLError_Unknown: Unknown Error")
        },
        "restart",
    ),
    "driver": Run(
        {
            "job.log": steps(1, 30),
            "kernel/gx-01.log": xid(31, 119, "Timeout after 6s of waiting for RPC response from GPU0 GSP!"),
        },
        "restart_elsewhere",
        ["drain", "reboot"],
    ),
    "device-unavailable": Run(
        {
            "job.log": cluster()
            + "gx-01: "
            + raised("OSError: [Errno 28] No space left on device: '/scratch/ckpt/model.pt'").replace("\n", "\ngx-01: ")
        },
        "restart_elsewhere",
        ["inspect"],
    ),
    "node-limits": Run(
        {
            "job.log": "".join(f"gx-01: {line}\n" for line in steps(1, 30).splitlines())
            + "gx-01: "
            + raised(
                "botocore.exceptions.ClientError: An error occurred (RequestTimeTooSkewed) when calling the PutObject "
                "operation: The difference between the request time and the current time is too large."
            ).replace("\n", "\ngx-01: ")
        },
        "fix_and_resubmit",
        ["inspect"],
    ),
    "memory-held-by-others": Run(
        {
            "job.log": cluster()
            + steps(1, 30)
            + out_of_memory(
                held="Process 71002 has 60.11 GiB memory in use. Including non-PyTorch memory, this process has 18.4 GiB"
            )
        },
        "restart_elsewhere",
        ["inspect"],
    ),
    "memory-again": Run(
        {"job.log": restarts(*[steps(0, 2000, every=100) + out_of_memory() + ended() for _ in range(2)])},
        "fix_and_resubmit",
    ),
    "memory-after-long-progress": Run({"job.log": steps(0, 2000, every=100) + out_of_memory()}, "restart"),
    "memory": Run({"job.log": steps(1, 30) + out_of_memory()}, "fix_and_resubmit"),
    "storage-one-host": Run(
        {
            "job.log": cluster() + steps(1, 30),
            "kernel/gx-01.log": kernel(31, "blk_update_request: I/O error, dev sdb, sector 812344 op 0x0:(READ)")
            + kernel(31, "EXT4-fs error (device sdb1): ext4_find_entry:1455: inode #2: comm python: reading directory"),
        },
        "restart_elsewhere",
        ["inspect"],
    ),
    "storage-service": Run(
        {
            "job.log": steps(1, 30)
            + raised(
                "botocore.exceptions.ClientError: An error occurred (503) when calling the PutObject operation: Slow"
            )
        },
        "wait_and_retry",
    ),
    "checkpoint-corrupt": Run(
        {
            "job.log": STARTED
            + raised("RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory")
        },
        "restart",
    ),
    "anomaly-follows-host": Run(
        {
            "job.log": restarts(
                *[
                    cluster()
                    + steps(1, last)
                    + raised(f"RuntimeError: found NaN in local grad norm at iteration {last}", rank=2)
                    + ended()
                    for last in (30, 44)
                ]
            )
        },
        "restart_elsewhere",
        ["drain"],
    ),
    "anomaly-again": Run(
        {"job.log": restarts(*[steps(1, 30) + raised("RuntimeError: found NaN in loss") + ended() for _ in range(2)])},
        "fix_and_resubmit",
    ),
    "anomaly-from-the-start": Run(
        {"job.log": steps(1, 30) + raised("RuntimeError: found NaN in loss") + ended()}, "fix_and_resubmit"
    ),
    "anomaly-first": Run(
        {
            "job.log": steps(1, 20)
            + "2026-03-02 09:00:21 INFO successfully saved checkpoint at iteration 20 to /ckpt\n"
            + steps(21, 30, start=22)
            + raised("RuntimeError: found NaN in loss")
            + ended()
        },
        "restart",
    ),
    "preempted": Run(
        {
            "job.log": steps(1, 30)
            + "slurmstepd: error: *** JOB 61002 ON gx-01 CANCELLED AT 2026-03-02T09:00:31 DUE TO PREEMPTION ***\n"
        },
        "wait_and_retry",
    ),
    "time-limit-from-the-start": Run(
        {
            "job.log": steps(1, 30)
            + "slurmstepd: error: *** JOB 61002 ON gx-01 CANCELLED AT 2026-03-02T09:00:31 DUE TO TIME LIMIT ***\n"
        },
        "restart",
    ),
    "time-limit": Run(
        {
            "job.log": steps(1, 30)
            + "Saved checkpoint to /ckpt/step_30\n"
            + "slurmstepd: error: *** JOB 61002 ON gx-01 CANCELLED AT 2026-03-02T09:00:31 DUE TO TIME LIMIT ***\n"
        },
        "restart",
    ),
    "cancelled-by-owner": Run({"slurm-61002.out": CANCELLED, "scheduler/sacct.txt": SACCT.format(by=30122)}, "none"),
    "cancelled-by-administrator": Run(
        {"job.log": steps(1, 30) + "TERM_ADMIN: job killed by root or LSF administrator.\n"}, "none"
    ),
    "cancelled": Run({"slurm-61002.out": CANCELLED}, "restart"),
    "killed": Run(
        {"job.log": steps(1, 30) + "./train.sh: line 28:  8156 Killed                  python3 train.py\n"},
        "restart",
    ),
    "other": Run({"job.log": steps(1, 30) + ended(7)}, "restart"),
}

SHARED_CARD = "Process 71002 has 39.11 GiB memory in use. Including non-PyTorch memory, this process has 39.4 GiB"
IN_CONTAINER = "Process 71002 has 78.50 GiB"
BUSY = "[rank2]: 2026-03-02 09:00:31 INFO building sample index cache (this can take a while) ...\n"

# What is close to a row's case and is another row's: (inputs, row).
BESIDE = {
    "cancelled by root": ({"slurm-61002.out": CANCELLED, "scheduler/sacct.txt": SACCT.format(by=0)}, "cancelled"),
    "cancelled by another account": (
        {"slurm-61002.out": CANCELLED, "scheduler/sacct.txt": SACCT.format(by=30999)},
        "cancelled-by-administrator",
    ),
    "cancelled by an account, the owner's number not told": (
        {
            "slurm-61002.out": CANCELLED,
            "scheduler/sacct.txt": "JobID|JobName|User|State|ExitCode\n61002|sft|ada|CANCELLED by 30122|0:0\n",
        },
        "cancelled-by-owner",
    ),
    "ended by bkill of the owner": (
        {"job.log": steps(1, 30) + "TERM_OWNER: job killed by owner.\n"},
        "cancelled-by-owner",
    ),
    "deleted with kubectl": (
        {"job.log": steps(1, 30) + 'pytorchjob.kubeflow.org "sft-70b" deleted\n'},
        "cancelled-by-owner",
    ),
    "interrupted by hand": ({"job.log": steps(1, 30) + raised("KeyboardInterrupt")}, "cancelled-by-owner"),
    "a lost session": (
        {
            "job.log": steps(1, 30)
            + "W0302 09:00:32.104000 8812 torch/distributed/elastic/agent/server/api.py:719] Received 1 death signal, "
            "shutting down workers\n"
        },
        "cancelled",
    ),
    "no route once steps were made": (
        {"job.log": steps(1, 30) + connect("gx-01", "192.168.40.9", "No route to host") + ended()},
        "network",
    ),
    "refused before the first step, which may be a dead peer": (
        {"job.log": connect("gx-01", "192.168.40.9", "Connection refused") + ended()},
        "network",
    ),
    "two ranks of the job on one card": (
        {"job.log": steps(1, 30) + out_of_memory(0, SHARED_CARD) + out_of_memory(1, SHARED_CARD)},
        "memory",
    ),
    "its own process under the number outside its container": (
        {"job.log": steps(1, 30) + out_of_memory(0, IN_CONTAINER)},
        "memory",
    ),
    "an error of ECC a long time ago, on another GPU": (
        {
            "job.log": steps(1, 30),
            "kernel/gx-01.log": xid(0, 95, "Uncontained ECC error.", gpu="0000:5e:00", day=1)
            + xid(31, 95, "Uncontained ECC error."),
        },
        "ecc",
    ),
    "one GPU twice within one process": (
        {
            "job.log": steps(1, 30),
            "kernel/gx-01.log": xid(31, 31, "Ch 00000008, MMU Fault") + xid(33, 31, "Ch 00000008, MMU Fault"),
        },
        "cuda-one-gpu",
    ),
    "a hang at another step": (
        {
            "job.log": restarts(
                *[steps(1, last) + "".join(watchdog(rank, 700) for rank in range(4)) + ended() for last in (30, 44)]
            )
        },
        "collective-first",
    ),
    "the missing rank was busy with something of its own": (
        {"job.log": cluster() + steps(1, 30) + BUSY + "".join(watchdog(rank, 700) for rank in (0, 1, 3)) + ended()},
        "fix-the-code",
    ),
    "the missing rank was saving, which storage may hold up": (
        {
            "job.log": cluster()
            + steps(1, 30)
            + BUSY.replace("building sample index cache", "saving a checkpoint")
            + "".join(watchdog(rank, 700) for rank in (0, 1, 3))
            + ended()
        },
        "collective-first",
    ),
    "all ranks wait, at different lines": (
        {
            "job.log": cluster(3, 3)
            + steps(1, 30)
            + "".join(
                raised(
                    "RuntimeError: [unbound_buffer.cc:78] Timed out waiting 20000ms for recv operation", rank=r, line=n
                )
                for r, n in ((0, 139), (1, 139), (2, 174))
            ).replace("recv operation", "recv operation to complete")
            + ended()
        },
        "fix-the-code",
    ),
    "an anomaly of one rank at the same step: the data": (
        {
            "job.log": restarts(
                *[
                    cluster() + steps(1, 30) + raised("RuntimeError: found NaN in local grad norm", rank=2) + ended()
                    for _ in range(2)
                ]
            )
        },
        "anomaly-again",
    ),
    "a data-loader worker killed from outside": (
        {"job.log": steps(1, 30) + raised("RuntimeError: DataLoader worker (pid 90122) is killed by signal: Killed.")},
        "other",
    ),
    "a time-out that no rule knows is not put down to the code": (
        {"job.log": steps(1, 30) + raised("TimeoutError: waited for the workers")},
        "other",
    ),
    "nor is a number that no wrong call has": (
        {"job.log": steps(1, 30) + raised("OSError: [Errno 37] No locks available: '/scratch/cache.lock'")},
        "other",
    ),
    "a wrong call's number is": (
        {"job.log": steps(1, 30) + raised("OSError: [Errno 36] File name too long: '/scratch/cache.lock'")},
        "fix-the-code",
    ),
    "a body cut short is the service's": (
        {"job.log": steps(1, 30) + raised("http.client.IncompleteRead: IncompleteRead(81920 bytes read)")},
        "storage-service",
    ),
    "shards and maps are no steps": (
        {
            "job.log": "Map (num_proc=16):  90%|#########  | 837000/930514 [35:00<03:37, 395.56 examples/s]\n"
            "Loading checkpoint shards: 100%|##########| 4/4 [00:04<00:00,  1.04s/it]\n"
            + connect("gx-01", "192.168.40.9", "No route to host")
            + ended()
        },
        "wrong-set-up",
    ),
    "a service that one host of many talks to": (
        {
            "job.log": cluster()
            + "[rank0]: wandb: Network error (ConnectTimeout), entering retry loop.\n"
            + raised("wandb.errors.CommError: Run initialization has timed out after 90.0 sec.", rank=0)
        },
        "storage-service",
    ),
}


def report_on(run: Run, folder, rule_set: RuleSet) -> Report:
    """The report on a run, its inputs written to files."""
    paths: dict[str, list[str]] = {"": [], "kernel": [], "scheduler": []}
    for name, text in run.inputs.items():
        kind, _, base = name.rpartition("/")
        path = folder / base
        path.write_text(text, encoding="utf-8")
        paths[kind].append(str(path))
    return diagnose(Request(paths[""], tuple(paths["kernel"]), tuple(paths["scheduler"])), Services(rule_set))


@pytest.mark.parametrize("row", REACHED)
def test_a_run_reaches_the_row(row: str, tmp_path, rule_set: RuleSet) -> None:
    recovery = report_on(REACHED[row], tmp_path, rule_set).recovery
    assert (recovery.policy, recovery.job) == (row, REACHED[row].job)
    assert [node.action for node in recovery.nodes] == REACHED[row].nodes


def test_no_row_is_out_of_reach(rule_set: RuleSet) -> None:
    assert [row.id for row in rule_set.policy if row.id not in REACHED] == []


@pytest.mark.parametrize("case", BESIDE)
def test_what_is_close_to_a_row_is_told_apart(case: str, tmp_path, rule_set: RuleSet) -> None:
    inputs, row = BESIDE[case]
    assert report_on(Run(inputs, ""), tmp_path, rule_set).recovery.policy == row


def test_no_host_that_waited_is_inspected(tmp_path, rule_set: RuleSet) -> None:
    report = report_on(REACHED["collective-same-missing-host"], tmp_path, rule_set)
    assert [node.host for node in report.recovery.nodes] == ["gx-02"]
    assert any("host was missed in attempt 1" in reason for reason in report.explanation.attribution)


def test_whose_memory_it_was_is_said(tmp_path, rule_set: RuleSet) -> None:
    report = report_on(REACHED["memory-held-by-others"], tmp_path, rule_set)
    assert report.attribution == "infrastructure"
    assert any("process 71002" in reason for reason in report.explanation.attribution)
