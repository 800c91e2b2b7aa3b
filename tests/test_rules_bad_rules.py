"""Each directory of fixtures/bad_rules provokes one lint message: exactly that one, at its line."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest

from diagnose.rules.lint import lint

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures", "bad_rules")
BASE = os.path.join(ROOT, "_base")
CASES = sorted(name for name in os.listdir(ROOT) if name != "_base")
EXPECTED = re.compile(r"(?P<file>\S+):(?P<line>\d+|-) \[(?P<check>[a-z0-9-]+)\] (?P<part>.+)")


def prepared(name: str, tmp_path) -> str:
    """The directory to lint; where a file has a `.before`, that is what git has and the file is the change."""
    folder = os.path.join(ROOT, name)
    before = [file for file in os.listdir(folder) if file.endswith(".before")]
    if not before:
        return folder
    if shutil.which("git") is None:
        pytest.skip("needs git")
    copy = str(tmp_path / name)
    shutil.copytree(folder, copy)
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
def test_the_message_is_reported_at_its_line(name, tmp_path):
    folder = prepared(name, tmp_path)
    with open(os.path.join(ROOT, name, "expected.txt"), encoding="utf-8") as file:
        wanted = [EXPECTED.fullmatch(line.rstrip("\n")) for line in file]
    found = lint([folder], shipped=BASE, fixtures=os.path.join(folder, ".fixtures"))
    told = "\n".join(str(problem) for problem in found)
    got = sorted((os.path.relpath(problem.path, folder), str(problem.line or "-"), problem.check) for problem in found)
    assert got == sorted((match["file"], match["line"], match["check"]) for match in wanted), told
    for match in wanted:
        assert any(problem.check == match["check"] and match["part"] in problem.message for problem in found), told
        # The directory's name begins with a check that it provokes, so that a message finds its fixture.
    assert any(name.startswith(match["check"]) for match in wanted)


def test_every_check_has_a_fixture():
    from diagnose.rules.lint import CHECKS

    provoked = set()
    for name in CASES:
        with open(os.path.join(ROOT, name, "expected.txt"), encoding="utf-8") as file:
            provoked |= {EXPECTED.fullmatch(line.rstrip("\n"))["check"] for line in file}
    assert {check.name for check in CHECKS} <= provoked


def test_the_base_is_clean():
    assert lint([], shipped=BASE, fixtures=BASE) == []
