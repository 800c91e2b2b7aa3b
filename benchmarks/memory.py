"""How long the memory takes: importing cases and lines, listing, exporting, replaying the policy, and one run with it.

    python benchmarks/memory.py [--cases 1000] [--lines 10000] [--database PLACE]

Cases are made of the fixtures, each with another day and other figures, so that no two are alike.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import yaml  # noqa: E402

from diagnose.cli import main  # noqa: E402


def timed(what: str, *words: str) -> str:
    """Runs the command line in this process and prints how long it took."""
    out = io.StringIO()
    began, worked = time.perf_counter(), time.process_time()
    with contextlib.redirect_stdout(out):
        main(list(words))
    print(f"{what:<44} {time.perf_counter() - began:8.2f} s, {time.process_time() - worked:8.2f} s of one processor")
    return out.getvalue()


def make_cases(folder: Path, count: int) -> None:
    """Labelled cases in a folder."""
    fixtures = [
        path
        for path in sorted((ROOT / "tests" / "fixtures" / "incidents").iterdir())
        if (path / "expected.yaml").exists() and sum(one.stat().st_size for one in path.rglob("*")) < 200_000
    ]
    for number in range(count):
        source = fixtures[number % len(fixtures)]
        target = folder / f"case-{number}"
        shutil.copytree(source, target)
        label = yaml.safe_load((source / "expected.yaml").read_text())
        (target / "expected.yaml").write_text(yaml.safe_dump({**label, "id": target.name}))
        for path in target.rglob("*"):
            if path.is_file() and path.suffix in (".log", ".txt", ".out", ".err"):
                data = path.read_bytes()
                path.write_bytes(re.sub(rb"(step[ =:]+)(\d)", rb"\g<1>%d\2" % (number // len(fixtures) + 1), data))


def main_() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--database", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        os.environ["DIAGNOSE_DATABASE"] = options.database or str(folder / "memory.sqlite3")
        make_cases(folder / "cases", options.cases)
        print(timed(f"import {options.cases} cases", "incidents", "import", str(folder / "cases")).strip())
        timed("the same again", "incidents", "import", str(folder / "cases"))
        first = [json.loads(line) for line in timed("export them", "incidents", "export").splitlines()]
        with (folder / "many.jsonl").open("w") as file:
            for number in range(options.lines):
                file.write(json.dumps(first[number % len(first)] | {"id": f"line-{number}"}) + "\n")
        timed(f"import {options.lines} lines", "incidents", "import", str(folder / "many.jsonl"))
        timed("list the latest 50", "incidents", "list")
        timed("export all", "incidents", "export")
        timed("policy backtest", "policy", "backtest")
        log = ROOT / "tests" / "fixtures" / "incidents" / "address-in-use" / "run.log"
        timed("one run, history only", str(log), "--name", "a")
        timed("one run, recorded", str(log), "--name", "a", "--record", "--quiet")
        os.environ.pop("DIAGNOSE_DATABASE")
        timed("one run without a memory", str(log))


if __name__ == "__main__":
    main_()
