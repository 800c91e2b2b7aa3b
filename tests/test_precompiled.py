"""Patterns from codes of an earlier run are those that `re` compiles, whatever state the codes are in."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from diagnose import cache, precompiled


@pytest.fixture(autouse=True)
def nothing_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(precompiled, "_known", {})
    monkeypatch.setattr(precompiled, "_made", {})


def _next_run() -> None:
    """What is known is only what was kept."""
    precompiled.keep()
    precompiled._known.clear()
    precompiled.recall()


# Prints the patterns of all modules that need nothing but the program's own dependencies. In a process of its own:
# here other tests have made patterns too, some of them wrong ones.
_PATTERNS = """
import gc, importlib, pkgutil, diagnose
from diagnose.patterns import Lazy
for module in pkgutil.walk_packages(diagnose.__path__, "diagnose."):
    if module.name.split(".")[1] in ("sources", "compress", "lines", "rules", "report") and "lint" not in module.name:
        importlib.import_module(module.name)
print([(found.pattern, int(found.flags)) for found in gc.get_objects() if isinstance(found, Lazy)])
"""


def _patterns() -> list[tuple[str | bytes, int]]:
    said = subprocess.run([sys.executable, "-c", _PATTERNS], capture_output=True, text=True, check=True, timeout=120)
    found: list[tuple[str | bytes, int]] = ast.literal_eval(said.stdout)
    return found


def test_every_pattern_is_the_same_from_its_code() -> None:
    patterns = _patterns()
    assert len(patterns) > 300
    for pattern, flags in patterns:
        assert precompiled.compile(pattern, flags) == re.compile(pattern, flags)
    _next_run()
    for pattern, flags in patterns:
        compiled, usual = precompiled.compile(pattern, flags), re.compile(pattern, flags)
        assert compiled == usual
        assert (compiled.groupindex, compiled.groups, compiled.flags) == (usual.groupindex, usual.groups, usual.flags)
    assert not precompiled._made


def test_what_is_known_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    precompiled.compile("(?P<a>x)+", re.ASCII)
    _next_run()
    monkeypatch.setattr(precompiled, "_code", lambda *_: pytest.fail("compiled again"))
    monkeypatch.setattr(precompiled.re, "compile", lambda *_: pytest.fail("compiled again"))
    found = precompiled.compile("(?P<a>x)+", re.ASCII).search("wxx")
    assert found is not None
    assert found.groupdict() == {"a": "x"}


@pytest.mark.parametrize(
    "known",
    [None, (), (0, b"", 0, {}, ()), (0, b"\xff" * 40, 1, {}, (None,)), (0, b"abc", 0, {}, (None,)), ("", 1, 2, 3, 4)],
)
def test_a_code_that_is_none_gives_the_pattern_all_the_same(known: object) -> None:
    precompiled._known["a|b", 0] = known  # type: ignore[assignment]
    assert precompiled.compile("a|b") == re.compile("a|b")


@pytest.mark.parametrize("data", [b"", b"[", b"i\x00\x00\x00\x00", b"(\xff\xff\xff"])
def test_a_file_that_holds_no_codes_is_passed_over(data: bytes) -> None:
    cache.write(precompiled._name(), data)
    precompiled.recall()
    assert precompiled.compile("ab*") == re.compile("ab*")


def test_a_wrong_pattern_is_told_as_usual() -> None:
    with pytest.raises(re.error, match="unterminated"):
        precompiled.compile("(")


def test_what_nobody_asks_for_any_more_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_CODES", 2)
    for pattern in ("a", "b"):
        precompiled.compile(pattern)
    _next_run()
    precompiled.compile("c")
    _next_run()
    assert set(precompiled._known) == {("c", 0)}
