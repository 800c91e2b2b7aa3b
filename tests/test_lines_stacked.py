"""Any prefix behind any other, up to four deep: the body is what is left, and it is the same."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import permutations

import pytest

from diagnose.lines import LineReader
from diagnose.models import KeptLine, Line, LogSource
from diagnose.settings import Limits

FORMS = {
    "srun": "{rank}: ",
    "torchrun": "[default{rank}]:",
    "rank": "[rank{rank}]:",
    "pdsh": "gx-0{rank}: ",
    "ray": "(TrainWorker pid=7{rank}, ip=10.0.0.{rank}) ",
    "kubectl": "[pod/vlm-worker-{rank}/pytorch] ",
    "mpirun": "[1,{rank}]<stderr>:",
    "cri": "2026-01-01T00:00:00.123456789Z stderr F ",
    "iso": "2026-01-01T00:00:00Z ",
    "locale": "Tue Apr 14 01:18:01 PM UTC 2026 ",
    "bracket": " [2026-02-11 03:12:40] ",
    "nccl": "gx-{rank}:100:200 [{rank}] ",
    "python": "2026-01-01 00:00:00,123 - trainer - ERROR - ",
    "glog": "E0302 12:00:00.000000 1402 api.py:826] ",
    "absl": "E0302 12:00:00.123456 140259 train.py:12] ",
    "klog": "E0307 08:00:01.000000       1 client_config.go:659] ",
    "loguru": "2026-01-01 00:00:00.123 | ERROR    | acme.mod:fn:12 - ",
    "internevo": "2023-07-07 12:28:57,802\tERROR train.py:323 in record -- ",
    "nemo": "[NeMo E 2025-08-31 10:12:31 nemo_logging:405] ",
    "deepspeed": "[2026-04-14 09:10:22,948] [ERROR] [engine.py:254:fn] ",
}
# A label of srun is outermost, or behind a stamp; `host:pid:tid [gpu] ` is NCCL's only before NCCL's own words.
OUTER = frozenset({"iso", "locale", "bracket", "cri"})
TEXTS = (
    "loss is fine",
    "Traceback (most recent call last):",
    "RuntimeError: CUDA error: an illegal memory access was encountered",
)


def possible(stack: Sequence[str]) -> bool:
    if "srun" in stack[1:] and not OUTER.issuperset(stack[: stack.index("srun")]):
        return False
    return "nccl" not in stack[:-1]


def last(stack: Sequence[str]) -> Line:
    """The last line of three ranks that print the same texts behind the same prefixes."""
    heads = ["".join(FORMS[name] for name in stack).replace("{rank}", str(rank)) for rank in range(3)]
    texts = [head + text for text in TEXTS for head in heads]
    reader = LineReader(LogSource("job.log"), Limits())
    reader.learn("\n".join(texts).encode() + b"\n")
    return [
        line
        for number, text in enumerate(texts, 1)
        for line in reader.read(KeptLine(number, text.encode(), guarded=True))
    ][-1]


def left(stacks: Sequence[Sequence[str]]) -> dict[str, str]:
    """The stacks of which something stays in the body."""
    return {" ".join(stack): body for stack in stacks if (body := last(stack).body) != TEXTS[-1]}


@pytest.mark.parametrize("outermost", FORMS)
def test_pairs(outermost: str) -> None:
    stacks = [(outermost,), *((outermost, inner) for inner in FORMS if inner != outermost)]
    assert left([stack for stack in stacks if possible(stack)]) == {}


@pytest.mark.parametrize("deep", [3, 4])
def test_deeper(deep: int) -> None:
    stacks = [stack for stack in permutations(FORMS, 3) if possible(stack)]
    chosen = random.Random(deep).sample(stacks, 500)
    if deep == 4:
        inner = random.Random(deep).choices(list(FORMS), k=len(chosen))
        chosen = [(*stack, more) for stack, more in zip(chosen, inner, strict=True) if more not in stack]
        chosen = [stack for stack in chosen if possible(stack)]
    assert left(chosen) == {}


@pytest.mark.parametrize("outer", ["iso", "locale", "bracket", "cri", "glog", "python"])
@pytest.mark.parametrize(
    ("inner", "rank", "local", "host"),
    [
        ("rank", 2, None, None),
        ("torchrun", None, 2, None),
        ("mpirun", 2, None, None),
        ("pdsh", None, None, "gx-02"),
        ("ray", None, None, "10.0.0.2"),
        ("kubectl", None, None, "vlm-worker-2"),
    ],
)
def test_what_the_inner_prefix_says(outer: str, inner: str, rank: int | None, local: int | None, host: str) -> None:
    line = last((outer, inner))
    assert (line.rank, line.local_rank, line.host) == (rank, local, host)


@pytest.mark.parametrize(
    "text",
    [
        "conv2d: shapes do not fit",
        "12: a list in a message",
        "[Rank 5] Some NCCL operations",
        "[PG 0 Rank 3] a group",
        "(see above) no actor",
        "Tuesday was fine",
        "Error: gx-1:100 refused",
        "    indented",
        "stdout is closed",
        "E2E: latency",
    ],
)
@pytest.mark.parametrize("outer", ["2026-01-01T00:00:00Z ", "E0302 12:00:00.000000 1402 api.py:826] ", "[rank1]: "])
def test_messages_that_look_like_prefixes_stay(outer: str, text: str) -> None:
    lines = [outer + text] * 5
    reader = LineReader(LogSource("job.log"), Limits())
    bodies = {
        line.body
        for number, raw in enumerate(lines, 1)
        for line in reader.read(KeptLine(number, raw.encode(), guarded=True))
    }
    assert bodies == {text}
