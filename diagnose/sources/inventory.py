"""The user's own list of what runs where (`--inventory FILE`).

In: a JSON, YAML, CSV or TSV file. Out: `Unit`s. Errors: `UsageError` with the file and line.
"""

# Paths are texts of any bytes here, and pathlib would normalise what people typed.

from __future__ import annotations

import io
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence

from diagnose.dataclass import dataclass
from diagnose.errors import SourceError, UsageError
from diagnose.models import Unit
from diagnose.settings import Limits
from diagnose.sources.printable import printable
from diagnose.sources.streams import file_origin, read_head
from diagnose.sources.text import encoding_of, utf8_blocks, why_binary

# Each field of a unit and the names its column has in the wild: Slurm, nvidia-smi, Kubernetes, site scripts.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "rank": ("global_rank", "rank_id", "world_rank", "slurm_procid", "procid", "task"),
    "local_rank": ("localrank", "slurm_localid", "localid", "local_id"),
    "host": ("hostname", "node", "nodename", "node_name", "host_name", "server", "machine", "slurmd_nodename"),
    "gpu": ("gpu_index", "gpu_id", "index", "device", "device_id", "local_gpu", "cuda_device", "gpu_idx"),
    "pci": ("pci_bus_id", "pci.bus_id", "gpu_bus_id", "bus_id", "busid", "pci_id", "pci_address", "bdf", "gpu_pci"),
    "uuid": ("gpu_uuid",),
    "serial": ("gpu_serial", "serial_number", "sn", "serialno"),
    "nic": ("hca", "ib_device", "rdma_device", "nic_name", "ib", "mlx"),
    "pid": ("process_id",),
    "ip": ("ip_address", "addr", "address", "ipaddr", "ipv4", "host_ip"),
}
_FIELDS = {synonym: field for field, synonyms in COLUMNS.items() for synonym in (field, *synonyms)}
# Keys whose value is a list of units, which take over what stands beside the key.
_LISTS = ("units", "ranks", "gpus", "devices", "nodes", "hosts", "inventory", "servers", "processes", "workers")
_NUMBERS = ("rank", "local_rank", "pid")
_NOTHING = ("", "-", "n/a", "[n/a]", "none", "null", "unknown", "[not supported]")
_PCI = r"(?i)(?:pci:)?(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.([0-7]))?"
_DEPTH = 8
_UNITS = 1_000_000
_VISITS = 4_000_000

_Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class _BadValue(Exception):
    path: _Path
    message: str


def load_inventory(path: str, limits: Limits | None = None) -> tuple[Unit, ...]:
    """Return the units that an inventory file lists.

    The file holds one row per rank or GPU, with any of the columns `rank, local_rank, host, gpu, pci, uuid, serial,
    nic, pid, ip` (and their usual names, `COLUMNS`; others are ignored):

    - CSV or TSV (also `;` and `|`), the first row naming the columns; `nvidia-smi --query-gpu=... --format=csv` fits;
    - JSON or YAML: a list of mappings; or mappings nested by host or rank, `{gx-01: [{gpu: 0, pci: '5d:00'}]}`,
      `{0: {host: gx-01}}`, `{host: gx-01, gpus: [...]}`; JSON lines.

    Raises `UsageError` where the file cannot be read or a value is none of its column.
    """
    name = printable(path)
    text = _text(path, name, limits or Limits())
    start = text.lstrip()[:1]
    if not start:
        raise UsageError(f"{name}: the inventory is empty; see `diagnose --help` for its format")
    extension = os.path.splitext(path)[1].lower()
    if start in "{[" and extension not in (".yaml", ".yml"):
        return _units(_json(text, name), text, name)
    if extension in (".yaml", ".yml") or (extension not in (".csv", ".tsv", ".psv") and _is_yaml(text)):
        return _units(_yaml(text, name), text, name)
    return _table(text, name)


def _text(path: str, name: str, limits: Limits) -> str:
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{name}: an inventory must be a file")
        if status.st_size > limits.structured_bytes:
            raise UsageError(f"{name}: larger than {limits.structured_bytes} bytes; give only what this job used")
        stream = file_origin(path, name, status.st_size).open()
        try:
            head, error = read_head(stream, limits.structured_bytes)
        finally:
            stream.close()
    except (OSError, ValueError) as failure:
        reason = (failure.strerror if isinstance(failure, OSError) else None) or str(failure)
        raise UsageError(f"{name}: the inventory cannot be read ({reason}); check the path") from failure
    except SourceError as failure:
        raise UsageError(str(failure)) from failure
    if error is not None:
        raise UsageError(str(error))
    if why := why_binary(head):
        raise UsageError(f"{name}: not an inventory but {why}; give JSON, YAML or CSV")
    blocks = utf8_blocks(io.BytesIO(head), encoding_of(head), 1024 * 1024)
    return b"".join(blocks).decode("utf-8", "replace")


def _json(text: str, name: str) -> object:
    import json

    try:
        return json.loads(text)
    except json.JSONDecodeError as whole:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) > 1 and all(line.lstrip().startswith("{") and line.rstrip().endswith("}") for line in lines):
            try:
                return [json.loads(line) for line in lines]
            except (ValueError, RecursionError):
                pass
        raise UsageError(f"{name}:{whole.lineno}: not JSON ({whole.msg}); correct the inventory") from whole
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name}: not usable JSON ({error}); correct the inventory") from error


def _yaml(text: str, name: str) -> object:
    import yaml

    if _deepest(text) > 200:
        raise UsageError(f"{name}: nested too deeply for an inventory")
    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UsageError(f"{name}{line}: not YAML ({error.problem}); correct the inventory") from error
    except (yaml.YAMLError, ValueError, RecursionError, TypeError, OverflowError, AttributeError) as error:
        first = str(error).split("\n", 1)[0]
        raise UsageError(f"{name}: not usable YAML ({first}); correct the inventory") from error


def _deepest(text: str) -> int:
    """Return a bound of how deep YAML can nest here: brackets, dashes in a row, and indentation."""
    depth = deepest = 0
    for char in re.findall(r"[\[\]{}]", text):
        depth += 1 if char in "[{" else -1
        deepest = max(deepest, depth)
    dashes = max((len(run) // 2 for run in re.findall(r"(?:[-?:] ){20,}", text)), default=0)
    indent = max((len(run) for run in re.findall(r"(?m)^ {100,}", text)), default=0)
    return max(deepest, dashes, indent)


def _is_yaml(text: str) -> bool:
    first = next((line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
    return first.startswith(("- ", "---")) or (first.rstrip().endswith(":") and "," not in first)


def _units(value: object, text: str, name: str) -> tuple[Unit, ...]:
    units: list[Unit] = []
    try:
        for unit in _walk(value, {}, (), [0]):
            units.append(unit)
            if len(units) > _UNITS:
                raise UsageError(f"{name}: more than {_UNITS} units; give only what this job used")
    except _BadValue as bad:
        raise UsageError(f"{name}{_line_of(text, bad.path)}: {bad.message}; correct the inventory") from bad
    except ValueError as error:  # YAML reads integers of thousands of digits, which Python does not print
        raise UsageError(f"{name}: a number is not usable ({error}); correct the inventory") from error
    if not units:
        raise UsageError(f"{name}: lists no units; a row needs one of {', '.join(COLUMNS)}")
    return tuple(units)


def _walk(value: object, above: Mapping[str, object], path: _Path, visits: list[int]) -> Iterator[Unit]:
    visits[0] += 1
    if len(path) > _DEPTH or visits[0] > _VISITS:
        raise _BadValue(path, "nested too deeply for an inventory")
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk(item, above, (*path, index), visits)
        return
    if not isinstance(value, dict):
        raise _BadValue(path, f"expected a mapping such as {{rank: 0, host: gx-01}}, not {str(value)[:40]!r}")
    fields = dict(above)
    inner: list[tuple[str | int, object, dict[str, object]]] = []
    own = False
    for key, item in value.items():
        field = _FIELDS.get(str(key).strip().lower())
        if isinstance(item, (list, dict)):
            inner.append((key, item, _named_by(key)))
        elif field is not None:
            own = True
            fields[field] = item
    if not inner:
        if own:
            yield _unit(fields, path)
        return
    for key, item, named in inner:
        yield from _walk(item, {**fields, **named}, (*path, key), visits)


def _named_by(key: object) -> dict[str, object]:
    """Return what a mapping's key says of what is below: a rank if a number, a host if a name."""
    text = str(key).strip()
    if text.lower() in _LISTS or text.lower() in _FIELDS:
        return {}
    return {"rank": text} if text.isascii() and text.isdigit() else {"host": text}


def _unit(fields: Mapping[str, object], path: _Path) -> Unit:
    numbers: dict[str, int | None] = dict.fromkeys(_NUMBERS)
    texts: dict[str, str | None] = {}
    for field, value in fields.items():
        text = "" if value is None else str(value).strip()
        if text.lower() in _NOTHING:
            continue
        if field in _NUMBERS:
            if not (text.isascii() and text.isdigit() and len(text) <= 9):
                raise _BadValue((*path, field), f"{field} must be a number, not {printable(text[:40])!r}")
            numbers[field] = int(text)
        elif len(text) > 255:
            raise _BadValue((*path, field), f"{field} is longer than 255 characters")
        else:
            texts[field] = _pci(text, path) if field == "pci" else text
    return Unit(
        rank=numbers["rank"],
        local_rank=numbers["local_rank"],
        host=texts.get("host"),
        gpu=texts.get("gpu"),
        pci=texts.get("pci"),
        uuid=texts.get("uuid"),
        serial=texts.get("serial"),
        nic=texts.get("nic"),
        pid=numbers["pid"],
        ip=texts.get("ip"),
    )


def _pci(text: str, path: _Path) -> str:
    match = re.fullmatch(_PCI, text)
    if match is None:
        raise _BadValue((*path, "pci"), f"pci must be an address such as 0000:5d:00.0, not {printable(text[:40])!r}")
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}.{function or '0'}"


def _line_of(text: str, path: _Path) -> str:
    """Return `:<line>` of the value at `path`, found by reading the text again as YAML, which JSON is too."""
    import yaml

    try:
        node = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        line = 0
        for step in path:
            if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
                node = node.value[step]
            elif isinstance(node, yaml.MappingNode):
                found = [pair for pair in node.value if _key_is(pair[0].value, step)]
                if not found:
                    break
                line, node = found[0][0].start_mark.line, found[0][1]
                continue
            else:
                break
            line = node.start_mark.line
    except (yaml.YAMLError, ValueError, RecursionError, IndexError):
        return ""
    return f":{line + 1}"


def _key_is(key: object, step: str | int) -> bool:
    return str(key) == str(step) or _FIELDS.get(str(key).strip().lower()) == step


def _table(text: str, name: str) -> tuple[Unit, ...]:
    import csv

    lines = [line for line in text.splitlines()[:100] if line.strip()]
    first = next((line for line in lines if not line.startswith("#")), lines[0])
    delimiter = max(",\t|;", key=first.count)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    columns: list[str | None] | None = None
    units: list[Unit] = []
    try:
        for row in rows:
            comment = bool(row) and row[0].startswith("#")
            if not any(cell.strip() for cell in row) or (comment and columns is not None):
                continue
            if columns is None:
                columns = [_column(cell) for cell in row]
                if comment and not any(columns):
                    columns = None
                    continue
                if not any(columns):
                    raise UsageError(f"{name}:{rows.line_num}: the first row names no known column: {_known()}")
                continue
            units.append(_row(columns, row, name, rows.line_num))
            if len(units) > _UNITS:
                raise UsageError(f"{name}: more than {_UNITS} units; give only what this job used")
    except csv.Error as error:
        raise UsageError(f"{name}:{rows.line_num}: not CSV ({error}); correct the inventory") from error
    if not units:
        raise UsageError(f"{name}: lists no units; the first row names columns, the others are units")
    return tuple(units)


def _row(columns: Sequence[str | None], row: Sequence[str], name: str, line: int) -> Unit:
    if len(row) > len(columns):
        raise UsageError(f"{name}:{line}: {len(row)} values but {len(columns)} columns; correct the inventory")
    fields = {column: cell for column, cell in zip(columns, row, strict=False) if column is not None}
    try:
        return _unit(fields, ())
    except _BadValue as bad:
        raise UsageError(f"{name}:{line}: {bad.message}; correct the inventory") from bad


def _column(cell: str) -> str | None:
    # `pci.bus_id`, `GPU UUID`, `memory.total [MiB]`
    key = cell.strip().lstrip("#").strip().lower().partition(" [")[0]
    return _FIELDS.get(key) or _FIELDS.get(key.replace(" ", "_").replace("-", "_"))


def _known() -> str:
    return ", ".join(COLUMNS)
