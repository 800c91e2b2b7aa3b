"""From arguments to files: globs, directories, pipes, each file once, in an order that arguments do not change.

In: paths as typed. Out: `Found` files in natural order, and in words what was left out.
"""

# Paths are texts of any bytes here, and pathlib would normalise what people typed.

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Callable, Sequence
from typing import Literal

from diagnose.dataclass import dataclass
from diagnose.errors import SourceError
from diagnose.settings import Limits
from diagnose.sources.printable import natural_key, printable
from diagnose.sources.streams import read_error

Role = Literal["job", "kernel", "scheduler"]
STDIN = "-"

# Not opened when met in a folder (they are when named): programs, settings, weights, data, pictures.
_SKIPPED = {
    "program text": """.py .pyi .pyc .pyx .sh .bash .c .cc .cpp .cu .cuh .h .hpp .js .ts .css .html .ipynb .md .rst .j2
        .sbatch .slurm .diff .patch""",
    "settings": ".toml .ini .cfg .conf .lock .env",
    "weights or data": """.pt .pth .ckpt .bin .safetensors .distcp .npz .npy .arrow .parquet .idx .pkl .pickle .h5 .hdf5
        .onnx .gguf .tfrecord .model .db .sqlite .metadata""",
    "a program or package": ".so .a .o .whl .jar .exe .egg .deb .rpm",
    "an image or document": ".png .jpg .jpeg .gif .svg .pdf .mp4 .wav .flac",
}
_WHY_SKIPPED = {extension: why for why, extensions in _SKIPPED.items() for extension in extensions.split()}
_PLAIN_FOLDERS = ("__pycache__", "node_modules", "site-packages")


@dataclass(frozen=True, slots=True)
class Found:
    """A file to read: its path for the system, its name for people, whether someone named it, its size.

    `inode` tells a file with several names (hard links) from others.
    """

    path: str
    name: str
    role: Role
    named: bool
    size: int | None
    pipe: bool = False
    inode: tuple[int, int] | None = None


class Left:
    """What is not read and why, in words; many files of one reason in one sentence."""

    _SHOWN = 3
    _SENTENCES = 200

    def __init__(self) -> None:
        self._order: list[tuple[str, str]] = []
        self._names: dict[tuple[str, str], list[str]] = {}
        self._counts: dict[tuple[str, str], int] = {}

    def add(self, name: str, why: str) -> None:
        """Record that `name` is not read because of `why`."""
        folder = name.rpartition("!")[0] or os.path.dirname(name)
        key = (folder, why)
        if key not in self._counts:
            self._order.append(key)
            self._counts[key] = 0
            self._names[key] = []
        self._counts[key] += 1
        if len(self._names[key]) < self._SHOWN:
            self._names[key].append(name)

    def sentences(self) -> tuple[str, ...]:
        """Return a sentence per reason and folder."""
        said = []
        for key in self._order[: self._SENTENCES]:
            names, count = self._names[key], self._counts[key]
            more = f" and {count - len(names)} more like these" if count > len(names) else ""
            said.append(f"{', '.join(names)}{more}: {key[1]}")
        if rest := len(self._order) - len(said):
            said.append(f"{rest} more inputs: for other reasons like these")
        return tuple(said)

    def add_error(self, error: SourceError) -> None:
        """Record an error, whose message starts with the name."""
        name, colon, why = str(error).partition(": ")
        if colon:
            self.add(name, why)
        else:
            self.add("input", str(error))


def find(paths: Sequence[tuple[str, Role]], limits: Limits, left: Left) -> list[Found]:
    """Return the files behind `paths`, sorted; explicit kernel logs and scheduler records win over job logs."""
    walker = _Walker(limits, left)
    for path, role in sorted(set(paths), key=lambda item: (item[1] == "job", natural_key(item[0]), item[1])):
        walker.argument(path, role)
    order = ("job", "kernel", "scheduler")
    # Of several ways to one file the named one is kept, then the first in order: the arguments' order plays no part.
    candidates = sorted(
        walker.found, key=lambda found: (found.role == "job", not found.named, natural_key(found.name), found.path)
    )
    once: dict[str | tuple[int, int], Found] = {}
    for found in candidates:
        once.setdefault(found.path if found.pipe else found.inode or os.path.realpath(found.path), found)
    return sorted(once.values(), key=lambda found: (order.index(found.role), natural_key(found.name)))


class _Walker:
    def __init__(self, limits: Limits, left: Left) -> None:
        self.found: list[Found] = []
        self._limits = limits
        self._left = left
        self._entries = 0
        self._full = False

    def argument(self, path: str, role: Role) -> None:
        if path == STDIN:
            self.found.append(Found(STDIN, "-", role, named=True, size=None, pipe=True))
            return
        if self._outside(path):
            return
        try:
            status = os.stat(path)
        except (OSError, ValueError) as error:
            if matches := self._expand(path):
                for match in matches:
                    self.argument(match, role)
            else:
                pattern = isinstance(error, FileNotFoundError) and any(char in path for char in "*?[")
                if pattern:
                    self._left.add(printable(path), "matches nothing; check the pattern")
                else:
                    self._left.add_error(read_error(printable(path) or "an empty name", error))
            return
        if stat.S_ISDIR(status.st_mode):
            self._directory(path, role)
        else:
            self._file(path, _display(path), role, status, named=True)

    def _expand(self, path: str) -> list[str]:
        if not any(char in path for char in "*?["):
            return []
        import glob

        try:
            matches = itertools.islice(glob.iglob(path, recursive=True), self._limits.files + 1)
            return sorted((match for match in matches if os.path.exists(match)), key=natural_key)
        except (OSError, ValueError, RecursionError):
            return []

    def _directory(self, top: str, role: Role) -> None:
        # Folders behind links come last, so that a file is known by its own path and not by a link's.
        visited: set[tuple[int, int]] = set()
        waiting: list[tuple[str, int]] = [(top, 0)]
        behind_links: list[tuple[str, int]] = []
        before = len(self.found)
        empty = True
        while waiting or behind_links:
            path, depth = waiting.pop() if waiting else behind_links.pop()
            try:
                status = os.stat(path)
                if (status.st_dev, status.st_ino) in visited:
                    continue
                visited.add((status.st_dev, status.st_ino))
                if self._outside(path):
                    continue
                with os.scandir(path) as scan:
                    entries = sorted(
                        itertools.islice(scan, self._limits.files * 10), key=lambda entry: natural_key(entry.name)
                    )
            except OSError as error:
                self._left.add_error(read_error(_display(path) + "/", error))
                continue
            inner: list[tuple[str, int]] = []
            for entry in entries:
                empty = False
                self._entries += 1
                if self._entries > self._limits.files * 10:
                    self._too_many()
                    return
                self._entry(entry, depth, role, inner.append, behind_links.append)
            waiting += reversed(inner)
        if empty:
            self._left.add(_display(top) or top, "an empty folder; check the path")
        elif len(self.found) == before and top:
            self._left.add(_display(top) or top, "nothing in this folder is a log")

    def _entry(
        self,
        entry: os.DirEntry[str],
        depth: int,
        role: Role,
        later: Callable[[tuple[str, int]], None],
        last: Callable[[tuple[str, int]], None],
    ) -> None:
        name = _display(entry.path)
        try:
            if entry.is_dir():
                if entry.name.startswith(".") or entry.name in _PLAIN_FOLDERS:
                    self._left.add(name + "/", "a hidden or package folder, not searched; name it to read it")
                elif depth >= self._limits.depth:
                    self._left.add(name + "/", f"more than {self._limits.depth} folders deep; name it to read it")
                else:
                    (last if entry.is_symlink() else later)((entry.path, depth + 1))
                return
            if entry.name.startswith("."):
                self._left.add(name, "a hidden file; name it to read it")
                return
            status = entry.stat()
        except (OSError, ValueError) as error:
            self._left.add_error(read_error(name, error))
            return
        why = _WHY_SKIPPED.get(os.path.splitext(entry.name)[1].lower())
        if why is not None:
            self._left.add(name, f"by its name {why}; name the file to read it")
            return
        self._file(entry.path, name, role, status, named=False)

    def _file(self, path: str, name: str, role: Role, status: os.stat_result, *, named: bool) -> None:
        mode = status.st_mode
        if self._outside(path):
            return
        if stat.S_ISREG(mode):
            if len(self.found) >= self._limits.files:
                self._too_many()
                return
            inode = (status.st_dev, status.st_ino) if status.st_nlink > 1 else None
            self.found.append(Found(path, name, role, named, status.st_size, inode=inode))
        elif named and stat.S_ISFIFO(mode) and not self._limits.roots:
            self.found.append(Found(path, name, role, named, None, pipe=True))
        elif named and stat.S_ISCHR(mode) and status.st_rdev == os.makedev(1, 3):  # /dev/null
            self.found.append(Found(path, name, role, named, 0))
        elif stat.S_ISFIFO(mode):
            self._left.add(name, "a pipe inside a folder is not waited for; name it to read it")
        else:
            self._left.add(name, "a device or socket, not a log; save what it gives to a file")

    def _outside(self, path: str) -> bool:
        """Whether a path leads out of the folders that may be read; nothing else is said of it then."""
        roots = self._limits.roots
        if not roots:
            return False
        from diagnose.sources.confine import OUTSIDE, inside

        # Of a pattern the part before its first mark leads somewhere; each match is judged by itself.
        marks = [path.index(mark) for mark in "*?[" if mark in path] if not os.path.lexists(path) else []
        if inside(os.path.dirname(path[: min(marks)]) if marks else path, roots):
            return False
        self._left.add(_display(path), OUTSIDE)
        return True

    def _too_many(self) -> None:
        if not self._full:
            self._full = True
            self._left.add("input", f"more than {self._limits.files} files; the rest was not read. Give fewer")


def _display(path: str) -> str:
    while path.startswith("./") and len(path) > 2:
        path = path[2:].lstrip("/") or "."
    name = path.replace("//", "/")
    if name.startswith("-"):  # as typed it would be an option
        name = "./" + name
    return printable(name)
