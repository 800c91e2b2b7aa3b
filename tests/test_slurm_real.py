"""The Slurm hooks on a real Slurm with accounting: jobs that really fail, each with the verdict in its comment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from diagnose.integrations.acting import Action, Actor, Caps, SlurmActor
from diagnose.integrations.notices import JobRef
from tests.commandline import ROOT
from tests.slurmcluster import Cluster, cluster, missing
from tests.test_readme import behind
from tests.topology import site

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing(accounting=True)), reason=missing(accounting=True) or "a cluster can be had"),
]

HOOKS = Path(ROOT, "deploy", "slurm")
_PATIENCE = 120.0

# What each job does, its options, and what the verdict in its comment begins with.
STEPS = "echo 'step 1 loss 2.5'; echo 'step 2 loss 2.4'\n"
NCCL = (
    "[rank0]:[E1130 10:00:00.000000000 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=8871, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600009 milliseconds "
    "before timing out."
)
JOBS = {
    "exit code": ("exit 3\n", (), "FAILED cause not found"),
    "exception": (STEPS + "python3 -c \"{}['role']\"\n", (), "FAILED your code KeyError"),
    "missing file": (STEPS + "python3 -c \"open('/no/such/data.bin')\"\n", (), "FAILED your code FileNotFoundError"),
    "memory": (
        "python3 -c 'x = [0] * 100_000_000; import time; time.sleep(60)'\n",
        (),
        "FAILED your code HostOutOfMemory",
    ),
    "ulimit": (
        "ulimit -v 200000; python3 -c 'x = [0] * 1_000_000_000'\n",
        ("--mem=400M",),
        "FAILED not attributed HostOutOfMemory",
    ),
    "segmentation fault": (
        "python3 -c 'import ctypes; ctypes.string_at(0)'\n",
        (),
        "FAILED your code SegmentationFault",
    ),
    "signal": ("python3 -c 'import os; os.kill(os.getpid(), 9)'\n", (), "FAILED not attributed ProcessKilled"),
    "hung": (STEPS + f"echo '{NCCL}'; kill -ABRT $$\n", (), "FAILED "),
    "time limit": (STEPS + "sleep 300\n", ("--time=1",), "FAILED scheduler TimeLimitExceeded"),
    "cancelled": (STEPS + "sleep 300\n", ("--uid=65534",), "FAILED the user JobCancelled"),
    "preempted": (STEPS + "sleep 300\n", ("--requeue",), "FAILED scheduler Preempted"),
    "node": (STEPS + "sleep 300\n", ("--no-requeue",), "FAILED infrastructure NodeFailure"),
    "gpu": (
        STEPS + "echo 'torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered'; exit 1\n",
        ("--gres=gpu:1",),
        "FAILED infrastructure ECCError",
    ),
}
NOT_TOLD = ("cancelled", "preempted")
OWNER_ONLY = ("exception", "missing file", "memory", "segmentation fault", "time limit")


def prepared(folder: Path) -> str:
    """Installs the hooks as an administrator would."""
    (folder / "bin").mkdir()
    command = folder / "bin" / "diagnose"
    command.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m diagnose "$@"\n')
    tell = folder / "bin" / "tell"
    tell.write_text(f"#!/bin/sh\ncat >> {folder}/told.jsonl; echo >> {folder}/told.jsonl\n")
    journal = folder / "bin" / "journalctl"  # a node whose GPU fails while the job `gpu` runs
    journal.write_text(
        f'#!/bin/sh\n[ -e {folder}/gpu-job ] && [ "$(cat {folder}/gpu-job)" = "$SLURM_JOB_ID" ] || exit 0\n'
        "now=$(date +%Y-%m-%dT%H:%M:%S.000000%:z)\n"
        'echo "$now $(hostname -s) kernel: NVRM: Xid (PCI:0000:52:00): 48, pid=7102, name=python3, '
        'An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 2, subpartition 0."\n'
    )
    (folder / "diagnose.conf").write_text(
        f"SLURM_CONF={folder}/slurm.conf\nPATH={folder}/bin:$PATH\nDIAGNOSE={command}\nDIAGNOSE_HOOK_SPOOL={folder}/diagnose\n"
        f"DIAGNOSE_KERNEL_LOGS={folder}/kernel\nDIAGNOSE_SETTLE=1\nDIAGNOSE_OPTIONS=--admin-comment\nDIAGNOSE_NOTICES={folder}/notices.sqlite3\n"
        f"DIAGNOSE_NOTICE_COMMAND={tell}\nDIAGNOSE_ACT=rehearse\nDIAGNOSE_ACT_TRAIL={folder}/acted.jsonl\n"
        f"XDG_CACHE_HOME={folder}/cache\nDIAGNOSE_NODE_STATE={folder}/last-job\n"
    )
    hooks = []
    for key, name in (("EpilogSlurmctld", "epilogslurmctld"), ("Epilog", "epilog")):
        hook = folder / "bin" / name
        text = (HOOKS / name).read_text()
        hook.write_text(text.replace("${DIAGNOSE_CONF:-/etc/diagnose/slurm.conf}", f"{folder}/diagnose.conf"))
        hooks.append(f"{key}={hook}")
    for file in (folder / "bin").iterdir():
        file.chmod(0o755)
    (folder / "kernel").mkdir()
    (folder / "work").chmod(0o777)  # users write there
    return "\n".join(hooks)


@pytest.fixture(scope="module")
def slurm() -> Iterator[Cluster]:
    with cluster(prepared, accounting=True) as made:
        yield made


def comment(slurm: Cluster, job: str) -> str:
    """A job's comment, as soon as there is one."""

    def asked() -> str:
        lines = slurm.call("sacct", "-j", job, "-D", "-X", "-n", "-P", "-o", "Comment", check=False).split("\n")
        waits = slurm.job(job).get("Comment", "")  # of a job that is in the queue again
        return next((line for line in (*lines, waits) if "diagnose: " in line), "")

    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        if text := asked():
            return text
        time.sleep(0.3)
    log = slurm.folder / "diagnose" / "hook.log"
    raise AssertionError(f"job {job} has no comment\n{log.read_text() if log.exists() else 'no log'}\n{slurm.logs()}")


def test_jobs_that_fail_are_diagnosed(slurm: Cluster) -> None:
    numbers: dict[str, str] = {}

    def submit(name: str) -> str:
        script, options, _ = JOBS[name]
        numbers[name] = slurm.submit(script, f"--job-name={name.replace(' ', '-')}", *options)
        return numbers[name]

    limited = submit("time limit")
    slurm.running(limited)
    for name in JOBS:
        if name in ("time limit", "node", "preempted"):
            continue
        number = submit(name)
        if name == "gpu":
            (slurm.folder / "gpu-job").write_text(number)
        if name == "cancelled":
            slurm.running(number)
            time.sleep(1)
            slurm.call("runuser", "-u", "nobody", "--", "scancel", number)
        slurm.ended(number)
    slurm.ended(limited, 120)
    slurm.running(submit("node"))
    time.sleep(1)
    slurm.call("scontrol", "update", f"nodename={slurm.node}", "state=down", "reason=test")
    slurm.ended(numbers["node"])
    slurm.call("scontrol", "update", f"nodename={slurm.node}", "state=resume", check=False)
    slurm.running(submit("preempted"))
    time.sleep(1)
    slurm.ended(slurm.submit("true\n", "-p", "high", "--exclusive"))

    wrong = {}
    for name, number in numbers.items():
        said = comment(slurm, number)
        # What sacctmgr is given it keeps in small letters.
        if not said.lower().startswith(f"diagnose: {JOBS[name][2]}".lower()):
            out = slurm.folder / "work" / f"slurm-{number}.out"
            wrong[name] = (said, out.read_text() if out.exists() else "")
    assert wrong == {}

    admin = slurm.call("sacct", "-j", numbers["exception"], "-X", "-n", "-P", "-o", "AdminComment")
    assert admin.startswith("diagnose: failed your code keyerror")

    notices = [json.loads(line) for line in (slurm.folder / "told.jsonl").read_text().splitlines() if line]
    told = {job["job_id"]: notice for notice in notices for job in notice["jobs"]}
    for name in NOT_TOLD:
        assert numbers[name] not in told, name
    for name in OWNER_ONLY:
        assert told[numbers[name]]["audience"] == "owner", name
    assert [notice["jobs"][0]["job_id"] for notice in notices if notice["page"]] == [numbers["gpu"]]

    hook = (slurm.folder / "diagnose" / "hook.log").read_text()
    assert "internal error" not in hook
    known = slurm.call("sacct", "-j", numbers["preempted"], "-D", "-X", "-n", "-P", "-o", "State")
    assert known.startswith(("PREEMPTED", "REQUEUED")), known

    acted = [json.loads(line) for line in (slurm.folder / "acted.jsonl").read_text().splitlines()]
    assert {entry["outcome"] for entry in acted} <= {"rehearsed", "refused"}
    assert [entry["target"] for entry in acted if entry["kind"] == "drain"] == [slurm.node]
    assert "idle" in slurm.call("sinfo", "-h", "-o", "%t")  # nothing was drained


def test_the_hook_acts_on_a_node_that_failed_and_on_nothing_else(slurm: Cluster) -> None:
    """From a failed job to a drained node by the hook alone: not for a user's bug, and not beyond the caps."""
    settings, written = slurm.folder / "diagnose.conf", slurm.folder / "diagnose" / "jobs"
    before, trail = settings.read_text(), slurm.folder / "acting.jsonl"
    row = {"at": time.time() - 2 * 86_400, "cluster": "lab", "outcome": "rehearsed", "job": "0", "attempt": 0}
    trail.write_text(
        "".join(json.dumps({**row, "kind": kind, "workload": "a/n"}) + "\n" for kind in ("drain", "requeue"))
    )

    def acted(number: str) -> list[tuple[str, str, str]]:
        rows = [json.loads(line) for line in trail.read_text().splitlines()]
        return [(one["kind"], one["target"], one["outcome"]) for one in rows if one["job"] == number]

    def failed(script: str, *options: str, gpu: bool = False) -> str:
        number = slurm.submit(script, "--no-requeue", *options)
        if gpu:
            (slurm.folder / "gpu-job").write_text(number)
        slurm.ended(number)
        comment(slurm, number)
        slurm.until(lambda: not list(written.glob(f"{number}-*")), "the hook to be done", 300)
        return number

    slurm.until(lambda: not written.exists() or not list(written.iterdir()), "earlier hooks to be done", 300)
    settings.write_text(f"{before}DIAGNOSE_ACT=act\nDIAGNOSE_ACT_TRAIL={trail}\n")
    try:
        claim = (
            f"{slurm.node} kernel: NVRM: Xid (PCI:0000:52:00): 48, pid=1, name=python3, uncorrectable double bit error"
        )
        bug = failed(f"{STEPS}echo '{claim}'; python3 -c \"{{}}['role']\"\n")
        assert acted(bug) == []
        first = failed(JOBS["gpu"][0], *JOBS["gpu"][1], gpu=True)
        assert ("drain", slurm.node, "done") in acted(first)
        assert slurm.call("sinfo", "-h", "-R", "-o", "%E").startswith(f"diagnose: ECCError in job {first}: ")
        assert "drain" in slurm.call("sinfo", "-h", "-o", "%T")
        slurm.call("scontrol", "update", f"nodename={slurm.node}", "state=resume")
        second = failed(JOBS["gpu"][0], *JOBS["gpu"][1], gpu=True)
        assert ("drain", slurm.node, "refused") in acted(second)
        assert "drain" not in slurm.call("sinfo", "-h", "-o", "%T")
    finally:
        settings.write_text(before)
        slurm.call("scontrol", "update", f"nodename={slurm.node}", "state=resume", check=False)


def test_each_task_of_an_array_has_its_own_verdict(slurm: Cluster) -> None:
    script = (
        STEPS + 'case "$SLURM_ARRAY_TASK_ID" in\n0) python3 -c "{}[\'role\']" ;;\n1) true ;;\n'
        "2) python3 -c \"open('/no/such/data.bin')\" ;;\nesac\n"
    )
    array = slurm.submit(script, "--array=0-2")
    for task in (0, 2):
        slurm.ended(f"{array}_{task}")
    said = [comment(slurm, f"{array}_{task}").lower() for task in (0, 2)]
    assert said[0].startswith("diagnose: failed your code keyerror")
    assert said[1].startswith("diagnose: failed your code filenotfounderror")
    slurm.ended(f"{array}_1")
    slurm.until(lambda: not list((slurm.folder / "diagnose" / "jobs").iterdir()), "the hook to be done")
    assert "diagnose" not in slurm.call("sacct", "-j", f"{array}_1", "-X", "-n", "-P", "-o", "Comment")
    shown = subprocess.run(
        [slurm.folder / "bin" / "diagnose", "slurm", array], env={**os.environ, **slurm.environment},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (
        shown.stderr == f"diagnose: job {array} has 3 parts, of which 2 failed: this is {array}_0; others: {array}_2\n"
    )
    assert "KeyError" in shown.stdout


def test_the_hook_returns_at_once_and_with_zero(slurm: Cluster) -> None:
    env = {**slurm.environment, "SLURM_JOB_ID": "999999", "SLURM_CLUSTER_NAME": "lab", "SLURM_JOB_RESTART_COUNT": "0"}
    taken = []
    for _ in range(9):
        began = time.monotonic()
        done = subprocess.run([slurm.folder / "bin" / "epilogslurmctld"], env=env, check=False, timeout=10)
        taken.append(time.monotonic() - began)
        assert done.returncode == 0
    assert min(taken) < 0.1  # whatever else the machine does


def test_a_trap_needs_no_rights(slurm: Cluster) -> None:
    script = f". {HOOKS}/trap.sh\n{STEPS}python3 -c \"{{}}['role']\"\n"
    number = slurm.submit(
        script,
        "--comment=mine",
        f"--export=ALL,DIAGNOSE={slurm.folder}/bin/diagnose,XDG_CACHE_HOME={slurm.folder}/cache",
    )
    ended = slurm.ended(number)
    assert ended["ExitCode"] == "1:0"
    assert ended["Comment"].startswith("mine; diagnose: FAILED your code KeyError")
    out = (slurm.folder / "work" / f"slurm-{number}.out").read_text()
    assert "FAILED  your code  KeyError" in out


def test_afternotok_needs_no_rights(slurm: Cluster) -> None:
    first = slurm.submit(STEPS + "sleep 2; python3 -c \"{}['role']\"\n")
    second = slurm.call(
        "sbatch", "--parsable", "--mem=500M", f"--dependency=afternotok:{first}",
        f"--export=ALL,DIAGNOSE={slurm.folder}/bin/diagnose,XDG_CACHE_HOME={slurm.folder}/cache",
        str(HOOKS / "afternotok.sbatch"), first,
    ).strip()  # fmt: skip
    assert slurm.ended(second)["JobState"] == "COMPLETED"
    assert "FAILED  your code  KeyError" in (slurm.folder / "work" / f"diagnose-{second}.out").read_text()


def test_a_job_that_succeeds_is_left_alone(slurm: Cluster) -> None:
    number = slurm.submit("true\n")
    slurm.ended(number)
    # Jobs of other tests may come first, and the hook waits for what they still write.
    written = slurm.folder / "diagnose" / "jobs"
    slurm.until(lambda: not list(written.glob(f"{number}-*")), "the hook to be done", 300)
    assert "diagnose" not in slurm.call("sacct", "-j", number, "-X", "-n", "-P", "-o", "Comment")


@pytest.fixture
def acts(slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Action], list[str]]:
    """Does a thing, rehearsed two days ago, about a job."""
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    trail = tmp_path / "acted.jsonl"
    past = [{"at": time.time() - 2 * 86_400, "cluster": "lab", "outcome": "rehearsed", "job": "0", "attempt": 0}]
    rows = [{**one, "kind": kind, "workload": "ada/n"} for one in past for kind in ("drain", "requeue")]
    trail.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def act(number: str, action: Action) -> list[str]:
        actor = Actor(SlurmActor(), str(trail), "act", Caps(nodes=1))
        return actor.act(JobRef("lab", number, 0, "qx7b", "ada"), [action])

    return act


def test_a_node_is_drained_and_says_why(slurm: Cluster, acts: Callable[[str, Action], list[str]]) -> None:
    why = "diagnose: ECCError in job 4711: Xid 48 on GPU 0000:52:00, a=b 'c'"
    (said,) = acts("4710", Action("drain", "no-such-node", why))
    assert said.startswith("drain no-such-node: failed (")
    action = Action("drain", slurm.node, why)
    try:
        assert acts("4711", action) == [f"drain {slurm.node}: done"]
        shown = slurm.call("sinfo", "-h", "-R", "-o", "%E")
        assert shown.strip() == why
        assert "drain" in slurm.call("sinfo", "-h", "-o", "%T")
        assert acts("4712", action) == [f"drain {slurm.node}: refused (it is drained or down already)"]
    finally:
        slurm.call("scontrol", "update", f"nodename={slurm.node}", "state=resume")


def test_a_job_is_requeued_elsewhere(slurm: Cluster, acts: Callable[[str, Action], list[str]]) -> None:
    number = slurm.submit("exit 3\n")
    slurm.ended(number)
    assert acts(number, Action("requeue", number, "why", (slurm.node,))) == [f"requeue {number}: done"]
    waits = slurm.job(number)
    assert (waits["JobState"], waits["ExcNodeList"], waits["Restarts"]) == ("PENDING", slurm.node, "1")
    assert waits["Priority"] != "0"  # it is not held: with another node it would run
    slurm.call("scancel", number)


def test_a_job_is_requeued_and_runs_again(slurm: Cluster, acts: Callable[[str, Action], list[str]]) -> None:
    number = slurm.submit('[ "${SLURM_RESTART_COUNT:-0}" = 1 ]\n')
    slurm.ended(number)
    assert acts(number, Action("requeue", number, "why")) == [f"requeue {number}: done"]
    slurm.call("scontrol", "update", f"jobid={number}", "starttime=now")  # Slurm has it wait two minutes
    slurm.until(lambda: slurm.job(number)["JobState"] == "COMPLETED", "its second attempt")
    once = slurm.submit("exit 3\n", "--no-requeue")
    slurm.ended(once)
    (said,) = acts(once, Action("requeue", once, "why"))
    assert said.startswith(f"requeue {once}: failed (")


def test_a_heterogeneous_job_is_diagnosed_once_as_a_whole() -> None:
    """The log is the first part's, the GPU that failed is on the other's node: together they say what to do."""
    with cluster(prepared, accounting=True, second="second") as slurm:
        trail, written = slurm.folder / "acting.jsonl", slurm.folder / "diagnose" / "jobs"
        row = {"at": time.time() - 2 * 86_400, "cluster": "lab", "outcome": "rehearsed", "job": "0", "attempt": 0}
        rows = [{**row, "kind": kind, "workload": "a/n"} for kind in ("drain", "requeue")]
        trail.write_text("".join(json.dumps(one) + "\n" for one in rows))
        with (slurm.folder / "diagnose.conf").open("a") as settings:
            settings.write(f"DIAGNOSE_ACT=act\nDIAGNOSE_ACT_TRAIL={trail}\n")
        (slurm.folder / "gpu-job").write_text("2")  # the other part's number
        script = slurm.folder / "work" / "parts.sh"
        script.write_text(
            "#!/bin/bash\n#SBATCH -n1 --mem=100M -w second -t 5\n#SBATCH hetjob\n"
            f"#SBATCH -n1 --mem=100M --gres=gpu:1 -w {slurm.node} -t 5\n{STEPS}"
            "echo '[rank1]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered'; sleep 3; exit 1\n"
        )
        assert slurm.call("sbatch", "--parsable", str(script)).strip() == "1"
        said = [comment(slurm, f"1+{part}") for part in (0, 1)]
        assert said[0].lower().startswith("diagnose: failed infrastructure eccerror"), said
        assert f"{slurm.node}: drain" in said[0].lower(), said
        assert said[1].lower().startswith("diagnose: see 1+0"), said
        slurm.until(lambda: not list(written.iterdir()), "the hook to be done", 300)
        notices = [json.loads(line) for line in (slurm.folder / "told.jsonl").read_text().splitlines() if line]
        assert [job["job_id"] for notice in notices for job in notice["jobs"]] == ["1"]
        acts = [json.loads(line) for line in trail.read_text().splitlines()][2:]
        assert [(one["kind"], one["target"], one["exclude"], one["outcome"]) for one in acts] == [
            ("drain", slurm.node, [], "done"),
            ("requeue", "1", [slurm.node], "done"),
        ]
        waits = [slurm.call("scontrol", "show", "job", f"1+{part}", "--oneliner") for part in (0, 1)]
        assert all(f"ExcNodeList={slurm.node}" in shown for shown in waits), waits
        slurm.call("scancel", "1")


def test_the_readmes_slurm_prints_what_it_shows(tmp_path: Path) -> None:
    shown = behind("slurm").removeprefix("```text\n").removesuffix("\n```").split("\n")
    assert shown[0].endswith("-m tests.tryslurm")
    done = subprocess.run(
        [sys.executable, "-m", "tests.tryslurm", "bash", "-c", shown[1].removeprefix("$ ")],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": ROOT, "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert [line.rstrip() for line in done.stdout.splitlines()] == shown[2:], done.stderr


@pytest.mark.allow_hosts(["127.0.0.1"])
def test_the_hook_has_jobs_diagnosed_by_a_service_whose_page_shows_them(tmp_path: Path) -> None:
    with site(tmp_path, str(tmp_path / "memory.sqlite3")) as made:
        made.serve()
        subprocess.run(
            [sys.executable, "-m", "tests.tryslurm", "bash", "-c", "sbatch --wrap \"python3 -c \\\"{}['role']\\\"\"; sleep 12"],
            cwd=tmp_path, capture_output=True, timeout=120, check=True,
            env={**os.environ, "PYTHONPATH": ROOT, "XDG_CACHE_HOME": str(tmp_path), "DIAGNOSE_SERVICE": made.url},
        )  # fmt: skip
        (job,) = made.client.get("/v1/diagnoses").json()["items"]
        assert (job["job_id"], job["cluster"], job["scheduler"], job["user"]) == ("1", "lab", "slurm", "root")
        assert (job["verdict"]["error_type"], job["exit"]["code"]) == ("KeyError", 1)
        assert "KeyError: &#39;role&#39;" in made.client.get(f"/diagnoses/{job['id']}").text
