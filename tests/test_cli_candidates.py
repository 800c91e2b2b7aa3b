"""`diagnose rules candidates` as people use it: what was proposed is listed, shown, promoted to a file, or rejected."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy")

from diagnose.agents.families import Families
from diagnose.agents.filter_author import by_frequency
from diagnose.compress import Filters, template
from diagnose.dataclass import replace
from diagnose.models import LogSource, RuleSet
from diagnose.models.learning import FilterCandidate, Fingerprint
from diagnose.models.rule import DiagnosisRule, FilterRule
from diagnose.rules.admission import Admission
from diagnose.rules.decode import decode
from diagnose.rules.tree import shipped_rules
from diagnose.store.candidates import StoredCandidates
from diagnose.store.database import open_database
from tests.commandline import Call, Outcome, caller
from tests.test_cli_learning import LINE

TRAIN = Fingerprint("train-b", "train:1", "torch")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("DIAGNOSE_", "GITHUB_", "GITLAB_", "GIT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DIAGNOSE_DATABASE", str(tmp_path / "memory.sqlite3"))
    (tmp_path / "rules").mkdir()
    (tmp_path / "job.log").write_text(LINE)
    return caller(capsys, monkeypatch)


@pytest.fixture(scope="module")
def learnt(rule_set: RuleSet) -> FilterRule:
    """A filter rule as the Log Agent makes it of lines that came over and over."""
    families = Families(Filters(()), Admission(rule_set))
    lines = [f"[rank{n}]: widget-cache: shelf {n} holds {n} crates, colour blue".encode() for n in range(4)]
    families.watch(LogSource("job.log")).lines(lines, [template(line) for line in lines])
    draft = by_frequency(families.frequent(1)[0], str)
    assert draft is not None
    return draft.rule


def kept(tmp_path: Path, *rules: FilterRule, state: str = "applied", fingerprint: Fingerprint = TRAIN) -> None:
    with open_database(str(tmp_path / "memory.sqlite3")) as database:
        for rule in rules:
            StoredCandidates(database).add(FilterCandidate(rule, fingerprint, "agent:m\x1b[31m", state, 41))  # type: ignore[arg-type]


def candidates(call: Call, *arguments: str) -> Outcome:
    return call("rules", "candidates", *arguments)


def test_filter_candidates_are_listed_shown_and_promoted(call, tmp_path, learnt):
    kept(tmp_path, learnt)
    listed = candidates(call)
    assert listed.code == 0, listed.err
    head, row = listed.out.splitlines()
    assert head.split() == ["id", "kind", "state", "hits", "created", "author", "rule", "for"]
    assert row.split()[1:4] == ["filter", "applied", "41"]
    assert row.endswith('name="train-b" image="train:1" framework="torch"')
    assert "\x1b" not in listed.out
    assert "1 candidate, 1 of which nobody has decided on" in listed.err
    short = row.split()[0]
    shown = candidates(call, "show", short)
    assert "widget-cache: shelf" in shown.out
    assert f"id: {learnt.id}" in shown.out
    assert "\x1b" not in shown.out

    promoted = candidates(call, "promote", learnt.id, "--dir", "rules")
    path = tmp_path / "rules" / "filters" / "torch" / f"{learnt.id}.yml"
    assert (promoted.code, promoted.out) == (0, f"wrote rules/filters/torch/{learnt.id}.yml\n"), promoted.err
    assert decode(path.read_bytes(), "", FilterRule)[0] == learnt
    assert call("rules", "lint", str(path)).code == 0
    assert " promoted " in candidates(call, "list", "--state", "promoted").out
    assert not candidates(call, "list", "--state", "applied").out
    # Again, as after a kill between the file and the note of it.
    before = path.read_bytes()
    again = candidates(call, "promote", short, "--dir", "rules")
    assert (again.code, again.out) == (0, f"rules/filters/torch/{learnt.id}.yml is there already\n"), again.err
    assert path.read_bytes() == before


def test_a_candidate_that_lint_refuses_is_not_promoted(call, tmp_path, learnt):
    kept(tmp_path, replace(learnt, pattern=".*"))
    outcome = candidates(call, "promote", learnt.id, "--dir", "rules")
    assert outcome.code == 1
    assert f"{learnt.id} is not promoted:" in outcome.err
    assert not list((tmp_path / "rules").rglob("*.yml"))
    assert " applied " in candidates(call).out


def test_the_area_is_a_folder_and_names_of_candidates_are_no_paths(call, tmp_path, learnt):
    kept(tmp_path, learnt, replace(learnt, id="../../evil"), fingerprint=Fingerprint("x", "", "../up"))
    assert candidates(call, "promote", learnt.id, "--dir", "rules", "--area", "../x").code == 2
    outcome = candidates(call, "promote", "../../evil", "--dir", "rules")
    assert outcome.code == 2
    assert "is no rule id" in outcome.err
    outcome = candidates(call, "promote", learnt.id, "--dir", "rules")
    assert f"rules/filters/learnt/{learnt.id}.yml" in outcome.out, outcome.err
    assert not list(tmp_path.parent.glob("evil*"))


def test_one_name_of_several_jobs_wants_an_id(call, tmp_path, learnt):
    kept(tmp_path, learnt)
    kept(tmp_path, learnt, fingerprint=Fingerprint("other"))
    outcome = candidates(call, "reject", learnt.id)
    assert outcome.code == 2
    assert "means 2 candidates" in outcome.err
    short = outcome.err.rstrip().rpartition(" ")[2]
    assert candidates(call, "reject", short).code == 0
    assert candidates(call, "list", "--state", "rejected").out.splitlines()[1].startswith(short)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "nothing is proposed yet"),
        (("list", "x"), "list takes no ids"),
        (("show",), "show which?"),
        (("promote",), "promote which?"),
    ],
)
def test_wrong_usage_is_told_in_one_line(call, arguments, message):
    outcome = candidates(call, *arguments)
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


def test_an_unknown_candidate_is_told(call, tmp_path, learnt):
    kept(tmp_path, learnt)
    outcome = candidates(call, "reject", "no-such-\x1b[2J")
    assert outcome.code == 2
    assert "there is no candidate no-such-" in outcome.err
    assert "\x1b" not in outcome.err


def test_a_proposed_diagnosis_rule_is_a_candidate_and_a_rejected_one_is_not_proposed_again(call, tmp_path):
    shutil.rmtree(tmp_path / "rules")
    shutil.copytree(shipped_rules(), tmp_path / "rules")
    with open_database(str(tmp_path / "memory.sqlite3")):
        pass
    words = ("rules", "propose", "job.log", "--label", "NetworkError", "--dir", "rules", "--no-llm")
    outcome = call(*words)
    assert outcome.code == 0, outcome.err
    path = tmp_path / outcome.out.splitlines()[0].removeprefix("wrote ")
    rule = decode(path.read_bytes(), "", DiagnosisRule)[0]
    assert rule is not None
    row = candidates(call).out.splitlines()[1]
    assert row.split()[1:4] == ["diagnosis", "proposed", "0"]
    assert rule.id in row
    there = candidates(call, "promote", rule.id, "--dir", "rules")
    assert (there.code, there.out) == (0, f"rules/diagnoses/network/{rule.id}.yml is there already\n"), there.err

    path.unlink()
    assert candidates(call, "reject", rule.id).code == 0
    again = call(*words)
    assert again.code == 1
    assert "was rejected; see: diagnose rules candidates show" in again.err
    assert not path.exists()
    promoted = candidates(call, "promote", rule.id, "--dir", "rules")
    assert promoted.code == 0, promoted.err
    assert decode(path.read_bytes(), "", DiagnosisRule)[0] == rule


def test_from_a_log_to_a_filter_file(call, tmp_path, monkeypatch):
    """Without a model frequent lines are only proposed; promoted, they are filtered in the next run."""
    monkeypatch.setenv("DIAGNOSE_LOG_AGENT", "1")
    lines = [f"[rank{n % 4}]: widget-cache: shelf {n} holds {n * 7} crates, colour blue\n" for n in range(20_000)]
    (tmp_path / "big.log").write_text("".join(lines) + LINE)
    call("big.log", "--name", "train-7b")
    row = candidates(call).out.splitlines()[1].split()
    assert row[1:3] == ["filter", "proposed"]
    assert int(row[3]) > 10_000
    promoted = candidates(call, "promote", row[0], "--dir", "site", "--area", "ours")
    assert promoted.code == 0, promoted.err
    [path] = (tmp_path / "site" / "filters" / "ours").glob("*.yml")

    def left(*more: str) -> int:
        told = json.loads(call("big.log", "--name", "train-7b", "--format", "json", *more).out)
        return int(told["coverage"]["dropped_lines"])

    monkeypatch.delenv("DIAGNOSE_LOG_AGENT")
    before = left()
    assert left("--rules", "site") >= max(before, 19_000)
    monkeypatch.setenv("DIAGNOSE_LOG_AGENT", "1")
    assert left("--rules", "site") >= max(before, 19_000)
    assert path.exists()
