"""What patterns capture: typed, normalised, and filled into sentences.

In: named groups of a match and a rule's `captures`. Out: typed values, and templates with `{name}` filled in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from diagnose.lines.units import normalise_pci
from diagnose.models.report import Scalar
from diagnose.models.rule import CaptureType

Value = Scalar | tuple[Scalar, ...]

# Names with a meaning of their own: they default to what the line's prefix or source says.
RESERVED: Mapping[str, CaptureType] = {
    "rank": "rank",
    "host": "host",
    "gpu": "str",
    "xid": "int",
    "pid": "int",
    "step": "int",
    "pg": "str",
    "pg_rank": "int",
}
_PCI = re.compile(r"[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}")
_FIELD = re.compile(r"\{(\w+)\}")
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_LONGEST_VALUE = 400


def typed(name: str, text: str, kind: CaptureType | None) -> Scalar | None:
    """The captured text as a value of its type, or None where it is not one."""
    kind = kind or RESERVED.get(name, "str")
    text = text.strip()[:_LONGEST_VALUE]
    if not text:
        return None
    if kind in ("int", "rank"):
        return int(text) if re.fullmatch(r"-?\d{1,18}", text) else None
    if kind == "duration_ms":
        return _milliseconds(text)
    if kind == "bytes":
        return _bytes(text)
    if kind == "pci" or (name == "gpu" and _PCI.search(text)):
        return normalise_pci(text) or text.lower()
    return text


def _milliseconds(text: str) -> int | None:
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)\s*(ms|s|sec|seconds|m|min|minutes|h)?", text)
    if not found:
        return None
    scale = {"s": 1000, "sec": 1000, "seconds": 1000, "m": 60_000, "min": 60_000, "minutes": 60_000, "h": 3_600_000}
    return int(float(found[1]) * scale.get(found[2] or "", 1))


def _bytes(text: str) -> int | None:
    found = re.fullmatch(r"(\d{1,18}(?:\.\d{1,9})?)\s*([kKmMgGtT]?)(?:i?[bB])?", text)
    return int(float(found[1]) * _UNITS[found[2].lower()]) if found else None


def shown(value: Value, limit: int = 8) -> str:
    """A value as people read it: runs of numbers as ranges, long lists cut with a count."""
    if not isinstance(value, tuple):
        return str(value)
    if value and all(isinstance(item, int) and not isinstance(item, bool) for item in value):
        parts = ranges(int(item) for item in value)
    else:
        parts = [str(item) for item in value]
    more = len(parts) - limit
    return ", ".join(parts[:limit]) + (f" and {more} more" if more > 0 else "")


def ranges(numbers: Iterable[int]) -> list[str]:
    """Sorted numbers as `0-3`, `7`, `9-12`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return [str(low) if low == high else f"{low}-{high}" for low, high in runs]


def fill(template: str, captures: Mapping[str, Value]) -> str:
    """The template with every known `{name}` filled in; unknown ones become `?`."""
    return _FIELD.sub(lambda found: shown(captures[found[1]]) if found[1] in captures else "?", template)


def fill_whole(template: str, captures: Mapping[str, Value]) -> str | None:
    """The filled template, or None where a name is unknown: half a name must not be shown as a culprit."""
    if any(name not in captures for name in _FIELD.findall(template)):
        return None
    return fill(template, captures)
