"""What whoever acts on a verdict needs of it, from the JSON that the command line and the service give alike.

In: a report as `diagnose.report/v1`, which may come over a network and is believed only where it has the right types.
Out: a `Summary`, and the words made of it: one line for a job's comment, an annotation, a notice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from diagnose.dataclass import dataclass

Effect = Literal["stop", "restart", "elsewhere", "no opinion"]

_LONGEST: Final = 400  # characters of one value
_MOST: Final = 16  # nodes
_OWNERS: Final = {"infrastructure": "infrastructure", "user": "your code", "scheduler": "scheduler"}
_JOB: Final = {
    "restart": "restart",
    "restart_elsewhere": "restart elsewhere",
    "fix_and_resubmit": "fix and resubmit",
    "wait_and_retry": "wait and retry",
    "none": "do not restart",
}
_NODE_ACTIONS: Final = ("inspect", "drain", "reset_gpu", "reboot", "replace")
# What ended a job without anybody's fault: the scheduler does the rest, and nobody is to be woken.
ENDED_BY_SOMEBODY: Final = frozenset({"JobCancelled", "Preempted", "TimeLimitExceeded"})


@dataclass(frozen=True, slots=True)
class NodeAdvice:
    """What to do with one node."""

    host: str
    action: str
    why: str = ""
    gpu: str | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """A verdict in short. Fields are the contract's; `cause` is the root cause's sentence, `job` the action."""

    status: str
    error_type: str | None = None
    attribution: str | None = None
    sureness: str | None = None
    cause: str = ""
    job: str = "unknown"
    hint: str = ""
    policy: str | None = None
    from_checkpoint: str | None = None
    hosts: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    nodes: tuple[NodeAdvice, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether failure is proven."""
        return self.status == "failed"

    @property
    def effect(self) -> Effect:
        """What a launcher that can only restart or stop should do.

        To stop is said only where the cause is likely at least: a job that is stopped wrongly loses what it would do.
        """
        if not self.failed or self.error_type is None:
            return "no opinion"
        if self.job in ("fix_and_resubmit", "none"):
            return "stop" if self.sureness in ("confirmed", "likely") else "no opinion"
        if self.job == "restart_elsewhere":
            return "elsewhere"
        return "restart" if self.job in ("restart", "wait_and_retry") else "no opinion"

    @property
    def excluded_hosts(self) -> tuple[str, ...]:
        """Hosts that the next attempt should not run on."""
        if self.effect != "elsewhere":
            return ()
        return tuple(dict.fromkeys((*(node.host for node in self.nodes), *self.hosts)))

    def headline(self) -> str:
        """Status, whose fault, what and where, as the first line of the report has them."""
        if self.status == "no_failure":
            return "NO FAILURE"
        if not self.failed:
            return "INCONCLUSIVE"
        if self.error_type is None:
            return "FAILED cause not found"
        owner = _OWNERS.get(self.attribution or "", "not attributed")
        if self.error_type == "JobCancelled" and self.attribution == "user":
            owner = "the user"
        where = ", ".join(self.units[:3])
        return f"FAILED {owner} {self.error_type}{f' {where}' if where else ''}"

    def line(self, most: int = 500) -> str:
        """All of it on one line of at most `most` bytes: the headline, the cause, what to do."""
        parts = [self.headline() + (f": {self.cause}" if self.cause and self.failed else "")]
        if self.job in _JOB and self.status != "no_failure":
            again = f" from {self.from_checkpoint}" if self.from_checkpoint and "restart" in self.job else ""
            without = f" without {', '.join(self.excluded_hosts[:4])}" if self.excluded_hosts else ""
            parts.append(f"job: {_JOB[self.job]}{again}{without}")
        parts.extend(f"{node.host}: {node.action.replace('_', ' ')}" for node in self.nodes[:4])
        if self.failed and self.sureness:
            parts.append(self.sureness)
        return cut("; ".join(parts), most)


def summary_of(report: object) -> Summary:
    """The summary of a report as JSON; what is missing or of a wrong type is left out."""
    given = _mapping(report)
    recovery, cause = _mapping(given.get("recovery")), _mapping(given.get("root_cause"))
    culprits = [_mapping(one) for one in _list(given.get("culprits"))][:_MOST]
    nodes = [_mapping(one) for one in _list(recovery.get("nodes"))][:_MOST]
    status = _text(given.get("status"))
    return Summary(
        status=status if status in ("failed", "no_failure") else "inconclusive",
        error_type=_text(given.get("error_type")) or None,
        attribution=_text(given.get("attribution")) or None,
        sureness=_text(given.get("sureness")) or None,
        cause=_text(cause.get("summary")),
        job=_text(recovery.get("job")) or "unknown",
        hint=_text(recovery.get("hint")),
        policy=_text(recovery.get("policy")) or None,
        from_checkpoint=_text(recovery.get("from_checkpoint")) or None,
        hosts=tuple(name for one in culprits if one.get("kind") == "host" and (name := _text(one.get("id")))),
        units=tuple(_unit(one) for one in culprits if _text(one.get("id"))),
        nodes=tuple(
            NodeAdvice(host, action, _text(one.get("why")), _text(one.get("gpu")) or None)
            for one in nodes
            if (host := _text(one.get("host"))) and (action := _text(one.get("action"))) in _NODE_ACTIONS
        ),
    )


def cut(text: str, most: int) -> str:
    """A text of printable characters on one line, of at most `most` bytes."""
    plain = "".join(char if char.isprintable() else " " for char in text)
    plain = " ".join(plain.encode("utf-8", "replace").decode("utf-8").split())
    return plain if len(plain.encode()) <= most else cut_bytes(plain, most - 3) + "..."


def cut_bytes(text: str, most: int) -> str:
    """The beginning of a text that is at most `most` bytes long in UTF-8, and no half character."""
    return text.encode("utf-8", "replace")[: max(0, most)].decode("utf-8", "ignore")


def _unit(culprit: Mapping[str, object]) -> str:
    kind, name = _text(culprit.get("kind")), _text(culprit.get("id"))
    return name if kind in ("host", "file", "config", "service") else f"{kind} {name}"


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def _text(value: object) -> str:
    return cut(value[: 4 * _LONGEST], _LONGEST) if isinstance(value, str) else ""
