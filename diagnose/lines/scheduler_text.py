"""Scheduler records from what people paste: sacct and kubectl tables, scontrol blocks, kubectl describe.

In: the lines of a scheduler record, or of a job log in which such a table stands, one by one. Out: canonical records
(see `scheduler`), beside the raw lines, which pass on as ordinary ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from diagnose.lines.scheduler import canonical, slurm_job, slurm_node
from diagnose.models import Line, LogSource, Record
from diagnose.patterns import Lazy

OPENERS = ("JobID", "JobId=", "NodeName=", "LAST SEEN", "sacct ", "Reason  ", "kubectl ")
_MAX_KEYS = 400
# How long the output of a `kubectl describe` that a job log shows may be.
_DESCRIBED_LINES = 400

_DASHES = Lazy(r"\s{0,8}-{2,400}(?: {1,4}-{1,400}){0,200}\s{0,8}\Z")
_WORD = Lazy(r"-{1,400}")
_KEY = Lazy(r"(?:\A|\s)([A-Z][A-Za-z]{0,31}(?:[:/][A-Za-z:/*]{1,31})?)=")
_GAP = Lazy(r"\s{2,400}")
_PAIR = Lazy(r"( {0,64})([A-Za-z][A-Za-z0-9 ./_-]{0,62}?):(?:\s{1,64}(.{0,8192}))?\Z", re.DOTALL)
_SACCT = Lazy(r"\bsacct\b(.{1,1024})\Z")
_SACCT_JOB = Lazy(r"-j ?(\S{1,64})|--jobs?[= ](\S{1,64})")
_SACCT_FORMAT = Lazy(r"(?:-o|--format)[= ]?([\w%,]{1,512})")
_DESCRIBE = Lazy(r"\bkubectl\b.{0,200}\bdescribe (pods?|po|nodes?|no)[ /]([\w.-]{1,253})")
_NAMESPACE = Lazy(r"(?:-n|--namespace)[= ]?([\w.-]{1,253})")
_COUNT = Lazy(r"\(x(\d{1,9})")
_EVENTS = ("Type", "Reason", "Age", "From", "Message")
_NODE_CONDITIONS = ("Type", "Status", "LastHeartbeatTime", "LastTransitionTime", "Reason", "Message")

_Rows = Callable[[str, Line], "Record | None"]


class TableReader:
    """Recognises scheduler tables and blocks line by line. Costs nothing while none is open."""

    def __init__(self, source: LogSource) -> None:
        self._always = source.kind == "scheduler"
        self._rows: _Rows | None = None
        self._header: tuple[str, ...] = ()
        self._spans: tuple[tuple[int, int | None], ...] = ()
        self._job: str | None = None
        self._object = ""
        self._block: dict[str, str] = {}
        self._block_line: Line | None = None
        self._described = _Described()
        self._describing = 0

    @property
    def busy(self) -> bool:
        """Whether the next line must be shown to `feed` even if it holds none of `OPENERS`."""
        return self._always or self._rows is not None or bool(self._block) or self._describing > 0

    def feed(self, line: Line) -> list[Record]:
        """Judge the next line and return the records that are complete with it."""
        text = (line.text if self._always else line.body)[:8192]
        self._describing -= self._describing > 0
        records = self._feed_block(text, line)
        if self._rows is not None:
            record = self._rows(text, line)
            if record is not None:
                records.append(record)
                return records
            if self._rows is not None:
                return records
        if not self._open(text) and (self._describing or self._always):
            records += self._describe(text, line)
        return records

    def finish(self) -> list[Record]:
        """The block that was still open."""
        return self._close_block() + self._described.close()

    # Tables

    def _open(self, text: str) -> bool:
        if "|" in text and ("JobID" in text or "jobid" in text.lower()) and "State" in text:
            self._header = tuple(name.strip() for name in text.strip().split("|"))
            self._rows = self._pipe_row
            return True
        words = tuple(text.split())
        if "State" in words and ("JobID" in words or "JobIDRaw" in words):
            self._header = words
            self._rows = self._dashes
            return True
        if "sacct" in text and (match := _SACCT.search(text)):
            return self._open_bare_sacct(match[1])
        if text.startswith(("LAST SEEN ", "NAMESPACE ", "FIRST SEEN ")) and "REASON" in text and "MESSAGE" in text:
            self._header = tuple(_GAP.split(text.strip()))
            self._rows = self._event_row
            return True
        if words == _EVENTS:
            self._rows = self._described_event_row
            return True
        if words == _NODE_CONDITIONS:
            self._rows = self._condition_row
            return True
        if "kubectl" in text and (found := _DESCRIBE.search(text)):
            space = _NAMESPACE.search(text)
            kind = "node" if found[1].startswith("no") else "pod"
            self._object = f"{kind}/{found[2]}"
            self._described.namespace = space[1] if space else ""
            self._describing = _DESCRIBED_LINES
            return True
        return False

    def _open_bare_sacct(self, arguments: str) -> bool:
        """A command that was echoed, without a header asked for: what comes next are its rows."""
        form = _SACCT_FORMAT.search(arguments)
        if form is None or not re.search(r"(?:^|\s)(?:-\w{0,4}n\b|--noheader)", arguments):
            return False
        header = tuple(name.partition("%")[0] for name in form[1].split(","))
        if "state" not in (name.lower() for name in header):
            return False
        job = _SACCT_JOB.search(arguments)
        self._header = header
        self._job = (job[1] or job[2]).partition(",")[0] if job else None
        self._rows = self._bare_row
        return True

    def _bare_row(self, text: str, line: Line) -> Record | None:
        cells = text.replace("|", " ").split()
        if len(cells) != len(self._header):
            self._rows = None
            return None
        values = dict(zip(self._header, cells, strict=True))
        if self._job:
            values.setdefault("JobID", self._job)
        return slurm_job(values, line)

    def _dashes(self, text: str, line: Line) -> Record | None:
        if not _DASHES.match(text) or len(text.split()) != len(self._header):
            self._rows = None
            return None
        spans = [(match.start(), match.end()) for match in _WORD.finditer(text)]
        # The last column may run over its width.
        self._spans = (*spans[:-1], (spans[-1][0], None))
        self._rows = self._fixed_row
        return None

    def _fixed_row(self, text: str, line: Line) -> Record | None:
        if _DASHES.match(text):
            return None
        values = {name: text[start:end].strip() for name, (start, end) in zip(self._header, self._spans, strict=True)}
        if not values.get("State") or not values.get("JobID", values.get("JobIDRaw", ""))[:1].isdigit():
            self._rows = None
            return None
        return slurm_job(values, line)

    def _pipe_row(self, text: str, line: Line) -> Record | None:
        cells = text.strip().split("|")
        wanted = len(self._header)
        if len(cells) < wanted - 1 or len(cells) > wanted + 1:
            self._rows = None
            return None
        values = {name: cell for name, cell in zip(self._header, cells, strict=False) if name}
        return slurm_job(values, line)

    def _event_row(self, text: str, line: Line) -> Record | None:
        cells = _GAP.split(text.strip(), maxsplit=len(self._header) - 1)
        if len(cells) < 4 or len(cells) < len(self._header) - 1:
            self._rows = None
            return None
        values = dict(zip(self._header, cells, strict=False))
        if len(cells) < len(self._header):
            values = dict(zip((*self._header[: len(cells) - 1], "MESSAGE"), cells, strict=False))
        thing = values.get("OBJECT") or "/".join(filter(None, (values.get("KIND", ""), values.get("NAME", ""))))
        count = _COUNT.search(values.get("LAST SEEN", ""))
        return canonical(
            "k8s_event",
            {
                "event": values.get("REASON"),
                "type": values.get("TYPE"),
                "object": thing.lower() if "/" not in thing else thing[:1].lower() + thing[1:],
                "count": values.get("COUNT") or (count[1] if count else None),
                "from": values.get("SOURCE"),
                "message": values.get("MESSAGE"),
            },
            line,
        )

    def _described_event_row(self, text: str, line: Line) -> Record | None:
        stripped = text.strip()
        if stripped and not stripped.strip("- "):
            return None
        cells = _GAP.split(stripped, maxsplit=4)
        if len(cells) < 5 or cells[0] not in ("Normal", "Warning"):
            self._rows = None
            return None
        count = _COUNT.search(cells[2])
        return canonical(
            "k8s_event",
            {
                "event": cells[1],
                "type": cells[0],
                "object": self._described.name() or self._object,
                "count": count[1] if count else None,
                "from": cells[3],
                "message": cells[4],
            },
            line,
        )

    def _condition_row(self, text: str, line: Line) -> Record | None:
        stripped = text.strip()
        if stripped and not stripped.strip("- "):
            return None
        cells = _GAP.split(stripped, maxsplit=5)
        if len(cells) < 6:
            self._rows = None
            return None
        node = (self._described.name() or self._object).partition("/")[2]
        values = {
            "node": node,
            "condition": cells[0],
            "status": cells[1],
            "reason": cells[4],
            "message": cells[5],
            "since": cells[3],
        }
        return canonical("k8s_node", values, line, cells[3])

    # scontrol's blocks

    def _feed_block(self, text: str, line: Line) -> list[Record]:
        opens = text.lstrip().startswith(("JobId=", "NodeName="))
        if not opens and not self._block:
            return []
        records: list[Record] = []
        if opens or "=" not in text:
            records = self._close_block()
        if not opens and not (self._block and "=" in text):
            return records
        starts = list(_KEY.finditer(text))
        for at, match in enumerate(starts):
            end = starts[at + 1].start() if at + 1 < len(starts) else len(text)
            key = match[1].lower()
            if len(self._block) < _MAX_KEYS:
                self._block.setdefault(key, text[match.end() : end].strip())
            if key in ("jobstate", "state") or self._block_line is None:
                self._block_line = line
        return records

    def _close_block(self) -> list[Record]:
        block, line = self._block, self._block_line
        self._block, self._block_line = {}, None
        if not block or line is None:
            return []
        record = slurm_node(block, line) if "nodename" in block else slurm_job(block, line)
        return [record] if record else []

    # kubectl describe

    def _describe(self, text: str, line: Line) -> list[Record]:
        pair = _PAIR.match(text)
        if pair is None:
            return []
        return self._described.feed(len(pair[1]), pair[2].strip(), (pair[3] or "").strip(), line)


class _Described:
    """What `kubectl describe` has said of the object at hand."""

    def __init__(self) -> None:
        self.namespace = ""
        self._clear()

    def _clear(self) -> None:
        self._head: dict[str, str] = {}
        self._head_line: Line | None = None
        self._section = ""
        self._container = ""
        self._state: dict[str, str] = {}
        self._state_line: Line | None = None
        self._condition: dict[str, str] = {}
        self._condition_line: Line | None = None

    def name(self) -> str:
        """`pod/x` or `node/x` of the object described."""
        name = self._head.get("Name", "")
        return f"{self._kind()}/{name}" if name else ""

    def feed(self, indent: int, key: str, value: str, line: Line) -> list[Record]:
        """Take a `Key: value` line; records come when their part of the text is over."""
        records: list[Record] = []
        if indent == 0:
            if key == "Name" and self._head:
                records += self.close()
            records += self._close_state()
            if not value or key in ("Containers", "Init Containers", "Conditions", "Events", "Volumes"):
                records += self._close_head()
                self._section = key
                return records
            if len(self._head) < _MAX_KEYS:
                self._head.setdefault(key, value)
            if key == "Namespace":
                self.namespace = value
            if key in ("Reason", "Status") and (self._head_line is None or key == "Reason"):
                self._head_line = line
            return records
        if self._section in ("Containers", "Init Containers"):
            return records + self._in_container(indent, key, value, line)
        if self._section == "Status" and indent >= 2:
            return records + self._in_status(key, value, line)
        return records

    def close(self) -> list[Record]:
        """The records of what is still open."""
        records = self._close_state() + self._close_head()
        self._clear()
        return records

    def _kind(self) -> str:
        if "Kind" in self._head:
            return self._head["Kind"].lower()
        return "node" if "Roles" in self._head or "Unschedulable" in self._head else "pod"

    def _path(self) -> str:
        return "/".join(filter(None, (self.namespace, self._head.get("Name", ""))))

    def _close_head(self) -> list[Record]:
        line, self._head_line = self._head_line, None
        if line is None or self._kind() != "pod" or "Status" not in self._head:
            return []
        head = self._head
        values = {
            "pod": self._path(),
            "node": head.get("Node", "").partition("/")[0],
            "phase": head["Status"],
            "reason": head.get("Reason"),
            "message": head.get("Message"),
        }
        return [canonical("k8s_pod", values, line)]

    def _in_container(self, indent: int, key: str, value: str, line: Line) -> list[Record]:
        records: list[Record] = []
        if indent <= 2:
            records = self._close_state()
            self._container = key
        elif key in ("State", "Last State") and indent <= 4:
            records = self._close_state()
            self._state = {"which": "state" if key == "State" else "last-state", "value": value.lower()}
            self._state_line = line
        elif self._state and indent > 4:
            self._state[key] = value
            if key == "Reason":
                self._state_line = line
        elif key == "Restart Count":
            records = self._close_state()
        else:
            records = self._close_state()
        return records

    def _close_state(self) -> list[Record]:
        state, line = self._state, self._state_line
        self._state, self._state_line = {}, None
        if not state or line is None:
            return []
        values = {
            "container": self._container,
            "pod": self._path(),
            state["which"]: state["value"],
            "reason": state.get("Reason"),
            "exit": state.get("Exit Code"),
            "signal": state.get("Signal"),
            "node": self._head.get("Node", "").partition("/")[0],
            "started": state.get("Started"),
            "finished": state.get("Finished"),
            "message": state.get("Message"),
        }
        return [canonical("k8s_container", values, line, state.get("Finished"))]

    def _in_status(self, key: str, value: str, line: Line) -> list[Record]:
        """Conditions of a custom resource: their keys come in alphabetical order, `Type` last."""
        if key in ("Last Probe Time", "Last Update Time", "Last Transition Time", "Message", "Reason", "Status"):
            self._condition[key] = value
            if key in ("Reason", "Status") and self._condition_line is None:
                self._condition_line = line
            return []
        if key != "Type" or not self._condition:
            return []
        found, where = self._condition, self._condition_line or line
        self._condition, self._condition_line = {}, None
        since = found.get("Last Transition Time") or found.get("Last Update Time")
        values = {
            "job": self._path(),
            "kind": self._head.get("Kind"),
            "condition": value,
            "status": found.get("Status"),
            "reason": found.get("Reason"),
            "since": since,
            "message": found.get("Message"),
        }
        return [canonical("k8s_job", values, where, since)]
