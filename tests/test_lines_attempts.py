"""Where one try of a job ends and the next begins, and what only looks like it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.lines.attempts import MAX_BOUNDARIES, AttemptTracker, align, attempt_literals
from diagnose.lines.progress import ProgressReader
from diagnose.lines.reader import LineReader
from diagnose.models import KeptLine, Line, LogSource
from diagnose.settings import Limits

JOB = LogSource("job.log")


def follow(
    text: str, source: LogSource = JOB, times: list[float | None] | None = None
) -> tuple[AttemptTracker, list[int]]:
    tracker, reader = AttemptTracker(source), ProgressReader()
    indexes = []
    for number, body in enumerate(text.strip("\n").split("\n"), 1):
        stream = body.partition("|")[0] if body.startswith("s") and "|" in body[:4] else "s"
        time = times[number - 1] if times is not None else None
        line = Line(source, number, body, body, stream, time=time)
        event = reader.read(line, 0)
        ended = event is not None and event.kind == "completed"
        step = event.step if event is not None and event.kind == "step" else None
        indexes.append(tracker.observe(line, step, ended=ended))
    return tracker, indexes


def starts(text: str) -> list[int]:
    tracker, _ = follow(text)
    return [boundary.number for boundary in tracker.boundaries]


CASES = {
    "torchelastic": ("""
+ torchrun --max-restarts 3 train.py
step 1 loss 9
RuntimeError: boom
[default] Worker group FAILED. 3/3 attempts left; will restart worker group
[default] Stopping worker group
[default] Rendezvous'ing worker group
[default] Rendezvous complete for workers. Result:
  restart_count=1
step 1 loss 9
""", [6]),
    "three agents, one restart": ("""
step 1 loss 9
[default] Worker group FAILED. 2/3 attempts left; will restart worker group
[default] Worker group FAILED. 2/3 attempts left; will restart worker group
[default] Rendezvous complete for workers. Result: restart_count=2
[default] Rendezvous'ing worker group
[default] Rendezvous complete for workers. Result: restart_count=2
[rank0]: attempt 2 (TORCHELASTIC_RESTART_COUNT=2)
step 1 loss 9
""", [4]),
    "restart count alone": ("""
TORCHELASTIC_RESTART_COUNT=0
step 5 loss 2
Traceback (most recent call last):
TORCHELASTIC_RESTART_COUNT=1
TORCHELASTIC_RESTART_COUNT=1
step 3 loss 2
""", [4]),
    "a file that begins in a later restart": ("""
TORCHELASTIC_RESTART_COUNT=2
step 5 loss 2
""", []),
    "a restart that is announced and never comes": ("""
step 5 loss 2
RuntimeError: x
[default] Worker group FAILED. 3/3 attempts left; will restart worker group
[default] Stopping worker group
slurmstepd: error: *** STEP 1.0 ON a CANCELLED ***
""", []),
    "slurm requeue": ("""
=== guard: SLURM_RESTART_COUNT=0 job 7 ===
step 1280 loss 2
srun: error: dgx-015: task 12: Aborted (core dumped)
=== srun rc=134, requeueing (1/3) ===
scontrol requeue 7
=== guard: SLURM_RESTART_COUNT=1 job 7 ===
resuming from: /ckpt/step_1200
step 1220 loss 2
step 1240 loss 2
""", [6]),
    "requeue line, then the steps begin again": ("""
step 100 loss 2
step 120 loss 2
slurmstepd: error: *** JOB 608 ON srv4 CANCELLED AT 2026-08-12T02:06:12 DUE TO JOB REQUEUE ***
slurmstepd: error: Failed to send MESSAGE_TASK_EXIT: Connection refused
terminate called after throwing an instance of 'std::runtime_error'
step 100 loss 2
step 120 loss 2
""", [6]),
    "requeue at the end": ("""
step 100 loss 2
slurmstepd: error: *** JOB 608 ON srv4 CANCELLED AT 2026-08-12T02:06:12 DUE TO JOB REQUEUE ***
srun: error: srv4: tasks 2-3: Exited with exit code 1
""", []),
    "numbered banners": ("""
##### try 1: salloc -N2 #####
step 1 loss 2
##### try 2: salloc -N2 #####
RuntimeError: x
##### try 3: salloc -N2 #####
RuntimeError: x
""", [3, 5]),
    "launcher's numbers": ("""
[launcher] attempt 1
step 1 loss 2
[launcher] attempt 2
step 1 loss 2
""", [3]),
    "bracketed numbers": ("""
[attempt 1] job 69e5be80 scheduled on host hgx-p7
ImportError: x
[attempt 2] job 69e5be81 scheduled on host hgx-p7
ImportError: x
""", [3]),
    "sbatch banners": ("""
===== sbatch job 771204 (attempt 1) node dgk-n13 =====
srun: error: dgk-n13: task 0: Exited with exit code 1
===== sbatch job 771205 (attempt 2) node dgk-n13 =====
exit status 0
""", [3]),
    "restarting training": ("""
=== start ===
epoch setup of the model done
step 7 loss 2
RuntimeError: x
Restarting training (2/3)
epoch setup of the model done
step 1 loss 2
""", [6]),
    "the launch command is echoed again": ("""
+ torchrun --nproc-per-node 8 train.py
step 7 loss 2
exit code: 1
+ torchrun --nproc-per-node 8 train.py
step 1 loss 2
""", [4]),
    "the start is printed again after a failed launch": ("""
2026-01-01 00:00:00 torch 2.1 | backend gloo | world_size 2
2026-01-01 00:00:01 arguments: {"steps": 20}
2026-01-01 00:00:02 model parameters: 132992
step 5 loss 2
failed (exitcode: -6) local_rank: 0 (pid: 21739) of binary: /usr/bin/python
2026-01-01 00:01:00 torch 2.1 | backend gloo | world_size 2
2026-01-01 00:01:01 arguments: {"steps": 20}
2026-01-01 00:01:02 model parameters: 132992
step 1 loss 2
""", [6]),
    "the heading of another run after one that is done": ("""
=== run a41f on n[1-4] ===
step 100 loss 2
Training completed
=== run b72e on n[1,5] ===
step 90 loss 2
""", [4]),
    "steps fall after an interruption": ("""
step 100 loss 2
step 110 loss 2
KeyboardInterrupt
model loaded
step 0 loss 3
""", [5]),
    "an evaluation after the end of the training": ("""
=== run a41f on n[1-4] ===
step 100 loss 2
Training completed
=== evaluation ===
eval step 0 of 20
""", []),
    "a ruled line tells of the requeue": ("""
step 3 loss 2
slurmstepd: error: *** JOB 90 ON n1 CANCELLED AT 2026-03-02T20:31:50 DUE TO PREEMPTION ***
=== requeued, restart count 1, host n4 ===
loading data
""", [3]),
    "a ruled line speaks of restarts while all is well": ("""
step 3 loss 2
=== restart files are kept in /ckpt ===
step 4 loss 2
""", []),
    "headings within one run": ("""
=== run 7: data ===
step 1 loss 2
=== run 7: training ===
step 2 loss 2
""", []),
    "another allocation": ("""
srun: job 100 has been allocated resources
step 7 loss 2
slurmstepd: error: *** STEP 100.0 ON a CANCELLED ***
srun: job 101 queued and waiting for resources
srun: job 101 has been allocated resources
step 1 loss 2
""", [4]),
    "steps fall after a failure": ("""
step 100 loss 2
step 110 loss 2
Traceback (most recent call last):
step 90 loss 2
step 100 loss 2
""", [4]),
    "steps fall after a resume": ("""
step 100 loss 2
step 110 loss 2
Resuming from checkpoint /x/step_90
step 90 loss 2
""", [4]),
    "steps fall with nothing between": ("""
step 100 loss 2
step 110 loss 2
step 1 loss 2
step 11 loss 2
""", []),
    "ranks that lie a step apart": ("""
step 100 loss 2
step 101 loss 2
RuntimeError: x
step 100 loss 2
step 101 loss 2
""", []),
    "ranks in one file": ("""
rank 0 step 100 loss 2
rank 1 step 90 loss 2
RuntimeError: x
rank 1 step 91 loss 2
rank 0 step 101 loss 2
""", []),
    "retries of something else": ("""
step 5 loss 2
upload to s3 failed on attempt 1/5, retry in 2s
upload to s3 failed on attempt 2/5, retry in 4s
part-113.tar: [Errno 108] Cannot send, reopening (try 1)
part-113.tar: [Errno 108] Cannot send, reopening (try 2)
waiting for http://127.0.0.1:8000/health ... attempt 13/60: connection refused
socketPollConnect: connect returned No route to host, retrying (1/34) after sleep for 100 msec
step 6 loss 2
""", []),
    "ends that are numbered": ("""
step 5 loss 2
ERROR launcher: attempt 1: trainers exited with code 1
ERROR launcher: attempt 2: trainers exited with code 1
job FAILED after 3 attempts
""", []),
    "a smaller batch within one process": ("""
***** Running training *****
  Num examples = 20,000
Instantaneous batch size per device = 32
torch.OutOfMemoryError: CUDA out of memory.
retrying with batch size 16
***** Running training *****
  Num examples = 20,000
Instantaneous batch size per device = 16
step 1 loss 2
""", []),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_attempts_begin_where_something_starts(name: str) -> None:
    text, expected = CASES[name]
    assert starts(text) == expected


@pytest.mark.parametrize("name", CASES)
def test_attempts_begin_alike_where_lines_are_read_with_prefixes_and_quotes(name: str) -> None:
    text, expected = CASES[name]
    tracker, reader, progress = AttemptTracker(JOB), LineReader(JOB, Limits()), ProgressReader()
    for number, body in enumerate(text.strip("\n").split("\n"), 1):
        for line in reader.read(KeptLine(number, body.encode(), guarded=True)):
            event = progress.read(line, 0)
            step = event.step if event is not None and event.kind == "step" else None
            tracker.observe(line, step, ended=event is not None and event.kind == "completed")
    assert [boundary.number for boundary in tracker.boundaries] == expected


def test_a_step_that_was_held_back_is_of_the_attempt_that_made_it() -> None:
    tracker, _ = follow("step 8 loss 2\nRuntimeError: x\nstep 0 loss 2\nstep 1 loss 2")
    late = Line(JOB, 2, "step 9 loss 2", "step 9 loss 2", "s")
    assert (tracker.observe(late, 9), tracker.boundaries[-1].number) == (0, 3)


def test_lines_before_a_boundary_belong_to_the_attempt_that_died() -> None:
    _, indexes = follow(CASES["torchelastic"][0])
    assert indexes == [0, 0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    "source",
    [LogSource("attempt_1/0.log", attempt=1), LogSource("k", kind="kernel"), LogSource("s", kind="scheduler")],
)
def test_a_source_that_is_one_attempt_or_none_has_no_boundaries(source: LogSource) -> None:
    tracker, indexes = follow(CASES["torchelastic"][0], source)
    assert not tracker.boundaries
    assert set(indexes) == {0}


def test_attempts_align_from_the_end_without_times() -> None:
    long, _ = follow(CASES["numbered banners"][0])
    short, _ = follow("step 1 loss 2", LogSource("other"))
    aligned = align({"job.log": long, "other": short})
    assert [aligned["job.log", index] for index in range(3)] == [0, 1, 2]
    assert aligned["other", 0] == 2


def test_attempts_align_by_time_where_it_is_known() -> None:
    long, _ = follow(CASES["numbered banners"][0], times=[10.0, 20.0, 30.0, 40.0, 50.0, 60.0])
    early, _ = follow("step 1 loss 2", LogSource("early"), times=[15.0])
    middle, _ = follow("step 1 loss 2", LogSource("middle"), times=[45.0])
    late, _ = follow("step 1 loss 2\nstep 2 loss 2", LogSource("late"), times=[15.0, 61.0])
    kernel, _ = follow("x", LogSource("kern", kind="kernel"), times=[15.0])
    aligned = align({"job.log": long, "early": early, "middle": middle, "late": late})
    assert (aligned["early", 0], aligned["middle", 0], aligned["late", 0]) == (0, 1, 2)
    assert align({"job.log": long, "kern": kernel})["kern", 0] in {0, 2}


def test_a_source_named_for_an_attempt_is_that_attempt() -> None:
    first, _ = follow("step 1 loss 2", LogSource("a/attempt_0", attempt=0))
    second, _ = follow("step 1 loss 2", LogSource("a/attempt_1", attempt=1))
    loose, _ = follow("step 1 loss 2", LogSource("agent.log"))
    aligned = align({"a/attempt_0": first, "a/attempt_1": second, "agent.log": loose})
    assert (aligned["a/attempt_0", 0], aligned["a/attempt_1", 0], aligned["agent.log", 0]) == (0, 1, 1)
    assert align({}) == {}


def test_boundaries_are_bounded() -> None:
    text = "\n".join(f"##### try {number}\nRuntimeError: x" for number in range(1, 999))
    tracker, _ = follow(text + "\n" + text)
    assert len(tracker.boundaries) <= MAX_BOUNDARIES


def test_literals_are_long_enough_for_the_guard() -> None:
    assert all(len(literal) >= 5 for literal in attempt_literals())


_PIECES = st.sampled_from(
    ["##### try 2", "restart_count=1", "RESTART_COUNT=3", "step 5 loss 1", "step 1 loss 1", "Error: x", "srun: job 5 queued", "+ torchrun x",
     "3/3 attempts left; will restart worker group", "Rendezvous'ing worker group", "Resuming from checkpoint /x", "hello there world", "[attempt 9] x"]
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(_PIECES, st.text(max_size=80).map(lambda text: text.replace("\n", " "))), min_size=1, max_size=60
    )
)
def test_indexes_only_rise_and_agree_with_the_boundaries(pieces: list[str]) -> None:
    tracker, indexes = follow("x\n" + "\n".join(pieces))
    assert indexes == sorted(indexes)
    assert indexes[-1] == len(tracker.boundaries)
    assert len(tracker.ends) == len(tracker.boundaries) + 1
    numbers = [boundary.number for boundary in tracker.boundaries]
    assert numbers == sorted(numbers)
