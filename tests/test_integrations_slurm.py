"""Slurm's part with Slurm's commands as stand-ins that print what the real ones print."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from diagnose.errors import UsageError
from diagnose.integrations.slurm import (
    Opened,
    SlurmError,
    _named,
    comment_line,
    ended_attempt,
    kernel_folder,
    lay_out,
    open_logs,
    read_job,
    write_comment,
)
from diagnose.integrations.slurmparts import failed_parts
from diagnose.integrations.summary import Summary, summary_of
from tests.commandline import ROOT, environment, start

HOOKS = Path(ROOT, "deploy", "slurm")
ME = os.geteuid()
_PATIENCE = 60.0

# As Slurm 22.05 prints it.
SHOWN = """\
JobId=4711 JobName=qx7b
   UserId=ada({uid}) GroupId=ml(100) MCS_label=N/A
   Priority=4294901759 Nice=0 Account=(null) QOS=(null)
   JobState={state} Reason=NonZeroExitCode Dependency=(null)
   Requeue=1 Restarts={restarts} BatchFlag=1 Reboot=0 ExitCode=1:0
   RunTime=00:20:00 TimeLimit=01:00:00 TimeMin=N/A
   StartTime=2026-11-30T17:00:00 EndTime=2026-11-30T17:20:00 Deadline=N/A
   NodeList=gx-[01-02]
   TRES=cpu=1,mem=100M,node=1,billing=1,gres/gpu=16
   Comment={comment}
   Command={folder}/job.sh
   WorkDir={folder}
   StdErr={folder}/slurm-4711.out
   StdIn=/dev/null
   StdOut={folder}/slurm-4711.out
   Power=
"""
TRUSTED = "4711|4711|{uid}|ada|FAILED|1:0|gx-[01-02]|2026-11-30T17:00:00|2026-11-30T17:20:00|lab\n"
RECORD = (
    "JobID|JobName|User|State|ExitCode|DerivedExitCode|Reason|NodeList|Start|End|Elapsed|Timelimit|MaxRSS|ReqMem|UID\n"
    "4711|qx7b|ada|FAILED|1:0|0:0||gx-[01-02]|2026-11-30T17:00:00|2026-11-30T17:20:00|00:20:00|01:00:00||100M|{uid}\n"
)
LOG = (
    'step 1 loss 2.5\nTraceback (most recent call last):\n  File "/job/train.py", line 3, in <module>\n    f()\n'
    "KeyError: 'role'\n"
)
BUG = Summary("failed", "KeyError", "user", "likely", "KeyError: 'role'", job="fix_and_resubmit")


class Slurm:
    """What the commands print."""

    def __init__(self, folder: Path, **more: object) -> None:
        values = {"uid": ME, "state": "FAILED", "restarts": 0, "comment": "", "folder": folder, **more}
        self.shown = SHOWN.format(**values)
        self.trusted = TRUSTED.format(**values)
        self.record = RECORD.format(**values)
        self.queued = (
            f"4711|4711|{values['uid']}|ada|{values['state']}||gx-[01-02]|2026-11-30T17:00:00|2026-11-30T17:20:00|\n"
        )

    def run(self, command: Sequence[str]) -> str | None:
        if command[:3] == ["scontrol", "show", "hostnames"]:
            return "gx-01\ngx-02\n"
        if command[0] == "scontrol":
            return self.shown or None
        if command[0] == "squeue":
            return self.queued
        return self.trusted if "-X" in command else self.record


def test_what_slurm_knows_of_a_job(tmp_path: Path) -> None:
    job = read_job("4711", cluster="lab", run=Slurm(tmp_path).run)
    assert (job.name, job.user, job.uid, job.state, job.exit_code, job.signal) == ("qx7b", "ada", ME, "FAILED", 1, 0)
    assert read_job("4711", run=Slurm(tmp_path).run).cluster == "lab"
    assert (job.nodes, job.gpus, job.stdout) == (("gx-01", "gx-02"), 16, f"{tmp_path}/slurm-4711.out")
    assert [name for name, _ in job.records] == ["sacct.txt", "scontrol.txt"]
    assert job.started is not None
    assert job.started.endswith("Z")


def test_without_accounting(tmp_path: Path) -> None:
    slurm = Slurm(tmp_path)
    slurm.trusted = ""
    job = read_job("4711", run=slurm.run)
    assert (job.uid, job.state, job.exit_code, job.nodes) == (ME, "FAILED", 1, ("gx-01", "gx-02"))
    assert [name for name, _ in job.records] == ["scontrol.txt"]


@pytest.mark.parametrize("restarts", [0, 1])
def test_while_the_accounting_says_that_a_job_is_roots_slurmctld_is_asked(tmp_path: Path, restarts: int) -> None:
    slurm = Slurm(tmp_path, uid=4242, restarts=restarts)
    before = "4711|4711|4242|ada|NODE_FAIL|1:0|gx-09|2026-11-30T16:00:00|2026-11-30T16:20:00|lab\n" * restarts
    slurm.trusted = before + "4711|4711|0|root|PENDING|0:0|gx-01|2026-11-30T17:00:00|Unknown|lab\n"
    job = read_job("4711", cluster="lab", run=slurm.run)
    assert (job.user, job.uid, job.state, job.exit_code, job.nodes) == ("ada", 4242, "FAILED", 1, ("gx-01", "gx-02"))
    assert [name for name, _ in job.records] == ["scontrol.txt"]
    slurm.shown = ""
    assert read_job("4711", run=slurm.run).uid is None


def test_a_job_that_slurmctld_has_forgotten(tmp_path: Path) -> None:
    slurm = Slurm(tmp_path)
    slurm.shown = ""
    job = read_job("4711", run=slurm.run)
    assert (job.state, job.stdout, [name for name, _ in job.records]) == ("FAILED", None, ["sacct.txt"])


def test_no_such_job() -> None:
    with pytest.raises(SlurmError, match="knows no job 99"):
        read_job("99", run=lambda _: None)


@pytest.mark.parametrize("number", ["", "0", "-1", "4711; rm", "../4711", "4711\n", "4" * 40, "٤"])
def test_what_is_no_number(number: str) -> None:
    with pytest.raises(UsageError):
        read_job(number, run=lambda _: None)


def test_a_job_in_the_queue_again_is_the_attempt_that_ended(tmp_path: Path) -> None:
    slurm = Slurm(tmp_path, state="PENDING", restarts=1)
    slurm.trusted = slurm.trusted.replace("FAILED", "PREEMPTED")
    slurm.record = slurm.record.replace("FAILED", "PREEMPTED")
    assert ended_attempt("4711", 1, slurm.run) == 0
    job = read_job("4711", attempt=0, run=slurm.run)
    assert (job.attempt, job.state, [name for name, _ in job.records]) == (0, "PREEMPTED", ["sacct.txt"])


class Parts(Slurm):
    """An array of two tasks, the second of which has the array's number too, or a heterogeneous job of two parts."""

    def __init__(self, folder: Path, first: str, second: str) -> None:
        super().__init__(folder)
        names = {"4711_1": "ArrayJobId=4711 ArrayTaskId=1", "4711_0": "ArrayJobId=4711 ArrayTaskId=0"}
        names |= {f"4711+{at}": f"HetJobId=4711 HetJobOffset={at}" for at in (0, 1)}
        own = self.shown.replace("JobId=4711 ", f"JobId=4711 {names[first]} ")
        other = self.shown.replace("JobId=4711 ", f"JobId=4712 {names[second]} ").replace("StdOut=", "StdOut=/other")
        self.asked: list[Sequence[str]] = []
        self.shown = own + "\n" + other
        rows = self.trusted, self.trusted.replace("FAILED|1", "COMPLETED|0")
        self.trusted = rows[1].replace("4711|4711", f"{second}|4712") + rows[0].replace("4711|4711", f"{first}|4711")

    def run(self, command: Sequence[str]) -> str | None:
        self.asked.append(command)
        return super().run(command)


@pytest.mark.parametrize("first, second", [("4711_1", "4711_0"), ("4711+0", "4711+1")])
@pytest.mark.parametrize("forgotten", [False, True])
def test_a_number_means_one_part_of_a_job(tmp_path: Path, first: str, second: str, forgotten: bool) -> None:
    slurm = Parts(tmp_path, first, second)
    if forgotten:
        slurm.shown = ""
    job = read_job("4711", run=slurm.run)
    assert (job.id, job.spoken, job.attempt, job.state, job.uid) == ("4711", first, 0, "FAILED", ME)
    assert job.stdout == (None if forgotten else f"{tmp_path}/slurm-4711.out")
    other = read_job("4712", run=slurm.run)
    assert (other.id, other.spoken, other.state) == ("4712", second, "COMPLETED")
    whole = first == "4711+0"  # is diagnosed by its first part, with what is known of the others
    assert any("/other" in text for _, text in job.records) == (whole and not forgotten)
    assert job.others == (("4712",) if whole else ())
    asked = [list(one[:4]) for one in slurm.asked if any("Elapsed" in word for word in one)]
    assert asked == [["sacct", "-j", "4711" if whole else first, "-D"], ["sacct", "-j", second, "-D"]]


def test_a_heterogeneous_job_has_the_nodes_and_kernel_logs_of_all_parts(tmp_path: Path) -> None:
    slurm = Parts(tmp_path, "4711+0", "4711+1")
    slurm.trusted = slurm.trusted.replace("gx-[01-02]", "gx-07", 1)
    head, row = RECORD.format(uid=ME).splitlines()
    parts = [row.replace("4711", f"4711+{part}", 1) for part in (0, 1)]
    slurm.record = "\n".join(
        [head, parts[0], parts[1].replace("gx-[01-02]", "gx-07"), row.replace("4711", "4711+10", 1)]
    )
    job = read_job("4711", cluster="lab", run=slurm.run)
    assert (job.nodes, job.others) == (("gx-01", "gx-02", "gx-07"), ("4712",))
    assert [line.partition("|")[0] for line in dict(job.records)["sacct.txt"].splitlines()] == [
        "JobID",
        "4711+0",
        "4711+1",
    ]
    for number, host in (("4711", "gx-01"), ("4712", "gx-07"), ("4713", "gx-09")):
        folder = tmp_path / "kernel" / kernel_folder("lab", number)
        folder.mkdir(parents=True)
        (folder / f"{host}.dmesg").write_text("line")
    with open_logs(job, kernel_logs=str(tmp_path / "kernel"), tell=lambda _: None) as (_, kernels):
        assert [one.name for one in kernels] == ["gx-01.dmesg", "gx-07.dmesg"]


def test_the_parts_that_failed() -> None:
    rows = "14_0|FAILED\n14_1|COMPLETED\n14_2|CANCELLED by 0\n14_[3-9]|PENDING\n14|FAILED\n140_1|FAILED\n"
    assert failed_parts("14", lambda _: rows) == (["14_0", "14_2"], 3)
    assert failed_parts("14", lambda _: "14|FAILED\n") == ([], 0)
    assert failed_parts("14", lambda _: None) == ([], 0)


@pytest.mark.parametrize(
    "state, restarts, count, expected",
    [
        ("FAILED", 0, 0, 0),
        ("FAILED", 1, 1, 1),
        ("PENDING", 1, 1, 0),
        ("RUNNING", 1, 1, 0),  # it runs again already
        ("RUNNING", 2, 1, 0),
        ("COMPLETING", 1, 1, None),
    ],
)
def test_which_attempt_has_ended(tmp_path: Path, state: str, restarts: int, count: int, expected: int | None) -> None:
    assert ended_attempt("4711", count, Slurm(tmp_path, state=state, restarts=restarts).run) == expected


def test_the_lines_of_one_attempt(tmp_path: Path) -> None:
    slurm = Slurm(tmp_path, restarts=1)
    slurm.trusted = slurm.trusted.replace("FAILED", "NODE_FAIL") + slurm.trusted
    head, row = slurm.record.splitlines()
    slurm.record = "\n".join([head, row.replace("FAILED", "NODE_FAIL"), row]) + "\n"
    for attempt, state in ((0, "NODE_FAIL"), (1, "FAILED")):
        job = read_job("4711", attempt=attempt, run=slurm.run)
        assert job.state == state
        assert dict(job.records)["sacct.txt"].splitlines() == [head, row.replace("FAILED", state)]


def test_a_user_cannot_speak_for_slurm(tmp_path: Path) -> None:
    slurm = Slurm(tmp_path, comment="x\n   UserId=root(0) JobState=FAILED\n   NodeList=gx-99")
    job = read_job("4711", run=slurm.run)
    assert (job.uid, job.nodes) == (ME, ("gx-01", "gx-02"))
    slurm.trusted = slurm.trusted.replace(f"{ME}|ada", "x|ada")
    assert read_job("4711", run=slurm.run).uid is None


def test_only_the_owners_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "slurm-4711.out").write_text(LOG)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a[1].log").write_text("mine")
    (tmp_path / "logs" / "link.log").symlink_to("/etc/hostname")
    os.mkfifo(tmp_path / "logs" / "pipe.log")
    said: list[str] = []
    job = read_job("4711", run=Slurm(tmp_path).run)
    with open_logs(job, patterns=["{directory}/logs/*.log", "/no/such/{job}"], tell=said.append) as (logs, kernels):
        names = [one.name for one in logs]
        assert kernels == []
    assert names[:2] == ["slurm-4711.out", "a[1].log"]
    assert any("pipe.log: no ordinary file" in line for line in said)
    strange = read_job("4711", run=Slurm(tmp_path, uid=ME + 1).run)
    said.clear()
    with open_logs(strange, tell=said.append) as (logs, _):
        assert logs == []
    assert said == [f"{tmp_path}/slurm-4711.out: not the job owner's file; the verdict does without it"]


def test_what_was_checked_is_what_is_read(tmp_path: Path) -> None:
    (tmp_path / "slurm-4711.out").write_text("the job's own")
    job = read_job("4711", run=Slurm(tmp_path).run)
    with open_logs(job, tell=print) as (logs, _):
        (tmp_path / "slurm-4711.out").unlink()
        (tmp_path / "slurm-4711.out").symlink_to("/etc/passwd")
        (path,) = lay_out(str(tmp_path), "laid", logs)
        assert (tmp_path / path).read_text() == "the job's own"


def test_kernel_logs_of_the_nodes(tmp_path: Path) -> None:
    folder = tmp_path / "kernel" / kernel_folder("lab", "4711")
    folder.mkdir(parents=True)
    (folder / "gx-01.dmesg").write_text("line")
    (folder / ".gx-02.part").write_text("not yet")
    job = read_job("4711", cluster="lab", run=Slurm(tmp_path).run)
    with open_logs(job, kernel_logs=str(tmp_path / "kernel"), tell=lambda _: None) as (_, kernels):
        assert [one.name for one in kernels] == ["gx-01.dmesg"]


def test_comments_are_one_plain_line() -> None:
    hostile = summary_of(
        {
            "status": "failed", "error_type": "KeyError", "attribution": "user", "sureness": "likely",
            "root_cause": {"summary": "'x' = \"y\" | \x1b[31m`rm`\n$(id) \u202e" + "z" * 5000},
            "recovery": {"job": "restart_elsewhere", "nodes": [{"host": "gx", "action": "explode", "why": ""}, 7]},
            "culprits": "none",
        }
    )  # fmt: skip
    line = comment_line(hostile)
    assert line.startswith("diagnose: FAILED your code KeyError: x : y")
    assert len(line) <= 800
    assert not set(line) & set("'\"\\|`$=\n\x1b\u202e")
    assert hostile.nodes == ()


def stubs(folder: Path, **scripts: str) -> dict[str, str]:
    """An environment in which Slurm's commands are scripts."""
    (folder / "bin").mkdir(exist_ok=True)
    for name, text in scripts.items():
        path = folder / "bin" / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)
    return {"PATH": f"{folder}/bin:{os.environ['PATH']}"}


def test_a_comment_of_a_job_that_has_ended_goes_to_the_accounting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stubs(
        tmp_path,
        scontrol='echo "Job has already finished" >&2; exit 1',
        sacctmgr=f'printf "%s\\n" "$@" > {tmp_path}/said; echo " Modified jobs..."',
    )
    monkeypatch.setenv("PATH", path["PATH"])
    job = read_job("4711", cluster="lab", run=Slurm(tmp_path, comment="my own words; diagnose: older").run)
    assert write_comment(job, BUG) is None
    assert (tmp_path / "said").read_text().splitlines() == [
        "-i", "modify", "job", "where", "jobid=4711", "cluster=lab", "set",
        "comment='my own words; diagnose: FAILED your code KeyError: KeyError: role ; job: fix and resubmit; likely'",
    ]  # fmt: skip
    refuses = 'echo " Nothing modified"; echo "Access denied" >&2; exit 1'
    stubs(tmp_path, sacctmgr=refuses, sacct="exit 1")
    assert write_comment(job, BUG) == "the comment of job 4711 was not written: Access denied"
    late = f"[ -e {tmp_path}/asked ] && echo ' Modified jobs...' && exit 0; touch {tmp_path}/asked; {refuses}"
    row = "|0|root|PENDING|0:0|gx-01|2026-11-30T17:00:00|Unknown|lab"
    stubs(tmp_path, sacctmgr=late, sacct=f"echo '4711|4711{row}'")  # the accounting has yet to hear who it is
    assert write_comment(job, BUG) is None


def installed(folder: Path, **more: str) -> dict[str, str]:
    """The hooks' settings, and stand-ins for Slurm on which job 4711 has failed."""
    (folder / "slurm-4711.out").write_text(LOG)
    slurm = Slurm(folder)
    for name in ("shown", "trusted", "record"):
        (folder / name).write_text(getattr(slurm, name))
    path = stubs(
        folder,
        scontrol=f'case "$*" in *hostnames*) echo gx-01 gx-02;; show\\ job*) cat {folder}/shown;; '
        f'update*) echo "$@" >> {folder}/updates; exit 0;; *) exit 1;; esac',
        sacct=f'case "$*" in *-X*) cat {folder}/trusted;; *) cat {folder}/record;; esac',
        diagnose=f'PYTHONPATH={ROOT} exec {sys.executable} -m diagnose "$@"',
        journalctl='echo "2026-11-30T17:10:00.000000+00:00 gx-01 kernel: NVRM: Xid (PCI:0000:52:00): 48"',
    )
    settings = {"DIAGNOSE_HOOK_SPOOL": f"{folder}/spool", "DIAGNOSE_SETTLE": "0", **more}
    (folder / "conf").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return {
        **path, "DIAGNOSE_CONF": str(folder / "conf"), "SLURM_JOB_ID": "4711", "SLURM_CLUSTER_NAME": "lab",
        "SLURM_JOB_RESTART_COUNT": "0", "DIAGNOSE_NODE_STATE": str(folder / "last-job"),
    }  # fmt: skip


def until(path: Path, text: str) -> str:
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        if path.exists() and text in path.read_text():
            return path.read_text()
        time.sleep(0.05)
    raise AssertionError(f"{path} does not hold {text!r}: {path.read_text() if path.exists() else 'it does not exist'}")


def test_the_controllers_hook_writes_the_verdict_into_the_comment(tmp_path: Path) -> None:
    env = environment(installed(tmp_path))
    subprocess.run([HOOKS / "epilogslurmctld"], env=env, check=True, timeout=_PATIENCE)
    assert "comment=diagnose: FAILED your code KeyError" in until(tmp_path / "updates", "comment=")
    until(tmp_path / "spool" / "hook.log", "job 4711 restarts 0: exit code 0")
    end = time.monotonic() + _PATIENCE
    while list((tmp_path / "spool" / "jobs").iterdir()) and time.monotonic() < end:
        time.sleep(0.05)
    assert list((tmp_path / "spool" / "jobs").iterdir()) == []


def test_what_a_killed_worker_left_is_done(tmp_path: Path) -> None:
    env = environment(installed(tmp_path))
    (tmp_path / "spool" / "jobs").mkdir(parents=True)
    (tmp_path / "spool" / "jobs" / "4711-0.job.claimed-1").write_text("4711 0 lab\n")
    subprocess.run([HOOKS / "epilogslurmctld", "--drain"], env=env, check=True, timeout=_PATIENCE)
    assert "KeyError" in (tmp_path / "updates").read_text()
    assert list((tmp_path / "spool" / "jobs").iterdir()) == []


@pytest.mark.parametrize(
    ("settle", "age", "shown"),
    [("5", 0, "120 5"), ("5", 2, "118 3"), ("5", 600, "10 0"), ("0.5", 0, "120 0.5"), ("2.5", 30, "90 0")],
)
def test_what_waited_for_its_turn_has_settled(tmp_path: Path, settle: str, age: int, shown: str) -> None:
    """A thousand tasks of an array that fail at once do not each wait for logs that came long ago."""
    given = installed(tmp_path, DIAGNOSE_SETTLE=settle)
    stubs(tmp_path, diagnose=f'echo "$@" >> {tmp_path}/called', date=f'[ "$*" = +%s ] && echo {age + 1_000_000}')
    jobs = tmp_path / "spool" / "jobs"
    jobs.mkdir(parents=True)
    (jobs / "4711-0.job").write_text("4711 0 lab\n")
    os.utime(jobs / "4711-0.job", (1_000_000, 1_000_000))
    subprocess.run([HOOKS / "epilogslurmctld", "--drain"], env=environment(given), check=True, timeout=_PATIENCE)
    words = (tmp_path / "called").read_text().split()
    assert f"{words[words.index('--wait') + 1]} {words[words.index('--settle') + 1]}" == shown


@pytest.mark.parametrize("job", ["", "x; touch /tmp/x", "../1", "-1"])
def test_a_hook_without_a_job_does_nothing(tmp_path: Path, job: str) -> None:
    env = environment({**installed(tmp_path), "SLURM_JOB_ID": job})
    for hook in ("epilogslurmctld", "epilog"):
        subprocess.run([HOOKS / hook], env=env, check=True, timeout=_PATIENCE)
    assert not (tmp_path / "spool").exists()


def test_hooks_end_well_whatever_is_missing(tmp_path: Path) -> None:
    env = {
        "PATH": "/usr/bin:/bin",
        "SLURM_JOB_ID": "1",
        "DIAGNOSE_CONF": str(tmp_path / "absent"),
        "DIAGNOSE_HOOK_SPOOL": "/proc/none",
    }
    for hook in ("epilogslurmctld", "epilog"):
        done = subprocess.run(
            [HOOKS / hook], env={**env, "DIAGNOSE_KERNEL_LOGS": "/proc/none"}, check=False, timeout=_PATIENCE
        )
        assert done.returncode == 0


def test_a_nodes_hook_leaves_its_kernel_log(tmp_path: Path) -> None:
    env = environment({**installed(tmp_path, DIAGNOSE_KERNEL_LOGS=f"{tmp_path}/kernel"), "SLURMD_NODENAME": "gx-01"})
    (tmp_path / "kernel").mkdir()
    subprocess.run([HOOKS / "epilog"], env=env, check=True, timeout=_PATIENCE)
    assert "Xid" in (tmp_path / "kernel" / "lab-4711" / "gx-01.dmesg").read_text()


def test_on_a_shared_node_processes_of_others_are_left_out(tmp_path: Path) -> None:
    env = environment({**installed(tmp_path, DIAGNOSE_KERNEL_LOGS=f"{tmp_path}/kernel"), "SLURMD_NODENAME": "gx-01"})
    (tmp_path / "kernel").mkdir()
    lines = (
        "python3[99]: segfault at 0 ip 0 sp 0 error 4",
        "oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/slurm/uid_1/job_12,task=python3,pid=7",
        "oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/slurm/uid_1/job_4711,task=python3,pid=8",
        "NVRM: Xid (PCI:0000:52:00): 48",
    )
    stubs(tmp_path, journalctl="\n".join(f'echo "2026-11-30T17:10:00+00:00 gx-01 kernel: {line}"' for line in lines))
    (tmp_path / "last-job").write_text(f"{int(time.time())} 4710\n")  # has ended after this one began
    subprocess.run([HOOKS / "epilog"], env=env, check=True, timeout=_PATIENCE)
    kept = (tmp_path / "kernel" / "lab-4711" / "gx-01.dmesg").read_text().splitlines()
    assert [line.partition("kernel: ")[2] for line in kept] == list(lines[2:])


def test_a_trap_keeps_the_scripts_code(tmp_path: Path) -> None:
    env = environment(installed(tmp_path))
    script = f". {HOOKS}/trap.sh\nexit 7\n"
    done = subprocess.run(
        ["bash", "-c", script], env=env, capture_output=True, text=True, check=False, timeout=_PATIENCE
    )
    assert done.returncode == 7
    assert "FAILED  your code  KeyError" in done.stderr
    assert "comment=diagnose: FAILED" in (tmp_path / "updates").read_text()
    done = subprocess.run(
        ["bash", "-c", f". {HOOKS}/trap.sh\ntrue\n"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=_PATIENCE,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_command_says_what_it_could_not_do(tmp_path: Path) -> None:
    env = installed(tmp_path)
    stubs(
        tmp_path,
        scontrol=f'case "$*" in show\\ job*) cat {tmp_path}/shown;; *) echo denied >&2; exit 1;; esac',
        sacctmgr="exit 1",
    )
    with start("slurm", "4711", "--comment", "--format", "json", env=env) as process:
        out, err = process.communicate(timeout=_PATIENCE)
    assert process.returncode == 0
    assert json.loads(out)["error_type"] == "KeyError"
    assert b"diagnose: the comment of job 4711 was not written: denied" in err


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="no shellcheck")
@pytest.mark.parametrize("script", sorted(path.name for path in HOOKS.iterdir() if path.suffix != ".conf"))
def test_scripts_are_sound(script: str) -> None:
    done = subprocess.run(["shellcheck", HOOKS / script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_logs_that_a_user_has_called_as_we_would_are_told_apart() -> None:
    names = ("a", "a", "0-a", "1-a", "0-0-a", "b")
    made = [one.name for one in _named([Opened(name, io.BytesIO(), name) for name in names])]
    assert len(set(made)) == len(names)
    assert made[2:] == list(names[2:])
