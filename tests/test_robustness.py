"""Whatever bytes, names and archives come in: a report that keeps the contract, or an error meant for the user.

The default run looks at a few hundred inputs; the slow one at many thousands.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from diagnose.errors import DiagnoseError
from diagnose.models import RuleSet
from diagnose.pipeline import Request, Services, diagnose
from diagnose.report import render
from diagnose.settings import Limits, Settings
from tests.commandline import FIXTURES

with open(os.path.join(FIXTURES, "report.schema.json"), encoding="utf-8") as _file:
    CONTRACT = Draft202012Validator(json.load(_file))

SMALL = Settings(limits=Limits(block_bytes=512, seconds=60.0, expanded_bytes=4 * 1024 * 1024, structured_bytes=1 << 20))
few = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None)
many = settings(max_examples=3000, deadline=None, suppress_health_check=list(HealthCheck), database=None)

# Pieces of the grammar that the readers know: where they meet in odd orders, readers are tried most.
PIECES = [
    b"Traceback (most recent call last):\n", b'  File "train.py", line 3, in <module>\n', b"    f()\n",
    b"KeyError: 'x'\n", b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n",
    b"[rank3]: ", b"[rank99999999999999999999]: ", b"3: ", b"[1,7]<stderr>:", b"node-1: ", b"(worker pid=7, ip=10.0.0.1) ",
    b"2026-03-02T03:04:05.123456Z ", b"9999-12-31 23:59:59,999 ", b"0000-00-00 00:00:00 ", b"[Mon Feb 31 25:61:61 2026] ",
    b"Mar  2 03:04:05 gx-001 kernel: ", b"[12345.678901] ", b"[99999999999999999999.000000] ",
    b"NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n", b"Out of memory: Killed process 7 (python)\n",
    b"[E ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, Timeout(ms)=600000)\n",
    b"torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n", b"=" * 60 + b"\n", b"train.py FAILED\n",
    b"Root Cause (first observed failure):\n", b"[0]:\n  time      : 2026-03-02_03:04:05\n  exitcode  : -9 (pid: 7)\n",
    b"iteration 10/ 100 | loss: 1.0 |\n", b"step 1\n", b"step 999999999999999999999999\n", b" 50%|#####     | 5/10 [00:01<00:01]\r",
    b"slurmstepd: error: *** STEP 4711.0 ON gx-001 CANCELLED AT 2026-03-02T03:04:05 DUE TO TIME LIMIT ***\n",
    b"srun: error: gx-[001-999999]: tasks 0-9999999: Killed\n", b"JobID|State|ExitCode|NodeList\n", b"4711|FAILED|1:0|gx-[001-002]\n",
    b"JobId=4711 JobName=x\n   JobState=FAILED Reason=NonZeroExitCode\n", b"Name: pod\nStatus: Failed\n", b"Last State: Terminated\n",
    b"Events:\n  Type  Reason  Age  From  Message\n", b'{"log":"x\\n","stream":"stderr","time":"2026-03-02T03:04:05Z"}\n',
    b'{"MESSAGE":[75,101],"PRIORITY":"3","__REALTIME_TIMESTAMP":"99999999999999999999"}\n', b"<3>", b"2026-03-02T03:04:05Z stderr F ",
    b"#0 0x00007f in main () at x.c:1\n", b"Fatal Python error: Segmentation fault\n", b"terminate called after throwing\n",
    b"\x1b[31m", b"\x1b]0;x\x07", b"\x00" * 40, b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\r\n", b"\n\n", b"\\n", b"x" * 3000, b"[" * 200, b"{" * 200,
    b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"- - - - -\n", b"---\n", b"world_size=8 rank=0 local_rank=0\n", b"Training finished\n",
]  # fmt: skip
WORDS = [
    "jobs", "job_id", "state", "exit_code", "return_code", "signal", "id", "number", "set", "infinite", "nodes", "name", "kind",
    "items", "metadata", "status", "spec", "containerStatuses", "lastState", "terminated", "exitCode", "reason", "message",
    "startedAt", "finishedAt", "Pod", "List", "Event", "Failed", "FAILED", "OUT_OF_MEMORY", "current", "time", "start", "end",
    "steps", "nodeName", "conditions", "involvedObject", "lastTimestamp", "creationTimestamp", "2026-03-02T03:04:05Z",
]  # fmt: skip

texts = st.one_of(
    st.binary(max_size=400),
    st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=12)), max_size=25).map(b"".join),
)
names = st.one_of(
    st.sampled_from(
        ["job.log", "rank_3.log", "stderr.log", "x.out", "core.dmesg", "attempt_1", "rank_99999999999999.log", "-", "a.gz",
         "a.tar", "a.zip", "a.zst", "node[1-9].log", "*.log", "\udcff.log", "\x1b[31m.log", "e.json", ".hidden", "log.1", "rules"]
    ),
    st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="/\0"), min_size=1, max_size=40),
).filter(lambda name: name not in (".", ".."))  # fmt: skip
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.sampled_from(WORDS), st.text(max_size=8),
    st.sampled_from([10**30, -1, 0, 137, 1e300]),
)  # fmt: skip
documents = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from(WORDS), st.text(max_size=4)), inner, max_size=6),
    ),
    max_leaves=30,
)


def _as_yaml(value: Any) -> bytes:
    text: str = yaml.safe_dump(value, allow_unicode=True)
    return text.encode("utf-8", "surrogatepass")


records = st.one_of(
    texts,
    documents.map(lambda value: json.dumps(value).encode()),
    documents.map(_as_yaml),
    st.tuples(st.binary(max_size=8), documents.map(lambda value: json.dumps(value, indent=1).encode())).map(b"".join),
)


def _tar(members: list[tuple[str, bytes]]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, data in members:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return made.getvalue()


def _zip(members: list[tuple[str, bytes]]) -> bytes:
    made = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two members of one name
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in members:
                archive.writestr(zipfile.ZipInfo(name.encode("utf-8", "replace").decode() or "x"), data)
    return made.getvalue()


_member = st.tuples(
    st.one_of(names, st.sampled_from(["../up.log", "/abs.log", "a/../../b", "d/" * 30 + "x.log"])), texts
)
_members = st.lists(_member, max_size=5)
_whole = st.one_of(_members.map(_tar), _members.map(_zip), texts)
_packed = st.one_of(
    _whole, _whole.map(gzip.compress), _whole.map(bz2.compress), _whole.map(lzma.compress),
    _whole.map(gzip.compress).map(gzip.compress),
)  # fmt: skip


def _damaged(data: bytes, cuts: list[tuple[int, int]], keep: int) -> bytes:
    """The archive with some bytes replaced and its end cut off."""
    made = bytearray(data)
    for place, value in cuts:
        if made:
            made[place % len(made)] = value
    return bytes(made[: max(0, len(made) - keep)])


archives = st.builds(
    _damaged,
    _packed,
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=3),
    st.one_of(st.just(0), st.integers(0, 300)),
)


def check(files: dict[str, bytes], rule_set: RuleSet, make: Callable[[str], Request]) -> None:
    """Lays files in a folder, diagnoses them, and looks at every rendering."""
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            with open(os.path.join(folder, name), "wb") as file:
                file.write(data)
        try:
            report = diagnose(make(folder), Services(rule_set), SMALL)
        except DiagnoseError:
            return
    CONTRACT.validate(json.loads(render(report, "json")))
    assert render(report, "jsonl").count("\n") == 1
    for text in (render(report, "text", explain=True, verbose=True), render(report, "markdown")):
        assert all(char.isprintable() or char == "\n" for char in text)
        text.encode("utf-8")


def _log(data: bytes, rule_set: RuleSet) -> None:
    check({"job.log": data}, rule_set, lambda folder: Request([os.path.join(folder, "job.log")]))


def _kernel(data: bytes, rule_set: RuleSet) -> None:
    check({"k": data}, rule_set, lambda folder: Request([], kernel_logs=[os.path.join(folder, "k")]))


def _record(data: bytes, rule_set: RuleSet) -> None:
    check({"r": data}, rule_set, lambda folder: Request([], scheduler_records=[os.path.join(folder, "r")]))


def _inventory(data: bytes, rule_set: RuleSet) -> None:
    def make(folder: str) -> Request:
        return Request([os.path.join(folder, "job.log")], inventory=os.path.join(folder, "i"))

    check({"job.log": b"[rank3]: KeyError: 'x'\n", "i": data}, rule_set, make)


def _named(files: dict[str, bytes], rule_set: RuleSet) -> None:
    check(files, rule_set, lambda folder: Request([folder]))


def _archive(data: bytes, rule_set: RuleSet) -> None:
    check({"a": data}, rule_set, lambda folder: Request([os.path.join(folder, "a")]))


_files = st.dictionaries(
    names.filter(lambda name: len(os.fsencode(name)) < 200), st.one_of(texts, archives), max_size=5
)


@few
@given(data=texts)
def test_any_bytes_as_log(data: bytes, rule_set: RuleSet) -> None:
    _log(data, rule_set)


@few
@given(data=texts)
def test_any_bytes_as_kernel_log(data: bytes, rule_set: RuleSet) -> None:
    _kernel(data, rule_set)


@few
@given(data=records)
def test_any_bytes_as_scheduler_record(data: bytes, rule_set: RuleSet) -> None:
    _record(data, rule_set)


@few
@given(data=records)
def test_any_bytes_as_inventory(data: bytes, rule_set: RuleSet) -> None:
    _inventory(data, rule_set)


@few
@given(data=archives)
def test_any_bytes_as_archive(data: bytes, rule_set: RuleSet) -> None:
    _archive(data, rule_set)


@few
@given(files=_files)
def test_any_names(files: dict[str, bytes], rule_set: RuleSet) -> None:
    _named(files, rule_set)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "act"),
    [
        (texts, _log),
        (texts, _kernel),
        (records, _record),
        (records, _inventory),
        (archives, _archive),
        (_files, _named),
    ],
    ids=["log", "kernel", "record", "inventory", "archive", "names"],
)
def test_any_input_at_length(strategy: st.SearchStrategy[Any], act: Callable[..., None], rule_set: RuleSet) -> None:
    @many
    @given(data=strategy)
    def run(data: Any) -> None:
        act(data, rule_set)

    run()
