"""The reader over whole sources: streams, several stamps, bounds, and any bytes at all."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from diagnose.lines import Calendar, LineReader
from diagnose.models import KeptLine, Line, LogSource
from diagnose.settings import Limits


def read(*raws: str | bytes, source: LogSource | None = None, calendar: Calendar | None = None) -> list[Line]:
    reader = LineReader(source or LogSource("job.log"), Limits(), calendar)
    lines = []
    for number, raw in enumerate(raws, 1):
        lines += reader.read(KeptLine(number, raw.encode() if isinstance(raw, str) else raw, guarded=True))
    return lines + reader.finish()


def test_what_the_source_says_fills_in():
    source = LogSource("gx-1/rank_3.log", host="gx-1", rank=3, local_rank=1)
    (line, other) = read("step 1", "[rank5]: relayed", source=source)
    assert (line.rank, line.local_rank, line.host, line.stream) == (3, 1, "gx-1", "gx-1/rank_3.log")
    assert other.rank == 5
    assert other.stream != line.stream


def test_kept_lines_facts_are_passed_on():
    (line,) = LineReader(LogSource("x"), Limits()).read(KeptLine(7, b"step 1", guarded=True, progress="steps"))
    assert (line.number, line.guarded, line.progress) == (7, True, "steps")


def test_ranks_that_interleave_have_streams_of_their_own():
    lines = read("[rank0]: Traceback (most recent call last):", "[rank1]: Traceback (most recent call last):",
                 '[rank0]:   File "a"', '[rank1]:   File "a"', "[rank0]: KeyError: 1", "plain")  # fmt: skip
    assert lines[0].stream == lines[2].stream == lines[4].stream
    assert lines[1].stream == lines[3].stream
    assert len({line.stream for line in lines}) == 3


def test_a_native_stack_stays_in_the_stream_of_its_first_line():
    lines = read("[E ProcessGroupNCCL.cpp:828] [Rank 4] Watchdog caught", "Exception raised from x", "frame #0: a")
    assert lines[0].rank == 4
    assert len({line.stream for line in lines}) == 1


def test_tee_lines_follow_the_rank_their_local_rank_showed():
    lines = read("[default0]:[rank0]:[E415 21:17:08.2 a.cpp:5] x", "[default0]:frame #0: a",
                 "[default0]:[rank8]:[E415 21:17:08.2 a.cpp:5] x", "[default0]:frame #0: b")  # fmt: skip
    assert [line.stream for line in lines] == ["job.log|rank 0"] * 2 + ["job.log|rank 8"] * 2


def test_native_frames_follow_the_tagged_line_before_them():
    lines = read("[rank1]:[E415 21:17:08.2 a.cpp:5] [Rank 1] x", "Exception raised from y", "frame #0: a", "other",
                 "[rank2]:[E415 21:17:09.2 a.cpp:5] [Rank 2] x", "frame #0: b")  # fmt: skip
    assert [line.rank for line in lines] == [1, 1, 1, None, 2, 2]
    assert lines[0].stream == lines[2].stream != lines[3].stream
    assert lines[4].stream == lines[5].stream


def test_an_actor_is_one_process():
    lines = read(
        "(W pid=7, ip=10.0.0.3) [rank10]:[E101 10:00:00.5 x.cpp:5] x", "(W pid=7, ip=10.0.0.3) frame #0", "(W pid=8) z"
    )
    assert [line.rank for line in lines] == [10, 10, None]
    assert lines[0].stream == lines[1].stream != lines[2].stream


def test_labels_that_count_nodes_are_not_ranks():
    texts = ["0: [rank0]: a", "1: [rank9]: b", "1: [rank8]: c", "1: plain", "0: plain"]
    reader = LineReader(LogSource("x"), Limits())
    reader.learn("\n".join(texts).encode() + b"\n")
    lines = [line for text in texts for line in reader.read(KeptLine(1, text.encode()))]
    assert [line.rank for line in lines] == [0, 9, 8, None, None]
    assert len({line.stream for line in lines}) == 5


def test_a_glog_line_does_not_leave_its_stream():
    lines = read("[rank3]: a", "[rank3]:W1130 02:27:49.22 22429 torch/a.py:1] b", "[rank3]: gx-1:5:6 [3] NCCL INFO c")
    assert len({line.stream for line in lines}) == 1


def test_pods_actors_and_syslog_programs_are_streams():
    texts = ["[pod/a-0/main] x", "[pod/a-1/main] x", "(W pid=1, ip=10.0.0.1) x", "(W pid=1, ip=10.0.0.2) x",
             "Apr 14 13:18:01 gx-1 kernel: x", "Apr 14 13:18:01 gx-1 python[7]: x"]  # fmt: skip
    assert len({line.stream for line in read(*texts)}) == len(texts)


def test_yearless_stamps_take_the_year_that_is_near():
    first, second, third = read(
        "2025-12-31 23:59:58 a", "[E1231 23:59:59.5 a.cpp:1] b", "Jan  1 00:00:02 gx-1 kernel: c"
    )
    assert second.time - first.time == pytest.approx(1.5)
    assert third.time - second.time == pytest.approx(2.5)


def test_yearless_stamps_alone_keep_their_order_over_new_year():
    lines = read("Dec 31 23:59:59 gx-1 kernel: a", "Jan  1 00:00:02 gx-1 kernel: b")
    assert lines[1].time - lines[0].time == pytest.approx(3)


def test_the_calendar_tells_other_sources_the_year():
    shared = Calendar()
    read("2026-03-01 00:00:00 a", calendar=shared)
    (line,) = read("Mar  1 00:00:05 gx-1 kernel: b", calendar=shared)
    assert line.time == pytest.approx(1772323205)


def test_learning_finds_the_year_before_the_first_dated_line():
    reader = LineReader(LogSource("x"), Limits())
    reader.learn(b"W1130 02:27:49.22 1 a/b.py:1] x\n2026-11-30 02:27:50 y\n")
    (line,) = reader.read(KeptLine(1, b"W1130 02:27:49.22 1 a/b.py:1] x"))
    assert line.time == pytest.approx(1796005669.22)


def test_times_of_day_take_the_day_before_them():
    lines = read("12:00:00 | early", "2026-01-01 23:59:59 a", "00:00:01 | b", "[00:00:02] c")
    assert lines[0].time is None
    assert [line.time - lines[1].time for line in lines[2:]] == [2, 3]


def test_the_outer_stamp_is_the_clock_of_all_lines():
    outer, bare = read("2026-01-01T00:00:05Z 2026-01-01 08:00:05,000 INFO x", "2026-01-01T00:00:06Z bare")
    assert bare.time - outer.time == 1


def test_uptime_becomes_time_once_the_log_says_when_it_booted():
    source = LogSource("gx-1.dmesg", "kernel")
    lines = read("[    0.000000] Linux", "[    5.000000] rtc_cmos 00:00: setting system clock to 2026-04-25T00:00:05 UTC (1)",
                 "[   65.000000] NVRM: Xid", source=source)  # fmt: skip
    assert lines[0].time is None
    assert lines[2].time == pytest.approx(1777075265)
    assert lines[2].uptime == 65


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\x1b[36m(W pid=7)\x1b[0m x", "(W pid=7) x"),
        (b"\x1b]0;title\x07shown", "shown"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\x1b]0;never ended RuntimeError: x", "0;never ended RuntimeError: x"),
        (b"a\x00b\x07c\td", "abc\td"),
        (b"[31mstep: 1[39m", "step: 1"),
        (b"#033[31mred#033[0m", "red"),
        (b"\xff\xfe caf\xc3\xa9", "\ufffd\ufffd caf\u00e9"),
        ("a\u202eb\u2028c\ufeff".encode(), "ab c"),
        (b"carriage\r", "carriage"),
        (b"lasted [10m] of [2h0m]", "lasted [10m] of [2h0m]"),
    ],
)
def test_cleaning(raw, text):
    (line,) = read(raw)
    assert line.text == text


def test_hundreds_of_prefixes_end():
    (line,) = read("[rank1]: " * 500 + "x")
    assert line.rank == 1
    assert len(line.body) > 400 * 9


PIECES = st.sampled_from([
    b"[rank3]: ", b"12: ", b"2026-01-01 00:00:00,123 ", b"[2026-01-01 00:00:00] ", b"[default1]:", b"{", b"}", b'{"log":"',
    b'\\n","stream":"stderr","time":"2026-01-01T00:00:00Z"}', b"(W pid=3) ", b"INFO ", b"- ", b"| ", b": ", b"[", b"]",
    b"Apr 14 13:18:01 h1 kernel: ", b"\x1b[31m", b"\x1b]", b"\r", b"\x00", b"\xff", b"E0302 12:00:00.0 1 a.cc:1] ", b"<34>",
    b"h1:1:2 [0] NCCL WARN ", b"Traceback (most recent call last):", b'  File "x", line 1', b" ", b"\t", b"timestamp,message",
    b'"', b",", b"9" * 30, b"2026-01-01T00:00:00Z stdout P ", b"2026-01-01T00:00:00Z stderr F ", b'{"message":"x","level":30}',
    b'{"__REALTIME_TIMESTAMP":"1","MESSAGE":[104,105]}', b'"\\ud800"', b"target: ", b"+ ", b"Tue Apr 14 01:18:01 PM UTC 2026 ",
])  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(PIECES | st.binary(max_size=12), max_size=8).map(b"".join), max_size=6), st.booleans())
def test_any_bytes_give_lines(raws, learn):
    raws = [raw.replace(b"\n", b"") for raw in raws]
    reader = LineReader(LogSource("x", rank=1), Limits())
    if learn:
        reader.learn(b"\n".join(raws) + b"\n")
    lines = [line for number, raw in enumerate(raws, 1) for line in reader.read(KeptLine(number, raw))]
    for line in [*lines, *reader.finish()]:
        assert line.time is None or math.isfinite(line.time)
        assert line.uptime is None or math.isfinite(line.uptime)
        assert line.body in line.text
        assert line.stream.startswith("x")
        assert not any(ord(c) < 32 and c != "\t" for c in line.text)
        line.text.encode()


@settings(max_examples=300, deadline=None)
@given(
    st.lists(PIECES | st.text(max_size=12).map(lambda text: text.encode("utf-8", "replace")), max_size=8).map(b"".join)
)
def test_reading_what_was_read_changes_nothing(raw):
    for line in read(raw.replace(b"\n", b"")):
        if line.text.startswith(("{", '"')) or "std" in line.text or "[" * 2 in line.text:
            continue  # a wrapper in a wrapper comes off layer by layer
        (again,) = read(line.text) or [line]
        assert again.text == line.text


@example(value={"log": None, "level": -9, "message": ""})  # a level below syslog's
@given(st.recursive(st.none() | st.integers() | st.text(max_size=8) | st.floats(), lambda inner: st.lists(inner, max_size=3)
                    | st.dictionaries(st.sampled_from(["log", "message", "time", "level", "exc_info", "rank", "host", "labels",
                                                       "_source", "result", "MESSAGE", "_HOSTNAME", "stream", "kubernetes",
                                                       "exception", "frames", "ts", "pid", "jsonPayload"]), inner), max_leaves=12))  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_any_json_gives_lines(value):
    for line in read(json.dumps(value)):
        assert line.time is None or math.isfinite(line.time)
        line.text.encode()


def test_a_host_behind_the_stamp_is_one_once_a_programs_output_follows():
    stamp = "2026-12-24T18:00:11Z "
    first, second, third = read(
        stamp + "gx-3 loads", stamp + "gx-3 Traceback (most recent call last):", stamp + "gx-3 $ x"
    )
    assert (first.host, second.host, third.host) == (None, "gx-3", "gx-3")
    assert third.body == "$ x"
    assert [line.host for line in read(stamp + "llama-7b loaded", stamp + "step-7 Traceback (most")] == [None, None]


def test_lines_of_a_devices_report_are_that_devices():
    lines = read(
        "GPU 00000000:B1:00.0", "    Clocks Event Reasons", "        HW Slowdown : Active", "", "done", "    x"
    )
    assert [line.gpu for line in lines] == [None, "0000:b1:00", "0000:b1:00", "0000:b1:00", None, None]


def test_the_label_of_a_task_that_runs_torchrun_is_no_rank():
    agent = "W1109 09:19:58.308143 7012 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 7100"
    text = "".join(f"0: {line}\n" for line in ("Traceback (most recent call last):", "KeyError: 1", agent))
    reader = LineReader(LogSource("job.log"), Limits())
    reader.learn(text.encode())
    lines = [line for raw in text.splitlines() for line in reader.read(KeptLine(1, raw.encode()))]
    assert [line.rank for line in lines] == [None, None, None]
