"""A real Slurm of one node, or two, in a directory of its own: munged, slurmctld, slurmd, without systemd and control groups.

In: Debian's `slurm-wlm` and `munge`, and the rights of root; for accounting also `slurmdbd` and `mariadb-server`. Out:
a `Cluster` that takes jobs. Nothing of the system's own is touched: configuration, sockets, ports and state are the
directory's.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_PATIENCE = 180.0  # seconds; hooks take turns, and wait for what their jobs still write
_DAEMONS = ("munged", "slurmctld", "slurmd")
_ACCOUNTING = ("slurmdbd", "mariadbd", "mariadb-install-db")
_ENDED = (
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT",
)  # fmt: skip

_CONFIGURATION = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
MpiDefault=none
SwitchType=switch/none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=bf_interval=1,sched_interval=1
KillWait=1
MinJobAge=3600
OverTimeLimit=0
ReturnToService=2
InactiveLimit=0
SlurmdTimeout=300
MessageTimeout=20
{more}
{nodes}
PartitionName=low Nodes=ALL Default=YES MaxTime=60 State=UP PriorityTier=1 PreemptMode=REQUEUE OverSubscribe=NO
PartitionName=high Nodes=ALL MaxTime=60 State=UP PriorityTier=10 PreemptMode=OFF OverSubscribe=NO
"""


def missing(*, accounting: bool = False) -> str:
    """Why there can be no cluster here; empty where there can."""
    needed = (*_DAEMONS, "sbatch", "scontrol", *(_ACCOUNTING if accounting else ()))
    absent = [name for name in needed if shutil.which(name, path=_path()) is None]
    if absent:
        return f"not installed: {', '.join(absent)} (apt-get install slurm-wlm munge slurmdbd mariadb-server)"
    return "" if os.geteuid() == 0 else "a cluster of one's own needs root"


def _path() -> str:
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def _listening() -> set[int]:
    """The ports that somebody uses, as the kernel lists them: tests may open no sockets."""
    ports = set()
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(name) as table:
            ports |= {int(line.split()[1].rpartition(":")[2], 16) for line in list(table)[1:]}
    return ports


def _free_port() -> int:
    used = _listening()
    return next(port for port in iter(lambda: random.randrange(20_000, 30_000), 0) if port not in used)


@dataclass
class Cluster:
    """A cluster that runs."""

    folder: Path
    node: str
    environment: Mapping[str, str]
    second: str = ""  # another node, which is this machine as well
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def call(self, *command: str, check: bool = True, env: Mapping[str, str] | None = None) -> str:
        """What a command of Slurm's prints."""
        done = subprocess.run(
            command,
            env={**self.environment, **(env or {})},
            cwd=self.folder / "work",
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(f"{command}: {done.stderr or done.stdout}")
        return done.stdout

    def submit(self, script: str, *options: str, env: Mapping[str, str] | None = None) -> str:
        """Submits a batch script; returns the job's number."""
        path = self.folder / "work" / f"job-{time.monotonic_ns()}.sh"
        path.write_text("#!/bin/bash\n" + script)
        return self.call("sbatch", "--parsable", "--mem=100M", *options, str(path), env=env).strip().partition(";")[0]

    def job(self, number: str) -> dict[str, str]:
        """The fields of `scontrol show job`."""
        shown = self.call("scontrol", "show", "job", number, "--oneliner")
        fields = {}
        for part in shown.split("\n")[0].split(" "):
            key, equals, value = part.partition("=")
            if equals:
                fields[key] = value
        if "Comment=" in shown:
            fields["Comment"] = shown.split(" Comment=", 1)[1].split(" StdErr=", 1)[0].split(" WorkDir=", 1)[0]
        return fields

    def ended(self, number: str, seconds: float = _PATIENCE) -> dict[str, str]:
        """Waits until a job has ended."""
        return self.until(
            lambda: (found := self.job(number))["JobState"] in _ENDED and found, f"job {number} to end", seconds
        )

    def running(self, number: str) -> dict[str, str]:
        """Waits until a job runs."""
        return self.until(lambda: (found := self.job(number))["JobState"] == "RUNNING" and found, f"{number} to run")

    def until(self, question, what: str, seconds: float = _PATIENCE):  # type: ignore[no-untyped-def]
        """Waits until a question is answered by something true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := question():
                return found
            time.sleep(0.1)
        raise AssertionError(f"waited in vain for {what}\n{self.logs()}")

    def logs(self) -> str:
        """The end of what the daemons have logged."""
        texts = []
        for name in ("slurmdbd", "slurmctld", "slurmd"):
            with contextlib.suppress(OSError):
                texts.append(f"== {name}\n" + (self.folder / f"{name}.log").read_text()[-3000:])
        return "\n".join(texts)

    def start(self, name: str, *command: str) -> None:
        """Starts a daemon in the foreground."""
        with open(self.folder / f"{name}.out", "ab") as out:
            self.processes[name] = subprocess.Popen(
                command, env=self.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    def start_node(self) -> None:
        """Starts slurmd."""
        self.start("slurmd", "slurmd", "-D", "-N", self.node, "-f", str(self.folder / "slurm.conf"))
        if self.second:
            self.start("second", "slurmd", "-D", "-N", self.second, "-f", str(self.folder / "slurm.conf"))

    def stop(self) -> None:
        """Ends all that was started, jobs included."""
        with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
            self.call("scancel", "--state=RUNNING", "--user=root", check=False)
        for name in ("second", "slurmd", "slurmctld", "slurmdbd", "mariadbd", "munged"):
            process = self.processes.get(name)
            if process is None:
                continue
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)
        for entry in filter(str.isdigit, os.listdir("/proc")):  # hooks in the background, which wait for the daemons
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{entry}/cmdline").read_bytes()
                if int(entry) != os.getpid() and f"{self.folder}/bin/".encode() in words:
                    os.kill(int(entry), signal.SIGKILL)


def _with_accounting(made: Cluster, database_port: int, dbd_port: int) -> None:
    """Starts MariaDB and slurmdbd."""
    folder, password = made.folder, os.urandom(12).hex()
    data = folder / "mariadb"
    data.mkdir()
    subprocess.run(
        [
            "mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}", "--skip-test-db",
            "--auth-root-authentication-method=normal",
        ],
        env=made.environment, capture_output=True, check=True, timeout=_PATIENCE,
    )  # fmt: skip
    (folder / "init.sql").write_text(
        f"CREATE USER 'slurm'@'%' IDENTIFIED BY '{password}';\nGRANT ALL ON *.* TO 'slurm'@'%';\n"
    )
    made.start(
        "mariadbd", "mariadbd", "--no-defaults", "--user=root", f"--datadir={data}", f"--socket={folder}/mariadb.sock",
        "--bind-address=127.0.0.1", f"--port={database_port}", f"--init-file={folder}/init.sql", "--skip-name-resolve",
        "--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0",
    )  # fmt: skip
    made.until(lambda: database_port in _listening(), "MariaDB")
    configuration = folder / "slurmdbd.conf"
    configuration.write_text(
        f"AuthType=auth/munge\nAuthInfo=socket={folder}/munge.socket\nDbdHost=localhost\nDbdPort={dbd_port}\n"
        f"SlurmUser=root\nStorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\nStoragePort={database_port}\n"
        f"StorageUser=slurm\nStoragePass={password}\nStorageLoc=slurm_lab\nPidFile={folder}/slurmdbd.pid\n"
        f"LogFile={folder}/slurmdbd.log\n"
    )
    configuration.chmod(0o600)
    made.start("slurmdbd", "slurmdbd", "-D")
    made.until(lambda: dbd_port in _listening(), "slurmdbd")


@contextlib.contextmanager
def cluster(
    prepare: Callable[[Path], str] = lambda _: "", *, accounting: bool = False, second: str = ""
) -> Iterator[Cluster]:
    """A cluster of one node, or of two; `prepare` puts files into its directory and returns further lines of its configuration."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    os.chmod(folder, 0o755)
    for name in ("state", "spool", "work"):
        (folder / name).mkdir()
    host = socket.gethostname().partition(".")[0]
    nodes = [
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={_free_port()} "
        "CPUs=2 CoresPerSocket=2 RealMemory=2000 Gres=gpu:2"
        for name in filter(None, (host, second))
    ]
    database_port, dbd_port = _free_port(), _free_port()
    more = prepare(folder)
    if accounting:
        more += f"\nAccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=localhost\nAccountingStoragePass={folder}/munge.socket\n"
        more += f"AccountingStoragePort={dbd_port}\nAccountingStoreFlags=job_comment\n"
    (folder / "slurm.conf").write_text(
        _CONFIGURATION.format(
            host=host,
            folder=folder,
            ctld_port=_free_port(),
            nodes="\n".join(nodes),
            more=more,
        )
    )
    # GPUs that are none: what Slurm wants to see are devices.
    (folder / "gres.conf").write_text("AutoDetect=off\nName=gpu File=/dev/null\nName=gpu File=/dev/zero\n")
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH"))},
        "PATH": _path(),
        "SLURM_CONF": str(folder / "slurm.conf"),
    }
    made = Cluster(folder, host, env, second)
    try:
        made.start(
            "munged", "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket",
            f"--pid-file={folder}/munged.pid", f"--seed-file={folder}/munged.seed", f"--log-file={folder}/munged.log",
            "--num-threads=2",
        )  # fmt: skip
        made.until((folder / "munge.socket").exists, "munged")
        if accounting:
            _with_accounting(made, database_port, dbd_port)
        made.start("slurmctld", "slurmctld", "-D", "-f", str(folder / "slurm.conf"))
        made.start_node()
        made.until(
            lambda: (
                made.call("sinfo", "-h", "-N", "-p", "low", "-o", "%t", check=False).split() == ["idle"] * len(nodes)
            ),
            "the nodes to be idle",
        )
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)
