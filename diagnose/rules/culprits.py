"""What to blame: a host, rank, GPU, file, setting ... under all the names the inputs give it.

In: the root finding, its rule, the inventory, the ranks found absent. Out: culprits, the most telling first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, cast

from diagnose.lines.inventory import Inventory
from diagnose.models import Culprit, DiagnosisRule, Finding
from diagnose.models.rule import CulpritKind
from diagnose.rules.captures import Value, fill_whole

_MOST = 16  # beyond this a list of ranks names nobody
_FEW = 8
_NAMED: tuple[CulpritKind, ...] = ("host", "gpu", "rank", "nic")


def find_culprits(
    root: Finding, rule: DiagnosisRule | None, inventory: Inventory, absent: Sequence[int], ranks_known: int
) -> tuple[Culprit, ...]:
    """The culprits of a root finding; none where the evidence names nobody."""
    found: dict[tuple[str, str], Culprit] = {}
    captures: dict[str, Value] = {**root.captures, **({"absent": tuple(absent)} if absent else {})}
    why = f"{root.error_type} was seen there"
    if rule:
        for kind, template in rule.verdict.culprit.items():
            if kind == "ranks":
                _add_ranks(
                    found,
                    _listed(template, captures),
                    f"did not report {root.error_type}" if absent else why,
                    inventory,
                )
            elif kind == "rank" and len(root.ranks) > 1:
                if _telling(root, ranks_known):
                    _add_ranks(found, sorted(root.ranks), why, inventory)
            else:
                value = fill_whole(template, captures)
                if value and value != "?":
                    _add(found, kind, value, why, inventory, root)
    elif root.error_type == "CollectiveMismatch":
        _add_ranks(found, sorted(root.ranks), "issued another collective than the others", inventory)
    else:
        if _telling(root, ranks_known):
            _add_ranks(found, sorted(root.ranks), why, inventory)
        where = root.captures.get("file")
        if isinstance(where, str):
            _add(found, "file", where, "the exception was raised there", inventory, root)
    if root.family in ("hardware", "node") or (root.family == "cuda" and root.gpus and root.hosts):
        for host in sorted(root.hosts)[:_FEW] if len(root.hosts) <= _FEW else ():
            _add(found, "host", host, why, inventory, root)
    return tuple(found.values())


def _telling(root: Finding, ranks_known: int) -> bool:
    """Whether the ranks stand out: a few, and not all of them."""
    count = len(root.ranks)
    if count == 0 or count > _MOST:
        return False
    return count == 1 or (count <= _FEW and (ranks_known <= 0 or count * 2 <= ranks_known))


def _listed(template: str, captures: Mapping[str, Value]) -> list[int]:
    value = captures.get(template.strip("{}"))
    if isinstance(value, tuple):
        return [item for item in value if isinstance(item, int)]
    return [value] if isinstance(value, int) else []


def _add_ranks(found: dict[tuple[str, str], Culprit], ranks: Iterable[int], why: str, inventory: Inventory) -> None:
    ranks = list(ranks)
    if len(ranks) > _MOST:
        return
    for rank in ranks:
        names = inventory.names("rank", str(rank))
        found.setdefault(("rank", str(rank)), Culprit("rank", str(rank), why, names))
    hosts = {inventory.host_of_rank(rank) for rank in ranks}
    if len(ranks) > 1 and len(hosts) == 1 and (host := hosts.pop()):
        found.setdefault(("host", host), Culprit("host", host, why, inventory.names("host", host)))


def _add(
    found: dict[tuple[str, str], Culprit],
    kind: CulpritKind | Literal["ranks"],
    value: str,
    why: str,
    inventory: Inventory,
    root: Finding,
) -> None:
    if kind == "ranks":
        return
    names: tuple[str, ...] = ()
    if kind == "host":
        value = inventory.canonical_host(value)
    if kind in _NAMED:
        named = f"{next(iter(root.hosts))} {value}" if kind == "gpu" and len(root.hosts) == 1 else value
        names = inventory.names(cast("Literal['host', 'gpu', 'rank', 'nic']", kind), value) or inventory.names(
            cast("Literal['host', 'gpu', 'rank', 'nic']", kind), named
        )
    if kind == "nic":
        value = value.partition(":")[0]
    found.setdefault((kind, value), Culprit(kind, value, why, names))
