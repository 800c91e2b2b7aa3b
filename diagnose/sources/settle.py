"""Guesses that one name leaves open, settled over all files of a job.

In: `Named` inputs: what each name says, its kind, what its first text says to that. Out: their `LogSource`s. A number
is a rank only in a set that looks like ranks; a host's name needs a proof: the log says it, or an administrator's
spelling, or the file is a kernel log, or several such names share out the ranks. Of folders only those may be hosts
that tell inputs apart: where all of a job lies, on whose disk and in whose home, says nothing of where it ran.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from diagnose.dataclass import dataclass
from diagnose.models import LogSource, SourceKind
from diagnose.sources.names import NameFacts, surely_host
from diagnose.sources.sniff import hosts_stated, names_host, ranks_of

_OF_PERSONS = ((), ("home",), ("Users",), ("users",))  # right below these lie homes and mounts


@dataclass(frozen=True, slots=True)
class Named:
    """An input before its name is settled. `host` is the one its content names.

    `said_ranks` and `said_hosts` are the ranks that its first text names, and those guesses of the name that stand in
    it; the text itself is not kept, for there may be many thousand inputs. `elsewhere`: it states other hosts, and none
    that a folder above it is called after.
    """

    name: str
    kind: SourceKind
    facts: NameFacts
    host: str | None = None
    said_ranks: frozenset[int] = frozenset()
    said_hosts: frozenset[str] = frozenset()
    elsewhere: bool = False


def named(name: str, kind: SourceKind, facts: NameFacts, head: bytes, host: str | None = None) -> Named:
    """An input by its name and its first UTF-8 text."""
    ranks = ranks_of(head) if facts.task is not None else frozenset[int]()
    above = {host for _, host in facts.folder_hosts}
    hosts = frozenset(guess for guess in above.union(facts.host_guesses) if names_host(head, guess))
    elsewhere = bool(above) and above.isdisjoint(hosts) and bool(hosts_stated(head))
    return Named(name, kind, facts, host, ranks, hosts, elsewhere)


def settle(inputs: Sequence[Named]) -> list[LogSource]:
    """Return what is known of each input, in order."""
    ranks = _ranks(inputs)
    folders = _host_folders(inputs)
    hosts = _hosts(inputs, ranks, folders)
    ranks, local_ranks = _local(inputs, ranks, hosts)
    beside_err = {_unextended(named.name) for named in inputs if named.facts.stream == "stderr"}
    return [
        LogSource(
            name=named.name,
            kind=named.kind,
            host=hosts[index],
            rank=ranks[index],
            local_rank=local_ranks[index],
            attempt=named.facts.attempt,
            stream="stdout" if named.facts.out and _unextended(named.name) in beside_err else named.facts.stream,
        )
        for index, named in enumerate(inputs)
    ]


def looks_like_ranks(numbers: Iterable[int]) -> bool:
    """Say whether `numbers` could number the processes of one job, some of whose logs may be missing."""
    distinct = set(numbers)
    top = max(distinct, default=0)
    if len(distinct) < 2:
        return False
    if 0 in distinct:
        return top < 4 * len(distinct) + 8
    # Array indexes start at 1 as a rule. Without 0 only a nearly full set that ends as whole nodes do is believed.
    return (top + 1) % 8 == 0 and 4 * len(distinct) >= 3 * (top + 1)


def _ranks(inputs: Sequence[Named]) -> list[int | None]:
    ranks = [named.facts.rank if _has_rank(named) else None for named in inputs]
    groups: dict[tuple[str, int | None], list[int]] = defaultdict(list)
    for index, named in enumerate(inputs):
        if ranks[index] is None and named.facts.task is not None and named.kind in ("job", "dump"):
            groups[named.facts.group, named.facts.attempt].append(index)
    for members in groups.values():
        tasks = {index: inputs[index].facts.task for index in members}
        if not looks_like_ranks(task for task in tasks.values() if task is not None):
            continue
        # A task may be a node's launcher with all its ranks in one log, and then the number is none of theirs.
        said = {index: inputs[index].said_ranks for index in members}
        if all(found <= {tasks[index]} for index, found in said.items()):
            for index in members:
                ranks[index] = tasks[index]
    return ranks


def _has_rank(named: Named) -> bool:
    return named.kind not in ("kernel", "scheduler")


def _host_folders(inputs: Sequence[Named]) -> list[tuple[str, ...]]:
    """Return for each input the folders above it that may be called after a host, the innermost first.

    Not those that hold all inputs; nor those that hold all inputs of the kind, such as the job's own beside kernel logs
    from elsewhere, unless their like lies beside them or a kernel log lies right within; nor a person's home; and none
    of an input that states another host.
    """
    if len(inputs) == 1:
        return [()]
    common = _depth_of_all(inputs)
    kinds = {kernel: _depth_of_all(_of_kind(inputs, kernel=kernel)) for kernel in (False, True)}
    alike: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for named in inputs:
        for depth, host in named.facts.folder_hosts:
            if depth > common:
                alike[(*named.facts.folder[: depth - 1], _spelling(host))].add(host)
    found: list[tuple[str, ...]] = []
    for named in inputs:
        if named.elsewhere:
            found.append(())
            continue
        folder = named.facts.folder
        kernel = named.kind == "kernel"
        found.append(
            tuple(
                host
                for depth, host in named.facts.folder_hosts
                if depth > common
                and folder[: depth - 1][-1:] not in _OF_PERSONS
                and (
                    depth > kinds[kernel]
                    or (kernel and depth == len(folder))
                    or len(alike[(*folder[: depth - 1], _spelling(host))]) > 1
                )
            )
        )
    return found


def _of_kind(inputs: Sequence[Named], *, kernel: bool) -> list[Named]:
    return [named for named in inputs if (named.kind == "kernel") == kernel and named.kind != "scheduler"]


def _depth_of_all(inputs: Sequence[Named]) -> int:
    """Return how many folders, from the root on, hold all inputs that lie anywhere."""
    folders = [named.facts.folder for named in inputs if named.facts.folder]
    if not folders:
        return 0
    first, last = min(folders), max(folders)
    return next(
        (depth for depth, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first)
    )


def _hosts(
    inputs: Sequence[Named], ranks: Sequence[int | None], folders: Sequence[tuple[str, ...]]
) -> list[str | None]:
    guesses = [(*named.facts.host_guesses, *names) for named, names in zip(inputs, folders, strict=True)]
    proven: set[str] = set()
    owners: dict[str, set[int]] = defaultdict(set)
    for index, named in enumerate(inputs):
        rank = ranks[index]
        for place, guess in enumerate(guesses[index]):
            # A kernel log is of one host: the likeliest, and not that of every folder above it.
            own = named.kind == "kernel" and named.host is None and place == 0
            if surely_host(guess) or guess == named.host or guess in named.said_hosts or own:
                proven.add(guess)
            if rank is not None:
                owners[guess].add(rank)
    proven |= _sharing(owners)
    # One host proven proves those spelled like it.
    spellings = {_spelling(host) for host in proven}
    hosts: list[str | None] = []
    for index, named in enumerate(inputs):
        believed = next((guess for guess in guesses[index] if guess in proven or _spelling(guess) in spellings), None)
        if named.kind == "scheduler":
            believed = None
        hosts.append(named.host or believed or (named.facts.host if named.kind != "scheduler" else None))
    return hosts


def _sharing(owners: dict[str, set[int]]) -> set[str]:
    """Return the names that share out ranks as nodes do: several of one spelling, each rank with one of them."""
    alike: dict[str, list[str]] = defaultdict(list)
    for name in owners:
        alike[_spelling(name)].append(name)
    found: set[str] = set()
    for names in alike.values():
        sets = [owners[name] for name in names]
        if len(names) > 1 and sum(map(len, sets)) == len(set[int]().union(*sets)):
            found.update(names)
    return found


def _spelling(host: str) -> str:
    return "".join("0" if char.isdigit() else char for char in host.lower())


def _local(
    inputs: Sequence[Named], ranks: list[int | None], hosts: Sequence[str | None]
) -> tuple[list[int | None], list[int | None]]:
    """Return ranks and local ranks; a rank that several hosts claim is each host's own numbering."""
    claims: dict[int, set[str]] = defaultdict(set)
    for rank, host in zip(ranks, hosts, strict=True):
        if rank is not None and host is not None:
            claims[rank].add(host)
    local_ranks = [named.facts.local_rank if _has_rank(named) else None for named in inputs]
    if any(len(claimed) > 1 for claimed in claims.values()):
        for index, host in enumerate(hosts):
            if host is not None and ranks[index] is not None and local_ranks[index] is None:
                local_ranks[index], ranks[index] = ranks[index], None
    return ranks, local_ranks


def _unextended(name: str) -> str:
    folder, slash, base = name.rpartition("/")
    return folder + slash + base.split(".")[0]
