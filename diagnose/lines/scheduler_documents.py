"""Scheduler records from JSON and YAML: sacct and scontrol `--json`, kubectl `-o json | yaml`, lists of them.

In: the lines of a whole document, held back until its end (at most `limits.structured_bytes`). Out: canonical records
(see `scheduler`) at the lines where the states stand. What is not understood is given back as plain lines. YAML is
composed into nodes by libyaml and never constructed; documents with many aliases or deep nesting are refused.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from diagnose.lines.json_errors import read_json_error
from diagnose.lines.scheduler import canonical, join, slurm_job, slurm_node
from diagnose.models import Line, LogSource, Record
from diagnose.patterns import Lazy
from diagnose.settings import Limits

if TYPE_CHECKING:
    import json

_MAX_ALIASES = 16
_MAX_DEPTH = 200
_MAX_RECORDS = 50_000
_YAML_START = Lazy(r"(?:---\s{0,8}\Z|---\s|%YAML|apiVersion:|kind:|items:|- apiVersion:|metadata:|jobs:|nodes:)")
_ALIAS = Lazy(r"(?:^|[\s:,\[{-])[&*][A-Za-z0-9_]")
_STACKED = Lazy(r"\s{0,400}(?:[-?] {1,8}){12}")
_LISTS = Lazy(r'"(?:items|jobs|nodes)"\s{0,64}:\s{0,64}\[')
# Composed YAML takes eighty times its size in memory, and seconds for each MB: so much less of it than of JSON.
_YAML_COSTS = 8
_NULLS = ("", "~", "null", "Null", "NULL")

Json = dict[str, Any]


class DocumentReader:
    """Holds back a source that is one JSON or YAML document, until its end."""

    def __init__(self, source: LogSource, limits: Limits) -> None:
        self.over = not (source.kind == "scheduler" or source.name.endswith(".json"))
        self._scheduler = source.kind == "scheduler"
        self._limit = limits.structured_bytes
        self._form = ""
        self._held: list[Line] = []
        self._size = 0

    def take(self, line: Line) -> list[Line]:
        """Hold the line back, or return the lines to be treated as text."""
        if not self._form:
            text = line.text.lstrip("\ufeff \t")
            if not text:
                self._held.append(line)
                return [] if len(self._held) < 64 else self._release()
            if text[0] in "{[" and (self._scheduler or text.rstrip() == "{"):
                self._form = "json"
            elif self._scheduler and _YAML_START.match(text):
                self._form = "yaml"
            else:
                return [*self._release(), line]
        self._held.append(line)
        self._size += len(line.text) + 1
        limit = self._limit // _YAML_COSTS if self._form == "yaml" else self._limit
        return self._release() if self._size > limit else []

    def finish(self) -> tuple[list[Line], list[Record]]:
        """Lines given back because they are no document that we know, or the records of the document."""
        held = self._release()
        if not held:
            return [], []
        text = "\n".join(line.text for line in held)
        error = read_json_error(held) if self._form == "json" else None
        if error is not None:
            return [], [error]
        if not self._scheduler:
            return held, []
        try:
            items = list(_json_items(text) if self._form == "json" else _yaml_items(text))
        except (ValueError, RecursionError):
            return held, []
        records = [record for value, first, last in items for record in _Item(value, held, first, last).records()]
        return ([], records[:_MAX_RECORDS]) if records else (held, [])

    def _release(self) -> list[Line]:
        held, self._held = self._held, []
        self.over = True
        return held


# Where the objects of a document begin and end, in lines


def _json_items(text: str) -> Iterator[tuple[Json, int, int]]:
    import json

    starts = [0]
    starts += [match.end() for match in re.finditer("\n", text)]

    def line_of(offset: int) -> int:
        return bisect_right(starts, offset) - 1

    decoder = json.JSONDecoder()
    at = 0
    while at < len(text):
        at = _skip(text, at, " \t\r\n,\ufeff")
        if at >= len(text):
            break
        value, end = decoder.raw_decode(text, at)
        inner = _LISTS.search(text, at, end) if isinstance(value, dict) and _list_of(value) is not None else None
        opening = inner.end() if inner else at + 1 if isinstance(value, list) else None
        if opening is None:
            if isinstance(value, dict):
                yield value, line_of(at), line_of(end)
        else:
            yield from _elements(decoder, text, opening, line_of)
        at = end


def _elements(decoder: json.JSONDecoder, text: str, at: int, line_of: Any) -> Iterator[tuple[Json, int, int]]:
    while True:
        at = _skip(text, at, " \t\r\n,")
        if at >= len(text) or text[at] == "]":
            return
        value, end = decoder.raw_decode(text, at)
        if isinstance(value, dict):
            yield value, line_of(at), line_of(end)
        at = end


def _skip(text: str, at: int, what: str) -> int:
    while at < len(text) and text[at] in what:
        at += 1
    return at


def _list_of(value: Json) -> list[Any] | None:
    for key in ("items", "jobs", "nodes"):
        if isinstance(value.get(key), list):
            found: list[Any] = value[key]
            return found
    return None


def _yaml_items(text: str) -> Iterator[tuple[Json, int, int]]:
    _refuse_bombs(text)
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        for node in yaml.compose_all(text, Loader=loader):
            value = _value(node, 0)
            nodes = [node]
            if isinstance(value, dict) and _list_of(value) is not None:
                nodes = next(
                    child.value
                    for key, child in node.value
                    if key.value in ("items", "jobs", "nodes") and isinstance(child.value, list)
                )
            elif isinstance(value, list):
                nodes = node.value
            for item in nodes:
                found = _value(item, 0)
                if isinstance(found, dict):
                    yield found, item.start_mark.line, item.end_mark.line
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _refuse_bombs(text: str) -> None:
    """Raise ValueError where composing the text could cost more than it is worth."""
    depth = aliases = 0
    for line in text.split("\n"):
        if "&" in line or "*" in line:
            aliases += len(_ALIAS.findall(line[:65536]))
        if "[" in line or "{" in line:
            for character in line:
                depth += (character in "[{") - (character in "]}")
                if depth > _MAX_DEPTH:
                    raise ValueError("nested too deeply")
            depth = max(depth, 0)
        elif "]" in line or "}" in line:
            depth = max(depth - line.count("]") - line.count("}"), 0)
        if aliases > _MAX_ALIASES or _STACKED.match(line) or len(line) - len(line.lstrip()) > 2 * _MAX_DEPTH:
            raise ValueError("too many aliases or nested too deeply")


def _value(node: Any, depth: int) -> Any:
    """A composed node as dictionaries, lists and strings: no tag is ever resolved to an object."""
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(node.value, str):
        return None if node.style is None and node.value in _NULLS else node.value
    if node.id == "mapping":
        return {str(key.value): _value(child, depth + 1) for key, child in node.value if isinstance(key.value, str)}
    return [_value(child, depth + 1) for child in node.value]


# What the objects say


def _dict(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    """A scalar as text; Slurm's `{"set": true, "number": 5}` as its number."""
    if isinstance(value, dict):
        if value.get("set") is False or value.get("infinite") is True:
            return None
        value = value.get("number")
    if value is None or isinstance(value, (dict, list)):
        return None
    if isinstance(value, bool):
        return "1" if value else "0"
    return str(value)


def _number(value: Any) -> int:
    text = _text(value)
    return int(text) if text is not None and text.lstrip("-").isdigit() and len(text) < 12 else 0


def _states(value: Any) -> str | None:
    if isinstance(value, dict):
        value = value.get("current")
    if isinstance(value, list):
        return join(str(item) for item in value) or None
    return _text(value)


def _exit(value: Any) -> str | None:
    if not isinstance(value, dict):
        return None
    sign = _dict(value.get("signal"))
    number = _number(sign.get("id", sign.get("signal_id", value.get("signal"))))
    return f"{_number(value.get('return_code'))}:{number}"


class _Item:
    """One object of a document, and the lines it stands on."""

    def __init__(self, value: Json, lines: list[Line], first: int, last: int) -> None:
        self._value = value
        self._lines = lines
        self._first = min(first, len(lines) - 1)
        self._last = min(last, len(lines) - 1)

    def records(self) -> Iterator[Record]:
        """The canonical records of this object."""
        value = self._value
        kind = value.get("kind")
        if isinstance(kind, str) and (isinstance(value.get("metadata"), dict) or "involvedObject" in value):
            yield from self._kubernetes(kind)
        elif "involvedObject" in value:
            yield from self._kubernetes("Event")
        elif "job_id" in value:
            yield from self._slurm_job()
        elif "state" in value and ("hostname" in value or "name" in value) and "reason" in value:
            yield from self._slurm_node()

    def _where(self, key: str, value: str | None = None, start: int | None = None) -> Line:
        """The line that states `key` (with `value`, on it or on the next lines), or the object's first line."""
        fallback: Line | None = None
        for number in range(self._first if start is None else start, self._last + 1):
            text = self._lines[number].text
            at = text.find(key)
            if at < 0 or text[at + len(key) : at + len(key) + 3].lstrip('"').lstrip()[:1] != ":":
                continue
            if (
                value is None
                or value in text
                or any(value in line.text for line in self._lines[number + 1 : number + 4])
            ):
                return self._lines[number]
            fallback = fallback or self._lines[number]
        return fallback or self._lines[self._first]

    # Slurm

    def _slurm_job(self) -> Iterator[Record]:
        value = self._value
        time = _dict(value.get("time"))
        state = _states(value.get("state", value.get("job_state")))
        fields = {
            "jobid": _text(value.get("job_id")),
            "jobname": _text(value.get("name")),
            "user": _text(value.get("user", value.get("user_name"))),
            "state": state,
            "exitcode": _exit(value.get("exit_code")),
            "derivedexitcode": _exit(value.get("derived_exit_code")),
            "reason": _text(_dict(value.get("state")).get("reason")) or _text(value.get("state_reason")),
            "nodelist": _text(value.get("nodes")),
            "start": _text(time.get("start", value.get("start_time"))),
            "end": _text(time.get("end", value.get("end_time"))),
            "preempttime": _positive(value.get("preempt_time")),
            "elapsed": _text(time.get("elapsed")),
            "timelimit": _text(time.get("limit", value.get("time_limit"))),
            "restarts": _text(value.get("restart_cnt")),
            "requeue": _text(value.get("requeue")),
            "killrequestuser": _text(value.get("kill_request_user")),
        }
        key = "job_state" if "job_state" in value else "state"
        record = slurm_job(_known(fields), self._where(key, (state or "").partition("+")[0]))
        if record:
            yield record
        for step in _list(value.get("steps")):
            yield from self._slurm_step(_dict(step), fields["jobid"] or "")

    def _slurm_step(self, step: Json, job: str) -> Iterator[Record]:
        ident = _dict(step.get("step"))
        number = _text(ident.get("id")) or _text(_dict(ident.get("id")).get("step_id")) or "?"
        time = _dict(step.get("time"))
        state = _states(step.get("state"))
        fields = {
            "jobid": number if number.startswith(f"{job}.") else f"{job}.{number}",
            "jobname": _text(ident.get("name")),
            "state": state,
            "exitcode": _exit(step.get("exit_code")),
            "nodelist": _text(_dict(step.get("nodes")).get("range")),
            "start": _text(time.get("start")),
            "end": _text(time.get("end")),
            "killrequestuser": _text(step.get("kill_request_user")),
        }
        here = next((at for at in range(self._first, self._last + 1) if number in self._lines[at].text), self._first)
        record = slurm_job(_known(fields), self._where("state", state, max(here - 40, self._first)))
        if record:
            yield record

    def _slurm_node(self) -> Iterator[Record]:
        value = self._value
        state = _states(value.get("state"))
        fields = {
            "name": _text(value.get("name", value.get("hostname"))),
            "state": state,
            "reason": _text(value.get("reason")),
            "since": _text(value.get("reason_changed_at")),
        }
        record = slurm_node(_known(fields), self._where("state", (state or "").partition("+")[0]))
        if record:
            yield record

    # Kubernetes

    def _kubernetes(self, kind: str) -> Iterator[Record]:
        meta, status = _dict(self._value.get("metadata")), _dict(self._value.get("status"))
        path = "/".join(filter(None, (_text(meta.get("namespace")), _text(meta.get("name")))))
        if kind == "Pod":
            yield from self._pod(path, status)
        elif kind == "Event":
            yield self._event()
        elif kind == "Node":
            yield from self._node(_text(meta.get("name")) or "", status)
        else:
            yield from self._custom(kind, path, status)

    def _pod(self, path: str, status: Json) -> Iterator[Record]:
        phase, reason = _text(status.get("phase")), _text(status.get("reason"))
        node = _text(_dict(self._value.get("spec")).get("nodeName"))
        if phase:
            values = {
                "pod": path,
                "node": node,
                "phase": phase,
                "reason": reason,
                "message": _text(status.get("message")),
            }
            yield canonical("k8s_pod", values, self._where("reason", reason) if reason else self._where("phase", phase))
        for key in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
            for item in _list(status.get(key)):
                container = _dict(item)
                for which, label in (("lastState", "last-state"), ("state", "state")):
                    yield from self._container(path, node, container, which, label)
        for item in _list(status.get("conditions")):
            condition = _dict(item)
            if condition.get("type") == "DisruptionTarget":
                yield from self._one_condition("k8s_job", {"job": path, "kind": "Pod"}, condition)

    def _container(self, path: str, node: str | None, container: Json, which: str, label: str) -> Iterator[Record]:
        for name, raw in _dict(container.get(which)).items():
            state = _dict(raw)
            reason, code = _text(state.get("reason")), _text(state.get("exitCode"))
            values = {
                "container": _text(container.get("name")),
                "pod": path,
                label: name,
                "reason": reason,
                "exit": code,
                "signal": _text(state.get("signal")),
                "restarts": _text(container.get("restartCount")),
                "node": node,
                "started": _text(state.get("startedAt")),
                "finished": _text(state.get("finishedAt")),
                "message": _text(state.get("message")),
            }
            line = (
                self._where("exitCode", code)
                if code
                else self._where("reason", reason)
                if reason
                else self._where(name)
            )
            yield canonical("k8s_container", values, line, _text(state.get("finishedAt")))

    def _event(self) -> Record:
        value = self._value
        thing = _dict(value.get("involvedObject", value.get("regarding")))
        reason = _text(value.get("reason"))
        source = _dict(value.get("source"))
        values = {
            "event": reason,
            "type": _text(value.get("type")),
            "object": f"{(_text(thing.get('kind')) or '?').lower()}/{_text(thing.get('name')) or '?'}",
            "count": _text(value.get("count")) or _text(_dict(value.get("series")).get("count")),
            "from": _text(source.get("component")) or _text(value.get("reportingComponent")),
            "message": _text(value.get("message", value.get("note"))),
        }
        time = (
            _text(value.get("lastTimestamp"))
            or _text(_dict(value.get("series")).get("lastObservedTime"))
            or _text(value.get("eventTime"))
            or _text(value.get("firstTimestamp"))
        )
        return canonical("k8s_event", values, self._where("reason", reason), time)

    def _node(self, name: str, status: Json) -> Iterator[Record]:
        for item in _list(status.get("conditions")):
            yield from self._one_condition("k8s_node", {"node": name}, _dict(item))

    def _custom(self, kind: str, path: str, status: Json) -> Iterator[Record]:
        state = _dict(status.get("state"))
        phase = _text(status.get("phase")) or _text(state.get("phase"))
        if phase:
            values = {
                "job": path,
                "kind": kind,
                "phase": phase,
                "reason": _text(state.get("reason")),
                "message": _text(state.get("message")),
            }
            yield canonical("k8s_job", values, self._where("phase", phase), _text(state.get("lastTransitionTime")))
        for item in _list(status.get("conditions")):
            yield from self._one_condition("k8s_job", {"job": path, "kind": kind}, _dict(item))

    def _one_condition(self, record: str, names: Json, condition: Json) -> Iterator[Record]:
        reason = _text(condition.get("reason"))
        kind = _text(condition.get("type"))
        if kind is None:
            return
        since = _text(condition.get("lastTransitionTime"))
        values = {
            **names,
            "condition": kind,
            "status": _text(condition.get("status")),
            "reason": reason,
            "since": since,
            "message": _text(condition.get("message")),
        }
        line = self._where("reason", reason) if reason else self._where("type", kind)
        yield canonical(record, values, line, since)


def _positive(value: Any) -> str | None:
    text = _text(value)
    return text if text not in (None, "0") else None


def _known(fields: dict[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in fields.items() if value is not None}
