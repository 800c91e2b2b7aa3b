"""Prefixes of launchers, loggers and systems in their true forms: what they say and where the body begins."""

from __future__ import annotations

import calendar
import re
from datetime import datetime

import pytest
import re2

from diagnose.lines import LineReader, ansi, loggers, order, quoted, syslogs, tables, wrappers, writers
from diagnose.lines.heads import level_of, level_of_number
from diagnose.models import KeptLine, Line, LogSource
from diagnose.patterns import Lazy
from diagnose.settings import Limits


def read(*texts: str, source: LogSource | None = None, learn: bool = False) -> list[Line]:
    reader = LineReader(source or LogSource("job.log"), Limits())
    if learn:
        reader.learn("\n".join(texts).encode() + b"\n")
    lines = [
        line
        for number, text in enumerate(texts, 1)
        for line in reader.read(KeptLine(number, text.encode(), guarded=True))
    ]
    return lines + reader.finish()


def at(text: str) -> float:
    moment = datetime.fromisoformat(text)
    return (
        calendar.timegm(moment.timetuple()) + moment.microsecond / 1e6 if moment.tzinfo is None else moment.timestamp()
    )


# text, body, fields that must be as given (time as an ISO string)
TABLE = [
    # torchrun, torch
    ('[rank3]:   File "/a/b.py", line 1, in f', '  File "/a/b.py", line 1, in f', {"rank": 3}),
    ("[rank12]: Traceback (most recent call last):", "Traceback (most recent call last):", {"rank": 12}),
    ("[rank0] 8 x H100", "8 x H100", {"rank": 0}),
    ("[rank 0/3] started", "started", {"rank": 0}),
    ("[rank: 3] Received SIGTERM: 15", "Received SIGTERM: 15", {"rank": 3}),
    ("[RANK 7] 2026-01-01 00:00:00 up", "up", {"rank": 7, "time": "2026-01-01T00:00:00"}),
    ("[default3]:loss 1", "loss 1", {"local_rank": 3, "rank": None}),
    ('[default3]:  File "x"', '  File "x"', {"local_rank": 3}),
    ("[trainer1|rank9]:epoch 0", "epoch 0", {"local_rank": 1, "rank": 9}),
    ("[default0]:[rank8]: boom", "boom", {"local_rank": 0, "rank": 8}),
    (
        "[E302 12:30:01.114000000 ProcessGroupNCCL.cpp:685] [Rank 5] Some NCCL operations",
        "[Rank 5] Some NCCL operations",
        {"rank": 5, "level": "error"},
    ),
    (
        "[rank7]:[E1224 16:22:36.245392103 ProcessGroupNCCL.cpp:1484] [PG ID 2 PG GUID 17(DP_GROUP) Rank 1] Time",
        "[PG ID 2 PG GUID 17(DP_GROUP) Rank 1] Time",
        {"rank": 7, "level": "error"},
    ),
    ("[W415 21:17:11.349563815 TCPStore.cpp:115] [c10d] recv", "[c10d] recv", {"level": "warning", "rank": None}),
    ("[E ProcessGroupNCCL.cpp:828] [Rank 0] Watchdog", "[Rank 0] Watchdog", {"rank": 0, "level": "error"}),
    ("[PG 0 Rank 3] x", "[PG 0 Rank 3] x", {"rank": None}),
    (
        "W1130 02:27:49.220000 22429 torch/distributed/elastic/multiprocessing/api.py:1028] Sending",
        "Sending",
        {"pid": 22429, "level": "warning"},
    ),
    (
        "E0302 12:00:00.000000 140259313123136 torch/distributed/elastic/multiprocessing/api.py:826] failed",
        "failed",
        {"pid": None, "level": "error"},
    ),
    ("W0307 08:00:01.000000       1 client_config.go:659] Neither", "Neither", {"pid": 1, "level": "warning"}),
    ("I0302 12:00:00.1 file.py:12] hi", "hi", {"level": "info"}),
    ("I20260302 12:00:00.5 12 file.cc:12] hi", "hi", {"time": "2026-03-02T12:00:00.500000"}),
    # MPI, Horovod, SageMaker
    ("[1,3]<stderr>:    batch.record_stream()", "    batch.record_stream()", {"rank": 3}),
    ("[1,mpirank:2,algo-1]<stdout>:Epoch 0", "Epoch 0", {"rank": 2, "host": "algo-1"}),
    ("[3]<stdout>:hello", "hello", {"rank": 3}),
    ("Thu Jan 23 11:55:50 2025[1,1]<stderr>:    x()", "    x()", {"rank": 1, "time": "2025-01-23T11:55:50"}),
    ("[gx-01:12345] *** Process received signal ***", "*** Process received signal ***", {"host": "gx-01", "pid": 12345}),
    ("[gx-01:12345:3] text", "text", {"host": "gx-01", "pid": 12345, "local_rank": 3}),
    ("[dgx1:1234 :0:1234] Caught signal 11", "Caught signal 11", {"host": "dgx1", "pid": 1234, "local_rank": None}),
    # Ray, Kubernetes, compose, CRI
    (
        "(TaskRunner pid=37702, ip=10.0.0.3) Traceback (most recent call last): [repeated 7x across cluster]",
        "Traceback (most recent call last):",
        {"pid": 37702, "host": "10.0.0.3"},
    ),
    ('(Worker_TP0 pid=12)   File "x"', '  File "x"', {"pid": 12}),
    ("(raylet, ip=10.0.0.3) [2026-02-20 03:11:02,907 W 149 199] (raylet) node_manager.cc:157: L",
     "node_manager.cc:157: L", {"host": "10.0.0.3", "level": "warning"}),
    ("(VllmWorker rank=1 pid=77) ERROR 02-24 12:00:00 [worker.py:100] died", "died", {"rank": 1, "level": "error"}),
    ("[pod/vlm-worker-3/pytorch] step 1", "step 1", {"host": "vlm-worker-3"}),
    ("2026-01-01T00:00:00.123456789Z stdout F hello", "hello", {"time": "2026-01-01T00:00:00.123456"}),
    ("2026-01-01T00:00:00.5Z [rank1]: x", "x", {"rank": 1, "time": "2026-01-01T00:00:00.500000"}),
    # NCCL
    ("gx-1:100:200 [3] NCCL INFO Bootstrap", "NCCL INFO Bootstrap", {"host": "gx-1", "pid": 100, "gpu": "3"}),
    (
        "fb-01:4401:5101 [1] 2026-02-03 11:22:40 transport/net_ib.cc:2131 NCCL WARN NET/IB",
        "transport/net_ib.cc:2131 NCCL WARN NET/IB",
        {"gpu": "1", "level": "warning", "time": "2026-02-03T11:22:40"},
    ),
    ("[2026-04-22 21:34:20] rw-4:20:22 [0] misc/x.cc:88 NCCL WARN Error", "misc/x.cc:88 NCCL WARN Error", {"gpu": "0"}),
    # Python logging
    ("2026-01-01 00:00:00,123 - name - INFO - msg", "msg", {"time": "2026-01-01T00:00:00.123000", "level": "info"}),
    ("2026-01-01 00:00:00,123 [INFO] [acme.train] [rank 2/3] msg", "msg", {"rank": 2, "level": "info"}),
    ("2026-01-01 00:00:00 WARNING acme.data: slow", "slow", {"level": "warning"}),
    ("2026-01-01 00:00:00 ERROR RuntimeError: no", "RuntimeError: no", {"level": "error"}),
    ("2026-01-01 00:00:00 Fatal Python error: Aborted", "Fatal Python error: Aborted", {}),
    ("2026-01-01 00:00:00,1 INFO loss: 3.2", "loss: 3.2", {"level": "info"}),
    ("INFO:root:msg", "msg", {"level": "info"}),
    ("ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1)", "failed (exitcode: 1)", {"level": "error"}),
    ("WARNING: careful", "WARNING: careful", {"level": "warning"}),
    ("09/09/2023 00:24:50 - INFO - llmtuner.parser - x", "x", {"time": "2023-09-09T00:24:50", "level": "info"}),
    ("11-22 20:27:40.827 - dist_run:300 - Chat", "Chat", {}),
    ("2024-09-08 11:46:07,421 - INFO [hooks.py:269 - after_run] - step", "step", {"level": "info"}),
    ("2025-04-20:07:10:00,849 INFO     [__main__.py:297] Verbosity", "Verbosity", {"level": "info"}),
    ("[2024-09-10 21:41:10,467][root][INFO] - train", "train", {"level": "info"}),
    ("[2024-05-10 09:19:49,411] torch.x.api: [ERROR] failed", "failed", {"level": "error"}),
    # frameworks
    ("[2026-04-14 09:10:22,948] [INFO] [engine.py:254:fn] [Rank 0] step=10", "[Rank 0] step=10", {"rank": 0}),
    ("2026-01-01 00:00:00.123 | INFO     | acme.mod:fn:12 - msg", "msg", {"level": "info"}),
    ("2026-01-01 00:00:00,5 | ERROR | acme.moe | msg", "msg", {"level": "error"}),
    ("2023-07-07 12:28:57,802\tINFO train.py:323 in record -- tflops=63", "tflops=63", {"level": "info"}),
    ("2023-07-07 12:26:58,293\tINFO host=gx7 rank=3 train.py, line 318, in f -- x", "x", {"host": "gx7", "rank": 3}),
    ("2025-04-18 22:31:08,551\tINFO worker.py:1654 -- Connecting", "Connecting", {"level": "info"}),
    ("[NeMo W 2025-08-31 10:12:31 nemo_logging:405] hm", "hm", {"level": "warning", "time": "2025-08-31T10:12:31"}),
    (" [2026-02-11 03:12:40] iteration    1/", "iteration    1/", {"time": "2026-02-11T03:12:40"}),
    ("[rank0]:[titan] 2026-01-14 03:20:00,204 - root - INFO - step:  1", "step:  1", {"rank": 0, "level": "info"}),
    ("[INFO|trainer.py:2134] 2025-03-04 15:28:58,100 >> go", "go", {"level": "info", "time": "2025-03-04T15:28:58.100000"}),
    ("[INFO|trainer.py:2134] >> go", "go", {"level": "info"}),
    ("2025/01/01 12:00:00 - mmengine - INFO - x", "x", {"time": "2025-01-01T12:00:00"}),
    ("[01/02 12:00:00 d2.utils.events]:  eta: 1", " eta: 1", {}),
    ("2025-01-01 00:00:00.123456: E external/xla/a.cc:123] no", "no", {"level": "error"}),
    ("INFO 02-24 12:00:00 worker.py:100] up", "up", {"level": "info"}),
    ("INFO 02-24 12:00:00 [config.py:717] up", "up", {"level": "info"}),
    ("[2025-09-03 14:47:27 TP13] Init", "Init", {"time": "2025-09-03T14:47:27"}),
    ("[ERROR] ME(1234,ffff,python):2026-04-14-09:10:22.948.123 [mindspore/a.py:12] bad", "bad", {"pid": 1234}),
    ("[INFO:swift] rank: 8", "rank: 8", {"level": "info", "rank": None}),
    # kernel, system logs
    ("[12345.678901] NVRM: Xid", "NVRM: Xid", {"uptime": 12345.678901}),
    ("[12345.678901] gx-43 kernel: NVRM: Xid", "NVRM: Xid", {"host": "gx-43", "uptime": 12345.678901}),
    ("[12345.678901] gx-43 systemd[1]: Started x", "Started x", {"host": "gx-43", "pid": 1, "uptime": 12345.678901}),
    ("[12345.678901] mlx5_core 0000:3b:00.0: Link down", "mlx5_core 0000:3b:00.0: Link down", {"uptime": 12345.678901}),
    ("[   12.345678][  T512]  <TASK>", " <TASK>", {"uptime": 12.345678}),
    ("[684980.062459] rcu: INFO: rcu_sched", "rcu: INFO: rcu_sched", {"level": None}),
    ("[Tue Apr 14 13:18:01 2026] NVRM: Xid", "NVRM: Xid", {"time": "2026-04-14T13:18:01"}),
    ("kern  :err   : [12345.678901] mce: x", "mce: x", {"level": "error", "uptime": 12345.678901}),
    ("kern  :info  : 2026-01-25T10:09:30,432846+00:00 mlx5: x", "mlx5: x", {"time": "2026-01-25T10:09:30.432846"}),
    ("<3>[  12.345678] bad", "bad", {"level": "error", "uptime": 12.345678}),
    ("10.0.0.3: kern: warning: [2026-04-22T21:03:09.291Z]: NVRM: x", "NVRM: x", {"host": "10.0.0.3", "level": "warning"}),
    ("Apr 14 13:18:01 gx-1 kernel: [123.456789] Out of memory", "Out of memory", {"host": "gx-1", "uptime": 123.456789}),
    ("Apr  4 13:18:01 gx-1 systemd[1]: Started", "Started", {"host": "gx-1", "pid": 1}),
    ("<34>1 2026-10-11T22:14:15.003Z gx-1 su 12 ID47 - failed", "failed", {"host": "gx-1", "pid": 12, "level": "critical"}),
    ("2026-02-25T19:40:13+0100 gx-1 kernel: NVRM", "NVRM", {"host": "gx-1", "time": "2026-02-25T18:40:13"}),
    ("2026-02-25T19:40:13.5+00:00 gx-1 slurmstepd[12]: error: x", "slurmstepd[12]: error: x", {"host": "gx-1"}),
    ("gx-2 kernel: NVRM: API mismatch", "NVRM: API mismatch", {"host": "gx-2"}),
    ("Tue Apr 14 01:18:01 PM UTC 2026 start", "start", {"time": "2026-04-14T13:18:01"}),
    ("Tue 14 Apr 2026 01:18:01 AM UTC", "", {"time": "2026-04-14T01:18:01"}),
    ("1767225600.250 text", "text", {"time": "2026-01-01T00:00:00.250000"}),
    ("1767225600250 text", "text", {"time": "2026-01-01T00:00:00.250000"}),
    ('time="2026-03-15T05:20:15.9Z" level=warning msg="x"', 'msg="x"', {"level": "warning"}),
    ("2026-08-14T20:02:00.4Z\tWARN\tmoe-worker-5\ttrainer\tslow", "slow", {"host": "moe-worker-5", "level": "warning"}),
    ("06:05:10  task 114 | loss", "loss", {"rank": 114}),
    # launchers and bodies that must stay whole
    ("srun: error: gx-1: task 3: Killed", "srun: error: gx-1: task 3: Killed", {"rank": None, "host": None}),
    ("slurmstepd: error: *** STEP 1.0 ON gx-1 CANCELLED", "slurmstepd: error: *** STEP 1.0 ON gx-1 CANCELLED", {}),
    ("RuntimeError: CUDA error", "RuntimeError: CUDA error", {"host": None}),
    ("[1]:", "[1]:", {}),
    ("  rank      : 1 (local_rank: 1)", "  rank      : 1 (local_rank: 1)", {"rank": None}),
    ("mlx5_0: link down", "mlx5_0: link down", {"host": None}),
    ("12: a line", "12: a line", {"rank": None}),
    ("Epoch 3:  20%|##   | 400/1998 [12:00<50:12]", "Epoch 3:  20%|##   | 400/1998 [12:00<50:12]", {}),
    ("2026-13-45 99:99:99 x", "2026-13-45 99:99:99 x", {"time": None}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "body", "fields"), TABLE, ids=[row[0][:40] for row in TABLE])
def test_form(text, body, fields):
    (line,) = read(text)
    assert line.body == body
    wanted = {name: at(value) if name == "time" and value else value for name, value in fields.items()}
    found = {name: getattr(line, name) for name in wanted}
    if wanted.get("time") is not None:
        assert found.pop("time") == pytest.approx(wanted.pop("time"), abs=1e-5)
    assert found == wanted


def test_mllog_time_is_read_and_the_line_is_all_body():
    text = ':::MLLOG {"namespace": "", "time_ms": 1767225600250, "key": "init_start"}'
    (line,) = read(text)
    assert line.body == text
    assert line.time == at("2026-01-01T00:00:00.250000")


def test_doubtful_prefixes_are_known_from_the_first_line_after_learning():
    texts = ["node-1: starting", "0: x", "node-1: [2026-01-01 00:00:00] step 1", "node-1: more", "0: y", "0: z"]
    assert [line.host for line in read(*texts, learn=True)][:1] == ["node-1"]


def test_task_labels_are_decided_over_the_file():
    tasks = ["0: hello", "1: hello", " 0: Traceback (most recent call last):", "0: y", "1: z", "srun: error: gone"]
    assert [line.rank for line in read(*tasks, learn=True)] == [0, 1, 0, 0, 1, None]
    numbered = ["1: apples", "2: pears", "3: plums", "4: figs"]
    assert [line.rank for line in read(*numbered, learn=True)] == [None] * 4
    waiting = ["Missing ranks:", "0: [grad_1, grad_2]", "1: [grad_1, grad_2]"] * 3
    assert {line.rank for line in read(*waiting, learn=True)} == {None}


def test_padded_empty_task_lines():
    lines = read("12: Traceback (most recent call last):", "12: ", " 3: x", "3:")
    assert [(line.rank, line.body) for line in lines] == [
        (12, "Traceback (most recent call last):"), (12, ""), (3, "x"), (3, ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("opener", "further"),
    [
        ("worker-1: Traceback (most recent call last):", 'worker-1:   File "x"'),
        ("worker-1  | Traceback (most recent call last):", 'worker-1  |   File "x"'),
        ("train-x7-0 pytorch Traceback (most recent call last):", 'train-x7-0 pytorch   File "x"'),
        ("i.pretrain/0 Traceback (most recent call last):", 'i.pretrain/0   File "x"'),
        ("gx-01 Traceback (most recent call last):", 'gx-01   File "x"'),
        ("gx-01[2]: Traceback (most recent call last):", 'gx-01[2]:   File "x"'),
        ("[3]: Traceback (most recent call last):", '[3]:   File "x"'),
        ("Rank 3: Traceback (most recent call last):", 'Rank 3:   File "x"'),
    ],
)
def test_a_programs_output_proves_the_prefix(opener, further):
    first, second = read(opener, further)
    assert first.body == "Traceback (most recent call last):"
    assert second.body == '  File "x"'
    assert first.stream == second.stream != "job.log"


def test_tables_are_not_services():
    rows = [f"layer-{n} | {n}.5 | {n}" for n in range(9)]
    assert [line.body for line in read(*rows)] == rows


def test_codes_are_not_hosts():
    texts = [
        "[rank9]: EI0002: [PID: 31209] wait",
        "E1234: x",
        "E1234: y",
        "E1234: z",
        "step12: a",
        "step12: b",
        "step12: c",
    ]
    assert {line.host for line in read(*texts)} == {None}


def test_levels_have_five_names():
    words = ["TRACE", "W", "err", "Fatal", "emerg", "notice"]
    assert [level_of(word) for word in words] == ["debug", "warning", "error", "critical", "critical", "info"]
    assert level_of("loss") is None
    assert [level_of_number(number) for number in (3, 6, 20, 40, 99)] == ["error", "info", "info", "error", None]


def test_patterns_are_linear():
    """Every pattern is one that RE2 takes: no look-around, no back-reference."""
    for module in (ansi, loggers, order, quoted, syslogs, tables, wrappers, writers):
        for value in vars(module).values():
            if isinstance(value, Lazy) and isinstance(value.pattern, str):
                flags = "(?i)" if value.flags & re.IGNORECASE else ""
                re2.compile(flags + value.pattern.replace(r"\Z", r"\z"))
