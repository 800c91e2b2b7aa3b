"""The prebuilt rules are the rules, and a cache in any state costs time only."""

from __future__ import annotations

import marshal
import os
import subprocess
import sys
from pathlib import Path

import pytest

from diagnose import cache as files
from diagnose.dataclass import replace
from diagnose.errors import RuleError
from diagnose.models import RuleSet
from diagnose.rules.bundle import load_bundled, slim
from diagnose.rules.packing import packed, unpacked


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "gpu-job-diagnose"


def test_the_bundle_is_the_rules(cache: Path, rule_set: RuleSet) -> None:
    first, second = load_bundled(), load_bundled()
    assert first == second == slim(rule_set)
    assert len(list(cache.iterdir())) == 1


@pytest.mark.parametrize("how", ["empty", "digest only", "half", "one bit", "older format", "deep"])
def test_a_broken_bundle_is_built_again(cache: Path, how: str, rule_set: RuleSet) -> None:
    load_bundled()
    path = next(cache.iterdir())
    data = path.read_bytes()
    middle = len(data) // 2
    broken = {
        "empty": b"",
        "digest only": data[:8],
        "half": data[:middle],
        "one bit": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
        "older format": b"[1, 2]",
        "deep": b"[" * 10_000,
    }
    path.write_bytes(broken[how])
    assert load_bundled() == slim(rule_set)
    assert load_bundled() == slim(rule_set)
    assert path.stat().st_size > 10_000


@pytest.mark.parametrize(
    "held", [(None, None), (None, "x"), (("shared", "Edge", []), 0), (("own", "Edge", [(0, None)]), [])]
)
def test_a_bundle_that_holds_no_rules_is_built_again(cache: Path, held: object, rule_set: RuleSet) -> None:
    load_bundled()
    name = next(cache.iterdir()).name
    files.write(name, marshal.dumps(held))
    assert load_bundled() == slim(rule_set)


def test_a_changed_site_rule_is_seen(cache: Path, tmp_path: Path, rule_set: RuleSet) -> None:
    site = tmp_path / "site"
    (site / "diagnoses").mkdir(parents=True)
    (site / "silenced.yml").write_text("schema: silenced/v1\nids: []\n")
    (site / "diagnoses" / "x.yml").write_text("id: [")
    with pytest.raises(RuleError):
        load_bundled([str(site)])


def test_processes_that_build_it_at_once(cache: Path, rule_set: RuleSet) -> None:
    code = "from diagnose.rules.bundle import load_bundled; print(len(load_bundled().rules))"
    made = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert {process.communicate()[0] for process in made} == {f"{len(rule_set.rules)}\n"}
    assert [path.suffix for path in cache.iterdir()] == [".bin"]
    assert load_bundled() == slim(rule_set)


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule_set: RuleSet) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert load_bundled() == slim(rule_set)
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    assert load_bundled() == slim(rule_set)


def test_rules_are_packed_whole(rule_set: RuleSet) -> None:
    assert unpacked(packed(rule_set)) == rule_set


def _poison(name: str) -> None:
    """Makes the bundle one that can be told from the shipped rules."""
    files.write(name, packed(replace(unpacked(files.read(name)), version="poisoned")))


def test_a_bundle_of_ones_own_is_believed(cache: Path, rule_set: RuleSet) -> None:
    load_bundled()
    path = next(cache.iterdir())
    _poison(path.name)
    assert load_bundled().version == "poisoned"


@pytest.mark.parametrize("how", ["file others write", "folder others write", "foreign file", "link", "pipe", "endless"])
def test_a_bundle_that_others_could_have_written_is_not_believed(
    cache: Path, tmp_path: Path, rule_set: RuleSet, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_bundled()
    path = next(cache.iterdir())
    _poison(path.name)
    data = path.read_bytes()
    if how == "file others write":
        path.chmod(0o666)
    elif how == "folder others write":
        cache.chmod(0o777)
    elif how == "foreign file":
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    else:
        path.unlink()
        if how == "pipe":
            os.mkfifo(path)
        else:
            (tmp_path / "elsewhere").write_bytes(data)
            path.symlink_to("/dev/zero" if how == "endless" else tmp_path / "elsewhere")
    assert load_bundled() == slim(rule_set)


def test_a_cache_that_is_a_link_is_left_alone(cache: Path, tmp_path: Path, rule_set: RuleSet) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for number in range(20):
        (other / f"rules-{number}").write_text("")
    cache.symlink_to(other)
    assert load_bundled() == slim(rule_set)
    assert len(list(other.iterdir())) == 20


def test_old_bundles_and_leftovers_go(cache: Path, rule_set: RuleSet) -> None:
    cache.mkdir(mode=0o700)
    for number in range(10):
        (cache / f"rules-{number:032x}.json").write_text("")
        (cache / f"rules-{number:016x}.bin").write_text("")
    (cache / "rules-left.part").write_text("")
    os.utime(cache / "rules-left.part", (0, 0))
    (cache / "rules-mine.txt").write_text("")
    load_bundled()
    assert len([*cache.glob("*.json"), *cache.glob("*.bin")]) == 8
    assert not list(cache.glob("*.part"))
    assert (cache / "rules-mine.txt").exists()
