"""The files below one rules directory, with every bound kept.

In: a directory. Out: `RuleFile`s in a stable order, and problems for whatever is there and cannot be read.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Final

from diagnose.dataclass import dataclass
from diagnose.errors import Problem

MAX_FILE_BYTES: Final = 1024 * 1024
MAX_FILES: Final = 5_000
MAX_DEPTH: Final = 6
MAX_ENTRIES: Final = 20_000
"""Of whatever kind: the directory that was named by mistake may be a whole disk."""


@dataclass(frozen=True, slots=True)
class RuleFile:
    """One file: `path` as shown to people, `name` relative to its directory (with `/`), and its bytes."""

    path: str
    name: str
    data: bytes


def shipped_rules() -> str:
    """The directory of the rules that come with the program: inside the installed package, else beside it."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    installed = os.path.join(package, "shipped", "rules")
    return installed if os.path.isdir(installed) else os.path.join(os.path.dirname(package), "rules")


def shown(path: str) -> str:
    """A path as people know it: relative when it lies below the working directory."""
    full = os.path.abspath(path)
    try:
        here = os.getcwd()
    except OSError:  # the working directory was removed
        return full
    return os.path.relpath(full, here) if full.startswith(here.rstrip(os.sep) + os.sep) else full


def read_tree(root: str) -> tuple[list[RuleFile], list[Problem]]:
    """Read every `.yml` below a directory; hidden names are skipped, links must stay inside."""
    label, problems, files = shown(root), list[Problem](), list[RuleFile]()
    if not os.path.isdir(root):
        what = "is not a directory" if os.path.exists(root) else "does not exist"
        return [], [Problem(label, None, "file", f"{what}; give a directory of rules")]
    real = os.path.realpath(root)
    entries = itertools.count()
    for path, name in _walk(root, "", 0, problems, entries):
        if len(files) >= MAX_FILES:
            problems.append(Problem(label, None, "file", f"more than {MAX_FILES} rule files; split the directory"))
            break
        place = os.path.join(label, name.replace("/", os.sep))
        data, problem = _read(path, real)
        if data is not None:
            files.append(RuleFile(place, name, data))
        else:
            problems.append(Problem(place, None, "file", problem))
    if next(entries) > MAX_ENTRIES:  # of such a directory nothing else is worth telling
        return [], [Problem(label, None, "file", f"more than {MAX_ENTRIES} files; give a directory of rules alone")]
    return files, problems


def _walk(
    folder: str, prefix: str, depth: int, problems: list[Problem], seen: Iterator[int]
) -> Iterator[tuple[str, str]]:
    if depth > MAX_DEPTH:
        problems.append(Problem(shown(folder), None, "file", f"directories nested deeper than {MAX_DEPTH}"))
        return
    try:
        with os.scandir(folder) as scan:
            entries = sorted(itertools.islice(scan, MAX_ENTRIES + 1), key=lambda entry: entry.name)
    except OSError as error:
        problems.append(Problem(shown(folder), None, "file", f"cannot be listed: {error.strerror}"))
        return
    for entry in entries:
        if next(seen) >= MAX_ENTRIES:
            return
        if entry.name.startswith(".") or entry.name == "__pycache__":
            continue
        name = prefix + entry.name
        is_yaml = entry.name.endswith((".yml", ".yaml"))
        if entry.is_dir(follow_symlinks=False):
            if is_yaml:
                problems.append(Problem(shown(entry.path), None, "file", "is a directory, but named like a rule file"))
            yield from _walk(entry.path, name + "/", depth + 1, problems, seen)
        elif entry.is_symlink() and _leads_to_folder(entry):
            problems.append(Problem(shown(entry.path), None, "file", "is a link to a directory; such are not followed"))
        elif entry.name.endswith(".yaml"):
            problems.append(Problem(shown(entry.path), None, "file", "rule files end in .yml; rename it"))
        elif is_yaml:
            yield entry.path, name


def _leads_to_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # what it leads to may not be looked at
        return False


def _read(path: str, root: str) -> tuple[bytes | None, str]:
    """The bytes of one file, or why not."""
    target = os.path.realpath(path)
    if not target.startswith(root.rstrip(os.sep) + os.sep):
        return None, "is a link that leads out of its rules directory"
    if not os.path.isfile(target):
        return None, "is not a regular file" if os.path.exists(target) else "is a link to nothing"
    try:
        with open(target, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        return None, f"cannot be read: {error.strerror}"
    if len(data) > MAX_FILE_BYTES:
        return None, f"larger than {MAX_FILE_BYTES >> 20} MiB; a rule file is a few kB"
    return data, ""
