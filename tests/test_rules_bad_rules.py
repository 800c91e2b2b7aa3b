"""Each directory of fixtures/bad_rules provokes one lint message: exactly that one, at its line."""

from __future__ import annotations

import ast
import inspect
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from diagnose.rules import consistency, decode, load, tree
from diagnose.rules.lint import CHECKS, lint
from tests.incidents import run

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures", "bad_rules")
BASE = os.path.join(ROOT, "_base")
CASES = sorted(name for name in os.listdir(ROOT) if name != "_base")


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> str:
    """The shipped rules of these tests: next to nothing, and what secrets look like."""
    copy = tmp_path_factory.mktemp("base")
    shutil.copytree(BASE, copy, dirs_exist_ok=True)
    (copy / "redactions").mkdir()
    for path in sorted((Path(tree.shipped_rules()) / "redactions").glob("*.yml")):
        if re.search(r"^kind: (?:key|password)$", path.read_text(), re.MULTILINE):
            shutil.copy(path, copy / "redactions")
    return str(copy)


def judged(rule_set, folder, arguments):
    return run(folder, arguments, rule_set)


EXPECTED = re.compile(r"(?P<file>\S+):(?P<line>\d+|-) \[(?P<check>[a-z0-9-]+)\] (?P<part>.+)")


def prepared(name: str, tmp_path) -> str:
    """A copy to lint, away from this checkout, since `modified` compares with what git has.

    Where a file has a `.before`, that is what git has and the file is the change.
    """
    copy = str(tmp_path / name)
    shutil.copytree(os.path.join(ROOT, name), copy)
    before = [file for file in os.listdir(copy) if file.endswith(".before")]
    if not before:
        return copy
    if shutil.which("git") is None:
        pytest.skip("needs git")
    changed = {}
    for file in before:
        live = os.path.join(copy, file.removesuffix(".before"))
        with open(live, encoding="utf-8") as stream:
            changed[live] = stream.read()
        os.replace(os.path.join(copy, file), live)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false", "-C", copy]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "before"]):
        subprocess.run([*git, *command], check=True, capture_output=True)
    for live, text in changed.items():
        with open(live, "w", encoding="utf-8") as stream:
            stream.write(text)
    return copy


@pytest.mark.parametrize("name", CASES)
def test_the_message_is_reported_at_its_line(name, tmp_path, base):
    folder = prepared(name, tmp_path)
    with open(os.path.join(ROOT, name, "expected.txt"), encoding="utf-8") as file:
        wanted = [EXPECTED.fullmatch(line.rstrip("\n")) for line in file]
    found = lint([folder], shipped=base, fixtures=os.path.join(folder, ".fixtures"), judge=judged)
    told = "\n".join(str(problem) for problem in found)
    got = sorted((os.path.relpath(problem.path, folder), str(problem.line or "-"), problem.check) for problem in found)
    assert got == sorted((match["file"], match["line"], match["check"]) for match in wanted), told
    for match in wanted:
        assert any(problem.check == match["check"] and match["part"] in problem.message for problem in found), told
        # The directory's name begins with a check that it provokes, so that a message finds its fixture.
    assert any(name.startswith(match["check"]) for match in wanted)


def names_in_the_loader() -> set[str]:
    """The checks that reading rules makes, from its text: in `Problem(...)`, `.bad(...)`, and the tuples of `faults`."""
    found = set()
    for module in (consistency, decode, load, tree):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            parts = []
            if isinstance(node, ast.Call):
                called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                parts = node.args if called in ("Problem", "bad") else []
            elif isinstance(node, ast.Yield) and isinstance(node.value, ast.Tuple) and len(node.value.elts) == 3:
                parts = [None, *node.value.elts]
            if len(parts) >= 3 and isinstance(parts[2], ast.Constant):
                found.add(parts[2].value)
    return found


def test_every_check_has_a_fixture():
    provoked = set()
    for name in CASES:
        with open(os.path.join(ROOT, name, "expected.txt"), encoding="utf-8") as file:
            provoked |= {EXPECTED.fullmatch(line.rstrip("\n"))["check"] for line in file}
    loading = names_in_the_loader()
    assert {"file", "yaml", "unknown-key", "id-unique", "match", "pattern"} <= loading
    assert {check.name for check in CHECKS} | loading == provoked


def test_the_base_is_clean(base):
    assert lint([], shipped=base, fixtures=base) == []
