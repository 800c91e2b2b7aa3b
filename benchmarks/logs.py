"""Logs made from a seed: what the benchmarks read. Each writes a file of about so many bytes, in little memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

RANKS = 64
LETTERS = "abcdefghijklmnopqrstuvwxyz"
_PART_LINES = 20_000
_STORM_FOLDER = "/workspace/megatron/core/transformer/layers"
_STORM_FRAMES = 190  # with two lines each, and head and tail: 400 lines a rank

Lines = Iterator[str]


def word(draw: random.Random, size: int = 6) -> str:
    """A word that no rule knows."""
    return "".join(draw.choices(LETTERS, k=size))


def novel_line(draw: random.Random) -> str:
    """A line of a template of its own."""
    return f"{draw.randrange(RANKS)}: {' '.join(word(draw) for _ in range(12))} {draw.randrange(10**6)}"


def routine_line(draw: random.Random, step: int) -> str:
    """A line of one of several frameworks, as one of 64 ranks writes it at a step."""
    rank, roll = draw.randrange(RANKS), draw.random()
    if roll < 0.45:
        return (
            f"{rank}: [2026-03-01 10:{step // 60 % 60:02}:{step % 60:02}.123] iteration {step:8}/  250000 | "
            f"consumed samples: {step * 1024:12} | elapsed time per iteration (ms): {9000 + draw.random() * 999:.1f} | "
            "learning rate: 1.500000E-04 | global batch size:  1024 | "
            f"lm loss: {2 + draw.random():.6E} | loss scale: 1.0 | "
            f"grad norm: 0.{draw.randrange(1000):03} | number of skipped iterations:   0 |"
        )
    if roll < 0.65:
        peer = draw.randrange(RANKS)
        return f"{rank}: gx-{rank:03}:8812:9013 [3] NCCL INFO Channel 07/0 : {rank}[3] -> {peer}[4] via P2P/CUMEM"
    if roll < 0.85:
        return f"{rank}:     forward-backward ...............................: ({draw.random() * 9000:.2f}, 9204.97)"
    stamp = f'"time_ms": 17152306{draw.randrange(99999):05}, "event_type": "POINT_IN_TIME"'
    where = '"metadata": {"file": "/w/run.py", "lineno": 887}'
    return f':::MLLOG {{"namespace": "", {stamp}, "key": "weights_initialization", "value": null, {where}}}'


def routine(draw: random.Random) -> Lines:
    """The interleaved lines of 64 ranks, one in a hundred of them novel; steps never fall."""
    parts = [routine_line(draw, 0) for _ in range(_PART_LINES)]
    step = 0
    while True:
        step += _PART_LINES // RANKS
        for text in parts:
            if draw.random() < 0.01:
                yield novel_line(draw)
            elif " iteration " in text:
                yield text.replace("iteration        0/", f"iteration {step:8}/", 1)
            else:
                yield text


def few(draw: random.Random) -> Lines:
    """Few templates, again and again, that no filter knows: hard, for no line can be taken out."""
    words = [[word(draw) for _ in range(12)] for _ in range(20)]
    while True:
        yield f"{draw.randrange(RANKS)}: {' '.join(draw.choice(words))} {draw.randrange(10**6)}"


def novel(draw: random.Random) -> Lines:
    """Every line a template of its own: hard, for the rules never fit and no verdict is met again."""
    while True:
        yield novel_line(draw)


def guarded(draw: random.Random) -> Lines:
    """Only lines that a diagnosis rule must see, none of which is a failure by itself."""
    while True:
        yield (
            f"[rank{draw.randrange(RANKS)}]: gx-{draw.randrange(8):03}:8812:9013 [3] NCCL WARN "
            f"Call to {word(draw)} returned {draw.randrange(100)}, retrying"
        )


def storm(draw: random.Random) -> Lines:
    """512 ranks that die at once, their tracebacks of 400 lines interleaved."""
    while True:
        left = {
            rank: iter(
                [
                    f"[rank{rank}]: Traceback (most recent call last):",
                    *(
                        line
                        for frame in range(_STORM_FRAMES)
                        for line in (
                            (
                                f'[rank{rank}]:   File "{_STORM_FOLDER}/block_{frame}.py", '
                                f"line {frame}, in forward_{frame}"
                            ),
                            (
                                f"[rank{rank}]:     hidden_states, residual = "
                                f"self.block_{frame}(hidden_states, mask, rotary)"
                            ),
                        )
                    ),
                    f"[rank{rank}]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251",
                    f"[rank{rank}]: ncclSystemError: System call or external library call failed.",
                    *(f"[rank{rank}]: Last error: socket {number} closed" for number in range(16)),
                ]
            )
            for rank in range(512)
        }
        while left:
            for rank in draw.sample(sorted(left), len(left)):
                taken = [line for line, _ in zip(left[rank], range(draw.randint(1, 12)), strict=False)]
                if not taken:
                    del left[rank]
                yield from taken


KINDS: dict[str, Callable[[random.Random], Lines]] = {
    "routine": routine,
    "few": few,
    "novel": novel,
    "guarded": guarded,
    "storm": storm,
}


def write(path: Path, kind: str, size: int, seed: int = 17) -> int:
    """Write a log of a kind; return its lines."""
    count = written = 0
    with path.open("w") as file:
        for line in KINDS[kind](random.Random(seed)):
            written += file.write(line)
            written += file.write("\n")
            count += 1
            if written >= size:
                break
    return count
