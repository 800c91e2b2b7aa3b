"""torchelastic's error files: one JSON object with a message and the traceback of the rank that wrote it.

In: a line that holds the object, or the text of a whole `error.json`. Out: a `json_error` record: `exceptions` from
the traceback inside, `fields` with `message`, `timestamp`, `exitcode` where given. `Line.time` is the file's own stamp.
"""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.dataclass import replace
from diagnose.lines.traceback_lines import read_exception_line
from diagnose.lines.tracebacks import parse_traceback
from diagnose.models import Line, RaisedException, Record

MAX_CHARS = 4 * 1024 * 1024
OPENERS = ('"py_callstack"', '{"message": {"message"', '"extraInfo"')


def read_json_error(lines: Sequence[Line]) -> Record | None:
    """The record of an error file's lines, or None where they are none."""
    text = "\n".join(line.text for line in lines)
    at = text.find("{")
    if at < 0 or len(text) > MAX_CHARS or '"message"' not in text:
        return None
    import json

    try:
        value, _ = json.JSONDecoder().raw_decode(text, at)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    inner = value.get("message")
    if isinstance(inner, str) and ("errorCode" in value or "py_callstack" in text):
        inner = {"message": inner, "extraInfo": value.get("extraInfo", value)}
    if not isinstance(inner, dict) or not isinstance(inner.get("message"), str):
        return None
    extra = inner.get("extraInfo")
    extra = extra if isinstance(extra, dict) else {}
    message = str(inner["message"])
    stack = extra.get("py_callstack")
    exceptions = parse_traceback(stack) if isinstance(stack, str) else ()
    if not exceptions and (found := read_exception_line(message, sure=False)):
        exceptions = (RaisedException(found[0], found[1][:4096], (), 0),)
    fields = {"message": message[:4096]}
    stamp = extra.get("timestamp")
    if isinstance(stamp, (str, int, float)):
        fields["timestamp"] = str(stamp)[:64]
    code = inner.get("errorCode", value.get("errorCode", extra.get("exitcode")))
    if isinstance(code, (int, str)) and not isinstance(code, bool):
        fields["exitcode"] = str(code)[:32]
    when = _seconds(fields.get("timestamp"))
    index = next((number for number, line in enumerate(lines) if '"message"' in line.text), 0)
    return Record(
        kind="json_error",
        lines=tuple(replace(line, time=when) if when is not None and line.time is None else line for line in lines),
        text=text,
        exceptions=tuple(replace(item, line_index=index) for item in exceptions),
        fields=fields,
        quoted=lines[0].quoted,
    )


def _seconds(stamp: str | None) -> float | None:
    if stamp is None or not stamp.replace(".", "", 1).isdigit() or len(stamp) > 20:
        return None
    seconds = float(stamp)
    return seconds if 0 < seconds < 1e11 else None
