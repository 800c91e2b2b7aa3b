"""The compressor's parts: templates, prefixes, bars, the guard."""

from __future__ import annotations

import re

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from diagnose.compress import PREFIX, Guard, expand, is_bar, relax, template
from diagnose.compress.guard import Answer
from diagnose.compress.prefix import LinePattern, split, writer_span


@pytest.mark.parametrize(
    ("pattern", "relaxed", "changed"),
    [
        (rb"a\d{3}[0-9]\x1b[^\x00-\x7f]{2,40}", rb"a\d{3}[0-9]\x1b[^\x00-\x7f]{2,40}", False),
        (rb"fp16 (?P<x1>y)", rb"fp00 (?P<x1>y)", True),
        (rb"0x[a-f]", rb"0x[a-f]", True),
        (rb"[1-5x]\x31", rb"[1-5x0-9]0", True),
        (rb"[^a5]", rb"[^a]", True),
        (rb"[^5]", rb"[\x00-\xff]", True),
    ],
)
def test_relax(pattern, relaxed, changed):
    assert relax(pattern) == (relaxed, changed)


@given(
    st.sampled_from([rb"fp16 [1-3]+", rb"[^7]x\x31?", rb"a0?9{1,2}", rb"\d+[02468]"]), st.text("01379xfp a", max_size=8)
)
def test_a_relaxed_pattern_matches_the_template_of_what_the_real_one_matches(pattern, text):
    line = text.encode()
    if re.fullmatch(pattern, line):
        assert re.fullmatch(relax(pattern)[0], template(line))


PREFIXES = [
    "",
    "12: ",
    "  3: ",
    "[rank3]:",
    "[rank3]: ",
    "[default3]:",
    "[1,3]<stdout>:",
    "gx-043: ",
    "10.0.0.4: ",
    "(RayTrainWorker pid=4711, ip=10.0.0.4) ",
    "(VllmWorker rank=3 pid=4711) ",
    "[pod/train-0/pytorch] ",
    "2026-03-01 10:00:00,123 - INFO - ",
    "2026-03-01T10:00:00.123456Z ",
    "2026-03-01T10:00:00.123456789Z stdout F ",
    "[2026-03-01 10:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] ",
    "[2026-03-01 10:00:00,123][root][INFO] - ",
    "I0302 12:00:00.000000 123 file.cc:12] ",
    "INFO:lab.train:",
    "2026-03-01 10:00:00.123 | INFO     | lab.train:fit:12 - ",
    "03/01/2026 10:00:00 - INFO - __main__ - ",
    "2026-03-01 10:00:00,123\tINFO train.py:12 in main -- ",
    "i.pretrain/0 [default0]:",
    "[rank0]:[titan] 2026-03-01 10:00:00,123 - root - INFO - ",
    "Mar  1 10:00:00 gx-043 kernel: [8123.412345] ",
    "[Sun Mar  1 10:00:00 2026] ",
    "0: [NeMo I 2026-03-01 10:00:00 megatron_init:269] ",
    "worker-1  | ",
    "\x1b[36m(TaskRunner pid=4711)\x1b[0m ",
    "INFO 03-01 10:00:00 [loggers.py:118] ",
]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_prefixes(prefix):
    assert re.fullmatch(expand("{prefix}done"), (prefix + "done").encode())
    assert re.fullmatch(expand("{prefix}done"), ("gx-011: [rank1]:" + prefix + "done").encode())


@pytest.mark.parametrize("line", ["ERROR - done", "not done", "2026-03-01 10:00:00,123 - ERROR - done", "[ERROR] done"])
def test_what_is_no_prefix(line):
    assert not re.fullmatch(expand("{prefix}done"), line.encode())


@pytest.mark.parametrize(
    "own", ["done", r"\[NeMo I [^]]*\] done", r" *\d*:? ?done", r"a|(?:\[.*\] )?done", r"- - done"]
)
def test_a_line_pattern_matches_what_it_stands_for(own):
    whole = re.compile(expand("{prefix}" + own))
    prefixed, behind = split("{prefix}" + own)
    pattern = LinePattern(behind, prefixed=prefixed)
    for prefix in ("", *PREFIXES):
        for end in ("done", "not done", "a", "- done", "- - done"):
            line = (prefix + end).encode()
            assert pattern.matches(line) == (whole.fullmatch(line) is not None), line


def test_the_prefix_is_safe_and_blind_to_digits():
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    assert re2.compile(PREFIX, options).fullmatch(b"12: ")
    assert relax(PREFIX) == (PREFIX, False)


@pytest.mark.parametrize(
    ("line", "per", "name"),
    [
        (b"[rank3]: [default1]: x", "rank", b"[rank3]"),
        (b" 12: step 3", "rank", b" 12: "),
        (b"node012:8812:9013 [3] NCCL INFO", "rank", b"node012:8812:9013 [3]"),
        (b"(W pid=47, ip=10.0.0.4) x", "host", b"ip=10.0.0.4"),
        (b"gx-043: x", "host", b"gx-043: "),
        (b"plain text", "rank", b""),
        (b"[rank3]: x", "job", b""),
    ],
)
def test_who_wrote_a_line(line, per, name):
    assert line[slice(*writer_span(line, per))] == name
    assert writer_span(template(line), per) == writer_span(line, per)


@pytest.mark.parametrize(
    "text",
    [
        " 31%|###  | 310/1000 [05:12<11:01,  1.04it/s]",
        "Epoch 0:  12%|#2 | 120/1000 [00:31<03:45,  3.90it/s, v_num=4, loss=2.31]",
        "31it [00:12,  8.2it/s]",
        "  0%|          | 0/90 [00:00<?, ?it/s]",
        "  120/1875 [>.............................] - ETA: 1:02 - loss: 0.4123",
        "     \u2501\u2501\u2501\u2501\u2501 12.3/45.6 MB 102.1 MB/s eta 0:00:01",
        "Downloading: 45%",
        "\x1b[A",
        "\x1b[2K   ",
    ],
)
def test_bars(text):
    assert is_bar(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "Traceback (most recent call last):",
        " 31%|###  | 310/1000 [05:12<11:01,  1.04it/s]RuntimeError: x",
        " 31%|###  | 310/1000 [05:12<11:01,  1.04it/s, loss=nan]",
        "loss dropped by 31% after step 4",
        "[rank3]",
        "x" * 2000,
    ],
)
def test_no_bars(text):
    assert not is_bar(text.encode())


def test_guard():
    guard = Guard(["CUDA error", "Xid 79", ""])
    assert guard.hits(b"a CUDA error")
    assert guard.hits(b"Xid 79")
    assert not guard.hits(b"Xid 78")
    assert guard.judge(template(b"CUDA error 3")) is Answer.SURE
    assert guard.judge(template(b"Xid 12")) is Answer.MAYBE
    assert guard.judge(b"nothing") is Answer.NO
    assert guard.find(b"Xid 79 CUDA error") == [(0, 6), (7, 17)]
    assert not Guard([]).hits(b"anything")
