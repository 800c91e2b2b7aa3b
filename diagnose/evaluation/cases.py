"""Labelled cases on disk.

In: directories. Out: `Case`s in the order of their paths, and in words which ones cannot be used. Read are: `NAME.yaml`
beside `NAME.log` (also .gz, .zst, .xz, .bz2); `case.yaml` and `expected.yaml`, whose `inputs` are arguments relative to
their directory; and logs without a label in a directory named `healthy`. docs/evaluation.md lists the fields.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeGuard, cast, get_args

from diagnose.dataclass import dataclass
from diagnose.errors import UsageError
from diagnose.evaluation.model import Blamed, Case, Place, Unread
from diagnose.models.report import JobAction, ReportStatus
from diagnose.models.rule import AttributionName
from diagnose.sources.printable import natural_key, printable

_ENDINGS = (".log", ".log.gz", ".log.zst", ".log.xz", ".log.bz2")
_YAML = (".yaml", ".yml")
_HEALTHY = "healthy"
_LABEL_BYTES = 1 << 20
_MAX_FILES = 200_000
_OPTIONS = {"--kernel-log", "--scheduler-record", "--inventory"}
_STATUSES = get_args(ReportStatus)
_NODES = ("none", "act", "any")
_COUNTED = ("host", "rank", "gpu")


@dataclass(frozen=True, slots=True)
class Found:
    """What a search came to."""

    cases: tuple[Case, ...]
    unread: tuple[Unread, ...]


class _Wrong(ValueError):
    """A label that cannot be used; says why."""


def find_cases(roots: Sequence[str]) -> Found:
    """The labelled cases below some directories. Raises `UsageError` where there are none."""
    cases: dict[str, Case] = {}
    unread: list[Unread] = []
    for root in roots:
        if not os.path.isdir(root):
            raise UsageError(f"{printable(root)} is no directory; give one that holds labelled cases")
        prefix = f"{os.path.basename(os.path.abspath(root))}/" if len(roots) > 1 else ""
        for folder, files in _folders(root):
            for name, read in _candidates(root, folder, files):
                shown = prefix + printable(name)
                try:
                    case = read(shown)
                except (_Wrong, OSError, UnicodeDecodeError) as error:
                    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
                    unread.append(Unread(shown, printable(why)))
                    continue
                if case is not None:
                    cases.setdefault(os.path.join(case.folder, case.name), case)
    if not cases and not unread:
        raise UsageError(
            f"no labelled cases under {', '.join(map(printable, roots))}; see docs/evaluation.md for their format"
        )
    names: dict[str, Case] = {}
    for case in cases.values():
        if case.name in names and names[case.name] != case:
            raise UsageError(f"two cases are named {case.name}; give directories whose last parts differ")
        names[case.name] = case
    ordered = sorted(names.values(), key=lambda case: natural_key(case.name))
    return Found(tuple(ordered), tuple(sorted(unread, key=lambda one: natural_key(one.name))))


def _folders(root: str) -> Iterator[tuple[str, list[str]]]:
    """Every folder with its files; links to folders are not followed, and what has too many files is refused."""
    seen = 0
    for folder, below, files in os.walk(root):
        below[:] = sorted(name for name in below if not name.startswith("."))
        seen += len(files)
        if seen > _MAX_FILES:
            raise UsageError(f"{printable(root)} holds more than {_MAX_FILES} files; give a directory of cases alone")
        yield folder, sorted(files)


class _Reader:
    """Reads one case when called with its name; gives None for a file that is no label."""

    def __init__(self, folder: str, file: str, beside: Sequence[str]) -> None:
        self._folder, self._file, self._beside = folder, file, beside

    def __call__(self, name: str) -> Case | None:
        if not self._file.endswith(_YAML):
            return Case(name, os.path.abspath(self._folder), (self._file,), "no_failure")
        try:
            stated = _mapping(os.path.join(self._folder, self._file))
        except (_Wrong, OSError, UnicodeDecodeError):
            if self._meant:
                raise
            return None
        return _case(name, self._folder, stated, self._file, self._beside) if stated is not None else None

    @property
    def _meant(self) -> bool:
        """Whether the file is to be a label by its name, whatever it holds."""
        stem = os.path.splitext(self._file)[0]
        return stem in ("case", "expected") or any(stem + ending in self._beside for ending in _ENDINGS)


def _candidates(root: str, folder: str, files: Sequence[str]) -> Iterator[tuple[str, _Reader]]:
    labels = [file for file in files if file.endswith(_YAML)]
    stems = {os.path.splitext(file)[0] for file in labels}
    for file in labels:
        stem = os.path.splitext(file)[0]
        place = folder if stem in ("case", "expected") else os.path.join(folder, stem)
        yield os.path.relpath(place, root), _Reader(folder, file, files)
    if os.path.basename(os.path.abspath(folder)) == _HEALTHY:
        for file in files:
            ending = next((ending for ending in _ENDINGS if file.endswith(ending)), None)
            stem = file.removesuffix(ending) if ending else ""
            if stem and stem not in stems:
                yield os.path.relpath(os.path.join(folder, stem), root), _Reader(folder, file, files)


def _mapping(path: str) -> Mapping[str, object] | None:
    """What a label file states; None where it labels no case."""
    import yaml

    if not os.path.isfile(path):
        raise _Wrong(f"{os.path.basename(path)} is no file")  # to open a pipe would be to wait for ever
    with open(path, encoding="utf-8") as file:
        text = file.read(_LABEL_BYTES + 1)
    if len(text) > _LABEL_BYTES:
        raise _Wrong(f"{os.path.basename(path)} is larger than 1 MiB, no label")
    try:
        stated = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - either is safe
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _Wrong(f"{os.path.basename(path)} is no YAML: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(stated, dict) or "error_type" not in stated or "schema" in stated:
        return None  # data of a case, a rule, or something else altogether
    return cast("Mapping[str, object]", stated)


def _case(name: str, folder: str, stated: Mapping[str, object], file: str, beside: Sequence[str]) -> Case:
    error_type = _text(stated, "error_type")
    status = _text(stated, "status") or ("failed" if error_type else "no_failure")
    if status not in _STATUSES:
        raise _Wrong(f"status is {status!r}, none of {', '.join(_STATUSES)}")
    attribution = _text(stated, "attribution")
    attributions = tuple(dict.fromkeys((attribution, *_texts(stated, "accept_attribution")))) if attribution else ()
    unknown = [one for one in attributions if one not in get_args(AttributionName)]
    if unknown:
        raise _Wrong(f"attribution is {unknown[0]!r}, none of {', '.join(get_args(AttributionName))}")
    culprits = tuple(_culprits(stated, "culprit" if "culprit" in stated else "culprits"))
    jobs, node = _recovery(stated)
    # Where every culprit is labelled, the others of their kind are innocent; a fixture says so of kinds by itself.
    blamed = {one.kind for one in culprits} if "culprit" in stated else set[str]()
    return Case(
        name=name,
        folder=os.path.abspath(folder),
        inputs=_inputs(stated, file, beside, folder),
        status=cast("ReportStatus", status),
        error_types=tuple(dict.fromkeys((error_type, *_texts(stated, "accept")))) if error_type else (),
        attributions=cast("tuple[AttributionName, ...]", attributions),
        lines=tuple(_lines(stated)),
        culprits=culprits,
        job=jobs,
        node=node,
        innocent=tuple(_texts(stated, "innocent")),
        counted=tuple(kind for kind in _COUNTED if kind in blamed),
    )


def _inputs(stated: Mapping[str, object], file: str, beside: Sequence[str], folder: str) -> tuple[str, ...]:
    inputs = tuple(_texts(stated, "inputs"))
    if "inputs" not in stated:
        stem = os.path.splitext(file)[0]
        log = next((stem + ending for ending in _ENDINGS if stem + ending in beside), None)
        if log is None:
            raise _Wrong(f"there is no {stem}.log beside {file}, and it names no inputs")
        return (log,)
    if not inputs:
        raise _Wrong("inputs is empty")
    for place, word in enumerate(inputs):
        if word.startswith("-") and (word not in _OPTIONS or place + 1 == len(inputs)):
            raise _Wrong(f"inputs has {word!r}; allowed are paths and {', '.join(sorted(_OPTIONS))} PATH")
        if not word.startswith("-") and not any(mark in word for mark in "*?["):
            path = os.path.join(folder, word)
            if not os.path.exists(path):
                raise _Wrong(f"there is no {word}")
    return inputs


def _lines(stated: Mapping[str, object]) -> Iterator[Place]:
    for key in ("root_cause_at", "evidence"):
        for entry in _list(stated, key):
            source, line = (entry.get("source"), entry.get("line")) if isinstance(entry, dict) else (None, None)
            if not isinstance(source, str) or not _is_line(line):
                raise _Wrong(f"{key} has {str(entry)[:80]!r}; an entry is written {{source: a.log, line: 7}}")
            yield Place(source, line)
    lines = stated.get("root_cause_line")
    for line in lines if isinstance(lines, list) else [lines] if lines is not None else []:
        if not _is_line(line):
            raise _Wrong(f"root_cause_line has {str(line)[:80]!r}, no number")
        yield Place("", line)


def _is_line(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _culprits(stated: Mapping[str, object], key: str) -> Iterator[Blamed]:
    for entry in _list(stated, key):
        if not isinstance(entry, dict) or not isinstance(entry.get("kind"), str) or entry.get("id") in (None, ""):
            raise _Wrong(f"{key} has {str(entry)[:80]!r}; an entry is written {{kind: host, id: gx-04}}")
        yield Blamed(entry["kind"], (str(entry["id"]),))


def _recovery(stated: Mapping[str, object]) -> tuple[tuple[str, ...], str]:
    nested = stated.get("recovery")
    if nested is not None and not isinstance(nested, dict):
        raise _Wrong("recovery is written {job: [restart], node: none}")
    where: Mapping[str, object] = nested if isinstance(nested, dict) else stated
    jobs, node = tuple(_texts(where, "job")), _text(where, "node") or ""
    unknown = [job for job in jobs if job not in get_args(JobAction)]
    if unknown:
        raise _Wrong(f"job is {unknown[0]!r}, none of {', '.join(get_args(JobAction))}")
    if node and node not in _NODES:
        raise _Wrong(f"node is {node!r}, none of {', '.join(_NODES)}")
    return jobs, node


def _text(stated: Mapping[str, object], key: str) -> str | None:
    value = stated.get(key)
    if value is not None and not isinstance(value, str):
        raise _Wrong(f"{key} is {str(value)[:80]!r}, no word")
    return value or None


def _texts(stated: Mapping[str, object], key: str) -> Iterable[str]:
    for value in _list(stated, key):
        if not isinstance(value, str):
            raise _Wrong(f"{key} has {str(value)[:80]!r}, no word")
        yield value


def _list(stated: Mapping[str, object], key: str) -> Sequence[object]:
    value = stated.get(key)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise _Wrong(f"{key} is to be a list")
    return value
