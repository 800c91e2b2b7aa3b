"""What the name of a file says of it: kind, host, rank, local rank, attempt, stream.

In: a path (archive members with `!`). Out: `NameFacts`, some of them guesses that only a look at all files can settle
(`settle.py`). The table `FILE_NAMES` is read from the top, the first entry that matches the stem decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Literal

from diagnose.dataclass import dataclass, replace
from diagnose.models import SourceKind

Stream = Literal["stdout", "stderr"]


@dataclass(frozen=True, slots=True)
class NameFacts:
    """What one path says. Ranks and attempts are 0-based.

    `task` is a number that is a rank only if it belongs to a set that looks like ranks; `group` names that set.
    `host_guesses` are texts in its last part that look like host names, the likeliest first. `folder` is where it lies,
    and `folder_hosts` are those folders above it that look like hosts, the innermost first: how deep each lies, and the
    name. Whether a folder may speak depends on where the other inputs lie. `kind_guess` needs the content's word. `out`
    marks the extension `.out`, which means stdout only beside an `.err`.
    """

    kind: SourceKind | None = None
    kind_guess: SourceKind | None = None
    host: str | None = None
    host_guesses: tuple[str, ...] = ()
    folder: tuple[str, ...] = ()
    folder_hosts: tuple[tuple[int, str], ...] = ()
    rank: int | None = None
    local_rank: int | None = None
    task: int | None = None
    group: str = ""
    attempt: int | None = None
    stream: Stream | None = None
    out: bool = False


@dataclass(frozen=True, slots=True)
class _Name:
    """An entry of the table: a pattern of the whole stem, whose groups are the fields they are named after.

    One of `words` stands in every stem it matches; a pattern is compiled only where one does, for compiling all of
    them would take longer than reading a log.
    """

    pattern: str
    words: tuple[str, ...] = ()
    kind: SourceKind | None = None
    kind_guess: SourceKind | None = None

    def match(self, stem: str, lower: str) -> re.Match[str] | None:
        """Return the match of `stem`, whose lower-case form is `lower`."""
        if self.words and not any(word in lower for word in self.words):
            return None
        return _compiled(self.pattern).fullmatch(stem)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.ASCII)


def _name(
    words: tuple[str, ...] | str, pattern: str, kind: SourceKind | None = None, *, guess: SourceKind | None = None
) -> _Name:
    return _Name(pattern, (words,) if isinstance(words, str) else words, kind, guess)


# What people ask a host with, and keep under its name.
_TOOLS = ("nvidia-smi", "nvidia_smi", "nvidiasmi", "dcgmi", "ibstat", "ibstatus", "lspci", "ethtool")
_DIGITS = tuple("0123456789")
_KERNEL_WORDS = ("kernel", "kern", "dmesg", "kmsg")
_SYSTEM_WORDS = ("console", "messages", "syslog", "journal", "sol", "serial")
_SLURM_WORDS = ("sacct", "scontrol", "squeue", "sinfo", "sstat", "slurmctld", "slurmd")
_KUBE_WORDS = ("kubectl", "describe", "event", "pod")
_RECORDER_WORDS = ("comm_lib_trace", "nccl_trace", "fr_trace", "flight_recorder")
_STACK_WORDS = ("spy", "stack", "gdb")
_POD_WORDS = ("worker-", "master-", "launcher-", "chief-", "ps-", "head-", "server-")
_ASKED = r"(?P<asked>[a-z][a-z0-9-]{0,60}[0-9])"
_HOST = r"(?P<host>[a-z][a-z0-9-]{0,60}[0-9])"
# A host's name may end in a letter, where a cloud made it up: `gke-pool-3f2a-x1zq`.
_LETTERED = r"(?P<host>[a-z][a-z0-9]{0,30}-[a-z0-9-]{1,60}[a-z])"
_DOMAIN = r"(?:\.[a-z][a-z0-9.-]{0,80})?"
_NUMBER = r"0{0,8}[0-9]{1,6}"
_RANK = rf"(?:global)?[_-]?rank[._=-]?(?P<rank>{_NUMBER})"
_LOCAL = rf"local[_-]?rank[._=-]?(?P<local_rank>{_NUMBER})"
# Surely of the kernel, and likely so.
_KERNEL = r"(?:kernel|kern|dmesg|vmcore-dmesg|kmsg)"
_SYSTEM = r"(?:console|messages|syslog|journal|journalctl|sol|serial)"
# What schedulers write between a job's id and the rest.
_JOB = r"(?:.{0,120}[._-])?[0-9]{4,12}"

# What may stand around the telling part of a name.
_BEFORE = r"(?:.{0,60}[._-])?"
_AFTER = r"(?:[._-].{0,60})?"
_RECORDER = r"(?:comm_lib_trace|nccl_trace|fr_trace|flight_recorder)"
_STACKS = r"(?:py-?spy|stacks?|stack_?trace|gdb|cuda-?gdb)"
_POD = r"(?P<pod>(?:[a-z0-9][a-z0-9.-]{0,80}-)?(?:worker|master|launcher|chief|ps|head|server)-[0-9]{1,6})"

FILE_NAMES: tuple[_Name, ...] = (
    # Kernel and system logs, of a host or of whichever.
    _name(_KERNEL_WORDS, rf"{_HOST}{_DOMAIN}[._-]{_KERNEL}(?:[._-].{{0,40}})?", "kernel"),
    _name(_KERNEL_WORDS, rf"(?:var[._-]log[._-])?{_KERNEL}[._-]{_HOST}{_DOMAIN}", "kernel"),
    _name(_KERNEL_WORDS, rf"(?:var[._-]log[._-])?{_KERNEL}(?:[._-][0-9T.:_-]{{1,30}})?", "kernel"),
    _name(_KERNEL_WORDS, rf"{_LETTERED}{_DOMAIN}[._-]{_KERNEL}(?:[._-][0-9T.:_-]{{1,30}})?", "kernel"),
    _name(_SYSTEM_WORDS, rf"{_HOST}{_DOMAIN}[._-]{_SYSTEM}(?:[._-].{{0,40}})?", guess="kernel"),
    _name(_SYSTEM_WORDS, rf"(?:var[._-]log[._-])?{_SYSTEM}[._-]{_HOST}{_DOMAIN}", guess="kernel"),
    _name(_SYSTEM_WORDS, rf"(?:var[._-]log[._-])?{_SYSTEM}(?:[._-][0-9T.:_-]{{1,30}})?", guess="kernel"),
    # Schedulers.
    _name(
        _SLURM_WORDS,
        r"(?:.{0,60}[._-])?(?:sacct|scontrol|squeue|sinfo|sstat|slurmctld|slurmd)(?:[._-].{0,60})?",
        guess="scheduler",
    ),
    _name(
        _KUBE_WORDS, r"(?:.{0,60}[._-])?(?:kubectl|describe|events?|pod|podspec)(?:[._-].{0,60})?", guess="scheduler"
    ),
    # Dumps.
    _name(
        _RECORDER_WORDS,
        rf"{_RECORDER}[._-]?(?:rank)?[._-]?(?P<rank>{_NUMBER})",
        "dump",
    ),
    _name(_RECORDER_WORDS, rf"{_RECORDER}{_AFTER}", "dump"),
    _name(_STACK_WORDS, rf"{_STACKS}{_AFTER}[._-]{_RANK}", guess="dump"),
    _name(_STACK_WORDS, rf"{_STACKS}{_AFTER}", guess="dump"),
    # Ranks by name: NeMo, MMEngine, InternEvo, then all the ways of writing `rank`.
    _name("rank", rf"nemo_log_globalrank-(?P<rank>{_NUMBER})_localrank-(?P<local_rank>{_NUMBER})"),
    _name("rank", rf"[0-9]{{8}}_[0-9]{{6}}_{_HOST}{_DOMAIN}_device(?P<local_rank>{_NUMBER})_rank(?P<rank>{_NUMBER})"),
    _name("_dp=", rf"{_HOST}{_DOMAIN}_dp=[0-9]{{1,6}}(?:_[a-z]{{2,4}}=[0-9]{{1,6}}){{0,5}}"),
    _name("rank", rf"{_BEFORE}{_RANK}[._-]{_LOCAL}{_AFTER}"),
    _name("rank", rf"{_BEFORE}{_LOCAL}[._-]{_RANK}{_AFTER}"),
    _name("rank", rf"{_HOST}{_DOMAIN}[._-]{{1,3}}{_LOCAL}{_AFTER}"),
    _name("rank", rf"{_BEFORE}{_LOCAL}{_AFTER}"),
    _name("rank", rf"{_HOST}{_DOMAIN}[._-]{{1,3}}{_RANK}{_AFTER}"),
    _name("rank", rf"{_RANK}[._-](?:on[._-]|of[._-]?[0-9]{{1,6}}[._-])?{_HOST}{_DOMAIN}"),
    _name("rank", rf"{_BEFORE}{_RANK}{_AFTER}"),
    _name(_DIGITS, rf"r(?P<rank>{_NUMBER})"),
    # Pods of an operator: a name, no rank.
    _name(_POD_WORDS, _POD),
    # Slurm's %x %j %N %t: the number after the job id may be a task, an array index or a node.
    _name(_DIGITS, rf"{_JOB}[._-]{_HOST}[._-](?:t|task)?(?P<task>{_NUMBER})"),
    _name(_DIGITS, rf"{_JOB}[._-](?:t|task)?(?P<task>[0-9]{{1,5}})"),
    _name(_DIGITS, rf"{_JOB}[._-]{_HOST}"),
    _name(_DIGITS, rf"{_BEFORE}(?:task|proc|process)[._-]?(?P<task>{_NUMBER})"),
    _name(_DIGITS, r"(?:stdout|stderr|out|err|log)[._-](?P<task>[0-9]{1,5})"),
    _name(_DIGITS, r"(?P<task>[0-9]{1,5})"),
    # What a host was asked with, and its name.
    _name(
        _TOOLS, rf"(?P<asked>[a-z][a-z0-9-]{{0,60}}[0-9])[._-](?:{'|'.join(_TOOLS)})(?:[._-][a-z0-9]{{1,12}}){{0,2}}"
    ),
    _name(_TOOLS, rf"(?:{'|'.join(_TOOLS)})(?:[._-][a-z]{{1,12}}){{0,2}}[._-](?P<asked>[a-z][a-z0-9-]{{0,60}}[0-9])"),
    # A host alone, or after or before what it runs.
    _name(_DIGITS, rf"{_HOST}{_DOMAIN}"),
    _name(_DIGITS, rf"(?:stdout|stderr|out|err|log|train|job)[._-]{_HOST}"),
    _name(_DIGITS, rf"{_HOST}[._-](?:stdout|stderr|out|err|log|train|job)"),
)
_RANGE = rf"(?:-|_?-?to-?_?|\.\.)({_NUMBER})(?![0-9])"
_MOST_OF_A_RANGE = 1024
_ATTEMPT = rf"(?:attempt|restart|retry)[._-]?(?P<attempt>{_NUMBER})"
_FOLDERS = (
    _name(("attempt", "restart", "retry"), _ATTEMPT),
    _name("rank", _LOCAL),
    _name("rank", rf"(?:global[_-]?)?rank[._=-]?(?P<rank>{_NUMBER})"),
    # /var/log/pods/<namespace>_<pod>_<uid>/<container>/<restarts>.log
    _name("_", r"[a-z0-9-]{1,63}_(?P<pod>[a-z0-9][a-z0-9.-]{0,120})_[0-9a-f]{8}-?[0-9a-f-]{23,28}"),
)

_PACKED = (".gz", ".zst", ".zstd", ".xz", ".bz2", ".lzma", ".z", ".tgz", ".txz", ".tbz2", ".tar", ".zip")
_EXTENSIONS = (
    *(".log", ".txt", ".text", ".out", ".err", ".stdout", ".stderr", ".json", ".jsonl", ".ndjson", ".csv", ".tsv"),
    *(".psv", ".yaml", ".yml", ".lst", ".dump"),
)
_ROTATED = r"(.{0,200}(?:log|messages|syslog|dmesg|journal|\.out|\.err))(?:\.[0-9]{1,2}|-[0-9]{8})"
_STDOUT = r"(?:^|[._-])stdout(?:$|[._-])"
_STDERR = r"(?:^|[._-])stderr(?:$|[._-])"
# Words with a number behind them that are no hosts: what people call runs, models, phases and parts.
_NO_HOST_WORDS = """
rank ranks local global step steps epoch epochs iter iteration job jobs run runs attempt restart retry part
parts train training trainer test tests eval val valid task tasks log logs out err stdout stderr output
error version v ckpt checkpoint exp experiment seed lr bs fold trial stage phase proc process pid gpu gpus
cuda device rev day week hour date try case cases file slurm stdin shard chunk batch world size tp pp dp cp
ep vp zero fp bf int llama gpt opt bert qwen mistral mixtral deepseek internlm gemma phi falcon bloom vit
resnet unet moe sft dpo ppo rlhf grpo pretrain finetune lora model models nemo megatron dataset data sample
samples config conf cfg debug issue bug ticket old new tmp temp bak copy backup session release build ci r e
s t n x c g m u p nodes np nproc nnodes nccl torch pytorch python py ray mpi incident inc fixture example
demo foo bar results result snapshot dump core level round group set split layer block
"""
_NO_HOSTS = frozenset(_NO_HOST_WORDS.split())
# With a number these are runs, ranks and parts of logs even beside `dmesg`; `gpu01` and `n012` are hosts there.
_RUN_WORDS = """
rank local-rank job run attempt restart retry part log out err output v version case exp experiment trial try slurm
boot step epoch iter seed incident inc issue bug ticket old new tmp day week
"""
_RUNS = frozenset(_RUN_WORDS.split())
# Words of machines, among those above: beside a kernel log a folder so called is a host.
_MACHINES = frozenset(("gpu", "gpus", "cuda", "nodes", "c", "e", "g", "m", "n", "p", "r", "s", "t", "u", "x"))
# Folders and files so called are hosts without further proof, if the number is written as admins do.
_SURE_HOST = r"(?:node|host|compute|dgx|hgx|gpu-?node|cnode)[a-z]{0,4}-?[0-9]{2,5}|nid[0-9]{3,6}|ip(?:-[0-9]{1,3}){4}"


def facts_of(path: str, place: str | None = None) -> NameFacts:
    """Return what `path` says; `!` between an archive and its member counts as a folder's `/`.

    `place` is the same path from the root on, however it was typed: by it the folders of several inputs are compared.
    """
    *folders, base = _parts(path) or [""]
    facts = _file_facts(base)
    facts = _folder_facts(facts, folders, _plain(base)[0])
    where = tuple(folders if place is None else _parts(place)[:-1])
    likely = _machine_like if "kernel" in (facts.kind, facts.kind_guess) else host_like
    facts = replace(facts, folder=where, folder_hosts=_hosts_among(where, likely))
    if facts.kind == "kernel" or facts.kind_guess == "kernel":
        return replace(facts, rank=None, local_rank=None, task=None, attempt=None, stream=None, out=False)
    return facts


def _parts(path: str) -> list[str]:
    return [part for part in path.replace("!", "/").split("/") if part not in ("", ".", "..")]


def _hosts_among(folders: tuple[str, ...], likely: Callable[[str], bool]) -> tuple[tuple[int, str], ...]:
    """Return the folders called like hosts, perhaps with their domain, the innermost first."""
    found: list[tuple[int, str]] = []
    for depth in range(len(folders), 0, -1):
        host = folders[depth - 1].partition(".")[0]
        # No expression, which every run on a file below some `user12` would have to compile.
        plain = host[-1:].isdigit() and host[0].isalpha() and host.isascii() and host.replace("-", "").isalnum()
        if plain and likely(host):
            found.append((depth, host))
    return tuple(found)


def host_like(text: str, but: frozenset[str] = frozenset()) -> bool:
    """Say whether `text` could be a host's name: letters with a number at the end, and no common word `but` these."""
    if not text or not text[-1].isdigit() or len(text) > 63:
        return False
    words = [word for part in text.lower().split("-") if (word := part.rstrip("0123456789"))]
    # One letter with a number is nothing in particular by itself (`s3`), and a host's number within a name (`aur-g11`).
    return not any(word in _NO_HOSTS and word not in but and (len(word) > 1 or len(words) == 1) for word in words)


def _machine_like(text: str) -> bool:
    return host_like(text, _MACHINES)


def kernel_host_like(text: str) -> bool:
    """Say whether `text` beside `dmesg`, `kernel` or the like is the host's name: any with a number, but a run's."""
    if len(text) > 63 or not any(char.isdigit() for char in text):
        return False
    return text.lower().rstrip("0123456789").rstrip("-") not in _RUNS


def surely_host(text: str) -> bool:
    """Say whether `text` needs no proof to be taken for a host's name."""
    return _compiled(_SURE_HOST).fullmatch(text) is not None


def _plain(base: str) -> tuple[str, str]:
    """Return the stem of a file name and its last extension in lower case, without compression and rotation."""
    lower = base.lower()
    while lower.endswith(_PACKED) and "." in lower[1:]:
        base = base[: base.rindex(".")]
        lower = base.lower()
    if base[-1:].isdigit() and (rotated := _compiled(_ROTATED).fullmatch(base)):
        base = rotated[1]
    extension = ""
    for _ in range(2):  # stdout.log, dmesg.txt
        found = next((ext for ext in _EXTENSIONS if base.lower().endswith(ext)), None)
        if found is None or len(found) == len(base):
            break
        extension = extension or found
        if found in (".stdout", ".stderr"):
            extension = found
        base = base[: -len(found)]
    return base, extension


def _file_facts(base: str) -> NameFacts:
    stem, extension = _plain(base)
    stream: Stream | None = None
    if extension in (".err", ".stderr") or ("stderr" in base.lower() and _compiled(_STDERR).search(base)):
        stream = "stderr"
    elif extension == ".stdout" or ("stdout" in base.lower() and _compiled(_STDOUT).search(base)):
        stream = "stdout"
    facts = NameFacts(stream=stream, out=extension == ".out" and stream is None)
    if len(stem) > 255:
        return facts
    lower = stem.lower()
    for entry in FILE_NAMES:
        if match := entry.match(stem, lower):
            host = match.groupdict().get("host")
            likely = kernel_host_like if "kernel" in (entry.kind, entry.kind_guess) else host_like
            if host is not None and not likely(host):
                continue  # a later entry may read the same name without a host
            return replace(_with(facts, match, likely), kind=entry.kind, kind_guess=entry.kind_guess)
    return facts


def _with(facts: NameFacts, match: re.Match[str], likely: Callable[[str], bool] = host_like) -> NameFacts:
    """Add a match's groups to the facts, a host if it is a `likely` one; what is known already stays."""
    groups = {key: value for key, value in match.groupdict().items() if value is not None}
    if "pod" in groups and facts.host is None:
        facts = replace(facts, host=groups["pod"])
    if "asked" in groups and kernel_host_like(groups["asked"]) and facts.host is None:
        facts = replace(facts, host=groups["asked"])
    if "host" in groups and likely(groups["host"]):
        facts = replace(facts, host_guesses=(*facts.host_guesses, groups["host"]))
    if "rank" in groups and facts.rank is None and not _of_a_range(match, "rank"):
        facts = replace(facts, rank=int(groups["rank"]))
    if "local_rank" in groups and facts.local_rank is None and not _of_a_range(match, "local_rank"):
        facts = replace(facts, local_rank=int(groups["local_rank"]))
    if "attempt" in groups and facts.attempt is None:
        facts = replace(facts, attempt=int(groups["attempt"]))
    if "task" in groups and facts.task is None:
        facts = replace(facts, task=int(groups["task"]), group=match.string[: match.start("task")])
    return facts


def _of_a_range(match: re.Match[str], group: str) -> bool:
    """Say whether a rank is the first of several that share the file: `rank0-3`, `rank_8_to_15`."""
    rest = _compiled(_RANGE).match(match.string, match.end(group))
    if rest is None:
        return False
    first, last = int(match[group]), int(rest[1])
    # Other numbers stand behind ranks as well: dates, ids of jobs.
    return first < last < first + _MOST_OF_A_RANGE


def _folder_facts(facts: NameFacts, folders: list[str], stem: str) -> NameFacts:
    for index in range(len(folders) - 1, -1, -1):
        folder = folders[index]
        if len(folder) > 255:
            continue
        inside = index == len(folders) - 1
        elastic = index > 0 and _FOLDERS[0].match(folders[index - 1], folders[index - 1].lower()) is not None
        if inside and elastic and folder.isascii() and folder.isdigit() and len(folder) <= 6:
            # torchelastic: <log dir>/<run id>/attempt_<n>/<local rank>/{stdout,stderr}.log and error.json
            if stem.lower() in ("stdout", "stderr", "error"):
                facts = replace(facts, local_rank=int(folder))
            continue
        lower = folder.lower()
        for entry in _FOLDERS:
            if match := entry.match(folder, lower):
                if "pod" in match.groupdict() and facts.task is not None:
                    facts = replace(facts, attempt=facts.task, task=None)
                facts = _with(facts, match)
                break
    if facts.task is not None:
        facts = replace(facts, group="/".join((*folders, facts.group)))
    return facts
