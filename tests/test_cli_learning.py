"""`diagnose rules propose | diff | stats` as people use them: files, exit codes, one-line errors."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from diagnose.models.rule import DiagnosisRule
from diagnose.rules.decode import decode
from diagnose.rules.tree import shipped_rules
from tests.commandline import FIXTURES, Call, caller

LINE = "[rank3]: lease-broker: shard lease 8812 for worker 3 revoked by coordinator: fence 17 is behind 19, giving up\n"


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("DIAGNOSE_", "GITHUB_", "GITLAB_", "GIT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DIAGNOSE_DATABASE", str(tmp_path / "memory.sqlite3"))
    return caller(capsys, monkeypatch)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A rules directory of a site, whose small corpus lies beside it."""
    for job in ("incidents/disk-full-ds-save", "healthy/bar-to-the-end-exit0"):
        shutil.copytree(os.path.join(FIXTURES, job), tmp_path / "tests" / "fixtures" / job)
    shutil.copytree(shipped_rules(), tmp_path / "rules")
    (tmp_path / "job.log").write_text(LINE)
    return tmp_path


def propose(call: Call, *more: str, log: str = "job.log") -> object:
    return call("rules", "propose", log, "--label", "NetworkError", "--dir", "rules", *more)


def test_a_rule_and_a_patch_are_written_and_lint_and_test_pass(call, site):
    outcome = propose(call)
    assert outcome.code == 0, outcome.err
    [path] = list((site / "rules" / "diagnoses" / "network").glob("network-*lease*.yml")) or list(
        (site / "rules" / "diagnoses" / "network").glob("network-*fence*.yml")
    )
    rule, problems = decode(path.read_bytes(), str(path), DiagnosisRule)
    assert not problems
    assert rule is not None
    assert f"wrote {path.relative_to(site)}" in outcome.out
    assert (site / f"{rule.id}.patch").read_text().startswith("From ")
    again = propose(call)
    assert again.code == 1
    assert f"{rule.id} finds it already" in again.err


def test_a_dry_run_writes_nothing(call, site):
    before = sorted(str(path) for path in site.rglob("*"))
    outcome = propose(call, "--dry-run")
    assert outcome.code == 0, outcome.err
    assert "schema: diagnosis-rule/v1" in outcome.out
    assert sorted(str(path) for path in site.rglob("*") if "memory.sqlite3" not in str(path)) == before


def test_what_is_not_expressible_is_told(call, site):
    (site / "job.log").write_text("1 2 3\n")
    outcome = propose(call)
    assert outcome.code == 1
    assert "not expressible as a rule" in outcome.err
    assert not outcome.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("job.log",), "--label TYPE"),
        (("nope",), "no file or directory nope"),
        (("job.log", "--label", "Nope"), "Nope is no error type"),
        (("job.log", "--label", "NetworkError", "--line", "job.log"), "as in job.log:118"),
        (("job.log", "--label", "NetworkError", "--line", "job.log:7"), "has no line 7"),
        (("job.log", "--label", "NetworkError", "--pull-request", "github"), "give --push REMOTE"),
        (("job.log", "--label", "NetworkError", "--push", "--upload-pack=x"), "expected one argument"),
        (("job.log", "--label", "NetworkError", "--push", "ext::true"), "is no Git checkout"),
        (tuple("abcdefghijklmnopqrstuvw"), "at most 20"),
    ],
)
def test_wrong_usage_is_one_line(call, site, arguments, message):
    outcome = call("rules", "propose", *arguments, "--dir", "rules", "--no-llm")
    assert outcome.code == 2
    assert message in outcome.err


def test_a_branch_at_a_bare_repository(call, site):
    def git(*arguments: str, folder: Path = site) -> str:
        who = {f"GIT_{role}_{what}": "a@example.com" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        environment = {"PATH": os.environ["PATH"], "HOME": str(site), **who}
        return subprocess.run(
            ["git", *arguments], cwd=folder, check=True, capture_output=True, text=True, env=environment
        ).stdout

    git("init", "-q", "-b", "main")
    git("add", "rules")
    git("commit", "-q", "-m", "rules")
    git("init", "-q", "--bare", "bare.git")
    outcome = propose(call, "--push", str(site / "bare.git"))
    assert outcome.code == 0, outcome.err
    branch = outcome.out.strip().removeprefix("branch ")
    assert git("log", "--format=%s", branch, folder=site / "bare.git").startswith("Rule network-")
    assert git("status", "--porcelain", "rules") == ""
    shown = call("rules", "diff", "HEAD", "rules", "--no-speed")
    assert (shown.code, "Nothing" in shown.out) == (0, True)
    os.unlink(site / "rules" / "diagnoses" / "storage" / "disk-full.yml")
    for path in (site / "rules").rglob("*.yml"):
        text = path.read_text()
        if "disk-full" in text and path.parent.name != "tables":
            path.write_text(text.replace("what: disk-full,", "what: storage/DiskFull,").replace("[disk-full]", "[]"))
    gone = call("rules", "diff", "HEAD", "rules", "--no-speed")
    if gone.code != 2:  # other rules may name it: then the set cannot be loaded, and that is told
        assert "`disk-full` is gone" in gone.out
        assert "(major, from" in gone.out
    bad = call("rules", "diff", "no-such-revision", "rules")
    assert bad.code == 2
    assert "no directory and no revision no-such-revision" in bad.err
    option = call("rules", "diff", "rules", "tests")
    assert option.code == 2
    assert "no taxonomy.yml" in option.err


def test_stats_need_a_memory_and_count_what_it_holds(call, site):
    none = call("rules", "stats")
    assert none.code == 2
    assert "nothing is recorded yet" in none.err
    (site / "full.log").write_text("OSError: [Errno 28] No space left on device\n")
    assert call("full.log", "--record").code == 0
    incident = call("incidents", "list").out.splitlines()[1].split()[0]
    assert call("incidents", "confirm", incident).code == 0
    shown = call("rules", "stats")
    assert shown.code == 0
    [row] = [line.split() for line in shown.out.splitlines() if line.startswith("disk-full ")]
    assert row[3:7] == ["1", "1", "1", "0"]
    dead = call("rules", "stats", "--dead").out
    assert "disk-full " not in dead
    assert "address-in-use" in dead


def test_a_rule_in_shadow_is_confirmed_by_people(call, site):
    assert propose(call).code == 0
    assert call("job.log", "--record", "--rules", "rules").code in (0, 3)
    incident = call("incidents", "list").out.splitlines()[1].split()[0]
    assert call("incidents", "correct", incident, "--error-type", "NetworkError").code == 0
    shown = call("rules", "stats", "--experimental", "--rules", "rules")
    [row] = [line.split() for line in shown.out.splitlines() if "experimental" in line]
    assert row[3:7] == ["1", "0", "1", "0"]


def test_the_incident_of_a_memory_is_proposed(call, site):
    assert call("incidents", "add", "job.log", "--error-type", "NetworkError", "--id", "inc-1").code == 0
    outcome = call("rules", "propose", "inc-1", "--dir", "rules", "--dry-run", "--no-llm")
    assert outcome.code == 0, outcome.err
    assert "from the incident inc-1" in outcome.out
