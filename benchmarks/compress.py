"""How fast the compressor takes routine lines out: MB/s and lines kept, on a log made from a seed.

    python benchmarks/compress.py [MEGABYTES] [routine | steps | novel]

`routine` mixes step lines of 64 ranks with NCCL, MLPerf and timer lines, 1 line in 200 unknown; `steps` is step lines
alone; `novel` is lines that no rule knows, each a new template: the worst case.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import yaml

from diagnose.compress import Compressor, Filters, Guard
from diagnose.models import LogSource
from diagnose.models.rule import FilterExamples, FilterRule, Yields
from diagnose.settings import Limits

RULES = Path(__file__).parents[1] / "rules" / "filters"
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def load() -> list[FilterRule]:
    """Read the shipped filter rules, without the checks that a run makes."""
    rules = []
    for path in sorted(RULES.glob("*/*.yml")):
        data = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
        data["examples"] = FilterExamples((), ())
        data["yields"] = Yields(data["yields"]["progress"]) if "yields" in data else None
        data["created"] = str(data["created"])
        rules.append(FilterRule(**data))
    return rules


def line(draw: random.Random, step: int, kind: str) -> str:
    """Make one line."""
    rank = draw.randrange(64)
    if kind == "novel":
        return " ".join("".join(draw.choices(LETTERS, k=6)) for _ in range(16))
    roll = 0.0 if kind == "steps" else draw.random()
    if roll < 0.45:
        return (
            f"{rank}: [2026-03-01 10:{step % 60:02}:00.123] iteration {step:8}/  250000 | consumed samples: "
            f"{step * 1024:12} | elapsed time per iteration (ms): {9000 + draw.random() * 999:.1f} | learning rate: "
            f"1.500000E-04 | global batch size:  1024 | lm loss: {2 + draw.random():.6E} | loss scale: 1.0 | "
            f"grad norm: 0.{draw.randrange(1000):03} | number of skipped iterations:   0 |"
        )
    if roll < 0.65:
        peer = draw.randrange(64)
        return f"{rank}: gx-{rank:03}:8812:9013 [3] NCCL INFO Channel 07/0 : {rank}[3] -> {peer}[4] via P2P/CUMEM"
    if roll < 0.85:
        return f"{rank}:     forward-backward ...............................: ({draw.random() * 9000:.2f}, 9204.97)"
    if roll < 0.995:
        stamp = f'"time_ms": 17152306{draw.randrange(99999):05}, "event_type": "POINT_IN_TIME"'
        where = '"metadata": {"file": "/w/run.py", "lineno": 887}'
        return f':::MLLOG {{"namespace": "", {stamp}, "key": "weights_initialization", "value": null, {where}}}'
    return f"rank {rank} reads shard {draw.choice(LETTERS)}{draw.choice(LETTERS)} at step {step}"


def main() -> None:
    """Build the log, compress it three times, print the best."""
    megabytes = float(sys.argv[1]) if len(sys.argv) > 1 else 50
    kind = sys.argv[2] if len(sys.argv) > 2 else "routine"
    draw = random.Random(17)
    part = "".join(line(draw, 1 + number // 64, kind) + "\n" for number in range(40_000)).encode()
    log = part * max(1, int(megabytes * 1e6 / len(part)))
    rules = load()
    guard = Guard(("CUDA error", "Xid 79", "NCCL WARN", "Traceback (most recent", "out of memory", "fp16 overflow"))
    best = 0.0
    for _ in range(3):
        compressor = Compressor(LogSource("bench"), Filters(rules), guard, Limits())
        kept = 0
        start = time.process_time()
        for place in range(0, len(log), 1 << 20):
            kept += len(compressor.feed(log[place : place + (1 << 20)]))
        kept += len(compressor.finish())
        best = max(best, len(log) / 1e6 / (time.process_time() - start))
    lines = compressor.counts.lines
    print(f"{kind}: {len(log) / 1e6:.0f} MB, {lines} lines, {len(rules)} rules: {best:.0f} MB/s, {kept} lines kept")


if __name__ == "__main__":
    main()
