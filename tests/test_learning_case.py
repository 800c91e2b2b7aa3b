"""Which lines of a failure may decide: said by a label, by a person, or by how they sound."""

from __future__ import annotations

import gzip

import pytest

from diagnose.errors import UsageError
from diagnose.learning.case import Case, CaseLine, case_of_path, trouble


def case_of_lines(*texts: str, label: str = "NetworkError") -> Case:
    """A case that is nothing but lines."""
    lines = tuple(CaseLine("job.log", "job", number, text, text) for number, text in enumerate(texts, 1))
    return Case("job-1", label, lines, (0,))


def test_a_label_beside_the_logs_says_what_and_where(tmp_path, rule_set):
    (tmp_path / "a.log").write_text("fine\nthe culprit stands here\nError: louder\n")
    (tmp_path / "expected.yaml").write_text(
        "{id: x, error_type: DiskFull, inputs: [a.log], evidence: [{source: a.log, line: 2}]}\n"
    )
    case = case_of_path(str(tmp_path), rule_set)
    assert (case.error_type, case.inputs) == ("DiskFull", ("a.log",))
    assert [case.lines[index].text for index in case.deciding] == ["the culprit stands here"]


def test_packed_logs_are_read(tmp_path, rule_set):
    with gzip.open(tmp_path / "a.log.gz", "wt") as file:
        file.write("fine\nfatal: the lease is gone\n")
    case = case_of_path(str(tmp_path / "a.log.gz"), rule_set, error_type="NetworkError")
    assert case.lines[case.deciding[0]].text == "fatal: the lease is gone"


@pytest.mark.parametrize("label", ["[", "x: &a [*a, *a]\ny: *b", "- 1", "\x00"])
def test_a_label_that_is_none_is_told_or_passed_over(tmp_path, rule_set, label):
    (tmp_path / "a.log").write_text("fatal: the lease is gone\n")
    (tmp_path / "expected.yaml").write_text(label)
    told = ""
    try:
        assert case_of_path(str(tmp_path), rule_set, error_type="NetworkError").lines
    except UsageError as error:
        told = str(error)
    assert not told or ("expected.yaml cannot be read" in told and "\n" not in told)


def test_what_sounds_worse_comes_first():
    assert trouble("fatal error: cannot go on") > trouble("error: 3") > trouble("12 34") > trouble("warning: retry")


def test_lines_around(rule_set):
    case = case_of_lines("a", "b", "c", "d", "e", "f", "g", "h", "i")
    near, place = case.around(4)
    assert [line.text for line in near] == ["b", "c", "d", "e", "f", "g", "h"]
    assert near[place].text == "e"
