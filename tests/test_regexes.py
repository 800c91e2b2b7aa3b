"""Patterns from codes of an earlier run are those that `regex` compiles, whatever state the codes are in."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import regex

from diagnose import cache, regexes
from diagnose.models import RuleSet
from tests.commandline import environment

_SEARCH = """
import json, sys
from diagnose import regexes
found = [regexes.compile(pattern, regexes.ASCII).search("rank 3: oh no", timeout=5) for pattern in sys.argv[1:]]
print(json.dumps([[match and match.group(), "regex" in sys.modules] for match in found]))
regexes.keep()
"""


@pytest.fixture(autouse=True)
def nothing_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(regexes, "_kept", None)


def _next_run() -> None:
    """What is known is only what was kept."""
    regexes.keep()
    regexes._kept = None


def _in_a_process(tmp_path: Path, *patterns: str) -> tuple[list[list[str | None]], bool]:
    """What patterns find in a text, in a process of its own, and whether the compiler was loaded there."""
    told = subprocess.run(
        [sys.executable, "-c", _SEARCH, *patterns],
        capture_output=True,
        check=True,
        env=environment({"XDG_CACHE_HOME": str(tmp_path)}),
    )
    rows = json.loads(told.stdout)
    return [row[:1] for row in rows], any(row[1] for row in rows)


def test_the_flags_are_those_of_the_engine() -> None:
    assert (regexes.ASCII, regexes.MULTILINE, regexes.IGNORECASE) == (regex.ASCII, regex.MULTILINE, regex.IGNORECASE)


def test_every_rules_pattern_is_the_same_from_its_code(rule_set: RuleSet) -> None:
    patterns = [each.pattern for rule in rule_set.diagnoses for each in rule.signatures.values() if each.pattern]
    assert len(patterns) > 300
    texts = [text for rule in rule_set.diagnoses for example in rule.examples.positive for text in [example.log]]
    usual = {pattern: regex.compile(pattern, regex.ASCII) for pattern in patterns}
    for pattern in patterns:
        regexes.compile(pattern, regexes.ASCII)
    _next_run()
    for number, pattern in enumerate(patterns):
        compiled = regexes.compile(pattern, regexes.ASCII)
        assert pickle.dumps(compiled) == pickle.dumps(usual[pattern])
        assert dict(compiled.groupindex) == dict(usual[pattern].groupindex)
        text = texts[number % len(texts)]
        for one, other in zip(compiled.finditer(text), usual[pattern].finditer(text), strict=True):
            assert (one.span(), one.groupdict()) == (other.span(), other.groupdict())
    assert regexes._kept is not None
    assert not regexes._kept.made


def test_what_is_known_needs_no_compiler(tmp_path: Path) -> None:
    patterns = (r"rank (?P<rank>\d+)", r"(?i)OH (?:no|yes)\b", r"(?<=rank )\d(?!\d)")
    found, loaded = _in_a_process(tmp_path, *patterns)
    assert loaded
    again, loaded = _in_a_process(tmp_path, *patterns)
    assert not loaded
    assert again == found == [["rank 3"], ["oh no"], ["3"]]
    more, loaded = _in_a_process(tmp_path, patterns[0], "oh")  # one is known, for the other the compiler comes later
    assert loaded
    assert more == [["rank 3"], ["oh"]]


@pytest.mark.parametrize("code", [(), ("a", 1), None])
def test_a_code_that_is_none_gives_the_pattern_all_the_same(code: tuple[object, ...] | None) -> None:
    regexes.compile("x")
    assert regexes._kept is not None
    regexes._kept.codes["a|b", 0] = code  # type: ignore[assignment]
    assert regexes.compile("a|b") == regex.compile("a|b")


def test_the_code_of_another_pattern_is_not_taken_for_it() -> None:
    regexes.compile("a")
    assert regexes._kept is not None
    regexes._kept.codes["b", 0] = regexes._kept.codes["a", 0]
    assert regexes.compile("b").search("a") is None


@pytest.mark.parametrize("data", [b"", b"[", b"i\x00\x00\x00\x00", b"(\xff\xff\xff"])
def test_a_file_that_holds_no_codes_is_passed_over(data: bytes) -> None:
    regexes.compile("x")
    assert regexes._kept is not None
    cache.write(regexes._kept.name, data)
    regexes._kept = None
    assert regexes.compile("ab*") == regex.compile("ab*")


def test_an_engine_that_cannot_be_found_alone_costs_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regexes, "_engine", lambda: 1 / 0)
    assert regexes.compile("ab*") == regex.compile("ab*")
    regexes.keep()


def test_a_wrong_pattern_is_told_as_usual() -> None:
    with pytest.raises(regex.error, match="missing"):
        regexes.compile("(")
