"""The report as the JSON contract `diagnose.report/v1` has it.

In: a `Report`. Out: plain dicts and lists with exactly the contract's fields; the same for the command line and every
other caller.
"""

from __future__ import annotations

import math

from diagnose.dataclass import fields, is_dataclass
from diagnose.lines.stamps import is_dated
from diagnose.models import Report

Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None

SCHEMA = "diagnose.report/v1"
_NOT_IN_CONTRACT = frozenset({"asked", "explanation", "message", "pod", "presumed"})
_RENAMED = {"for_": "for"}
# Left out where unknown: the contract has them optional but not null, or they would only be noise.
_OPTIONAL = frozenset({"agent_state", "changes"})
# Where no input states the year there is no time to give: the screen shows the clock, which was read.
_TIMES = frozenset({"time", "started", "ended", "last_step_time"})


def to_json(report: Report) -> dict[str, Json]:
    """The report as JSON-ready values, in the contract's order."""
    plain = _plain(report)
    if not isinstance(plain, dict):
        raise TypeError("a report is a dataclass")
    return {"schema": SCHEMA, **plain}


def _plain(value: object) -> Json:
    if is_dataclass(value) and not isinstance(value, type):
        made: dict[str, Json] = {}
        for field in fields(value):
            if field.name in _NOT_IN_CONTRACT:
                continue
            item = getattr(value, field.name)
            if not item and field.name in _OPTIONAL:
                continue
            if field.name in _TIMES and isinstance(item, str) and not is_dated(item):
                item = None
            made[_RENAMED.get(field.name, field.name)] = _plain(item)
        return made
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(item) for item in value), key=str)
    if isinstance(value, str):
        # Lone surrogates cannot be written as UTF-8; they are shown as escapes.
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int)):
        return value
    return str(value)
