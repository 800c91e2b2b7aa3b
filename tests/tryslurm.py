"""A Slurm of one node with our hooks in it, to try them: `sudo .venv/bin/python -m tests.tryslurm [COMMAND...]`.

In: Debian's `slurm-wlm`, `munge`, `slurmdbd` and `mariadb-server`, and the rights of root; `DIAGNOSE_SERVICE` and
`DIAGNOSE_API_KEY_FILE`, where a service is to diagnose. Out: a shell (or a command) that speaks to this Slurm; when it
ends, Slurm ends, and nothing of it is left.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from tests.slurmcluster import cluster, missing

ROOT = Path(__file__).resolve().parent.parent
_PASSED = ("DIAGNOSE_SERVICE", "DIAGNOSE_API_KEY_FILE", "DIAGNOSE_SERVICE_CA_FILE", "DIAGNOSE_OPTIONS")


def installed(folder: Path) -> str:
    """Installs the hooks as docs/schedulers.md has it, below this folder; returns their lines of `slurm.conf`."""
    programs = folder / "bin"
    programs.mkdir()
    run = f"PYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.quote(sys.executable)} -m diagnose"
    (programs / "diagnose").write_text(f'#!/bin/sh\n{run} "$@"\n')
    (folder / "diagnose").mkdir(mode=0o700)
    settings = {
        "SLURM_CONF": folder / "slurm.conf",
        "DIAGNOSE": programs / "diagnose",
        "DIAGNOSE_HOOK_SPOOL": folder / "diagnose",
        "DIAGNOSE_KERNEL_LOGS": folder / "kernel",
        "DIAGNOSE_SETTLE": 1,
        "DIAGNOSE_NODE_STATE": folder / "last-job",
        **{name: os.environ[name] for name in _PASSED if os.environ.get(name)},
    }
    lines = (f"{name}={shlex.quote(str(value))}\n" for name, value in settings.items())
    (folder / "diagnose.conf").write_text("".join(lines))
    hooks = []
    for key, name in (("EpilogSlurmctld", "epilogslurmctld"), ("Epilog", "epilog")):
        text = (ROOT / "deploy" / "slurm" / name).read_text()
        (programs / name).write_text(text.replace("/etc/diagnose/slurm.conf", str(folder / "diagnose.conf")))
        hooks.append(f"{key}={programs / name}")
    for file in programs.iterdir():
        file.chmod(0o755)
    (folder / "kernel").mkdir()
    return "\n".join(hooks)


def main(command: list[str]) -> int:
    """Runs a command beside a Slurm; returns its exit code."""
    if problem := missing(accounting=True):
        print(f"tryslurm: {problem}", file=sys.stderr)
        return 2
    with cluster(installed, accounting=True) as made:
        if not command:
            print(f"Slurm is up; its logs, and the hook's, are below {made.folder}. `exit` ends it.", file=sys.stderr)
        environment = {**made.environment, "PATH": f"{made.folder}/bin:{made.environment['PATH']}"}
        return subprocess.run(
            command or [os.environ.get("SHELL", "/bin/bash")], env=environment, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
