"""The sentences of rules: what is filled in, what is left out, and that all that ship read well."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.rules.lint.sentences import always_captured, faulty, unagreed
from diagnose.rules.sentences import fill, one_line, required, variants
from diagnose.rules.words import EXCEPTION_HINTS, OTHER_HINT


@pytest.mark.parametrize(
    ("template", "captures", "wanted"),
    [
        ("no names", {}, "no names"),
        ("Rank {rank} died[ on {host}]", {"rank": 0}, "Rank 0 died"),
        ("Rank {rank} died[ on {host}]", {"rank": 0, "host": "n1"}, "Rank 0 died on n1"),
        ("It died[ on {failed|host}]", {"host": "n1"}, "It died on n1"),
        ("It died[ on {failed|host}]", {"host": "n1", "failed": ()}, "It died on n1"),
        ("Died[ on rank {rank} of {host}| on rank {rank}| somewhere]", {"rank": 3}, "Died on rank 3"),
        ("Died[ on rank {rank} of {host}| on rank {rank}| somewhere]", {"host": "n1"}, "Died somewhere"),
        ("[Ranks {ranks}|Some ranks] waited", {"ranks": (0, 1, 2, 5)}, "Ranks 0-2, 5 waited"),
        ("[Ranks {ranks}|Some ranks] waited", {"ranks": (4,)}, "Rank 4 waited"),
        ("[Ranks {ranks}|Some ranks] waited", {"ranks": "4"}, "Rank 4 waited"),
        ("[Ranks {ranks}|Some ranks] waited", {"ranks": ()}, "Some ranks waited"),
        ("Lost nodes {nodes}", {"nodes": "gpu-207-089"}, "Lost node gpu-207-089"),
        ("Lost nodes {nodes}", {"nodes": "gx-[01-04]"}, "Lost nodes gx-[01-04]"),
        ("[Tasks {tasks} {tasks#was|were}|Processes were] killed", {"tasks": "2"}, "Task 2 was killed"),
        ("[Tasks {tasks} {tasks#was|were}|Processes were] killed", {"tasks": "0-3"}, "Tasks 0-3 were killed"),
        ("[Tasks {tasks} {tasks#was|were}|Processes were] killed", {}, "Processes were killed"),
        ("[Nodes {a|b} {a|b#is|are}|A node is] lost", {"b": ("n1",)}, "Node n1 is lost"),
        ("[Nodes {a|b} {a|b#is|are}|A node is] lost", {"a": ("n1", "n2")}, "Nodes n1, n2 are lost"),
        ("{n#It was|They were} there", {}, "They were there"),
        ("[of {job}]", {}, ""),
        ("a[[0]] is {x}", {"x": 1}, "a[0] is 1"),
        ("It is {x}", {}, "It is (unknown)"),
        ("{a}", {"a": "{b}", "b": "secret"}, "{b}"),
        ("{a}", {"a": "[ x {b}]"}, "[ x {b}]"),
        ("It says: {error}", {"error": "\n  no  route.\nmore"}, "It says: no route"),
        ("It says: {error}", {"error": "and so on..."}, "It says: and so on..."),
    ],
)
def test_sentences_are_filled(template, captures, wanted):
    assert fill(template, captures) == wanted


def test_values_are_shown_by_their_type():
    kinds = {"waited": "duration_ms", "size": "bytes"}
    assert fill("{waited}, {size}", {"waited": 600_000, "size": 1 << 30}, kinds) == "10 min, 1 GiB"


@pytest.mark.parametrize(("count", "wanted"), [(0, "0 jobs"), (1, "1 job"), (2, "2 jobs"), (11, "11 jobs")])
def test_words_agree_with_a_count(count, wanted):
    assert fill("{jobs} {jobs#job|jobs}", {"jobs": count}, {"jobs": "int"}) == wanted


def test_lint_names_words_that_do_not_agree():
    kinds = {"count": "int", "name": "str", "tasks": "str"}
    assert list(unagreed("Killed {count} workers", kinds)) == [("{count} workers", "{count} {count#worker|workers}")]
    (found,) = unagreed("[tasks {tasks}|processes] were killed", kinds)
    assert found[1] == "{tasks#was|were}"
    good = "{name} workers of {count} s, {count} {count#job|jobs}, tasks {tasks} {tasks#was|were} killed"
    assert not list(unagreed(good, kinds))


def test_what_a_log_says_is_one_word_of_a_command():
    assert fill("ls -l {file}", {"file": "/a/b.pt"}, command=True) == "ls -l /a/b.pt"
    assert fill("ls -l {file}", {"file": "x; rm -rf $HOME"}, command=True) == "ls -l 'x; rm -rf $HOME'"
    assert fill("ls -l {file}", {"file": "it's"}, command=True) == "ls -l 'it'\"'\"'s'"
    assert fill("on {peers}: ls", {"peers": ("n1", "$(id)")}, command=True) == "on n1, '$(id)': ls"
    assert fill("on ranks {ranks}: ls", {"ranks": (0, 1, 2)}, command=True) == "on ranks 0-2: ls"


@given(st.text(max_size=80), st.text(max_size=40))
def test_no_template_or_value_breaks_filling(template, value):
    fill(template, {"host": value}, command=True)
    assert "\n" not in one_line(value)
    assert all(isinstance(text, str) for text in variants(template, "Value"))


def test_what_is_required_stands_outside_brackets():
    assert required("{a} of {b|c}[ and {d}]") == (("a",), ("b", "c"))


def test_every_way_a_sentence_may_turn_out_is_tried():
    assert set(variants("X[ of {a}][ at {b}]", "V")) == {"X of V at V", "X of V", "X at V", "X"}
    assert set(variants("[A {a}|B] died", "V")) == {"A V died", "B died"}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("A process was killed (rank", "cause"),
        ("Tasks  stopped", "cause"),
        ("Tasks stopped ", "cause"),
        ("tasks stopped", "cause"),
        ("Tasks stopped.", "cause"),
        ("Tasks stopped:", "cause"),
        ("Tasks , all of them", "cause"),
        ("Tasks ( 3)", "cause"),
        ("Tasks () stopped", "cause"),
        ("The file '' is missing", "cause"),
        ('The file "x is missing', "cause"),
        ("Read it;, then go.", "hint"),
        ("Read the log", "hint"),
        ("", "hint"),
        ("ls  -l", "check"),
        ("grep 'x' (", "check"),
        ("on n1: ", "check"),
    ],
)
def test_what_reads_badly_is_told(text, kind):
    assert faulty(text, kind)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("2 of 8 GPUs are visible", "cause"),
        ("/dev/shm is full", "cause"),
        ("Call torch.cuda.init() first, then look.", "hint"),
        ("Was it cancelled?", "hint"),
        ("python -c 'import torch; torch.cuda.init()'", "check"),
        ("du -sh .", "check"),
        ("", "check"),
    ],
)
def test_what_reads_well_passes(text, kind):
    assert faulty(text, kind) is None


@pytest.mark.parametrize("hint", [*EXCEPTION_HINTS.values(), OTHER_HINT])
def test_hints_for_plain_exceptions_read_well(hint):
    assert not required(hint)
    assert [text for text in variants(hint, "Value") if faulty(text, "hint")] == []


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        (r"a (?P<x>\d+)", {"x"}),
        (r"a(?: (?P<x>\d+))?", set()),
        (r"a (?P<x>\d*)", set()),
        (r"a (?P<x>\d+)|b", set()),
        (r"(?:a (?P<x>\d+)|b (?P<y>\w+)) (?P<z>.)", {"z"}),
        (r"(?:(?P<x>a)){1,3}", {"x"}),
        (r"(?P<x>a(?P<y>b)?)", {"x"}),
        (r"(", set()),
    ],
)
def test_what_a_pattern_always_captures(pattern, wanted):
    assert always_captured(pattern) == wanted
