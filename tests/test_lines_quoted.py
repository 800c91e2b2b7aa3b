"""Lines that only quote, and true reports that look alike."""

from __future__ import annotations

import pytest

from diagnose.lines import LineReader
from diagnose.models import KeptLine, LogSource
from diagnose.settings import Limits


def quoted(*texts: str, kind="job") -> list[bool]:
    reader = LineReader(LogSource("job.log", kind), Limits())
    return [
        line.quoted for number, text in enumerate(texts, 1) for line in reader.read(KeptLine(number, text.encode()))
    ]


QUOTES = [
    "2026-04-02 13:00:46 DEBUG [errmsg_gen] doc 0 target   | RuntimeError: CUDA error: device-side assert triggered",
    "2026-04-02 13:00:46 DEBUG [errmsg_gen] doc 0 predicted| NVRM: Xid (PCI:0000:86:00): 48",
    "Prediction: ValueError: x",
    "pred: No space left on device",
    "Ground truth: Segmentation fault (core dumped)",
    "sample 12 completion: torch.OutOfMemoryError: CUDA out of memory",
    '{"id": 3, "prompt": "why", "completion": "CUDA out of memory"}',
    '  "target": "RuntimeError: CUDA error",',
    "{'question': 'what is OOM?', 'answer': 'CUDA out of memory'}",
    "+ python train.py --on-error abort",
    "++ export NCCL_DEBUG=INFO",
    "$ sudo dmesg -T | tail",
    "root@gx-1:~# nvidia-smi -L",
    "#SBATCH --time=01:00:00",
    "export TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
    "NCCL_IB_TIMEOUT=22",
    "usage: train.py [-h] [--fail-on-error]",
    "  --max-errors N   stop after N errors",
    "  use_error_handling ........................ False",
    '2026-01-01 00:00:00,1 [INFO] [a.train] arguments: {"steps": 60, "on_error": "abort"}',
    "args: Namespace(lr=1, on_oom='retry')",
    "Script parameters GRPOScriptArguments(dataset_name='a', on_error='raise')",
    "TrainingArguments(output_dir='x')",
    '  "error_policy": "abort",',
    "(TaskRunner pid=7) {'actor_rollout_ref': {'on_timeout': 'restart'}}",
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
    "If you see CUDA out of memory, lower the batch size.",
    '2026-01-01 00:00:00,1 INFO judge [20/800] prompt="Why is there `NVRM: Xid (PCI:0000:3b:00): 79`?"',
    "INFO grade | 7/90 question='what does Segmentation fault (core dumped) mean' score=0",
    "judge: answer: `RuntimeError: CUDA out of memory`",
    "> RuntimeError: CUDA error: an illegal memory access was encountered",
    "   > torch.cuda.OutOfMemoryError: CUDA out of memory.",
]

REPORTS = [
    "Traceback (most recent call last):",
    "RuntimeError: CUDA error: device-side assert triggered",
    "  + Exception Group Traceback (most recent call last):",
    "    target = model(x)",
    "ValueError: target: [3] and pred: [2] differ",
    "request 7 failed: prompt='abc' CUDA out of memory",
    "worker: prompt='abc' -> RuntimeError: CUDA out of memory",
    "> initializing torch distributed ...",
    "train.py: error: unrecognized arguments: --micro 8",
    "  error_file: <N/A>",
    "  exitcode  : 1 (pid: 77)",
    "{'loss': nan, 'grad_norm': nan, 'learning_rate': 1e-5}",
    '{"message": {"message": "RuntimeError: x"}}',
    '  "message": {"error": "RuntimeError"},',
    '{"error": "CUDA out of memory", "prompt": "x"}',
    "Command failed: exited with 1",
    "subprocess.CalledProcessError: Command '['python']' returned non-zero exit status 1.",
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB (GPU 0)",
    "KeyError: 'role'",
    "srun: error: gx-1: task 3: Killed",
    "Config(path=...) failed: FileNotFoundError: x",
    "[rank0]:     raise ValueError(f'bad config: {config}')",
    "slurmstepd: error: Detected 1 oom_kill event",
]


@pytest.mark.parametrize("text", QUOTES)
def test_quotes(text):
    assert quoted(text) == [True]


@pytest.mark.parametrize("text", REPORTS)
def test_reports(text):
    assert quoted(text) == [False]


def test_a_traceback_inside_a_dump_is_quoted_to_its_end():
    texts = [
        "2026-04-02 13:01:22 DEBUG [gen] doc 600 target   | Traceback (most recent call last):",
        '  File "train.py", line 88, in <module>',
        "    main()",
        "ZeroDivisionError: division by zero",
        "Traceback (most recent call last):",
        '  File "train.py", line 9, in <module>',
        "KeyError: 1",
    ]
    assert quoted(*texts) == [True] * 4 + [False] * 3


def test_a_true_traceback_ends_a_dump():
    texts = ["target: Traceback (most recent call last):", "Traceback (most recent call last):", "KeyError: 1"]
    assert quoted(*texts) == [True, False, False]


def test_kernel_logs_do_not_quote():
    assert quoted("target: NVRM: Xid 79", kind="kernel") == [False]
