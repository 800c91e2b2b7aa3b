"""Directories to one rule set: layers, overrides, silence, bounds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import pytest

from diagnose.errors import RuleError
from diagnose.rules.load import line_of, load_rules, read_rules
from diagnose.rules.tree import MAX_FILE_BYTES, _leads_to_folder, read_tree, shipped_rules

BAD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures", "bad_rules")
BASE = os.path.join(BAD, "_base")


def rule(name: str = "gpu-lost", **changes: str) -> str:
    fields = {"status": "experimental", "title": "GPU lost", "error_type": "GPUFallenOffBus", **changes}
    return f"""\
schema: diagnosis-rule/v1
id: {name}
title: {fields["title"]}
status: {fields["status"]}
level: high
role: cause
error_type: {fields["error_type"]}
description: The device is gone.
author: [tests]
created: 2026-01-02
tags: [gpu]
sources: [job]
signatures:
  lost: {{keywords: ['device vanished'], pattern: 'device vanished'}}
match: {{any: [lost]}}
verdict: {{cause: Gone., hint: Drain.}}
examples: {{positive: [], negative: []}}
"""


def tree(root, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


@pytest.fixture
def shipped(tmp_path):
    files = {name: (Path(BASE) / name).read_text() for name in ("taxonomy.yml", "tags.yml")}
    files |= {
        "VERSION": "1.2.3\n",
        "diagnoses/hardware/gpu-lost.yml": rule(),
        "diagnoses/hardware/gpu-gone.yml": rule("gpu-gone"),
        "deprecated/gpu-old.yml": rule("gpu-old"),
        "policy.yml": "schema: policy/v1\nrules:\n- {id: first, job: restart}\n- {id: last, job: none}\n",
        "tables/codes.yml": "schema: table/v1\ntitle: Codes\nrows:\n  1: {title: one}\n  2: {title: two}\n",
    }
    return tree(tmp_path / "shipped", files)


def load(shipped, *dirs):
    return load_rules(dirs, shipped=shipped)


def test_the_shipped_rules_load(rule_set):
    assert len(rule_set.diagnoses) >= 50
    assert len(rule_set.filters) >= 30
    assert set(rule_set.tables) >= {"nvidia_xid", "nccl_status", "exit_codes"}
    assert rule_set.overridden == ()
    assert "+" not in rule_set.version
    assert all(os.path.exists(path) for path in rule_set.paths.values())
    assert [one.id for one in rule_set.diagnoses] == sorted(one.id for one in rule_set.diagnoses)


def test_the_layout_of_a_directory(shipped):
    found = load(shipped)
    assert [one.id for one in found.diagnoses] == ["gpu-gone", "gpu-lost"]
    assert found.version == "1.2.3"
    assert found.taxonomy["Aborted"].symptom
    assert found.taxonomy["Aborted"].family == "teardown"
    assert found.tables["codes"].rows["2"].key == "2"
    assert [row.id for row in found.policy] == ["first", "last"]
    assert found.paths["gpu-lost"].endswith(os.path.join("hardware", "gpu-lost.yml"))


def test_a_site_overrides_by_id_and_it_is_said(shipped, tmp_path):
    site = tree(tmp_path / "site", {"x.yml": rule(title="Mine")})
    found = load(shipped, site)
    assert next(one for one in found.diagnoses if one.id == "gpu-lost").title == "Mine"
    assert len(found.diagnoses) == 2
    assert len(found.overridden) == 1
    assert found.overridden[0].endswith("x.yml overrides gpu-lost")


def test_the_last_directory_wins(shipped, tmp_path):
    one = tree(tmp_path / "one", {"x.yml": rule(title="One")})
    two = tree(tmp_path / "two", {"y.yml": rule(title="Two")})
    assert {rule.title for rule in load(shipped, one, two).diagnoses if rule.id == "gpu-lost"} == {"Two"}
    assert {rule.title for rule in load(shipped, two, one).diagnoses if rule.id == "gpu-lost"} == {"One"}


def test_a_rule_is_silenced_by_status_or_by_list(shipped, tmp_path):
    site = tree(tmp_path / "site", {"x.yml": rule(status="deprecated"), "silenced.yml": "- gpu-gone\n- nobody\n"})
    found = load(shipped, site)
    assert found.diagnoses == ()
    assert [note.rpartition("site" + os.sep)[2] for note in found.overridden] == [
        "x.yml silences gpu-lost",
        "silenced.yml silences gpu-gone",
        "silenced.yml silences nobody, which does not exist",
    ]


def test_tables_tags_types_and_policy_merge(shipped, tmp_path):
    site = tree(
        tmp_path / "site",
        {
            "tables/codes.yml": "schema: table/v1\ntitle: Codes\nrows:\n  2: {title: zwei}\n  3: {title: drei}\n",
            "tags.yml": "schema: tags/v1\ntags: {rack: a rack}\n",
            "taxonomy.yml": "schema: taxonomy/v1\nerror_types:\n- {name: RackLost, family: node, category: infrastructure, attribution: infrastructure}\n",
            "policy.yml": "rules:\n- {id: last, job: restart}\n- {id: mine, job: wait_and_retry}\n",
        },
    )
    found = load(shipped, site)
    assert {key: row.title for key, row in found.tables["codes"].rows.items()} == {"1": "one", "2": "zwei", "3": "drei"}
    assert set(found.tags) == {"gpu", "rack"}
    assert found.taxonomy["RackLost"].family == "node"
    assert [(row.id, row.job) for row in found.policy] == [
        ("mine", "wait_and_retry"),
        ("first", "restart"),
        ("last", "restart"),
    ]
    notes = "\n".join(found.overridden)
    assert "overrides codes 2" in notes
    assert "overrides the policy row last" in notes
    assert "adds the policy row mine before the shipped ones" in notes


def test_a_policy_row_is_blamed_in_the_file_that_holds_it(shipped, tmp_path):
    one = tree(
        tmp_path / "one", {"policy.yml": "rules:\n- {id: mine, job: none}\n- {id: last, job: none, when: [nonsense]}\n"}
    )
    two = tree(tmp_path / "two", {"policy.yml": "rules:\n- {id: other, job: none}\n"})
    with pytest.raises(RuleError) as raised:
        load(shipped, one, two)
    assert [(problem.path, problem.line) for problem in raised.value.problems] == [
        (os.path.join(one, "policy.yml"), 3),
    ]


def test_the_version_tells_of_added_files(shipped, tmp_path):
    site = tree(tmp_path / "site", {"x.yml": rule(title="One")})
    first = load(shipped, site).version
    assert first.startswith("1.2.3+")
    assert len(first) == len("1.2.3+") + 8
    assert load(shipped, site).version == first
    tree(tmp_path / "site", {"x.yml": rule(title="Two")})
    assert load(shipped, site).version != first


def test_all_problems_of_all_files_come_together(shipped, tmp_path):
    site = tree(
        tmp_path / "site",
        {
            "a.yml": rule("a", error_type="Nonsense"),
            "b.yml": "schema: nonsense\n",
            "c.yml": "a: [",
            "tags.yml": "tags: 1\n",
        },
    )
    with pytest.raises(RuleError) as raised:
        load(shipped, site)
    assert {os.path.basename(problem.path) for problem in raised.value.problems} == {
        "a.yml",
        "b.yml",
        "c.yml",
        "tags.yml",
    }
    assert all(problem.line for problem in raised.value.problems)
    assert "a.yml:7: error_type" in str(raised.value)


def test_the_sound_rules_are_read_beside_the_broken(shipped, tmp_path):
    site = tree(tmp_path / "site", {"a.yml": rule("new"), "b.yml": "a: ["})
    found, problems = read_rules([site], shipped=shipped)
    assert "new" in {one.id for one in found.diagnoses}
    assert len(problems) == 1


def test_a_directory_that_is_not_there_is_a_problem(shipped, tmp_path):
    with pytest.raises(RuleError, match="does not exist"):
        load(shipped, str(tmp_path / "nowhere"))
    (tmp_path / "file").write_text("x")
    with pytest.raises(RuleError, match="is not a directory"):
        load(shipped, str(tmp_path / "file"))


def test_links_must_stay_inside(tmp_path):
    (tmp_path / "secret.yml").write_text(rule("secret"))
    root = tmp_path / "site"
    tree(root, {"a.yml": rule("a")})
    (root / "b.yml").symlink_to(root / "a.yml")
    (root / "c.yml").symlink_to(tmp_path / "secret.yml")
    (root / "d.yml").symlink_to(root / "nothing")
    (root / "loop").symlink_to(root)
    (root / ".hidden.yml").write_text("a: [")
    files, problems = read_tree(str(root))
    assert [file.name for file in files] == ["a.yml", "b.yml"]
    assert {os.path.basename(problem.path): problem.message for problem in problems} == {
        "c.yml": "is a link that leads out of its rules directory",
        "d.yml": "is a link to nothing",
        "loop": "is a link to a directory; such are not followed",
    }


def test_odd_entries_are_problems(tmp_path):
    root = tmp_path / "site"
    tree(root, {"big.yml": "#" * (MAX_FILE_BYTES + 1), "odd.yml/x.yml": rule("x"), "other.yaml": "a: 1", "README": "x"})
    os.mkfifo(root / "pipe.yml")
    deep = root.joinpath(*"abcdefghij")
    tree(deep, {"deep.yml": rule("deep")})
    files, problems = read_tree(str(root))
    assert [file.name for file in files] == ["odd.yml/x.yml"]
    told = "\n".join(str(problem) for problem in problems)
    for part in ("larger than 1 MiB", "named like a rule file", "end in .yml", "not a regular file", "nested deeper"):
        assert part in told


def test_the_number_of_files_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("diagnose.rules.tree.MAX_FILES", 2)
    files, problems = read_tree(tree(tmp_path / "site", {f"{name}.yml": rule(name) for name in "abcd"}))
    assert [file.name for file in files] == ["a.yml", "b.yml"]
    assert [problem.message for problem in problems] == ["more than 2 rule files; split the directory"]


@pytest.mark.parametrize("folder", ["", "below/"])
def test_a_directory_that_is_no_rules_directory_is_given_up(tmp_path, monkeypatch, folder):
    monkeypatch.setattr("diagnose.rules.tree.MAX_ENTRIES", 3)
    site = tree(tmp_path / "site", {f"{folder}{name}.txt": "text" for name in "abcde"[: 5 - bool(folder)]})
    files, problems = read_tree(site)
    assert not files
    assert [problem.message for problem in problems] == ["more than 3 files; give a directory of rules alone"]
    monkeypatch.setattr("diagnose.rules.tree.MAX_ENTRIES", 5)
    assert read_tree(site) == ([], [])


def test_the_number_of_rules_is_bounded(shipped, tmp_path, monkeypatch):
    monkeypatch.setattr("diagnose.rules.load.MAX_RULES", 3)
    site = tree(tmp_path / "site", {f"{name}.yml": rule(name) for name in "ab"})
    with pytest.raises(RuleError, match=r"site: 4 rules with the shipped ones, more than 3; give fewer"):
        load_rules([site], shipped=shipped)


@pytest.mark.parametrize("name", ["'../../../x'", r'"a\nb\x1b[31m"', "'a b'", "''", f"'{'x' * 101}'"])
def test_an_id_is_a_name(shipped, tmp_path, name):
    site = tree(tmp_path / "site", {"x.yml": rule(name)})
    with pytest.raises(RuleError, match=r"x.yml:2: id: .* is no name.*\[id-stem\]$") as told:
        load_rules([site], shipped=shipped)
    assert str(told.value).isprintable()
    policy = f"schema: policy/v1\nrules:\n- {{id: {name}, job: none}}\n"
    with pytest.raises(RuleError, match=r"policy.yml:3: rules\[0\].id: .* is no name"):
        load_rules([tree(tmp_path / "other", {"policy.yml": policy})], shipped=shipped)


@pytest.mark.parametrize("cause", ["GPU[[[[[{x{y} gone", "Gone (in part", "Gone[ on {host}"])
def test_a_malformed_sentence_of_a_site_is_refused(shipped, tmp_path, cause):
    site = tree(tmp_path / "site", {"x.yml": rule("x").replace("cause: Gone.", f"cause: '{cause}'")})
    with pytest.raises(RuleError, match=r"x.yml:16: verdict.cause: has a bracket or quote without its other half"):
        load_rules([site], shipped=shipped)


def test_what_the_system_refuses_to_read_is_a_problem(tmp_path, monkeypatch):
    root = tree(tmp_path / "site", {"a.yml": rule("a"), "b.yml": rule("b"), "shut/c.yml": rule("c")})
    scan = os.scandir

    def refuse(path):
        raise PermissionError(13, "Permission denied", path)

    def opening(path, *rest, **more):
        return refuse(path) if path.endswith("b.yml") else open(path, *rest, **more)

    monkeypatch.setattr(os, "scandir", lambda path: refuse(path) if str(path).endswith("shut") else scan(path))
    monkeypatch.setattr("diagnose.rules.tree.open", opening, raising=False)
    files, problems = read_tree(root)
    assert [file.name for file in files] == ["a.yml"]
    assert {os.path.basename(problem.path): problem.message for problem in problems} == {
        "b.yml": "cannot be read: Permission denied",
        "shut": "cannot be listed: Permission denied",
    }


def test_a_broken_pattern_of_a_site_is_found_at_load(shipped, tmp_path):
    text = rule("a").replace("pattern: 'device vanished'", "pattern: 'device (vanished'")
    with pytest.raises(RuleError, match="does not compile"):
        load(shipped, tree(tmp_path / "site", {"a.yml": text}))


def filter_rule(keyword: str) -> str:
    return f"""\
schema: filter-rule/v1
id: site-banner
title: A banner
status: experimental
action: drop
description: Printed at every start.
author: [tests]
created: 2026-01-02
tags: [gpu]
programs: []
sources: [job]
keywords: ["{keyword}"]
pattern: 'two lines'
examples: {{noise: ['two lines'], signal: []}}
"""


@pytest.mark.parametrize("end", ["\\n", "\\r", "\\r\\n"])
def test_a_keyword_of_a_site_that_holds_a_line_end_is_refused(shipped, tmp_path, end):
    text = rule("a").replace("['device vanished']", f'["device{end}vanished"]')
    with pytest.raises(RuleError, match=r"a.yml:14: signatures.lost.keywords\[0\]: holds a line end"):
        load_rules([tree(tmp_path / "site", {"a.yml": text})], shipped=shipped)
    text = filter_rule(f"two{end}lines")
    with pytest.raises(RuleError, match=r"f.yml:12: keywords\[0\]: holds a line end"):
        load_rules([tree(tmp_path / "other", {"f.yml": text})], shipped=shipped)
    assert load_rules([tree(tmp_path / "sound", {"f.yml": filter_rule("two lines")})], shipped=shipped)


@pytest.mark.parametrize("pattern", ["(?:a{1000}){1000}", "a(?:x|(?:b{30}){40})", "(?:device vanished ){1001,}"])
def test_repeats_beyond_re2_are_refused_before_they_are_compiled(shipped, tmp_path, pattern):
    text = rule("a").replace("pattern: 'device vanished'", f"pattern: 'device vanished{pattern}'")
    with pytest.raises(RuleError, match="RE2 refuses it: a part repeats"):
        load(shipped, tree(tmp_path / "site", {"a.yml": text}))


def test_line_of_falls_back_to_what_is_around():
    path = os.path.join(shipped_rules(), "tags.yml")
    assert line_of(path, "schema") == 1
    assert line_of(path, "tags.nonsense.more") == 2
    assert line_of("/nowhere", "tags") is None


def test_a_link_that_may_not_be_looked_behind_leads_to_no_folder() -> None:
    class Refused:
        def is_dir(self) -> bool:
            raise PermissionError(13, "Permission denied")

    assert not _leads_to_folder(cast("os.DirEntry[str]", Refused()))
