"""What somebody else did: memory that another process holds, a job that its owner cancelled.

In: the root finding and its lines. Out: the facts that policy asks for, or nothing where the lines do not tell.
"""

from __future__ import annotations

from collections.abc import Callable

from diagnose.dataclass import dataclass
from diagnose.models import DiagnosisRule, Finding
from diagnose.patterns import Lazy

# PyTorch lists every process on the card; its own it calls "this process", where it knows which one that is.
_OTHER = Lazy(r"\bProcess (\d{1,10}) has (\d{1,7}(?:\.\d{1,4})?) ([KMGT]i?B|bytes) memory in use")
_OWN = Lazy(r"\bthis process has (\d{1,7}(?:\.\d{1,4})?) ([KMGT]i?B|bytes) memory in use")
_ALLOCATED = Lazy(r"\bOf the allocated memory (\d{1,7}(?:\.\d{1,4})?) ([KMGT]i?B|bytes) is allocated")
_TOTAL = Lazy(r"\btotal capacity of (\d{1,7}(?:\.\d{1,4})?) ([KMGT]i?B|bytes)")
_UNITS = {"b": 2**-30, "k": 2**-20, "m": 2**-10, "g": 1.0, "t": 2.0**10}
_OWN_LIMIT = "emory cgroup out of memory"
_SHARE = 0.1  # of the card: less is a desktop, a monitor or a context without data
_SYSTEM = frozenset({"root", "slurm", "maui", "moab", "pbs", "torque", "scheduler", "lsfadmin", "sgeadmin"})
_ADMINISTRATORS = frozenset({"root", "lsfadmin", "sgeadmin"})
_OWNER = frozenset({"owner", "user"})
_FIRST_ACCOUNT = 1000  # below it accounts belong to the system


@dataclass(frozen=True, slots=True)
class Held:
    """Memory of a GPU that a process of somebody else holds, in GiB."""

    pid: int
    size: float


def foreign_memory(root: Finding, rule: DiagnosisRule | None, is_own: Callable[[int], bool]) -> str | None:
    """What somebody else's process has to do with memory that ran out, in words; None where it may be the job's own.

    Ranks that share one card crowd each other out: nobody else is at fault then. `is_own` knows the job's processes.
    """
    if root.error_type == "HostOutOfMemory":
        return _killed_at_its_own_limit(root, rule, is_own)
    devices = [captured.get("device") for captured in root.by_rank.values()]
    if root.error_type != "OutOfMemoryError" or (len(devices) > 1 and len(set(devices)) < len(devices)):
        return None
    for evidence in root.evidence:
        held = _held(evidence.text, is_own)
        if held is not None:
            return f"process {held.pid}, which is not known to be this job's, holds {held.size:.1f} GiB of the card"
    return None


def _killed_at_its_own_limit(root: Finding, rule: DiagnosisRule | None, is_own: Callable[[int], bool]) -> str | None:
    """A program of the node that ran into the limit of its own control group."""
    pid, name = root.captures.get("pid"), root.captures.get("comm")
    if rule is None or "bystander" not in rule.tags or (isinstance(pid, int) and is_own(pid)):
        return None
    if not any(_OWN_LIMIT in evidence.text for evidence in root.evidence):
        return None
    return f"{name} (pid {pid}) was killed at its own memory limit, and it is no program of the job"


def _held(text: str, is_own: Callable[[int], bool]) -> Held | None:
    others = [Held(int(pid), float(size) * _UNITS[unit[0].lower()]) for pid, size, unit in _OTHER.findall(text)]
    if not others:
        return None
    if _OWN.search(text) is None:
        # In a container its own process has another number: the one that holds what PyTorch allocated is its own.
        allocated = _size(_ALLOCATED, text)
        own = min(others, key=lambda one: (one.size < allocated, abs(one.size - allocated)))
        others.remove(own)
    foreign = max((one for one in others if not is_own(one.pid)), key=lambda one: one.size, default=None)
    total = _size(_TOTAL, text)
    return foreign if foreign is not None and foreign.size >= _SHARE * total else None


def _size(pattern: Lazy[str], text: str) -> float:
    found = pattern.search(text)
    return float(found[1]) * _UNITS[found[2][0].lower()] if found else 0.0


def cancelled_by_administrator(root: Finding) -> bool:
    """Whether another than the owner ended the job, and a person: the record names an administrator or an account."""
    if isinstance(root.captures.get("admin"), str):
        return True
    by, user = root.captures.get("by"), root.captures.get("user")
    if isinstance(by, str) and not by.isdigit():
        return by not in _OWNER and (by != user if user is not None else by.lower() in _ADMINISTRATORS)
    uid, owner = int(by) if isinstance(by, str) else root.captures.get("uid"), root.captures.get("owner_uid")
    return isinstance(uid, int) and isinstance(owner, int) and uid not in (0, owner) and uid >= _FIRST_ACCOUNT


def cancelled_by_owner(root: Finding) -> bool:
    """Whether the one whose job it was ended it; who it was stands in `by` and `uid`, the owner in `user`, `owner_uid`.

    Slurm lets an ordinary account cancel its own jobs only, so one that is not known to be another's is the owner's.
    Root is an operator or the scheduler.
    """
    by, user = root.captures.get("by"), root.captures.get("user")
    if isinstance(by, str) and not by.isdigit():
        return by in _OWNER or (by == user if user is not None else by.lower() not in _SYSTEM)
    uid, owner = root.captures.get("uid"), root.captures.get("owner_uid")
    if isinstance(by, str):
        uid = int(by)
    if not isinstance(uid, int):
        return False
    return uid == owner if isinstance(owner, int) else uid >= _FIRST_ACCOUNT
