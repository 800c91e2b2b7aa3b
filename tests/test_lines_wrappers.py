"""Containers, journals, JSON loggers and exports: the program's own lines come out."""

from __future__ import annotations

import json

import pytest

from diagnose.lines import LineReader
from diagnose.models import KeptLine, Line, LogSource
from diagnose.settings import Limits


def read(*texts: str, limits: Limits | None = None) -> list[Line]:
    reader = LineReader(LogSource("job.log"), limits or Limits())
    lines = [
        line
        for number, text in enumerate(texts, 1)
        for line in reader.read(KeptLine(number, text.encode(), guarded=True))
    ]
    return lines + reader.finish()


def docker(log: str, stream: str = "stderr") -> str:
    return json.dumps({"log": log, "stream": stream, "time": "2026-01-01T00:00:00.5Z"})


def test_docker():
    (line,) = read(docker("[rank1]:   File \n"))
    assert (line.text, line.body, line.rank) == ("[rank1]:   File ", "  File ", 1)
    assert line.time == 1767225600.5
    assert line.stream.endswith("|stderr")


def test_docker_parts_are_joined_per_stream():
    lines = read(docker("whole\n"), docker("par"), docker("other\n", "stdout"), docker("t one\n"), docker("unended"))
    assert [line.text for line in lines] == ["whole", "other", "part one", "unended"]


def test_records_that_never_end_a_line_are_whole():
    assert [line.text for line in read(docker("a"), docker("b"))] == ["a", "b"]


def test_joining_is_bounded():
    long = "x" * 17_000
    lines = read(docker("a\n"), *[docker(long)] * 9, docker("end\n"), limits=Limits(line_bytes=40_000))
    assert max(len(line.text) for line in lines) <= 40_000 + len(long)
    assert sum(len(line.text) for line in lines) == 9 * len(long) + 4


def test_a_part_whose_rest_was_filtered_out_ends():
    reader = LineReader(LogSource("job.log"), Limits())
    reader.read(KeptLine(1, docker("a\n").encode()))
    assert reader.read(KeptLine(2, docker("par").encode())) == []
    assert [line.text for line in reader.read(KeptLine(2_000, docker("new\n").encode()))] == ["par", "new"]


def test_several_lines_and_bars_in_one_record():
    lines = read(docker("10%|# | 1/9 [00:01<00:02, 1.0it/s]\r20%|# | 2/9 [00:01<00:02, 1.0it/s]\rError: x\nnext\n"))
    assert [line.text for line in lines] == ["Error: x", "next"]
    assert {line.number for line in lines} == {1}


def test_cri():
    lines = read(
        "2026-01-01T00:00:00.5Z stderr P half ",
        "2026-01-01T00:00:00.6Z stdout F other",
        "2026-01-01T00:00:00.7Z stderr F [rank2]: done",
        "2026-01-01T00:00:00.7Z stderr F",
    )
    assert [(line.text, line.stream) for line in lines] == [
        ("other", "job.log|stdout"), ("half [rank2]: done", "job.log|stderr"), ("", "job.log|stderr"),
    ]  # fmt: skip


def test_journal():
    record = {"__REALTIME_TIMESTAMP": "1767225600500000", "_HOSTNAME": "gx-1", "PRIORITY": "3"}
    kernel = record | {"MESSAGE": "NVRM: Xid", "_TRANSPORT": "kernel", "_SOURCE_MONOTONIC_TIMESTAMP": "12500000"}
    program = record | {"MESSAGE": list(b"caf\xc3\xa9\nb"), "_PID": "77", "SYSLOG_IDENTIFIER": "python3"}
    daemon = record | {"MESSAGE": "error: x", "SYSLOG_IDENTIFIER": "slurmstepd"}
    lines = read(*map(json.dumps, (kernel, program, daemon)))
    assert [line.body for line in lines] == ["NVRM: Xid", "caf\u00e9", "b", "slurmstepd: error: x"]
    assert (lines[0].uptime, lines[0].level, lines[0].host, lines[0].time) == (12.5, "error", "gx-1", 1767225600.5)
    assert (lines[1].pid, lines[1].level) == (77, None)
    assert lines[1].stream == lines[2].stream != lines[0].stream


@pytest.mark.parametrize(
    ("fields", "text", "level", "rank"),
    [
        ({"message": "hi", "level": "warn", "time": 1767225600}, "hi", "warning", None),
        ({"msg": "hi", "level": 30, "time": 1767225600000, "pid": 3, "hostname": "h1"}, "hi", "info", None),
        (
            {"event": "step", "step": 5, "level": "info", "timestamp": "2026-01-01T00:00:00Z", "rank": 3},
            "step step=5",
            "info",
            3,
        ),
        ({"message": "hi", "levelname": "ERROR", "asctime": "2026-01-01 00:00:00,000", "rank": "2"}, "hi", "error", 2),
        ({"severity": "CRITICAL", "message": "hi", "@timestamp": "2026-01-01T00:00:00.000Z"}, "hi", "critical", None),
        ({"log": {"level": "error"}, "message": "hi", "@timestamp": "2026-01-01T00:00:00Z"}, "hi", "error", None),
        ({"text": "hi", "level": "info", "ts": 1767225600.0}, "hi", "info", None),
        ({"msg": "hi", "level": 40, "ts": "1767225600000000000"}, "hi", "error", None),
        ({"labels": {"pod": "a-0", "rank": "1"}, "line": "hi", "timestamp": "2026-01-01T00:00:00Z"}, "hi", None, 1),
        ({"textPayload": "hi", "timestamp": "2026-01-01T00:00:00Z", "severity": "ERROR"}, "hi", "error", None),
        (
            {"jsonPayload": {"message": "hi", "rank": 4}, "timestamp": "2026-01-01T00:00:00Z", "severity": "INFO"},
            "hi",
            "info",
            4,
        ),
        ({"_source": {"message": "hi", "@timestamp": "2026-01-01T00:00:00Z"}}, "hi", None, None),
        ({"result": {"_raw": "hi", "_time": "2026-01-01T00:00:00Z", "host": "h1"}}, "hi", None, None),
        (
            {"log": "hi", "stream": "stderr", "time": "2026-01-01T00:00:00Z", "kubernetes": {"pod_name": "a-0"}},
            "hi",
            None,
            None,
        ),
    ],
)
def test_json_records(fields, text, level, rank):
    (line,) = read(json.dumps(fields))
    assert (line.text, line.level, line.rank, line.time) == (text, level, rank, 1767225600.0)


def test_a_logged_exception_is_further_lines_of_the_same_number():
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nKeyError: 1'
    (first, *rest) = read(
        json.dumps({"message": "died", "level": "error", "exc_info": trace, "rank": 3, "time": 1767225600})
    )
    assert first.level == "error"
    assert "\n".join(line.body for line in rest) == trace
    assert {(line.number, line.rank, line.level) for line in rest} == {(1, 3, None)}
    assert len({line.stream for line in (first, *rest)}) == 1


def test_structlog_frames_become_a_traceback():
    frames = [{"filename": "a.py", "lineno": 7, "name": "f"}]
    exception = [{"exc_type": "KeyError", "exc_value": "'x'", "frames": frames}]
    lines = read(
        json.dumps({"event": "died", "level": "error", "timestamp": "2026-01-01T00:00:00Z", "exception": exception})
    )
    assert [line.body for line in lines[1:]] == [
        "Traceback (most recent call last):", '  File "a.py", line 7, in f', "KeyError: 'x'",
    ]  # fmt: skip


def test_a_json_logger_behind_prefixes():
    record = json.dumps({"message": "boom", "level": "error", "ts": 1767225600})
    (line,) = read(f"[rank3]: {record}")
    assert (line.text, line.body, line.rank, line.level) == ("[rank3]: boom", "boom", 3, "error")
    (inner,) = read(docker(record + "\n"))
    assert (inner.text, inner.level) == ("boom", "error")


@pytest.mark.parametrize(
    "text",
    [
        '{"loss": 2.3, "step": 5}', '{"message": {"message": "RuntimeError: x"}}', "{'loss': 2.0}", '{"log": 5}', "{", "[1]",
        '{"a":' * 3_000, '{"message": "x"}', '{"x": ' + "9" * 6_000 + "}",
    ],
)  # fmt: skip
def test_data_stays_as_it_is(text):
    (line,) = read(text)
    assert line.text == text


def test_csv_exports():
    lines = read(
        "timestamp,message",
        '1767225600500,"[rank1]: a, ""b"""',
        '1767225601500,"Traceback (most recent call last):',
        "  File ""x"", line 1",
        'KeyError: 1"',
        "1767225602500,plain, with commas",
    )  # fmt: skip
    assert [line.body for line in lines] == [
        'a, "b"', "Traceback (most recent call last):", "  File x, line 1", "KeyError: 1", "plain, with commas",
    ]  # fmt: skip
    assert lines[0].rank == 1
    assert lines[3].time == 1767225601.5


def test_csv_columns_of_who_and_how_bad():
    lines = read("Date,Host,Service,Status,Message", "2026-01-01T00:00:00Z,gx-1,train,error,boom")
    assert [(line.text, line.host, line.level, line.time) for line in lines] == [
        ("boom", "gx-1", "error", 1767225600.0)
    ]


def test_other_tables_are_left_alone():
    rows = ["job_id,start,node", "1,2026-01-01T00:00:00,gx-1"]
    assert [line.text for line in read(*rows)] == rows
