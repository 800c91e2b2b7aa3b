from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.compress.hold import RECORD_HOLD_LINES
from diagnose.lines.assembler import guard_openers
from diagnose.settings import Limits
from tests.recordlines import assemble, read
from tests.test_lines_tracebacks import FORMS

PIECES = [
    *sorted({line for text, _, _ in FORMS.values() for line in text.split("\n")}),
    "", " ", "step 1", "terminate called after throwing an instance of 'c10::Error'", "  what():  boom", "frame #0: f + 0x1 (0x2 in lib.so)",
    "Exception raised from f at a.cpp:1 (most recent call first):", "=" * 60, "-" * 60, "train.py FAILED", "Failures:", "[0]:", "  rank      : 3 (local_rank: 3)",
    "  exitcode  : 1 (pid: 12)", "  traceback : Traceback (most recent call last):", "Root Cause (first observed failure):", "*" * 40,
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", "srun: error: n1: tasks 0-3: Killed", "python invoked oom-killer: gfp_mask=0x1",
    "Call Trace:", " do_exit+0x1/0x2", "Out of memory: Killed process 3 (python)", '{"message": {"message": "KeyError: 1"}}', "{", "}", "[", "kind: Pod",
    "LAST SEEN   TYPE     REASON    OBJECT   MESSAGE", "2m   Normal   Killing   pod/a   Stopping", "JobID|State", "1|FAILED", "JobId=1 JobName=a", "   JobState=FAILED",
    "Name:  x", "Status:  Failed", "Containers:", "  c:", "    State:  Terminated", "      Exit Code:  137", "Events:", "\x00\ufffd", "[n:1] *** Process received signal ***",
    "MPI_ABORT was invoked on rank 0 in communicator", "with errorcode 1.", "ERROR ValueError: x",
]  # fmt: skip
some_lines = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=40)), max_size=40)
tags = st.sampled_from(["", "[rank0]: ", "[rank1]: "])


def clean(text):
    return text.replace("\n", " ")


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(tags, st.one_of(st.sampled_from(PIECES), st.text(max_size=40))), max_size=40),
    st.sampled_from(["job", "kernel"]),
)
def test_every_line_lands_in_exactly_one_record(pieces, kind):
    lines = read("\n".join(tag + clean(text) for tag, text in pieces), kind=kind)
    found = [record for record in assemble(lines) if record.kind != "scheduler"]
    assert sorted(line.number for record in found for line in record.lines) == [line.number for line in lines]
    for record in found:
        assert record.text == "\n".join(line.text for line in record.lines)
        assert all(0 <= item.line_index < len(record.lines) for item in record.exceptions)
        assert all(0 <= item.line_index < len(record.lines) for item in record.failures)


@settings(max_examples=200, deadline=None)
@given(some_lines)
def test_scheduler_sources_never_raise(pieces):
    lines = read("\n".join(map(clean, pieces)), kind="scheduler", tags=False)
    for record in assemble(lines):
        assert record.lines


@settings(max_examples=200, deadline=None)
@given(some_lines, some_lines, st.randoms(use_true_random=False))
def test_two_ranks_interleaved_give_the_records_of_each_alone(first, second, random):
    one = [("[rank0]: ", clean(text)) for text in first]
    two = [("[rank1]: ", clean(text)) for text in second]
    mixed = []
    left, right = list(one), list(two)
    while left or right:
        mixed.append((left if left and (not right or random.random() < 0.5) else right).pop(0))

    def records(pieces, tag):
        found = assemble(read("\n".join(a + b for a, b in pieces)))
        return [
            (r.kind, r.text, r.exceptions, r.failures)
            for r in found
            if r.first.text.startswith(tag) and r.kind != "scheduler"
        ]

    if one:
        assert sorted(map(repr, records(mixed, "[rank0]"))) == sorted(map(repr, records(one, "[rank0]")))
    if two:
        assert sorted(map(repr, records(mixed, "[rank1]"))) == sorted(map(repr, records(two, "[rank1]")))


def test_a_gap_in_the_raw_lines_ends_a_record():
    lines = read('Traceback (most recent call last):\n  File "a.py", line 1, in f\n    f()\nKeyError: 1\n  more')
    near = [line if line.number < 5 else _at(line, 4 + RECORD_HOLD_LINES) for line in lines]
    far = [line if line.number < 5 else _at(line, 5 + RECORD_HOLD_LINES) for line in lines]
    assert [len(record.lines) for record in assemble(near)] == [5]
    assert [len(record.lines) for record in assemble(far)] == [4, 1]


def test_stale_records_of_other_streams_come_out_while_lines_flow():
    from tests.recordlines import RecordAssembler

    lines = read("[rank0]: Traceback (most recent call last):\n" + "\n".join(f"line {n}" for n in range(200)))
    assembler = RecordAssembler(lines[0].source, Limits())
    found = [record for line in lines for record in assembler.feed(line)]
    assert "traceback" in {record.kind for record in found}


def test_many_streams_may_be_open_at_once():
    texts = FORMS["plain"][0].split("\n")
    mixed = "\n".join(f"[rank{rank}]: {text}" for text in texts for rank in range(200))
    found = assemble(mixed)
    assert len(found) == 200
    assert {record.kind for record in found} == {"traceback"}


def test_guard_openers_are_literals_a_guard_can_use():
    openers = guard_openers()
    assert len(set(openers)) == len(openers)
    assert all(len(opener) >= 5 for opener in openers)
    assert "Traceback (most recent call last)" in openers
    assert "srun: error: " in openers


def _at(line, number):
    from dataclasses import replace

    return replace(line, number=number)
