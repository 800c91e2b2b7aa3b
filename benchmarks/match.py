"""How long a log takes of which nothing can be taken out: crash storms, guarded lines, lines that are all new.

    python benchmarks/match.py [--kinds storm,guarded,novel] [--megabytes 5,10,20] [--runs 3] [--json FILE]

The logs come from a seed (see `logs.py`). Each run is a whole process of `diagnose` on one of them. `growth` is how
much more a log costs than the next smaller one, by size: 1.0 is linear.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import logs


def measured(path: Path) -> tuple[float, float, float]:
    """Wall and processor seconds and megabytes of `diagnose` on one log."""
    command = [sys.executable, "-m", "diagnose", str(path)]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in {0, 1, 3}:
        raise SystemExit(f"{' '.join(command)}: {errors.decode(errors='replace')}")
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    """Make the logs, measure, print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default="storm,guarded,novel", help=f"of {', '.join(logs.KINDS)}")
    parser.add_argument("--megabytes", default="5,10,20", help="sizes, separated by commas, the smallest first")
    parser.add_argument("--runs", type=int, default=3, help="runs of each")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to a file")
    options = parser.parse_args()
    results = []
    print(f"{os.cpu_count()} processors; load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        for kind in options.kinds.split(","):
            before: tuple[float, float] | None = None
            for megabytes in map(float, options.megabytes.split(",")):
                path = Path(folder) / f"{kind}.log"
                lines = logs.write(path, kind, int(megabytes * 1e6))
                runs = [measured(path) for _ in range(options.runs)]
                wall, cpu, memory = (statistics.median(each) for each in zip(*runs, strict=True))
                growth = cpu / before[1] * before[0] / megabytes if before else 1.0
                before = (megabytes, cpu)
                row = {
                    "kind": kind, "megabytes": megabytes, "lines": lines, "seconds": round(wall, 3),
                    "cpu_seconds": round(cpu, 3), "us_per_line": round(cpu / lines * 1e6, 1),
                    "memory_mb": round(memory, 1), "growth": round(growth, 2),
                }  # fmt: skip
                results.append(row)
                print(
                    f"{kind:8} {megabytes:6} MB {lines:8} lines  {wall:7.3f} s  {cpu:7.3f} cpu s  "
                    f"{row['us_per_line']:5} us a line  {memory:6.1f} MB  growth {growth:.2f}"
                )
    if options.json:
        Path(options.json).write_text(json.dumps({"python": sys.version.split()[0], "results": results}, indent=1))


if __name__ == "__main__":
    main()
