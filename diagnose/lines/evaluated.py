"""Tracebacks of programs that the job evaluates: generated code that failed, followed by the next task.

In: the records of one source in order. Out: the same records; a traceback that ends in evaluated code (`File
"<string>"`) is held until its stream goes on, and comes out `quoted` where it does. Where nothing follows it, or a
launcher reports a failure, it ended the process: `python -c` fails in the same words.
"""

from __future__ import annotations

from diagnose.dataclass import replace
from diagnose.models import Record
from diagnose.patterns import Lazy

_CODE = Lazy(
    r"<(?:string|exec|eval|generated(?:_code)?|solution|candidate)>\Z|/tmp/tmp[\w-]{4,32}(?:/[\w.-]{1,64})?\.py\Z"
)
# Words of a line that may speak of the same failure: they do not show that the work goes on.
_ILL = (
    "rror", "xception", "xit", "ailed", "ailure", "illed", "bort", "dumped", "ignal", "SIG", "erminat", "raceback",
    "srun", "slurm", "ANCELLED", "fault", "Warning",
)  # fmt: skip
_MAX_HELD = 64
_PATIENCE = 16


class Evaluations:
    """Holds tracebacks of evaluated code, by stream, until it is known what followed."""

    def __init__(self) -> None:
        self._held: dict[str, list[Record]] = {}
        self._left: dict[str, int] = {}

    @property
    def busy(self) -> bool:
        """Whether anything is held."""
        return bool(self._held)

    def sift(self, records: list[Record]) -> list[Record]:
        """The records to pass on now."""
        if not self._held and all(record.kind == "line" for record in records):
            return records
        passed: list[Record] = []
        for record in records:
            stream = record.lines[0].stream
            if record.kind == "traceback" and not record.quoted and _ends_in_evaluated_code(record):
                self._hold(stream, record, passed)
                continue
            if stream in self._held:
                self._judge(stream, record, passed)
            passed.append(record)
        return passed

    def finish(self) -> list[Record]:
        """What is still held: nothing followed it."""
        return [record for stream in list(self._held) for record in self._release(stream)]

    def _hold(self, stream: str, record: Record, passed: list[Record]) -> None:
        held = self._held.get(stream)
        if held is None and len(self._held) >= _MAX_HELD:
            passed.append(record)
            return
        if held is not None and len(held) >= _MAX_HELD:
            passed.extend(self._release(stream))
        self._held.setdefault(stream, []).append(record)
        self._left[stream] = _PATIENCE

    def _judge(self, stream: str, record: Record, passed: list[Record]) -> None:
        """What this record says of the held ones: the work goes on, or it ended, or nothing yet."""
        if record.kind != "line":
            passed.extend(self._release(stream))
            return
        text = record.text
        if text.strip() and not any(word in text for word in _ILL):
            passed.extend(replace(held, quoted=True) for held in self._release(stream))
            return
        self._left[stream] -= 1
        if self._left[stream] <= 0:
            passed.extend(self._release(stream))

    def _release(self, stream: str) -> list[Record]:
        self._left.pop(stream, None)
        return self._held.pop(stream, [])


def _ends_in_evaluated_code(record: Record) -> bool:
    """Whether the innermost frames are a module of evaluated code, raised by nothing deeper."""
    frames = record.exceptions[-1].frames if record.exceptions else ()
    module = False
    for frame in reversed(frames):
        if _CODE.search(frame.file) is None:
            break
        module = frame.function in {None, "<module>"}
    return module
