"""What else may lie beneath a verdict that is only possible, and what would decide.

In: a root, its judgement, who was absent, the inventory. Out: alternatives, the likeliest first; none where one source
names the cause and nothing rivals it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from diagnose.lines.inventory import Inventory
from diagnose.models import Alternative, DiagnosisRule, Finding
from diagnose.rules.captures import Value, shown_names
from diagnose.rules.collectives import describe_ranks
from diagnose.rules.findings import iso
from diagnose.rules.judge import Judgement

_MOST = 4


def alternatives(
    judgement: Judgement,
    root: Finding,
    rule: DiagnosisRule | None,
    absent: Sequence[int],
    inventory: Inventory,
    ranks_known: int,
    *,
    settled: bool = False,
) -> tuple[Alternative, ...]:
    """The rivals of a root: what was seen as early, or what a symptom may follow from, unless it is `settled`."""
    rivals = tuple(_as_early(root, rival) for rival in judgement.rivals[:_MOST])
    if not rivals and (root.stray or root.not_ours or not root.told.of_this_job):
        return (_of_another(root),)
    if rivals or settled:
        return rivals
    if _from_outside(root):
        return _beneath_kill(root)
    if rule is not None and "requeue" in rule.tags and "preempted" not in root.captures:
        return _beneath_requeue(root)
    if root.role != "symptom":
        return ()
    if root.family == "comm":
        return _beneath_waiting(root, absent, inventory, ranks_known)
    return _beneath_symptom(root, rule)


def _of_another(root: Finding) -> Alternative:
    other = "GPU" if root.not_ours else "host" if root.stray or root.told.foreign else "time"
    return Alternative(
        "unknown",
        f"{_place(root)} may tell of another {other} than the job's",
        "it stands in what was given with the job",
        "the kernel log with dates (dmesg -T, journalctl -k -o short-iso) and the list of the job's nodes",
    )


def _as_early(root: Finding, rival: Finding) -> Alternative:
    return Alternative(
        rival.error_type,
        f"{_place(rival)} says so as early",
        f"{_place(root)} may be earlier; the clocks do not tell",
        f"the log around {_place(rival)} and {_place(root)} with finer time stamps",
    )


def _beneath_waiting(
    root: Finding, absent: Sequence[int], inventory: Inventory, ranks_known: int
) -> tuple[Alternative, ...]:
    stacks = "a py-spy dump of {0} at the next hang, or the flight recorder (TORCH_NCCL_TRACE_BUFFER_SIZE=2000)"
    if not absent and ranks_known > 1 and len(root.ranks) >= ranks_known:
        return (
            Alternative(
                "NetworkError",
                "every rank was alive and waited",
                "no line about a link or a device was read",
                "link state and error counters of the hosts; the kernel logs" + _since(root.captures, root.first),
            ),
            Alternative(
                "CollectiveMismatch",
                "ranks that call different collectives all wait",
                "no rank's report names another call",
                stacks.format("two ranks"),
            ),
        )
    who = describe_ranks(absent) if absent else "a rank that nothing read names"
    hosts = list(dict.fromkeys(host for rank in absent if (host := inventory.host_of_rank(rank))))
    where = f"the kernel log of {shown_names(hosts, _MOST)}" if hosts else "the kernel logs of the hosts"
    return (
        Alternative(
            "NodeFailure",
            f"{who} did not report, as after a lost host, GPU or link",
            "no kernel or scheduler line that was read says so",
            where + _since(root.captures, root.first),
        ),
        Alternative(
            "CollectiveHang",
            f"{who} may have been alive and stuck elsewhere",
            "no stack and no last words of it tell where",
            stacks.format(describe_ranks(absent) if absent else "the ranks that did not report"),
        ),
    )


def _from_outside(root: Finding) -> bool:
    """Whether a process got SIGKILL, which another sends, and nothing says who."""
    return root.error_type == "ProcessKilled" or (
        root.error_type == "DataloaderKilled" and root.captures.get("signal") == "Killed"
    )


def _beneath_kill(root: Finding) -> tuple[Alternative, ...]:
    host = root.captures.get("host") or root.captures.get("node")
    where = f"of {host}" if isinstance(host, str) else "of its host"
    return (
        Alternative(
            "HostOutOfMemory",
            "the kernel sends SIGKILL when memory runs out",
            "no kernel line that was read says so",
            f"the kernel log {where}" + _since(root.captures, root.first),
        ),
        Alternative(
            "JobCancelled",
            "a scheduler or a person ends a job with SIGKILL as well",
            "no record of the scheduler that was read says so",
            "the scheduler's record of the job",
        ),
    )


def _beneath_requeue(root: Finding) -> tuple[Alternative, ...]:
    """Schedulers requeue for want of nodes, and at anybody's wish."""
    return (
        Alternative(
            "JobCancelled",
            "an operator, or a watch over jobs that hang or fail, requeues a job as well",
            "nobody's command to do so was read",
            "the scheduler's record of the job" + _since(root.captures, root.first),
        ),
    )


def _since(captures: Mapping[str, Value], reported: float | None) -> str:
    """From when on a log is worth reading: the begin of the wait."""
    if reported is None:
        return ""
    waited = captures.get("ran_ms") or captures.get("timeout_ms")
    begin = iso(reported - (waited / 1000 if isinstance(waited, int) else 0))
    return f" since {begin[11:19]}" if begin else ""


def _beneath_symptom(root: Finding, rule: DiagnosisRule | None) -> tuple[Alternative, ...]:
    edges = rule.explained_by if rule else ()
    named = [edge.what.partition("/")[2] for edge in edges if "/" in edge.what and not edge.what.endswith("/*")]
    families = [edge.what.removesuffix("/*") for edge in edges if edge.what.endswith("/*")]
    beneath = named[0] if named else None
    if beneath is None and not families:
        return ()
    return (
        Alternative(
            beneath or "unknown",
            f"{root.error_type} mostly follows from something else"
            + (f" ({shown_names(families, 3)})" if families else ""),
            "nothing that was read names it",
            (rule.verdict.checks[0] if rule and rule.verdict.checks and "{" not in rule.verdict.checks[0] else "")
            or "the kernel log and the scheduler's record of the time before",
        ),
    )


def _place(finding: Finding) -> str:
    evidence = finding.evidence[0] if finding.evidence else None
    return f"{evidence.source}:{evidence.line}" if evidence else finding.id
