"""Rules from incidents: what is proposed passes lint and its own examples, and what cannot be expressed is told."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from diagnose.cli.rules import judged
from diagnose.dataclass import replace
from diagnose.errors import UsageError
from diagnose.learning.case import LINE_CHARS, Case, case_of_incident, case_of_path
from diagnose.learning.corpus import Corpus
from diagnose.learning.draft import draft, shape_of
from diagnose.learning.propose import propose
from diagnose.learning.trial import Trial, with_rule
from diagnose.learning.writing import rule_text, write_whole
from diagnose.models import Edge, Incident, RuleSet
from diagnose.redaction import Redactor
from diagnose.rules.abstract import invented
from diagnose.rules.decode import decode
from diagnose.rules.tree import shipped_rules

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures")
JOBS = ("incidents/dataloader-worker-killed", "incidents/address-in-use", "healthy/healthy-eval-of-errors")
BROKER = "[rank3]: lease-broker: shard lease 8812 for worker 3 revoked by coordinator: epoch fence 17 is behind 19, giving up"


@pytest.fixture(scope="module")
def trial(rule_set: RuleSet, tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """Against the shipped rules and a few of the bundled jobs."""
    fixtures = tmp_path_factory.mktemp("corpus") / "fixtures"
    for job in JOBS:
        shutil.copytree(os.path.join(FIXTURES, job), fixtures / job)
    return Trial(rule_set, shipped_rules(), Corpus(str(fixtures), judged), judged)


@pytest.fixture
def case(tmp_path: Path, rule_set: RuleSet) -> Callable[..., Case]:
    """The case of a log with these lines."""

    def make(*lines: str, label: str = "NetworkError", **more: object) -> Case:
        folder = tmp_path / "job-1"
        folder.mkdir(exist_ok=True)
        (folder / "job.log").write_bytes("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))
        return case_of_path(str(folder), rule_set, error_type=label, **more)  # type: ignore[arg-type]

    return make


def plain(text: str) -> str:
    return text


def test_a_line_that_no_rule_knows_becomes_a_rule_that_decides_its_incident(trial, case):
    found = case("[rank0]: step 100 loss 2.3", BROKER, "srun: error: gx-012: task 3: Exited with exit code 1")
    proposal = propose(found, trial, redact=plain)
    rule = proposal.rule
    assert rule is not None, proposal.why_not
    assert (rule.status, rule.error_type, rule.author) == ("experimental", "NetworkError", ("agent:template",))
    assert rule.captures == {"lease": "int", "worker": "int", "fence": "int", "behind": "int"}
    assert rule.examples.positive[0].expect.captures == {"lease": 8812, "worker": 3, "fence": 17, "behind": 19}
    assert rule.examples.negative
    assert proposal.path == f"diagnoses/network/{rule.id}.yml"
    assert trial.problems(rule, proposal.path) == ()
    assert trial.own_verdict(found, rule)[0].error_type == "NetworkError"


def test_the_file_is_read_back_as_the_same_rule(trial, case):
    proposal = propose(case(BROKER), trial, redact=plain)
    assert proposal.rule is not None
    back, problems = decode(proposal.text.encode(), "rule.yml", type(proposal.rule))
    assert (back, problems) == (proposal.rule, [])


def test_what_is_redacted_stands_in_no_rule_and_the_rule_matches_the_line_as_it_was(trial, case, rule_set):
    line = "sync-agent: cannot hand over to alice.smith@corp.example.org at 44.23.9.1: quorum of 3 voters vanished"
    found = case(line)
    redactor = Redactor(rule_set.redactions)
    proposal = propose(found, trial, redact=redactor.redact)
    assert proposal.rule is not None, proposal.why_not
    assert "alice" not in proposal.text
    assert "44.23" not in proposal.text
    assert trial.own_verdict(found, proposal.rule)[0].error_type == "NetworkError"


def test_an_incident_that_a_rule_decides_is_none_to_learn_from(trial, case):
    proposal = propose(case("OSError: [Errno 28] No space left on device", label="DiskFull"), trial, redact=plain)
    assert proposal.rule is None
    assert "decides it already" in proposal.why_not[0]


def test_a_rule_in_shadow_that_finds_it_already_is_named(trial, case):
    found = case(BROKER)
    proposal = propose(found, trial, redact=plain)
    assert proposal.rule is not None
    joined = Trial(with_rule(trial.rule_set, proposal.rule, proposal.path), shipped_rules(), trial.corpus, judged)
    again = propose(found, joined, redact=plain)
    assert again.rule is None
    assert proposal.rule.id in again.why_not[0]


def test_lines_without_words_are_not_expressible(trial, case):
    proposal = propose(case("1 2 3", "0xdeadbeef 17"), trial, redact=plain)
    assert proposal.rule is None
    assert proposal.why_not


def test_a_routine_line_is_refused_for_what_it_would_find_in_healthy_jobs(trial, case, rule_set):
    line = "Loss is not finite in question 4: wrong"
    healthy = trial.corpus.fixtures
    log = os.path.join(healthy, "healthy", "healthy-eval-of-errors", "more.log")
    with open(log, "w", encoding="utf-8") as file:
        file.write("Loss is not finite in question 5: wrong\n" * 3)
    try:
        own = Trial(rule_set, shipped_rules(), Corpus(healthy, judged), judged)
        proposal = propose(case(line), own, redact=plain)
        assert proposal.rule is None
        assert any("healthy logs" in why for why in proposal.why_not)
    finally:
        os.unlink(log)


def test_a_rule_that_changes_a_verdict_of_the_corpus_is_refused(trial, case, rule_set):
    proposal = propose(case(BROKER), trial, redact=plain)
    assert proposal.rule is not None
    folder = os.path.join(trial.corpus.fixtures, "incidents", "broker-lines")
    os.makedirs(folder)
    try:
        with open(os.path.join(folder, "job.log"), "w", encoding="utf-8") as file:
            file.write(f"{BROKER}\nOSError: [Errno 28] No space left on device\n")
        with open(os.path.join(folder, "expected.yaml"), "w", encoding="utf-8") as file:
            file.write("{id: broker-lines, inputs: [job.log], status: inconclusive}\n")
        own = Trial(rule_set, shipped_rules(), Corpus(trial.corpus.fixtures, judged), judged)
        changes = own.verdict_changes(replace(proposal.rule, explains=(Edge("storage/*", "job"),)), proposal.path)
        assert [problem.check for problem in changes] == ["incident-verdict"]
        assert "broker-lines" in changes[0].message
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    "line",
    [
        "custom-agent fatal: 'id: evil\nstatus: stable' in \x1b[31mred\x1b[0m !!python/object/apply:os.system ['true']",
        "custom-agent fatal: ]]} - [x]: {{7*7}} &anchor *alias %TAG # comment ' '' \" \\ | > @ ` quota of shard gone",
        "custom-agent fatal: ((((((((((a+)+)+)+)+)+)+$ .* \\p{L} (?P<x>y) (?i) quota of shard gone",
        "custom-agent fatal: \u202equota\u2066 of \u200bshard \ud83d\ude00 gone \ufeff for tenant",
        "--upload-pack=touch /x custom-agent fatal: quota of shard gone",
        "custom-agent fatal: quota of shard gone " + "lorem ipsum " * 20_000,
        "custom-agent fatal: " + "{" * 300 + " quota of shard gone " + "[" * 300,
    ],
)
def test_hostile_lines_become_harmless_rules_or_none(trial, case, rule_set, line):
    found = case(*line.encode("utf-8", "surrogatepass").decode("utf-8", "replace").split("\n"))
    assert all(len(each.text) <= LINE_CHARS for each in found.lines)
    proposal = propose(found, trial, redact=plain)
    if proposal.rule is None:
        assert proposal.why_not
        return
    back, problems = decode(proposal.text.encode(), "rule.yml", type(proposal.rule))
    assert (back, problems) == (proposal.rule, [])
    assert proposal.rule.status == "experimental"
    assert "\x1b" not in proposal.text
    assert proposal.rule.id.replace("-", "").isalnum()
    assert len(proposal.text) < 8_000


def test_case_of_an_incident_of_the_memory(trial, rule_set):
    text = "step 1\nlease-broker on <host-1>: fence 17 is behind 19 for <user-2>, giving up\nexit"
    incident = Incident("inc-1", "NetworkError", text=text, confirmed=True)
    proposal = propose(case_of_incident(incident, rule_set), trial, redact=str)
    assert proposal.rule is not None, proposal.why_not
    assert "<host-1>" not in proposal.text
    assert "lease-broker on gx-001" in proposal.rule.examples.positive[0].log


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"confirmed": False}, "not confirmed"),
        ({"error_type": None}, "no error type"),
        ({"rule": "disk-full", "decided_by": "rules"}, "disk-full decided"),
        ({"error_type": "Nonsense"}, "no error type"),
        ({"text": ""}, "no line"),
    ],
)
def test_incidents_to_make_no_rule_of(rule_set, change, message):
    incident = Incident("inc-1", "NetworkError", text="a\nbroken lease", confirmed=True)
    with pytest.raises(UsageError, match=message):
        case_of_incident(replace(incident, **change), rule_set)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"label": ""}, "--label TYPE"),
        ({"label": "Nope"}, "no error type"),
        ({"label": "ChildFailed"}, "only follows"),
        ({"deciding": ("job.log", 99)}, "no line 99"),
    ],
)
def test_logs_to_make_no_rule_of(case, more, message):
    with pytest.raises(UsageError, match=message):
        case(BROKER, **more)


def test_a_log_that_is_not_there(rule_set):
    with pytest.raises(UsageError, match="no file or directory"):
        case_of_path("/nowhere/at/all", rule_set, error_type="NetworkError")


def test_the_line_that_a_person_names_decides(case):
    found = case("Error: something else failed badly", "the plain line with the cause", deciding=("job.log", 2))
    assert [found.lines[index].text for index in found.deciding] == ["the plain line with the cause"]


def test_wordings_go_from_loose_to_exact():
    body = "fetch of 'shard-1' from peer failed with code 17 after 3 tries"
    assert "code 17" in shape_of(body, "codes").pattern
    assert "code 17" not in shape_of(body, "values").pattern
    assert "'shard-1'" in shape_of(body, "exact").pattern
    assert shape_of("12 34", "codes") is None


def test_invented_values_are_the_same_for_the_same_mark():
    assert invented("<host-3> and <host-3>, <ip-2>") == "gx-003 and gx-003, 10.0.0.2"


def test_files_are_written_whole_and_once(tmp_path):
    path = tmp_path / "a" / "rule.yml"
    write_whole(str(path), "one\n", new=True)
    with pytest.raises(UsageError, match="exists"):
        write_whole(str(path), "two\n", new=True)
    assert path.read_text() == "one\n"
    write_whole(str(path), "three\n")
    assert path.read_text() == "three\n"
    assert os.listdir(path.parent) == ["rule.yml"]


def test_a_rule_that_would_not_be_read_back_is_not_written(trial, case):
    found = case(BROKER)
    rule = draft(found, found.lines[0], "codes", trial.rule_set, redact=plain, negatives=lambda _: ())
    assert rule is not None
    with pytest.raises(UsageError, match="cannot be written"):
        rule_text(type(rule)(**{**{name: getattr(rule, name) for name in rule.__slots__}, "title": "x" * 300_000}))
