"""`diagnose rules ...` as people who write rules use it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from diagnose.cli.rules import judged
from diagnose.models import RuleSet
from diagnose.rules.lint.checkout import read_incidents
from diagnose.rules.lint.incidents import VerdictsKept
from diagnose.rules.schema import SCHEMAS, schema_of
from tests.commandline import FIXTURES, HEALTHY, ROOT, Call, caller

RULES = os.path.join(ROOT, "rules")

GOOD = """\
schema: diagnosis-rule/v1
id: fabric-lamp-red
title: The fabric's lamp is red
status: test
level: high
role: cause
error_type: NetworkError
description: >
  The site's fabric manager shows a red lamp when a spine has gone; jobs lose their peers after it.
author: [A. Person]
created: 2026-03-02
references: ['https://example.org/fabric/lamp']
tags: [network]
sources: [job]
signatures:
  main:
    keywords: ['fabric lamp is red']
    pattern: 'fabric lamp is red on (?P<spine>\\w+)'
match: {any: [main]}
captures: {spine: str}
verdict:
  cause: 'The fabric lost {spine}'
  culprit: {switch: '{spine}'}
  hint: 'Ask the network team about {spine}.'
  checks: []
examples:
  positive:
    - log: |
        fabric lamp is red on spine7
      source: job
      expect: {lines: [1], captures: {spine: spine7}}
  negative:
    - why: a green lamp is good news
      source: job
      log: |
        fabric lamp is green on spine7
"""


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    return caller(capsys, monkeypatch)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site's rules with one good rule."""
    folder = tmp_path / "site" / "diagnoses" / "network"
    folder.mkdir(parents=True)
    (folder / "fabric-lamp-red.yml").write_text(GOOD)
    return tmp_path / "site"


def ids(out: str) -> list[str]:
    """The first column of a listing without its head."""
    return [line.split()[0] for line in out.splitlines()[1:]]


# list


def test_list_shows_every_rule(call: Call, rule_set: RuleSet) -> None:
    done = call("rules", "list")
    assert (done.code, done.err) == (0, "")
    assert sorted(ids(done.out)) == sorted(rule.id for rule in rule_set.rules)


def test_list_is_narrowed(call: Call, rule_set: RuleSet) -> None:
    hardware = ids(call("rules", "list", "--family", "hardware").out)
    assert hardware
    assert set(hardware) == {
        rule.id for rule in rule_set.diagnoses if rule_set.taxonomy[rule.error_type].family == "hardware"
    }
    ecc = ids(call("rules", "list", "--type", "ECCError").out)
    assert set(ecc) == {rule.id for rule in rule_set.diagnoses if rule.error_type == "ECCError"}
    assert set(ids(call("rules", "list", "--status", "test").out)) == {
        rule.id for rule in rule_set.rules if rule.status == "test"
    }
    filters = ids(call("rules", "list", "--family", "torch").out)
    assert set(filters) >= {name.removesuffix(".yml") for name in os.listdir(os.path.join(RULES, "filters", "torch"))}


def test_list_holds_a_sites_rules(call: Call, site: Path) -> None:
    assert "fabric-lamp-red" in ids(call("rules", "list", "--rules", str(site)).out)
    assert "fabric-lamp-red" not in ids(call("rules", "list").out)


def test_list_of_an_absent_directory(call: Call, tmp_path: Path) -> None:
    done = call("rules", "list", "--rules", str(tmp_path / "absent"))
    assert (done.code, done.out) == (2, "")
    assert "does not exist" in done.err


# show


def test_show_prints_the_file(call: Call) -> None:
    done = call("rules", "show", "gpu-fallen-off-bus")
    with open(os.path.join(RULES, "diagnoses", "hardware", "gpu-fallen-off-bus.yml"), encoding="utf-8") as file:
        text = file.read()
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith(text)
    assert done.out.startswith("# ")
    assert "hardware" in done.out.split("schema:")[0]
    assert yaml.safe_load(done.out)["id"] == "gpu-fallen-off-bus"


def test_show_says_what_a_site_overrides(call: Call, tmp_path: Path) -> None:
    folder = tmp_path / "site" / "diagnoses" / "hardware"
    folder.mkdir(parents=True)
    shutil.copy(os.path.join(RULES, "diagnoses", "hardware", "gpu-fallen-off-bus.yml"), folder)
    done = call("rules", "show", "gpu-fallen-off-bus", "--rules", str(tmp_path / "site"))
    assert "overrides gpu-fallen-off-bus" in done.out


def test_show_suggests_near_names(call: Call) -> None:
    done = call("rules", "show", "gpu-falen-off-bus")
    assert (done.code, done.out) == (2, "")
    assert "did you mean gpu-fallen-off-bus" in done.err


def test_show_of_a_name_like_no_other(call: Call) -> None:
    done = call("rules", "show", "qqqqqqqqqqqqqqq")
    assert done.code == 2
    assert "diagnose rules list" in done.err


# lint, test, noise


def test_lint_of_a_good_rule(call: Call, site: Path) -> None:
    done = call("rules", "lint", str(site))
    assert (done.code, done.out) == (0, "")
    assert "no problems" in done.err


def test_lint_of_a_link_that_leads_out(call: Call, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "z.yml").symlink_to("/dev/zero")
    done = call("rules", "lint", str(tmp_path / "site"))
    assert done.code == 1
    assert "z.yml: is a link that leads out of its rules directory [file]" in done.out + done.err


def test_lint_of_an_absent_path(call: Call, tmp_path: Path) -> None:
    done = call("rules", "lint", str(tmp_path / "absent"))
    assert done.code == 2
    assert "there is no file or directory" in done.err


def test_examples_of_one_rule(call: Call, site: Path) -> None:
    done = call("rules", "test", "fabric-lamp-red", "--rules", str(site))
    assert (done.code, done.out) == (0, "")
    assert done.err == "1 rule, 2 examples, 0 problems\n"


def test_an_example_that_fails(call: Call, site: Path) -> None:
    path = site / "diagnoses" / "network" / "fabric-lamp-red.yml"
    path.write_text(GOOD.replace("captures: {spine: spine7}", "captures: {spine: spine8}"))
    done = call("rules", "test", "fabric-lamp-red", "--rules", str(site))
    assert done.code == 1
    assert "fabric-lamp-red.yml" in done.out
    assert "spine7" in done.out


def test_examples_of_an_unknown_rule(call: Call) -> None:
    done = call("rules", "test", "no-such-rule")
    assert done.code == 2
    assert "there is no rule no-such-rule" in done.err


def test_a_sites_rule_decides(call: Call, site: Path, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text("step 1\nfabric lamp is red on spine7\n")
    done = call(str(log), "--rules", str(site), "--format", "json")
    report = json.loads(done.out)
    assert report["decided_by"]["rule"] == "fabric-lamp-red"
    assert [(c["kind"], c["id"]) for c in report["culprits"]] == [("switch", "spine7")]


def test_noise_of_a_healthy_log(call: Call) -> None:
    done = call("rules", "noise", HEALTHY)
    assert done.code == 0
    assert "lines" in done.err


def test_noise_waits_for_no_pipe(call: Call, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "a pipe or device, no log" in call("rules", "noise", str(tmp_path / "pipe")).err
    assert "a pipe or device, no log" in call("rules", "noise", "/dev/zero").err
    (tmp_path / "quiet.log").write_text("loading\n")
    assert call("rules", "noise", str(tmp_path)).code == 0


def test_noise_names_what_is_found(call: Call, site: Path, tmp_path: Path) -> None:
    log = tmp_path / "healthy.log"
    log.write_text("step 1\nfabric lamp is red on spine7\n")
    done = call("rules", "noise", str(log), "--rules", str(site))
    assert done.code == 1
    assert "healthy.log:2: fabric-lamp-red: fabric lamp is red" in done.out


def test_noise_of_an_absent_log(call: Call, tmp_path: Path) -> None:
    done = call("rules", "noise", str(tmp_path / "absent.log"))
    assert done.code == 2
    assert "there is no log" in done.err


def test_noise_is_accepted_only_for_the_checkout(call: Call) -> None:
    done = call("rules", "noise", HEALTHY, "--accept")
    assert done.code == 2
    assert "--accept" in done.err


# new


def test_new_is_complete_but_for_what_is_to_fill_in(call: Call, site: Path) -> None:
    """Lint, which takes seconds, is asked once: of both templates and of a rule with a mistake beside them."""
    bad = site / "diagnoses" / "network" / "fabric-lamp-red.yml"
    bad.write_text(GOOD.replace("error_type: NetworkError", "error_type: NetworkEror"))
    written = [site / "diagnoses" / "network" / "my-rule.yml", site / "filters" / "torch" / "my-filter.yml"]
    arguments = ("diagnosis", "my-rule", "--family", "network", "--error-type", "NetworkError")
    for path, words in zip(written, (arguments, ("filter", "my-filter", "--family", "torch")), strict=True):
        done = call("rules", "new", *words, "--dir", str(site))
        assert (done.code, done.err) == (0, "")
        assert str(path) in done.out
    lint = call("rules", "lint", str(site))
    assert lint.code == 1
    assert "fabric-lamp-red.yml:7: " in lint.out
    for path in written:
        problems = [line for line in lint.out.splitlines() if path.name in line]
        assert all(line.endswith("[unfinished]") for line in problems), lint.out
        assert len(problems) >= 9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("diagnosis", "My_Rule", "--family", "network", "--error-type", "NetworkError"), "no rule id"),
        (("diagnosis", "../escape", "--family", "network", "--error-type", "NetworkError"), "no rule id"),
        (("diagnosis", "my-rule", "--family", "network", "--error-type", "Nonsense"), "no error type"),
        (("diagnosis", "my-rule", "--family", "network"), "needs --error-type"),
        (("diagnosis", "my-rule", "--family", "cuda", "--error-type", "NetworkError"), "belongs to the family network"),
        (("filter", "my-rule"), "--family"),
        (("table", "my-rule", "--family", "cuda"), "invalid choice"),
    ],
)
def test_new_says_what_is_wrong(call: Call, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    done = call("rules", "new", *arguments, "--dir", str(tmp_path / "site"))
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize("area", ["../../elsewhere", "{tmp_path}/elsewhere", "a/b", ""])
def test_new_stays_in_its_directory(call: Call, tmp_path: Path, area: str) -> None:
    area = area.format(tmp_path=tmp_path)
    done = call("rules", "new", "filter", "my-rule", "--family", area, "--dir", str(tmp_path / "a" / "b" / "site"))
    assert done.code == 2
    assert not list(tmp_path.rglob("my-rule.yml"))


def test_new_overwrites_nothing(call: Call, site: Path) -> None:
    arguments = ("diagnosis", "fabric-lamp-red", "--family", "network", "--error-type", "NetworkError")
    done = call("rules", "new", *arguments, "--dir", str(site))
    assert done.code == 2
    assert "exists" in done.err
    assert (site / "diagnoses" / "network" / "fabric-lamp-red.yml").read_text() == GOOD


def test_new_where_nothing_can_be_written(call: Call, tmp_path: Path) -> None:
    (tmp_path / "site").write_text("a file")
    done = call("rules", "new", "filter", "my-rule", "--family", "torch", "--dir", str(tmp_path / "site"))
    assert done.code == 2
    assert "choose another --dir" in done.err


# schema


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_committed_schemas_are_what_the_command_prints(call: Call, name: str) -> None:
    done = call("rules", "schema", name)
    with open(os.path.join(RULES, "schemas", f"{name}.json"), encoding="utf-8") as file:
        assert done.out == file.read()
    Draft202012Validator.check_schema(json.loads(done.out))


def test_no_schema_is_missing_or_left_over(call: Call) -> None:
    assert call("rules", "schema").out.split() == list(SCHEMAS)
    assert {name.removesuffix(".json") for name in os.listdir(os.path.join(RULES, "schemas"))} == set(SCHEMAS)


def test_an_unknown_schema(call: Call) -> None:
    done = call("rules", "schema", "nonsense")
    assert done.code == 2
    assert "diagnosis-rule" in done.err


def _files(kind: str) -> list[str]:
    if kind in ("policy", "taxonomy", "tags", "programs"):
        return [os.path.join(RULES, f"{kind}.yml")]
    folder = {
        "diagnosis-rule": "diagnoses",
        "filter-rule": "filters",
        "table": "tables",
        "redaction-rule": "redactions",
    }[kind]
    found = [
        os.path.join(where, name)
        for where, _, names in os.walk(os.path.join(RULES, folder))
        for name in names
        if name.endswith(".yml")
    ]
    return sorted(found)


class _AsWritten(yaml.CSafeLoader):
    """Plain values as rule files mean them: a date is text."""


_AsWritten.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def _keys_as_text(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _keys_as_text(item) for key, item in value.items()}
    return [_keys_as_text(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", sorted(SCHEMAS))
def test_every_shipped_file_keeps_its_schema(kind: str) -> None:
    validator = Draft202012Validator(schema_of(kind))
    wrong: list[str] = []
    for path in _files(kind):
        with open(path, encoding="utf-8") as file:
            value = _keys_as_text(yaml.load(file, _AsWritten))
        wrong += [f"{path}: {error.json_path}: {error.message[:200]}" for error in validator.iter_errors(value)]
    assert _files(kind)
    assert wrong == []


def test_the_schema_refuses_what_the_loader_refuses() -> None:
    validator = Draft202012Validator(schema_of("diagnosis-rule"))
    good = yaml.load(GOOD, _AsWritten)
    assert validator.is_valid(good)
    assert not validator.is_valid({**good, "priority": 3})
    assert not validator.is_valid({**good, "role": "victim"})
    assert not validator.is_valid({name: value for name, value in good.items() if name != "examples"})


def test_the_verb_alone_tells_its_verbs(call: Call) -> None:
    done = call("rules")
    assert done.code == 2
    assert "usage" in done.err
    assert call("rules", "--help").out.count("diagnose rules ") >= 7


def test_lint_judges_incidents_as_the_command_line_does(rule_set: RuleSet) -> None:
    folder = os.path.join(FIXTURES, "incidents", "xid-cleanup-after-keyerror")
    (incident,) = [labelled for labelled in read_incidents(FIXTURES) if labelled.folder == folder]
    before = os.getcwd()
    report = judged(rule_set, incident.folder, incident.inputs)
    assert (report.status, report.error_type) == (incident.status, incident.error_types[0])
    assert os.getcwd() == before


def test_only_the_whole_set_is_held_against_the_incidents(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("diagnose.rules.lint.run.CHECKS", (VerdictsKept,))
    monkeypatch.setattr(
        "diagnose.rules.lint.run.lint_rules", lambda context: asked.append(len(context.incidents)) or []
    )
    assert call("rules", "lint").code == 0
    assert call("rules", "lint", os.path.join(RULES, "filters")).code == 0
    assert asked[0] > 50
    assert asked[1] == 0


def test_a_new_rule_of_an_installed_program_goes_where_its_author_works(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site-packages" / "diagnose" / "shipped" / "rules"
    shutil.copytree(RULES, installed)
    monkeypatch.setattr("diagnose.rules.new.shipped_rules", lambda: str(installed))
    monkeypatch.chdir(tmp_path)
    arguments = ("rules", "new", "diagnosis", "spine-lamp-red", "--error-type", "NetworkError")
    done = call(*arguments)
    assert done.code == 2
    assert "--dir" in done.err
    checkout = tmp_path / "checkout"
    shutil.copytree(RULES, checkout / "rules")
    (checkout / "docs").mkdir()
    monkeypatch.chdir(checkout / "docs")
    assert call(*arguments).code == 0
    assert (checkout / "rules" / "diagnoses" / "network" / "spine-lamp-red.yml").exists()
    assert not list(installed.rglob("spine-lamp-red.yml"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("diagnosis", "x-y", "--family", "network"), "needs --error-type"),
        (("diagnosis", "x-y", "--error-type", "Nonsense"), "'Nonsense' is no error type"),
        (("filter", "x-y"), "needs --family"),
    ],
)
def test_new_says_what_it_needs(call: Call, arguments: tuple[str, ...], told: str) -> None:
    done = call("rules", "new", *arguments)
    assert done.code == 2
    assert told in done.err


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("sources: [job]", "sources: [kernel]", "add job to sources"),
        ("keywords: ['fabric lamp is red']", "keywords: ['fabric lamp is blue']", "none of the keywords"),
        ("is red on (?P", "is red at (?P", "compare pattern"),
    ],
)
def test_lint_says_why_an_example_is_not_matched(call: Call, tmp_path: Path, old: str, new: str, told: str) -> None:
    folder = tmp_path / "diagnoses" / "network"
    folder.mkdir(parents=True)
    assert old in GOOD
    (folder / "fabric-lamp-red.yml").write_text(GOOD.replace(old, new))
    done = call("rules", "lint", str(tmp_path))
    assert done.code == 1
    assert told in done.out


def test_a_silenced_rule_is_seen_in_every_rendering(call: Call, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "silenced.yml").write_text("[gpu-out-of-memory]\n")
    log = tmp_path / "job.log"
    log.write_text("step 1 loss 2.5\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    for form in (("--format", "text"), ("--format", "markdown"), ("--format", "json"), ("--explain",)):
        assert "silences gpu-out-of-memory" in " ".join(call(str(log), "--rules", str(site), *form).out.split())
        assert "silences" not in call(str(log), *form).out
