"""Reads log lines out of comma-separated exports of log viewers (Grafana, CloudWatch, Datadog, Kibana).

In: lines of one source. Out: the program's own lines with a `Head`; None where the source is no such export.
"""

from __future__ import annotations

from diagnose.lines.ansi import clean
from diagnose.lines.heads import Head, level_of
from diagnose.lines.stamps import ISO, Clock, from_number
from diagnose.lines.wrappers import Part, split
from diagnose.patterns import Lazy

_ISO = Lazy(ISO)
_TIMES = ("timestamp", "@timestamp", "time", "date", "datetime", "ts", "tsns", "_time")
_MESSAGES = ("message", "@message", "line", "log", "msg", "content", "_raw", "body", "textpayload")
_HOSTS = ("host", "hostname", "node", "pod", "instance", "@logstream", "logstreamname")
_LEVELS = ("level", "severity", "status", "detected_level")
_MAX_COLUMNS = 64


class Export:
    """Finds the header of an export in the first line of a source, then reads its rows."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines = 0
        self._columns: dict[str, int] | None = None
        self._open: Head | None = None

    @property
    def may_be(self) -> bool:
        """Whether the source is an export, or its first line is still to come."""
        return self._columns is not None or self._lines < 1

    def read(self, text: str) -> list[Part] | None:
        """The lines of one row; nothing of the header; None where there is no table."""
        if self._columns is None:
            if text.strip() and not text.startswith("#"):
                self._lines += 1
                self._columns = _header(text)
            return [] if self._columns is not None else None
        if self._open is not None:
            return self._further(text)
        import csv

        quotes = text.count('"')
        row = next(csv.reader([text + '"' if quotes % 2 else text]), [])
        place = self._columns["message"]
        if len(row) <= place:
            return [(text, Head())]
        head = self._head(row)
        message = ",".join(row[place:]) if place == max(self._columns.values()) else row[place]
        if quotes % 2:
            self._open = head.copy()
        return [(clean(line), head.copy()) for line in split(message)]

    def _further(self, text: str) -> list[Part]:
        """A further line of a quoted message, up to the quote that closes it."""
        assert self._open is not None
        head = self._open.copy()
        if text.count('"') % 2:
            text = text[: text.rfind('"')]
            self._open = None
        return [(clean(text.replace('""', '"')), head)]

    def _head(self, row: list[str]) -> Head:
        head = Head()
        columns = self._columns or {}
        stamp = row[columns["time"]]
        found = _ISO.match(stamp)
        if found:
            head.time = self._clock.iso(found.group(1), found.group(2), found.group(3), found.group(4))
        elif stamp.isascii() and stamp.replace(".", "", 1).isdigit() and len(stamp) < 24:
            head.time = from_number(float(stamp))
        head.dated = head.time is not None
        if "host" in columns and columns["host"] < len(row) and row[columns["host"]]:
            head.host = row[columns["host"]][:253]
            head.at(head.host)
        if "level" in columns and columns["level"] < len(row):
            head.level = level_of(row[columns["level"]])
        return head


def _header(text: str) -> dict[str, int] | None:
    """Which column holds what, where `text` is the header of an export."""
    if "," not in text or len(text) > 2_000:
        return None
    lower = text.lower()
    if not any(word in lower for word in _MESSAGES):
        return None
    import csv

    cells = [cell.strip().lower() for cell in next(csv.reader([text]), [])][:_MAX_COLUMNS]
    columns = {
        name: cells.index(found)
        for name, wanted in (("time", _TIMES), ("message", _MESSAGES), ("host", _HOSTS), ("level", _LEVELS))
        for found in [next((word for word in wanted if word in cells), None)]
        if found is not None
    }
    return columns if {"time", "message"} <= columns.keys() else None
