"""Labelled jobs on disk: what a directory of cases holds, as inputs and labels.

In: a directory with `NAME.yaml` beside `NAME.log`, or folders with `case.yaml` or `expected.yaml` and the inputs that
it names. Out: `Case`, one after another, and in words what cannot be used. The files are anybody's: their size is
bounded, and no input outside the case's own folder is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final, cast

import yaml

from diagnose.dataclass import dataclass
from diagnose.errors import UsageError
from diagnose.models.rule import AttributionName
from diagnose.store.recorder import Label

_LABELS: Final = ("case.yaml", "expected.yaml")
_LOGS: Final = (".log", ".log.gz", ".log.zst", ".log.xz", ".log.bz2", ".txt")
_LARGEST: Final = 1024 * 1024  # bytes of a label
_MOST: Final = 1_000_000  # entries of a directory
_DEEPEST: Final = 6
_ACCEPTED: Final = 20  # error types that are right for one case
_ALIASES: Final = 50  # a small file could make much of more
_OPTIONS: Final = {"--kernel-log": 1, "--scheduler-record": 2, "--inventory": 3}
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.:-]{0,99}\Z")
_ALIAS: Final = re.compile(rb"(?:^|[\s\[,{])\*[\w-]")
_ATTRIBUTIONS: Final = frozenset({"user", "infrastructure", "scheduler", "unknown"})
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Case:
    """A labelled job: its inputs, as absolute paths, and what it was. `origin` changes when label or inputs do."""

    id: str
    label: Label
    paths: tuple[str, ...] = ()
    kernel_logs: tuple[str, ...] = ()
    scheduler_records: tuple[str, ...] = ()
    inventory: str | None = None
    hosts: tuple[str, ...] = ()
    origin: str = ""


def read_cases(root: str) -> Iterator[Case | str]:
    """The cases of a directory in order of name; where one cannot be used, the reason. Raises `UsageError`."""
    if not os.path.isdir(root):
        raise UsageError(f"{root} is no directory of cases; give one, or a file made by `diagnose incidents export`")
    found = 0
    for path in _labels(root):
        case = _case(path)
        found += not isinstance(case, str) or bool(case)
        if case:
            yield case
    if not found:
        raise UsageError(f"{root} holds no labelled cases: NAME.yaml beside NAME.log, or folders with case.yaml")


def _labels(root: str) -> Iterator[str]:
    """The YAML files of a directory and the folders in it, in order."""
    waiting = [(root, 0)]
    seen = 0
    while waiting:
        folder, depth = waiting.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue
        names = {entry.name for entry in entries}
        seen += len(entries)
        if seen > _MOST:
            raise UsageError(f"{root} holds more than {_MOST} entries; give a smaller directory")
        own = next((name for name in _LABELS if name in names), None)
        if own is not None:
            yield os.path.join(folder, own)
            continue
        folders = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        waiting.extend((path, depth + 1) for path in reversed(folders) if depth < _DEEPEST)
        yield from (entry.path for entry in entries if entry.name.endswith((".yaml", ".yml")) and entry.is_file())


def _case(path: str) -> Case | str:
    """One case; the reason why it cannot be used; or nothing, where the file is no label at all."""
    folder, name = os.path.split(path)
    try:
        with open(path, "rb") as file:
            data = file.read(_LARGEST + 1)
        if len(_ALIAS.findall(data)) > _ALIASES:
            return f"{path}: holds too many aliases"
        given = yaml.load(data, Loader=_LOADER) if len(data) <= _LARGEST else None  # noqa: S506 - a safe loader
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        return f"{path}: not readable ({str(error).splitlines()[0][:100]})"
    if not isinstance(given, dict) or "error_type" not in given:
        return f"{path}: larger than a label may be" if len(data) > _LARGEST else ""
    label = cast("Mapping[str, object]", given)
    stem = os.path.basename(folder) if name in _LABELS else name.rpartition(".")[0]
    known_as = _text(label.get("id")) or stem
    if not _NAME.match(known_as):
        return f"{path}: {known_as[:40]!r} is no name for an incident (letters, figures, . _ : -)"
    inputs = label.get("inputs")
    if inputs is None:
        log = next((stem + end for end in _LOGS if os.path.exists(os.path.join(folder, stem + end))), None)
        inputs = [log] if log else []
    if not isinstance(inputs, list) or not inputs or not all(isinstance(one, str) for one in inputs):
        return f"{path}: names no inputs that are there"
    sorted_inputs = _sorted_inputs(folder, inputs)
    if isinstance(sorted_inputs, str):
        return f"{path}: {sorted_inputs}"
    error_type = label.get("error_type")
    if not isinstance(error_type, str):
        return f"{path}: no failure"
    paths, kernel, scheduler, inventory = sorted_inputs
    said = Label(
        error_type=error_type,
        attribution=_attribution(label.get("attribution")),
        summary=_text(label.get("root_cause")) or _text(label.get("title")),
        job=_job(label),
        id=known_as,
        accepted=_accepted(label, error_type),
    )
    every = (*paths, *kernel, *scheduler, *inventory)
    return Case(
        known_as,
        said,
        paths,
        kernel,
        scheduler,
        inventory[0] if inventory else None,
        _hosts(label),
        f"case {_digest(data, every)}",
    )


_Inputs = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...]]


def _sorted_inputs(folder: str, inputs: Sequence[str]) -> _Inputs | str:
    """Paths, kernel logs, scheduler records and inventories that the arguments name, all within the folder."""
    sorts: tuple[list[str], ...] = ([], [], [], [])
    into = 0
    root = os.path.realpath(folder)
    for word in inputs:
        if word in _OPTIONS:
            into = _OPTIONS[word]
            continue
        if word.startswith("-") or "\0" in word:
            return f"its input {word[:60]!r} is no file"
        path = os.path.realpath(os.path.join(root, word))
        if os.path.commonpath([root, path]) != root:
            return f"its input {word[:60]!r} lies outside its folder"
        if not os.path.exists(path):
            return f"its input {word[:60]!r} does not exist"
        sorts[into].append(path)
        into = 0
    return tuple(sorts[0]), tuple(sorts[1]), tuple(sorts[2]), tuple(sorts[3])


def _text(value: object) -> str:
    return " ".join(value.split())[:2_000] if isinstance(value, str) else ""


def _accepted(label: Mapping[str, object], error_type: str) -> tuple[str, ...]:
    """The error types that are right as well."""
    given = label.get("accept")
    named = given if isinstance(given, list) else [given]
    return tuple(dict.fromkeys(one for one in named if isinstance(one, str) and one != error_type))[:_ACCEPTED]


def _attribution(value: object) -> AttributionName | None:
    return cast("AttributionName", value) if isinstance(value, str) and value in _ATTRIBUTIONS else None


def _job(label: Mapping[str, object]) -> str | None:
    recovery = label.get("recovery")
    jobs = recovery.get("job") if isinstance(recovery, dict) else label.get("job")
    first = jobs[0] if isinstance(jobs, list) and jobs else jobs
    return first[:50] if isinstance(first, str) else None


def _hosts(label: Mapping[str, object]) -> tuple[str, ...]:
    culprits = label.get("culprits", label.get("culprit"))
    named = [one for one in culprits if isinstance(one, dict)] if isinstance(culprits, list) else []
    return tuple(str(one["id"])[:255] for one in named if one.get("kind") == "host" and one.get("id"))


def _digest(data: bytes, paths: Sequence[str]) -> str:
    digest = sha256(data)
    for path in paths:
        size = os.stat(path).st_size if os.path.isfile(path) else 0
        digest.update(f"{os.path.basename(path)}:{size};".encode("utf-8", "backslashreplace"))
    return digest.hexdigest()[:16]
