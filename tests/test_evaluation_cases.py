"""Labelled cases on disk: every layout, and what is wrong with one is said and spares the others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from diagnose.errors import UsageError
from diagnose.evaluation.cases import find_cases
from diagnose.evaluation.model import Blamed, Place
from diagnose.evaluation.requests import request_of
from tests.incidents import FIXTURES

LABEL = """\
error_type: ECCError
accept: [CUDAError]
attribution: infrastructure
accept_attribution: [unknown]
root_cause_line: [3, 7]
culprit: [{kind: host, id: gx-04}, {kind: rank, id: 6}]
recovery: {job: [restart_elsewhere], node: act}
"""


def write(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def test_a_label_beside_its_log(tmp_path: Path) -> None:
    root = write(tmp_path, {"cases/c1.log": "x\n", "cases/c1.yaml": LABEL})
    (case,) = find_cases([root]).cases
    assert (case.name, case.folder, case.inputs) == ("cases/c1", os.path.join(root, "cases"), ("c1.log",))
    assert (case.status, case.error_types, case.label) == ("failed", ("ECCError", "CUDAError"), "ECCError")
    assert case.attributions == ("infrastructure", "unknown")
    assert case.lines == (Place("", 3), Place("", 7))
    assert case.culprits == (Blamed("host", ("gx-04",)), Blamed("rank", ("6",)))
    assert (case.job, case.node, case.counted) == (("restart_elsewhere",), "act", ("host", "rank"))


def test_a_folder_with_inputs(tmp_path: Path) -> None:
    label = "error_type: null\nstatus: inconclusive\ninputs: [logs, --kernel-log, k.dmesg]\nroot_cause_at: [{source: k.dmesg, line: 2}]\n"
    root = write(tmp_path, {"m1/case.yaml": label, "m1/logs/a.log": "x\n", "m1/k.dmesg": "y\n"})
    (case,) = find_cases([root]).cases
    assert (case.name, case.status, case.label) == ("m1", "inconclusive", "inconclusive")
    assert case.lines == (Place("k.dmesg", 2),)
    request = request_of(case.inputs)
    assert (request.paths, request.kernel_logs) == (["logs"], ["k.dmesg"])


def test_logs_without_a_label_in_a_folder_named_healthy(tmp_path: Path) -> None:
    root = write(tmp_path, {"healthy/a.log.gz": "", "healthy/b.log": "", "healthy/notes.txt": "", "other/c.log": ""})
    assert [(case.name, case.label) for case in find_cases([root]).cases] == [
        ("healthy/a", "no_failure"),
        ("healthy/b", "no_failure"),
    ]
    assert len(find_cases([os.path.join(root, "healthy")]).cases) == 2


def test_our_own_fixtures_are_all_read() -> None:
    for group in ("incidents", "healthy", "inconclusive"):
        root = os.path.join(FIXTURES, group)
        found = find_cases([root])
        assert found.unread == ()
        assert len(found.cases) == len([name for name in os.listdir(root) if os.path.isdir(os.path.join(root, name))])


def test_rules_and_data_are_no_cases(tmp_path: Path) -> None:
    files = {
        "rule.yml": "schema: x/v1\nerror_type: A\n",
        "pod.yaml": "kind: Pod\n",
        "list.yaml": "[1]\n",
        ".git/case.yaml": "{",
        "torn.yaml": "{",
    }
    found = find_cases([write(tmp_path, {**files, "c.log": "x", "c.yaml": LABEL})])
    assert ([case.name for case in found.cases], found.unread) == (["c"], ())


@pytest.mark.parametrize(
    ("label", "told"),
    [
        ("error_type: [", "is no YAML"),
        ("error_type: \x00", "is no YAML"),
        ("error_type: 7\n", "error_type is '7', no word"),
        ("error_type: A\nstatus: broken\n", "status is 'broken'"),
        ("error_type: A\nattribution: me\n", "attribution is 'me', none of infrastructure"),
        ("error_type: A\nroot_cause_line: nine\n", "root_cause_line has 'nine'"),
        ("error_type: A\nroot_cause_line: 0\n", "root_cause_line has '0'"),
        ("error_type: A\nroot_cause_at: [a:3]\n", "an entry is written {source: a.log, line: 7}"),
        ("error_type: A\nroot_cause_at: [{source: a, line: true}]\n", "root_cause_at has"),
        ("error_type: A\nculprit: [gx-04]\n", "an entry is written {kind: host, id: gx-04}"),
        ("error_type: A\naccept: B\n", "accept is to be a list"),
        ("error_type: A\nrecovery: restart\n", "recovery is written"),
        ("error_type: A\njob: [explode]\n", "job is 'explode'"),
        ("error_type: A\nnode: burn\n", "node is 'burn'"),
        ("error_type: A\ninputs: []\n", "inputs is empty"),
        ("error_type: A\ninputs: [gone.log]\n", "there is no gone.log"),
        ("error_type: A\ninputs: [--output, x]\n", "inputs has '--output'"),
        ("error_type: A\ninputs: ['-']\n", "inputs has '-'"),
        ("error_type: A\ninputs: [bad.log, --kernel-log]\n", "inputs has '--kernel-log'"),
        ("error_type: A\n# " + "x" * (1 << 20), "larger than 1 MiB"),
        ("error_type: " + "[" * 5000, "is no YAML"),
    ],
)
def test_what_is_wrong_with_a_label_is_said_and_spares_the_others(label: str, told: str, tmp_path: Path) -> None:
    found = find_cases([write(tmp_path, {"c.log": "", "c.yaml": LABEL, "bad.log": "", "bad.yaml": label})])
    assert [case.name for case in found.cases] == ["c"]
    assert [one.name for one in found.unread] == ["bad"]
    assert told in found.unread[0].why
    assert "\n" not in found.unread[0].why


def test_a_label_without_its_log(tmp_path: Path) -> None:
    found = find_cases([write(tmp_path, {"c.yaml": LABEL})])
    assert "there is no c.log beside c.yaml" in found.unread[0].why


def test_a_label_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "case.yaml").write_bytes(b"error_type: \xff\n")
    assert len(find_cases([str(tmp_path)]).unread) == 1


def test_a_label_that_is_no_file_is_not_opened(tmp_path: Path) -> None:
    """To read a pipe would be to wait for ever; a link may lead to one, or to a device."""
    (tmp_path / "a").mkdir()
    os.mkfifo(tmp_path / "a" / "expected.yaml")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "expected.yaml").symlink_to("/dev/zero")
    found = find_cases([str(tmp_path)])
    assert [one.why for one in found.unread] == ["expected.yaml is no file"] * 2


def test_no_cases_and_no_directory(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no labelled cases under"):
        find_cases([str(tmp_path)])
    with pytest.raises(UsageError, match="is no directory"):
        find_cases([str(tmp_path / "gone")])


def test_names_stay_apart_where_there_are_several_directories(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {"a/c.log": "", "a/c.yaml": LABEL, "b/c.log": "", "b/c.yaml": LABEL, "x/a/c.yaml": LABEL, "x/a/c.log": ""},
    )
    names = [case.name for case in find_cases([os.path.join(root, "a"), os.path.join(root, "b")]).cases]
    assert names == ["a/c", "b/c"]
    with pytest.raises(UsageError, match="two cases are named a/c"):
        find_cases([os.path.join(root, "a"), os.path.join(root, "x", "a")])
    again = find_cases([os.path.join(root, "a"), os.path.join(root, "a")])
    assert len(again.cases) == 1
