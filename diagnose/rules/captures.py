"""What patterns capture: typed, normalised, and shown.

In: named groups of a match and a rule's `captures`. Out: typed values, and how people read them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from diagnose.lines.units import normalise_pci
from diagnose.models.report import Scalar
from diagnose.models.rule import CaptureType
from diagnose.patterns import Lazy

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
# Set where a listing says it without a time: its place among the lines of the log tells no order.
UNDATED = "undated"
# Where a traceback says that it was raised: the user's own frame, and the installed package's below it.
CODE_PLACE, LIBRARY_PLACE = "code_place", "library_place"
_PCI = Lazy(r"[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}")
_NAMES = r"\w+(?:\|\w+){0,7}"
FIELD = Lazy(r"\{(" + _NAMES + r")\}")
# A word that agrees with how many a value says or holds.
AGREEMENT = Lazy(r"\{(" + _NAMES + r")#([^{}|\[\]]*)\|([^{}|\[\]]*)\}")
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SCALES: Mapping[CaptureType, Sequence[tuple[str, int]]] = {
    "bytes": (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("bytes", 1)),
    "duration_ms": (("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1)),
}
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
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)\s*(ms|s|secs?|seconds?|m|mins?|minutes?|h|hours?)?", text)
    if not found:
        return None
    unit = found[2] or "ms"
    scale = 1 if unit == "ms" else {"s": 1000, "m": 60_000, "h": 3_600_000}[unit[0]]
    return int(float(found[1]) * scale)


def _bytes(text: str) -> int | None:
    found = re.fullmatch(r"(\d{1,18}(?:\.\d{1,9})?)\s*([kKmMgGtT]?)(?:i?[bB])?", text)
    return int(float(found[1]) * _UNITS[found[2].lower()]) if found else None


def shown(value: Value, limit: int = 8, kind: CaptureType | None = None) -> str:
    """A value as people read it: runs of numbers as ranges, long lists cut with a count, sizes and times in units."""
    if not isinstance(value, tuple):
        if isinstance(value, int) and kind is not None and kind in _SCALES:
            return _in_units(value, _SCALES[kind])
        return str(value)
    if value and all(isinstance(item, int) and not isinstance(item, bool) for item in value):
        return shown_numbers([int(item) for item in value], limit)
    return shown_names([str(item) for item in value], limit)


def shown_numbers(numbers: Iterable[int], limit: int) -> str:
    """Numbers as at most `limit` ranges, and how many more there are: `0-3, 7 and 12 more`."""
    runs = _runs(numbers)
    more = sum(high - low + 1 for low, high in runs[limit:])
    return ", ".join(map(_range, runs[:limit])) + (f" and {more} more" if more else "")


def shown_names(names: Sequence[str], limit: int) -> str:
    """The first `limit` names, and how many more there are."""
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more} more" if more > 0 else "")


def _in_units(value: int, scale: Sequence[tuple[str, int]]) -> str:
    """A number in the largest unit that it reaches, with one digit behind the point where it is not whole."""
    unit, size = next(((unit, size) for unit, size in scale if abs(value) >= size), scale[-1])
    text = f"{value / size:.1f}"
    return f"{text.removesuffix('.0')} {unit}"


def _range(run: Sequence[int]) -> str:
    low, high = run
    return str(low) if low == high else f"{low}-{high}"


def _runs(numbers: Iterable[int]) -> list[list[int]]:
    """First and last of each run of the sorted numbers."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return runs


def field_value(names: str, captures: Mapping[str, Value]) -> Value | None:
    """The value of a field: of `failed|host` the first name that is known; what is empty is not known."""
    return next((captures[name] for name in names.split("|") if captures.get(name) not in (None, "", ())), None)


def fill_whole(template: str, captures: Mapping[str, Value]) -> str | None:
    """The filled template, or None where a name is unknown: half a name must not be shown as a culprit."""
    values = [field_value(names, captures) for names in FIELD.findall(template)]
    known = iter([value for value in values if value is not None])
    if None in values:
        return None
    return FIELD.sub(lambda _: shown(next(known)), template)
