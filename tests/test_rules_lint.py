"""Lint as a whole: what it covers, paths, and the parts that look at other things than rules."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace

import pytest

from diagnose.models.rule import RuleSet
from diagnose.rules.lint import CHECKS, engines, lint, lint_paths
from diagnose.rules.lint.base import Context, read_log
from diagnose.rules.lint.checkout import read_fixtures, write_noise
from diagnose.rules.lint.filters import compiled_filter
from diagnose.rules.lint.noise import keyword_hits, measure
from diagnose.rules.lint.patterns import PatternIsSafe
from diagnose.rules.lint.run import context_of, lint_rules
from diagnose.rules.lint.secrets import private
from diagnose.rules.lint.timing import FastOnHostileLines
from diagnose.rules.load import read_rules
from diagnose.rules.secrets import Secrets

BAD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures", "bad_rules")
BASE = os.path.join(BAD, "_base")


def only(rule_set: RuleSet, *ids: str) -> RuleSet:
    return replace(
        rule_set,
        diagnoses=tuple(rule for rule in rule_set.diagnoses if rule.id in ids),
        filters=tuple(rule for rule in rule_set.filters if rule.id in ids),
    )


def test_the_shipped_rules_are_clean(rule_set):
    # Time is left out: a test must not depend on how busy the machine is. `diagnose rules lint` measures it.
    checks = [check for check in CHECKS if check is not FastOnHostileLines]
    found = lint_rules(context_of(rule_set, (os.path.dirname(rule_set.paths["tags"]),)), checks)
    assert [str(problem) for problem in found] == []


def test_each_check_has_its_own_name_and_says_what_it_is_for():
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert all(check.__doc__ for check in CHECKS)


def test_paths_outside_the_shipped_rules_are_linted_with_them_and_reported_alone(tmp_path):
    shutil.copy(os.path.join(BAD, "tag", "gpu-lost.yml"), tmp_path / "gpu-lost.yml")
    for path in (tmp_path, tmp_path / "gpu-lost.yml"):
        assert [(problem.check, problem.line) for problem in lint_paths([str(path)]) if problem.check == "tag"] == [
            ("tag", 11)
        ]
        assert all(problem.path.startswith(str(tmp_path)) for problem in lint_paths([str(path)]))


def test_problems_come_in_the_order_of_files_and_lines(tmp_path):
    for name in ("b", "a"):
        shutil.copytree(os.path.join(BAD, "captures-collect"), tmp_path / name, ignore=shutil.ignore_patterns("*.txt"))
    found = lint([str(tmp_path)], shipped=BASE)
    assert len(found) > 1
    assert found == sorted(found, key=lambda problem: (problem.path, problem.line or 0))


def test_without_re2_the_syntax_is_still_checked(monkeypatch):
    monkeypatch.setattr(engines, "re2_module", lambda: None)
    for name in ("re2-look-around", "re2-possessive", "re2-too-large"):
        rule_set, _ = read_rules([os.path.join(BAD, name)], shipped=BASE)
        assert lint_rules(Context(rule_set), [PatternIsSafe])


def test_a_rule_that_cannot_run_does_not_stop_the_others(tmp_path):
    for name in ("match-none", "pattern", "empty-match"):
        shutil.copytree(os.path.join(BAD, name), tmp_path / name, ignore=shutil.ignore_patterns("*.txt"))
        path = tmp_path / name / "gpu-lost.yml"
        path.write_text(path.read_text().replace("id: gpu-lost", f"id: {name}"))
        path.rename(tmp_path / name / f"{name}.yml")
    assert {"match", "pattern", "empty-match"} <= {problem.check for problem in lint([str(tmp_path)], shipped=BASE)}


@pytest.mark.parametrize(
    "line",
    [
        "key AKIAABCDEFGHIJKLMNOP used",
        "Authorization: Bearer eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.SflKxwRJSM",
        "-----BEGIN RSA PRIVATE KEY-----",
        "https://bob:hunter22@git.example.com/x",
        "api_key=0123456789abcdef",
        "mailto jane@university.edu",
        "connect to 203.1.112.7:29500",
        "/home/jane.doe/train.py",
    ],
)
def test_what_gives_somebody_away_is_found(line, rule_set):
    assert private(line, Secrets(rule_set))


@pytest.mark.parametrize(
    "line",
    [
        "slurm-12@node3.cluster.local",
        "ada@example.com",
        "connect to 10.0.0.1:29500 via 192.168.1.4, 172.16.0.9, 127.0.0.1",
        "documentation 192.0.2.1 and 198.51.100.7 and 203.0.113.9",
        "nvidia-nccl-cu12==2.18.3.1, libcudnn.so.8.9.7.29, NCCL version 2.18.3.1",
        "/home/user/train.py /home/ubuntu/x",
        "password: ********",
        "WorkNCCL(SeqNum=1, OpType=ALLREDUCE)@3",
        "decorator @torch.no_grad",
    ],
)
def test_what_is_invented_passes(line, rule_set):
    assert private(line, Secrets(rule_set)) is None


def test_noise_is_measured(rule_set):
    step = next(rule for rule in rule_set.filters if rule.id == "megatron-step")
    logs = [
        (
            "run.log",
            (
                step.examples.noise[0],
                "hello",
                "[rank3]: RuntimeError: CUDA error: an illegal memory access was encountered",
            ),
        )
    ]
    noise = measure(only(rule_set, "megatron-step", "cuda-illegal-memory-access"), logs)
    assert (noise.lines, noise.left) == (3, 2)
    assert [(rule, name, number) for rule, name, number, _ in noise.findings] == [
        ("cuda-illegal-memory-access", "run.log", 3)
    ]
    assert noise.filters == (("megatron-step", 1),)


def test_a_keyword_may_stand_once_in_each_log(rule_set):
    few = only(rule_set, "cuda-illegal-memory-access")
    word = next(iter(few.diagnoses[0].signatures.values())).keywords[0]
    assert keyword_hits(few, [("a", (word,)), ("b", (word, "x"))]) == ()
    assert keyword_hits(few, [("a", (word, word, word))]) == ((few.diagnoses[0].id, word, 2),)


def test_known_noise_is_written_and_read(tmp_path):
    (tmp_path / "healthy").mkdir()
    write_noise(str(tmp_path), [("a", "x.log", 1, "line"), ("a", "x.log", 2, "line"), ("b", "y.log", 1, "line")])
    assert read_fixtures(str(tmp_path)).noise == {"a": 2, "b": 1}


def test_fixtures_that_are_not_there_are_none(tmp_path):
    found = read_fixtures(str(tmp_path / "nowhere"))
    assert (found.healthy, found.evidence, found.noise) == ((), (), {})


def test_logs_are_read_whatever_they_hold(tmp_path):
    import gzip

    (tmp_path / "a.log").write_bytes(b"ok \xff\n")
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(b"packed\n"))
    assert read_log(str(tmp_path / "a.log")) == "ok \ufffd\n"
    assert read_log(str(tmp_path / "a.log.gz")) == "packed\n"


def test_a_filter_that_does_not_compile_is_no_filter(rule_set):
    assert compiled_filter(replace(rule_set.filters[0], pattern="(")) is None
    assert compiled_filter(replace(rule_set.filters[0], pattern="µ")) is None


def test_a_new_rule_is_held_against_the_examples_and_filters_of_the_others(tmp_path):
    shutil.copytree(os.path.join(BAD, "cross-match"), tmp_path / "cross", ignore=shutil.ignore_patterns("*.txt"))
    shutil.copytree(os.path.join(BAD, "filter-hides"), tmp_path / "hides", ignore=shutil.ignore_patterns("*.txt"))
    rule_set, problems = read_rules([str(tmp_path)], shipped=BASE)
    assert problems == ()
    for chosen, check, part in (
        ("vanish", "cross-match", "matches examples.positive[0] of gpu-lost"),
        ("hang", "filter-hides", "which the filter step-line removes"),
    ):
        found = lint_rules(replace(Context(rule_set), chosen=frozenset([chosen])))
        assert [problem.check for problem in found] == [check]
        assert part in found[0].message
