"""Changes to the inputs that must not change the answer: other numbers, other clocks, packed, another order of lines."""

from __future__ import annotations

import gzip
import os
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise, permutations

import pytest

from diagnose.models import Report, RuleSet
from tests.incidents import Incident, incidents, run

TEXT = re.compile(r"(?!.*\.(?:gz|xz|zst|bz2|zip|tar|tgz)$)", re.IGNORECASE)
HOST = re.compile(r"(?=[\w.-]*[A-Za-z])[A-Za-z][\w-]*?(?=\d)")


def files_of(incident: Incident) -> dict[str, str]:
    """The inputs by name below the incident's folder."""
    found: dict[str, str] = {}
    for where, _, names in os.walk(incident.folder):
        for name in names:
            path = os.path.join(where, name)
            relative = os.path.relpath(path, incident.folder)
            if relative != "expected.yaml":
                with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
                    found[relative] = file.read()
    return found


def write(folder: str, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(text)


ALL = [incident for incident in incidents("incidents") if all(TEXT.match(name) for name in files_of(incident))]
_REPORTS: dict[str, Report] = {}


def report_on(incident: Incident, rule_set: RuleSet) -> Report:
    """The report on an incident as it is, made once."""
    if incident.name not in _REPORTS:
        _REPORTS[incident.name] = run(incident.folder, incident.expected["inputs"], rule_set)
    return _REPORTS[incident.name]


MACHINES = ("host", "gpu", "nic", "switch")


def named(report: Report, *kinds: str) -> set[tuple[str, str]]:
    """The culprits of these kinds under all their names, a rank also where it is another culprit's name."""
    names = {(culprit.kind, name) for culprit in report.culprits for name in (culprit.id, *culprit.names)}
    names |= {("rank", name.removeprefix("rank ")) for _, name in names if name.startswith("rank ")}
    return {(kind, name) for kind, name in names if kind in kinds}


# Names.


def hosts_of(incident: Incident, report: Report) -> list[str]:
    """The hosts that the incident names: as culprits, in the evidence, in the names of files."""
    found = {str(c["id"]) for c in incident.expected.get("culprits", []) if c["kind"] == "host"}
    for finding in report.explanation.findings:
        found |= finding.hosts | {evidence.host for evidence in finding.evidence if evidence.host}
    stems = {host.partition(".")[0] for host in found if HOST.match(host)}
    prefixes = {HOST.match(host)[0] for host in stems if HOST.match(host)}
    for name in files_of(incident):
        for part in re.split(r"[/_.]", name):
            if any(re.fullmatch(re.escape(prefix) + r"\d+", part) for prefix in prefixes):
                stems.add(part)
    return sorted(stems)


EXPIRED = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=512, NumelOut=512, "
    "Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
)


def rank_logs(failing: int, world: int) -> dict[str, str]:
    """A job with a log per rank: one meets an illegal access, the others wait for it for ten minutes."""
    made: dict[str, str] = {}
    for rank in range(world):
        lines = [
            f"2026-03-02 10:00:{second:02}.000 [rank{rank}] step: {second} loss: 2.5" for second in range(5, 20, 5)
        ]
        if rank == failing:
            lines += [
                f"[rank{rank}]: Traceback (most recent call last):",
                f'[rank{rank}]:   File "/home/me/train.py", line 61, in step',
                f"[rank{rank}]:     loss.backward()",
                f"[rank{rank}]: RuntimeError: CUDA error: an illegal memory access was encountered",
            ]
        else:
            lines += [
                f"[rank{rank}]:[E302 10:10:{20 + rank:02}.000000000 ProcessGroupNCCL.cpp:616] [Rank {rank}] " + EXPIRED,
            ]
        made[f"logs/rank_{rank}.log"] = "\n".join(lines) + "\n"
    return made


@pytest.mark.parametrize("failing", range(4))
def test_whichever_rank_fails(failing: int, rule_set: RuleSet, tmp_path) -> None:
    write(str(tmp_path), rank_logs(failing, 4))
    report = run(str(tmp_path), ["logs"], rule_set)
    assert (report.status, report.error_type) == ("failed", "CUDAError")
    assert {c.id for c in report.culprits if c.kind == "rank"} == {str(failing)}


# Clocks.

_ISO = re.compile(r"\b(\d{4}-\d\d-\d\d)([T ])(\d\d:\d\d:\d\d)")
_LONG = re.compile(r"\[\w{3} (\w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})\]")
_GLOG = re.compile(r"(\[[EWIF]\d{3,4} )(\d\d:\d\d:\d\d)(?=\.\d)")
_SHORT = re.compile(r"^((?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d\d:\d\d:\d\d)", re.MULTILINE)


def shifted(text: str, seconds: int) -> str:
    """A kernel log whose host's clock is wrong by so many seconds."""
    by = timedelta(seconds=seconds)

    def iso(found: re.Match[str]) -> str:
        time = datetime.fromisoformat(f"{found[1]}T{found[3]}") + by
        return f"{time:%Y-%m-%d}{found[2]}{time:%H:%M:%S}"

    def long(found: re.Match[str]) -> str:
        return f"[{datetime.strptime(found[1], '%b %d %H:%M:%S %Y') + by:%a %b %e %H:%M:%S %Y}]"  # noqa: DTZ007

    def short(found: re.Match[str]) -> str:
        return f"{datetime.strptime('2026 ' + found[1], '%Y %b %d %H:%M:%S') + by:%b %e %H:%M:%S}"  # noqa: DTZ007

    def glog(found: re.Match[str]) -> str:
        return f"{found[1]}{datetime.strptime(found[2], '%H:%M:%S') + by:%H:%M:%S}"  # noqa: DTZ007

    return _GLOG.sub(glog, _SHORT.sub(short, _LONG.sub(long, _ISO.sub(iso, text))))


def kernel_logs() -> Iterator[tuple[Incident, str]]:
    for incident in ALL:
        words = incident.expected["inputs"]
        files = files_of(incident)
        for option, name in pairwise(words):
            if option == "--kernel-log" and name in files and shifted(files[name], 300) != files[name]:
                yield incident, name


KERNEL = list(kernel_logs())


# A clock that counts from the machine's start, as `dmesg` prints it unasked.

_BOOT = datetime(2020, 1, 1)  # noqa: DTZ001 - the stamps name no zone


def since_boot(text: str) -> str:
    """A kernel log of `dmesg -T` as plain `dmesg` shows it."""

    def uptime(found: re.Match[str]) -> str:
        time = datetime.strptime(found[1], "%b %d %H:%M:%S %Y")  # noqa: DTZ007
        return f"[{(time - _BOOT).total_seconds() % 4_000_000:12.6f}]"

    return _LONG.sub(uptime, text)


UPTIME = [incident for incident, name in KERNEL if _LONG.search(files_of(incident)[name])]


@pytest.mark.parametrize("incident", UPTIME, ids=[incident.name for incident in UPTIME])
def test_kernel_logs_count_from_the_start(incident: Incident, rule_set: RuleSet, tmp_path) -> None:
    before = report_on(incident, rule_set)
    kernel = {name for one, name in KERNEL if one is incident}
    write(
        str(tmp_path),
        {name: since_boot(text) if name in kernel else text for name, text in files_of(incident).items()},
    )
    after = run(str(tmp_path), incident.expected["inputs"], rule_set)
    assert after.status == "inconclusive" or (after.status, after.error_type) == (before.status, before.error_type)
    assert named(after, *MACHINES) <= named(before, *MACHINES)


# Packed inputs.


def answer(report: Report) -> object:
    """What a report says, whatever the inputs are called."""
    who = {(culprit.kind, culprit.id) for culprit in report.culprits}
    return report.status, report.error_type, report.attribution, report.recovery.job, who


def packed(files: Mapping[str, str]) -> dict[str, bytes]:
    return {
        f"{name}.gz": gzip.compress(text.encode("utf-8", "surrogateescape"), mtime=0) for name, text in files.items()
    }


@pytest.mark.parametrize("incident", ALL, ids=[incident.name for incident in ALL])
def test_packed_one_by_one(incident: Incident, rule_set: RuleSet, tmp_path) -> None:
    files = files_of(incident)
    words = incident.expected["inputs"]
    given = {words[at + 1] for at, word in enumerate(words) if word == "--inventory"}
    write(str(tmp_path), {name: text for name, text in files.items() if name in given})
    for name, data in packed({name: text for name, text in files.items() if name not in given}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    after = run(
        str(tmp_path), [f"{word}.gz" if word in files and word not in given else word for word in words], rule_set
    )
    assert answer(after) == answer(report_on(incident, rule_set))


def paths_of(words: Sequence[str]) -> list[str]:
    """The arguments that belong to no option."""
    options = {at for at, word in enumerate(words) if word.startswith("--")}
    return [word for at, word in enumerate(words) if not {at, at - 1} & options]


OWN = [incident for incident in ALL if paths_of(incident.expected["inputs"])]


@pytest.mark.parametrize("incident", OWN, ids=[incident.name for incident in OWN])
def test_packed_as_one_archive(incident: Incident, rule_set: RuleSet, tmp_path) -> None:
    words = incident.expected["inputs"]
    own = paths_of(words)
    write(str(tmp_path), files_of(incident))
    with tarfile.open(tmp_path / "job.tar.gz", "w:gz") as archive:
        for word in own:
            archive.add(tmp_path / word, arcname=word)
    after = run(str(tmp_path), ["job.tar.gz", *(word for word in words if word not in own)], rule_set)
    assert answer(after) == answer(report_on(incident, rule_set))


# Other numbers for the same ranks.

_RANK = re.compile(r"((?:\b|(?<!local_)_)[Rr]ank(?:[ =_]|\"?\s{0,12}: )?)(\d{1,3})\b(?![.:]\d)")
# srun's and mpirun's labels, which are the rank as well
_TASK = re.compile(r"^(\[\d{1,5},)?(\d{1,3})((?(1)\]<|: ))", re.MULTILINE)
_LISTING = re.compile(r"\.(?:csv|json|ya?ml)$")


def numbers_of(incident: Incident, pattern: re.Pattern[str]) -> set[int]:
    texts = (text for name, text in files_of(incident).items() if not _LISTING.search(name))
    return {int(found[2]) for text in texts for found in pattern.finditer(text)}


def ranks_of(incident: Incident) -> int:
    """How many ranks the incident's own tags and labels name, counted from 0; 0 where labels are no ranks."""
    tags, labels = numbers_of(incident, _RANK), numbers_of(incident, _TASK)
    if labels and (labels != set(range(len(labels))) or max(tags, default=0) >= len(labels)):
        return 0
    return 1 + max(tags | labels, default=0)


def renumbered(text: str, count: int, *, labels: bool = True) -> str:
    def other(found: re.Match[str]) -> str:
        return f"{found[1] or ''}{(int(found[2]) + 1) % count}{found[3] if found.re is _TASK else ''}"

    return _RANK.sub(other, _TASK.sub(other, text) if labels else text)


TAGGED = [incident for incident in ALL if ranks_of(incident) > 1]


@pytest.mark.parametrize("incident", TAGGED, ids=[incident.name for incident in TAGGED])
def test_ranks_by_any_other_number(incident: Incident, rule_set: RuleSet, tmp_path) -> None:
    before = report_on(incident, rule_set)
    count = ranks_of(incident)
    files = {
        renumbered(name, count, labels=False): renumbered(text, count, labels=not _LISTING.search(name))
        for name, text in files_of(incident).items()
    }
    write(str(tmp_path), files)
    words = [renumbered(word, count, labels=False) for word in incident.expected["inputs"]]
    after = run(str(tmp_path), words, rule_set)
    assert (after.status, after.error_type, after.attribution) == (before.status, before.error_type, before.attribution)
    moved = {str((int(culprit.id) + 1) % count) for culprit in before.culprits if culprit.kind == "rank"}
    assert {culprit.id for culprit in after.culprits if culprit.kind == "rank"} == moved


# The paper's case: several errors in one log, and the CUDA error is the cause.


def _traceback(rank: int, message: str) -> list[str]:
    return [
        f"[rank{rank}]: Traceback (most recent call last):",
        f'[rank{rank}]:   File "/opt/run/train.py", line {120 + rank}, in <module>',
        f"[rank{rank}]:     main()",
        f"[rank{rank}]: {message}",
    ]


def _watchdog(rank: int, at: str) -> list[str]:
    return [f"[rank{rank}]:[E302 {at}.100000000 ProcessGroupNCCL.cpp:616] [Rank {rank}] {EXPIRED}"]


CUDA = _traceback(2, "RuntimeError: CUDA error: an illegal memory access was encountered")
ERRORS = {
    "time-out": _watchdog(0, "11:30:04") + _watchdog(1, "11:30:04") + _watchdog(3, "11:30:05"),
    "cuda": CUDA,
    "runtime": _traceback(0, "RuntimeError: NCCL communicator was aborted on rank 0.")
    + _traceback(1, "RuntimeError: NCCL communicator was aborted on rank 1.")
    + _traceback(3, "RuntimeError: The server socket has failed"),
}


@pytest.mark.parametrize("order", list(permutations(ERRORS)), ids="-".join)
def test_the_cuda_error_is_the_cause_among_its_echoes(order: tuple[str, ...], rule_set: RuleSet, tmp_path) -> None:
    head = [f"2026-03-02 11:00:{second:02} step={second} loss=2.11" for second in range(10)]
    lines = [*head, *(line for part in order for line in ERRORS[part])]
    write(str(tmp_path), {"job.log": "\n".join(lines) + "\n"})
    report = run(str(tmp_path), ["job.log"], rule_set)
    assert (report.status, report.error_type) == ("failed", "CUDAError")
    assert {c.id for c in report.culprits if c.kind == "rank"} <= {"2"}
