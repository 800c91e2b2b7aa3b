import pytest

from diagnose.lines.json_errors import read_json_error
from tests.recordlines import assemble, read, records_of

STACKS = {
    "c10": """[PG 0 Rank 3] Process group watchdog thread terminated with exception: NCCL error: unhandled cuda error
CUDA kernel errors might be asynchronously reported at some other API call
Exception raised from checkTimeout at ../torch/csrc/ProcessGroupNCCL.cpp:632 (most recent call first):
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x7f6c in /opt/libc10.so)
frame #1: <unknown function> + 0xdc253 (0x7f6c in /lib/libstdc++.so.6)""",
    "terminate": """terminate called after throwing an instance of 'c10::DistBackendError'
  what():  [PG 0 Rank 3] Process group watchdog thread terminated with exception: boom
Exception raised from ncclCommWatchdog at x.cpp:1 (most recent call first):
frame #0: c10::Error::Error + 0x96 (0x7f6c in libc10.so)""",
    "terminate alone": "terminate called without an active exception",
    "glog": """*** Aborted at 1700000000 (unix time) try "date -d @1700000000" if you are using GNU date ***
PC: @     0x7f1200000000 (unknown)
*** SIGSEGV (@0x0) received by PID 12 (TID 0x7f) from PID 0; stack trace: ***
    @     0x7f1200000001 gsignal
    @     0x7f1200000002 abort""",
    "check": """F0101 00:00:00.1 12 a.cc:3] Check failed: x == y
*** Check failure stack trace: ***
    @     0x7f1200000001 google::LogMessage::Fail()""",
    "mpi": """[n01:1234] *** Process received signal ***
[n01:1234] Signal: Segmentation fault (11)
[n01:1234] Signal code: Address not mapped (1)
[n01:1234] Failing at address: 0x10
[n01:1234] [ 0] /lib/libpthread.so.0(+0x12980)[0x7f]
[n01:1234] *** End of error message ***""",
    "ucx": """==== backtrace (tid:  12345) ====
 0 0x0000000000012345 ucs_debug_print_backtrace()  ???:0
 1  /lib/libucs.so.0(ucs_handle_error+0x2dc) [0x7f]
=================================""",
    "gdb": """#0  0x00007ffff7a42428 in __GI_raise (sig=6) at raise.c:54
#1  0x00007ffff7a4402a in __GI_abort () at abort.c:89""",
}


@pytest.mark.parametrize("form", STACKS)
def test_stack(form):
    text = STACKS[form]
    found = assemble(text + "\nstep 1")
    wanted = text.count("\n") + 1 - (form == "check")
    (stack,) = (record for record in found if record.kind == "stack")
    assert len(stack.lines) == wanted
    assert "step 1" in {record.text for record in found}


@pytest.mark.parametrize("form", STACKS)
def test_stack_interleaved_by_ranks(form):
    mixed = "\n".join(f"[rank0]: {line}\n[rank1]: {line}" for line in STACKS[form].split("\n"))
    assert len(records_of(mixed, "stack")) == 2


def test_fields():
    (record,) = records_of(STACKS["terminate"], "stack")
    assert record.fields["type"] == "c10::DistBackendError"
    assert record.fields["what"].startswith("[PG 0 Rank 3]")
    assert records_of(STACKS["glog"], "stack")[0].fields["signal"] == "SIGSEGV"
    assert records_of(STACKS["mpi"], "stack")[0].fields["signal"] == "Segmentation fault"


def test_a_message_without_frames_is_a_line():
    found = assemble("[PG 0] Watchdog thread terminated with exception: x\nstep 1")
    assert [record.kind for record in found] == ["line", "line"]


LOCKUP = """watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:412]
Modules linked in: nvidia(OE) mlx5_core
CPU: 3 PID: 412 Comm: python Tainted: G OE 5.15.0
NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus.
RIP: 0010:smp_call_function_many_cond+0x13a/0x360
Call Trace:
 <TASK>
 on_each_cpu_cond_mask+0x1d/0x30
 ? __pfx_do_flush+0x10/0x10
 </TASK>
eth0: link up"""
OOM = """python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
CPU: 3 PID: 412 Comm: python Not tainted
Call Trace:
 dump_stack_lvl+0x4a/0x63
memory: usage 268435456kB, limit 268435456kB, failcnt 100
Tasks state (memory values in pages):
[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name
[   412]     0   412 10000000  9000000 1000        0             0 python
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=python,pid=412,uid=0
Memory cgroup out of memory: Killed process 412 (python) total-vm:1kB, anon-rss:1kB
oom_reaper: reaped process 412 (python), now anon-rss:0kB
eth0: link up"""
HUNG = """INFO: task python:123 blocked for more than 120 seconds.
      Tainted: P           OE     5.15.0
"echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.
task:python          state:D stack:    0 pid:  123 ppid:     1 flags:0x00000002
Call Trace:
 __schedule+0x2cd/0x890"""
OOPS = """BUG: unable to handle page fault for address: ffffb1
#PF: supervisor read access in kernel mode
Oops: 0000 [#1] SMP NOPTI
RIP: 0010:foo+0x1/0x2
---[ end trace 0000000000000000 ]---
next"""


@pytest.mark.parametrize(
    ("text", "taken"),
    [(LOCKUP, 9), (OOM, 11), (HUNG, 6), (OOPS, 5), ("rcu: INFO: rcu_sched self-detected stall on CPU", 1)],
)
def test_kernel_report(text, taken):
    found = assemble(read(text, kind="kernel", tags=False))
    (report,) = (record for record in found if record.kind == "kernel_oops")
    assert len(report.lines) == taken
    assert sum(len(record.lines) for record in found) == text.count("\n") + 1


def test_xid_in_a_report_stays_a_line():
    found = assemble(read(LOCKUP, kind="kernel", tags=False))
    assert "NVRM: Xid" in next(record for record in found if record.kind == "line").text


def test_long_oom_account_keeps_the_kill():
    head, tail = OOM.split("oom-kill:")
    rows = "".join(f"[{n:7d}]     0 {n:5d}   100  100 1000 0 0 sh\n" for n in range(1000, 1900))
    (report,) = records_of(head + rows + "oom-kill:" + tail, "kernel_oops", kind="kernel", tags=False)
    assert len(report.lines) == 200
    assert "Killed process 412" in report.text
    assert "invoked oom-killer" in report.text


ERROR = (
    '{"message": {"message": "KeyError: \'role\'", "extraInfo": {"py_callstack": "Traceback (most recent call last):\\n'
    '  File \\"/w/data.py\\", line 7, in f\\n    g()\\nKeyError: \'role\'\\n", "timestamp": "1700000000"}}}'
)


def test_error_file_in_one_line():
    (record,) = assemble(read(ERROR, name="attempt_0/3/error.json"))
    assert record.kind == "json_error"
    assert [(item.type, item.message) for item in record.exceptions] == [("KeyError", "'role'")]
    assert record.exceptions[0].frames[0].file == "/w/data.py"
    assert record.first.time == 1700000000.0
    assert record.fields["message"] == "KeyError: 'role'"


def test_error_file_over_several_lines():
    text = '{\n  "message": {\n    "message": "ValueError: no",\n    "extraInfo": {"py_callstack": "", "timestamp": "1"}\n  }\n}'
    (record,) = assemble(read(text, name="x/error.json"))
    assert record.kind == "json_error"
    assert record.exceptions[0].type == "ValueError"
    assert record.exceptions[0].line_index == 1


def test_other_json_is_plain():
    for text in ('{"a": 1}', '{"message": "hello", "extraInfo": 3}', '{"message": {"message"', "{\n\n"):
        assert {record.kind for record in assemble(read(text, name="x/error.json"))} == {"line"}
    assert read_json_error(read("[" * 5000 + '"message"')) is None
