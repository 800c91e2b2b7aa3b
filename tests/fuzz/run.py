"""Coverage-guided fuzzing of all that reads what others wrote: logs, archives, rules, scheduler records, inventories.

    python tests/fuzz/run.py --seconds 240                     all targets, the time shared evenly
    python tests/fuzz/run.py --seconds 60 --target archive     one of them
    python tests/fuzz/run.py --target archive --replay FILE    one input again, with its traceback

In: fixtures and the shipped rules as seeds. Out: executions per target on standard output; an input that crashes, takes
longer than its time, or yields a report that breaks the contract is written to a file, and the exit code is 1. Needs `pip install --group fuzz`; uses no network.

Each target runs in a process of its own, because libFuzzer ends the process it runs in. The first byte of an input
chooses what the rest is: which name a file has, which kind of rule file it is.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jsonschema

    from diagnose.models import RuleSet

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FIXTURES = os.path.join(ROOT, "tests", "fixtures")
SECONDS_PER_INPUT = 20
LONGEST_INPUT = 16 * 1024
LONGEST_SEED = 8 * 1024
MEGABYTES = 2048

LOG_NAMES = ("job.log", "rank_3.log", "node-1.stderr", "slurm-4711.out", "attempt_1.jsonl", "k.dmesg")
RULE_NAMES = (
    "diagnoses/cuda/mine.yml",
    "filters/torch/mine.yml",
    "tables/mine.yml",
    "policy.yml",
    "taxonomy.yml",
    "tags.yml",
    "silenced.yml",
)
ARCHIVES = (".tgz", ".tar", ".gz", ".zip", ".bz2", ".xz", ".zst")
TARGETS = ("log", "archive", "rules", "scheduler", "inventory")
# Packages that no target comes to: importing them takes seconds, and servers and databases that may not be there.
UNTOUCHED = ("api", "cli", "evaluation", "integrations", "service", "store")
# What rules speak of, without the rules: a rule that is tried stands on these, and is loaded in milliseconds.
BASE = ("taxonomy.yml", "tags.yml", "programs.yml", "policy.yml")


def main() -> int:
    """Run all targets, one after another; 1 when one found something."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=240, help="for all targets together")
    parser.add_argument("--target", choices=TARGETS, help="only this one")
    parser.add_argument("--artifacts", default="fuzz-artifacts", help="where inputs that crash are written")
    parser.add_argument("--replay", metavar="FILE", help="run one input of --target")
    parser.add_argument("--worker", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(options.target, options.worker)
    if options.replay:
        if options.target is None:
            parser.error("--replay needs the --target it was found by")
        return work(options.target, [os.path.abspath(options.replay)])
    targets = [options.target] if options.target else list(TARGETS)
    os.makedirs(options.artifacts, exist_ok=True)
    share = max(1, options.seconds // len(targets))
    results = [fuzz(target, share, os.path.abspath(options.artifacts)) for target in targets]
    for target, count, crashed in results:
        print(f"{target:10} {count:>9,} executions{'  CRASHED' if crashed else ''}")
    return 1 if any(crashed for _, _, crashed in results) else 0


def fuzz(target: str, seconds: int, artifacts: str) -> tuple[str, int, bool]:
    """Fuzzes one target in a process; returns its name, how often it ran, and whether it found something."""
    with tempfile.TemporaryDirectory() as scratch:
        seeds, found = os.path.join(scratch, "seeds"), os.path.join(scratch, "found")
        for folder in (seeds, found):
            os.mkdir(folder)
        for number, data in enumerate(seeds_of(target)):
            with open(os.path.join(seeds, str(number)), "wb") as file:
                file.write(data)
        command = [
            *(sys.executable, os.path.abspath(__file__), "--target", target, "--worker"),
            *(f"-max_total_time={seconds}", f"-timeout={SECONDS_PER_INPUT}", f"-max_len={LONGEST_INPUT}"),
            *(f"-rss_limit_mb={MEGABYTES}", "-print_final_stats=1", "-verbosity=0"),
            *(f"-artifact_prefix={os.path.join(artifacts, target)}-", found, seeds),
        ]
        # The worker's files lie below the scratch folder, so that none is left however it ends.
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env={**os.environ, "TMPDIR": scratch},
        )
    said = done.stdout + done.stderr
    counted = re.findall(r"number_of_executed_units:\s*(\d+)", said)
    if done.returncode:
        marks = ("Uncaught Python exc", "ERROR: libFuzzer", "Traceback")
        start = next((said.find(mark) for mark in marks if mark in said), 0)
        print(f"--- {target} ended with {done.returncode}\n{said[start : start + 6000]}", file=sys.stderr)
        print(f"again: python tests/fuzz/run.py --target {target} --replay {artifacts}/{target}-...", file=sys.stderr)
    return target, int(counted[-1]) if counted else 0, bool(done.returncode) or not counted


def work(target: str, arguments: list[str]) -> int:
    """The process of one target: libFuzzer takes over and ends it."""
    import atheris

    sys.path.insert(0, ROOT)
    with atheris.instrument_imports(include=["diagnose"]):
        import_all()
    folder = tempfile.mkdtemp()
    try:
        atheris.Setup([sys.argv[0], *arguments], target_of(target, folder))
        atheris.Fuzz()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def import_all() -> int:
    """Import all modules that a target may come to; how many."""
    package = importlib.import_module("diagnose")
    names = [
        module.name
        for module in pkgutil.walk_packages(package.__path__, "diagnose.")
        if module.name.split(".")[1] not in UNTOUCHED and not module.name.endswith("__main__")
    ]
    return len([importlib.import_module(name) for name in names])


Target = Callable[[bytes], object]


def target_of(name: str, folder: str) -> Target:
    """What is done with each input; its files lie in a folder of their own."""
    made = {
        "log": log_target,
        "archive": archive_target,
        "rules": rules_target,
        "scheduler": scheduler_target,
        "inventory": inventory_target,
    }
    return made[name](folder)


def log_target(folder: str) -> Target:
    """Bytes as a log under one of several names, or as a kernel log."""

    def run(data: bytes) -> None:
        name = LOG_NAMES[data[0] % len(LOG_NAMES)] if data else LOG_NAMES[0]
        path = written(folder, name, data[1:])
        diagnosed((), kernel_logs=(path,)) if name.endswith("dmesg") else diagnosed((path,))
        os.unlink(path)

    return run


def archive_target(folder: str) -> Target:
    """Bytes as a packed file or an archive."""
    return lambda data: diagnosed((written(folder, "job", data),))


def scheduler_target(folder: str) -> Target:
    """Bytes as a scheduler's record of the job."""
    return lambda data: diagnosed((), scheduler_records=(written(folder, "record", data),))


def inventory_target(folder: str) -> Target:
    """Bytes as an inventory, beside a log that names a rank and a host."""
    log = written(
        folder, "job.log", b"gx-01:100:200 [3] NCCL INFO rank 3 nranks 8\n[rank3]: RuntimeError: CUDA error\n"
    )
    return lambda data: diagnosed((log,), inventory=written(folder, "inventory.csv", data))


def rules_target(folder: str) -> Target:
    """Bytes as one file of a site's rules; what loads is run on its own examples. Gives whether it loaded."""
    from diagnose.errors import RuleError
    from diagnose.rules.load import load_rules

    base, tabled = rule_base(folder, "base"), rule_base(folder, "tabled", "tables")
    site, log = os.path.join(folder, "site"), os.path.join(folder, "job.log")

    def run(data: bytes) -> bool:
        name = RULE_NAMES[data[0] % len(RULE_NAMES)] if data else RULE_NAMES[0]
        path = os.path.join(site, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        written(site, name, data[1:])
        rules: RuleSet | None = None
        try:
            rules = load_rules((site,), shipped=tabled if b"lookup" in data else base)
        except RuleError as error:
            str(error).encode("utf-8", "backslashreplace")
        finally:
            os.unlink(path)
        if rules is None:
            return False
        written(folder, "job.log", own_examples(rules))
        diagnosed((log,), kernel_logs=(log,), rules=rules)
        return True

    return run


def rule_base(folder: str, called: str, *more: str) -> str:
    """The shipped taxonomy, tags and policy, without a rule; reading the tables takes ten times as long."""
    base = os.path.join(folder, called)
    os.mkdir(base)
    for name in (*BASE, *more):
        path = os.path.join(ROOT, "rules", name)
        if os.path.isdir(path):
            shutil.copytree(path, os.path.join(base, name))
        else:
            shutil.copy(path, base)
    return base


def own_examples(rules: RuleSet) -> bytes:
    """The texts that the rules' examples hold, as one log."""
    texts = [example.log for rule in rules.diagnoses for example in rule.examples.positive]
    texts += [text for rule in rules.filters for text in (*rule.examples.noise, *rule.examples.signal)]
    return "\n".join(["step 1 loss 2.5", *texts, "[rank3]: CUDA error 12 at step 7", ""]).encode("utf-8", "replace")


def written(folder: str, name: str, data: bytes) -> str:
    """Writes a file and returns its path."""
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(data)
    return path


_rules: list[object] = []
_contract: list[jsonschema.Draft202012Validator] = []


def diagnosed(
    paths: tuple[str, ...],
    *,
    kernel_logs: tuple[str, ...] = (),
    scheduler_records: tuple[str, ...] = (),
    inventory: str | None = None,
    rules: object = None,
) -> None:
    """A whole run: an error meant for the user is an answer, any other is a crash, and so is an invalid report."""
    import jsonschema

    from diagnose.errors import DiagnoseError
    from diagnose.pipeline import Request, Services, diagnose
    from diagnose.report import render
    from diagnose.rules.load import load_rules
    from diagnose.settings import Limits, Settings

    if rules is None:
        if not _rules:
            _rules.append(load_rules())
        rules = _rules[0]
    limits = Limits(block_bytes=4096, expanded_bytes=8 << 20, structured_bytes=1 << 20)
    request = Request(paths, kernel_logs, scheduler_records, inventory)
    try:
        report = diagnose(request, Services(rules), Settings(limits=limits))  # type: ignore[arg-type]
    except DiagnoseError:
        return
    if not _contract:
        with open(os.path.join(FIXTURES, "report.schema.json"), encoding="utf-8") as file:
            _contract.append(jsonschema.Draft202012Validator(json.load(file)))
    for form in ("text", "json", "markdown"):
        text = render(report, form, explain=True, verbose=True)  # type: ignore[arg-type]
        text.encode("utf-8")
        if form == "json":
            _contract[0].validate(json.loads(text))


def seeds_of(target: str) -> Iterator[bytes]:
    """Inputs to begin with: the fixtures, each in the form that the target takes."""
    for where, _, names in sorted(os.walk(FIXTURES)):
        for name in sorted(names):
            path = os.path.join(where, name)
            with open(path, "rb") as file:
                data = file.read(LONGEST_INPUT + 1)
            packed = name.endswith(ARCHIVES)
            if target == "archive" and packed and len(data) <= LONGEST_INPUT:
                yield data
            elif target == "log" and not packed and not name.endswith(".yaml"):
                kernel = "kernel" in name or name.endswith((".dmesg", ".kmsg", ".journal"))
                chosen = len(LOG_NAMES) - 1 if kernel else len(name) % (len(LOG_NAMES) - 1)
                yield bytes([chosen]) + data[-LONGEST_SEED:]
            elif target == "scheduler" and re.search(r"sacct|scontrol|describe|events|pod|qstat|bjobs|squeue", name):
                yield data[:LONGEST_SEED]
    if target == "archive":
        yield from made_archives()
    if target == "inventory":
        yield from made_inventories()
    if target == "rules":
        yield from rule_seeds()


def rule_seeds() -> Iterator[bytes]:
    """The shipped rule files, each behind the byte that chooses its place."""
    for where, _, names in sorted(os.walk(os.path.join(ROOT, "rules"))):
        for name in sorted(names):
            path = os.path.join(where, name)
            kind = os.path.relpath(path, os.path.join(ROOT, "rules")).partition(os.sep)[0]
            chosen = next((index for index, place in enumerate(RULE_NAMES) if place.partition("/")[0] == kind), None)
            if chosen is not None and os.path.getsize(path) <= LONGEST_SEED:
                with open(path, "rb") as file:
                    yield bytes([chosen]) + file.read()


def made_inventories() -> Iterator[bytes]:
    """One small inventory of every kind."""
    yield b"rank,host,local_rank,pci,nic\n3,gx-01,3,0000:5d:00.0,mlx5_3\n"
    yield b"rank\thost\tgpu\n3\tgx-01\t3\n"
    yield b'[{"rank": 3, "host": "gx-01", "local_rank": 3, "pci": "0000:5d:00.0"}]\n'
    yield b'{"rank": 3, "host": "gx-01"}\n{"rank": 4, "host": "gx-02"}\n'
    yield b"- rank: 3\n  host: gx-01\n  gpu: 3\n"


def made_archives() -> Iterator[bytes]:
    """One small archive of every kind."""
    import bz2
    import gzip
    import io
    import lzma
    import tarfile
    import zipfile

    text = b"step 1\nKeyError: 'x'\n"
    tar, zipped = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in ("logs/rank_0.log", "logs/" + "n" * 120 + ".log"):
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("logs/rank_0.log", text)
        packed.writestr("logs/inner.tar", tar.getvalue()[:2048])
    for data in (text, tar.getvalue()):
        yield from (gzip.compress(data), bz2.compress(data), lzma.compress(data))
    yield from (tar.getvalue(), zipped.getvalue())


if __name__ == "__main__":
    sys.exit(main())
