"""What to blame: a host, rank, GPU, file, setting ... under all the names the inputs give it.

In: the root finding, its rule, the inventory, the ranks found absent. Out: culprits, the most telling first: what the
rule names, then where it was raised, then where it probably happened. A victim's host is never one: hosts are named
only for faults that lie in a machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from diagnose.lines.inventory import Inventory, NameKind
from diagnose.models import Culprit, DiagnosisRule, Finding
from diagnose.models.rule import CulpritKind
from diagnose.patterns import Lazy
from diagnose.rules.captures import CODE_PLACE, FIELD, LIBRARY_PLACE, Value, field_value, fill_whole
from diagnose.rules.collectives import odd_ranks

_MOST = 16  # beyond this a list of ranks names nobody
_FEW = 8
_NAMED: Mapping[str, NameKind] = {"host": "host", "gpu": "gpu", "rank": "rank", "nic": "nic"}
# Families whose faults a person looks for in code, in a machine, or in what one process did.
_OF_CODE = frozenset({"script", "framework", "data"})
_OF_MACHINE = frozenset({"hardware", "node", "host"})
_OF_PROCESS = frozenset({"script", "framework", "data", "cuda", "hardware", "host"})
_ON_VOLUME = frozenset({"StorageIOError", "QuotaExceeded", "DiskFull"})
_VOLUME = Lazy(r"(/([^/\n]{1,64})/[^/\n]{1,128})/[^/\n]")
_OF_THE_SYSTEM = frozenset({"dev", "proc", "sys", "tmp", "var", "usr", "etc", "opt"})


def find_culprits(
    root: Finding,
    rule: DiagnosisRule | None,
    inventory: Inventory,
    absent: Sequence[int],
    ranks_known: int,
    heard: int | None = None,
) -> tuple[Culprit, ...]:
    """The culprits of a root finding; none where the evidence names nobody.

    `heard` is of how many ranks it is known how they fared, where each has logs of its own: the others may have
    failed alike.
    """
    return _Culprits(root, rule, inventory, absent, ranks_known, heard).find()


class _Culprits:
    def __init__(
        self,
        root: Finding,
        rule: DiagnosisRule | None,
        inventory: Inventory,
        absent: Sequence[int],
        ranks_known: int,
        heard: int | None,
    ) -> None:
        self._root = root
        self._rule = rule
        self._inventory = inventory
        self._absent = absent
        # Ranks count from 0, so the highest one heard of tells how many there are at least.
        self._ranks_known = max(ranks_known, max(inventory.ranks_seen | root.ranks, default=-1) + 1)
        self._heard = self._ranks_known if heard is None else min(heard, self._ranks_known)
        self._captures: dict[str, Value] = {**root.captures, **({"absent": tuple(absent)} if absent else {})}
        self._why = f"{root.error_type} was seen there"
        self._found: dict[tuple[str, str], Culprit] = {}

    def find(self) -> tuple[Culprit, ...]:
        root = self._root
        if root.error_type == "CollectiveMismatch":
            self._ranks(odd_ranks(root) or sorted(root.ranks), "issued another collective than the others")
        elif self._rule:
            self._named_by_rule(self._rule)
        elif self._telling():
            self._ranks(sorted(root.ranks), self._why)
        if root.error_type in _ON_VOLUME:
            self._volume()
        elif root.family in _OF_CODE:
            self._code()
        self._machine()
        self._presumed()
        return tuple(self._found.values())

    def _named_by_rule(self, rule: DiagnosisRule) -> None:
        for kind, template in rule.verdict.culprit.items():
            if kind == "ranks":
                why = f"did not report {self._root.error_type}" if self._absent else self._why
                self._ranks(self._waited_for(rule, template), why)
            elif kind == "rank" and len(self._root.ranks) > 1:
                if self._telling():
                    self._ranks(sorted(self._root.ranks), self._why)
            elif kind != "gpu" or len(self._root.ranks) <= 1 or self._root.gpus:
                pod = kind == "host" and _names_pod(template, self._captures)
                for value in _values(template, self._captures):
                    self._add(kind, value, self._why, pod=pod)

    def _waited_for(self, rule: DiagnosisRule, template: str) -> list[int]:
        """The ranks of a list; of those that others name, not the ones that report to have waited themselves."""
        ranks = _listed(template, self._captures)
        own = rule.collect.get(template.strip("{}"), "rank") == "rank"
        return ranks if own else [rank for rank in ranks if rank not in self._root.ranks]

    def _telling(self) -> bool:
        """Whether the ranks stand out: a few, and no more than half of those that were heard of.

        Devices do not break together: where several fail, what they share is at fault.
        """
        count = len(self._root.ranks)
        if count == 0 or count > _FEW or (count > 1 and self._root.family == "cuda"):
            return False
        return self._ranks_known == 1 or (self._heard > 1 if count == 1 else count * 2 <= self._heard)

    def _code(self) -> None:
        """Where it was raised: the user's own code, and the library's that it called."""
        for name, why in (
            (CODE_PLACE, "the exception was raised there, or in what it calls"),
            (LIBRARY_PLACE, "the exception was raised in this library"),
        ):
            place = self._captures.get(name)
            if isinstance(place, str):
                self._add("file", place, why)

    def _volume(self) -> None:
        """The file system that a file lies on, as far as its path tells: the first two directories."""
        for kind, name in list(self._found):
            if kind == "file" and (volume := _VOLUME.match(name)) and volume[2] not in _OF_THE_SYSTEM:
                self._add("file", volume[1], "the file lies on this volume, by its path")

    def _machine(self) -> None:
        root = self._root
        if root.family in ("hardware", "node") or (root.family == "cuda" and root.gpus and root.hosts):
            for host in sorted(root.hosts)[:_FEW] if len(root.hosts) <= _FEW else ():
                self._add("host", host, self._why)

    def _presumed(self) -> None:
        """The only process that the launcher saw fail, the only host that the log speaks of, if nothing says more."""
        root, presumed = self._root, self._root.presumed
        if root.role == "teardown":
            return
        kinds = {kind for kind, _ in self._found}
        if root.family in _OF_PROCESS and presumed.rank is not None and not root.ranks and "rank" not in kinds:
            self._ranks([presumed.rank], "the only process that the launcher saw fail")
        # A hang with a cause of its own and a kill from outside lie in the machine as well.
        of_machine = (
            root.family in _OF_MACHINE
            or (root.family == "cuda" and presumed.rank is not None)
            or (root.family == "comm" and root.role == "cause")
            or root.error_type == "ProcessKilled"
        )
        if of_machine and presumed.host is not None and not root.hosts and "host" not in kinds:
            self._add("host", presumed.host, "the only host that this log speaks of", presumed=True)

    def _ranks(self, ranks: Iterable[int], why: str) -> None:
        ranks = list(ranks)
        if len(ranks) > _MOST:
            return
        for rank in ranks:
            self._add("rank", str(rank), why)
        hosts = {self._inventory.host_of_rank(rank) for rank in ranks}
        if len(ranks) > 1 and len(hosts) == 1 and (host := hosts.pop()):
            self._add("host", host, why)

    def _add(self, kind: CulpritKind, value: str, why: str, *, presumed: bool = False, pod: bool = False) -> None:
        names: tuple[str, ...] = ()
        if kind == "host":
            node = self._inventory.canonical_host(value)
            pod = pod and value.startswith(node)  # else something says where the pod ran
            value = node
        if (named := _NAMED.get(kind)) is not None:
            names = self._inventory.names(named, value)
            if kind == "gpu" and not names and len(self._root.hosts) == 1:
                names = self._inventory.names(named, f"{next(iter(self._root.hosts))} {value}")
        if kind == "nic":
            value = value.partition(":")[0]
        self._found.setdefault((kind, value), Culprit(kind, value, why, names, presumed, pod))


def _values(template: str, captures: Mapping[str, Value]) -> Iterator[str]:
    """The filled template; a list that stands alone in it is spread, if it is short."""
    alone = FIELD.fullmatch(template)
    value = field_value(alone[1], captures) if alone else None
    if isinstance(value, tuple):
        yield from (str(item) for item in value if str(item) != "?") if len(value) <= _FEW else ()
    elif (text := fill_whole(template, captures)) and text != "?":
        yield text


def _names_pod(template: str, captures: Mapping[str, Value]) -> bool:
    """Whether `{host|pod}` comes to the pod's name, because the node is not known."""
    names = "|".join(FIELD.findall(template)).split("|")
    return "pod" in names and field_value("|".join(name for name in names if name != "pod"), captures) is None


def _listed(template: str, captures: Mapping[str, Value]) -> list[int]:
    value = captures.get(template.strip("{}"))
    if isinstance(value, tuple):
        return [item for item in value if isinstance(item, int)]
    return [value] if isinstance(value, int) else []
