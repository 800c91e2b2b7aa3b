"""Takes lines out of what a collector wrapped them in: docker and CRI, journald, JSON loggers, exports of log stores.

In: the text of a kept line. Out: the program's own lines, each with a `Head` that holds what the wrapper says; None
where there is no wrapper. Parts of one long line are held back until the last of them has come, within bounds.
"""

from __future__ import annotations

from collections.abc import Iterable

from diagnose.lines.ansi import clean
from diagnose.lines.heads import Head, level_of, level_of_number, pid_of
from diagnose.lines.stamps import ISO, Clock, from_number
from diagnose.patterns import Lazy

# One line of a wrapper as its text and what is known of it.
Part = tuple[str, Head]
Fields = dict[str, object]

_CRI = Lazy(rf"{ISO} (stdout|stderr) ([FP])(?: |$)")
_ISO = Lazy(ISO)
_DOCKER_KEYS = frozenset(("log", "stream", "time", "attrs"))
# Docker cuts lines at 16 KiB; a shorter record without a line feed is the last of a file, or the file is another's.
_DOCKER_CHUNK = 16_000
_PART_GAP = 256
_MAX_LINES = 2_000
_MAX_PAIRS = 24
_MAX_VALUE = 2_000
_LAUNCHERS = ("slurmstepd", "slurmd", "slurmctld", "srun")

_MESSAGE = ("message", "msg", "event", "log", "line", "textPayload", "@message")
_TIME = ("@timestamp", "timestamp", "time", "ts", "asctime", "datetime", "eventTime", "receiveTimestamp", "_time", "t")
_LEVEL = ("level", "severity", "levelname", "log_level", "log.level", "lvl", "loglevel")
_RANK = ("rank", "global_rank", "process_index", "RANK")
_LOCAL_RANK = ("local_rank", "LOCAL_RANK")
_HOST = ("hostname", "host", "node", "node_name", "nodename", "host.name", "_HOSTNAME")
_POD = ("pod", "pod_name", "kubernetes.pod_name", "container_name")
_PID = ("pid", "process", "process_id", "process.pid", "process.id")
_TRACE = (
    "exc_info", "exception", "stack_trace", "stacktrace", "traceback", "exc_text", "stack", "stack_info",
    "error.stack_trace", "exception.stacktrace", "error.stack",
)  # fmt: skip
_DATA = frozenset(("logger", "name", "caller", "filename", "file", "lineno", "func", "funcName", "module", "pathname"))
_READ = frozenset((*_MESSAGE, *_TIME, *_LEVEL, *_RANK, *_LOCAL_RANK, *_HOST, *_POD, *_PID, *_TRACE, *_DATA, "stream"))


def split(text: str) -> list[str]:
    """The lines of a message; of a progress bar's states only the last."""
    lines: list[str] = []
    for line in text.split("\n", _MAX_LINES):
        if "\r" in line:
            pieces = [piece for piece in line.split("\r") if piece.strip()]
            lines.extend(piece for piece in pieces[:-1] if "%|" not in piece and "it/s" not in piece)
            lines.extend(pieces[-1:])
        else:
            lines.append(line)
    if len(lines) > 1 and not lines[-1]:
        lines.pop()
    return lines


class Unwrapper:
    """Reads the wrappers of one source; remembers parts of lines and how its docker records end."""

    def __init__(self, clock: Clock, line_bytes: int) -> None:
        self._clock = clock
        self._limit = line_bytes
        self._held: dict[str, tuple[str, Head, int]] = {}
        self.ends_lines = False

    def cri(self, text: str, head: Head, number: int) -> list[Part] | None:
        """`<stamp> stderr F text` of containerd and CRI-O; `P` is a part whose rest follows."""
        found = _CRI.match(text)
        if found is None:
            return None
        _dated(head, self._clock.iso(found.group(1), found.group(2), found.group(3), found.group(4)))
        flow = found.group(5)
        head.flow = flow
        return self._joined(flow, text[found.end() :], head, number, whole=found.group(6) == "F")

    def json(self, text: str, head: Head, number: int) -> list[Part] | None:
        """A JSON object on a line of its own, when it is a collector's or a logger's; None for data."""
        import json

        try:
            fields = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(fields, dict):
            return None
        if "log" in fields and isinstance(fields["log"], str) and fields.keys() <= _DOCKER_KEYS:
            return self._docker(fields, head, number)
        if "MESSAGE" in fields and ("__REALTIME_TIMESTAMP" in fields or "_HOSTNAME" in fields):
            return self._journal(fields, head)
        return self._stored(fields, head) or self._logger(fields, head)

    def flush(self) -> list[Part]:
        """What was held back for parts that never came."""
        held = [(clean(text), head) for text, head, _ in self._held.values()]
        self._held.clear()
        return held

    def _docker(self, fields: Fields, head: Head, number: int) -> list[Part]:
        log = str(fields["log"])
        flow = fields.get("stream")
        head.flow = flow if isinstance(flow, str) else ""
        self._time(fields.get("time"), head)
        ended = log.endswith("\n")
        if ended:
            self.ends_lines = True
        whole = ended or (not self.ends_lines and len(log) < _DOCKER_CHUNK)
        return self._joined(head.flow, log, head, number, whole=whole)

    def _joined(self, flow: str, text: str, head: Head, number: int, *, whole: bool) -> list[Part]:
        """`text` behind the parts of its line that came before; nothing while more is to come."""
        held = self._held.pop(flow, None)
        out: list[Part] = []
        if held is not None:
            before, first, last = held
            # A filter may have removed the rest of that line: then it ends where it is.
            if abs(number - last) <= _PART_GAP and len(before) + len(text) <= self._limit:
                text, head = before + text, first
            else:
                out.append((clean(before), first))
        if not whole and len(text) < self._limit:
            self._held[flow] = (text, head, number)
            return out
        return out + parts(text, head)

    def _journal(self, fields: Fields, head: Head) -> list[Part]:
        """`journalctl -o json`: MESSAGE is text, or its bytes as numbers when it is not UTF-8 or too long."""
        message = _text(fields["MESSAGE"])
        stamp = fields.get("_SOURCE_REALTIME_TIMESTAMP") or fields.get("__REALTIME_TIMESTAMP")
        self._time(stamp, head)
        host = fields.get("_HOSTNAME")
        if isinstance(host, str) and host:
            head.host = host
            head.at(host)
        pid = fields.get("_PID") or fields.get("SYSLOG_PID")
        if isinstance(pid, str) and pid.isascii() and pid.isdigit():
            head.pid = pid_of(pid)
        if fields.get("_TRANSPORT") == "kernel":
            uptime = fields.get("_SOURCE_MONOTONIC_TIMESTAMP")
            if isinstance(uptime, str) and uptime.isascii() and uptime.isdigit() and len(uptime) < 18:
                head.uptime = int(uptime) / 1e6
            # A program's own lines have the default priority, whatever they say.
            priority = fields.get("PRIORITY")
            if isinstance(priority, str) and priority in "01234567" and priority:
                head.level = level_of_number(int(priority))
            head.stage = 3
            return parts(message, head)
        name = fields.get("SYSLOG_IDENTIFIER") or fields.get("_COMM")
        if isinstance(name, str) and name:
            head.at(name if head.pid is None else f"{name}[{head.pid}]")
            if name in _LAUNCHERS and not message.startswith(name):
                message = f"{name}: {message}"
        return parts(message, head)

    def _stored(self, fields: Fields, head: Head) -> list[Part] | None:
        """Exports of log stores that carry the line in a field: Loki, Cloud Logging, Elasticsearch, Splunk, fluentd."""
        inner = fields.get("_source") or fields.get("result")
        if isinstance(inner, dict):
            raw = inner.get("_raw")
            if isinstance(raw, str):
                self._time(inner.get("_time"), head)
                _who(inner, head)
                return parts(raw, head)
            return self._logger(inner, head)
        labels = fields.get("labels") or fields.get("kubernetes")
        for key in ("line", "textPayload", "log"):
            raw = fields.get(key)
            if isinstance(raw, str) and (isinstance(labels, dict) or _first(fields, _TIME) is not None):
                if isinstance(labels, dict):
                    _who(labels, head)
                self._common(fields, head)
                return parts(raw, head)
        payload = fields.get("jsonPayload")
        if isinstance(payload, dict):
            self._common(fields, head)
            return self._logger({**payload, "timestamp": fields.get("timestamp")}, head)
        return None

    def _logger(self, fields: Fields, head: Head) -> list[Part] | None:
        """A JSON-lines logger: the message, its other scalars behind it, and a traceback as further lines."""
        message = _first(fields, _MESSAGE)
        if message is None and "level" in fields:
            message = fields.get("text")
        if not isinstance(message, str):
            return None
        nested = fields.get("log")
        if isinstance(nested, dict) and isinstance(nested.get("level"), str):
            head.level = level_of(str(nested["level"]))
        if _first(fields, _TIME) is None and _first(fields, _LEVEL) is None and head.level is None:
            return None
        self._common(fields, head)
        lines = split(message)
        lines[0] += _pairs(fields)
        out = [(clean(line), head.copy()) for line in lines]
        for line in _trace(fields):
            further = head.copy()
            # A traceback's lines have no level of their own.
            further.level = None
            further.stage = 3
            out.append((clean(line), further))
        return out[:_MAX_LINES]

    def _common(self, fields: Fields, head: Head) -> None:
        self._time(_first(fields, _TIME), head)
        level = _first(fields, _LEVEL)
        if isinstance(level, str):
            head.level = level_of(level) or head.level
        elif isinstance(level, int) and not isinstance(level, bool):
            # pino counts from 10 for trace, Python from 10 for debug.
            head.level = level_of_number(
                level - 10 if level > 10 and {"pid", "hostname", "v"} & fields.keys() else level
            )
        _who(fields, head)
        flow = fields.get("stream")
        if isinstance(flow, str) and flow in {"stdout", "stderr"}:
            head.flow = flow

    def _time(self, value: object, head: Head) -> None:
        if isinstance(value, str):
            found = _ISO.match(value)
            if found:
                _dated(head, self._clock.iso(found.group(1), found.group(2), found.group(3), found.group(4)))
                return
            try:
                value = float(value) if len(value) < 32 else None
            except ValueError:
                return
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e20:
            time = from_number(float(value))
            if time is not None:
                self._clock.last = time
            _dated(head, time)


def parts(text: str, head: Head) -> list[Part]:
    """The lines of one message, each with its own copy of what is known."""
    lines = split(text)
    if len(lines) == 1:
        return [(clean(lines[0]), head)]
    return [(clean(line), head.copy()) for line in lines]


def _dated(head: Head, time: float | None) -> None:
    if time is not None and not head.dated:
        head.time = time
        head.dated = True


def _text(message: object) -> str:
    if isinstance(message, list):
        numbers = [item for item in message if isinstance(item, int) and 0 <= item < 256]
        return bytes(numbers).decode("utf-8", "replace")
    return message if isinstance(message, str) else ""


def _first(fields: Fields, names: Iterable[str]) -> object:
    for name in names:
        value = fields.get(name)
        if value is not None:
            return value
    return None


def _number(fields: Fields, names: Iterable[str]) -> int | None:
    value = _first(fields, names)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 8:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10_000_000 else None


def _who(fields: Fields, head: Head) -> None:
    """Rank, host, pod and process of a wrapper's fields."""
    rank, local = _number(fields, _RANK), _number(fields, _LOCAL_RANK)
    if rank is not None:
        head.rank = head.writer_rank = rank
    if local is not None:
        head.local_rank = head.writer_local = local
    host, pod, pid = _first(fields, _HOST), _first(fields, _POD), _number(fields, _PID)
    if isinstance(host, dict):
        host = host.get("name") or host.get("hostname")
    if isinstance(host, str) and host:
        head.host = host[:253]
        head.at(head.host)
    if isinstance(pod, str) and pod:
        head.host = head.host or pod[:253]
        head.at(pod[:253])
    if pid is not None:
        head.pid = pid_of(str(pid))
        if rank is None and local is None:
            head.at(str(pid))


def _pairs(fields: Fields) -> str:
    """The scalars of a logger's record that are not its message, as ` key=value ...`."""
    out: list[str] = []
    for key, value in fields.items():
        if key in _READ or key == "text" or isinstance(value, (list, bool)) or value is None:
            continue
        inner = value.items() if isinstance(value, dict) else ((None, value),)
        for name, item in inner:
            if isinstance(item, (str, int, float)) and not isinstance(item, bool) and len(out) < _MAX_PAIRS:
                shown = str(item)[:_MAX_VALUE].replace("\n", " ").replace("\r", " ")
                out.append(f"{key}={shown}" if name is None else f"{key}.{name}={shown}")
    return " " + " ".join(out) if out else ""


def _trace(fields: Fields) -> list[str]:
    """The lines of a logged exception: a formatted traceback, or structlog's frames as one."""
    for name in _TRACE:
        value = fields.get(name)
        if isinstance(value, dict):
            value = value.get("stack_trace") or value.get("stacktrace") or value.get("traceback")
        if isinstance(value, list):
            value = (
                "\n".join(_frames(value))
                if any(isinstance(item, dict) for item in value)
                else "".join(item if item.endswith("\n") else item + "\n" for item in value if isinstance(item, str))
            )
        if isinstance(value, str) and ("\n" in value or "rror" in value or "xception" in value):
            return split(value)
    return []


def _frames(exceptions: list[object]) -> list[str]:
    out: list[str] = []
    for exception in reversed(exceptions):
        if not isinstance(exception, dict):
            continue
        frames = exception.get("frames")
        if out:
            out += ["", "The above exception was the direct cause of the following exception:", ""]
        out.append("Traceback (most recent call last):")
        for frame in frames if isinstance(frames, list) else []:
            if isinstance(frame, dict):
                out.append(
                    f'  File "{frame.get("filename", "")}", line {frame.get("lineno", 0)}, in {frame.get("name", "")}'
                )
        out.append(f"{exception.get('exc_type', 'Exception')}: {exception.get('exc_value', '')}")
    return out
