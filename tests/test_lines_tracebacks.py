import pytest

from diagnose.lines.frames import culprit_file, innermost_user_frame, make_frame
from diagnose.lines.traceback_lines import read_bare_exception, read_header
from diagnose.lines.tracebacks import TracebackParser, parse_traceback
from diagnose.models import Line, LogSource
from tests.recordlines import assemble, chain, read, records_of

FORMS = {
    "plain": (
        """Traceback (most recent call last):
  File "/home/a/train.py", line 3, in <module>
    main()
  File "/home/a/train.py", line 2, in main
    return d["x"]
           ~^^^^^
KeyError: 'x'""",
        [("KeyError", "'x'")],
        "/home/a/train.py:2",
    ),
    "bare name": (
        """Traceback (most recent call last):
  File "t.py", line 1, in <module>
    assert False
AssertionError""",
        [("AssertionError", "")],
        "t.py:1",
    ),
    "odd class": (
        """Traceback (most recent call last):
  File "t.py", line 1, in <module>
    render()
jinja2.exceptions.TemplateNotFound: chat.j2""",
        [("jinja2.exceptions.TemplateNotFound", "chat.j2")],
        "t.py:1",
    ),
    "chained": (
        """Traceback (most recent call last):
  File "/w/data.py", line 8, in load
    raw = open(path)
FileNotFoundError: [Errno 2] No such file or directory: 'a.bin'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/w/train.py", line 4, in <module>
    load()
RuntimeError: no data

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/w/train.py", line 9, in <module>
    run()
SystemExit: 3""",
        [
            ("FileNotFoundError", "[Errno 2] No such file or directory: 'a.bin'"),
            ("RuntimeError", "no data"),
            ("SystemExit", "3"),
        ],
        "/w/data.py:8",
    ),
    "syntax error": (
        """  File "/w/train.py", line 7
    def f(:
          ^
SyntaxError: invalid syntax""",
        [("SyntaxError", "invalid syntax")],
        "/w/train.py:7",
    ),
    "state dict": (
        """Traceback (most recent call last):
  File "/w/train.py", line 7, in <module>
    model.load_state_dict(s)
RuntimeError: Error(s) in loading state_dict for Net:
\tsize mismatch for a.weight: copying a param
\tMissing key(s) in state_dict: "b"
done""",
        [("RuntimeError", "Error(s) in loading state_dict for Net:")],
        "/w/train.py:7",
    ),
    "nccl": (
        """Traceback (most recent call last):
  File "/w/train.py", line 7, in <module>
    dist.barrier()
torch.distributed.DistBackendError: NCCL error in: x.cpp:1, unhandled system error
ncclSystemError: System call (e.g. socket, malloc) or external library call failed
Last error:
socketStartConnect: Connect to 10.0.0.1<5000> failed""",
        [("torch.distributed.DistBackendError", "NCCL error in: x.cpp:1, unhandled system error")],
        "/w/train.py:7",
    ),
    "dataloader": (
        """Traceback (most recent call last):
  File "/w/train.py", line 7, in <module>
    for b in loader:
KeyError: Caught KeyError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/opt/conda/lib/python3.10/site-packages/torch/utils/data/_utils/worker.py", line 308, in _worker_loop
    data = fetcher.fetch(index)
  File "/w/data.py", line 21, in __getitem__
    return row["role"]
KeyError: 'role'
""",
        [("KeyError", "'role'"), ("KeyError", "Caught KeyError in DataLoader worker process 0.")],
        "/w/data.py:21",
    ),
    "spawn": (
        """Traceback (most recent call last):
  File "/w/main.py", line 9, in <module>
    mp.spawn(run, nprocs=4)
torch.multiprocessing.spawn.ProcessRaisedException:\x20

-- Process 2 terminated with the following error:
Traceback (most recent call last):
  File "/usr/lib/python3.10/site-packages/torch/multiprocessing/spawn.py", line 74, in _wrap
    fn(i, *args)
  File "/w/main.py", line 5, in run
    1 / 0
ZeroDivisionError: division by zero
""",
        [("ZeroDivisionError", "division by zero"), ("torch.multiprocessing.spawn.ProcessRaisedException", "")],
        "/w/main.py:5",
    ),
    "pool": (
        '''multiprocessing.pool.RemoteTraceback:\x20
"""
Traceback (most recent call last):
  File "/w/prep.py", line 5, in tok
    return text["a"]
TypeError: string indices must be integers
"""

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/w/prep.py", line 15, in <module>
    pool.map(tok, rows)
TypeError: string indices must be integers''',
        [("TypeError", "string indices must be integers")] * 2,
        "/w/prep.py:5",
    ),
    "ray": (
        """Traceback (most recent call last):
  File "/w/main.py", line 3, in <module>
    ray.get(f.remote())
ray.exceptions.RayTaskError(ValueError): ray::f() (pid=3, ip=10.0.0.1)
  File "/w/task.py", line 14, in f
    raise ValueError("bad")
ValueError: bad""",
        [("ValueError", "bad"), ("ray.exceptions.RayTaskError(ValueError)", "ray::f() (pid=3, ip=10.0.0.1)")],
        "/w/task.py:14",
    ),
    "ray without header": (
        """ray.exceptions.RayTaskError(ValueError): ray::f() (pid=3, ip=10.0.0.1)
  File "/w/task.py", line 14, in f
    raise ValueError("bad")
ValueError: bad""",
        [("ValueError", "bad"), ("ray.exceptions.RayTaskError(ValueError)", "ray::f() (pid=3, ip=10.0.0.1)")],
        "/w/task.py:14",
    ),
    "rich": (
        """╭─────────── Traceback (most recent call last) ───────────╮
│ /w/train.py:12 in main                                   │
│                                                          │
│ ❱ 12 │   fit()                                           │
│                                                          │
│ /opt/conda/lib/python3.10/site-packages/torch/nn/modules │
│ /module.py:1501 in _call_impl                            │
╰──────────────────────────────────────────────────────────╯
RuntimeError: CUDA error: an illegal memory access was encountered
CUDA kernel errors might be asynchronously reported at some other API call.""",
        [("RuntimeError", "CUDA error: an illegal memory access was encountered")],
        "/w/train.py:12",
    ),
    "ipython": (
        """---------------------------------------------------------------------------
KeyError                                  Traceback (most recent call last)
Cell In[3], line 1
----> 1 f()

File ~/nb/lib.py:7, in f(a)
      5 def f(a):
----> 7     return a["k"]

KeyError: 'k'""",
        [("KeyError", "'k'")],
        "~/nb/lib.py:7",
    ),
    "group": (
        """  + Exception Group Traceback (most recent call last):
  |   File "/w/a.py", line 9, in <module>
  |     asyncio.run(main())
  | ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/w/a.py", line 3, in one
    |     raise ValueError("one")
    | ValueError: one
    +---------------- 2 ----------------
    | Traceback (most recent call last):
    |   File "/w/a.py", line 6, in two
    |     raise KeyError("two")
    | KeyError: 'two'
    +------------------------------------""",
        [
            ("ValueError", "one"),
            ("KeyError", "'two'"),
            ("ExceptionGroup", "unhandled errors in a TaskGroup (2 sub-exceptions)"),
        ],
        "/w/a.py:3",
    ),
    "thread": (
        """Exception in thread Thread-3 (pin):
Traceback (most recent call last):
  File "/w/a.py", line 3, in run
    work()
ConnectionResetError: [Errno 104] Connection reset by peer""",
        [("ConnectionResetError", "[Errno 104] Connection reset by peer")],
        "/w/a.py:3",
    ),
    "process": (
        """Process SpawnProcess-1:
Traceback (most recent call last):
  File "/w/a.py", line 3, in run
    work()
OSError: [Errno 28] No space left on device""",
        [("OSError", "[Errno 28] No space left on device")],
        "/w/a.py:3",
    ),
    "repeated frames": (
        """Traceback (most recent call last):
  File "/w/a.py", line 3, in f
    f()
  [Previous line repeated 996 more times]
RecursionError: maximum recursion depth exceeded""",
        [("RecursionError", "maximum recursion depth exceeded")],
        "/w/a.py:3",
    ),
    "no source lines": (
        """Traceback (most recent call last):
  File "/w/a.py", line 3, in f
  File "/w/b.py", line 4, in g
ValueError: no""",
        [("ValueError", "no")],
        "/w/b.py:4",
    ),
    "indentation lost": (
        """Traceback (most recent call last):
File "/w/a.py", line 3, in f
x: int = g()
File "/w/b.py", line 4, in g
raise ValueError("no")
ValueError: no""",
        [("ValueError", "no")],
        "/w/b.py:4",
    ),
    "unknown prefix": (
        """worker-3> Traceback (most recent call last):
worker-3>   File "/w/a.py", line 3, in f
worker-3>     g()
worker-3> ValueError: no""",
        [("ValueError", "no")],
        "/w/a.py:3",
    ),
    "logger's message": (
        """ERROR failed to save: Traceback (most recent call last):
  File "/w/a.py", line 3, in f
    g()
ValueError: no""",
        [("ValueError", "no")],
        "/w/a.py:3",
    ),
    "warning as error": (
        """Traceback (most recent call last):
  File "/w/a.py", line 3, in f
    g()
DeprecationWarning: old""",
        [("DeprecationWarning", "old")],
        "/w/a.py:3",
    ),
    "cut": (
        """Traceback (most recent call last):
  File "/w/a.py", line 3, in f
    g()""",
        [],
        None,
    ),
    "header only": ("Traceback (most recent call last):", [], None),
    "fatal": (
        """Fatal Python error: Segmentation fault

Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.10/threading.py", line 320 in wait

Current thread 0x00007f02 (most recent call first):
  File "/usr/lib/python3/dist-packages/torch/autograd/graph.py", line 90 in backward
  File "/w/train.py", line 44 in step
  ...
Extension modules: numpy.core, torch._C (total: 20)""",
        [("Fatal Python error", "Segmentation fault")],
        "/w/train.py:44",
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_form(form):
    text, exceptions, culprit = FORMS[form]
    (record,) = records_of(text, "traceback")
    assert chain(record) == exceptions
    assert culprit_file(record.exceptions) == culprit
    for item in record.exceptions:
        if item.message and form != "ray without header":
            assert item.type.split("(")[0] in record.lines[item.line_index].text


@pytest.mark.parametrize(
    "form", [form for form in FORMS if form != "unknown prefix" and "ERROR " not in FORMS[form][0]]
)
def test_form_under_a_rank_tag_interleaved_with_another_rank(form):
    text, exceptions, _ = FORMS[form]
    lines = text.split("\n")
    mixed = "\n".join(f"[rank0]: {line}\n[rank1]: {line}" for line in lines)
    found = records_of(mixed, "traceback")
    assert [chain(record) for record in found] == [exceptions, exceptions]
    assert sorted(record.first.rank for record in found) == [0, 1]


@pytest.mark.parametrize("form", FORMS)
def test_form_cut_anywhere_still_gives_each_line_once(form):
    lines = read(FORMS[form][0])
    for end in range(1, len(lines) + 1):
        numbers = sorted(line.number for record in assemble(lines[:end]) for line in record.lines)
        assert numbers == list(range(1, end + 1))


def test_what_follows_a_message_is_its_own_line():
    text = FORMS["plain"][0] + "\n\nstep 10 loss 2.0\nsaving"
    found = assemble(text)
    assert [record.kind for record in found] == ["traceback", "line", "line", "line"]


def test_rank_tag_lets_a_message_go_on_without_indentation():
    text = """[rank3]: Traceback (most recent call last):
[rank3]:   File "/w/a.py", line 3, in f
[rank3]:     g()
[rank3]: pkg.OddError: first
[rank3]: it goes on here
step 4"""
    (record,) = records_of(text, "traceback")
    assert record.exceptions[0].message == "first\nit goes on here"


def test_noise_of_another_writer_passes_through_an_open_traceback():
    text = """Traceback (most recent call last):
  File "/w/a.py", line 3, in f
step 12 loss 1.0
    g()
  File "/w/b.py", line 4, in g
step 13 loss 1.0
    raise ValueError
ValueError: no"""
    (record,) = records_of(text, "traceback")
    assert chain(record) == [("ValueError", "no")]
    assert len(record.lines) == 6


def test_escaped_traceback_in_one_line():
    line = r'ERROR boom {"exc": "Traceback (most recent call last):\n  File \"/w/a.py\", line 3, in f\n    g()\nKeyError: \'k\'"}'
    (record,) = records_of(line, "traceback")
    assert record.exceptions[0].type == "KeyError"
    assert culprit_file(record.exceptions) == "/w/a.py:3"
    assert not record.quoted
    (record,) = records_of(line.replace("ERROR", "INFO"), "traceback")
    assert record.quoted


def test_ignored_exceptions_are_marked():
    text = """Exception ignored in: <function _Del.__del__ at 0x7f>
Traceback (most recent call last):
  File "/w/a.py", line 3, in __del__
    g()
AttributeError: 'NoneType' object has no attribute 'x'"""
    (record,) = records_of(text, "traceback")
    assert record.quoted
    assert record.fields["ignored"] == "true"


def test_announcement_without_traceback_is_plain():
    assert [record.kind for record in assemble("Process Group-1:\nhello")] == ["line", "line"]


def test_bare_exception_needs_an_error_level_or_a_launcher_before_it():
    line = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"
    assert [record.kind for record in assemble(line)] == ["line"]
    (record,) = assemble("ERROR " + line)
    assert record.kind == "traceback"
    assert record.exceptions[0].frames == ()
    after = assemble("srun: error: n1: task 0: Exited with exit code 1\n" + line)
    assert [record.kind for record in after] == ["launcher_summary", "traceback"]


def test_warnings_are_no_exceptions():
    found = assemble("ERROR UserWarning: deprecated\n/a/b.py:3: UserWarning: x\n  warnings.warn(")
    assert {record.kind for record in found} == {"line"}


def test_deep_recursion_keeps_head_and_tail():
    frames = [f'  File "/w/a.py", line {n}, in f\n    f()' for n in range(600)]
    text = "\n".join(["Traceback (most recent call last):", *frames, "ValueError: no"])
    (record,) = records_of(text, "traceback")
    assert len(record.lines) == 200
    assert record.lines[record.exceptions[0].line_index].text == "ValueError: no"
    assert record.lines[0].number == 1


def test_long_message_is_cut():
    text = FORMS["plain"][0] + "\n" + "\n".join("  " + "x" * 500 for _ in range(100))
    (record,) = records_of(text, "traceback")
    assert len(record.exceptions[0].message) <= 4096


def test_py_spy_dump_says_where_threads_stood():
    text = """Thread 0x7F1200 (active): "MainThread"
    wait (threading.py:320)
    all_reduce (torch/distributed/distributed_c10d.py:2500)
    step (/w/train.py:40)
Thread 0x7F1201 (idle): "Thread-1"
    poll (selectors.py:416)"""
    (record,) = records_of(text, "traceback")
    assert record.exceptions == ()
    assert record.fields["innermost"].split("\n")[0] == "threading.py:320 wait"


def test_user_frames():
    for path in (
        "/opt/conda/lib/python3.10/site-packages/torch/nn/modules/module.py", "/usr/lib/python3.8/runpy.py", "<frozen importlib._bootstrap>",
        "<string>", "/usr/local/lib/python3.8/dist-packages/apex/a.py", "/data/u/pytorch/torch/cuda/__init__.py", "python/ray/_raylet.pyx",
        "C:\\Python311\\Lib\\site-packages\\x.py",
    ):  # fmt: skip
        assert not make_frame(path.replace("Lib", "lib"), "1", "f").user, path
    for path in (
        "/home/a/train.py",
        "train.py",
        "/w/src/torch_utils/a.py",
        "/workspace/Megatron-LM/megatron/training.py",
    ):
        assert make_frame(path, "1", "f").user, path


def test_torn_lines_behind_a_progress_bar_join_their_rank():
    text = """ 10%|#   | 1/10 [00:01, 1.0s/it][rank1]: Traceback (most recent call last):
[rank1]:   File "/w/a.py", line 3, in f
[rank1]:     g()
 20%|##  | 2/10 [00:02, 1.0s/it][rank1]: ValueError: no 30%|### | 3/10"""
    (record,) = records_of(text, "traceback")
    assert chain(record) == [("ValueError", "no")]
    assert [line.number for line in record.lines] == [1, 2, 3, 4]


def test_parse_traceback_of_a_text():
    (item,) = parse_traceback(FORMS["plain"][0])
    assert item.line_index == 6
    assert innermost_user_frame(item).line == 2
    assert parse_traceback("no traceback") == ()


def test_headers():
    assert read_header("nothing") is None
    assert read_header("see Traceback (most recent call last) above") is None
    assert read_bare_exception("see ValueError: x") is None
    assert read_bare_exception("a.b.CustomError: x") == ("a.b.CustomError", "x")


@pytest.mark.parametrize("depth", [1, 150, 201, 450])
@pytest.mark.parametrize("cut", [1, 7, 10_000])
def test_frames_taken_in_a_row_are_those_of_line_by_line(depth: int, cut: int) -> None:
    source = LogSource("job.log", "job")
    bodies = [f'  File "/w/m{number % 60}.py", line {number + 1}, in f{number}' for number in range(depth)]
    bodies = [part for body in bodies for part in (body, "    f(x)")]
    lines = [Line(source, number + 2, body, body, "job.log") for number, body in enumerate(bodies)]
    together, one_by_one = TracebackParser(), TracebackParser()
    for parser in (together, one_by_one):
        parser.start("Traceback (most recent call last):")
    for start in range(0, len(lines), cut):
        turn = lines[start : start + cut]
        assert together.take(turn, 0) == len(turn)
    for line in lines:
        one_by_one.push(line.body, line.number)
    for parser in (together, one_by_one):
        parser.push("KeyError: 3", 5_000)
    assert together.exceptions({}.get) == one_by_one.exceptions({}.get)
    assert together.frames_seen == one_by_one.frames_seen == depth
