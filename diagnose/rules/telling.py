"""How a finding was told: by whom, in what surroundings, and whether its times mean anything beside the job's.

In: the groups of a finding, the progress of its attempt, the inventory. Out: `Telling`, by which `hearsay` judges what
is believed.
"""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.lines.inventory import Inventory
from diagnose.lines.kernel import is_kernel_line
from diagnose.lines.timeline import AttemptProgress
from diagnose.models import Telling
from diagnose.patterns import Lazy
from diagnose.rules.aggregate import Group
from diagnose.rules.precedence import DATED
from diagnose.rules.sighting import EvidenceDraft

_TEXT = 2000
# What only a kernel says, in whatever log it stands.
_KERNEL_WORDS = (
    "NVRM: ", "nvidia-nvswitch", "ut of memory: Kill", "invoked oom-killer", "oom-kill:constraint", "mlx5_core 0",
)  # fmt: skip
# The command that prints a kernel's log, or a heading over a piece of one.
_PRINTS_KERNEL_LOG = Lazy(
    r"\bdmesg(?: -|\s*\||\s*$)|\bjournalctl -|/var/log/|kern\.log|^\W{1,8}.{0,40}[Kk]ernel (?:log|messages)"
)


def telling(groups: Sequence[Group], progress: AttemptProgress | None, inventory: Inventory) -> Telling:
    """How a finding was told."""
    printed = all(group.sighting.line.source.kind in ("job", "launcher", "dump") for group in groups)
    drafts = [draft for group in groups for draft in group.evidence]
    texts = [draft.line.text for draft in drafts]
    kernel = all(group.sighting.line.source.kind == "kernel" for group in groups)
    own = progress is not None and any(
        inventory.for_pid(None, pid) is not None for group in groups for pid in group.pids
    )
    return Telling(
        printed=printed and not any(group.traceback for group in groups),
        kernel=any(word in text for text in texts for word in _KERNEL_WORDS),
        stamped=any(is_kernel_line(text) for text in texts),
        pasted=printed and any(_among_kernel_lines(draft) for draft in drafts),
        dated=not kernel or own or (progress is not None and any(_comparable(group, progress) for group in groups)),
        goes_on=_goes_on(groups, progress) if kernel and progress is not None and not own else None,
        foreign=printed and _foreign(groups, inventory),
        bystander=all(_of_bystander(group) for group in groups) and not own,
    )


def _foreign(groups: Sequence[Group], inventory: Inventory) -> bool:
    """Whether the lines are about hosts that the job's own logs do not name, though they name others."""
    about = {inventory.canonical_host(host) for group in groups if (host := group.sighting.host) is not None}
    ours = inventory.job_hosts
    return bool(about) and bool(ours) and about.isdisjoint(ours)


def _among_kernel_lines(draft: EvidenceDraft) -> bool:
    """Whether a line stands in a piece of a kernel's log: beside another such line, or under what prints them."""
    if not is_kernel_line(draft.line.text):
        return False
    beside = (*draft.before[-1:], *draft.after[:1])
    return any(is_kernel_line(text) for text in beside) or any(
        _PRINTS_KERNEL_LOG.search(text[:_TEXT]) for text in draft.before[-1:]
    )


def _comparable(group: Group, progress: AttemptProgress) -> bool:
    """Whether a kernel's line and the job bear times of one calendar."""
    if group.first is None or progress.started is None:
        return False
    return (group.first < DATED) == (progress.started < DATED)


def _goes_on(groups: Sequence[Group], progress: AttemptProgress) -> float | None:
    """For how long the kernel logs go on after what they tell."""
    spans: list[float] = []
    for group in groups:
        time, uptime = progress.kernel_ends.get(group.sighting.line.source.name, (None, None))
        if uptime is not None and group.uptime is not None:
            spans.append(uptime - group.uptime)
        elif time is not None and group.last is not None:
            spans.append(time - group.last)
        else:
            return None
    return min(spans, default=None)


def _of_bystander(group: Group) -> bool:
    """Whether the kernel killed a program that need not be the job's; who only asked for memory is no victim."""
    rule = group.sighting.rule
    return rule is not None and "bystander" in rule.tags and "pid" in group.captures
