"""Lines for the tests of records: texts with simple prefixes in, lines and records out."""

import re

from diagnose.lines.assembler import RecordAssembler
from diagnose.models import Line, LogSource
from diagnose.settings import Limits

_PREFIX = re.compile(r"\[rank(\d+)\]: ?|(\d+): ")
_LEVEL = re.compile(r"(ERROR|INFO) ")


def read(text, *, kind="job", name="job.log", tags=True):
    source = LogSource(name, kind)
    lines = []
    for number, raw in enumerate(text.split("\n"), start=1):
        body, rank, level = raw, None, None
        if tags and (match := _PREFIX.match(raw)):
            body, rank = raw[match.end() :], int(match[1] or match[2])
        elif match := _LEVEL.match(raw):
            body, level = raw[match.end() :], match[1].lower()
        stream = name if rank is None else f"{name}|{rank}"
        lines.append(Line(source=source, number=number, text=raw, body=body, stream=stream, rank=rank, level=level))
    return lines


def assemble(lines, limits=None):
    if isinstance(lines, str):
        lines = read(lines)
    source = lines[0].source if lines else LogSource("job.log")
    assembler = RecordAssembler(source, limits or Limits())
    records = []
    for line in lines:
        records += assembler.feed(line)
    return records + assembler.finish()


def records_of(text, wanted, **how):
    return [record for record in assemble(read(text, **how)) if record.kind == wanted]


def chain(record):
    return [(item.type, item.message.split("\n")[0]) for item in record.exceptions]
