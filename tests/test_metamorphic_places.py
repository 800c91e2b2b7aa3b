"""Where a job's folder lies, and how people name it, says nothing: the report is the same from everywhere."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from diagnose.models import Report, RuleSet
from diagnose.report.contract import to_json
from tests.incidents import Incident, incidents, run

# People, projects, file systems, clusters and GPUs, all called as hosts may be.
ABOVE = (
    *("alice01", "user12", "ab12345", "proj2", "project42", "team4", "lab3", "scratch1", "home2", "lustre1", "nfs2"),
    *("fs3", "hpc01", "h100", "a100x8", "ws1", "node01", "dgx02", "home/mira01/jobs", "scratch1/user12/h100/x"),
)
OPTIONS = ("--kernel-log", "--scheduler-record", "--inventory")
# Jobs of which hosts are known, and jobs in folders of their own.
SEVERAL = [
    incident
    for incident in incidents("incidents")
    if any(word == "--kernel-log" or "." not in word for word in incident.expected["inputs"])
    and len(incident.expected["inputs"]) > 1
]


def told(report: Report, place: str) -> str:
    """All that a report says, with the inputs under their names below `place`."""
    said = to_json(report)
    del said["stats"]
    return json.dumps(said, sort_keys=True).replace(f"{place}/", "").replace(f"{place}!", "")


def copied(incident: Incident, folder: Path) -> Path:
    """The job's files, without what is expected of it, below `folder`."""
    shutil.copytree(incident.folder, folder / "logs-of-the-job", ignore=shutil.ignore_patterns("expected.yaml"))
    return folder / "logs-of-the-job"


def absolute(incident: Incident, folder: Path) -> list[str]:
    return [word if word in OPTIONS else str(folder / word) for word in incident.expected["inputs"]]


def check(incident: Incident, above: str, rule_set: RuleSet, tmp_path: Path) -> None:
    folder = copied(incident, tmp_path / above)
    typed = told(run(str(folder), incident.expected["inputs"], rule_set), str(folder))
    assert told(run("/", absolute(incident, folder), rule_set), str(folder)) == typed

    whole = told(run(str(folder), ["."], rule_set), str(folder))
    assert told(run("/", [str(folder)], rule_set), str(folder)) == whole
    assert told(run(str(folder.parent), [folder.name], rule_set), folder.name) == whole
    globs = [str(folder / "*") if any(entry.is_file() for entry in folder.iterdir()) else str(folder / "*" / "*")]
    assert told(run("/", globs, rule_set), str(folder)) == whole

    link = tmp_path / "gx-77"
    link.symlink_to(folder)
    assert told(run("/", [str(link)], rule_set), str(link)) == whole
    with tarfile.open(tmp_path / "gx-78.tgz", "w:gz") as archive:
        archive.add(folder, arcname=f"{above}/x")
    assert told(run(str(tmp_path), ["gx-78.tgz"], rule_set), f"gx-78.tgz!{above}/x") == whole


@pytest.mark.parametrize(
    ("incident", "above"),
    [(incident, ABOVE[number % len(ABOVE)]) for number, incident in enumerate(SEVERAL)],
    ids=lambda one: getattr(one, "name", str(one)),
)
def test_the_place_of_a_job_says_nothing(incident: Incident, above: str, rule_set: RuleSet, tmp_path: Path) -> None:
    check(incident, above, rule_set, tmp_path)


XID = "Mar 05 04:02:10 gx-c3-09 kernel: NVRM: Xid (PCI:0000:9b:00): 119, pid=88121, name=python3, Timeout after 6s of"
DIED = "RuntimeError: CUDA error: unspecified launch failure"


@pytest.mark.parametrize("above", ABOVE)
def test_a_parents_name_is_no_host(above: str, rule_set: RuleSet, tmp_path: Path) -> None:
    folder = tmp_path / above / "jobs" / "x"
    folder.mkdir(parents=True)
    (folder / "slurm-9001.out").write_text(
        "step 1200 loss 2.0\nstep 1210 loss 2.0\n"
        "[rank4]: Traceback (most recent call last):\n"
        '[rank4]:   File "/app/train.py", line 55, in <module>\n[rank4]:     loss.backward()\n'
        f"[rank4]: {DIED}\n"
    )
    (folder / "gx-c3-09.journal.txt").write_text(f"Mar 05 04:00:01 gx-c3-09 systemd[1]: Started x.\n{XID}\n")
    typed = run(str(folder), ["."], rule_set)
    assert {culprit.id for culprit in typed.culprits if culprit.kind == "host"} == {"gx-c3-09"}
    assert told(run("/", [str(folder)], rule_set), str(folder)) == told(typed, str(folder))
