import pytest

from diagnose.lines.launchers import MAX_RANKS, expand_ranks, signal_of
from tests.recordlines import assemble, chain, records_of

# text -> (what, [(rank, local_rank, host, pid, exit_code, signal)])
ONE_LINE = {
    "srun: error: nid001027: task 3: Exited with exit code 1": ("exit", [(3, None, "nid001027", None, 1, None)]),
    "srun: error: gx-1: tasks 0,4-5: Killed": ("signal", [(rank, None, "gx-1", None, None, "SIGKILL") for rank in (0, 4, 5)]),
    "srun: error: gx-1: task 2: Terminated": ("signal", [(2, None, "gx-1", None, None, "SIGTERM")]),
    "srun: error: gx-1: task 2: Segmentation fault (core dumped)": ("signal", [(2, None, "gx-1", None, None, "SIGSEGV")]),
    "srun: error: gx-1: task 2: Aborted (core dumped)": ("signal", [(2, None, "gx-1", None, None, "SIGABRT")]),
    "srun: error: gx-1: task 2: Out Of Memory": ("signal", [(2, None, "gx-1", None, None, "SIGKILL")]),
    "srun: error: gx-1: task 2: Bus error": ("signal", [(2, None, "gx-1", None, None, "SIGBUS")]),
    "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-03-09T04:36:02 DUE TO TIME LIMIT ***": ("cancelled", [(None, None, "n1", None, None, None)]),
    "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-03-09T04:36:02 DUE TO NODE FAILURE, see SlurmctldLog for details ***": ("cancelled", [(None, None, "n1", None, None, None)]),
    "mpirun noticed that process rank 3 with PID 0 on node x1 exited on signal 9 (Killed).": ("signal", [(3, None, "x1", None, None, "SIGKILL")]),
    "prterun noticed that process rank 1 with PID 811 on node x1 exited on signal 11 (Segmentation fault).": ("signal", [(1, None, "x1", 811, None, "SIGSEGV")]),
    "Primary job  terminated normally, but 1 process returned": ("exit", [(None, None, None, None, None, None)]),
    "application called MPI_Abort(MPI_COMM_WORLD, 1) - process 5": ("abort", [(5, None, None, None, 1, None)]),
    "ERROR failed (exitcode: -6) local_rank: 2 (pid: 9003) of binary: /usr/bin/python": ("exit", [(None, 2, None, 9003, -6, "SIGABRT")]),
    "[2024-01-01 00:00:00,000] [ERROR] [launch.py:322:sigkill_handler] ['/usr/bin/python', '-u', 'main.py', '--local_rank=7'] exits with return code = -9": (
        "exit",
        [(None, 7, None, None, -9, "SIGKILL")],
    ),
    "[2024-01-01 00:00:00,000] [INFO] [launch.py:315:sigkill_handler] Killing subprocess 772": ("kill", []),
    "pdsh@login: n3: ssh exited with exit code 255": ("exit", [(None, None, "n3", None, 255, None)]),
    "/var/spool/job1/slurm_script: line 12:  1234 Killed                  python train.py": ("signal", [(None, None, None, 1234, None, "SIGKILL")]),
    "run.sh: line 3: 77 Segmentation fault      (core dumped) python train.py": ("signal", [(None, None, None, 77, None, "SIGSEGV")]),
    "Segmentation fault (core dumped)": ("signal", [(None, None, None, None, None, "SIGSEGV")]),
    "Killed": ("signal", [(None, None, None, None, None, "SIGKILL")]),
    "[rank: 1] Child process with PID 4242 terminated with code -9. Forcefully terminating all other processes": ("exit", [(1, None, None, 4242, -9, "SIGKILL")]),
    "subprocess.CalledProcessError: Command '['python', 't.py']' returned non-zero exit status 2.": ("exit", [(None, None, None, None, 2, None)]),
    "subprocess.CalledProcessError: Command '['python', 't.py']' died with <Signals.SIGKILL: 9>.": ("exit", [(None, None, None, None, None, "SIGKILL")]),
    "command terminated with exit code 137": ("exit", [(None, None, None, None, 137, "SIGKILL")]),
    "Job 'raysubmit_x1' failed: entrypoint command failed with exit code 1": ("exit", [(None, None, None, None, 1, None)]),
    "exit code: 1": ("exit", [(None, None, None, None, 1, None)]),
    "Exit status 143": ("exit", [(None, None, None, None, 143, "SIGTERM")]),
    "ERROR Process 1 failed with return code 1": ("exit", [(1, None, None, None, 1, None)]),
}  # fmt: skip
NOTHING = (
    "exit code: 0", "all ranks exited with code 0", "Killed by death is a song, exit code unknown", "srun: error: Unable to create step",
    "*** STEP into the room ***", "the function returned return code values", "INFO returncode", "Sending process 3 closing signal SIGTERM",
)  # fmt: skip


def failures(record):
    return [(f.rank, f.local_rank, f.host, f.pid, f.exit_code, f.signal) for f in record.failures]


@pytest.mark.parametrize("text", ONE_LINE)
def test_one_line(text):
    (record,) = assemble(text)
    assert record.kind == "launcher_summary"
    assert (record.fields["what"], failures(record)) == ONE_LINE[text]
    assert record.text == text


@pytest.mark.parametrize("text", NOTHING)
def test_no_failure(text):
    assert [record.kind for record in assemble(text)] == ["line"]


def test_cancelled_says_why_and_when():
    (record,) = assemble(
        "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-03-09T04:36:02 DUE TO TIME LIMIT ***"
    )
    assert record.fields["reason"] == "TIME LIMIT"
    assert record.failures[0].time == 1773030962.0


BLOCK = """Traceback (most recent call last):
  File "/opt/venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\x20
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2024-07-18_09:58:12
  host      : gx-1
  rank      : 3 (local_rank: 3)
  exitcode  : -9 (pid: 12003)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 12003
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2024-07-18_09:58:11
  host      : gx-1
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 12001)
  error_file: /tmp/x/error.json
  traceback : Traceback (most recent call last):
    File "/w/train.py", line 162, in main
      torch.cuda.set_device(device)
  RuntimeError: CUDA error: invalid device ordinal
  CUDA kernel errors might be asynchronously reported at some other API call.
  \x20
============================================================"""


def check_block(found):
    (summary,) = (record for record in found if record.kind == "launcher_summary")
    (shown,) = (record for record in found if record.kind == "traceback")
    assert [item.name for item in summary.exceptions] in (["ChildFailedError"], [])
    assert failures(summary) == [(3, 3, "gx-1", 12003, -9, "SIGKILL"), (1, 1, "gx-1", 12001, 1, None)]
    assert [item.first for item in summary.failures] == [False, True]
    assert [item.time for item in summary.failures] == [1721296692.0, 1721296691.0]
    assert all("exitcode" in summary.lines[item.line_index].text for item in summary.failures)
    assert chain(shown) == [("RuntimeError", "CUDA error: invalid device ordinal")]
    assert shown.first.rank == 1


def test_torchrun_block_is_one_summary_and_shows_the_ranks_own_traceback():
    check_block(assemble(BLOCK))


def test_torchrun_block_without_its_head():
    check_block(assemble("\n".join(BLOCK.split("\n")[7:])))


def test_torchrun_block_under_a_prefix_interleaved():
    mixed = "\n".join(f"0: {line}\n1: step" for line in BLOCK.split("\n"))
    found = [record for record in assemble(mixed) if record.first.rank == 0 or record.kind == "traceback"]
    assert [record.kind for record in found if record.kind != "line"] == ["launcher_summary", "traceback"]


def test_torchrun_block_in_richs_dress():
    text = BLOCK.replace(
        'Traceback (most recent call last):\n  File "/opt/venv/bin/torchrun", line 8, in <module>\n    sys.exit(main())\ntorch.distributed.elastic.multiprocessing.errors.',
        "╭─── Traceback (most recent call last) ───╮\n│ /a/accelerate/commands/launch.py:9 in x │\n╰─────────────────────────────────────────╯\n",
        1,
    )
    check_block(assemble(text))


def test_torchrun_block_cut_short():
    text = "\n".join(BLOCK.split("\n")[:13])
    (record,) = assemble(text)
    assert record.kind == "launcher_summary"
    assert failures(record) == [(3, 3, "gx-1", 12003, -9, "SIGKILL")]


def test_block_of_old_torch():
    text = """Traceback (most recent call last):
  File "/usr/lib/python3.8/runpy.py", line 194, in _run
    main()
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\x20
*****************************************
         train.py FAILED
=======================================
Root Cause:
[0]:
  time: 2021-09-01_03:58:10
  rank: 0 (local_rank: 0)
  exitcode: 1 (pid: 2041)
  error_file: <N/A>
  msg: "Process failed with exitcode 1"
=======================================
Other Failures:
  <NO_OTHER_FAILURES>
*****************************************
after"""
    found = assemble(text)
    assert [record.kind for record in found] == ["launcher_summary", "line"]
    assert failures(found[0]) == [(0, 0, None, 2041, 1, None)]
    assert found[0].failures[0].first


def test_launchers_own_called_process_error():
    text = """Traceback (most recent call last):
  File "/opt/conda/bin/accelerate", line 8, in <module>
    sys.exit(main())
  File "/opt/conda/lib/python3.10/site-packages/accelerate/commands/launch.py", line 763, in simple_launcher
    raise subprocess.CalledProcessError(returncode=process.returncode, cmd=cmd)
subprocess.CalledProcessError: Command '['/opt/conda/bin/python', 'train.py']' returned non-zero exit status 1."""
    (record,) = assemble(text)
    assert record.kind == "launcher_summary"
    assert failures(record) == [(None, None, None, None, 1, None)]
    (record,) = assemble(text.replace("site-packages/accelerate/commands/launch.py", "build.py"))
    assert record.kind == "traceback"


def test_spawn_reports():
    text = """Traceback (most recent call last):
  File "/w/main.py", line 9, in <module>
    mp.spawn(run, nprocs=4)
torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with signal SIGKILL"""
    (record,) = assemble(text)
    assert record.kind == "launcher_summary"
    assert failures(record) == [(None, 2, None, None, None, "SIGKILL")]


def test_torchruns_own_signal_is_a_summary():
    text = """Traceback (most recent call last):
  File "/opt/venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.api.SignalException: Process 2877203 got signal: 15"""
    (record,) = records_of(text, "launcher_summary")
    assert failures(record) == [(None, None, None, 2877203, None, "SIGTERM")]


MPI = """--------------------------------------------------------------------------
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[61442,1],3]
  Exit code:    1
--------------------------------------------------------------------------"""
ABORT = """MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD
with errorcode 13."""
MPICH = """===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   RANK 3 PID 212 RUNNING AT n17
=   KILLED BY SIGNAL: 9 (Killed)
==================================================================================="""
HOROVOD = """Traceback (most recent call last):
  File "/usr/local/bin/horovodrun", line 8, in <module>
    sys.exit(run_commandline())
  File "/usr/local/lib/python3.8/dist-packages/horovod/runner/gloo_run.py", line 300, in launch_gloo
    raise RuntimeError('x')
RuntimeError: Horovod detected that one or more processes exited with non-zero status, thus causing the job to be terminated. The first process to do so was:
Process name: 4
Exit code: 137
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (MPI, (3, None, None, None, 1, None)),
        (ABORT, (2, None, None, None, 13, None)),
        (MPICH, (3, None, "n17", 212, None, "SIGKILL")),
        (HOROVOD, (4, None, None, None, 137, "SIGKILL")),
    ],
)
def test_boxes(text, expected):
    found = [record for record in assemble(text) if record.kind != "line"]
    assert [record.kind for record in found] == ["launcher_summary"]
    assert failures(found[0]) == [expected]


def test_rank_lists_are_bounded():
    assert expand_ranks("0,2-4,x,7-") == [0, 2, 3, 4]
    assert len(expand_ranks("0-999999999")) == MAX_RANKS


def test_signals():
    assert signal_of(-11) == "SIGSEGV"
    assert signal_of(137) == "SIGKILL"
    assert signal_of(1) is None
    assert signal_of(None) is None
    assert signal_of(-9999) is None
