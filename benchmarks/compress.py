"""How fast routine lines are taken out, as whole processes: ours, ripgrep, grep and the pipe that sets the pace.

    python benchmarks/compress.py [--megabytes 500,2000] [--kinds routine,few,novel] [--rules 30,300] [--runs 5]
                                  [--tools ours,rg] [--keep FOLDER] [--json FILE]

The logs come from a seed (see `logs.py`), the rules too: a few that fit the routine lines, the rest none of them. Each
tool gets the same rules as whole-line patterns and counts the lines that none of them matches. Ours (`compressing.py`)
also guards the literals of all diagnosis rules and knows the number of each line, and so keeps a few more. The loops by
line do what one would write in Python first. Tools take turns, in an order that alternates, and a first round that
fills the caches is not counted. `ours shipped` uses the filters that are shipped, with samples of progress, which no
other tool does. Ratios are medians of those of a round; on a busy machine look at processor seconds, not at the clock.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import logs
from compressing import patterns

# Each as (name, what `compressing.py` is told, processes).
OWN = (
    ("ours", "ours", 1),
    ("ours, 2 processes", "ours", 2),
    ("ours without pcre2", "plain", 1),
    ("ours shipped", "shipped", 1),
    ("re by line", "re", 1),
    ("re2.Set by line", "re2", 1),
)


def commands(path: Path, count: int, folder: Path) -> dict[str, str]:
    """The shell command of each tool."""
    lines = [f"^(?:{pattern})$" for _, pattern in patterns(count)]
    separate, joined = folder / f"{count}.rules", folder / f"{count}.joined"
    separate.write_text("\n".join(lines) + "\n")
    joined.write_text("|".join(lines) + "\n")
    program = Path(__file__).with_name("compressing.py")
    found = {name: f"{sys.executable} {program} {how} {path} {count} {processes}" for name, how, processes in OWN}
    if importlib.util.find_spec("re2") is None:
        del found["re2.Set by line"]
    if shutil.which("rg"):
        found["rg --no-unicode"] = f"rg --no-unicode --no-config -c -v -f {separate} {path}"
    found["grep -P"] = f"LC_ALL=C grep -c -v -P -f {joined} {path}"
    found["cat | cat"] = f"cat {path} | cat >/dev/null"
    return found


def measured(command: str) -> tuple[float, float, float, str]:
    """Wall and processor seconds, megabytes of the largest process, and the output of one shell command."""
    start = time.perf_counter()
    with subprocess.Popen(["/bin/sh", "-c", command], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, output.decode().strip()


def rounds(tools: dict[str, str], runs: int) -> Iterator[dict[str, tuple[float, float, float, str]]]:
    """What each tool took, round by round; every second round goes backwards."""
    names: Sequence[str] = list(tools)
    for turn in range(runs + 1):
        taken = {name: measured(tools[name]) for name in (names if turn % 2 else names[::-1])}
        if turn:
            yield taken


def compare(
    path: Path, count: int, runs: int, folder: Path, wanted: Sequence[str]
) -> dict[str, dict[str, float | str]]:
    """Medians of each tool, and of its pace against ripgrep's (or grep's where there is none)."""
    tools = commands(path, count, folder)
    tools = {name: command for name, command in tools.items() if any(part in name for part in wanted)}
    size = path.stat().st_size / 1e6
    done = list(rounds(tools, runs))
    against = next((name for name in ("rg --no-unicode", "grep -P") if name in tools), next(iter(tools)))
    return {
        name: {
            "seconds": round(statistics.median(each[name][0] for each in done), 3),
            "cpu_seconds": round(statistics.median(each[name][1] for each in done), 3),
            "mb_per_s": round(size / statistics.median(each[name][0] for each in done), 1),
            "mb_per_cpu_s": round(size / statistics.median(each[name][1] for each in done), 1),
            "pace_by_wall": round(statistics.median(each[against][0] / each[name][0] for each in done), 2),
            "pace_by_cpu": round(statistics.median(each[against][1] / each[name][1] for each in done), 2),
            "largest_mb": round(max(each[name][2] for each in done), 1),
            "lines_left": done[0][name][3],
        }
        for name in tools
    }


def main() -> None:
    """Make the logs, measure, print a table for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", default="500,2000", help="sizes of the logs, separated by commas")
    parser.add_argument("--kinds", default="routine,few,novel", help=f"of {', '.join(logs.KINDS)}")
    parser.add_argument("--rules", default="30,300", help="numbers of rules")
    parser.add_argument("--runs", type=int, default=5, help="counted rounds")
    parser.add_argument("--keep", metavar="FOLDER", help="where the logs lie, and stay for the next time")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to a file")
    parser.add_argument("--tools", default="", help="only those whose names hold one of these, separated by commas")
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for kind in options.kinds.split(","):
            for megabytes in map(int, options.megabytes.split(",")):
                path = folder / f"{kind}-{megabytes}.log"
                if not path.exists():
                    logs.write(path, kind, megabytes * 1_000_000)
                for count in map(int, options.rules.split(",")):
                    table = compare(path, count, options.runs, Path(temporary), options.tools.split(","))
                    results.append({"kind": kind, "megabytes": megabytes, "rules": count, "tools": table})
                    print(f"\n{kind}, {megabytes} MB, {count} rules; load {os.getloadavg()[0]:.1f}")
                    for name, row in table.items():
                        print(
                            f"  {name:18} {row['seconds']:8} s {row['cpu_seconds']:8} cpu s {row['mb_per_s']:8} MB/s "
                            f"{row['mb_per_cpu_s']:8} MB/cpu s  pace {row['pace_by_wall']:5} wall "
                            f"{row['pace_by_cpu']:5} cpu  {row['largest_mb']:6} MB  {row['lines_left']} lines"
                        )
    if options.json:
        report = {"python": sys.version.split()[0], "processors": os.cpu_count(), "results": results}
        Path(options.json).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
