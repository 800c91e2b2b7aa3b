"""Changes to the inputs that must not change the answer: other names, other clocks, a lost tail, another order of lines."""

from __future__ import annotations

import gzip
import os
import random
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping
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


def named(report: Report, *kinds: str) -> set[tuple[str, str]]:
    """The culprits of these kinds under all their names."""
    return {(c.kind, name) for c in report.culprits if c.kind in kinds for name in (c.id, *c.names)}


def cases(*dimensions: tuple[Incident, object], known: Mapping[tuple[str, object], str]) -> list[object]:
    """Parameters of incidents and one thing more; what is known to fail is marked strictly."""
    return [
        pytest.param(
            incident,
            other,
            id=incident.name if other is None else f"{incident.name}-{other}",
            marks=[pytest.mark.xfail(strict=True, reason=known[incident.name, other])]
            if (incident.name, other) in known
            else [],
        )
        for incident, other in dimensions
    ]


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


def renamer(hosts: list[str]) -> Callable[[str], str]:
    """Gives every host, also within lists such as `n[01-04]`, a name of another beginning."""
    pairs: list[tuple[re.Pattern[str], str]] = []
    for number, prefix in enumerate(sorted({HOST.match(host)[0] for host in hosts}, key=len, reverse=True)):
        new = f"qz{'abcdefgh'[number]}-w"
        pairs.append((re.compile(rf"(?<![A-Za-z0-9-]){re.escape(prefix)}(?=\[\d)"), new))
        own = [re.escape(host[len(prefix) :]) for host in hosts if HOST.match(host)[0] == prefix]
        pairs.append((re.compile(rf"(?<![A-Za-z0-9-]){re.escape(prefix)}(?=(?:{'|'.join(own)})(?![A-Za-z0-9]))"), new))

    def rename(text: str) -> str:
        for pattern, new in pairs:
            text = pattern.sub(new, text)
        return text

    return rename


@pytest.mark.parametrize("incident", ALL, ids=[incident.name for incident in ALL])
def test_hosts_by_any_other_name(incident: Incident, rule_set: RuleSet, tmp_path) -> None:
    before = report_on(incident, rule_set)
    hosts = hosts_of(incident, before)
    if not hosts:
        pytest.skip("names no host")
    rename = renamer(hosts)
    files = files_of(incident)
    write(str(tmp_path), {rename(name): rename(text) for name, text in files.items()})
    after = run(str(tmp_path), [rename(word) for word in incident.expected["inputs"]], rule_set)
    assert (after.status, after.error_type, after.attribution) == (before.status, before.error_type, before.attribution)
    assert after.recovery.job == before.recovery.job
    assert {(c.kind, c.id) for c in after.culprits} == {(c.kind, rename(c.id)) for c in before.culprits}


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

    return _SHORT.sub(short, _LONG.sub(long, _ISO.sub(iso, text)))


def kernel_logs() -> Iterator[tuple[Incident, str]]:
    for incident in ALL:
        words = incident.expected["inputs"]
        files = files_of(incident)
        for option, name in pairwise(words):
            if option == "--kernel-log" and name in files and shifted(files[name], 300) != files[name]:
                yield incident, name


KERNEL = list(kernel_logs())


@pytest.mark.parametrize("seconds", [-300, 300])
@pytest.mark.parametrize(("incident", "name"), KERNEL, ids=[f"{incident.name}-{name}" for incident, name in KERNEL])
def test_one_hosts_clock_is_wrong(incident: Incident, name: str, seconds: int, rule_set: RuleSet, tmp_path) -> None:
    before = report_on(incident, rule_set)
    files = files_of(incident)
    write(str(tmp_path), {**files, name: shifted(files[name], seconds)})
    after = run(str(tmp_path), incident.expected["inputs"], rule_set)
    assert after.status == "inconclusive" or (after.status, after.error_type) == (before.status, before.error_type)


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
    assert named(after, "host", "gpu") <= named(before, "host", "gpu")


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


@pytest.mark.parametrize("incident", ALL, ids=[incident.name for incident in ALL])
def test_packed_as_one_archive(incident: Incident, rule_set: RuleSet, tmp_path) -> None:
    words = incident.expected["inputs"]
    options = {at for at, word in enumerate(words) if word.startswith("--")}
    own = [word for at, word in enumerate(words) if not {at, at - 1} & options]
    if not own:
        pytest.skip("no log of the job's own")
    write(str(tmp_path), files_of(incident))
    with tarfile.open(tmp_path / "job.tar.gz", "w:gz") as archive:
        for word in own:
            archive.add(tmp_path / word, arcname=word)
    after = run(str(tmp_path), ["job.tar.gz", *(word for word in words if word not in own)], rule_set)
    assert answer(after) == answer(report_on(incident, rule_set))


# Other numbers for the same ranks.

_RANK = re.compile(r"((?:\b|(?<!local)_)[Rr]ank(?:[ =_]|\"?\s{0,12}: )?)(\d{1,3})\b(?![.:]\d)")
# srun's and mpirun's labels, which are the rank as well
_TASK = re.compile(r"^(?:\d{1,3}: |\[\d{1,5},\d{1,5}\]<)", re.MULTILINE)


def ranks_of(incident: Incident) -> int:
    """How many ranks the incident's own tags name, counted from 0."""
    return 1 + max((int(found[2]) for text in files_of(incident).values() for found in _RANK.finditer(text)), default=0)


def renumbered(text: str, count: int) -> str:
    return _RANK.sub(lambda found: f"{found[1]}{(int(found[2]) + 1) % count}", text)


TAGGED = [
    incident
    for incident in ALL
    if ranks_of(incident) > 1 and not any(_TASK.search(text) for text in files_of(incident).values())
]


@pytest.mark.parametrize("incident", TAGGED, ids=[incident.name for incident in TAGGED])
def test_ranks_by_any_other_number(incident: Incident, rule_set: RuleSet, tmp_path) -> None:
    before = report_on(incident, rule_set)
    count = ranks_of(incident)
    write(
        str(tmp_path), {renumbered(name, count): renumbered(text, count) for name, text in files_of(incident).items()}
    )
    after = run(str(tmp_path), [renumbered(word, count) for word in incident.expected["inputs"]], rule_set)
    assert (after.status, after.error_type, after.attribution) == (before.status, before.error_type, before.attribution)
    moved = {str((int(culprit.id) + 1) % count) for culprit in before.culprits if culprit.kind == "rank"}
    assert {culprit.id for culprit in after.culprits if culprit.kind == "rank"} == moved


# A lost tail.


def one_log(incident: Incident) -> str | None:
    """The log to cut: the only file given, read from its beginning."""
    words = incident.expected["inputs"]
    return words[0] if len(words) == 1 and words[0] in files_of(incident) else None


CUT = [incident for incident in ALL if one_log(incident)]


PARTS = (0.3, 0.6, 0.8, 0.9, 0.97)
LOST = {
    ("nccl-wrong-interface", 0.3): "one host of several that all report the same is named, and not always the same",
    **dict.fromkeys(
        (("disk-full-ds-save", 0.6), ("disk-full-ds-save", 0.8)),
        "that the disk is full is told last, by another program; until then a write failed",
    ),
}
ALONE = {
    ("container-init-k8s", "kubectl-describe-worker-1.txt"): (
        "why the worker never came is told there alone; without it the rendezvous failed"
    ),
}


@pytest.mark.parametrize(
    ("incident", "part"), cases(*((incident, part) for incident in CUT for part in PARTS), known=LOST)
)
def test_a_lost_tail_never_makes_another_culprit(incident: Incident, part: float, rule_set: RuleSet, tmp_path) -> None:
    before = report_on(incident, rule_set)
    name = one_log(incident)
    assert name
    lines = files_of(incident)[name].splitlines(keepends=True)
    write(str(tmp_path), {name: "".join(lines[: max(1, int(len(lines) * part))])})
    after = run(str(tmp_path), [name], rule_set)
    # Where the cause came last, what only followed from it is left; it must be one of the names that are right as well.
    allowed = (before.error_type, None, *incident.expected.get("accept", []))
    assert after.error_type in allowed or len(after.attempts) < len(before.attempts)
    assert after.error_type or after.status != "failed" or not after.culprits
    if len(after.attempts) == len(before.attempts):
        assert named(after, "rank", "host") <= named(before, "rank", "host")


# An input that is not there.

_SOME = 6  # of the files that nobody cites; those that the verdict rests on are all taken
_PLACES = ("host", "gpu", "nic", "switch")


def without(words: list[str], name: str) -> list[str]:
    """The arguments without an input and its option."""
    if name not in words:
        return words
    place = words.index(name)
    start = place - 1 if place and words[place - 1].startswith("--") else place
    return words[:start] + words[place + 1 :]


def losses() -> Iterator[tuple[Incident, str]]:
    """Each incident of several files with a file to take away; what is left holds something the job itself wrote."""
    for incident in ALL:
        words = incident.expected["inputs"]
        cited = {evidence["source"] for evidence in incident.expected.get("evidence", [])}
        names = sorted(files_of(incident))
        others = [name for name in names if name not in cited]
        for name in [*sorted(cited & set(names)), *random.Random(5).sample(others, min(_SOME, len(others)))]:
            left = [word for word in without(words, name) if word in names or os.path.isdir(_inside(incident, word))]
            options = {words[at + 1] for at, word in enumerate(words[:-1]) if word.startswith("--")}
            if len(names) > 1 and set(left) - options:
                yield incident, name


def _inside(incident: Incident, word: str) -> str:
    return os.path.join(incident.folder, word)


@pytest.mark.parametrize(("incident", "name"), cases(*losses(), known=ALONE))
def test_an_input_taken_away_never_adds_a_blame(incident: Incident, name: str, rule_set: RuleSet, tmp_path) -> None:
    before = report_on(incident, rule_set)
    files = {other: text for other, text in files_of(incident).items() if other != name}
    write(str(tmp_path), files)
    after = run(str(tmp_path), without(incident.expected["inputs"], name), rule_set)
    assert after.status != "no_failure" or before.status == "no_failure"
    # A symptom may stand where its cause went with the input, but then nobody is to blame for it. "scheduler" blames
    # nobody: somebody or something ended the job by its means.
    allowed = (before.error_type, None, *incident.expected.get("accept", []))
    blames = (before.attribution, None, "unknown", "scheduler", *incident.expected.get("accept_attribution", []))
    assert after.error_type in allowed or after.attribution in ("unknown", "scheduler", None)
    assert after.attribution in blames
    assert named(after, *_PLACES) <= named(before, *_PLACES)
    drained = {(node.host, node.action) for node in after.recovery.nodes if node.action != "inspect"}
    assert drained <= {(node.host, node.action) for node in before.recovery.nodes}


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
