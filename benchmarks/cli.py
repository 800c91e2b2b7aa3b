"""How long whole processes take: `diagnose` on a small log, a large one and a directory of rank files.

    python benchmarks/cli.py [--only small,novel,large,ranks,huge] [--scale 0.1] [--runs 20] [--command diagnose]
                             [--json FILE]

The inputs are made from a seed: `small` is 1 MB of 64 ranks with one novel line in a hundred and a failure at its end,
`large` 100 MB and `huge` 2 GB of the same (only on demand), `novel` 1 MB of which every line is a template of its own,
`ranks` a directory of 512 rank files of 200 kB. `--scale` makes all of them smaller. Each run of the command is paired
with one of a bare `python -c pass` just before it, since machines change their pace; the median of the ratios compares
over machines. The cache directory is the benchmark's own: the first pair, which is not counted, fills it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import logs

FAILED = (
    "Traceback (most recent call last):",
    '  File "/workspace/train.py", line 211, in <module>',
    "    main()",
    '  File "/workspace/train.py", line 187, in main',
    "    loss.backward()",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has 1.20 GiB free of 79.10 GiB.",
)
RANKS = 512
RANK_BYTES = 200_000
FAILING_RANK = 3


def write_log(path: Path, size: int) -> None:
    """Write about `size` bytes of 64 ranks' lines, one in a hundred novel, at the end the traceback of one rank."""
    logs.write(path, "routine", size)
    with path.open("a") as file:
        file.writelines(f"{FAILING_RANK}: {each}\n" for each in FAILED)


def write_novel(path: Path, size: int) -> None:
    """Write about `size` bytes of lines that no rule knows, at the end the same traceback."""
    logs.write(path, "novel", size)
    with path.open("a") as file:
        file.writelines(f"{FAILING_RANK}: {each}\n" for each in FAILED)


def write_ranks(folder: Path, ranks: int, size: int, draw: random.Random) -> None:
    """Write one file of about `size` bytes for each rank; one fails, and the others lose it."""
    folder.mkdir()
    for rank in range(ranks):
        with (folder / f"rank_{rank}.log").open("w") as file:
            written = step = 0
            while written < size:
                step += 1
                written += file.write(
                    f"2026-03-01 {10 + step // 3600:02}:{step // 60 % 60:02}:{step % 60:02},{draw.randrange(1000):03} "
                    f"[INFO] train: step {step}/100000 loss {2 + draw.random():.4f} lr 1.5e-04 "
                    f"grad_norm {draw.random():.3f} tokens/s {9000 + draw.randrange(999)}\n"
                )
            if rank == FAILING_RANK:
                file.writelines(f"{each}\n" for each in FAILED)
            else:
                file.write(
                    f"[rank{rank}]:[E301 12:00:00.000000000 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught "
                    f"collective operation timeout: WorkNCCL(SeqNum={step}, OpType=ALLREDUCE, NumelIn=1024, "
                    "NumelOut=1024, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.\n"
                )


def inputs(folder: Path, scale: float) -> dict[str, tuple[Path, Callable[[random.Random], None]]]:
    """Where each input lies, and what makes it."""
    small, novel, large, huge = (folder / f"{name}.log" for name in ("small", "novel", "large", "huge"))
    ranks = folder / "ranks"
    return {
        "small": (small, lambda _draw: write_log(small, int(1e6 * scale))),
        "novel": (novel, lambda _draw: write_novel(novel, int(1e6 * scale))),
        "large": (large, lambda _draw: write_log(large, int(100e6 * scale))),
        "huge": (huge, lambda _draw: write_log(huge, int(2e9 * scale))),
        "ranks": (ranks, lambda draw: write_ranks(ranks, max(4, int(RANKS * scale)), RANK_BYTES, draw)),
    }


def seconds(command: Sequence[str], expected: int, cache: Path) -> tuple[float, float]:
    """The time of one whole process, by the clock and of processors; the latter means more on a busy machine."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["XDG_CACHE_HOME"] = str(cache)
    used, start = _children(), time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False, env=environment)
    took = time.perf_counter() - start
    if done.returncode != expected:
        raise SystemExit(f"{' '.join(command)} gave {done.returncode}: {done.stderr.decode(errors='replace')}")
    return took, _children() - used


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measured(command: Sequence[str], runs: int, cache: Path) -> dict[str, float | int]:
    """Run the command and a bare interpreter in turn; the first pair fills caches and is not counted."""
    bare_command = [sys.executable, "-c", "pass"]
    own: list[float] = []
    bare: list[float] = []
    cpu: list[float] = []
    for _ in range(runs + 1):
        bare.append(seconds(bare_command, 0, cache)[0])
        took, used = seconds(command, 0, cache)
        own.append(took)
        cpu.append(used)
    own, bare, cpu = own[1:], bare[1:], cpu[1:]
    return {
        "runs": runs,
        "median_s": round(statistics.median(own), 4),
        "min_s": round(min(own), 4),
        "max_s": round(max(own), 4),
        "cpu_median_s": round(statistics.median(cpu), 4),
        "bare_median_s": round(statistics.median(bare), 4),
        "ratio": round(statistics.median(a / b for a, b in zip(own, bare, strict=True)), 2),
    }


def installed() -> list[str]:
    """The command beside this interpreter, else the one on the path, else the module."""
    beside = Path(sys.executable).with_name("diagnose")
    found = str(beside) if beside.exists() else shutil.which("diagnose")
    return [found] if found else [sys.executable, "-m", "diagnose"]


def main() -> None:
    """Make the inputs, measure, print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="small,novel,large,ranks", help="which inputs, separated by commas")
    parser.add_argument("--scale", type=float, default=1.0, help="how much of each input's size, such as 0.1")
    parser.add_argument("--runs", type=int, default=20, help="counted runs of each")
    parser.add_argument("--command", help="what to run in place of the installed command")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to a file")
    options = parser.parse_args()
    command = options.command.split() if options.command else installed()
    results: dict[str, dict[str, float | int]] = {}
    with tempfile.TemporaryDirectory() as name:
        made = inputs(Path(name), options.scale)
        unknown = set(options.only.split(",")) - made.keys()
        if unknown:
            parser.error(f"no such input: {', '.join(sorted(unknown))}; known: {', '.join(made)}")
        print(f"{' '.join(command)}; {os.cpu_count()} processors; scale {options.scale:g}")
        for which in options.only.split(","):
            path, make = made[which]
            make(random.Random(17))
            size = sum(file.stat().st_size for file in (path.iterdir() if path.is_dir() else [path]))
            row = measured([*command, str(path)], options.runs, Path(name) / "cache")
            results[which] = {"bytes": size, **row}
            print(
                f"{which:6} {size / 1e6:7.1f} MB  median {row['median_s']:.3f} s ({row['min_s']:.3f} to "
                f"{row['max_s']:.3f}), {row['cpu_median_s']:.3f} of processors; "
                f"{row['ratio']:.1f} times a bare start of {row['bare_median_s']:.3f} s"
            )
    if options.json:
        report = {"command": command, "python": sys.version.split()[0], "scale": options.scale, "results": results}
        Path(options.json).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
